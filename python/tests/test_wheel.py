"""The wheel, in a fresh virtual environment; ``MHA_TRACE_DIST`` is the folder that it was built into."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

DIST = os.environ.get("MHA_TRACE_DIST")
pytestmark = pytest.mark.skipif(not DIST, reason="run where the wheel is built")

TEST = "def test_it(attention_golden):\n    assert attention_golden.path().name == 'test_it.safetensors'\n"


def only(pattern):
    (found,) = Path(DIST or "").glob(pattern)
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A virtual environment with the wheel and pytest in it, and nothing else."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", only("*.whl"), "pytest"]
    subprocess.run(install, check=True)
    return python


def run(command, **settings):
    # As a user has it: no binary is named, and none is on the path.
    named = {name: value for name, value in os.environ.items() if name not in ("MHA_TRACE_BINARY", "PYTHONPATH")}
    environment = {**named, "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, encoding="utf-8", **settings
    ).stdout


def test_it_is_small():
    """As it is shipped, with the profile ``dist``."""
    assert only("*.whl").stat().st_size < 5_000_000


def test_it_holds_the_package_and_the_binary():
    names = zipfile.ZipFile(only("*.whl")).namelist()
    assert "mha_trace/py.typed" in names
    assert any(name.endswith((".data/scripts/mha-trace", ".data/scripts/mha-trace.exe")) for name in names)
    assert not any("tests" in name or "conftest" in name for name in names)


def test_it_runs_where_nothing_else_is(python, tmp_path):
    assert run([python.parent / "mha-trace", "--version"]).startswith("mha-trace ")
    assert run([python, "-m", "mha_trace", "--version"]).startswith("mha-trace ")
    script = (
        "import mha_trace, sys\n"
        "assert mha_trace.check(mha_trace.trace(), heads=2).same\n"
        "print(mha_trace.find_binary())\n"
        "assert not {'torch', 'transformers', 'pytest'} & set(sys.modules)\n"
    )
    assert Path(run([python, "-c", script], cwd=tmp_path).strip()).parent == python.parent


def test_pytest_has_the_fixture(python, tmp_path):
    (tmp_path / "test_one.py").write_text(TEST)
    assert "1 passed" in run([python, "-m", "pytest", "-q", tmp_path], cwd=tmp_path)


def test_the_source_can_be_built_of():
    with tarfile.open(only("*.tar.gz")) as archive:
        names = archive.getnames()
    inside = {name.partition("/")[2] for name in names}
    assert {"Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md", "LICENSE", "src/main.rs"} <= inside
    assert "python/mha_trace/__init__.py" in inside
