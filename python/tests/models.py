"""Small random models of transformers, none of them downloaded."""

from __future__ import annotations

from typing import Any

import torch
import transformers

VOCAB = {"vocab_size": 31, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
# Sizes that all differ; a head is 8 wide.
DECODER = VOCAB | {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
}
WIDE = DECODER | {"hidden_size": 30, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8}
ENCODER = VOCAB | {
    "hidden_size": 24,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "max_position_embeddings": 16,
}
GPT = VOCAB | {"n_embd": 24, "n_head": 4, "n_layer": 2, "n_inner": 20, "n_positions": 32}
BOTH = VOCAB | {
    "d_model": 24,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 22,
    "max_position_embeddings": 32,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}
T5 = VOCAB | {
    "d_model": 24,
    "d_kv": 6,
    "num_heads": 4,
    "num_layers": 1,
    "num_decoder_layers": 1,
    "d_ff": 20,
    "decoder_start_token_id": 1,
}
VISION = {
    "hidden_size": 24,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "image_size": 6,
    "patch_size": 2,
    "num_channels": 3,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
WINDOWS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3}
LATENT = DECODER | {
    "num_key_value_heads": 4,
    "kv_lora_rank": 10,
    "q_lora_rank": 14,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
    "n_shared_experts": 1,
    "first_k_dense_replace": 2,
    "n_group": 1,
    "topk_group": 1,
}

# Family: the class, its config, and how the model is called.
FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama": ("LlamaForCausalLM", WIDE, "decoder"),
    "arcee": ("ArceeForCausalLM", WIDE, "decoder"),
    "mistral": ("MistralForCausalLM", WIDE | {"sliding_window": 3}, "decoder"),
    "mixtral": ("MixtralForCausalLM", DECODER | {"num_local_experts": 4}, "decoder"),
    "ministral": ("MinistralForCausalLM", WIDE | WINDOWS, "decoder"),
    "qwen2": ("Qwen2ForCausalLM", DECODER, "decoder"),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        DECODER | EXPERTS | {"shared_expert_intermediate_size": 14},
        "decoder",
    ),
    "qwen3": ("Qwen3ForCausalLM", WIDE, "decoder"),
    "qwen3_moe": ("Qwen3MoeForCausalLM", WIDE | EXPERTS, "decoder"),
    "gemma": ("GemmaForCausalLM", WIDE, "decoder"),
    "gemma2": ("Gemma2ForCausalLM", WIDE | WINDOWS | {"query_pre_attn_scalar": 11}, "decoder"),
    "gemma3": ("Gemma3ForCausalLM", WIDE | WINDOWS | {"query_pre_attn_scalar": 11}, "decoder"),
    "gpt_oss": (
        "GptOssForCausalLM",
        WIDE | WINDOWS | {"num_local_experts": 4, "num_experts_per_tok": 2},
        "decoder",
    ),
    "cohere": ("CohereForCausalLM", DECODER, "decoder"),
    "cohere2": ("Cohere2ForCausalLM", DECODER | WINDOWS, "decoder"),
    "olmo": ("OlmoForCausalLM", DECODER, "decoder"),
    "olmo2": ("Olmo2ForCausalLM", DECODER, "decoder"),
    "olmo3": ("Olmo3ForCausalLM", DECODER | WINDOWS, "decoder"),
    "olmoe": ("OlmoeForCausalLM", DECODER | {"num_experts": 4, "num_experts_per_tok": 2}, "decoder"),
    "exaone4": ("Exaone4ForCausalLM", DECODER | WINDOWS, "decoder"),
    "ernie4_5": ("Ernie4_5ForCausalLM", WIDE, "decoder"),
    "glm": ("GlmForCausalLM", DECODER | {"head_dim": 8}, "decoder"),
    "glm4": ("Glm4ForCausalLM", DECODER | {"head_dim": 8}, "decoder"),
    "granite": ("GraniteForCausalLM", DECODER | {"attention_multiplier": 0.23}, "decoder"),
    "helium": ("HeliumForCausalLM", DECODER | {"head_dim": 8}, "decoder"),
    "nemotron": ("NemotronForCausalLM", DECODER, "decoder"),
    "persimmon": ("PersimmonForCausalLM", DECODER, "decoder"),
    "phi": ("PhiForCausalLM", DECODER, "decoder"),
    "phi3": ("Phi3ForCausalLM", DECODER, "decoder"),
    "seed_oss": ("SeedOssForCausalLM", WIDE, "decoder"),
    "smollm3": ("SmolLM3ForCausalLM", WIDE | {"no_rope_layers": [1, 0]}, "decoder"),
    "stablelm": ("StableLmForCausalLM", DECODER, "decoder"),
    "starcoder2": ("Starcoder2ForCausalLM", DECODER | {"sliding_window": 3}, "decoder"),
    "deepseek_v2": ("DeepseekV2ForCausalLM", LATENT, "decoder"),
    "deepseek_v3": ("DeepseekV3ForCausalLM", LATENT, "decoder"),
    # Heads that are gated or normed in front of the output projection.
    "bitnet": ("BitNetForCausalLM", DECODER, "decoder"),
    "afmoe": ("AfmoeForCausalLM", WIDE | WINDOWS | EXPERTS | {"num_shared_experts": 1}, "decoder"),
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        WIDE | EXPERTS | {"shared_expert_intermediate_size": 14, "layer_types": ["full_attention"] * 2},
        "decoder",
    ),
    "falcon": ("FalconForCausalLM", DECODER, "decoder"),
    "bloom": ("BloomForCausalLM", VOCAB | {"hidden_size": 24, "n_head": 4, "n_layer": 2}, "decoder"),
    "gpt2": ("GPT2LMHeadModel", GPT, "decoder"),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", GPT, "decoder"),
    "gptj": ("GPTJForCausalLM", GPT | {"rotary_dim": 4}, "decoder"),
    "gpt_neox": ("GPTNeoXForCausalLM", DECODER, "decoder"),
    "opt": ("OPTForCausalLM", DECODER | {"ffn_dim": 20, "word_embed_proj_dim": 32}, "decoder"),
    "bert": ("BertForMaskedLM", ENCODER, "encoder"),
    "roberta": ("RobertaForMaskedLM", ENCODER, "encoder"),
    "electra": ("ElectraForMaskedLM", ENCODER | {"embedding_size": 14}, "encoder"),
    "albert": ("AlbertForMaskedLM", ENCODER | {"embedding_size": 14}, "encoder"),
    "distilbert": (
        "DistilBertForMaskedLM",
        VOCAB | {"dim": 24, "n_heads": 4, "n_layers": 2, "hidden_dim": 20},
        "encoder",
    ),
    "esm": ("EsmForMaskedLM", ENCODER | {"position_embedding_type": "rotary", "mask_token_id": 3}, "encoder"),
    "modernbert": ("ModernBertForMaskedLM", ENCODER | {"cls_token_id": 1, "sep_token_id": 2}, "encoder"),
    "vit": ("ViTModel", VISION, "vision"),
    "deit": ("DeiTModel", VISION, "vision"),
    "dinov2": ("Dinov2Model", VISION, "vision"),
    "siglip": ("SiglipVisionModel", VISION, "vision"),
    "bart": ("BartForConditionalGeneration", BOTH, "both"),
    "mbart": ("MBartForConditionalGeneration", BOTH, "both"),
    "m2m_100": ("M2M100ForConditionalGeneration", BOTH, "both"),
    "pegasus": ("PegasusForConditionalGeneration", BOTH, "both"),
    "t5": ("T5ForConditionalGeneration", T5, "both"),
}


