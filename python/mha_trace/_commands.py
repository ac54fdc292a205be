"""The commands of the binary as functions."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import _files
from ._binary import Error, run, run_all
from ._report import Report
from ._settings import VIEW, flags
from ._steps import Steps


@contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder that nobody else reads, and that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mha-trace-") as folder:
        yield Path(os.path.realpath(folder))


def report(command: str, files: Sequence[str], settings: Mapping[str, Any], folder: Path, notes: Any = ()) -> Report:
    """The report of ``check`` or ``diff`` on files: its JSON and its text, by two runs side by side."""
    stated = [*flags(settings, folder), "--", *files]
    commands = [[command, f"--format={form}", *stated] for form in ("json", "table")]
    (data, same), (text, _) = run_all(commands, str(folder))
    return Report(data, text, same, tuple(notes))


def check(source: Any, **settings: Any) -> Report:
    """Recomputes the recorded steps from their own inputs, and compares them one by one.

    ``source`` is a path (a file, or a folder of them), a recorded run, or a dict of arrays of NumPy, PyTorch, JAX or
    MLX by the steps' names: ``x`` (batch, query, model) and the weights for a layer, or ``q``, ``k``, ``v``
    (batch, head, token, head_dim) for only the core, with ``output`` or any other steps. The settings are the flags of
    ``mha-trace check``, with underscores; arrays can be given instead of files.

    >>> import mha_trace
    >>> steps = mha_trace.trace(seed=7)
    >>> mha_trace.check({name: steps[name] for name in ("x", "w_q", "w_k", "w_v", "w_o", "output")}, heads=2).same
    True
    """
    if hasattr(source, "__mha_trace_check__"):
        found: Report = source.__mha_trace_check__(settings)
        return found
    with private_folder() as folder:
        return report("check", [_as_file(source, folder, "arrays")], settings, folder)


def diff(left: Any, right: Any, **settings: Any) -> Report:
    """Compares two recorded files, runs or dicts of arrays as they are; nothing is recomputed.

    >>> import mha_trace
    >>> mha_trace.diff(mha_trace.trace(seed=1), mha_trace.trace(seed=2)).first_divergence
    'x'
    """
    with private_folder() as folder:
        files = [_as_file(left, folder, "left"), _as_file(right, folder, "right")]
        return report("diff", files, settings, folder)


def trace(**settings: Any) -> Steps:
    """Runs attention with these settings, and returns a dict of every step as a NumPy array, in order of execution.

    The numbers are PyTorch's, without PyTorch. Shapes: ``x`` (batch, seq_len, d_in), ``scores`` and ``weights``
    (batch, head, query, key), ``output`` (batch, query, d_model); docs/formats.md lists them all.

    >>> import mha_trace
    >>> mha_trace.trace(batch=2, seq_len=5, d_model=6, heads=3)["weights"].shape
    (2, 3, 5, 5)
    """
    for name in VIEW:
        if name in settings:
            raise Error(
                f"error: {name} is no setting of trace: it says what is printed\n"
                "help: take a part of the arrays: trace()['weights'][:, 1] is head 1"
            )
    with private_folder() as folder:
        arrays, about = run_to_file(flags(settings, folder), folder)
    steps = about["steps"]
    return Steps(
        {step["name"]: arrays[step["name"]].numpy() for step in steps},
        {step["name"]: step["formula"] for step in steps},
        {step["name"]: tuple(step["axes"]) for step in steps},
    )


def run_to_file(arguments: Sequence[str], folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run's arrays and what its file says of them."""
    out = folder / "trace.safetensors"
    run(["--quiet", f"--output={out}", *arguments], str(folder))
    return _files.read(out)


def _as_file(source: Any, folder: Path, name: str) -> str:
    """The path of a source; arrays are written into the folder."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    path = folder / f"{name}.safetensors"
    if hasattr(source, "save") and hasattr(source, "__mha_trace_check__"):
        if len(getattr(source, "calls", "1")) > 1:
            raise Error(f"error: {len(source)} calls were recorded, and one is compared\nhelp: pick it, by run[0]")
        source.save(path)
    elif isinstance(source, Mapping) or hasattr(source, "items"):
        arrays = dict(source.items())
        # Their order is that of the steps.
        order = {"format": "mha-trace", "version": 1, "steps": [{"name": name} for name in arrays]}
        _files.write(path, arrays, order)
    else:
        raise Error(f"error: {type(source).__name__} is not a path, a recorded run or a dict of arrays by name")
    return str(path)
