"""Modules that do arithmetic of their own: their cores are told by what runs in them."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))
from cores import CORES, PADDED, SPECS  # noqa: E402

import mha_trace  # noqa: E402

# How many cores there are in a layer, where that is more than one: two streams, or queries of two lengths.
STREAMS = {"lilt": 2, "xlnet-two-streams": 2}


def recorded(name, backward=False, **more):
    model, inputs = CORES[name]("eager")
    with mha_trace.record(model, backward=backward) as run, torch.set_grad_enabled(backward):
        output = model(**inputs, **more)
        if backward:
            first = output[0]
            (first * torch.randn(first.shape)).sum().backward()
    return model, run, output


@pytest.mark.parametrize("name", CORES)
def test_a_core_is_told_by_what_runs(name):
    _, run, _ = recorded(name)
    own = [call for call in run if "decoder" not in call.path or name == "fsmt"]
    assert len(own) >= 1
    for call in own:
        report = call.check()
        assert report.same, str(report)
        assert "read as the core alone" in str(report)
        assert {"weights", "head_outputs"} <= {step.name for step in report.steps}
    layers = {call.path for call in own}
    assert len(own) == len(layers) * STREAMS.get(name, 1)


@pytest.mark.parametrize("name", ["fsmt", "squeezebert", "xlnet", "vitdet-relative", "deberta", "cpmant", "lilt"])
def test_the_gradients_of_a_core(name):
    _, run, _ = recorded(name, backward=True)
    for call in run:
        report = call.check()
        assert report.same, str(report)
        assert any(step.name == "d_v_heads" for step in report.steps) or call.path.endswith("1.attention")


@pytest.mark.parametrize("name", ["lilt", "xlnet", "funnel", "deberta"])
def test_what_is_recorded_is_what_the_model_gives(name):
    """The weights are those that the model itself returns, and make the heads with the values."""
    _, run, output = recorded(name, output_attentions=True)
    cores = [call for call in run if name != "lilt" or call.index == 1]
    assert len(cores) == len(output.attentions)
    for call, weights in zip(cores, output.attentions):
        assert torch.equal(torch.from_numpy(call["weights"]), weights)
    for call in cores:
        q, k, v, mask = (torch.from_numpy(call[one]) for one in ("q_heads", "k_heads", "v_heads", "attn_mask"))
        own = (q @ k.mT * float(call["scale"]) + mask).softmax(-1)
        assert torch.allclose(own, torch.from_numpy(call["weights"]), atol=1e-5)
        assert torch.allclose(own @ v, torch.from_numpy(call["head_outputs"]), atol=1e-4)


def test_the_model_runs_as_without():
    for name in ("xlnet", "deberta", "pegasus_x"):
        model, inputs = CORES[name]("eager")
        with torch.no_grad():
            before = model(**inputs)[0]
            with mha_trace.record(model):
                during = model(**inputs)[0]
        assert torch.equal(before, during)


class Attention(torch.nn.Module):
    """One that has no projection of its output, so that nothing but its core can be seen."""

    def __init__(self, change=lambda name, value: value):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(12, 12) for _ in range(3))
        self.num_heads, self.change = 3, change

    def forward(self, hidden_states):
        q, k, v = (part(hidden_states).unflatten(-1, (3, 4)).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = self.change("scores", q @ k.mT / math.sqrt(4))
        weights = self.change("weights", scores.softmax(self.change("axis", -1)))
        return (weights @ v).transpose(1, 2).flatten(2)


def of_own(change=lambda name, value: value, **settings):
    torch.manual_seed(0)
    module = Attention(change).eval()
    with mha_trace.record(module) as run, torch.no_grad():
        module(torch.randn(2, 5, 12))
    return run.check(**settings)


def causal(name, value):
    return value.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf) if name == "scores" else value


def test_a_module_of_ones_own():
    assert of_own().same
    assert of_own(causal).same
    # By numbers that are no mask, too.
    assert of_own(lambda name, value: value.masked_fill(value > 0.2, -3.0) if name == "scores" else value).same


def test_what_is_wrong_in_a_core_is_found():
    """A mask that comes over the weights, which then do not sum up to 1."""

    def renormed(name, value):
        return value.masked_fill(torch.ones(5, 5).triu(1).bool(), 0.0) if name == "weights" else value

    report = of_own(renormed)
    assert not report.same
    assert report.first_divergence == "weights"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda name, value: value.tanh() if name == "scores" else value, "its scores go through tanh before"),
        (lambda name, value: value.square() if name == "weights" else value, "its weights go through square before"),
        (lambda name, value: -2 if name == "axis" else value, "its softmax is not over keys"),
    ],
)
def test_why_there_is_no_core(change, why):
    torch.manual_seed(0)
    module = Attention(change).eval()
    with mha_trace.record(module) as run, torch.no_grad():
        module(torch.randn(2, 5, 12))
    with pytest.raises(mha_trace.Error, match=why):
        run.check()


def test_what_is_left_out_of_the_cores_is_said():
    """Of Pegasus-X the global tokens are a core, and those of blocks have scores of two products."""
    _, run, _ = recorded("pegasus_x")
    assert "not all that it does is in cores: its scores go through cat before the softmax" in str(run[0].check())
    model = transformers.IBertModel(transformers.IBertConfig(**SPECS["lilt"][1], quant_mode=True)).eval()
    with mha_trace.record(model) as run, torch.no_grad():
        model(**PADDED)
    with pytest.raises(mha_trace.Error, match=r"quant_mode is set.*no softmax of torch ran in it"):
        run.check()


def test_dropout_at_work_is_said():
    model, inputs = CORES["squeezebert"]("eager")
    with mha_trace.record(model.train()) as run, torch.no_grad():
        model(**inputs)
    with pytest.raises(mha_trace.Error, match=r"dropout 0.1 was at work"):
        run.check()


def test_a_compiled_function_in_a_module():
    """It is compiled as without a recording."""

    def core(q, k, v):
        return torch.softmax(q @ k.mT / 2, -1) @ v

    class OwnAttention(Attention):
        attend = staticmethod(torch.compile(core, backend="eager", fullgraph=True))

        def forward(self, hidden_states):
            q, k, v = (part(hidden_states).unflatten(-1, (3, 4)).transpose(1, 2) for part in (self.q, self.k, self.v))
            return self.attend(q, k, v).transpose(1, 2).flatten(2)

    module, x = OwnAttention().eval(), torch.randn(2, 5, 12)
    with torch.no_grad():
        before = module(x)
        with mha_trace.record(module) as run:
            assert torch.equal(module(x), before)
    assert all(call.check().same for call in run)
