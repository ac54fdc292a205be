"""Whole models, recorded part by part, compared, and bisected."""

from __future__ import annotations

from pathlib import Path

import pytest

import mha_trace

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from models import DECODER, GPT, build  # noqa: E402

pytestmark = pytest.mark.torch
IDS = torch.tensor([[3, 7, 5, 11, 4], [9, 12, 6, 8, 10]])


def llama(change=None, attention="sdpa"):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**DECODER, "num_hidden_layers": 3}, attn_implementation=attention)
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    if change:
        change(model)
    return model


def recorded(model, *calls):
    with torch.no_grad(), mha_trace.record(model, layers="all", everything=True) as run:
        for call in calls or (lambda: model(IDS),):
            call()
    return run


def eps(model):
    model.model.layers[1].input_layernorm.variance_epsilon = 1e-2


def silent_scale(model):
    model.model.layers[2].self_attn.scaling = 0.5


def last_norm(model):
    model.model.norm.variance_epsilon = 0.1


def test_all_parts_are_recorded_once_in_order():
    run = recorded(llama())
    (one,) = run.parts.passes
    names = list(one.made)
    assert names[:3] == ["input_ids", "model.embed_tokens.out", "model.layers.0.input_layernorm.out"]
    assert names[-1] == "lm_head.out"
    assert one.made["model.layers.1.input_layernorm.out"] == "LlamaRMSNorm(model.layers.0.out, eps=1e-06)"
    assert "model.layers.1.in" not in names  # it is model.layers.0.out
    assert one.tensors["lm_head.out"].shape == (2, 5, 31)
    assert len(run) == 3


def test_the_models_numbers_and_modules_stay_as_they_are():
    model = llama()
    before, kept = model(IDS).logits, {path: dict(vars(module)) for path, module in model.named_modules()}
    run = recorded(model)
    assert torch.equal(run.parts.passes[0].tensors["lm_head.out"], before)
    assert all(vars(module).keys() == kept[path].keys() for path, module in model.named_modules())
    assert torch.equal(model(IDS).logits, before)


def test_norms_in_modules_are_parts_of_their_own():
    config = transformers.BertConfig(
        vocab_size=31, hidden_size=24, num_attention_heads=4, intermediate_size=20, num_hidden_layers=1
    )
    names = list(recorded(transformers.BertModel(config).eval()).parts.passes[0].made)
    assert "encoder.layer.0.attention.self.out" in names
    assert "encoder.layer.0.attention.output.LayerNorm.out" in names
    assert "encoder.layer.0.output.dense.out" in names


def test_a_run_is_saved_in_a_folder_alone(tmp_path: Path):
    model = llama()
    run = recorded(model, lambda: model(IDS), lambda: model(IDS))
    with pytest.raises(mha_trace.Error, match="a whole model was recorded"):
        run.save(tmp_path / "run.safetensors")
    names = {path.name for path in run.save(tmp_path / "run")}
    assert {"parts.safetensors", "parts.1.safetensors", "model.layers.0.self_attn.safetensors"} <= names
    assert mha_trace.compare(tmp_path / "run", run).same


def test_weights_that_were_changed_are_left_out(tmp_path: Path):
    model = llama()
    run = recorded(model)
    with torch.no_grad():
        model.model.norm.weight.mul_(2)
    run.save(tmp_path / "run")
    arrays, _ = mha_trace._files.read(tmp_path / "run" / "parts.safetensors")
    assert "model.norm.weight" not in arrays
    assert "lm_head.weight" in arrays


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        (eps, "model.layers.1.input_layernorm.out", "eps is 0.01 where 1e-6 was meant"),
        (silent_scale, "model.layers.2.self_attn.out", "√heads"),
        (last_norm, "model.norm.out", "eps is 0.1 where 1e-6 was meant"),
    ],
)
def test_the_first_wrong_part_is_found_by_recordings_and_by_bisection(change, name, said):
    found = mha_trace.compare(recorded(llama()), recorded(llama(change)))
    bisected = mha_trace.first_wrong(llama(), llama(change), IDS)
    for report in (found, bisected):
        assert not report.same
        assert report.first_wrong == name
        assert said in report.findings[0].summary
        assert "is the first" in str(report)


