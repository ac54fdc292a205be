"""What record leaves alone, what it keeps, and what it refuses."""

from __future__ import annotations

import gc
import tempfile
import threading
import weakref

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import torch.nn.functional as F  # noqa: E402
from models import build, inputs  # noqa: E402
from torch import nn  # noqa: E402

import mha_trace  # noqa: E402


class OwnLayer(nn.Module):
    """A module that nothing is known of, and that calls scaled_dot_product_attention."""

    def __init__(self):
        super().__init__()
        self.into, self.out_of = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (3, 4)).transpose(1, 2) for part in self.into(x).chunk(3, -1))
        return self.out_of(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class OwnAttention(nn.Module):
    """A module that does its own arithmetic, with what it does to the scores in its hands."""

    def __init__(self, weigh):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(12, 12) for _ in range(4))
        self.weigh = weigh

    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (3, 4)).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj((self.weigh(q @ k.mT / 2) @ v).transpose(1, 2).flatten(2))


@pytest.fixture
def llama():
    return build("llama")


def state(model):
    """All that a recording must leave as it is."""
    return [
        (
            sorted(vars(module)),
            list(module._forward_hooks),
            list(module._forward_pre_hooks),
            module.training,
            [(parameter.requires_grad, parameter.device, parameter.dtype) for parameter in module.parameters()],
        )
        for module in model.modules()
    ]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "bart", "bloom"])