def build(family: str, attention: str | None = None, dtype: Any = torch.float32) -> Any:
    """The model of a family in evaluation mode; every matrix and bias is drawn, tables of positions are left."""
    name, config, _ = FAMILIES[family]
    torch.manual_seed(sum(map(ord, family)))
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**config))
    for module in model.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.LayerNorm, transformers.pytorch_utils.Conv1D)):
            for parameter in module.parameters(recurse=False):
                torch.nn.init.normal_(parameter, std=0.3)
    if attention:
        model.set_attn_implementation(attention)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return model.eval().to(dtype)


def inputs(family: str, padded: bool = False, batch: int = 2, tokens: int = 7) -> dict[str, Any]:
    """What the model of a family is called with; the last tokens of the second item are padding if that is asked for,
    of decoders the first ones. Images are of ten tokens."""
    how = FAMILIES[family][2]
    torch.manual_seed(1)
    if how == "vision":
        return {"pixel_values": torch.randn(batch, 3, 6, 6)}
    ids = torch.randint(4, 31, (batch, tokens))
    found = {"input_ids": ids}
    if how == "both":
        found = {"input_ids": torch.randint(4, 31, (batch, tokens + 2)), "decoder_input_ids": ids}
    if padded:
        seen = torch.ones_like(found["input_ids"])
        seen[1, slice(None, 3) if how == "decoder" else slice(-3, None)] = 0
        found["attention_mask"] = seen
    return found
