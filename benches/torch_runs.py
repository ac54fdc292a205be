"""Random runs, and their steps as PyTorch computes them."""

import json
import math
import sys
from pathlib import Path

# where attention.py is, which has masks, position biases and frequencies
sys.path.append(str(Path(__file__).parents[1] / "fixtures"))


def random_settings(rng, equal=None):
    """A run of any kind, and its sizes, of which most are `equal` if that is a number."""

    def sometimes():
        return rng.random() < 0.3

    def size(most):
        own = rng.randint(1, most)
        return equal if equal and rng.random() < 0.7 else own

    heads, head_dim, seq_len = size(8), size(32), size(48)
    settings = {
        "batch": size(4),
        "seq_len": seq_len,
        "heads": heads,
        "d_model": heads * head_dim,
        "d_in": size(128),
        "seed": rng.getrandbits(32),
        "init": rng.choice(["xavier-uniform", "linear"]),
        "input": rng.choice(["randn", "rand"]),
        "mask": rng.choice(["none", "causal"]),
        "bias": rng.choice([True, False]),
    }
    if sometimes():
        settings |= {"head_dim": head_dim, "d_model": size(128)}
    if sometimes():
        divisors = [n for n in range(1, heads + 1) if heads % n == 0]
        settings["kv_heads"] = rng.choice(divisors)
    # a norm leaves one feature its sign alone
    if head_dim > 1 and sometimes():
        settings |= {"qk_norm": "rms", "qk_norm_eps": rng.choice([1e-6, 1e-5])}
    if sometimes():
        settings["softcap"] = rng.choice([2, 5, 30])
    if sometimes():
        settings["scale"] = rng.uniform(0.05, 1)
    if sometimes():
        first = rng.randrange(seq_len)
        settings["queries"] = f"{first}..{rng.randint(first + 1, seq_len)}"
    if sometimes():
        settings |= {"kv_len": size(48), "d_memory": size(128)}
    else:
        if sometimes():
            settings["past"] = "past.safetensors"
        positions = rng.choice(["none", "alibi", "half", "interleaved"])
        if positions == "alibi":
            settings["alibi"] = True
        elif positions != "none" and head_dim > 1:
            settings |= {"rope": positions, **random_rope(rng, head_dim)}
    if settings["mask"] == "causal":
        if sometimes():
            settings["window"] = rng.randint(1, 48)
        if sometimes():
            settings["causal_align"] = rng.choice(["top-left", "bottom-right"])
    return settings


