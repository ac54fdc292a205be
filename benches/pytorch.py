"""PyTorch beside mha-trace: the time to start, the accuracy of f32, and false alarms.

pip install torch numpy safetensors transformers
cargo build --release
python benches/pytorch.py startup
python benches/pytorch.py accuracy --runs 200
python benches/pytorch.py noise --runs 500
"""

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# where attention.py is, which has masks, position biases and frequencies
sys.path.append(str(Path(__file__).parents[1] / "fixtures"))

# the causal walkthrough notebook as a script
NOTEBOOK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(42)
batch_size, seq_len, d_model, n_heads = 1, 4, 8, 2
d_k = d_model // n_heads
x = torch.randn(batch_size, seq_len, d_model)

w_q = nn.Linear(d_model, d_model, bias=False)
w_k = nn.Linear(d_model, d_model, bias=False)
w_v = nn.Linear(d_model, d_model, bias=False)
for layer in [w_q, w_k, w_v]:
    nn.init.xavier_uniform_(layer.weight)
Q, K, V = w_q(x), w_k(x), w_v(x)
for tensor in Q, K, V:
    print(torch.round(tensor, decimals=3))

def split_heads(tensor):
    return tensor.reshape(batch_size, seq_len, n_heads, d_k).transpose(1, 2)

Q_split, K_split, V_split = split_heads(Q), split_heads(K), split_heads(V)
print(torch.round(Q_split, decimals=3))

causal_mask = torch.triu(torch.ones(seq_len, seq_len), diagonal=1).bool()
print(causal_mask)
scale = torch.sqrt(torch.tensor(d_k, dtype=torch.float32))
attn_scores = torch.matmul(Q_split, K_split.transpose(-2, -1)) / scale
attn_scores_masked = attn_scores.masked_fill(causal_mask, -1e9)
attn_weights = F.softmax(attn_scores_masked, dim=-1)
attn_output_per_head = torch.matmul(attn_weights, V_split)
for tensor in attn_scores, attn_scores_masked, attn_weights, attn_output_per_head:
    for head in range(n_heads):
        print(torch.round(tensor[0, head], decimals=3))
print(torch.sum(attn_weights, dim=-1))

