"""A kernel of one's own against scaled_dot_product_attention: an online softmax over blocks of keys.

pip install mha-trace torch
python examples/kernel_against_sdpa.py
"""

import torch
import torch.nn.functional as F

import mha_trace


def blockwise(q, k, v, scale, block=4, rescales=True):
    """Attention without the whole matrix of scores, as FlashAttention does it: (batch, head, token, head_dim)."""
    largest = torch.full(q.shape[:-1], -torch.inf)
    total, out = torch.zeros(q.shape[:-1]), torch.zeros_like(q)
    for start in range(0, k.shape[2], block):
        scores = q @ k[:, :, start : start + block].transpose(-1, -2) * scale
        now = torch.maximum(largest, scores.amax(-1))
        weights = torch.exp(scores - now[..., None])
        # What was summed up so far is relative to the largest score so far.
        shrink = torch.exp(largest - now)
        total = total * shrink + weights.sum(-1)
        out = out * (shrink if rescales else torch.ones_like(shrink))[..., None]
        out = out + weights @ v[:, :, start : start + block]
        largest = now
    return out / total[..., None]


torch.manual_seed(0)
q, k, v = torch.randn(3, 2, 3, 16, 8)
for name, settings in {"the kernel": {}, "without rescaling the output": {"rescales": False}}.items():
    run = mha_trace.record_function(blockwise, q, k, v, scale=0.5, **settings)
    print(f"-- {name}")
    print(run.check(quiet=True))

print("-- beside scaled_dot_product_attention")
reference = mha_trace.record_function(F.scaled_dot_product_attention, q, k, v, scale=0.5)
print(mha_trace.diff(mha_trace.record_function(blockwise, q, k, v, scale=0.5), reference))
