"""One call of an attention: the file of it, and its check."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _files, _layer
from ._arrays import as_array
from ._binary import Error, find_binary
from ._commands import private_folder, report
from ._masks import hidden_keys
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
        return self.save_as(path)

    def save_as(self, path: Any, family: str | None = None, is_stated: bool = False) -> list[str]:
        """The same with the config read as that of a ``family`` of models. Where it is of none that is known, the file
        needs flags if it ``is_stated`` that there are some, and otherwise holds the core alone."""
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
            return self._save_seen(path, "no config of a model says what it is")
        with private_folder() as folder:
            try:
                arrays, about = _layer.layer(self, folder, family)
            except Error as error:
                if is_stated and "output" in self.tensors:
                    return self._save_seen(path, _reason(error))
                if "q_heads" not in (self.arithmetic or self.tensors):
                    seen = self.no_core or "no attention function was seen in it"
                    help_ = f"{_wanted(error)}leave it out, by layers or prefix of record, or by run.select"
                    why = f"{_reason(error)}; and {seen}, so that no core could be read"
                    raise Error(f"error: {self.name}: {why}\nhelp: {help_}") from error
                self._save_core(path)
                wanted = _wanted(error)
                more = [f"{self.name}: to read the whole layer, {wanted[: -len('; or ')]}"] if wanted else []
                if self.arithmetic and self.no_core:
                    more.append(f"{self.name}: not all that it does is in cores: {self.no_core}")
                return [f"{self.name}: read as the core alone, from q, k and v to the heads: {_reason(error)}", *more]
            _files.write(path, arrays, about)
        others = [f"{self.name}: {one}" for one in self.differences]
        return [*_layer.positions_note(self, about), *_layer.causal_note(self, about), *others]

    def _save_seen(self, path: Path, why: str) -> list[str]:
        """Writes what was seen, and no settings. Nothing tells which step the function's queries and keys are."""
        seen = {name: a for name, a in self.tensors.items() if name not in ("q_heads", "k_heads")}
        _files.write(path, {name: as_array(a, name) for name, a in {**seen, **self.parameters}.items()})
        return [f"{self.name}: {why}: heads, mask and all else are as stated"]

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


def _wanted(error: Error) -> str:
    """What a check is to be told of a model that is not known, as the binary says it of its config."""
    said = re.sub(r"\s+", " ", error.said or str(error))
    if "not known" not in said and "no config" not in said:
        return ""
    family, told = re.search(r"it looks like ([\w-]+)", said), re.search(r"its config says (.*)", said)
    settings = re.findall(r"--([a-z-]+)(?: ([^\s-]\S*))?", told[1]) if told else []
    shown = [_setting(name.replace("-", "_"), value) for name, value in settings if name not in FOLLOWING]
    like = f"check(model_family={family[1]!r}), or " if family else ""
    return f"say what it does: {like}check({', '.join(shown) or 'heads=8, mask=…'}); or "


# The sizes that the weights have.
FOLLOWING = ("d-model", "d-in", "head-dim")


def _setting(name: str, value: str) -> str:
    """A flag as a setting in Python."""
    is_number = re.fullmatch(r"[\d.]+(e[+-]?\d+)?", value)
    return f"{name}={value if is_number else repr(value) if value else True}"


def check_calls(calls: list[Call], settings: Mapping[str, Any]) -> Report:
    """Checks recorded calls, each from a file of its own."""
    settings = dict(settings)
    family = settings.pop("model_family", None)
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
        if call.has_backward and not {"output", "head_outputs"} & set(call.gradients):
            raise Error(
                f"error: {call.name}: no gradient came back to what it gives\n"
                "help: call loss.backward() inside the with-block, of a loss that depends on it; without backward=True "
                "the forward pass alone is checked"
            )
        if call.has_backward and not set(call.gradients) - {"output", "head_outputs"}:
            raise Error(
                f"error: {call.name}: no gradient came back to what it reads, so that there is none to check\n"
                "help: let its input require one, as by x.requires_grad_(); without backward=True the forward pass "
                "alone is checked"
            )
    with private_folder() as folder:
        notes: list[str] = []
        paths: list[str] = []
        for call in calls:
            path = folder / f"{call.name}.safetensors"
            notes += call.save_as(path, family, "heads" in settings)
            paths.append(str(path))
        # Without its function nothing says what an attention makes of rows of padding, which nothing reads; with it
        # they spread over the slots of a cache that are not filled, which are no keys.
        own = any(
            hidden_keys(call) is not None and (call.function == UNSEEN or _layer.has_empty_slots(call))
            for call in calls
        )
        return report("check", paths, {"ignore_padding": own, **settings}, folder, notes)
