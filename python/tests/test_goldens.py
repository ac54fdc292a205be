"""Goldens in test suites."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import mha_trace
from mha_trace import _files

TEST = """
import mha_trace, os

def test_layer(attention_golden):
    steps = mha_trace.trace(seed=int(os.environ.get("SEED", "3")))
    attention_golden.check({name: steps[name] for name in ("x", "weights", "output")})

def test_two(attention_golden):
    attention_golden.check(mha_trace.trace(seed=1), "first")
    attention_golden.check(mha_trace.trace(seed=2), "second")
"""


def test_assert_same(tmp_path):
    steps = mha_trace.trace(seed=3)
    mha_trace.assert_same(steps, heads=2)
    golden = tmp_path / "golden.safetensors"
    _files.write(golden, {"output": steps["output"]})
    mha_trace.assert_same({"output": steps["output"]}, golden=golden)
    nearly = {"output": steps["output"] * np.float32(1.001)}
    mha_trace.assert_same(nearly, golden=golden, rtol=1e-2)
    with pytest.raises(AssertionError, match="first divergence: output"):
        mha_trace.assert_same(nearly, golden=golden)


def run_pytest(folder, *arguments, **environment):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, str(folder)]
    plugin = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "mha_trace.pytest_plugin"}
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **plugin, **environment}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def test_the_fixture(tmp_path):
    (tmp_path / "test_model.py").write_text(TEST)
    code, said = run_pytest(tmp_path)
    assert code == 1
    assert "there was no golden, and it is written now" in said
    golden = tmp_path / "test_model" / "test_layer.safetensors"
    written = golden.read_bytes()
    # The second test stops at its first golden.
    assert run_pytest(tmp_path)[0] == 1
    assert run_pytest(tmp_path)[0] == 0
    assert sorted(path.stem for path in golden.parent.iterdir()) == ["first", "second", "test_layer"]

    code, said = run_pytest(tmp_path, SEED="4")
    assert code == 1
    assert "first divergence: x" in said
    assert golden.read_bytes() == written

    assert run_pytest(tmp_path, "--force-regen", SEED="4")[0] == 0
    assert golden.read_bytes() != written
    assert run_pytest(tmp_path, SEED="4")[0] == 0
