"""Kernels in plain PyTorch, right ones and such with a mistake, swept."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

import mha_trace

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

FEW = {"only": ["few-tokens", "past-two-tiles", "chunk", "grouped-tail", "large-tile"], "dtypes": ["f32", "bf16"]}


def eager(q, k, v, causal=False, scale=None, align="bottom-right"):
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    if causal:
        shift = k.shape[2] - q.shape[2] if align == "bottom-right" else 0
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(shift), -math.inf)
    return scores.softmax(-1) @ v


def blockwise(q, k, v, causal=False, block=64, mistake=""):
    """An online softmax, which accumulates in the type of its inputs."""
    kind, queries, keys = q.dtype, q.shape[2], k.shape[2]
    groups = q.shape[1] // k.shape[1]
    if mistake == "tiled groups":
        k, v = k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1)
    else:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    if mistake == "tail":
        k, v = (torch.nn.functional.pad(one, (0, 0, 0, -keys % block)) for one in (k, v))
    width = q.shape[-1] * (q.shape[1] if mistake == "width of the model" else 1)
    largest = torch.full(q.shape[:-1], -math.inf)
    total, out = torch.zeros(q.shape[:-1]), torch.zeros(q.shape)
    for start in range(0, k.shape[2], block):
        scores = q.float() @ k[:, :, start : start + block].float().mT * width**-0.5
        if causal:
            column, row = torch.arange(start, start + scores.shape[-1]), torch.arange(queries)[:, None]
            scores = scores.masked_fill(column > row + keys - queries, -math.inf)
        now = torch.zeros_like(largest) if mistake == "no maximum" else torch.maximum(largest, scores.amax(-1))
        base = torch.where(now == -math.inf, 0.0, now)
        weights, shrink = torch.exp(scores - base[..., None]), torch.exp(largest - base)
        if mistake == "no maximum":
            shrink = torch.ones_like(shrink)
        total = total * shrink + weights.sum(-1)
        out = out * shrink[..., None] + weights.to(kind).float() @ v[:, :, start : start + block].float()
        out, largest = out.to(kind).float(), now
    return (out / total[..., None]).to(kind)


def sdpa(q, k, v, is_causal=False, attn_mask=None):
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q, k, v, attn_mask=attn_mask, is_causal=is_causal, enable_gqa=True)


def flash(q, k, v, softmax_scale=None, causal=False):
    """With the layout, the names and the results of FlashAttention."""
    out = eager(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal, softmax_scale)
    return out.transpose(1, 2).contiguous(), torch.zeros(())


def with_lengths(q, k, v, lengths=None, causal=False):
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5
    if lengths is not None:
        scores = scores.masked_fill(torch.arange(k.shape[2]) >= lengths[:, None, None, None], -math.inf)
    return scores.softmax(-1).nan_to_num() @ v.repeat_interleave(q.shape[1] // k.shape[1], 1)


@pytest.mark.parametrize(
    ("kernel", "arguments", "count"),
    [
        (eager, {"causal": True}, 87),
        (eager, {}, 87),
        (blockwise, {"causal": True}, 87),
        (blockwise, {"block": 48}, 87),
        (torch.nn.functional.scaled_dot_product_attention, {"is_causal": True}, 93),
        (sdpa, {}, 93),
        (flash, {"causal": True, "softmax_scale": 0.25}, 87),
        (with_lengths, {}, 93),
    ],
)
def test_right_kernels_are_not_accused(kernel, arguments, count):
    report = mha_trace.check_kernel(kernel, **arguments)
    assert report.same, report
    assert {case.state for case in report.cases} == {"same"}
    assert len(report.cases) == count
    assert not report.mistakes
    assert report.layout == ("bshd" if kernel is flash else "bhsd")


@pytest.mark.parametrize(
    ("mistake", "causal", "said"),
    [
        ("tiled groups", True, "gqa-tiled"),
        ("width of the model", True, "scale-sqrt-d-model"),
        ("tail", False, "the zeros that fill up the last block count as scores (blocks of 64 keys)"),
    ],
)
def test_the_mistake_is_named(mistake, causal, said):
    def kernel(q, k, v, causal=False):
        return blockwise(q, k, v, causal, mistake=mistake)

    report = mha_trace.check_kernel(kernel, causal=causal, **FEW)
    assert not report.same
    assert said == report.mistakes[0].id or said in report.mistakes[0].summary


def test_what_failing_cases_have_in_common_is_told():
    def kernel(q, k, v, causal=False):
        return blockwise(q, k, v, causal, mistake="no maximum")

    report = mha_trace.check_kernel(kernel, causal=True, dtypes=["f32"])
    assert [case.row for case in report.failing] == ["large", "large-tile", "low", "low-tile", "decode-large"]
    assert len(report.fails_where) == 1
    assert "unless their maximum is subtracted" in report.fails_where[0]


def test_the_corner_of_the_causal_mask_is_told_or_held():
    def kernel(q, k, v, causal=False):
        return eager(q, k, v, causal, align="top-left")

    assert "aligned top-left" in str(mha_trace.check_kernel(kernel, causal=True, **FEW))
    report = mha_trace.check_kernel(kernel, causal=True, causal_align="bottom-right", **FEW)
    assert [found.id for found in report.mistakes] == ["mask-causal-top-left"]
    assert {case.row for case in report.failing} == {"chunk"}


def overwrites(q, k, v):
    q.mul_(q.shape[-1] ** -0.5)
    return eager(q, k, v, scale=1.0)


def crashes(q, k, v):
    return eager(q.view(*q.shape[:2], -1, 64, q.shape[-1]).flatten(2, 3), k, v)


@pytest.mark.parametrize(
    ("kernel", "state"),
    [
        (overwrites, "overwrites"),
        (crashes, "failed"),
        (lambda q, k, v: q.view(q.shape), "aliases"),
        (lambda q, k, v: q.clone(), "aliases"),
        (lambda q, k, v: eager(q, k, v).transpose(1, 2), "shape"),
        (lambda q, k, v: eager(q, k, v)[..., :3], "shape"),
        (lambda q, k, v: torch.zeros_like(q), "differs"),
        (lambda q, k, v: q * math.nan, "differs"),
        (lambda q, k, v: None, "shape"),
        (lambda q, k, v: (_ for _ in ()).throw(RuntimeError("no")), "failed"),
    ],
)
def test_what_is_no_attention_never_passes(kernel, state):
    report = mha_trace.check_kernel(kernel, layout="bhsd", only=["few-tokens"])
    assert not report.same
    assert {case.state for case in report.cases} == {state}
    with pytest.raises(AssertionError, match="kernel: differs"):
        report.assert_same()


def test_what_a_kernel_refuses_is_told_and_not_wrong():
    def kernel(q, k, v):
        if q.shape[-1] & (q.shape[-1] - 1):
            raise ValueError("head_dim is to be a power of two")
        return eager(q, k, v)

    report = mha_trace.check_kernel(kernel, only=["tail", "head-dim-80"])
    assert report.same
    assert "refused in head-dim-80-f32" in str(report)
    assert not mha_trace.check_kernel(kernel, only=["head-dim-80"]).same


def test_the_callers_numbers_are_a_case():
    q, k, v = torch.randn(1, 4, 9, 24), *torch.randn(2, 1, 2, 11, 24)
    report = mha_trace.check_kernel(eager, q, k, v, causal=True, only=["own", "tail"], dtypes=["f32"])
    assert report.same
    own, other = report.cases
    assert (own.name, own.heads, own.kv_heads, own.queries, own.keys) == ("own-f32", 4, 2, 9, 11)
    assert (other.heads, other.kv_heads, other.head_dim) == (4, 2, 24)


def test_gradients_are_checked():
    class Attend(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)
            ctx.save_for_backward(q, k, v, weights)
            return weights @ v

        @staticmethod
        def backward(ctx, d_out):
            q, k, v, weights = ctx.saved_tensors
            d_scores = weights * (d_out @ v.mT) / math.sqrt(q.shape[-1])
            return d_scores @ k, d_scores.mT @ q, weights.mT @ d_out

    few = {"only": ["few-tokens", "chunk"], "dtypes": ["f32"], "backward": True}
    assert mha_trace.check_kernel(eager, causal=True, **few).same
    report = mha_trace.check_kernel(Attend.apply, **few)
    assert [found.id for found in report.mistakes] == ["gradient-delta-missing"]
    assert {case.first_divergence for case in report.cases} == {"d_k_heads"}


def test_numpy_is_enough():
    def attend(q, k, v):
        scores = q.astype(np.float32) @ k.astype(np.float32).swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return (weights / weights.sum(-1, keepdims=True) @ v.astype(np.float32)).astype(q.dtype)

    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 5, 8), dtype=np.float32)
    report = mha_trace.check_kernel(attend, q, k, v, only=["own", "tail"])
    assert report.same
    assert [case.name for case in report.cases] == ["own-f32", "tail-f32", "tail-f16"]


def test_the_report_is_a_table_for_notebooks():
    html = mha_trace.check_kernel(eager, only=["tail", "decode"])._repr_html_()
    assert html.count("<tr>") == 3
    assert "<th>bf16</th>" in html


TESTS = """
from mha_trace.testing import assert_attention_kernel, sweep
import torch

def attend(q, k, v, causal):
    if q.shape[-1] == 80:
        raise NotImplementedError("head_dim 80")
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

def test_whole():
    assert_attention_kernel(attend, causal=True, only=["tail"])

@sweep(causal=True, only=["tail", "chunk", "head-dim-80"], dtypes=["f32"], causal_align="bottom-right")
def test_kernel(case):
    case.check(attend)
"""


def test_each_case_is_a_test(tmp_path):
    (tmp_path / "test_one.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert "test_kernel[tail-f32] PASSED" in done.stdout
    assert "test_kernel[chunk-f32] FAILED" in done.stdout
    assert "test_kernel[head-dim-80-f32] SKIPPED" in done.stdout
    assert "1 failed, 2 passed, 1 skipped" in done.stdout
    assert "mask-causal-top-left" in done.stdout
