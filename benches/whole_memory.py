"""How much memory, and how long, does it take to compare two recordings that are larger than the memory that it may take?

    python benches/whole_memory.py --layers 32 --tokens 2048 --features 1024

Needs NumPy, the binary on PATH or in MHA_TRACE_BINARY, and twice the size of a recording on the disk. Writes two recordings of
random numbers, which differ in one layer, compares them, and prints their size, the time, and the largest memory of the process.
"""

import argparse
import json
import os
import resource
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

PARTS = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp", "")


def written(path: Path, layers: int, tokens: int, features: int, wrong: int) -> None:
    """A recording of (1, tokens, features) for every part of every layer, a tensor at a time."""
    names = [f"model.layers.{at}.{part}.out".replace("..", ".") for at in range(layers) for part in PARTS]
    size = tokens * features * 4
    header = {
        name: {"dtype": "F32", "shape": [1, tokens, features], "data_offsets": [at * size, (at + 1) * size]}
        for at, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    numbers = np.random.default_rng(0).standard_normal(tokens * features, dtype=np.float32)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for at in range(len(names)):
            shifted = np.roll(numbers, at)
            # From the wrong part on all is off.
            file.write((shifted * np.float32(1.01) if at >= wrong else shifted).tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--features", type=int, default=4096)
    asked = parser.parse_args()
    binary = os.environ.get("MHA_TRACE_BINARY") or shutil.which("mha-trace")
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.safetensors" for name in ("reference", "port")]
        count = asked.layers * len(PARTS)
        for path, wrong in zip(paths, (count, count - 8)):
            written(path, asked.layers, asked.tokens, asked.features, wrong)
        size = paths[0].stat().st_size
        start = time.perf_counter()
        command = [binary, "diff", "--by-layer", "--format", "json", *map(str, paths)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
        seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"two recordings of {size / 1e9:.1f} GB: first wrong {found['first_wrong']}, {seconds:.1f} s")
    print(f"{2 * size / seconds / 1e9:.2f} GB/s, {memory / 1e9:.2f} GB of memory at most")


main()