def test_numbers_and_gradients_are_the_same_bit_for_bit(family, attention):
    model = build(family, None if family == "bloom" else attention)
    arguments = inputs(family, padded=True)
    before = state(model)

    def step():
        model.zero_grad()
        logits = model(**arguments).logits
        logits.square().mean().backward()
        return logits, [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    logits, gradients = step()
    with mha_trace.record(model) as run:
        recorded, recorded_gradients = step()
    assert len(run)
    assert torch.equal(logits, recorded)
    assert all(torch.equal(one, other) for one, other in zip(gradients, recorded_gradients))
    assert state(model) == before
    again, _ = step()
    assert torch.equal(logits, again)


@pytest.mark.parametrize("is_fast", [True, False])
def test_the_fast_path_of_multihead_attention_stays_what_it_is(is_fast):
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(12, 3, batch_first=True).eval()
    x = torch.randn(2, 5, 12)
    with torch.set_grad_enabled(not is_fast):
        plain = attention(x, x, x)
        with mha_trace.record(attention) as run:
            recorded = attention(x, x, x)
    assert all(torch.equal(one, other) for one, other in zip(plain, recorded))
    assert run.check().same


def test_functions_are_put_back(llama):
    before = F.scaled_dot_product_attention, transformers.AttentionInterface.get_interface
    with mha_trace.record(llama), mha_trace.record(llama):
        pass
    with pytest.raises(ZeroDivisionError), mha_trace.record(llama):
        assert before[0] is not F.scaled_dot_product_attention
        _ = 1 / 0
    assert before == (F.scaled_dot_product_attention, transformers.AttentionInterface.get_interface)


def test_a_recording_in_a_recording(llama):
    before = state(llama)
    with mha_trace.record(llama) as outer, torch.no_grad():
        with mha_trace.record(llama, layer=1) as inner:
            llama(**inputs("llama"))
        llama(**inputs("llama"))
    assert (len(outer), len(inner)) == (4, 1)
    assert outer.check().same
    assert inner.check().same
    assert state(llama) == before


def test_what_ran_before_an_exception_is_kept(llama):
    with pytest.raises(ZeroDivisionError), mha_trace.record(llama) as run:
        llama(**inputs("llama"))
        _ = 1 / 0
    assert run.check().same


def test_only_what_is_asked_for_is_kept(llama):
    with mha_trace.record(llama, layers=[1]) as run, torch.no_grad():
        llama(**inputs("llama"))
    assert [call.layer for call in run] == [1]
    assert all("layers.1.self_attn" in name for name in run[0].parameters)
    for one in ({"layers": 1}, {"layer": [1]}, {"layers": range(1, 2)}, {"layers": torch.tensor([1])}):
        with mha_trace.record(llama, **one) as run, torch.no_grad():
            llama(**inputs("llama"))
        assert [call.layer for call in run] == [1]
    with mha_trace.record(llama, prefix="model.layers.0") as run, torch.no_grad():
        llama(**inputs("llama"))
    assert [call.path for call in run] == ["model.layers.0.self_attn"]


def test_nothing_of_the_model_is_held():
    llama = build("llama")
    with mha_trace.record(llama) as run:
        llama(**inputs("llama")).logits.sum().backward()
    tensors = [tensor for call in run for tensor in call.tensors.values() if isinstance(tensor, torch.Tensor)]
    assert tensors
    assert not any(tensor.requires_grad or tensor.grad_fn is not None for tensor in tensors)
    held = weakref.ref(llama)
    del llama
    gc.collect()
    assert held() is None
    assert run.check().same


def test_changes_behind_the_recording_are_not_seen(llama):
    with mha_trace.record(llama, layer=0) as run, torch.no_grad():
        llama(**inputs("llama"))
    with torch.no_grad():
        for parameter in llama.parameters():
            parameter.zero_()
    assert run.check().same


def test_steps_of_an_optimiser_between_passes(llama):
    optimiser = torch.optim.SGD(llama.parameters(), lr=0.1)
    with mha_trace.record(llama, layer=0) as run:
        for _ in range(3):
            llama(**inputs("llama")).logits.square().mean().backward()
            optimiser.step()
    assert run.check().same
    assert not mha_trace.diff(run.select(index=0), run.select(index=2)).same
    with mha_trace.record(llama, layer=0) as run, torch.no_grad():
        llama(**inputs("llama"))
        llama(**inputs("llama"))
    assert run[0].parameters is run[1].parameters


def test_several_passes_and_files(llama, tmp_path, monkeypatch):
    with mha_trace.record(llama) as run, torch.no_grad():
        llama(**inputs("llama"))
        llama(**inputs("llama", padded=True))
    assert len(run) == 4
    with pytest.raises(mha_trace.Error, match="4 calls were recorded, and a file holds one"):
        run.save(tmp_path / "one.safetensors")
    paths = run.save(tmp_path / "all")
    assert len(paths) == len(set(paths)) == 4
    # The files need no flags.
    assert mha_trace.check(tmp_path / "all").same
    run[0].save(tmp_path / "one.safetensors")
    assert mha_trace.check(tmp_path / "one.safetensors").same
    for one in (run.select(layer=0, index=0), run[0]):
        assert mha_trace.check(one).same
        mha_trace.assert_same(one, golden=tmp_path / "one.safetensors")
    for several in (run, "q"):
        with pytest.raises(mha_trace.Error, match=r"\nhelp: pick .*run\[0\]"):
            mha_trace.diff(run, run) if several is run else run["q"]
    with pytest.raises(mha_trace.Error, match="no recorded call is so"):
        run.select(layer=7).check()
    with pytest.raises(mha_trace.Error, match=r"no \.safetensors file"):
        run[0].save(tmp_path / "one.npz")


def test_nothing_is_left_behind(llama, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with mha_trace.record(llama) as run, torch.no_grad():
        llama(**inputs("llama"))
    text = str(run.check())
    assert text.startswith("model.layers.0.self_attn.safetensors: same, ")
    assert str(tmp_path) not in text
    assert list(tmp_path.iterdir()) == []


def test_checkpointing_records_a_layer_once(llama):
    llama.train()
    llama.gradient_checkpointing_enable()
    with mha_trace.record(llama) as run:
        llama(**inputs("llama")).logits.sum().backward()
    assert len(run) == 2
    assert run.check().same


def test_dropout_is_said():
    model = build("gpt2", "eager").train()
    with mha_trace.record(model) as run:
        model(**inputs("gpt2"))
    with pytest.raises(mha_trace.Error, match=r"dropout 0\.1 was at work"):
        run.check()


def test_another_thread(llama):
    """A thread's calls are recorded as such, as where generate runs in one."""
    with mha_trace.record(llama, layer=0) as run:
        thread = threading.Thread(target=lambda: llama(**inputs("llama")))
        thread.start()
        thread.join()
    assert run.check().same


def test_other_models_are_left_alone(llama):
    other = build("llama")
    with mha_trace.record(llama) as run, torch.no_grad():
        other(**inputs("llama"))
        F.scaled_dot_product_attention(*torch.randn(3, 1, 2, 4, 8))
    assert len(run) == 0


def test_a_module_that_calls_sdpa():
    torch.manual_seed(0)
    model = nn.Sequential(OwnLayer(), OwnLayer())
    with mha_trace.record(model) as run:
        model(torch.randn(2, 5, 12))
    assert [call.path for call in run] == ["0", "1"]
    assert run.check().same
    with mha_trace.record(model, layers=[1]) as run:
        model(torch.randn(2, 5, 12))
    assert [call.layer for call in run] == [1]


class Masked(nn.Module):
    """Calls scaled_dot_product_attention with a mask."""

    def forward(self, q, mask):
        return F.scaled_dot_product_attention(q, q + 1, q - 1, attn_mask=mask)


def test_a_module_that_does_its_own_arithmetic(tmp_path):
    x = torch.randn(2, 5, 12)

    def recorded(weigh):
        model = nn.Sequential(OwnAttention(weigh))
        with mha_trace.record(model) as run:
            model(x)
        return run

    def blocked(scores):
        return scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -1e9)

    right = recorded(lambda scores: blocked(scores).softmax(-1))
    report = right.check(heads=3, mask="causal")
    assert report.same
    assert {step.name for step in report.steps} == {"q", "k", "v", "concat", "output"}
    assert "as stated" in str(report)
    right.save(tmp_path / "own.safetensors")
    assert mha_trace.check(tmp_path / "own.safetensors", heads=3, mask="causal").same
    with pytest.raises(mha_trace.Error, match="say what it does"):
        right.check(heads=3)
    wrong = recorded(lambda scores: blocked(scores).softmax(-2))
    assert [finding.id for finding in wrong.check(heads=3, mask="causal").findings] == ["softmax-over-queries"]


def test_positions_that_do_not_follow_the_cache_are_told(llama):
    ids = inputs("llama")["input_ids"]
    with mha_trace.record(llama, layer=1) as run:
        cache = llama(ids[:, :-1], use_cache=True).past_key_values
        llama(ids[:, -1:], past_key_values=cache, position_ids=torch.full((len(ids), 1), 2))
    assert "positions" not in str(run[0].check())
    assert f"called with (2), behind {ids.shape[1] - 1} keys" in str(run[1].check())


def test_mean_weights_of_multihead_attention():
    attention, x = nn.MultiheadAttention(12, 3), torch.randn(5, 2, 12)
    with mha_trace.record(attention) as run:
        attention(x, x, x)
    assert [step.name for step in run.check().steps] == ["weights_mean", "output"]
    run[0].tensors["weights_mean"] *= 1.01
    assert run.check().first_divergence == "weights_mean"


def test_a_scale_of_the_function_that_the_config_does_not_have(llama):
    llama.model.layers[1].self_attn.scaling *= 1.1
    with mha_trace.record(llama, layer=1) as run:
        llama(**inputs("llama"))
    report = run.check()
    assert {"q_rot", "k_rot"} <= {step.name for step in report.steps if step.status == "same"}
    assert [finding.step for finding in report.findings] == ["scores"]


def test_masks_broadcast_from_the_right_whatever_the_sizes():
    """Two axes are (query, key) also where there are as many items, and three are (head, query, key)."""
    torch.manual_seed(0)
    model, q = Masked(), torch.randn(4, 4, 4, 4)
    with mha_trace.record(model) as run:
        for shape in ((4, 4), (4, 4, 4), (1, 4, 4), (4, 1, 1, 4)):
            model(q, (torch.rand(shape) > 0.4) | torch.eye(4, dtype=torch.bool))
            model(q, torch.randn(shape))
    assert len(run) == 8
    assert run.check().same


def test_what_no_number_tells_is_left_out():
    from mha_trace._orders import normed_heads

    made = torch.randn(2, 3, 24)
    heads = made.unflatten(-1, (3, 8)).transpose(1, 2)
    assert torch.equal(normed_heads(heads + 1, heads, made, 3), heads + 1)
    assert torch.equal(normed_heads((heads + 1).transpose(1, 2), heads.transpose(1, 2), made, 3), heads + 1)
    # Every second part is a gate.
    wide = torch.stack([made.unflatten(-1, (3, 8)), torch.randn(2, 3, 3, 8)], dim=3).flatten(2)
    assert torch.equal(normed_heads((heads + 1).transpose(1, 2), heads.transpose(1, 2), wide, 3), heads + 1)
    for unknown in (None, torch.randn(2, 3, 24), torch.randn(2, 3, 20), torch.full((2, 3, 24), torch.nan)):
        assert normed_heads(heads, heads, unknown, 3) is None
    assert normed_heads(heads[:, :2], heads[:, :2], None, 3) is not None
    assert normed_heads(heads[:, :2], heads[:, :2], None, 5) is None


def test_multihead_attention():
    torch.manual_seed(0)
    x, memory = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    padding = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    for batch_first in (True, False):
        attention = nn.MultiheadAttention(12, 3, batch_first=batch_first)
        nn.init.normal_(attention.in_proj_bias)

        def ordered(tensor, batch_first=batch_first):
            return tensor if batch_first else tensor.transpose(0, 1)

        with mha_trace.record(attention) as run:
            attention(*[ordered(x)] * 3, attn_mask=causal, need_weights=False)
            attention(*[ordered(x)] * 3, attn_mask=causal < 0, average_attn_weights=False)
            attention(ordered(x), *[ordered(memory)] * 2, key_padding_mask=padding, average_attn_weights=False)
            attention(*[ordered(x)] * 3, attn_mask=causal, key_padding_mask=padding[:, 2:])
        report = run.check()
        assert report.same, str(report)
        assert len(report.files) == 4
        assert {step.name for step in run[1].check().steps} == {"weights", "output"}


def test_an_encoder_of_torch():
    layer = nn.TransformerEncoderLayer(12, 4, 8, batch_first=True, dropout=0.0)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    with mha_trace.record(encoder, layers=[1]) as run:
        encoder(torch.randn(2, 5, 12))
    assert [call.path for call in run] == ["layers.1.self_attn"]
    assert run.check().same
    with mha_trace.record(encoder.eval()) as run, torch.no_grad():
        encoder(torch.randn(2, 5, 12))
    with pytest.raises(mha_trace.Error, match="set_fastpath_enabled"):
        run.check()


class Hook(nn.Module):
    def forward(self, x):
        return x


class HookedAttention(nn.Module):
    """An attention with the hook points of TransformerLens; any change of q and k stands for rotary positions."""

    def __init__(self, is_rotary):
        super().__init__()
        self.is_rotary = is_rotary
        for name in ("q", "k", "v", "rot_q", "rot_k", "attn_scores", "pattern", "z"):
            setattr(self, f"hook_{name}", Hook())

    def forward(self, x):
        q, k, v = (hook(x.unflatten(-1, (3, 4))) for hook in (self.hook_q, self.hook_k, self.hook_v))
        if self.is_rotary:
            q, k = self.hook_rot_q(q.flip(-1) + 1), self.hook_rot_k(k.flip(-1) - 1)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 2
        scores = self.hook_attn_scores(scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf))
        return self.hook_z(torch.einsum("bhqk,bkhd->bqhd", self.hook_pattern(scores.softmax(-1)), v)).flatten(2)