@pytest.mark.parametrize(
    "port", [lambda: llama(attention="eager"), lambda: llama().to(torch.bfloat16), lambda: llama().double()]
)
def test_right_models_are_never_accused(port):
    found = mha_trace.compare(recorded(llama()), recorded(port()))
    assert found.same
    assert found.first_wrong is None
    assert not any(part["wrong"] for part in found.parts)
    assert mha_trace.first_wrong(llama(), port(), {"input_ids": IDS}).same


def test_the_norms_that_add_one_and_the_mlps_of_families_are_read():
    """The parts of these models are recomputed: what is off is told as measured."""
    for make, config in [
        (transformers.Gemma2ForCausalLM, transformers.Gemma2Config(**DECODER, head_dim=8)),
        (transformers.GPT2LMHeadModel, transformers.GPT2Config(**GPT)),
        (transformers.Phi3ForCausalLM, transformers.Phi3Config(**DECODER)),
        (
            transformers.GPTNeoXForCausalLM,
            transformers.GPTNeoXConfig(**{k: v for k, v in DECODER.items() if "key" not in k}),
        ),
    ]:
        torch.manual_seed(0)
        model = make(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        reference = recorded(model)
        embedding = model.get_input_embeddings()
        with torch.no_grad():
            embedding.weight.mul_(1.1)
        found = mha_trace.compare(reference, recorded(model))
        assert found.part == "embedding", make
        others = {(part["part"], part["known_by"]) for part in found.parts if part["part"] in ("norm", "mlp", "layer")}
        assert {known for _, known in others} == {"recomputed"}, (make, others)
        assert [part["name"] for part in found.parts if part["wrong"]] == [found.first_wrong], make


def test_ranks_are_given_as_a_list():
    run = recorded(llama())
    found = mha_trace.compare(run, [run, run], unshard="heads=2")
    assert found.same
    assert "2 ranks are joined" in str(found)


def test_logits_that_the_model_changes_are_recorded():
    def model(cap):
        torch.manual_seed(0)
        config = transformers.Gemma2Config(**DECODER, head_dim=8, final_logit_softcapping=cap)
        return transformers.Gemma2ForCausalLM(config).eval()

    for reference, port in [(0.01, None), (None, 0.01)]:
        found = mha_trace.compare(recorded(model(reference)), recorded(model(port)))
        assert found.first_wrong == "logits"


def test_a_part_that_was_left_out_is_found_by_bisection():
    port = llama()
    port.model.norm = torch.nn.Identity()
    assert mha_trace.first_wrong(llama(), port, IDS).first_wrong == "lm_head.in"


def test_other_modules_and_no_modules_are_told():
    with pytest.raises(mha_trace.Error, match="is no recording of a whole model"):
        mha_trace.compare({"x": 1}, {"x": 1})
    with pytest.raises(mha_trace.Error, match="training mode"):
        mha_trace.first_wrong(llama().train(), llama(), IDS)


def test_a_decoder_by_its_cache_beside_one_pass():
    """The tokens of an encoder and those of a decoder are aligned each by their own ids."""
    own, other = (build("t5", "eager") for _ in range(2))
    words = torch.tensor([[4, 7, 9, 5]])

    def one_pass():
        own(input_ids=IDS[:1], decoder_input_ids=words)

    def steps():
        encoded, cache = other.encoder(IDS[:1]), None
        for word in words.split(1, dim=1):
            cache = other(encoder_outputs=encoded, decoder_input_ids=word, cache=cache, use_cache=True).past_key_values

    found = mha_trace.compare(recorded(own, one_pass), recorded(other, steps))
    assert found.same, str(found)
    assert "4 passes beside one" in str(found)
