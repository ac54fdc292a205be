"""A kernel at the shapes at which kernels break: a loop over tiles that forgets what is behind the last whole one.

pip install mha-trace torch
python examples/test_a_kernel.py
"""

import torch
import torch.nn.functional as F

import mha_trace

TILE = 64


def attend(q, k, v, causal=False, masks_tail=True):
    """Attention tile by tile, as a kernel in Triton has it: (batch, head, token, head_dim)."""
    queries, keys, kind = q.shape[2], k.shape[2], q.dtype
    groups = q.shape[1] // k.shape[1]
    k, v = (kv.float().repeat_interleave(groups, 1) for kv in (k, v))
    # A kernel reads whole tiles; what is behind the end comes as zeros.
    k, v = (F.pad(kv, (0, 0, 0, -keys % TILE)) for kv in (k, v))
    row = torch.arange(queries)[:, None] + keys - queries
    largest = torch.full(q.shape[:-1], -torch.inf)
    total, out = torch.zeros(q.shape[:-1]), torch.zeros(q.shape)
    for start in range(0, k.shape[2], TILE):
        column = torch.arange(start, start + TILE)
        scores = q.float() @ k[:, :, start : start + TILE].mT * q.shape[-1] ** -0.5
        seen = (column <= row) if causal else torch.ones(queries, TILE, dtype=torch.bool)
        if masks_tail:
            seen = seen & (column < keys)
        scores = scores.masked_fill(~seen, -torch.inf)
        now = torch.maximum(largest, scores.amax(-1))
        # Of a row that has seen no key yet nothing is subtracted.
        base = torch.where(now == -torch.inf, 0.0, now)
        weights, shrink = torch.exp(scores - base[..., None]), torch.exp(largest - base)
        total = total * shrink + weights.sum(-1)
        out = out * shrink[..., None] + weights @ v[:, :, start : start + TILE]
        largest = now
    return (out / total[..., None]).to(kind)


def forgetful(q, k, v, causal=False):
    """The same without the mask behind the last key."""
    return attend(q, k, v, causal, masks_tail=False)


if __name__ == "__main__":
    print("-- the tail is not masked")
    print(mha_trace.check_kernel(forgetful, dtypes=["f32"]))
    print("-- mended")
    print(mha_trace.check_kernel(attend, causal=True))
