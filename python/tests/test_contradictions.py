"""What was recorded against what was stated; and right code that looks like a contradiction, which is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))
import families  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from cores import CORES  # noqa: E402
from families_specs import SPECS, class_of  # noqa: E402
from images import IMAGES  # noqa: E402

import mha_trace  # noqa: E402
from mha_trace._goldens import AttentionGolden  # noqa: E402

CAUSAL = torch.ones(6, 6).tril().bool()


def made(name, attention="eager"):
    torch.manual_seed(sum(map(ord, name)))
    spec = SPECS[name]
    kind = class_of(spec["cls"])
    config = spec["config"]() if callable(spec["config"]) else kind.config_class(**spec["config"])
    config._attn_implementation = attention
    model = kind(config).eval()
    families.randomize(model, spec.get("std", 0.3))
    return model


def recorded(model, layer=0, **arguments):
    with mha_trace.record(model, layer=layer) as run, torch.no_grad():
        model(**arguments)
    return run


def ids(tokens=6):
    return torch.randint(3, 30, (2, tokens), generator=torch.Generator().manual_seed(1))


def told(report):
    """The settings that are contradicted; no step is wrong beside that."""
    assert report.same == (not report.findings), str(report)
    assert {step.status for step in report.steps} == {"same"}, str(report)
    assert {found.kind for found in report.findings} <= {"contradiction"}, str(report)
    return [file["parameter"] for file in report.files[0]["diagnosis"]]


def test_a_golden_is_told_the_contradiction(tmp_path):
    """What differs from a golden is named as a check names it; what both contradict is no news."""
    golden, words = AttentionGolden(tmp_path / "test_one.py", "test", False), ids()
    with pytest.raises(AssertionError, match="there was no golden"):
        golden.check(recorded(made("llama"), input_ids=words))
    golden.check(recorded(made("llama"), input_ids=words))
    model = made("llama")
    model.model.layers[0].self_attn.scaling = 0.2
    wrong = recorded(model, input_ids=words)
    (found,) = wrong.check().findings
    with pytest.raises(AssertionError) as error:
        golden.check(wrong)
    assert f"has a mistake: contradiction: {found.summary}" in " ".join(str(error.value).split())
    with pytest.raises(AssertionError) as error:
        mha_trace.assert_same(recorded(model, input_ids=words.flip(1)), wrong)
    assert "contradiction" not in str(error.value)


def test_a_golden_of_a_core_is_told_the_mistake(tmp_path):
    model, inputs = CORES["squeezebert"]("eager")
    golden = AttentionGolden(tmp_path / "test_one.py", "test", False)
    with pytest.raises(AssertionError, match="there was no golden"):
        golden.check(recorded(model, **inputs))
    model.encoder.layers[0].attention.softmax = Lossy()
    wrong = recorded(model, **inputs)
    (found,) = wrong.check().findings
    with pytest.raises(AssertionError) as error:
        golden.check(wrong)
    assert f"by its own numbers it has a mistake: {found.summary}" in " ".join(str(error.value).split())


class Lossy(torch.nn.Module):
    """A softmax whose first weights are lost."""

    def forward(self, scores):
        weights = scores.softmax(-1)
        return weights.masked_fill(torch.arange(scores.shape[-1]) == 0, 0)


SDPA = [
    ("mllama-text", 1, "mask was stated as none; recorded is causal", "MllamaTextCrossAttention has none"),
    ("aimv2-text", 0, "mask was stated as causal; recorded is none", "Aimv2Attention calls it with is_causal=False"),
]


@pytest.mark.parametrize(("name", "layer", "said", "cause"), SDPA)
def test_why_a_function_without_a_mask_is_causal(name, layer, said, cause):
    """It goes by is_causal, as eager functions do not; they are as the config says."""
    for attention in ("sdpa", "eager"):
        model = made(name, attention)
        with mha_trace.record(model, layer=layer) as run, torch.no_grad():
            families.caller(SPECS[name]["input"], model)(model)
        report = run.check()
        assert report.same == (attention == "eager"), str(report)
        if attention == "sdpa":
            assert report.findings[0].summary.startswith(said)
            found = ("not causal, and the module is", "causal, and the module is not")["causal;" in said]
            assert f"the config says that it is {found}: no mask came to sdpa, which then goes by" in str(report)
            assert cause in str(report)
        else:
            assert report.notes == ()


def blocked(cells):
    return torch.zeros(cells.shape).masked_fill(~cells, torch.finfo(torch.float32).min).expand(2, 1, -1, -1)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (CAUSAL.tril(-1), "causal and strict"),
        (torch.ones(6, 6).bool(), "blocks nothing"),
        (CAUSAL.triu(-1), "a window of 2"),
        (CAUSAL | (torch.arange(6) < 3), "a prefix of 3 keys"),
        (CAUSAL.T, "a reversed causal one"),
    ],
)
def test_masks_of_the_caller(cells, words):
    report = recorded(made("llama"), input_ids=ids(), attention_mask=blocked(cells)).check()
    assert told(report) == ["mask"]
    assert words in report.findings[0].summary
    assert "causal" in report.files[0]["diagnosis"][0]["meant"]
    assert str(report).splitlines()[1].startswith("contradiction: ")


def test_a_causal_mask_in_an_encoder():
    report = recorded(made("bert"), input_ids=ids(), attention_mask=blocked(CAUSAL).contiguous()).check()
    assert told(report) == ["mask"]


@pytest.mark.parametrize(
    "positions", [list(range(5, -1, -1)), list(range(3, 9)), list(range(0, 12, 2)), [0, 1, 2, 0, 1, 2]]
)
def test_positions_of_the_caller(positions):
    model = made("llama")
    assert told(recorded(model, input_ids=ids(), position_ids=torch.tensor([positions])).check()) == ["positions"]
    assert told(recorded(model, input_ids=ids(), position_ids=torch.arange(6)[None]).check()) == []


def test_what_a_config_says_and_the_module_does_not_hold():
    model = made("llama")
    # Specs share the dict.
    model.config.rope_parameters = {**model.config.rope_parameters, "rope_theta": 500.0}
    report = recorded(model, input_ids=ids()).check()
    assert told(report) == ["rope"]
    assert "base 500; recorded is those of base 40" in report.findings[0].summary
    model = made("qwen3")
    model.config.rms_norm_eps = 0.3
    assert told(recorded(model, input_ids=ids()).check()) == ["qk_norm_eps"]
    model = made("gemma2")
    model.config.query_pre_attn_scalar = 44
    assert told(recorded(model, input_ids=ids()).check()) == ["scale"]
    model = made("llama-bias")
    model.model.layers[0].self_attn.o_proj.bias = None
    report = recorded(model, input_ids=ids()).check()
    assert told(report) == ["bias"]
    assert "o_proj.bias was stated, of shape [30]; the module holds none" in str(report).splitlines()[1]


def test_settings_beside_a_function():
    q, k, v = torch.randn(3, 2, 4, 6, 8, generator=torch.Generator().manual_seed(2))
    run = mha_trace.record_function(F.scaled_dot_product_attention, q, k, v, is_causal=True, scale=0.25)
    assert told(run.check()) == told(run.check(mask="causal", scale=0.25)) == []
    assert told(run.check(scale=0.5)) == ["scale"]
    assert told(run.check(mask="none")) == ["mask"]
    padding = torch.ones(2, 1, 1, 6).bool()
    padding[1, ..., 4:] = False
    run = mha_trace.record_function(F.scaled_dot_product_attention, q, k, v, attn_mask=padding)
    assert told(run.check(lengths=[6, 4])) == []
    assert told(run.check(lengths=[6, 5])) == told(run.check(lengths=[6, 3])) == ["mask"]
    run = mha_trace.record_function(F.scaled_dot_product_attention, q, k, v, attn_mask=CAUSAL.triu(-1))
    assert told(run.check(mask="causal", window=2)) == told(run.check(mask="recorded")) == []
    assert told(run.check(mask="causal", window=3)) == told(run.check(mask="causal")) == ["mask"]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_prefixes_that_a_model_makes(attention):
    text = {"model_type": "gemma", "vocab_size": 64, "hidden_size": 30, "num_attention_heads": 6, "head_dim": 8}
    text |= {"num_key_value_heads": 2, "intermediate_size": 20, "num_hidden_layers": 1}
    vision = {"model_type": "siglip_vision_model", "hidden_size": 24, "num_attention_heads": 4, "image_size": 6}
    vision |= {"intermediate_size": 20, "patch_size": 2, "num_hidden_layers": 1, "projection_dim": 30}
    config = transformers.PaliGemmaConfig(
        text_config=text, vision_config=vision, image_token_id=60, projection_dim=30, attn_implementation=attention
    )
    model = transformers.PaliGemmaForConditionalGeneration(config).eval()
    families.randomize(model, 0.3)
    inputs = {"input_ids": torch.tensor([[60] * 9 + [5, 6, 7, 8]]), "pixel_values": torch.randn(1, 3, 6, 6)}
    with mha_trace.record(model, prefix="model.language_model") as run, torch.no_grad():
        model(**inputs)
        model(**inputs, token_type_ids=torch.tensor([[0] * 11 + [1] * 2]))
        model.generate(**inputs, max_new_tokens=3, min_new_tokens=3)
    assert len(run) == 5
    assert run.check().same, str(run.check())


@pytest.mark.parametrize("name", ["deepseek_v3", "deepseek_v3-half", "glm4_moe_lite"])
def test_latents_that_turn_pairs_side_by_side_are_decoded(name):
    model = made(name)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    with mha_trace.record(model) as run, torch.no_grad():
        model.generate(ids(), max_new_tokens=3, min_new_tokens=3, do_sample=False)
    assert len(run) == 6
    assert run.check().same, str(run.check())


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_images_through_generate(name):
    model = made(name)
    config = model.config
    config.image_token_id, config.vision_start_token_id, config.vision_end_token_id = 28, 30, 27
    config.video_token_id = 29
    tokens = torch.tensor([[3, 4, 30, *[28] * 4, 27, 5, 6, 7]])
    pixels = torch.randn(16, 3 * config.vision_config.temporal_patch_size * config.vision_config.patch_size**2)
    with mha_trace.record(model, prefix="model.language_model") as run, torch.no_grad():
        model.generate(
            input_ids=tokens,
            pixel_values=pixels,
            image_grid_thw=torch.tensor([[1, 4, 4]]),
            mm_token_type_ids=(tokens == 28).int(),
            max_new_tokens=3,
            min_new_tokens=3,
            do_sample=False,
        )
    assert run[0].positions.shape == (3, 1, 11)
    assert run.check().same, str(run.check())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["gemma3-images", "gemma4-images"])
def test_images_whose_tokens_see_each_other(name, attention):
    model, inputs = IMAGES[name](attention)
    padding = torch.ones_like(inputs["input_ids"])
    padding[1, 0] = 0
    with mha_trace.record(model) as run, torch.no_grad():
        model(**inputs)
        model(**inputs, attention_mask=padding)
        model.generate(**inputs, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    report = run.check()
    assert report.same, str(report)
    # A later token that is of no image is none that the model shows.
    tokens = inputs["input_ids"].clamp(max=9)
    seen = torch.ones(tokens.shape[1], tokens.shape[1]).tril().bool()
    seen[0, 8] = True
    masks = dict.fromkeys(("full_attention", "sliding_attention"), blocked(seen))
    with mha_trace.record(model, prefix="model.language_model", layer=1) as run, torch.no_grad():
        model.model.language_model(tokens, attention_mask=masks)
    assert told(run.check()) == ["mask"]


@pytest.mark.parametrize("side", [slice(0, 4), slice(5, 9)], ids=["left", "right"])
@pytest.mark.parametrize(("name", "attention"), [("llama4", "eager"), ("llama4", "sdpa"), ("markuplm", "eager")])
def test_padding_with_chunks_and_small_fills(name, attention, side):
    seen = torch.ones(2, 9).long()
    seen[1, side] = 0
    report = recorded(made(name, attention), input_ids=ids(9), attention_mask=seen).check()
    assert report.same, str(report)


def test_functions_of_places_are_evaluated():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = torch.randn(3, 2, 4, 16, 16, generator=torch.Generator().manual_seed(3))
    slopes = 0.1 * torch.arange(1, 5)

    def linear(score, batch, head, query, key):
        return score + slopes[head] * (key - query)

    def capped(score, batch, head, query, key):
        return 5 * torch.tanh(score / 5)

    def squared(score, batch, head, query, key):
        return score * score

    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu")
    for more in ({"score_mod": linear}, {"score_mod": capped}, {"score_mod": linear, "block_mask": mask}):
        report = mha_trace.record_function(flex_attention, q, k, v, **more).check()
        assert report.same, str(report)
    run = mha_trace.record_function(flex_attention, q, k, v, block_mask=mask)
    assert run.check(mask="causal").same
    assert told(run.check(mask="causal", window=3)) == ["mask"]
    with pytest.raises(mha_trace.Error, match="score_mod neither adds a bias"):
        mha_trace.record_function(flex_attention, q, k, v, score_mod=squared)


def test_fills_and_endings_that_are_right():
    q, k, v = torch.randn(3, 2, 4, 6, 8, generator=torch.Generator().manual_seed(4))
    for fill in (-1e4, -1e9, torch.finfo(torch.float32).min):
        added = torch.zeros(6, 6).masked_fill(~CAUSAL, fill)
        scores = q @ k.mT / 8**0.5
        weights = (scores + added).softmax(-1)
        steps = {"q": q, "k": k, "v": v, "masked_scores": scores + added, "weights": weights, "out": weights @ v}
        for name in ("attn_mask", "mask", "attn_bias", "extended_attention_mask"):
            report = mha_trace.check({**steps, name: added[None, None]}, mask="causal")
            assert report.same, f"{name} {fill}\n{report}"
    model, x = made("bert"), torch.randn(2, 6, 24)
    attention = model.encoder.layer[0].attention if hasattr(model, "encoder") else model.bert.encoder.layer[0].attention
    with torch.no_grad():
        heads = attention.self(x)[0]
    weights = {f"encoder.layer.0.attention.{name}": one.detach() for name, one in attention.named_parameters()}
    report = mha_trace.check({"x": x, "output": heads}, model_config=model.config, weights=weights, layer=0)
    assert report.same, str(report)
    own = {name.split("attention.")[1]: one for name, one in weights.items() if ".self." in name}
    assert mha_trace.check({"x": x, "output": heads, **own}, heads=4, mask="none").same
