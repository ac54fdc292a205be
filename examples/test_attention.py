"""Attention held in a test suite.

    pip install mha-trace torch transformers pytest
    pytest examples/test_attention.py

``test_it_stays_what_it_was`` writes its golden when it is first run, beside this file, and fails that once;
``pytest --force-regen`` writes it again.
"""

import pytest
import torch
import torch.nn.functional as F

import mha_trace


class SelfAttention(torch.nn.Module):
    """What is under test: causal attention of three heads."""

    def __init__(self, width=12, heads=3):
        super().__init__()
        self.heads = heads
        self.into, self.out_of = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)

    def forward(self, x):
        """X (batch, token, model) to the same shape."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.into(x).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_of(attended.transpose(1, 2).flatten(2))


@pytest.fixture
def run():
    torch.manual_seed(0)
    module = SelfAttention().eval()
    with mha_trace.record(module) as recorded, torch.no_grad():
        module(torch.randn(2, 5, 12))
    return recorded


def test_it_is_attention(run):
    mha_trace.assert_same(run)


def test_it_stays_what_it_was(run, attention_golden):
    attention_golden.check(run, rtol=1e-4, atol=1e-5)
