"""Every family of models in one line: recorded, and checked clean."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from models import DECODER, ENCODER, FAMILIES, VISION, WIDE, build, inputs  # noqa: E402

import mha_trace  # noqa: E402


def both_ways(*families):
    """Each with both attentions; those with a soft cap or sinks have the eager one alone."""
    eager = [(family, "eager") for family in families]
    return eager + [(family, "sdpa") for family in families if family not in ("gemma2", "gpt_oss")]


@pytest.mark.parametrize("padded", [False, True], ids=["plain", "padded"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_checked_in_one_line(family, padded):
    model = build(family)
    arguments = inputs(family, padded)
    with mha_trace.record(model) as run, torch.no_grad():
        model(**arguments)
    blocks = {call.path for call in run}
    layers = 3 if FAMILIES[family][2] == "both" else 2
    assert len(run) >= layers
    assert len(blocks) >= (1 if family == "albert" else layers)
    report = run.check()
    assert report.same, str(report)
    assert len(report.files) == len(run)
    for file in report.files:
        assert {step["name"] for step in file["steps"]} & {"output", "head_outputs"}


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "gemma2", "bart"])
def test_all_that_can_be_seen_of_an_eager_layer_is_checked(family):
    model = build(family, "eager")
    with mha_trace.record(model, layers=[0]) as run, torch.no_grad():
        model(**inputs(family))
    for call in run:
        report = call.check()
        steps = {step.name for step in report.steps}
        assert report.same, str(report)
        assert {"v_heads", "weights", "head_outputs", "concat", "output"} <= steps
        assert report.notes == ()


# Heads, heads of keys, and the width of a head of these models.
SIZES = dict.fromkeys(("llama", "mistral", "qwen3", "qwen3_moe", "gemma2", "gemma3", "gpt_oss"), (6, 3, 8))
SIZES |= {"qwen3_next": (6, 3, 8), "afmoe": (6, 3, 8), "olmo2": (4, 2, 8), "exaone4": (4, 2, 8), "cohere": (4, 2, 8)}
SIZES |= {"persimmon": (4, 4, 8), "phi3": (4, 2, 8), "gpt_neox": (4, 4, 8), "falcon": (4, 1, 8), "bloom": (4, 4, 6)}
SIZES |= {"gpt2": (4, 4, 6), "bert": (4, 4, 6), "modernbert": (4, 4, 6), "bart": (4, 3, 6), "t5": (4, 4, 6)}


@pytest.mark.parametrize("family", SIZES)
def test_sizes_that_coincide(family):
    """No axis is told by its length: the same steps are seen and checked where all lengths differ."""
    heads, key_heads, width = SIZES[family]
    sizes = {(2, heads), (2, key_heads), (2, width), (heads, heads), (key_heads, heads), (heads, 7), (width, width)}
    model = build(family, "eager" if family in ("llama", "qwen3", "t5") else None)

    def steps(batch, tokens):
        with mha_trace.record(model, layer=0) as run, torch.no_grad():
            model(**inputs(family, batch=batch, tokens=tokens))
        report = run.check()
        assert report.same, f"{batch} items, {tokens} tokens\n{report}"
        assert report.notes == ()
        return [(step.file, step.name) for step in report.steps]

    expected = steps(2, 7)
    for batch, tokens in sorted(sizes):
        assert steps(batch, tokens) == expected, (batch, tokens)


@pytest.mark.parametrize("family", ["qwen3", "gemma3", "persimmon"])
def test_normed_heads_have_their_axes(family):
    """Norms stand in front of the transposition or behind it; what is kept has one order."""
    model = build(family)
    heads, key_heads, width = SIZES[family]
    for tokens in {7, heads, key_heads}:
        arguments = inputs(family, tokens=tokens)
        # A token that is repeated has the same heads, in front of the rotation.
        arguments["input_ids"][0] = 5
        with mha_trace.record(model, layer=0) as run, torch.no_grad():
            model(**arguments)
        assert run[0]["q_norm"].shape == (2, heads, tokens, width)
        assert run[0]["k_norm"].shape == (2, key_heads, tokens, width)
        assert run.check().same
        # The first token of a prompt is not turned.
        assert (run[0]["q_norm"][:, :, 0] == run[0]["q_heads"][:, :, 0]).all()


@pytest.mark.parametrize(("family", "attention"), both_ways("llama", "mistral", "gemma2"))
def test_prefill_and_decoding_with_the_cache(family, attention):
    model = build(family, attention)
    with mha_trace.record(model, layers=[0, 1]) as run, torch.no_grad():
        model.generate(inputs(family)["input_ids"], max_new_tokens=4, min_new_tokens=4, do_sample=False)
    assert len(run) == 8
    assert [call.index for call in run.select(layer=1)] == [0, 1, 2, 3]
    assert run[2]["x"].shape[1] == 1
    report = run.check()
    assert report.same, str(report)
    assert report.notes == ()
    assert {"q_rot", "v_cached", "output"} <= {step.name for step in run[-1].check().steps}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_a_static_cache(family, attention):
    """Its slots that are not filled yet stand behind the keys."""
    model = build(family, attention)
    with mha_trace.record(model, layer=0) as run, torch.no_grad():
        model.generate(
            inputs(family)["input_ids"],
            max_new_tokens=3,
            min_new_tokens=3,
            do_sample=False,
            cache_implementation="static",
            disable_compile=True,
        )
    report = run.check()
    assert report.same, str(report)
    assert report.notes == ()


def test_other_ways_to_run():
    """Beams, a prompt in two pieces, and masks of flex_attention."""
    model, ids = build("llama"), inputs("llama")["input_ids"]
    cache = transformers.DynamicCache(config=model.config)
    with mha_trace.record(model, layer=0) as run, torch.no_grad():
        model.generate(ids, max_new_tokens=2, min_new_tokens=2, num_beams=3, do_sample=False)
        model(ids[:, :4], past_key_values=cache)
        model(ids[:, 4:], past_key_values=cache)
    report = run.check()
    assert report.same, str(report)
    assert report.notes == ()

    model = build("llama", "flex_attention")
    with mha_trace.record(model) as run, torch.no_grad():
        model(**inputs("llama", padded=True))
    assert run.check().same


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize(
    ("family", "attention"),
    both_ways("llama", "mistral", "gemma2", "qwen3", "qwen3_next", "gpt_oss", "gpt2", "opt", "t5", "bloom", "gptj"),
)
def test_padded_batches_in_generate(family, attention, cache, tmp_path):
    """Tokens are counted from behind the padding, which stands in front of them."""
    model = build(family, attention)
    how = {"cache_implementation": cache, "disable_compile": True} if cache else {}
    arguments = inputs(family, padded=True)
    arguments.pop("decoder_input_ids", None)
    with mha_trace.record(model, layer=0) as run, torch.no_grad():
        model.generate(**arguments, max_new_tokens=4, min_new_tokens=4, do_sample=False, **how)
    report = run.check()
    assert report.same, str(report)
    assert report.notes == ()
    assert len(report.files) == len(run)
    unseen = {call.function == "unseen" for call in run}
    # GPT-J calls its attention by a function since transformers 5.24.
    assert unseen == {family == "bloom"} or family == "gptj"
    assert len(run.save(tmp_path)) == len(run)
    if cache is None and unseen == {False}:
        assert mha_trace.check(tmp_path).same


def test_decoding_of_an_attention_that_does_its_own_arithmetic():
    """Its keys and values are those of its cache."""
    model = build("gptj")
    with mha_trace.record(model, layer=1) as run, torch.no_grad():
        model.generate(inputs("gptj")["input_ids"], max_new_tokens=3, min_new_tokens=3, do_sample=False)
    assert [call["k_heads"].shape[2] for call in run] == [7, 8, 9]
    report = run.check()
    assert report.same, str(report)
    assert {"q", "k", "v", "v_cached", "concat", "output"} <= {step.name for step in run[1].check().steps}


@pytest.mark.parametrize("padding", [0, 3])
def test_a_text_model_that_is_called_as_an_encoder(padding):
    """BLIP's config says that its text model is a decoder; whoever calls it says whether it is."""
    vision = VISION | {"image_size": 16, "patch_size": 8}
    config = transformers.BlipConfig(text_config=ENCODER | {"encoder_hidden_size": 24}, vision_config=vision)
    torch.manual_seed(0)
    model = transformers.BlipForImageTextRetrieval(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, 7 - padding :] = 0
    with mha_trace.record(model) as run, torch.no_grad():
        model(input_ids=inputs("bert")["input_ids"][:, :7], pixel_values=torch.rand(2, 3, 16, 16), attention_mask=mask)
    report = run.check()
    assert report.same, str(report)


