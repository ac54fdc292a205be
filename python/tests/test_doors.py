"""Ways in: attention functions, modules and names that are not those of the library."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))
import families  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from test_contradictions import ids, made, recorded  # noqa: E402
from torch import nn  # noqa: E402
from transformers import AttentionInterface  # noqa: E402
from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402

import mha_trace  # noqa: E402


def grouped(q, *others):
    return [one.repeat_interleave(q.shape[1] // one.shape[1], 1) for one in others]


def own(module, q, k, v, mask, scaling=None, **others):
    k, v = grouped(q, k, v)
    scores = q @ k.mT * scaling
    weights = (scores if mask is None else scores + mask[..., : k.shape[-2]]).softmax(-1)
    return (weights @ v).transpose(1, 2).contiguous(), weights


def side_by_side(module, q, k, v, mask, **others):
    out, weights = own(module, q, k, v, mask, **others)
    return out.flatten(2), weights


def by_sdpa(module, q, k, v, m=None, scaling=None, **others):
    k, v = grouped(q, k, v)
    is_causal = m is None and q.shape[2] > 1
    return F.scaled_dot_product_attention(q, k, v, m, scale=scaling, is_causal=is_causal).transpose(1, 2), None


@pytest.mark.parametrize("function", [own, side_by_side])
def test_a_function_in_place_of_the_eager_one(function, monkeypatch):
    monkeypatch.setattr(modeling_llama, "eager_attention_forward", function)
    report = recorded(made("llama"), input_ids=ids()).check()
    assert report.same, str(report)
    assert len(report.steps) == 10


@pytest.mark.parametrize(
    ("name", "function", "mask"),
    [("own", own, eager_mask), ("by_sdpa", by_sdpa, sdpa_mask), ("by_sdpa_without_mask", by_sdpa, None)],
)
def test_functions_that_were_registered(name, function, mask):
    AttentionInterface.register(name, function)
    if mask is not None:
        AttentionMaskInterface.register(name, mask)
    model, padding = made("llama", name), torch.ones(2, 6, dtype=torch.long)
    padding[1, :2] = 0
    for seen in (None, padding):
        report = recorded(model, input_ids=ids(), attention_mask=seen).check()
        assert report.same, str(report)
        assert "core alone" not in str(report)
    with mha_trace.record(model) as run, torch.no_grad():
        model.generate(ids(), max_new_tokens=3, min_new_tokens=3, do_sample=False)
    assert run.check().same


def test_a_registered_function_that_gets_no_mask_is_told():
    AttentionInterface.register("without_a_mask", own)
    report = recorded(made("llama", "without_a_mask"), input_ids=ids()).check()
    assert [found.id for found in report.findings] == ["mask-missing"]


class Mixer(nn.Module):
    def __init__(self, by_sdpa):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(12, 12) for _ in range(4))
        self.by_sdpa = by_sdpa

    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (3, 4)).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))
        if self.by_sdpa:
            return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        blocked = torch.full((x.shape[1],) * 2, -math.inf).triu(1)
        return self.o_proj(((q @ k.mT / 2 + blocked).softmax(-1) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("by_sdpa", [False, True])
def test_modules_with_other_names(by_sdpa):
    model = nn.Sequential()
    model.add_module("mixer", Mixer(by_sdpa))
    x = torch.randn(2, 5, 12)
    for name in ("mixer", "Mixer"):
        with mha_trace.record(model, attention=name) as run, torch.no_grad():
            model(x)
        report = run.check(heads=3, mask="causal")
        assert report.same, str(report)
        assert {step.name for step in report.steps} >= {"q", "output"}
        assert not run.check(heads=3, mask="none").same
    with pytest.raises(mha_trace.Error, match="no module of the model is called other"):
        mha_trace.record(model, attention="other")
    if not by_sdpa:
        with mha_trace.record(model) as run, torch.no_grad():
            model(x)
        with pytest.raises(mha_trace.Error, match=r"of an output: mixer\nhelp: .*record.model, attention='mixer'"):
            run.check()


@pytest.mark.parametrize("name", ["llama", "bert", "gpt2"])
def test_a_model_of_no_known_type_is_told_what_to_say(name):
    model = made(name)
    model.config.__class__ = type("New", (type(model.config),), {"model_type": f"new_{name}"})
    call = recorded(model, input_ids=ids())[0]
    report = call.check()
    said = str(report).splitlines()[-1]
    assert report.same, str(report)
    assert f"check(model_family={name!r}), or check(heads=" in said
    assert call.check(model_family=name).same
    assert {step.name for step in call.check(model_family=name).steps} >= {"output"}
    # What it says to say is enough.
    stated = eval(said.rpartition("check(")[2].join(["dict(", ""]))
    report = call.check(**stated)
    assert report.same, str(report)
    assert {step.name for step in report.steps} >= {"output"}


class Joined(nn.Module):
    """A module with parameters under names of its own that calls F.multi_head_attention_forward."""

    def __init__(self, is_apart):
        super().__init__()
        self.is_apart = is_apart
        self.all_in, self.all_in_bias = nn.Parameter(torch.randn(36, 12) / 3), nn.Parameter(torch.randn(36))
        self.back, self.back_bias = nn.Parameter(torch.randn(12, 12) / 3), nn.Parameter(torch.randn(12))

    def forward(self, x, bias, padding):
        q, k, v = self.all_in.chunk(3)
        inputs = (x, x, x, 12, 3, None if self.is_apart else self.all_in, self.all_in_bias, None, None, False, 0.0)
        more = {"use_separate_proj_weight": True, "q_proj_weight": q, "k_proj_weight": k, "v_proj_weight": v}
        own = {"training": False, "key_padding_mask": padding, "attn_mask": bias, **(more if self.is_apart else {})}
        return F.multi_head_attention_forward(*inputs, self.back, self.back_bias, **own)[0]


@pytest.mark.parametrize("is_apart", [False, True])
def test_the_function_of_torch_that_projects_too(is_apart):
    model, bias, padding = Joined(is_apart), torch.randn(6, 5, 5), torch.zeros(2, 5).bool()
    padding[1, 3:] = True
    with mha_trace.record(model) as run, torch.no_grad():
        model(torch.randn(5, 2, 12), bias, padding)
    report = run.check()
    assert report.same, str(report)
    assert {step.name for step in report.steps} == {"output", "weights_mean"}
    run[0].tensors["output"] += 0.1
    assert not run.check().same


def test_wavlm_gates_its_position_biases():
    config = transformers.WavLMConfig(
        hidden_size=24,
        num_attention_heads=4,
        intermediate_size=20,
        num_hidden_layers=2,
        num_feat_extract_layers=1,
        conv_dim=[8],
        conv_stride=[4],
        conv_kernel=[4],
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
    )
    model = transformers.WavLMModel(config).eval()
    with mha_trace.record(model) as run, torch.no_grad():
        model(torch.randn(2, 28))
    assert len(run) == 2
    assert run.check().same, str(run.check())


@pytest.mark.parametrize("terms", [["c2p"], ["p2c", "c2p"]])
@pytest.mark.parametrize("is_shared", [False, True])
def test_debertas_terms_are_given(terms, is_shared):
    sizes = {"vocab_size": 31, "hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 20}
    own = {"relative_attention": True, "pos_att_type": terms, "position_buckets": 4, "share_att_key": is_shared}
    config = transformers.DebertaV2Config(**sizes, **own, num_hidden_layers=2, max_position_embeddings=16)
    torch.manual_seed(6)
    model = transformers.DebertaV2Model(config).eval()
    families.randomize(model, 0.3)
    padding = torch.ones(2, 6, dtype=torch.long)
    padding[1, 4:] = 0
    with mha_trace.record(model) as run, torch.no_grad():
        model(ids())
        model(ids(), attention_mask=padding)
    report = run.check()
    assert len(run) == 4
    assert report.same, str(report)
    assert {"q", "k", "v", "concat", "output"} <= {step.name for step in report.steps}
    run[0].tensors["attn_bias"] = run[0].tensors["attn_bias"].roll(1, -1)
    assert not run[0].check().same


def test_a_call_is_read_like_a_dict():
    q, k, v = torch.randn(3, 2, 4, 6, 8)
    call = mha_trace.record_function(F.scaled_dot_product_attention, q, k, v)[0]
    assert list(call) == call.keys() == list(dict(call.items())) == ["q", "k", "v", "out"]
    assert "q" in call
    assert "weights" not in call
    assert mha_trace.check(dict(call)).same


def test_a_kernels_weights_alone_and_its_biases():
    q, k, v = torch.randn(3, 2, 4, 6, 8, generator=torch.Generator().manual_seed(1))
    scores, bias = q @ k.mT / math.sqrt(8), torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(2))
    assert mha_trace.check({"q": q, "k": k, "v": v, "attn": scores.softmax(-1)}).same
    for name in ("bias", "attn_bias", "position_bias", "rel_pos_bias"):
        for own in (bias, bias[0], bias[0, 0], bias[:, :1]):
            out = (scores + own).softmax(-1) @ v
            assert mha_trace.check({"q": q, "k": k, "v": v, name: own, "out": out}).same, name
            assert not mha_trace.check({"q": q, "k": k, "v": v, name: own, "out": scores.softmax(-1) @ v}).same
    hidden = torch.full((6, 6), -math.inf).triu(1)
    out = (scores + bias + hidden).softmax(-1) @ v
    assert mha_trace.check({"q": q, "k": k, "v": v, "bias": bias, "out": out}, mask="causal").same


def test_names_that_are_not_understood_are_told():
    for arrays in ({"foo": torch.ones(2)}, {"foo": torch.ones(2), "x": torch.randn(1, 2, 4)}):
        with pytest.raises(mha_trace.Error, match="no step has the name foo"):
            mha_trace.check(arrays)


@pytest.mark.parametrize("is_normed", [False, True])
def test_blooms_module_adds_its_residual(is_normed, tmp_path):
    """Whether that is its input, as where the norm comes before it, or something that the dump lacks."""
    model, seen = made("bloom"), {}
    block = model.transformer.h[0]
    block.apply_residual_connection_post_layernorm = is_normed

    def keep(module, args, kwargs, result):
        seen.update(hidden_states=args[0], residual=args[1], output=result[0], attn_weights=result[1])

    block.self_attention.register_forward_hook(keep, with_kwargs=True)
    with torch.no_grad():
        model(ids())
    parameters = {f"h.0.self_attention.{name}": p for name, p in block.self_attention.named_parameters()}
    config = {**model.config.to_dict(), "apply_residual_connection_post_layernorm": is_normed}
    (tmp_path / "config.json").write_text(json.dumps(config))
    settings = {"model_config": tmp_path / "config.json", "layer": 0}
    assert mha_trace.check({**seen, **parameters}, **settings).same
    del seen["residual"]
    report = mha_trace.check({**seen, **parameters}, **settings)
    assert report.same == is_normed, str(report)
    assert {found.id for found in report.findings} <= {"noise"}
    assert is_normed or "the module adds a residual to it, which the file lacks" in " ".join(str(report).split())
    wrong = mha_trace.check({**seen, **parameters, "output": seen["output"] + 1}, **settings)
    assert not wrong.same
