"""One call of an attention: what went in and what came out, and the file of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import _files, _layer
from ._arrays import Array, as_array
from ._binary import Error, find_binary
from ._commands import private_folder, report
from ._report import Report

# What the core's file holds, by the names of the format.
CORE = (
    "q_heads",
    "k_heads",
    "v_heads",
    "attn_mask",
    "scale",
    "softcap",
    "is_causal",
    "sinks",
    "scores",
    "masked_scores",
    "weights",
    "head_outputs",
    "lse",
)
# The function of a call of which only the module was seen.
UNSEEN = "unseen"
AXES = {
    "q_heads": ("batch", "head", "query", "head_dim"),
    "k_heads": ("batch", "head", "key", "head_dim"),
    "v_heads": ("batch", "head", "key", "head_dim"),
    "head_outputs": ("batch", "head", "query", "head_dim"),
    "weights": ("batch", "head", "query", "key"),
}


@dataclass
class Call:
    """One call of an attention layer or function.

    ``tensors`` holds what was seen, by the names of the steps: ``x`` (batch, query, model), ``q_heads``, ``k_heads``,
    ``v_heads`` (batch, head, token, head_dim) as the attention function got them, ``attn_mask``, ``weights``
    (batch, head, query, key), ``head_outputs``, ``output``. ``index`` counts the calls of the same module.
    """

    path: str
    layer: int | None
    index: int
    function: str
    tensors: dict[str, Any] = field(repr=False)
    prefix: str = ""
    configs: list[dict[str, Any]] = field(default_factory=list, repr=False)
    parameters: dict[str, Any] = field(default_factory=dict, repr=False)
    positions: Any = field(default=None, repr=False)
    dropout: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    problem: str = ""
    # Whether its keys came from elsewhere: it made its queries, and neither of its inputs went through its projection
    # of keys.
    is_borrowed: bool = False

    @property
    def name(self) -> str:
        """What its file is called: the path of the module, and the number of the call where there are more."""
        path = self.path.replace("/", "_") or "attention"
        return path if self.index == 0 else f"{path}.{self.index}"

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """A recorded tensor as a NumPy array; bf16 as float32."""
        if name not in self.tensors:
            raise KeyError(f"{name} was not recorded; recorded: {', '.join(self.tensors)}")
        return as_array(self.tensors[name], name).numpy()

    def array(self, name: str) -> Array | None:
        """A recorded tensor in its own type."""
        return as_array(self.tensors[name], name) if name in self.tensors else None

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
        return _layer.positions_note(self, about)

    def is_unknown(self) -> bool:
        """Whether it is of a module that does its own arithmetic and belongs to no model with a config: the settings of
        a check can say what it does."""
        is_told = self.configs or self.settings or self.is_borrowed
        return "x" in self.tensors and not is_told and not {"q_heads", "k_heads"} & self.tensors.keys()

    def _save_core(self, path: Path) -> None:
        core = self.core()
        steps = [{"name": name, "axes": AXES.get(name)} for name in core]
        _files.write(path, core, {"format": "mha-trace", "version": 1, "steps": steps})

    def core(self) -> dict[str, Array]:
        """What the attention function got and gave.

        Queries, keys and values have one width in a file; where values have another one, zeros fill up what is
        narrower, which changes no score and no output.
        """
        if "x" not in self.tensors:
            found = {name: as_array(tensor, name) for name, tensor in self.tensors.items()}
        else:
            found = {name: as_array(self.tensors[name], name) for name in CORE if name in self.tensors}
        if "q_heads" in found and "scale" in found:
            widths = {name: found[name].shape[-1] for name in ("q_heads", "k_heads", "v_heads", "head_outputs")}
            for name, width in widths.items():
                more = [(0, 0)] * 3 + [(0, max(widths.values()) - width)]
                found[name] = found[name].map(lambda a, more=more: np.pad(a, more))
        return found

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
