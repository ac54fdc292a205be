"""Assertions for test suites."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from . import _files
from ._binary import Error
from ._commands import check, diff


def assert_same(source: Any, golden: Any = None, **settings: Any) -> None:
    """Fails, with the report as its text, unless all recorded steps are the same.

    With ``golden`` (a file, a run, or a dict of arrays), every step is compared with it; without it, ``source`` is
    recomputed from its own inputs. ``rtol``, ``atol`` and the other settings are those of ``diff`` or ``check``.

    >>> import mha_trace
    >>> steps = mha_trace.trace(seed=3)
    >>> mha_trace.assert_same({"output": steps["output"]}, golden={"output": steps["output"] + 1e-9})
    """
    __tracebackhide__ = True
    report = check(source, **settings) if golden is None else diff(source, golden, **settings)
    if not report.same:
        raise AssertionError("\n".join([str(report), *([] if report.findings else _mistakes(source, golden))]))


def _mistakes(source: Any, golden: Any) -> list[str]:
    """The mistakes that a recording shows by its own numbers, and its golden does not. A comparison looks for them in
    small files of whole layers alone."""
    if golden is None or not hasattr(source, "__mha_trace_check__"):
        return []
    try:
        found = check(source).findings
        known = {one.summary for one in check(golden).findings} if found else set()
    except Error:
        return []  # Settings that nobody stated are needed.
    new = [one for one in found if one.summary not in known]
    said = [f"known mistake {one.id}, at {one.step}: {one.summary}" if one.is_known else one.summary for one in new]
    return ["by its own numbers it has a mistake:", *said] if said else []


class AttentionGolden:
    """The goldens of one test, beside its file: ``test_model/test_layer.safetensors``."""

    def __init__(self, test_file: Path, test_name: str, regenerate: bool) -> None:
        self._folder = test_file.parent / test_file.stem
        self._name = re.sub(r"[^\w.-]", "_", test_name)
        self._regenerate = regenerate

    def path(self, name: str | None = None) -> Path:
        """Where the golden is, or will be."""
        return self._folder / f"{name or self._name}.safetensors"

    def check(self, source: Any, name: str | None = None, **settings: Any) -> None:
        """Compares a run or a dict of arrays with its golden, step by step.

        Where there is none it is written, and the test fails once; ``--force-regen`` writes it again. A test with
        several goldens names them.
        """
        __tracebackhide__ = True
        golden = self.path(name)
        if golden.exists() and not self._regenerate:
            assert_same(source, golden, **settings)
            return
        golden.parent.mkdir(parents=True, exist_ok=True)
        if hasattr(source, "save"):
            source.save(golden)
        else:
            _files.write(golden, source)
        if not self._regenerate:
            raise AssertionError(f"there was no golden, and it is written now: {golden}\nlook at it, and commit it")
