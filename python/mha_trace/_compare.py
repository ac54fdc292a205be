"""Two models, or two recordings of a whole model: which part goes wrong first, and why."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._binary import Error, run_all
from ._commands import private_folder
from ._functions import kept
from ._parts import first_tensor, parts_of
from ._record import record
from ._report import Finding, found_in
from ._roles import blocks, is_list
from ._run import Run
from ._settings import flags

# What numbers of a type may be off by, relative to the size of a row: the tolerances of torch.testing.
TOLERANCES = {"torch.float64": 2e-7, "torch.float32": 1.13e-5, "torch.float16": 1e-3, "torch.bfloat16": 1.6e-2}
# What grows by less from one part to a later one may be rounding.
ALLOWED = 16


@dataclass(frozen=True, repr=False)
class ByLayer:
    """What ``diff --by-layer`` found; ``str()`` is what the command prints.

    >>> found = ByLayer('{"verdict": "same", "first_wrong": null, "cause": null, "parts": []}', "same")
    >>> found.same, found.first_wrong, found.findings
    (True, None, [])
    """

    json: str
    text: str

    @property
    def data(self) -> dict[str, Any]:
        """All of it, as ``--format json`` has it."""
        found: dict[str, Any] = json.loads(self.json)
        return found

    @property
    def same(self) -> bool:
        """Whether no part is wrong by itself, and none was left open."""
        return self.verdict == "same"

    @property
    def verdict(self) -> str:
        """``same``, ``differs``, or ``unchecked``: nothing is wrong, but rounding may have chosen other experts."""
        word: str = self.data["verdict"]
        return word

    @property
    def first_wrong(self) -> str | None:
        """The first tensor that is wrong by itself: ``model.layers.3.mlp.out``."""
        name: str | None = self.data["first_wrong"]
        return name

    @property
    def layer(self) -> int | None:
        """Its layer."""
        number: int | None = self.data["first_wrong_layer"]
        return number

    @property
    def part(self) -> str | None:
        """What it is: ``attention``, ``mlp``, ``norm``, ``linear``, ``layer`` and so on."""
        name: str | None = self.data["first_wrong_part"]
        return name

    @property
    def findings(self) -> list[Finding]:
        """The mistakes that give its numbers."""
        report = (self.data["cause"] or {}).get("report") or {"files": []}
        return [found_in(file["path"], found) for file in report["files"] for found in file["diagnosis"]]

    @property
    def parts(self) -> list[dict[str, Any]]:
        """Every part in order of execution: ``name``, ``error``, ``inherited``, ``own`` and ``known_by``."""
        parts: list[dict[str, Any]] = self.data["parts"]
        return parts

    def __str__(self) -> str:
        return self.text.rstrip("\n")

    __repr__ = __str__


def compare(reference: Any, port: Any, **settings: Any) -> ByLayer:
    """Compares two recordings of a whole model, made by ``record(model, everything=True)``, or paths of such: which
    part is wrong first by itself, and which mistake it is. A list is of the ranks of a model that runs on several
    devices. The settings are those of ``mha-trace diff``: ``rtol``, ``atol``, and ``unshard``.
    """
    with private_folder() as folder:
        files = [_saved(side, folder / name) for side, name in ((reference, "reference"), (port, "port"))]
        stated = ["--by-layer", *flags(settings, folder), "--", *files]
        (data, _), (text, _) = run_all(
            [["diff", f"--format={form}", *stated] for form in ("json", "table")], str(folder)
        )
    return ByLayer(data, text)


def first_wrong(reference: Any, port: Any, inputs: Any) -> ByLayer:
    """Calls two models with the same inputs, and finds the first part of the second one that is wrong by itself.

    The place is found by bisection: in each pass both models run, and what one layer gives is kept and compared. What
    is kept in the end is the parts of one layer. ``inputs`` are those of the models: a dict of keyword arguments, a
    tuple, or a tensor. Their modules need not have the same names, if there are as many layers.

    >>> import mha_trace, torch
    >>> def model():
    ...     torch.manual_seed(0)
    ...     return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).eval()
    >>> port = model()
    >>> port[1].eps = 0.5
    >>> mha_trace.first_wrong(model(), port, torch.ones(1, 3, 4)).first_wrong
    '1.out'
    """
    models = (reference, port)
    for model in models:
        if getattr(model, "training", False):
            raise Error(
                "error: a model is in training mode, in which dropout makes every call another one\n"
                "help: put it into evaluation mode, by model.eval()"
            )
    cuts = _pairs(*(_cuts(model, inputs) for model in models))
    if not cuts:
        raise Error(
            "error: the models have no parts that could be compared\nhelp: give modules of PyTorch that hold others"
        )
    first, limit = 0, None
    while True:
        at = _first_beyond(models, inputs, cuts, first, limit)
        at = min(at, len(cuts) - 1)
        # What stands between a part and the one before it may be wrong, too.
        found = _of_parts(models, inputs, cuts[max(at - 1, 0) : at + 1])
        if found.verdict == "differs" or at >= len(cuts) - 1:
            return found
        # It was rounding that grew: what goes on growing so is no mistake.
        first, limit = at + 1, ALLOWED * _error(models, inputs, cuts[at])[0]


def _saved(side: Any, folder: Path) -> str:
    """The path of a recording."""
    if isinstance(side, (str, os.PathLike)):
        return os.fspath(side)
    if isinstance(side, (list, tuple)):
        folder.mkdir()
        for at, rank in enumerate(side):
            saved = Path(_saved(rank, folder / f"rank{at}"))
            if saved.parent != folder:
                (folder / f"rank{at}").symlink_to(saved.resolve())
        return str(folder)
    if not isinstance(side, Run) or side.parts is None:
        raise Error(
            f"error: {type(side).__name__} is no recording of a whole model\n"
            "help: make one, by mha_trace.record(model, everything=True), or give a path"
        )
    folder.mkdir()
    if side.calls:
        side.save(folder)
    else:
        side.parts.save(folder)
    return str(folder)


def _cuts(model: Any, inputs: Any) -> list[str]:
    """The parts that a model runs one after the other, none within another: what stands before its layers, these, and
    what stands behind them."""
    modules = dict(model.named_modules())
    parts = parts_of(modules, blocks(modules))
    listed = [path for path in parts if is_list(path)]
    outer = {path: part for path, part in parts.items() if not any(path.startswith(f"{one}.") for one in listed)}
    seen: list[str] = []
    with ExitStack() as undo:
        for path, module in outer.items():
            hook = module.register_forward_hook(lambda *_, path=path: seen.append(path))
            undo.callback(hook.remove)
        _call(model, inputs)
    return list(dict.fromkeys(seen))


def _pairs(left: list[str], right: list[str]) -> list[Any]:
    """The parts of two models that are beside each other: those of one name, or all in order where none is in both."""
    common = [(path, path) for path in left if path in right]
    return common or list(zip(left, right))


def _first_beyond(models: Any, inputs: Any, cuts: list[Any], first: int, limit: float | None) -> int:
    """The first cut from one on whose error is beyond a limit, that of its types unless another is stated; as many as
    there are where none is."""
    low, high = first, len(cuts)
    while low < high:
        middle = (low + high) // 2
        error, tolerance = _error(models, inputs, cuts[middle])
        if error > (tolerance if limit is None else max(limit, tolerance)):
            high = middle
        else:
            low = middle + 1
    return low


def _error(models: Any, inputs: Any, cut: Any) -> tuple[float, float]:
    """How far what a part gives is apart in the worst row, relative to its size; and what its types may be off by."""
    import torch

    given = [_given(model, inputs, path) for model, path in zip(models, cut)]
    if any(one is None for one in given) or given[0].shape != given[1].shape or not given[0].is_floating_point():
        return 0.0, 0.0
    tolerance = max(TOLERANCES.get(str(one.dtype), 0.0) for one in given)
    left, right = (one.double().reshape(-1, one.shape[-1]) for one in given)
    size = left.abs().amax(-1)
    apart = torch.where(left.isnan() & right.isnan(), 0.0, (left - right).abs()).nan_to_num(torch.inf).amax(-1)
    size = size.clamp(min=size.median().clamp(min=torch.finfo(torch.float64).tiny))
    return float((apart / size).max()), tolerance


def _given(model: Any, inputs: Any, path: str) -> Any:
    """What a part gives, alone of all."""
    found: list[Any] = []

    def keep(_: Any, __: Any, result: Any) -> None:
        first = first_tensor(result)
        if not found and first is not None:
            found.append(kept(first))

    hook = model.get_submodule(path).register_forward_hook(keep)
    try:
        _call(model, inputs)
    finally:
        hook.remove()
    return found[0] if found else None


def _of_parts(models: Any, inputs: Any, cuts: list[Any]) -> ByLayer:
    """The comparison of the parts of some layers, or of parts that stand alone."""
    runs = []
    for model, paths in zip(models, zip(*cuts)):
        with record(model, prefix=paths, everything=True) as run:
            _call(model, inputs)
        runs.append(run)
    return compare(*runs)


def _call(model: Any, inputs: Any) -> None:
    import torch

    with torch.no_grad():
        if isinstance(inputs, Mapping):
            model(**inputs)
        elif isinstance(inputs, (tuple, list)):
            model(*inputs)
        else:
            model(inputs)
