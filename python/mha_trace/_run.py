"""What was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ._binary import Error
from ._call import Call, check_calls
from ._report import Report

# What names of files end in: a folder of such a name is not meant.
FILES = (".json", ".npz", ".npy", ".pt", ".pth", ".bin", ".gguf", ".html", ".md", ".tex")


class Run:
    """The calls of attention that were recorded, in order; ``run[0]`` is the first, ``run[0]["weights"]`` an array.

    >>> import mha_trace, numpy as np
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 4, 8), dtype=np.float32)
    >>> def attend(q, k, v):
    ...     scores = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(8))
    ...     weights = np.exp(scores - scores.max(-1, keepdims=True))
    ...     return weights / weights.sum(-1, keepdims=True) @ v
    >>> run = mha_trace.record_function(attend, q, k, v)
    >>> len(run), run[0]["out"].shape, run.check().same
    (1, (1, 2, 4, 8), True)
    """

    def __init__(
        self,
        calls: list[Call],
        nothing: Callable[[], str] | None = None,
        result: Any = None,
        left_out: dict[str, str] | None = None,
        parts: Any = None,
    ) -> None:
        self.calls = calls
        # Modules called attention whose layers are of another kind by the model's config.
        self.left_out = {} if left_out is None else left_out
        self.result = result
        # What lies between the attentions, where that was recorded.
        self.parts = parts
        self._nothing = nothing

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[Call]:
        return iter(self.calls)

    def __getitem__(self, at: int) -> Call:
        if isinstance(at, str):
            what = f"a run is a list of calls, and {at!r} belongs to one call"
            raise Error(f"error: {what}\nhelp: pick a call: run[0][{at!r}]")
        if not self.calls:
            self._refuse_nothing()
        return self.calls[at]

    def __repr__(self) -> str:
        return f"<Run of {len(self.calls)} calls: {', '.join(call.name for call in self.calls)}>"

    def select(self, *, layer: int | None = None, index: int | None = None, prefix: str = "") -> Run:
        """The calls of a layer, of a pass (``index=0`` is the first of every module), or below a path."""
        chosen = [
            call
            for call in self.calls
            if layer in (None, call.layer) and index in (None, call.index) and call.path.startswith(prefix)
        ]
        return Run(chosen, lambda: "error: no recorded call is so; recorded: " + ", ".join(c.name for c in self.calls))

    def save(self, path: Any) -> list[Path]:
        """Writes what was recorded: one call to a ``.safetensors`` file, more to a folder, a file each. What lies
        between the attentions of a model is in ``parts.safetensors``, a file for each forward pass.

        ``mha-trace check`` takes the file or the folder without flags.
        """
        self._refuse_nothing()
        target = Path(path)
        if target.suffix == ".safetensors":
            if self.parts is not None:
                raise Error(
                    f"error: a whole model was recorded, and a file holds one call: {target}\n"
                    f"help: give a folder: {target.with_suffix('')}"
                )
            if len(self.calls) > 1:
                raise Error(
                    f"error: {len(self.calls)} calls were recorded, and a file holds one: {target}\n"
                    f"help: save one, by run[0].save, or give a folder: {target.with_suffix('')}"
                )
            self.calls[0].save(target)
            return [target]
        if target.suffix in FILES:
            raise Error(
                f"error: {target} is no .safetensors file\n"
                f"help: recorded layers are saved as .safetensors, or in a folder: {target.with_suffix('')}"
            )
        target.mkdir(parents=True, exist_ok=True)
        paths = [target / f"{call.name}.safetensors" for call in self.calls]
        for call, path in zip(self.calls, paths):
            call.save(path)
        return paths + (self.parts.save(target) if self.parts is not None else [])

    def check(self, **settings: Any) -> Report:
        """Recomputes every call and compares step by step: the whole layer where the model's config says what it is,
        else the core, from q, k and v to the heads, which the report tells.

        The settings are those of ``mha_trace.check``.
        """
        self._refuse_nothing()
        report = check_calls(self.calls, settings)
        left_out = [f"{path}: left out, as {kind} is no softmax attention" for path, kind in self.left_out.items()]
        return replace(report, notes=(*report.notes, *left_out))

    def __mha_trace_check__(self, settings: dict[str, Any]) -> Report:
        return self.check(**settings)

    def _refuse_nothing(self) -> None:
        if not self.calls:
            raise Error(self._nothing() if self._nothing else "error: nothing was recorded")
