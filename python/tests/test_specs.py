"""Every model of which fixtures/families_specs.py has the config, in one line: recorded, and checked clean."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))
import families  # noqa: E402
from families_specs import SPECS, class_of  # noqa: E402

import mha_trace  # noqa: E402

# Layers of linear attention are no such attention; record leaves them out.
LINEAR = "linear_attention"
LEFT_OUT = {
    "minimax": {"model.layers.1.self_attn": LINEAR},
    "kimi_linear": {"model.layers.0.self_attn": LINEAR},
    "bailing_hybrid": {"model.layers.0.self_attn": LINEAR},
    "olmo_hybrid": {"model.layers.0": LINEAR},
    "olmo_hybrid-nope": {"model.layers.0": LINEAR},
}
# Encoders whose queries see blocks of keys, which is no attention of the table and has no function to be seen.
REFUSED = {"pegasus_x": "model.encoder.", "longt5": "encoder."}
# The queries of the head are a parameter, and its keys and values alone are projected.
CORE = {"aimv2-vision": "head"}
# Layers that transformers computes in another way by this function than by the other one, which is to be found: the
# text model tells it that nothing is causal and leaves the mask to it, and the cross attention does not tell it that
# nothing is, where there is no mask of the images.
FOUND = {
    ("aimv2-text", "sdpa"): (r"encoder\.layers", "mask was stated as causal; recorded is none, in is_causal"),
    ("mllama-text", "sdpa"): (r"cross_attn", "mask was stated as none; recorded is causal, in is_causal"),
}
# What a config does not say.
SETTINGS = {("falcon-alibi-eager", "eager"): {"alibi_form": "falcon-eager"}}
# What says the queries and keys from the function that gets them, by what happened to them on the way.
LAST = ("q_heads", "q_norm", "q_clipped", "q_rot", "q_rot_norm", "q_scaled")


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", SPECS)
def test_a_model_is_checked_in_one_line(name, attention):
    spec = SPECS[name]
    if spec.get("attention", attention) != attention:
        pytest.skip("its eager attention is another one")
    torch.manual_seed(sum(map(ord, name)))
    kind = class_of(spec["cls"])
    config = spec["config"]() if callable(spec["config"]) else kind.config_class(**spec["config"])
    config._attn_implementation = attention
    if not getattr(kind, f"_supports_{attention}", True):
        pytest.skip("it has its eager attention alone")
    try:
        model = kind(config).eval()
    except ValueError as refused:
        pytest.skip(f"the library has no such attention in it: {refused}")
    families.randomize(model, spec.get("std", 0.3))
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    call = families.caller(spec["input"], model)
    with mha_trace.record(model) as run, torch.no_grad():
        call(model)
    assert len(run)
    assert run.left_out == LEFT_OUT.get(name, {})
    path, fault = FOUND.get((name, attention), (None, ""))
    for recorded in run:
        if recorded.path.startswith(REFUSED.get(name, "no such path")):
            with pytest.raises(mha_trace.Error, match="has an attention in its encoder that is not supported"):
                recorded.check()
            continue
        report = recorded.check(**SETTINGS.get((name, attention), {}))
        if path and re.search(path, recorded.path):
            assert [found.summary for found in report.findings] == [fault], str(report)
            continue
        assert report.same, str(report)
        steps = {step.name for step in report.steps}
        if recorded.path == CORE.get(name):
            assert len(report.notes) == 1
            assert steps == {"head_outputs"}
            continue
        assert report.notes == ()
        assert "output" in steps
        if recorded.function == "nn.MultiheadAttention":
            continue
        assert any(step.startswith("concat") for step in steps)
        if recorded.function != "unseen":
            # Queries that come scaled to the function are seen as their projection gave them.
            assert steps & {"q", *LAST}
            assert "head_outputs" in steps
            assert ("weights" in steps) == ("weights" in recorded.tensors)


def mllama():
    spec = SPECS["mllama-text"]
    torch.manual_seed(3)
    kind = class_of(spec["cls"])
    model = kind(kind.config_class(**spec["config"], attn_implementation="eager")).eval()
    families.randomize(model, 0.3)
    return model, torch.randint(3, 27, (2, 7)), torch.randn(2, 9, model.config.hidden_size)


@pytest.mark.parametrize("has_more", [False, True])
def test_cached_keys_of_a_memory_are_no_past(has_more):
    """The keys of images stay in the cache: none are made in later calls, or those of another image alone."""
    model, tokens, images = mllama()
    with torch.no_grad():
        cache = model(input_ids=tokens, cross_attention_states=images, use_cache=True).past_key_values
        with mha_trace.record(model) as run:
            more = {"cross_attention_states": images.flip(1)[:, 2:]} if has_more else {}
            model(input_ids=tokens[:, :1], past_key_values=cache, use_cache=True, **more)
    report = run.check()
    assert report.same, str(report)
    assert report.notes == (
        "layers.1.cross_attn: read as the core alone, from q, k and v to the heads: "
        "its keys were made at another time, or by another layer",
    )
    assert {step.name for step in report.steps if "cross" in step.file} == {"weights", "head_outputs"}
