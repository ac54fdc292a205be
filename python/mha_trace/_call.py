"""One call of an attention: the file of it, and its check."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _files, _layer
from ._arrays import as_array
from ._binary import Error, find_binary
from ._commands import private_folder, report
from ._report import Report
from ._seen import UNSEEN, Seen

AXES = {
    "q_heads": ("batch", "head", "query", "head_dim"),
    "k_heads": ("batch", "head", "key", "head_dim"),
    "v_heads": ("batch", "head", "key", "head_dim"),
    "head_outputs": ("batch", "head", "query", "head_dim"),
    "weights": ("batch", "head", "query", "key"),
}


class Call(Seen):
    """One call of an attention layer or function: what was seen of it, in a file, and checked."""

    def save(self, path: Any) -> list[str]:
        """Writes a file that ``mha-trace check`` needs no flags for, where anything says what the module does; gives
        what there is to be said of it."""
        path = Path(path)
        if self.problem:
            raise Error(self.problem)
        if path.suffix != ".safetensors":
            raise Error(f"error: {path} is no .safetensors file\nhelp: recorded layers are saved as .safetensors")
        find_binary()
        if "x" not in self.tensors:
            self._save_core(path)
            return []
        if self.is_unknown():
            _files.write(path, {name: as_array(a, name) for name, a in {**self.tensors, **self.parameters}.items()})
            return [f"{self.name}: no config of a model says what it is: heads, mask and all else are as stated"]
        with private_folder() as folder:
            try:
                arrays, about = _layer.layer(self, folder)
            except Error as error:
                if "q_heads" not in self.tensors:
                    raise Error(
                        f"error: {self.name}: {_reason(error)}; and no attention function was seen in it, of which "
                        "the core could be read\nhelp: leave it out, by layers or prefix of record, or by run.select"
                    ) from error
                self._save_core(path)
                return [f"{self.name}: read as the core alone, from q, k and v to the heads: {_reason(error)}"]
            _files.write(path, arrays, about)
        others = [f"{self.name}: {one}" for one in self.differences]
        return [*_layer.positions_note(self, about), *others]

    def _save_core(self, path: Path) -> None:
        core = self.core()
        steps = [{"name": name, "axes": AXES.get(name)} for name in core]
        _files.write(path, core, {"format": "mha-trace", "version": 1, "steps": steps})

    def check(self, **settings: Any) -> Report:
        """As the ``check`` of a run, of this call alone."""
        return check_calls([self], settings)

    def __mha_trace_check__(self, settings: dict[str, Any]) -> Report:
        return self.check(**settings)


def _reason(error: Error) -> str:
    """What was wrong, without what to do about it: that is about the command line."""
    said = str(error).splitlines()[0]
    return said[len("error: ") :] if said.startswith("error: ") else said


def check_calls(calls: list[Call], settings: Mapping[str, Any]) -> Report:
    """Checks recorded calls, each from a file of its own."""
    for call in calls:
        if call.dropout:
            raise Error(
                f"error: {call.name}: dropout {call.dropout} was at work, and its draw is not recorded\n"
                "help: put the model into evaluation mode, by model.eval()"
            )
        is_seen = "attn_mask" in call.tensors or any(name.startswith(("mask", "attn_mask")) for name in settings)
        if call.is_unknown() and not is_seen:
            raise Error(
                f"error: {call.name}: no config of a model says what it is, nor was a mask seen\n"
                'help: say what it does, as by check(heads=8, mask="causal"), or mask="none"'
            )
    with private_folder() as folder:
        notes: list[str] = []
        paths: list[str] = []
        for call in calls:
            path = folder / f"{call.name}.safetensors"
            notes += call.save(path)
            paths.append(str(path))
        # Without its function nothing says what an attention makes of rows of padding, which nothing reads; with it
        # they spread over the slots of a cache that are not filled, which are no keys.
        own = any(
            _layer.hidden_keys(call) is not None and (call.function == UNSEEN or _layer.has_empty_slots(call))
            for call in calls
        )
        return report("check", paths, {"ignore_padding": own, **settings}, folder, notes)
