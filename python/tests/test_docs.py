"""The Python of the documentation runs: every block of its pages, and the examples of every docstring."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

import mha_trace

ROOT = Path(__file__).resolve().parents[2]
# How many blocks of each page need NumPy alone, and how many need torch.
PAGES = {
    "README.md": (0, 1),
    "README.zh-CN.md": (0, 1),
    "docs/checking.md": (0, 1),
    "docs/kernels.md": (0, 1),
    "docs/python.md": (3, 5),
}
# Those that have examples; one that has none may need torch at its import.
MODULES = sorted(
    f"mha_trace.{file.stem}" for file in (ROOT / "python/mha_trace").glob("*.py") if ">>> " in file.read_text("utf-8")
)
# Their examples are of PyTorch.
OF_TORCH = (
    "mha_trace._compare",
    "mha_trace._record",
    "mha_trace._function",
    "mha_trace._gradients",
    "mha_trace._kernel",
    "mha_trace.testing",
)


def blocks(page, is_torch):
    found = re.findall(r"^```python( torch)?\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.M | re.S)
    return [text for needs, text in found if bool(needs) == is_torch]


def run_blocks(page, is_torch, folder, monkeypatch):
    """The blocks are run in order, in one namespace, as a reader would."""
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    for text in blocks(page, is_torch):
        exec(compile(text, page, "exec"), names)
    return names


def test_every_page_with_python_is_known():
    pages = [ROOT / "README.md", ROOT / "README.zh-CN.md", *(ROOT / "docs").glob("*.md")]
    names = [page.relative_to(ROOT).as_posix() for page in pages]
    counts = {page: (len(blocks(page, False)), len(blocks(page, True))) for page in names}
    assert {page: count for page, count in counts.items() if any(count)} == PAGES


def test_the_blocks_that_need_numpy(tmp_path, monkeypatch):
    names = run_blocks("docs/python.md", False, tmp_path, monkeypatch)
    # As the comments beside it say.
    assert names["golden"]["weights"].shape == (1, 3, 5, 5)
    assert names["golden"].formulas["scores"] == "scores_raw / √d_k"
    report = names["report"]
    assert (report.same, report.first_divergence, report.findings[0].id) == (False, "output", "rope-interleaved")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("page", "file", "settings"),
    [
        ("README.md", "layer.safetensors", {}),
        ("docs/checking.md", "sdpa.safetensors", {"mask": "causal"}),
        ("docs/python.md", "layer3.safetensors", {}),
    ],
)
def test_the_blocks_that_need_torch(page, file, settings, tmp_path, monkeypatch):
    run_blocks(page, True, tmp_path, monkeypatch)
    assert mha_trace.check(tmp_path / file, **settings).same


@pytest.mark.torch
def test_the_kernel_of_the_page_on_kernels(tmp_path, monkeypatch):
    report = run_blocks("docs/kernels.md", True, tmp_path, monkeypatch)["report"]
    assert "the zeros that fill up the last block count as scores (blocks of 64 keys)" in report.mistakes[0].summary
    text = " ".join(str(report).split())
    assert "in all failing cases the number of keys is not a multiple of 64" in text or report.fails_where


@pytest.mark.parametrize("name", [name for name in MODULES if name not in OF_TORCH])
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.torch
@pytest.mark.parametrize("name", OF_TORCH)
def test_docstrings_of_torch(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted
    assert found.failed == 0


@pytest.mark.torch
def test_the_hooks_of_the_page_on_checking(tmp_path, monkeypatch):
    """They record layers of the models that the page names."""
    import safetensors.torch
    import torch
    import transformers

    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```py\n(.*?)^```", (ROOT / "docs/checking.md").read_text("utf-8"), re.M | re.S)
    of_gpt2, of_bert, of_all = blocks
    input_ids = torch.arange(10).view(2, 5)

    config = transformers.GPT2Config(vocab_size=12, n_embd=12, n_head=3, n_layer=2, n_positions=8)
    model = transformers.GPT2LMHeadModel(config)
    exec(of_gpt2, {"model": model, "layer": model.transformer.h[1].attn, "input_ids": input_ids})
    model.save_pretrained("gpt2")
    weights = "gpt2/model.safetensors"
    assert mha_trace.check("layer.safetensors", weights=weights, prefix="transformer.h.1", heads=3).same

    sizes = {"hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 8}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=12, **sizes)).eval()
    kept: dict[str, torch.Tensor] = {}
    exec(of_bert, {"model": model, "kept": kept})
    model(input_ids)
    model.save_pretrained("bert")
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in kept.items()}, "bert.safetensors")
    weights = "bert/model.safetensors"
    checked = mha_trace.check("bert.safetensors", weights=weights, prefix="encoder.layer.1", heads=3, mask="none")
    assert checked.same
    assert [step.name for step in checked.steps] == ["concat", "output"]

    exec(of_all, {"mha_trace": mha_trace, "model": model, "input_ids": input_ids})
    assert mha_trace.compare("reference", "reference").same


def test_every_public_name_is_documented():
    said = (ROOT / "docs/python.md").read_text("utf-8")
    for name in (
        "record",
        "record_function",
        "check_gradients",
        "check_kernel",
        "check",
        "compare",
        "first_wrong",
        "diff",
        "trace",
        "assert_same",
        "attention_golden",
    ):
        assert f"`{name}" in said or f"{name}." in said, name
    for name in mha_trace.__all__:
        assert getattr(mha_trace, name).__doc__, name