@pytest.mark.parametrize("is_rotary", [False, True])
def test_hook_points_of_transformer_lens(is_rotary):
    torch.manual_seed(0)
    attention = HookedAttention(is_rotary)
    with mha_trace.record(attention) as run:
        for batch, tokens in ((2, 5), (2, 3), (3, 3), (4, 4)):  # there are 3 heads, each 4 wide
            attention(torch.randn(batch, tokens, 12))
    assert run[1]["k_heads"].shape == (2, 3, 3, 4)
    report = run.check(mask="causal")
    assert report.same, str(report)
    assert {step.name for step in report.steps} == {"masked_scores", "weights", "head_outputs"}


def test_a_cache_of_transformer_lens():
    """A dict of activations is taken as it is."""
    q, k, v = torch.randn(3, 2, 5, 3, 4)
    z = F.scaled_dot_product_attention(*(one.transpose(1, 2) for one in (q, k, v)), is_causal=True).transpose(1, 2)
    cache = {f"blocks.0.attn.hook_{name}": one for name, one in (("q", q), ("k", k), ("v", v), ("z", z))}
    assert mha_trace.check(cache, mask="causal", prefix="blocks.0.attn").same


def test_record_function():
    q, k, v = torch.randn(3, 2, 3, 5, 8)
    run = mha_trace.record_function(F.scaled_dot_product_attention, q, k, v, is_causal=True, scale=0.3)
    assert run.check().same
    half = [one.bfloat16() for one in (q, k, v)]
    assert mha_trace.record_function(F.scaled_dot_product_attention, *half).check().same

    def tiled(q, k, v):
        return F.scaled_dot_product_attention(q, k.repeat(1, 3, 1, 1), v.repeat(1, 3, 1, 1))

    wrong = mha_trace.record_function(tiled, torch.randn(2, 6, 5, 8), k[:, :2], v[:, :2]).check()
    assert not wrong.same
    assert wrong.findings


