"""check, diff and trace, with NumPy alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import mha_trace
from mha_trace import _files
from mha_trace._arrays import Array, as_array
from mha_trace._settings import flags

GIVEN = ("x", "w_q", "w_k", "w_v", "w_o")


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    """Every test leaves the folder for temporary files as it was."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


@pytest.fixture
def steps():
    return mha_trace.trace(seed=7)


def test_trace_gives_the_steps_in_order():
    steps = mha_trace.trace(batch=2, seq_len=5, d_model=6, heads=3, kv_heads=1, rope="half", lengths=[5, 3])
    names = list(steps)
    assert names.index("x") < names.index("q_rot") < names.index("scores") < names.index("output")
    assert steps["weights"].shape == (2, 3, 5, 5)
    assert steps["mask"].dtype == bool
    np.testing.assert_allclose(steps["weights"].sum(-1), 1, rtol=1e-6)


def test_trace_takes_arrays(steps):
    again = mha_trace.trace(x=steps["x"], weights={name: steps[name] for name in GIVEN[1:]}, heads=2)
    assert np.array_equal(again["output"], steps["output"])


def test_f64_follows_f32():
    wide = mha_trace.trace(dtype="f64", seed=1)["output"]
    assert wide.dtype == np.float64
    np.testing.assert_allclose(mha_trace.trace(seed=1)["output"], wide, rtol=1e-4, atol=1e-5)


def test_check_says_same_of_a_run(steps):
    report = mha_trace.check(steps, heads=2)
    assert report.same
    assert report.verdict == "same"
    assert [step.status for step in report.steps] == ["same"] * 13
    assert str(report).startswith("arrays.safetensors: same, 13 steps compared\n")
    assert report.findings == []


def test_check_names_the_bug(steps):
    swapped = {name: steps[name] for name in (*GIVEN, "output")}
    swapped["w_k"], swapped["w_v"] = swapped["w_v"], swapped["w_k"]
    report = mha_trace.check(swapped, heads=2)
    assert not report.same
    assert report.first_divergence == "output"
    assert [found.id for found in report.findings] == ["kv-swapped"]
    html = report._repr_html_()
    assert "kv-swapped" in html
    assert "<table>" in html


def test_check_takes_the_core_alone():
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 3, 5, 4), dtype=np.float32)
    scores = q @ k.swapaxes(-1, -2) / 2 + np.triu(np.full((5, 5), -np.inf, np.float32), 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    arrays = {"q": q, "k": k, "v": v, "output": weights @ v}
    assert mha_trace.check(arrays, mask="causal").same
    assert not mha_trace.check(arrays, mask="none").same
    assert mha_trace.check({**arrays, "attn_mask": np.tril(np.ones((5, 5), bool))}).same


def test_check_takes_files_and_folders(tmp_path, steps):
    mha_trace.trace(seed=7)
    np.savez(tmp_path / "run.npz", **steps)
    assert mha_trace.check(tmp_path / "run.npz", heads=2).same
    report = mha_trace.check(tmp_path, heads=2)
    assert report.same
    assert len(report.files) == 1


def test_tolerances_are_settings(steps):
    wrong = {**steps, "output": steps["output"] + np.float32(1e-3)}
    assert not mha_trace.check(wrong, heads=2).same
    assert mha_trace.check(wrong, heads=2, atol={"output": 1e-2}).same
    assert mha_trace.check(wrong, heads=2, atol=1e-2).same


def test_diff(steps, tmp_path):
    other = mha_trace.trace(seed=8)
    assert mha_trace.diff(steps, steps).same
    assert mha_trace.diff(steps, other).first_divergence == "x"
    _files.write(tmp_path / "other.safetensors", other)
    assert not mha_trace.diff(steps, tmp_path / "other.safetensors").same


def test_infinite_numbers_are_floats():
    steps = mha_trace.trace(mask_fill=float("-inf"))
    wrong = {**steps, "masked_scores": np.where(np.isinf(steps["masked_scores"]), 0, steps["masked_scores"])}
    report = mha_trace.diff(wrong, steps)
    worst = next(step for step in report.steps if step.name == "masked_scores")
    assert worst.right == float("-inf")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: mha_trace.check("nowhere.npz"), "nowhere.npz: no such file"),
        (lambda: mha_trace.trace(seeed=1), "there is no setting seeed here\nhelp: did you mean seed"),
        (
            lambda: mha_trace.check(mha_trace.trace(), head=2),
            "there is no setting head here\nhelp: head belongs to a run",
        ),
        (lambda: mha_trace.trace(head=1), "head is no setting of trace: it says what is printed\nhelp: take a part"),
        (lambda: mha_trace.trace(rope=True), "rope needs a value"),
        (lambda: mha_trace.trace(dtype=np.float64), "\nhelp: the values are f32, f64"),
        (lambda: mha_trace.check({"output": np.ones((1, 2, 4), np.float32)}), "or give it by x; or"),
        (lambda: mha_trace.trace(heads=3), "8"),
        (lambda: mha_trace.check({"x": object()}), "x is of type object"),
        (lambda: mha_trace.check(3), "int is not a path"),
        (lambda: mha_trace.trace(format="json"), "format is no setting here"),
        (lambda: mha_trace.check({"x": np.zeros((1, 2, 3), complex)}), "complex128"),
    ],
)
def test_what_cannot_be_done_is_an_error(wrong, says):
    with pytest.raises(mha_trace.Error, match="error: ") as caught:
        wrong()
    assert says in str(caught.value)
    assert tempfile.gettempdir() not in str(caught.value)


