"""Port attention to NumPy, and find the bug that is planted in the port.

The golden is a run of mha-trace, which has PyTorch's numbers; PyTorch is not needed.

    pip install mha-trace
    python examples/port_to_numpy.py
"""

import numpy as np

import mha_trace


def attention(x, w_q, w_k, w_v, w_o, heads, kv_heads, repeat):
    """Causal attention with grouped keys: x (batch, token, model), weights (out, in)."""

    def split(projected, count):
        batch, tokens, width = projected.shape
        return projected.reshape(batch, tokens, count, width // count).swapaxes(1, 2)

    q, k, v = split(x @ w_q.T, heads), split(x @ w_k.T, kv_heads), split(x @ w_v.T, kv_heads)
    k, v = repeat(k, heads // kv_heads), repeat(v, heads // kv_heads)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))
    scores = np.where(np.triu(np.ones(scores.shape[-2:], bool), 1), -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    joined = (weights @ v).swapaxes(1, 2).reshape(x.shape[0], x.shape[1], -1)
    return joined @ w_o.T


golden = mha_trace.trace(batch=2, seq_len=5, d_model=12, heads=6, kv_heads=2)
inputs = {name: golden[name] for name in ("x", "w_q", "w_k", "w_v", "w_o")}

# Every key head serves neighbouring query heads: 0 0 0 1 1 1. Tiling gives 0 1 0 1 0 1.
ports = {
    "the port with the bug": lambda heads, times: np.tile(heads, (1, times, 1, 1)),
    "the port": lambda heads, times: np.repeat(heads, times, axis=1),
}
for name, repeat in ports.items():
    output = attention(**inputs, heads=6, kv_heads=2, repeat=repeat)
    report = mha_trace.check({**inputs, "output": output}, heads=6, kv_heads=2, quiet=True)
    print(f"-- {name}")
    print(report)