attn_output_concat = attn_output_per_head.transpose(1, 2).reshape(x.shape)
print(torch.round(attn_output_concat, decimals=3))
w_o = nn.Linear(d_model, d_model, bias=False)
nn.init.xavier_uniform_(w_o.weight)
print(torch.round(w_o(attn_output_concat), decimals=3))
"""


def seconds(command, script=None):
    """How long a process takes as a whole."""
    start = time.perf_counter()
    subprocess.run(command, input=script, stdout=subprocess.PIPE, check=True, text=True)
    return time.perf_counter() - start


def startup(binary, runs):
    notebook = [sys.executable, "-"]
    seconds([binary])
    seconds(notebook, NOTEBOOK)
    ours, theirs = [], []
    for _ in range(runs):
        ours.append(seconds([binary]))
        theirs.append(seconds(notebook, NOTEBOOK))
    for name, times in ("mha-trace", ours), ("PyTorch", theirs):
        low, middle = min(times) * 1e3, statistics.median(times) * 1e3
        print(f"{name:<10} min {low:9.2f} ms   median {middle:9.2f} ms")
    ratio = statistics.median(b / a for a, b in zip(ours, theirs))
    print(f"PyTorch / mha-trace, median of {runs} pairs: {ratio:.0f}")


def random_settings(rng):
    """A run of any kind, and its sizes."""

    def sometimes():
        return rng.random() < 0.3

    heads, head_dim, seq_len = rng.randint(1, 8), rng.randint(1, 32), rng.randint(1, 48)
    settings = {
        "batch": rng.randint(1, 4),
        "seq_len": seq_len,
        "heads": heads,
        "d_model": heads * head_dim,
        "d_in": rng.randint(1, 128),
        "seed": rng.getrandbits(32),
        "init": rng.choice(["xavier-uniform", "linear"]),
        "input": rng.choice(["randn", "rand"]),
        "mask": rng.choice(["none", "causal"]),
        "bias": rng.choice([True, False]),
    }
    if sometimes():
        settings |= {"head_dim": head_dim, "d_model": rng.randint(1, 128)}
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
        settings |= {"kv_len": rng.randint(1, 48), "d_memory": rng.randint(1, 128)}
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


def torch_steps(given, config, product):
    """Every step as PyTorch computes it from the given tensors, in their dtype.

    `product` multiplies two matrices.
    """
    import torch
    from attention import (
        concat_heads,
        get_frequencies,
        head_dim,
        query_rows,
        rms_norm,
        rotate,
        split_heads,
    )

    def project(x, name):
        out = product(x, given[f"w_{name}"].T)
        return out + given[f"b_{name}"] if config["bias"] else out

    heads = config["heads"]
    kv_heads = config.get("kv_heads", heads)
    first, end = query_rows(config)
    memory = given.get("memory", given["x"])
    steps = {
        "q": project(given["x"][:, first:end], "q"),
        "k": project(memory, "k"),
        "v": project(memory, "v"),
    }
    steps["q_heads"] = q = split_heads(steps["q"], heads)
    steps["k_heads"] = k = split_heads(steps["k"], kv_heads)
    steps["v_heads"] = v = split_heads(steps["v"], kv_heads)
    if "qk_norm" in config:
        eps = config["qk_norm_eps"]
        steps["q_norm"] = q = rms_norm(q, given["w_q_norm"], eps)
        steps["k_norm"] = k = rms_norm(k, given["w_k_norm"], eps)
    if "rope" in config:
        past_len = given["k_past"].shape[2] if "past" in config else 0
        offset = config.get("rope_offset", past_len)
        _, factor = get_frequencies(config, None, past_len)
        turns = config["rope"], given["rope_freqs"], factor
        steps["q_rot"] = q = rotate(q, *turns, offset + first)
        steps["k_rot"] = k = rotate(k, *turns, offset)
    if "past" in config:
        steps["k_cached"] = k = torch.cat([given["k_past"], k], dim=2)
        steps["v_cached"] = v = torch.cat([given["v_past"], v], dim=2)
    if kv_heads < heads:
        steps["k_repeated"] = k = k.repeat_interleave(heads // kv_heads, dim=1)
        steps["v_repeated"] = v = v.repeat_interleave(heads // kv_heads, dim=1)
    steps["scores_raw"] = scores = product(q, k.transpose(-2, -1))
    scale = config.get("scale", 1 / math.sqrt(head_dim(config)))
    steps["scores"] = scores = scores * scale
    if "softcap" in config:
        scores = torch.tanh(scores / config["softcap"]) * config["softcap"]
        steps["scores_capped"] = scores
    if "attn_bias" in given:
        steps["scores_biased"] = scores = scores + given["attn_bias"]
    if "mask" in given:
        fill = float(config["mask_fill"])
        steps["masked_scores"] = scores = scores.masked_fill(given["mask"].bool(), fill)
    steps["weights"] = weights = torch.softmax(scores, dim=-1)
    steps["head_outputs"] = product(weights, v)
    steps["concat"] = concat_heads(steps["head_outputs"])
    steps["output"] = project(steps["concat"], "o")
    return steps


def flag(name, value, folder):
    """A setting as a flag; the cache is in the folder."""
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    if name == "past":
        value = folder / value
    return f"--{name}={json.dumps(value) if isinstance(value, dict) else value}"


def accuracy(binary, runs, seed):
    import torch
    from attention import resolve
    from safetensors.torch import load_file, save_file

    def trace(settings, path):
        flags = [flag(name, value, path.parent) for name, value in settings.items()]
        subprocess.run([binary, "-q", "-o", path, *flags], check=True)
        return load_file(path)

    def error(output, exact):
        return (output.double() - exact).abs().max().item()

    rng = random.Random(seed)
    torch.manual_seed(seed)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.safetensors"
        for _ in range(runs):
            settings = random_settings(rng)
            config = resolve(settings)
            if "past" in settings:
                save_file(random_past(rng, config), path.with_name(settings["past"]))
            single = trace(settings, path)
            double = trace(settings | {"dtype": "f64"}, path)
            exact = double["output"]
            widened = torch_steps(double, config, torch.matmul)["output"]
            torch.testing.assert_close(widened, exact, rtol=1e-10, atol=1e-10)
            ours.append(error(single["output"], exact))
            narrow = torch_steps(single, config, torch.matmul)["output"]
            theirs.append(error(narrow, exact))

    print(f"largest |f32 - f64| in the output of a run, {runs} runs")
    for name, errors in ("mha-trace", ours), ("PyTorch", theirs):
        middle = statistics.median(errors)
        print(f"{name:<10} worst {max(errors):.3e}   median {middle:.3e}")
    print(f"mha-trace / PyTorch, of the worst runs: {max(ours) / max(theirs):.2f}")
    worst = max(a / b for a, b in zip(ours, theirs) if b > 0)
    print(f"mha-trace / PyTorch, worst of all runs: {worst:.2f}")


def in_random_order(left, right):
    """left @ right, its products added in random order and blocks of seven."""
    import torch

    order = torch.randperm(left.shape[-1])
    left, right = left[..., order], right[..., order, :]
    blocks = zip(left.split(7, dim=-1), right.split(7, dim=-2))
    return sum(a @ b for a, b in blocks)


def correct_run(rng, dtype, kept):
    """A correct run in that type: its tensors, its config and its cache.

    Of its steps "all" are kept, "some" or the "output".
    """
    import torch
    from attention import get_frequencies, get_masks, head_dim, resolve

    # -1e9 is beyond f16
    fill = "-inf" if dtype == torch.float16 else rng.choice(["-inf", -1e9])
    settings = random_settings(rng) | {"mask_fill": fill}
    if dtype == torch.float64:
        settings["dtype"] = rng.choice(["f32", "f64"])
    config = resolve(settings)
    if dtype.itemsize == 2 and head_dim(config) < 8:
        # a norm of so few can magnify what is next to nothing, and its rounding with it
        settings.pop("qk_norm", None)
        settings.pop("qk_norm_eps", None)
        config = resolve(settings)
    past = random_past(rng, config) if "past" in config else {}
    past_len = past["k_past"].shape[2] if past else 0

    batch, d_in, d_model = config["batch"], config["d_in"], config["d_model"]
    size = rng.choice([0.3, 1, 3])
    given = {"x": torch.randn(batch, config["seq_len"], d_in) * size}
    d_memory = config.get("d_memory", d_in)
    if "kv_len" in config:
        given["memory"] = torch.randn(batch, config["kv_len"], d_memory) * size
    q_width = config["heads"] * head_dim(config)
    k_width = config.get("kv_heads", config["heads"]) * head_dim(config)
    widths = {
        "q": (q_width, d_in),
        "k": (k_width, d_memory),
        "v": (k_width, d_memory),
        "o": (d_model, q_width),
    }
    for name, (rows, columns) in widths.items():
        given[f"w_{name}"] = torch.randn(rows, columns) / columns**0.5
        if config["bias"]:
            given[f"b_{name}"] = torch.randn(rows) * 0.1
    if "qk_norm" in config:
        for name in "w_q_norm", "w_k_norm":
            given[name] = 1 + 0.1 * torch.randn(head_dim(config))
    mask, attn_bias = get_masks(config, None, past_len)
    if attn_bias is not None:
        given["attn_bias"] = attn_bias
    past = {name: tensor.to(dtype) for name, tensor in past.items()}
    given = {name: tensor.to(dtype) for name, tensor in given.items()} | past
    if mask is not None:
        given["mask"] = mask
    if "rope" in config:
        # nobody keeps frequencies in 16 bits
        freqs, _ = get_frequencies(config, None, past_len)
        given["rope_freqs"] = freqs.to(torch.promote_types(dtype, torch.float32))
    steps = torch_steps(given, config, in_random_order)

    if kept == "some":
        names = rng.sample(list(steps), rng.randint(1, len(steps) - 1))
        steps = {name: steps[name] for name in names}
    elif kept == "output":
        steps = {"output": steps["output"]}
    # what the config tells may be recorded or not
    for told in ["mask"], ["attn_bias"], ["rope_freqs"], ["k_past", "v_past"]:
        if rng.random() < 0.5:
            given = {name: given[name] for name in given if name not in told}
    tensors = {
        name: tensor.clone().contiguous() for name, tensor in (given | steps).items()
    }
    return tensors, settings, past


def noise(binary, runs, seed):
    import torch
    from safetensors.torch import save_file

    rng = random.Random(seed)
    torch.manual_seed(seed)
    dtypes = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    with tempfile.TemporaryDirectory() as folder:
        # a folder in a folder is not checked
        caches = Path(folder) / "caches"
        caches.mkdir()
        for run in range(runs):
            kept = ["all", "some", "output"][run // len(dtypes) % 3]
            tensors, config, past = correct_run(rng, dtypes[run % len(dtypes)], kept)
            if past:
                config["past"] = str(caches / f"{run:04}.safetensors")
                save_file(past, config["past"])
            about = {"format": "mha-trace", "version": 1, "config": config}
            metadata = {"mha-trace": json.dumps(about)}
            save_file(tensors, Path(folder) / f"{run:04}.safetensors", metadata)
        command = [binary, "check", folder, "--format", "json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    files = json.loads(done.stdout)["files"]
    different = sum(file["verdict"] != "same" for file in files)
    rounding = {"noise", "half-precision"}
    found = [{bug["id"] for bug in file["diagnosis"]} for file in files]
    print(f"{len(files)} correct runs: {different} called different,", end=" ")
    print(f"{sum(bool(ids - rounding) for ids in found)} given a mistake,", end=" ")
    print(f"{sum(bool(ids & rounding) for ids in found)} told as rounding")
    told = [bug for file in files for bug in file["diagnosis"] if "factor" in bug]
    most = max(told, key=lambda bug: bug["factor"] or 0)
    print(f"largest factor: {most['factor']:.2f}, at {most['step']}")
    if len(files) < runs:
        sys.exit(f"{runs - len(files)} correct runs were refused")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["startup", "accuracy", "noise"])
    parser.add_argument("--bin", default="target/release/mha-trace")
    parser.add_argument("--runs", type=int, help="default 20, 200, 500")
    parser.add_argument("--seed", type=int, default=0, help="of accuracy and noise")
    args = parser.parse_args()
    if args.what == "startup":
        startup(args.bin, args.runs or 20)
    elif args.what == "accuracy":
        accuracy(args.bin, args.runs or 200, args.seed)
    else:
        noise(args.bin, args.runs or 500, args.seed)


if __name__ == "__main__":
    main()
