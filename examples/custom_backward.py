"""An autograd function of one's own, whose backward pass has a mistake that no shape shows.

pip install mha-trace torch
python examples/custom_backward.py
"""

import math

import torch

import mha_trace


class Attend(torch.autograd.Function):
    """Causal attention that keeps its weights, with a backward pass written by hand."""

    scales_keys = False

    @staticmethod
    def forward(ctx, q, k, v):
        """The heads' outputs."""
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1)
        ctx.save_for_backward(q, k, v, weights)
        return weights @ v

    @staticmethod
    def backward(ctx, d_out):
        """The gradients of q, k and v."""
        q, k, v, weights = ctx.saved_tensors
        scale = 1 / math.sqrt(q.shape[-1])
        d_weights = d_out @ v.mT
        delta = (weights * d_weights).sum(-1, keepdim=True)
        d_scores = weights * (d_weights - delta)
        # The scale belongs to the gradient of the keys as it does to that of the queries.
        return d_scores @ k * scale, d_scores.mT @ q * (scale if Attend.scales_keys else 1), weights.mT @ d_out


torch.manual_seed(0)
q, k, v, d_out = torch.randn(4, 2, 3, 16, 8)
for name, Attend.scales_keys in {"as written": False, "mended": True}.items():
    print(f"-- {name}")
    print(mha_trace.check_gradients(Attend.apply, q, k, v, d_out, settings={"mask": "causal"}))