def test_what_cannot_be_recorded_is_said(llama):
    with pytest.raises(mha_trace.Error, match="no layer 9: it has 0 to 1"):
        mha_trace.record(llama, layers=[9])
    for layers in ([], (), "1", ["0"], True, [1.5], {}):
        with pytest.raises(mha_trace.Error, match=r"error: layers is .*\nhelp: "):
            mha_trace.record(llama, layers=layers)
    with pytest.raises(mha_trace.Error, match="no layer -1: it has 0 to 1"):
        mha_trace.record(llama, layer=-1)
    with pytest.raises(mha_trace.Error, match=r"no setting head: .*\nhelp: take a part"):
        mha_trace.record(llama, head=2)
    with pytest.raises(mha_trace.Error, match="prefix is 3\nhelp: "):
        mha_trace.record(llama, prefix=3)
    with pytest.raises(mha_trace.Error, match="starts with decoder"):
        mha_trace.record(llama, prefix="decoder")
    with pytest.raises(mha_trace.Error, match="no module of PyTorch"):
        mha_trace.record(lambda x: x)
    with pytest.raises(mha_trace.Error, match="is compiled"):
        mha_trace.record(torch.compile(llama))
    with mha_trace.record(llama) as run:
        pass
    with pytest.raises(mha_trace.Error, match="none of the modules that were asked for ran"):
        run.check()
    plain = nn.Sequential(nn.Linear(3, 3))
    with mha_trace.record(plain) as run:
        plain(torch.randn(1, 3))
    with pytest.raises(mha_trace.Error, match="nothing was recorded"):
        run.save("nothing.safetensors")
    recording = mha_trace.record(llama)
    with recording:
        pass
    with pytest.raises(mha_trace.Error, match="a second time"), recording:
        pass
    with pytest.raises(mha_trace.Error, match="gave NoneType"):
        mha_trace.record_function(lambda q, k, v: None, *torch.randn(3, 1, 1, 2, 4))
    with pytest.raises(KeyError, match="was not recorded"):
        mha_trace.record_function(F.scaled_dot_product_attention, *torch.randn(3, 1, 1, 2, 4))[0]["lse"]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias_kv", [True, False])
