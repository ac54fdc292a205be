"""The examples run, and find what they are to find."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mha_trace

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(command, folder):
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout + done.stderr


def test_port_to_numpy(tmp_path):
    said = run([EXAMPLES / "port_to_numpy.py"], tmp_path)
    wrong, right = said.split("-- the port\n")
    assert "known mistake gqa-tiled" in wrong
    assert "arrays.safetensors: same" in right


@pytest.mark.torch
def test_check_llama_layer(tmp_path):
    said = run([EXAMPLES / "check_llama_layer.py"], tmp_path)
    assert said.count(": same, 9 steps compared") == 4
    assert "contradiction: scale was stated as 0.35355" in said


@pytest.mark.torch
def test_kernel_against_sdpa(tmp_path):
    said = run([EXAMPLES / "kernel_against_sdpa.py"], tmp_path)
    assert said.count(".safetensors: same") == 2
    # lines are broken between words
    assert "is not rescaled when the running maximum grows" in " ".join(said.split())


@pytest.mark.torch
def test_a_kernel(tmp_path):
    wrong, right = run([EXAMPLES / "test_a_kernel.py"], tmp_path).split("-- mended\n")
    assert "the zeros that fill up the last block count as scores" in " ".join(wrong.split())
    assert "kernel: same, 87 cases: 87 same" in right


@pytest.mark.torch
def test_custom_backward(tmp_path):
    wrong, right = run([EXAMPLES / "custom_backward.py"], tmp_path).split("-- mended\n")
    assert "known mistake gradient-scale-missing, at d_k_heads" in wrong
    assert ": same, 4 steps compared" in right


@pytest.mark.torch
def test_the_pytest_file(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "mha_trace.pytest_plugin")
    shutil.copy(EXAMPLES / "test_attention.py", tmp_path)
    assert "1 failed, 1 passed" in run(["-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path], tmp_path)
    assert "2 passed" in run(["-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path], tmp_path)


def test_the_notebook_shows_what_it_computes():
    """Its cells run, and its stored tables are those that they make."""
    cells = json.loads((EXAMPLES / "causal_walkthrough.ipynb").read_text("utf-8"))["cells"]
    names: dict[str, object] = {}
    tables = 0
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        lines = "".join(cell["source"]).rstrip().splitlines()
        # The last line of a cell is what it shows.
        exec(compile("\n".join(lines[:-1]), "notebook", "exec"), names)
        try:
            shown = eval(lines[-1], names)
        except SyntaxError:
            continue
        if hasattr(shown, "_repr_html_"):
            stored = next("".join(out["data"]["text/html"]) for out in cell["outputs"] if out.get("data"))
            assert shown._repr_html_() == stored
            tables += isinstance(shown, mha_trace.Report) or "<table>" in stored
    assert tables >= 8