def random_rope(rng, head_dim):
    """The settings beside `rope`."""
    dims = 2 * rng.randint(1, head_dim // 2)
    settings = {"rope_dims": dims, "rope_base": rng.choice([1e2, 1e4, 5e5])}
    if rng.random() < 0.5:
        settings["rope_offset"] = rng.choice([0, rng.randint(1, 48), 2000])
    # the exponent of dynamic scaling is infinite for one pair
    kinds = ["default", "linear", "llama3", "yarn"] + ["dynamic"] * (dims > 2)
    scaling = {"rope_type": rng.choice(kinds), "factor": rng.choice([2.0, 8.0])}
    if scaling["rope_type"] == "default":
        return settings
    if scaling["rope_type"] != "linear":
        scaling["original_max_position_embeddings"] = rng.choice([16, 64, 1024])
    if scaling["rope_type"] == "llama3":
        scaling |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return settings | {"rope_scaling": scaling}


def random_past(rng, config):
    """A cache of keys and values."""
    import torch
    from attention import head_dim

    kv_heads = config.get("kv_heads", config["heads"])
    shape = config["batch"], kv_heads, rng.randint(1, 24), head_dim(config)
    return {"k_past": torch.randn(shape), "v_past": torch.randn(shape)}


class Arithmetic:
    """How PyTorch computes; others change a part of it."""

    def product(self, step, left, right, bias=None):
        """left @ right + bias, of the step of that name."""
        return left @ right if bias is None else left @ right + bias

    def cached(self, heads):
        """Keys or values as a cache keeps them."""
        return heads

    def softmax(self, scores):
        return scores.softmax(dim=-1)

    def made(self, step, value):
        """The value of a step, as what follows reads it."""
        return value


def torch_steps(given, config, arithmetic=None):
    """Every step as PyTorch computes it from the given tensors, in their dtype."""
    import torch
    from attention import (
        concat_heads,
        get_angles,
        get_frequencies,
        head_dim,
        query_rows,
        rms_norm,
        rotate,
        split_heads,
    )

    arithmetic = arithmetic or Arithmetic()
    steps = {}

    def keep(step, value):
        steps[step] = value = arithmetic.made(step, value)
        return value

    def project(step, x, name):
        bias = given[f"b_{name}"] if config["bias"] else None
        return keep(step, arithmetic.product(step, x, given[f"w_{name}"].T, bias))

    heads = config["heads"]
    kv_heads = config.get("kv_heads", heads)
    first, end = query_rows(config)
    memory = given.get("memory", given["x"])
    q = project("q", given["x"][:, first:end], "q")
    k = project("k", memory, "k")
    v = project("v", memory, "v")
    q = keep("q_heads", split_heads(q, heads))
    k = keep("k_heads", split_heads(k, kv_heads))
    v = keep("v_heads", split_heads(v, kv_heads))
    if "qk_norm" in config:
        eps = config["qk_norm_eps"]
        q = keep("q_norm", rms_norm(q, given["w_q_norm"], eps))
        k = keep("k_norm", rms_norm(k, given["w_k_norm"], eps))
    if "rope" in config:
        past_len = given["k_past"].shape[2] if "past" in config else 0
        offset = config.get("rope_offset", past_len)
        _, factor = get_frequencies(config, None, past_len)
        turns = config["rope"], given["rope_freqs"], factor
        placed = config | {"rope_offset_or_past": offset}
        of_q = get_angles(placed, given["rope_freqs"], first, q.shape[2])
        of_k = get_angles(placed, given["rope_freqs"], 0, k.shape[2])
        q = keep("q_rot", rotate(q, *turns, of_q))
        k = keep("k_rot", rotate(k, *turns, of_k))
    k, v = arithmetic.cached(k), arithmetic.cached(v)
    if "past" in config:
        k = keep("k_cached", torch.cat([given["k_past"], k], dim=2))
        v = keep("v_cached", torch.cat([given["v_past"], v], dim=2))
    if kv_heads < heads:
        k = keep("k_repeated", k.repeat_interleave(heads // kv_heads, dim=1))
        v = keep("v_repeated", v.repeat_interleave(heads // kv_heads, dim=1))
    raw = arithmetic.product("scores_raw", q, k.transpose(-2, -1))
    scores = keep("scores_raw", raw)
    scale = config.get("scale", 1 / math.sqrt(head_dim(config)))
    scores = keep("scores", scores * scale)
    if "softcap" in config:
        capped = torch.tanh(scores / config["softcap"]) * config["softcap"]
        scores = keep("scores_capped", capped)
    if "attn_bias" in given:
        scores = keep("scores_biased", scores + given["attn_bias"])
    if "mask" in given:
        fill = float(config["mask_fill"])
        masked = scores.masked_fill(given["mask"].bool(), fill)
        scores = keep("masked_scores", masked)
    weights = arithmetic.softmax(scores)
    if config["empty_rows"] == "zero":
        empty = (scores == -math.inf).all(dim=-1, keepdim=True)
        weights = weights.masked_fill(empty, 0.0)
    weights = keep("weights", weights)
    heads_out = arithmetic.product("head_outputs", weights, v)
    heads_out = keep("head_outputs", heads_out)
    project("output", keep("concat", concat_heads(heads_out)), "o")
    return steps


def flag(name, value, folder):
    """A setting as a flag; the cache is in the folder."""
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    if name == "past":
        value = folder / value
    if isinstance(value, dict):
        value = json.dumps(value)
    if isinstance(value, list):
        value = ",".join(value)
    return f"--{name}={value}"