def test_an_item_that_is_all_padding():
    """MarkupLM adds -10000 where nothing is to be seen. If that is all of a row, its weights are as without a mask."""
    config = transformers.MarkupLMConfig(
        **ENCODER, max_depth=4, tag_pad_id=3, subs_pad_id=3, xpath_unit_hidden_size=8, attn_implementation="eager"
    )
    torch.manual_seed(0)
    model = transformers.MarkupLMModel(config).eval()
    tags, mask = torch.zeros(2, 7, 4, dtype=torch.long), torch.ones(2, 7, dtype=torch.long)
    mask[1] = 0
    with mha_trace.record(model, layer=0) as run, torch.no_grad():
        ids = inputs("bert")["input_ids"][:, :7]
        model(input_ids=ids, attention_mask=mask, xpath_tags_seq=tags, xpath_subs_seq=tags)
    report = run.check()
    assert report.same, str(report)


def test_a_module_that_leaves_its_cache_alone():
    model = build("llama")
    block = model.model.layers[1].self_attn

    def forward(hidden_states, attention_mask=None, past_key_values=None, **_):
        shape = (*hidden_states.shape[:-1], -1, block.head_dim)
        q, k, v = (f(hidden_states).view(shape).transpose(1, 2) for f in (block.q_proj, block.k_proj, block.v_proj))
        k, v = (own.repeat_interleave(q.shape[1] // k.shape[1], 1) for own in (k, v))
        scores = q @ k.mT * block.scaling + torch.full((q.shape[2],) * 2, float("-inf")).triu(1)
        heads = (scores.softmax(-1) @ v).transpose(1, 2)
        return block.o_proj(heads.reshape(*hidden_states.shape[:-1], -1)), None

    block.forward = forward
    with mha_trace.record(model, layer=1) as run, torch.no_grad():
        model(inputs("llama")["input_ids"])
    report = run.check()
    assert "cannot be read" not in str(report)
    assert not report.same  # it does not turn its queries and keys


def test_keys_that_are_scaled_in_front_of_the_cache():
    """Falcon-H1 multiplies its keys, where a run multiplies scores: its cache is what was cached, divided by that."""
    kind = transformers.FalconH1ForCausalLM
    small = {"mamba_d_ssm": 16, "mamba_n_heads": 4, "mamba_d_head": 4, "mamba_d_state": 6, "mamba_n_groups": 1}
    config = kind.config_class(**WIDE, **small, mamba_chunk_size=4, key_multiplier=0.6)
    torch.manual_seed(0)
    model = kind(config).eval()
    with mha_trace.record(model, layer=0) as run, torch.no_grad():
        model.generate(inputs("llama")["input_ids"], max_new_tokens=2, min_new_tokens=2, do_sample=False)
    report = run.check()
    assert report.same, str(report)
    assert report.notes == ()
    assert len([step for step in report.steps if step.name == "output"]) == len(run) == 2


def test_eager_falcon_adds_its_position_biases_twice():
    """As transformers 5 has it: its mask holds them already. Its other attention adds them once."""
    kind = transformers.FalconForCausalLM
    torch.manual_seed(0)
    for attention, is_same in (("eager", False), ("sdpa", True)):
        config = kind.config_class(**DECODER, alibi=True, multi_query=False, attn_implementation=attention)
        model = kind(config).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        with mha_trace.record(model, layer=0) as run, torch.no_grad():
            model(**inputs("falcon"))
        report = run.check()
        assert report.same == is_same, str(report)
        assert is_same or "added twice" in str(report)


def test_projections_that_are_clipped_in_place():
    """OLMo clips what its projections gave: they are kept as they were before."""
    kind = transformers.OlmoForCausalLM
    torch.manual_seed(0)
    model = kind(kind.config_class(**DECODER, clip_qkv=0.02)).eval()
    with mha_trace.record(model, layer=0) as run, torch.no_grad():
        model(**inputs("olmo"))
    assert max(abs(run[0]["q"]).max(), abs(run[0]["v"]).max()) > 0.02
    assert abs(run[0]["v_heads"]).max() <= 0.02001
    report = run.check()
    assert report.same, str(report)
    assert {"q", "k", "v", "v_clipped", "q_rot", "output"} <= {step.name for step in report.steps}


@pytest.mark.parametrize(
    ("family", "attention"), both_ways("llama", "mistral", "gemma2", "qwen3", "gpt_oss", "bert", "gpt2", "bart")
)
def test_bfloat16(family, attention):
    model = build(family, attention, torch.bfloat16)
    with mha_trace.record(model) as run, torch.no_grad():
        model(**inputs(family))
    assert run[0].array("output").code == "BF16"
    report = run.check()
    assert report.same, str(report)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_wrong_layer_is_not_same(attention):
    """The model's window is not that of its config."""
    model = build("mistral", attention)
    with mha_trace.record(model, layer=0) as run, torch.no_grad():
        model(**inputs("mistral"))
    assert run.check().same
    run[0].configs[0]["sliding_window"] = 5
    report = run.check()
    assert not report.same
    assert report.findings