@pytest.mark.parametrize("zero_attn", [True, False])
def test_added_keys_and_values_of_their_own(batch_first, bias_kv, zero_attn):
    torch.manual_seed(0)
    widths = {"kdim": 8, "vdim": 9}
    attention = nn.MultiheadAttention(
        12, 3, add_bias_kv=bias_kv, add_zero_attn=zero_attn, batch_first=batch_first, **widths
    ).eval()
    query, key, value = torch.randn(2, 5, 12), torch.randn(2, 7, 8), torch.randn(2, 7, 9)
    padding = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    mask = torch.rand(6, 5, 7) < 0.3
    ordered = [one if batch_first else one.transpose(0, 1) for one in (query, key, value)]
    expected = attention(*ordered, key_padding_mask=padding, attn_mask=mask)[0]
    with mha_trace.record(attention) as run:
        found = attention(*ordered, key_padding_mask=padding, attn_mask=mask, average_attn_weights=False)[0]
        attention(*ordered, attn_mask=mask.float())
    assert torch.equal(found, expected)
    report = run.check()
    assert report.same, str(report)
    assert {step.name for step in run[0].check().steps} == {"weights", "output"}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "bart", "bloom"])
def test_both_passes_are_checked_and_the_model_gets_the_same_gradients(family, attention):
    model = build(family, None if family == "bloom" else attention)

    def gradients():
        model.zero_grad()
        model(**inputs(family))[0].square().mean().backward()
        return {name: own.grad.clone() for name, own in model.named_parameters() if own.grad is not None}

    plain = gradients()
    with mha_trace.record(model, backward=True) as run:
        recorded = gradients()
    # Sums over the readers of a tensor may be made in another order.
    torch.testing.assert_close(recorded, plain)
    assert run.check().same
    for call in run:
        if "x" in call.gradients:
            # However small they are: the loss is a mean.
            call.gradients["x"] = call.gradients["x"].map(lambda numbers: numbers * 2)
            assert call.check().first_divergence == "d_x"


def test_a_wrong_gradient_of_a_layer_is_found():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 5, 8, requires_grad=True)
    with mha_trace.record(attention, backward=True) as run:
        attention(x, x, x)[0].square().sum().backward()
    assert run.check().same
    run[0].gradients["x"] = run[0].gradients["x"].map(lambda numbers: numbers * 2)
    assert run.check().first_divergence == "d_x"


def test_a_function_of_tensors_with_gradients_is_checked_both_ways():
    q, k, v = (torch.randn(2, 3, 5, 8, requires_grad=True) for _ in range(3))
    run = mha_trace.record_function(F.scaled_dot_product_attention, q, k, v, is_causal=True)
    run.result.square().sum().backward()
    report = run.check()
    assert report.same
    assert "d_q_heads" in str(report)
    assert torch.equal(q.grad, torch.as_tensor(run[0].gradients["q"].numpy()))


def test_a_backward_pass_that_did_not_run_is_said():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 5, 8, requires_grad=True)
    with mha_trace.record(attention, backward=True) as run:
        attention(x, x, x)
    with pytest.raises(mha_trace.Error, match="no gradient came back"):
        run.check()
