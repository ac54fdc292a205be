"""PyTorch beside mha-trace: the time to start, the accuracy of f32, and what check says of runs.

pip install torch numpy safetensors transformers
cargo build --release
python benches/pytorch.py startup
python benches/pytorch.py accuracy --runs 200
python benches/pytorch.py gradients --runs 100
python benches/pytorch.py noise --runs 500
python benches/pytorch.py unexplained --runs 200

noise: correct runs, in f64, f32, f16, bf16 and in reduced precision. None may be called different or given a mistake.
unexplained: runs with a fault that no mistake explains. None may be given one, and what is told must be true.
Each run of these two follows from the seed and its number: `--only 17` makes run 17 alone, and `--keep FOLDER` keeps the
runs that are judged wrongly, with the command that judges them.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torch_runs import flag, random_past, random_settings, torch_steps

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
            widened = torch_steps(double, config)["output"]
            torch.testing.assert_close(widened, exact, rtol=1e-10, atol=1e-10)
            ours.append(error(single["output"], exact))
            narrow = torch_steps(single, config)["output"]
            theirs.append(error(narrow, exact))

    print(f"largest |f32 - f64| in the output of a run, {runs} runs")
    for name, errors in ("mha-trace", ours), ("PyTorch", theirs):
        middle = statistics.median(errors)
        print(f"{name:<10} worst {max(errors):.3e}   median {middle:.3e}")
    print(f"mha-trace / PyTorch, of the worst runs: {max(ours) / max(theirs):.2f}")
    worst = max(a / b for a, b in zip(ours, theirs) if b > 0)
    print(f"mha-trace / PyTorch, worst of all runs: {worst:.2f}")


def gradients(binary, runs, seed):
    """The backward pass: how far every gradient is from that of an f64 run, in f32 here and by autograd."""
    from attention import resolve
    from backward import gradients as of_autograd
    from safetensors.torch import load_file

    rng = random.Random(seed)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.safetensors"

        def trace(settings):
            flags = [flag(name, value, path.parent) for name, value in settings.items()]
            subprocess.run([binary, "-q", "-o", path, "--backward", "--d-output", "randn", *flags], check=True)
            return load_file(path)

        for _ in range(runs):
            settings = random_settings(rng)
            settings.pop("past", None)
            single, double = trace(settings), trace(settings | {"dtype": "f64"})
            for name, own in of_autograd(resolve(settings), path.parent).items():
                exact = double.get(name)
                # Scores do not change with a bias of all keys: its gradient is 0, and what is left are roundings.
                if exact is None or name in ("d_output", "d_b_k") or not exact.isfinite().all():
                    continue
                size = exact.abs().max().item() or 1
                ours.append((single[name].double() - exact).abs().max().item() / size)
                theirs.append((own.double() - exact).abs().max().item() / size)

    print(f"largest |f32 - f64| of a gradient for each unit that it is large, {runs} runs, {len(ours)} gradients")
    for name, errors in ("mha-trace", ours), ("PyTorch", theirs):
        print(f"{name:<10} worst {max(errors):.3e}   median {statistics.median(errors):.3e}")
    print(f"mha-trace / PyTorch, of the worst gradients: {max(ours) / max(theirs):.2f}")
    print(f"mha-trace / PyTorch, of the medians: {statistics.median(ours) / statistics.median(theirs):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs = {"startup": 20, "accuracy": 200, "gradients": 100, "noise": 500, "unexplained": 200}
    parser.add_argument("what", choices=runs)
    parser.add_argument("--bin", default="target/release/mha-trace")
    parser.add_argument("--runs", type=int, help="default 20, 200, 100, 500, 200")
    parser.add_argument("--seed", type=int, default=0, help="of all but startup")
    judged = parser.add_argument_group("noise and unexplained")
    judged.add_argument("--only", type=int, metavar="N", help="run N alone")
    judged.add_argument("--keep", type=Path, metavar="FOLDER", help="for wrong verdicts")
    judged.add_argument("--jobs", type=int, default=2, help="checks at a time")
    args = parser.parse_args()
    args.runs = args.runs or runs[args.what]
    if args.what == "startup":
        startup(args.bin, args.runs)
    elif args.what == "accuracy":
        accuracy(args.bin, args.runs, args.seed)
    elif args.what == "gradients":
        gradients(args.bin, args.runs, args.seed)
    else:
        import check_runs

        sys.exit(getattr(check_runs, args.what)(args))


if __name__ == "__main__":
    main()