def test_what_nothing_explains_has_clues():
    steps = mha_trace.trace(seq_len=5)
    given = {name: steps[name] for name in ("x", "w_q", "w_k", "w_v", "w_o")}
    unlike_any = np.sin(np.arange(40, dtype=np.float32) ** 2).reshape(1, 5, 8)
    report = mha_trace.check({**given, "output": steps["output"] + unlike_any}, heads=2)
    assert (report.same, report.findings) == (False, [])
    clue = report.clues[0]
    assert clue.step == "output"
    # its lines are broken between words
    assert clue.summary in " ".join(str(report).split())
    assert clue.summary in report._repr_html_()
    assert mha_trace.check(steps, heads=2).clues == []


def test_a_step_that_is_not_there_is_told_with_those_that_are():
    with pytest.raises(KeyError, match="no step q_rot in this run; there are x, w_q, "):
        mha_trace.trace()["q_rot"]


def test_flags_say_what_settings_say(tmp_path):
    assert flags({"segments": [[3, 2], [4, 1]], "key_mask": np.array([[1, 0], [0, 1]])}, tmp_path) == [
        "--segments=3,2/4,1",
        "--key-mask=10,01",
    ]
    assert flags({"bias": False, "alibi": False, "scale": np.float32(0.5), "without": ["rope"]}, tmp_path) == [
        "--no-bias",
        "--scale=0.5",
        "--without=rope",
    ]
    assert flags({"rope_scaling": {"factor": 4}}, tmp_path) == ['--rope-scaling={"factor": 4}']
    assert flags({"rtol": {"": 1e-6, "scores": 1e-4}}, tmp_path) == ["--rtol=1e-06,scores=0.0001"]


def test_a_missing_binary_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("MHA_TRACE_BINARY", str(tmp_path / "none"))
    with pytest.raises(mha_trace.Error, match="no file is there"):
        mha_trace.trace()
    (tmp_path / "none").write_text("not a program")
    with pytest.raises(mha_trace.Error, match="cannot be run"):
        mha_trace.trace()


