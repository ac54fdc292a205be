"""Arrays of JAX and MLX, where these are installed."""

from __future__ import annotations

import numpy as np
import pytest

import mha_trace


@pytest.fixture
def qkv():
    """Three arrays (batch, token, head, head_dim)."""
    return np.random.default_rng(0).standard_normal((3, 2, 5, 3, 8), dtype=np.float32)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_jax(qkv, kind):
    jax = pytest.importorskip("jax")
    q, k, v = (jax.numpy.asarray(one, dtype=kind) for one in qkv)
    out = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    assert mha_trace.check({"q": q, "k": k, "v": v, "output": out}, mask="causal").same
    assert not mha_trace.check({"q": q, "k": k, "v": v, "output": out}, mask="none").same
    assert mha_trace.record_function(jax.nn.dot_product_attention, q, k, v, is_causal=True).check().same


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_mlx(qkv, kind):
    mx = pytest.importorskip("mlx.core")
    q, k, v = (mx.array(one.swapaxes(1, 2)).astype(getattr(mx, kind)) for one in qkv)
    out = mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3)
    assert mha_trace.check({"q": q, "k": k, "v": v, "output": out}, scale=0.3).same
    assert not mha_trace.check({"q": q, "k": k, "v": v, "output": out}).same
