"""PyTorch beside mha-trace: the time to start, the accuracy of f32, and false alarms.

pip install torch numpy safetensors
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


def random_flags(rng):
    heads = rng.randint(1, 8)
    settings = {
        "batch": rng.randint(1, 4),
        "seq-len": rng.randint(1, 48),
        "heads": heads,
        "d-model": heads * rng.randint(1, 32),
        "d-in": rng.randint(1, 128),
        "seed": rng.getrandbits(32),
        "init": rng.choice(["xavier-uniform", "linear"]),
        "input": rng.choice(["randn", "rand"]),
        "mask": rng.choice(["none", "causal"]),
    }
    flags = [f"--{key}={value}" for key, value in settings.items()]
    return flags + [rng.choice(["--bias", "--no-bias"])], heads


def attention(steps, heads):
    """The output as PyTorch computes it from a trace's given tensors, in their dtype."""
    import torch
    import torch.nn.functional as F

    def project(x, name):
        return F.linear(x, steps[f"w_{name}"], steps.get(f"b_{name}"))

    def split_heads(tensor):
        return tensor.view(batch, seq_len, heads, -1).transpose(1, 2)

    x = steps["x"]
    batch, seq_len, _ = x.shape
    q, k, v = (split_heads(project(x, name)) for name in "qkv")
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if "mask" in steps:
        scores = scores.masked_fill(steps["mask"].bool(), -1e9)
    context = torch.softmax(scores, dim=-1) @ v
    return project(context.transpose(1, 2).reshape(batch, seq_len, -1), "o")


def accuracy(binary, runs):
    import torch
    from safetensors.torch import load_file

    def trace(flags, path):
        subprocess.run([binary, "-q", "-o", path, *flags], check=True)
        return load_file(path)

    def error(output, exact):
        return (output.double() - exact).abs().max().item()

    rng = random.Random(0)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.safetensors"
        for _ in range(runs):
            flags, heads = random_flags(rng)
            single = trace(flags, path)
            double = trace([*flags, "--dtype=f64"], path)
            exact = double["output"]
            torch.testing.assert_close(
                attention(double, heads), exact, rtol=1e-10, atol=1e-10
            )
            ours.append(error(single["output"], exact))
            theirs.append(error(attention(single, heads), exact))

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
    """A correct attention in that type, "all" its steps, "some" or the "output"; its config."""
    import torch

    batch, seq_len, heads = rng.randint(1, 3), rng.randint(2, 24), rng.randint(1, 6)
    head_dim, d_in = rng.randint(1, 24), rng.randint(1, 48)
    d_model = heads * head_dim
    x = torch.randn(batch, seq_len, d_in) * rng.choice([0.3, 1, 3])
    given = {"x": x.to(dtype)}
    for name, width in ("q", d_in), ("k", d_in), ("v", d_in), ("o", d_model):
        given[f"w_{name}"] = (torch.randn(d_model, width) / width**0.5).to(dtype)
        given[f"b_{name}"] = (torch.randn(d_model) * 0.1).to(dtype)

    def project(x, name):
        return in_random_order(x, given[f"w_{name}"].T) + given[f"b_{name}"]

    steps = {}
    for name in "qkv":
        steps[name] = project(given["x"], name)
        split = steps[name].view(batch, seq_len, heads, head_dim)
        steps[f"{name}_heads"] = split.transpose(1, 2)
    keys = steps["k_heads"].transpose(-2, -1)
    steps["scores_raw"] = in_random_order(steps["q_heads"], keys)
    steps["scores"] = scores = steps["scores_raw"] / math.sqrt(head_dim)
    causal = rng.random() < 0.5
    # -1e9 is beyond f16
    fill = -math.inf if dtype == torch.float16 else rng.choice([-math.inf, -1e9])
    if causal:
        given["mask"] = torch.triu(torch.ones(seq_len, seq_len), diagonal=1).bool()
        scores = scores.masked_fill(given["mask"], fill)
        steps["masked_scores"] = scores
    steps["weights"] = torch.softmax(scores, dim=-1)
    steps["head_outputs"] = in_random_order(steps["weights"], steps["v_heads"])
    merged = steps["head_outputs"].transpose(1, 2)
    steps["concat"] = merged.reshape(batch, seq_len, d_model)
    steps["output"] = project(steps["concat"], "o")
    if kept == "some":
        names = rng.sample(list(steps), rng.randint(1, len(steps) - 1))
        steps = {name: steps[name] for name in names}
    elif kept == "output":
        steps = {"output": steps["output"]}
    tensors = {
        name: tensor.clone().contiguous() for name, tensor in (given | steps).items()
    }
    mask = "causal" if causal else "none"
    fill = "-inf" if math.isinf(fill) else fill
    return tensors, {"heads": heads, "mask": mask, "mask_fill": fill}


def noise(binary, runs):
    import torch
    from safetensors.torch import save_file

    rng = random.Random(0)
    torch.manual_seed(0)
    dtypes = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    with tempfile.TemporaryDirectory() as folder:
        for run in range(runs):
            kept = ["all", "some", "output"][run // len(dtypes) % 3]
            tensors, config = correct_run(rng, dtypes[run % len(dtypes)], kept)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["startup", "accuracy", "noise"])
    parser.add_argument("--bin", default="target/release/mha-trace")
    parser.add_argument("--runs", type=int, help="default 20, 200, 500")
    args = parser.parse_args()
    if args.what == "startup":
        startup(args.bin, args.runs or 20)
    elif args.what == "accuracy":
        accuracy(args.bin, args.runs or 200)
    else:
        noise(args.bin, args.runs or 500)


if __name__ == "__main__":
    main()