def test_the_module_runs_the_binary():
    done = subprocess.run([sys.executable, "-m", "mha_trace", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("mha-trace ")
    done = subprocess.run([sys.executable, "-m", "mha_trace", "check", "nowhere"], capture_output=True, check=False)
    assert done.returncode == 2


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_the_binary(tmp_path):
    """A binary that never ends gets an interrupt in its Python alone, and is gone."""
    binary = tmp_path / "slow"
    binary.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/pids\nexec sleep 600\n")
    binary.chmod(0o755)
    script = (
        "import mha_trace, os, signal, threading, time, pathlib\n"
        f"pids = pathlib.Path({str(tmp_path / 'pids')!r})\n"
        "def later():\n"
        "    while not (pids.exists() and len(pids.read_text().split()) == 2): time.sleep(0.01)\n"
        "    time.sleep(0.3)  # Python notices later than the binary that this runs.\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        # A process that a script starts in the background ignores the signal, and so does all that it starts.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "threading.Thread(target=later).start()\n"
        "try: mha_trace.check('x')\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    environment = {**os.environ, "MHA_TRACE_BINARY": str(binary)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "interrupted\n"
    assert all(is_gone(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def is_gone(pid):
    """Whether a process ends soon. One that was killed stays until the system's first process has noticed."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def test_files_keep_every_type(tmp_path):
    arrays = {
        "bf16": Array("BF16", np.array([[0x3FC0, 0xC000]], np.uint16)),
        "f16": np.array([1.5, np.inf], np.float16),
        "f64": np.array(3.0),
        "bool": np.array([[True], [False]]),
        "i64": np.arange(3),
        "none": np.zeros((0, 4), np.float32),
        "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "big": np.arange(3, dtype=">f4"),
    }
    _files.write(tmp_path / "a.safetensors", arrays, {"version": 1})
    read, about = _files.read(tmp_path / "a.safetensors")
    assert about == {"version": 1}
    assert read["bf16"].numpy().tolist() == [[1.5, -2.0]]
    for name in ("f16", "f64", "bool", "i64", "none", "turned", "big"):
        assert np.array_equal(read[name].numpy(), arrays[name]), name


def test_files_that_are_none_are_errors(tmp_path):
    for content in (b"", b"\x08\0\0\0\0\0\0\0notjson!", b"\xff" * 20, b"\x02\0\0\0\0\0\0\0[]"):
        (tmp_path / "a.safetensors").write_bytes(content)
        with pytest.raises(mha_trace.Error, match="is no safetensors file"):
            _files.read(tmp_path / "a.safetensors")
    with pytest.raises(mha_trace.Error, match="cannot be read"):
        _files.read(tmp_path / "none")
    with pytest.raises(mha_trace.Error, match="cannot be written"):
        _files.write(tmp_path / "no" / "a.safetensors", {"x": np.zeros(2)})


def test_a_file_that_is_there_stays_where_writing_fails(tmp_path):
    path = tmp_path / "a.safetensors"
    _files.write(path, {"x": np.zeros(2)})
    with pytest.raises(mha_trace.Error):
        _files.write(path, {"x": np.array(["text"])})
    assert _files.read(path)[0]["x"].shape == (2,)
    assert sorted(os.listdir(tmp_path)) == ["a.safetensors", "temporary"]


class Foreign:
    """An array of another library: it has a shape and a type, and NumPy can read it."""

    def __init__(self, data):
        self.data, self.shape, self.dtype = data, data.shape, data.dtype

    def __array__(self, dtype=None, copy=None):
        return self.data


def test_foreign_arrays_are_taken(steps):
    foreign = {name: Foreign(steps[name]) for name in (*GIVEN, "output")}
    assert mha_trace.check(foreign, heads=2).same
    assert as_array([[1, 2]]).code == "I64"
    assert as_array(np.array([3], np.uint16)).code == "I64"


def test_record_function():
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 4, 8), dtype=np.float32)

    def attend(q, k, v, scale):
        scores = q @ k.swapaxes(-1, -2) * scale
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v

    run = mha_trace.record_function(attend, q, k, v, scale=0.25)
    assert run.check().same
    assert np.array_equal(run.result, run[0]["out"])
    wrong = mha_trace.record_function(lambda q, k, v: attend(q, k, v, 1.0), q, k, v).check()
    assert not wrong.same
    assert wrong.findings
    with pytest.raises(mha_trace.Error, match="three arrays"):
        mha_trace.record_function(attend, q, k, scale=1.0)


def test_a_run_is_saved_under_names_that_say_what_is_there(tmp_path):
    q, k, v = np.random.default_rng(1).standard_normal((3, 1, 2, 4, 8), dtype=np.float32)
    run = mha_trace.record_function(lambda q, k, v: v, q, k, v)
    for name in ("run.json", "run.npz", "run.html"):
        with pytest.raises(mha_trace.Error, match=r"run\.\w+ is no \.safetensors file\nhelp: .*in a folder"):
            run.save(tmp_path / name)
        assert not (tmp_path / name).exists()
    for name in ("run.safetensors", "llama-3.2"):
        (path,) = run.save(tmp_path / name)
        assert path.suffix == ".safetensors"
        assert mha_trace.diff(path, run).same


def test_the_package_knows_where_wheels_put_the_binary(monkeypatch, tmp_path):
    from mha_trace import _binary

    monkeypatch.delenv("MHA_TRACE_BINARY", raising=False)
    monkeypatch.setattr(_binary, "_folders", lambda: iter([tmp_path]))
    (tmp_path / _binary.NAME).write_text("")
    assert Path(_binary.find_binary()) == tmp_path / _binary.NAME
    (tmp_path / _binary.NAME).unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(mha_trace.Error, match="not installed"):
        _binary.find_binary()
