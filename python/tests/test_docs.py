"""The Python of the documentation runs: every block of docs/python.md, and the examples of every docstring."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import mha_trace

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"^```python( torch)?\n(.*?)^```", (ROOT / "docs/python.md").read_text("utf-8"), re.M | re.S)
MODULES = sorted(
    name for _, name, _ in pkgutil.iter_modules(mha_trace.__path__, "mha_trace.") if not name.endswith("__main__")
)
# Their examples are of PyTorch.
OF_TORCH = ("mha_trace._record", "mha_trace._function")


def run_blocks(is_torch, folder, monkeypatch):
    """The blocks are run in order, in one namespace, as a reader would."""
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    chosen = [text for needs, text in BLOCKS if bool(needs) == is_torch]
    for text in chosen:
        exec(compile(text, "docs/python.md", "exec"), names)
    return len(chosen), names


def test_the_blocks_that_need_numpy(tmp_path, monkeypatch):
    count, names = run_blocks(False, tmp_path, monkeypatch)
    assert count == 3
    # As the comments beside it say.
    assert names["golden"]["weights"].shape == (1, 3, 5, 5)
    assert names["golden"].formulas["scores"] == "scores_raw / √d_k"
    report = names["report"]
    assert (report.same, report.first_divergence, report.findings[0].id) == (False, "output", "rope-interleaved")


@pytest.mark.torch
def test_the_blocks_that_need_torch(tmp_path, monkeypatch):
    assert run_blocks(True, tmp_path, monkeypatch)[0] == 2
    assert mha_trace.check(tmp_path / "layer3.safetensors").same


@pytest.mark.parametrize("name", [name for name in MODULES if name not in OF_TORCH])
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.torch
@pytest.mark.parametrize("name", OF_TORCH)
def test_docstrings_of_torch(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted
    assert found.failed == 0


def test_every_public_name_is_documented():
    said = (ROOT / "docs/python.md").read_text("utf-8")
    for name in ("record", "record_function", "check", "diff", "trace", "assert_same", "attention_golden"):
        assert f"`{name}" in said or f"{name}." in said, name
    for name in mha_trace.__all__:
        assert getattr(mha_trace, name).__doc__, name
