"""PyTorch, safetensors and orjson beside mha-trace, on runs of any size.

pip install torch numpy safetensors orjson
cargo build --release
cargo bench --no-run --bench large
python benches/speed.py

Each is run several times in turn, in a process of its own, and what is printed are minima and medians. The size is that
of batch 8, 512 tokens, 512 features and 8 heads unless it is given: `--size 8,512,512,8`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]

# The run in PyTorch, every step kept. What it prints are seconds.
TORCH = """
import json, sys, time
import torch
import torch.nn.functional as F

batch, seq_len, d_model, heads = map(int, sys.argv[1].split(","))
torch.manual_seed(42)
started = time.perf_counter()
x = torch.randn(batch, seq_len, d_model)
layers = [torch.nn.Linear(d_model, d_model, bias=False) for _ in range(4)]
drawing = time.perf_counter() - started


def trace():
    w_q, w_k, w_v, w_o = layers
    kept = {"q": w_q(x), "k": w_k(x), "v": w_v(x)}

    def split(tensor):
        return tensor.view(batch, seq_len, heads, -1).transpose(1, 2).contiguous()

    for name in "qkv":
        kept[f"{name}_heads"] = split(kept[name])
    kept["scores_raw"] = kept["q_heads"] @ kept["k_heads"].transpose(-2, -1)
    kept["scores"] = kept["scores_raw"] / (d_model // heads) ** 0.5
    mask = torch.triu(torch.ones(seq_len, seq_len), diagonal=1).bool()
    kept["masked_scores"] = kept["scores"].masked_fill(mask, -1e9)
    kept["weights"] = F.softmax(kept["masked_scores"], dim=-1)
    kept["head_outputs"] = kept["weights"] @ kept["v_heads"]
    kept["concat"] = kept["head_outputs"].transpose(1, 2).reshape(batch, seq_len, d_model)
    kept["output"] = w_o(kept["concat"])
    return kept


def forward():
    with torch.no_grad():
        return trace()


def backward():
    x.requires_grad_()
    output = trace()["output"]
    output.backward(torch.ones_like(output))
    for leaf in (x, *(layer.weight for layer in layers)):
        leaf.grad = None


def seconds(do):
    started = time.perf_counter()
    do()
    return time.perf_counter() - started


times = {"drawing": drawing}
# What is measured first has the threads, the pages and the kernels to find.
passes = {"forward": [(forward, "")], "backward": [(backward, "backward, ")]}
passes["both"] = passes["forward"] + passes["backward"]
for do, name in passes[sys.argv[3]]:
    times[name + "first"] = seconds(do)
    warm = sorted(seconds(do) for _ in range(int(sys.argv[2])))
    times[name + "warm"] = warm[len(warm) // 2]
x.requires_grad_(False)
times["randn of 2^24"] = seconds(lambda: torch.randn(1 << 24))
if len(sys.argv) > 4:
    import orjson
    from safetensors.torch import load_file, save_file

    folder = sys.argv[4]
    kept = {"x": x, **{f"w_{n}": layer.weight.data for n, layer in zip("qkvo", layers)}, **forward()}
    path = f"{folder}/torch.safetensors"
    times["save_file"] = seconds(lambda: save_file(kept, path))
    arrays = {name: tensor.numpy() for name, tensor in kept.items()}
    text = orjson.dumps(arrays, option=orjson.OPT_SERIALIZE_NUMPY)
    times["orjson.dumps"] = seconds(
        lambda: orjson.dumps(arrays, option=orjson.OPT_SERIALIZE_NUMPY)
    )
    times["orjson.loads"] = seconds(lambda: orjson.loads(text))
    del text, arrays
    others = load_file(path)

    def compare():
        for name, tensor in kept.items():
            torch.testing.assert_close(tensor, others[name])

    times["assert_close"] = seconds(compare)
print(json.dumps(times))
"""


def process(command, **options):
    """How long a process takes as a whole, and what it prints."""
    started = time.perf_counter()
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True, **options)
    return time.perf_counter() - started, done.stdout


def bench():
    """The executable of benches/large.rs."""
    command = ["cargo", "bench", "--no-run", "--bench", "large", "--message-format", "json"]
    lines = process(command, cwd=ROOT, stderr=subprocess.DEVNULL)[1].splitlines()
    made = (json.loads(line) for line in lines)
    benches = (found for found in made if found.get("target", {}).get("name") == "large")
    return next(found["executable"] for found in benches)


def growth(binary, runs):
    """Prints how the time of a first run grows with its length, beside the bytes that it keeps and its operations."""
    large, rows = bench(), []
    for seq_len in (128, 256, 512, 1024, 2048, 4096):
        flags = ["-b", 1, "-t", seq_len, "-d", 512, "-H", 8, "--format", "json"]
        total = json.loads(process([binary, "shapes", *flags])[1])["total"]
        found = [process([large, 1, seq_len, 512, 8, 1])[1].split() for _ in range(runs)]
        seconds = statistics.median(float(words[1]) for words in found)
        rows.append((seq_len, seconds, total["bytes"] + total["flops"]))
    least = min(seconds / work for _, seconds, work in rows)
    for seq_len, seconds, work in rows:
        print(f"seq_len {seq_len:>5}  {seconds:8.4f} s  {seconds / work / least:5.2f} times the least per byte and operation")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=ROOT / "target/release/mha-trace", type=Path)
    parser.add_argument("--size", default="8,512,512,8", help="batch, seq_len, d_model, heads")
    parser.add_argument("--runs", default=5, type=int)
    parser.add_argument("--files", action="store_true", help="also write, check and diff files")
    parser.add_argument("--growth", action="store_true", help="how time grows from 128 to 4,096 tokens, and no more")
    args = parser.parse_args()
    if args.growth:
        return growth(args.bin, args.runs)
    names = ["--batch", "--seq-len", "--d-model", "--heads"]
    flags = [word for pair in zip(names, args.size.split(",")) for word in pair]
    large, times = bench(), {}

    def keep(name, seconds):
        times.setdefault(name, []).append(seconds)

    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.runs):
            runs, drawn = process([large, *args.size.split(","), 10])[1].splitlines()
            keep("trace, first run", float(runs.split()[1]))
            keep("trace, warmed", float(runs.split()[-2]))
            keep("randn of 2^24", float(drawn.split()[-2]))
            keep("mha-trace -q", process([args.bin, "-q", *flags])[0])
            keep("mha-trace -q --backward", process([args.bin, "-q", "--backward", *flags])[0])
            script = [sys.executable, "-c", TORCH, args.size]
            keep("PyTorch, whole script", process([*script, "1", "forward"])[0])
            seconds = json.loads(process([*script, "1", "backward"])[1])
            keep("PyTorch, backward, first", seconds["backward, first"])
            # Files are many seconds of work.
            files = [folder] if args.files else []
            seconds = json.loads(process([*script, "10", "both", *files])[1])
            seconds.pop("backward, first")
            for name, value in seconds.items():
                keep(f"PyTorch, {name}", value)
            if not args.files:
                continue
            for end in "safetensors", "json":
                path = os.path.join(folder, f"ours.{end}")
                keep(f"mha-trace -q -o .{end}", process([args.bin, "-q", *flags, "-o", path])[0])
                keep(f"mha-trace check .{end}", process([args.bin, "check", "-q", path])[0])
            path = os.path.join(folder, "ours.safetensors")
            other = os.path.join(folder, "torch.safetensors")
            Path(other).write_bytes(Path(path).read_bytes())
            keep("mha-trace diff", process([args.bin, "diff", "-q", path, other])[0])

    for name, all_times in sorted(times.items()):
        print(f"{name:<32} min {min(all_times):8.3f} s   median {statistics.median(all_times):8.3f} s")
    pairs = [
        ("trace, first run", "PyTorch, first", 0.7),
        ("trace, warmed", "PyTorch, warm", 0.7),
        ("randn of 2^24", "PyTorch, randn of 2^24", 0.5),
        ("mha-trace -q", "PyTorch, first", 1.0),
        ("mha-trace -q", "PyTorch, whole script", 0.1),
        ("mha-trace -q --backward", "PyTorch, backward, first", 1.0),
        ("mha-trace -q --backward", "PyTorch, backward, warm", 1.0),
        ("mha-trace -q -o .safetensors", "PyTorch, save_file", 0.5),
        ("mha-trace -q -o .json", "PyTorch, orjson.dumps", 1.0),
        ("mha-trace check .json", "PyTorch, orjson.loads", 1.0),
        ("mha-trace diff", "PyTorch, assert_close", 0.15),
    ]
    print()
    for ours, theirs, most in pairs:
        if ours in times and theirs in times:
            ratio = statistics.median(a / b for a, b in zip(times[ours], times[theirs]))
            print(f"{ours:<30} / {theirs:<24} {ratio:6.2f}   (aim: {most})")


if __name__ == "__main__":
    main()
