"""Runs that check must judge right: correct ones, and such as have a fault that nothing explains.

python benches/pytorch.py noise
python benches/pytorch.py unexplained
"""

import itertools
import json
import math
import random
import re
import shlex
import shutil
import subprocess
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from attention import AXES, SCORE_AXES, get_frequencies, get_masks, head_dim, resolve
from safetensors.torch import save_file
from torch_runs import Arithmetic, flag, random_past, random_settings, torch_steps

HALVES = {"bf16": torch.bfloat16, "f16": torch.float16}
# what the config tells and a record may repeat
TOLD = ["mask"], ["attn_bias"], ["rope_freqs"], ["k_past", "v_past"]
# what a file of other code says itself, and what says nothing of recorded numbers
UNSAID = "batch seq_len d_model d_in seed init input bias kv_len d_memory".split()

QUERY = "q query queries q_proj query_states query_layer hook_q".split()
KEY = "k key keys k_proj key_states key_layer hook_k".split()
VALUE = "v value values v_proj value_states value_layer hook_v".split()
LOGITS = """attn_scores attention_scores attn_logits attention_logits logits energy dots
sim""".split()
SCALED = "scores scaled_scores scaled_attn_scores scaled_attention_scores".split()
MASKED = """masked_scores scores_masked masked_attn_scores attn_scores_masked
hook_attn_scores""".split()
WEIGHTS = """weights attn_weights attention_weights attn attention attentions attn_probs
attention_probs probs p_attn alpha pattern hook_pattern""".split()
HEADS = "head_outputs z hook_z head_out heads_out head_output".split()
CONTEXT = "context contexts context_vec context_vector context_layer ctx".split()
CONCAT = "concat concatenated concat_heads concat_attention combined merged".split()
OUTPUT = "output out y o_proj out_proj attn_out hook_attn_out final_output result".split()
# what people's code calls the steps
NAMES = {
    "x": "x input inputs hidden_states hidden_state embeddings embedding".split(),
    "memory": "memory encoder_hidden_states key_value_states encoder_output".split(),
    "k_past": "k_past past_key past_keys key_cache k_cache".split(),
    "v_past": "v_past past_value past_values value_cache v_cache".split(),
    "q": QUERY,
    "k": KEY,
    "v": VALUE,
    "q_heads": ["q_heads", "q_split", "query_heads", "qh", *QUERY],
    "k_heads": ["k_heads", "k_split", "key_heads", "kh", *KEY],
    "v_heads": ["v_heads", "v_split", "value_heads", "vh", *VALUE],
    "q_norm": ["q_norm", "q_normed", *QUERY],
    "k_norm": ["k_norm", "k_normed", *KEY],
    "q_rot": ["q_rot", "q_rotary", "q_embed", "q_rope", "rotated_q", "hook_rot_q", *QUERY],
    "k_rot": ["k_rot", "k_rotary", "k_embed", "k_rope", "rotated_k", "hook_rot_k", *KEY],
    "k_cached": ["k_cached", *KEY],
    "v_cached": ["v_cached", *VALUE],
    "k_repeated": ["k_repeated", "repeated_k", "k_rep", *KEY],
    "v_repeated": ["v_repeated", "repeated_v", "v_rep", *VALUE],
    "scores_raw": "scores_raw qk qkt dot_products raw_scores unscaled_scores".split() + LOGITS,
    "scores": [*SCALED, *LOGITS, "hook_attn_scores"],
    "scores_capped": ["scores_capped"],
    "scores_biased": ["scores_biased", *LOGITS, *MASKED],
    "masked_scores": [*MASKED, *LOGITS, *SCALED],
    "weights": WEIGHTS,
    "head_outputs": [*HEADS, *CONTEXT, "attn_output"],
    "concat": [*CONCAT, *HEADS, *CONTEXT, "attn_output"],
    "output": [*OUTPUT, "attn_output", "attention_output"],
}
# ways to name Linear modules: those of q, k and v, and that of the output
MODULES = [
    ("q_proj k_proj v_proj", "o_proj"),
    ("q_proj k_proj v_proj", "out_proj"),
    ("query key value", "out"),
    ("W_q W_k W_v", "W_o"),
    ("W_query W_key W_value", "out_proj"),
    ("wq wk wv", "wo"),
    ("q_lin k_lin v_lin", "out_lin"),
    ("to_q to_k to_v", "to_out.0"),
    ("self.query self.key self.value", "output.dense"),
    ("linears.0 linears.1 linears.2", "linears.3"),
]
PREFIXES = ["", "", "model.layers.1.self_attn.", "blocks.0.attn.", "enc/attn/"]


class Dump:
    """A run as a file in a folder of its own, and the flags that say what was meant.

    Of a faulty one `truth` is a step, what it is and what it should be.
    """

    def __init__(self, folder, tensors, flags, about, config=None, truth=None):
        self.folder, self.flags, self.about, self.truth = folder, flags, about, truth
        metadata = None
        if config is not None:
            told = {"format": "mha-trace", "version": 1, "config": config}
            metadata = {"mha-trace": json.dumps(told)}
        self.tensors = {name: value.clone().contiguous() for name, value in tensors.items()}
        save_file(self.tensors, folder / "dump.safetensors", metadata)

    def check(self, binary):
        """The report, or what went wrong."""
        command = [binary, "check", "dump.safetensors", *self.flags]
        (self.folder / "cmd").write_text(f"cd {self.folder}\n{shlex.join(command)}\n")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        try:
            done = subprocess.run(
                [*command, "--format", "json"], cwd=self.folder, text=True, timeout=600, **pipes
            )
            return json.loads(done.stdout)["files"][0]
        except (subprocess.TimeoutExpired, ValueError, KeyError, IndexError) as error:
            return {"refused": str(error) if "done" not in locals() else done.stderr}

    def keep(self, folder, name, wrong, report):
        kept = folder / name
        shutil.copytree(self.folder, kept, dirs_exist_ok=True)
        command = (kept / "cmd").read_text().replace(str(self.folder), str(kept))
        (kept / "cmd").write_text(command)
        (kept / "report.json").write_text(json.dumps(report, indent=1))
        (kept / "about.json").write_text(json.dumps({"wrong": wrong, **self.about}, indent=1))


def judged(args, make):
    """Every run with its report; `make` makes a run from its generator, number and folder."""
    binary = str(Path(args.bin).resolve())
    numbers = range(args.runs) if args.only is None else [args.only]
    with tempfile.TemporaryDirectory() as top, ThreadPoolExecutor(args.jobs) as pool:
        waiting = []
        for number in numbers:
            rng = random.Random(f"{args.seed} {number}")
            torch.manual_seed(rng.getrandbits(32))
            folder = Path(top) / f"{number:04}"
            folder.mkdir()
            dump = make(rng, number, folder)
            waiting.append((dump, pool.submit(dump.check, binary)))
        for dump, report in waiting:
            yield dump, report.result()


def tell(args, dump, wrong, report):
    """Prints what is wrong with the judgement of a run, and keeps the run."""
    name = f"{args.what}-{args.seed}-{dump.about['run']:04}"
    print(f"{name}: {'; '.join(wrong)}")
    print(f"  {json.dumps(dump.about)}")
    for line in findings(report) or [report.get("refused", "")]:
        print(f"  {line}")
    if args.keep:
        dump.keep(args.keep.resolve(), name, wrong, report)


def findings(report):
    found = report.get("diagnosis", [])
    return [f"{bug['kind']} at {bug['step']}: {bug['summary']}" for bug in found]


def tf32(values):
    """The nearest numbers with 10 explicit bits of significand, ties to even."""
    bits = values.contiguous().view(torch.int32)
    rounded = (bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFF
    return torch.where(values.isfinite(), rounded.view(torch.float32), values)


def in_random_order(left, right):
    """left @ right, its products added in random order and blocks of seven."""
    order = torch.randperm(left.shape[-1])
    left, right = left[..., order], right[..., order, :]
    blocks = zip(left.split(7, dim=-1), right.split(7, dim=-2))
    return sum(a @ b for a, b in blocks)


class Reordered(Arithmetic):
    """Sums in random order; in 16 bits they may be added up in f32, as most hardware does."""

    def __init__(self, rng, softmax=None):
        self.wide, self.softmax_in = rng.random() < 0.5, softmax

    def product(self, step, left, right, bias=None):
        dtype = torch.promote_types(left.dtype, right.dtype)
        wide = torch.promote_types(dtype, torch.float32) if self.wide else dtype
        made = in_random_order(left.to(wide), right.to(wide))
        return (made if bias is None else made + bias.to(wide)).to(dtype)

    def softmax(self, scores):
        if self.softmax_in is None:
            return scores.softmax(dim=-1)
        weights = scores.float().softmax(dim=-1)
        return weights.to(scores.dtype) if self.softmax_in == "f32, cast" else weights


class Lowered(Reordered):
    """f32, but for matrix products or the cache, which have fewer bits.

    `products` is the products' type and `of` says which products these are. Their operands have it
    or their result, as `cast` says, or both as with torch.autocast. `cache` is the type of k and v.
    """

    ALL = ("q", "k", "v", "output", "scores_raw", "head_outputs")
    OF = {"all": ALL, "projections": ALL[:4], "attention": ALL[4:], "scores": ALL[4:5]}

    def __init__(self, rng, products=None, of="all", cast="both", cache=None):
        super().__init__(rng)
        self.products, self.of, self.cast, self.cache = products, self.OF[of], cast, cache

    @classmethod
    def at_random(cls, rng):
        """Its settings."""
        products = rng.choice(["tf32", "tf32", "bf16", "f16", None])
        cache = rng.choice(["bf16", "f16"]) if products is None or rng.random() < 0.15 else None
        made = {"cache": cache} if cache else {}
        if products:
            of = rng.choice(["all", "all", "projections", "attention", "scores"])
            cast = rng.choice(["both", "both", "operands", "result"])
            made |= {"products": products, "of": of}
            made |= {"cast": "operands" if products == "tf32" else cast}
        return made

    def product(self, step, left, right, bias=None):
        left, right = left.float(), right.float()
        if step not in self.of or self.products is None:
            return super().product(step, left, right, bias)
        if self.products == "tf32":
            return super().product(step, tf32(left), tf32(right), bias)
        half = HALVES[self.products]
        if self.cast != "result":
            left, right = left.to(half).float(), right.to(half).float()
            bias = bias if bias is None else bias.to(half).float()
        made = super().product(step, left, right, bias)
        return made if self.cast == "operands" else made.to(half)

    def softmax(self, scores):
        return scores.float().softmax(dim=-1)

    def cached(self, heads):
        return heads.to(HALVES[self.cache]).to(heads.dtype) if self.cache else heads


def pad_left(rng, settings, key_count, past_len, dtype, folder):
    """Settings by which the first keys of items are padding, which some queries see alone."""
    pads = [rng.randrange(key_count) for _ in range(settings["batch"])]
    pads[rng.randrange(len(pads))] = rng.randint(1, key_count - 1)
    way = rng.choice(["key_mask", "bool", "bool rows", "float", "float rows"])
    # most code has finite fills, and code with −inf has NaN or zeros where there is no key to see
    empty = rng.choice(["nan", "zero"])
    if settings["mask_fill"] != "-inf" and dtype != torch.float64 and rng.random() < 0.3:
        settings["mask_fill"] = torch.finfo(dtype).min
    if settings["mask_fill"] == "-inf":
        settings["empty_rows"] = empty
    if way == "key_mask":
        settings["key_mask"] = ["0" * pad + "1" * (key_count - pad) for pad in pads]
        return
    seen = (torch.arange(key_count) >= torch.tensor(pads)[:, None])[:, None, None, :]
    if "rows" in way:
        rows = torch.arange(settings["seq_len"])[:, None]
        seen = seen & (torch.arange(key_count) <= past_len + rows)
        settings |= {"mask": "none"}
        settings.pop("window", None)
        settings.pop("causal_align", None)
        if rng.random() < 0.5:
            # as transformers does with rows that see nothing
            seen = seen | ~seen.any(dim=-1, keepdim=True)
    if "bool" in way:
        settings["attn_mask_true"] = rng.choice(["attend", "block"])
        cells = (seen if settings["attn_mask_true"] == "attend" else ~seen).tolist()
    else:
        narrow = torch.float32 if dtype == torch.float64 else dtype
        fills = [-math.inf, torch.finfo(narrow).min]
        # scores are still there beside -1e9 in f64, and f16 does not have it
        fill = rng.choice(fills + ([-1e9] if narrow == dtype != torch.float16 else []))
        fill = "-Infinity" if fill == -math.inf else float(fill)
        cells = [[[[0.0 if key else fill for key in row] for row in head] for head in item]
                 for item in seen.tolist()]  # fmt: skip
    (folder / "mask.json").write_text(json.dumps(cells))
    settings["attn_mask"] = "mask.json"


def correct_run(rng, dtype, arithmetic, folder, narrow=False, largest=None, padded=0.3):
    """A correct run in that type: its given tensors, its steps and its settings.

    `narrow` says that something has 16 bits, and `largest` what a fill can be at most.
    """
    equal = rng.randint(2, 8) if rng.random() < 1 / 3 else None
    # -1e9 is beyond f16
    fill = "-inf" if largest == torch.float16 else rng.choice(["-inf", -1e9])
    settings = random_settings(rng, equal) | {"mask_fill": fill}
    if dtype == torch.float64:
        settings["dtype"] = rng.choice(["f32", "f64"])
    config = resolve(settings)
    if narrow and head_dim(config) < 8:
        # a norm of so few can magnify what is next to nothing, and its rounding with it
        settings.pop("qk_norm", None)
        settings.pop("qk_norm_eps", None)
        config = resolve(settings)
    past = random_past(rng, config) if "past" in config else {}
    past_len = past["k_past"].shape[2] if past else 0
    key_count = past_len + config.get("kv_len", config["seq_len"])
    if key_count > 1 and rng.random() < padded:
        widest = largest or dtype
        pad_left(rng, settings, key_count, past_len, widest, folder)
        config = resolve(settings)

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
    mask, attn_bias = get_masks(config, folder, past_len, None)
    if attn_bias is not None:
        given["attn_bias"] = attn_bias
    past = {name: arithmetic.cached(value.to(dtype)) for name, value in past.items()}
    given = {name: tensor.to(dtype) for name, tensor in given.items()} | past
    if mask is not None:
        given["mask"] = mask
    if "rope" in config:
        # nobody keeps frequencies in 16 bits
        freqs, _ = get_frequencies(config, None, past_len)
        given["rope_freqs"] = freqs.to(torch.promote_types(dtype, torch.float32))
    if past:
        save_file(past, folder / settings["past"])
    return given, torch_steps(given, config, arithmetic), settings


def kept_steps(rng, steps, kept):
    """Of the steps "all", "some" or the "output"."""
    if kept == "some":
        names = rng.sample(list(steps), rng.randint(1, len(steps) - 1))
        return {name: value for name, value in steps.items() if name in names}
    return {"output": steps["output"]} if kept == "output" else steps


def without_told(rng, given):
    """What is given, without some of what the config tells."""
    for told in TOLD:
        if rng.random() < 0.5:
            given = {name: given[name] for name in given if name not in told}
    return given


def axis_orders(axes, value):
    """Every order of axes that is recognised: queries before keys, features last."""
    long = [axis for axis, size in zip(axes, value.shape) if size > 1]
    after = {"key": ["query"], "head_dim": ["batch", "head"]}
    for order in itertools.permutations(range(len(axes))):
        names = [axes[at] for at in order if axes[at] in long]
        last = {axis: set(long) - {axis} for axis in ("model", "input")} | after
        waits = ((names.index(axis), names[: names.index(axis)]) for axis in names)
        if all(set(last.get(names[at], [])) & set(long) <= set(seen) for at, seen in waits):
            yield order


def in_other_order(rng, axes, value):
    """A tensor with its axes in an order that is recognised."""
    if axes[:2] == ["batch", "head"] and min(value.shape[:2]) > 1 and rng.random() < 0.2:
        return value.flatten(0, 1)
    order = rng.choice(list(axis_orders(axes, value)))
    turned = value.permute(order)
    at = order.index(0)
    return turned.squeeze(at) if value.shape[0] == 1 and rng.random() < 0.5 else turned


def named_weights(rng, given, config, prefix):
    """The projections, which are taken from `given`, under names that people's code has."""
    ours = [f"{kind}_{name}" for name in "qkvo" for kind in "wb"]
    weights = {name: given.pop(name, None) for name in ours}
    way = rng.choice(["ours", "modules", "modules", "in_proj", "per head"])
    named = {}
    if way == "in_proj" and len({weights[f"w_{name}"].shape for name in "qkv"}) == 1:
        named["in_proj_weight"] = torch.cat([weights[f"w_{name}"] for name in "qkv"])
        named["out_proj.weight"] = weights["w_o"]
        if config["bias"]:
            named["in_proj_bias"] = torch.cat([weights[f"b_{name}"] for name in "qkv"])
            named["out_proj.bias"] = weights["b_o"]
    elif way == "per head":
        size = head_dim(config)
        for name in "qkv":
            named[f"W_{name.upper()}"] = weights[f"w_{name}"].unflatten(0, (-1, size)).mT
            if config["bias"]:
                named[f"b_{name.upper()}"] = weights[f"b_{name}"].unflatten(0, (-1, size))
        named["W_O"] = weights["w_o"].T.unflatten(0, (-1, size))
        if config["bias"]:
            named["b_O"] = weights["b_o"]
    elif way == "modules":
        inputs, output = rng.choice(MODULES)
        for name, module in zip("qkvo", [*inputs.split(), output]):
            named[f"{module}.weight"] = weights[f"w_{name}"]
            if config["bias"]:
                named[f"{module}.bias"] = weights[f"b_{name}"]
    else:
        named = {name: value for name, value in weights.items() if value is not None}
    return {prefix + name: value for name, value in named.items()}


def as_other_code(rng, given, steps, settings):
    """The tensors as other code would save them, and the flags that say what was meant."""
    config = resolve(settings)
    given, prefix = dict(given), rng.choice(PREFIXES)
    tensors = named_weights(rng, given, config, prefix)
    tokens_first, taken = rng.random() < 0.25, set()
    own_order = rng.random() < 0.5

    def add(step, value):
        if step not in NAMES:
            tensors[step] = value
            return
        # the name of another step means that step
        names = [name for name in NAMES[step] if name == step or name not in NAMES]
        name = rng.choice([name for name in names if name not in taken] or [step])
        taken.add(name)
        cased = name.upper() if name != step and rng.random() < 0.1 else name
        tensors[prefix + cased] = value

    for step, value in given.items():
        if step in ("x", "memory"):
            if tokens_first:
                value = value.transpose(0, 1)
            elif value.shape[0] == 1 and "memory" not in given and rng.random() < 0.5:
                value = value[0]
        add(step, value)
    *_, last = [step for step, value in steps.items() if value.dim() == 3] or [None]
    for step, value in steps.items():
        axes = AXES.get(step, SCORE_AXES)
        # with as many items as tokens, nothing tells in which order the end has them
        told = step != last or value.shape[0] != value.shape[1]
        if tokens_first and len(axes) == 3:
            value = value.transpose(0, 1)
        elif own_order and told and rng.random() < 0.7:
            value = in_other_order(rng, axes, value)
        add(step, value)
    said = {name: value for name, value in settings.items() if name not in UNSAID}
    if "k_past" in given:
        said.pop("past", None)
    # from X (1, items, features) and an output alone nobody could tell items of one token from the tokens of one item
    if tokens_first and settings["seq_len"] == 1 and settings["batch"] > 1 and list(steps) == ["output"]:
        said["seq_len"] = 1
    return tensors, [flag(name, value, Path()) for name, value in said.items()]


def noise_run(rng, number, folder):
    """A correct run as a dump."""
    kinds = ["f64", "f32", "f16", "bf16", "lowered", "f32", "lowered", "f32 softmax", "lowered"]
    kind = kinds[number % len(kinds)]
    about = {"run": number, "kind": kind}
    if kind == "lowered":
        about["lowered"] = lowered = Lowered.at_random(rng)
        dtype, arithmetic = torch.float32, Lowered(rng, **lowered)
        used = [torch.float32, *(HALVES[name] for name in lowered.values() if name in HALVES)]
        largest = min(used, key=lambda dtype: torch.finfo(dtype).max)
    elif kind == "f32 softmax":
        half, about["softmax"] = rng.choice(list(HALVES)), rng.choice(["f32", "f32, cast"])
        about["half"] = half
        largest = dtype = HALVES[half]
        arithmetic = Reordered(rng, about["softmax"])
    else:
        names = {"f64": torch.float64, "f32": torch.float32, **HALVES}
        largest = dtype = names[kind]
        arithmetic = Reordered(rng)
    narrow = kind == "lowered" or dtype.itemsize == 2
    given, steps, settings = correct_run(rng, dtype, arithmetic, folder, narrow, largest)
    about["kept"] = kept = ["all", "some", "output"][number // len(kinds) % 3]
    steps = kept_steps(rng, steps, kept)
    if kind == "lowered":
        about["recorded"] = rng.choice(["as computed", "in f32"])
        if about["recorded"] == "in f32":
            steps = {name: value.float() for name, value in steps.items()}
    about["steps"], about["settings"] = list(steps), settings
    given = without_told(rng, given)
    about["names"] = rng.choice(["own", "other"])
    if about["names"] == "own":
        return Dump(folder, given | steps, [], about, settings)
    if "mask" in given:
        # in other code's files it would say what the flags say
        given = {name: value for name, value in given.items() if name != "mask"}
    tensors, flags = as_other_code(rng, given, steps, settings)
    about["tensors"] = {name: list(value.shape) for name, value in tensors.items()}
    return Dump(folder, tensors, flags, about)


def noise(args):
    """Correct runs; none may be called different or given a mistake."""
    counts, factors, count = Counter(), [], 0
    for dump, report in judged(args, noise_run):
        count += 1
        wrong = []
        lowered = dump.about["kind"] == "lowered"
        found = report.get("diagnosis", [])
        told = any(bug["kind"] == "precision" for bug in found)
        if "refused" in report:
            wrong.append("refused")
        elif report["verdict"] != "same":
            wrong.append("reduced precision called different" if lowered else "called different")
        if any(bug["kind"] not in ("noise", "precision") for bug in found):
            wrong.append("given a mistake")
        if "refused" not in report and report["compared"] < len(dump.about["steps"]):
            wrong.append("steps left out")
        if told and dump.about["kind"] in ("f32", "f64"):
            wrong.append("precision told of a plain run")
        for what in wrong:
            counts[what] += 1
        if wrong:
            tell(args, dump, wrong, report)
        counts["precision told"] += lowered and told
        counts["precision not told"] += lowered and not told
        factors += [(bug["factor"], bug["step"]) for bug in found if bug.get("factor")]
        counts["told as rounding"] += any(bug["kind"] == "noise" for bug in found)
    failures = ["called different", "reduced precision called different", "given a mistake"]
    failures += ["refused", "steps left out"]
    print(f"{count} correct runs: " + ", ".join(f"{counts[what]} {what}" for what in failures))
    others = [f"{counts[what]} {what}" for what in sorted(counts) if what not in failures]
    print("  " + ", ".join(others))
    if factors:
        print("  largest factor: {:.2f}, at {}".format(*max(factors)))
    return int(any(counts[what] for what in failures))


class Faulty(Arithmetic):
    """PyTorch's own arithmetic with a fault in one step."""

    def __init__(self, at, fault):
        self.at, self.fault = at, fault

    def made(self, step, value):
        return self.fault(value) if step == self.at else value


def is_number(values):
    """Where a tensor has neither an infinity nor a mask's fill."""
    return values.isfinite() & (values.abs() < 1e8)


class Cells:
    """A step, and which of its cells a fault can change: those that no mask blocks."""

    def __init__(self, rng, step, right, other):
        self.rng, self.right, self.other = rng, right, other
        self.free = is_number(right) & (right > 0 if step == "weights" else True)
        self.size = right[self.free].square().mean().sqrt().item()

    def block(self, most=0.7):
        """Some neighbouring rows, or cells here and there."""
        rows = self.right.flatten(0, -2).shape[0]
        if rows < 4 or self.rng.random() < 0.3:
            return torch.rand(self.right.shape) < self.rng.uniform(0.2, most)
        count = self.rng.randint(2, max(2, int(rows * most)))
        first = self.rng.randrange(rows - count + 1)
        chosen = torch.zeros(rows, dtype=torch.bool)
        chosen[first : first + count] = True
        return chosen.view(*self.right.shape[:-1], 1).expand(self.right.shape)


def one_cell(cells):
    """One number is another one."""
    changed = cells.right.clone()
    at = cells.rng.choice(cells.free.nonzero().tolist())
    changed[tuple(at)] += cells.size * cells.rng.choice([-1, 1]) * 10 ** cells.rng.uniform(-1, 2)
    return changed


def noisy_rows(cells):
    """Noise of any size in some rows or cells."""
    noise = torch.randn_like(cells.right) * cells.size * 10 ** cells.rng.uniform(-2.5, 0.5)
    return torch.where(cells.block(), cells.right + noise, cells.right)


def shuffled(cells):
    """All numbers stand at random places."""
    changed, values = cells.right.clone(), cells.right[cells.free]
    changed[cells.free] = values[torch.randperm(len(values))]
    return changed


def random_numbers(cells):
    """Random numbers in place of the step."""
    return torch.randn_like(cells.right) * cells.size * cells.rng.choice([0.5, 1, 2])


def features_scaled(cells):
    """Three features or more, each by a number of its own."""
    width = cells.right.shape[-1]
    if width < 4:
        return None
    chosen = torch.randperm(width)[: cells.rng.randint(3, width)]
    factors = torch.ones(width)
    factors[chosen] = torch.empty(len(chosen)).uniform_(-2, 3)
    return cells.right * factors


def turned(cells):
    """A random orthogonal matrix on the features."""
    width = cells.right.shape[-1]
    matrix, _ = torch.linalg.qr(torch.randn(width, width))
    return cells.right @ matrix if width >= 4 and bool(cells.free.all()) else None


def bent(cells):
    """An odd function of cells here and there."""
    x = cells.right / cells.size
    curved = cells.rng.choice([lambda: x + 0.3 * x**3, lambda: (3 * x).sin()])()
    return torch.where(cells.block(), curved * cells.size, cells.right)


def other_weight(cells):
    """A projection by an independent random weight."""
    return cells.other["weight"]


def stale(cells):
    """What the same step was in a run of other tokens, in some rows or in all of them."""
    where = cells.block() if cells.rng.random() < 0.7 else torch.tensor(True)
    return torch.where(where, cells.other["stale"], cells.right)


def uninitialised(cells):
    """Some rows hold what was in memory."""
    exponents = torch.empty_like(cells.right).uniform_(-38, 4)
    garbage = torch.randn_like(cells.right).sign() * 10**exponents
    garbage = torch.where(torch.rand_like(garbage) < 0.3, 0.0, garbage)
    return torch.where(cells.block(0.5), garbage, cells.right)


def swapped_rows(cells):
    """Two rows change places, each times a number of its own."""
    changed = cells.right.clone().flatten(0, -2)
    if changed.shape[0] < 2:
        return None
    one, two = cells.rng.sample(range(changed.shape[0]), 2)
    factors = cells.rng.uniform(0.3, 0.9), cells.rng.uniform(1.2, 3)
    both = changed[one] * factors[0], changed[two] * factors[1]
    changed[two], changed[one] = both
    return changed.view(cells.right.shape)


FAULTS = [
    one_cell,
    noisy_rows,
    shuffled,
    random_numbers,
    features_scaled,
    turned,
    bent,
    other_weight,
    stale,
    uninitialised,
    swapped_rows,
]
PROJECTED = {"q": "q", "k": "k", "v": "v", "output": "o"}
UNMASKED = "scores_raw", "scores", "scores_capped", "scores_biased"
# an effect below this, of the largest number, is not asked to be seen
SEEN = 3e-3


def is_seen(found, right, free):
    """Whether some of the free cells differ enough."""
    if not free.any():
        return False
    found, right = found[free], right[free]
    return (found - right).abs().max().item() > max(SEEN * right.abs().max().item(), 1e-3)


def other_runs(given, config, at, projection):
    """A step of a run of other tokens, and of one in which that projection has another weight."""
    tokens = {name: torch.randn_like(given[name]) for name in ("x", "memory") if name in given}
    made = {"stale": torch_steps(given | tokens, config)[at]}
    if projection:
        name = f"w_{projection}"
        weight = torch.randn_like(given[name]) * given[name].std()
        made["weight"] = torch_steps(given | {name: weight}, config)[at]
    return made


def faulty_run(rng, number, folder):
    """A dump with a fault that is no edit of the program."""
    fault, whole = FAULTS[number // 2 % len(FAULTS)], number % 2 == 0
    while True:
        given, right, settings = correct_run(
            rng, torch.float32, Arithmetic(), folder, padded=0.15
        )
        config = resolve(settings)
        names = list(PROJECTED if fault is other_weight else right)
        if not whole:
            names.remove("output")
        at = rng.choice(names)
        if right["output"].numel() < 32 or not right["output"].isfinite().all():
            continue
        cells = Cells(rng, at, right[at], other_runs(given, config, at, PROJECTED.get(at)))
        changed = fault(cells) if cells.free.sum() >= 24 else None
        if changed is None:
            continue
        # a mask stays what it is
        changed = torch.where(cells.free, changed, right[at])
        found = torch_steps(given, config, Faulty(at, lambda _: changed))
        free = cells.free
        if "mask" in given and at in UNMASKED:
            free = free & ~given["mask"].bool()
        is_felt = is_seen(found["output"], right["output"], is_number(right["output"]))
        if is_felt and is_seen(changed, right[at], free):
            break
    steps = found if whole else {"output": found["output"]}
    about = {"run": number, "fault": fault.__name__, "at": at, "kept": "all" if whole else "output"}
    about["shape"] = list(right[at].shape)
    about["off"] = int((changed != right[at]).sum())
    about["settings"] = settings
    shown = at if whole else "output"
    truth = shown, found[shown], right[shown]
    return Dump(folder, without_told(rng, given) | steps, [], about, settings, truth)


AXIS = {"item": "batch", "head": "head", "query row": "query", "key": "key"}
# the sentences of clues
PART = re.compile(r"it is off in (item|head|query row|key|feature)s? ([\d, to]+) alone")
CHANGE = re.compile(
    r"(there )?(?:it is about (\S+) times what it should be|about (\S+) is added to its numbers), "
    r"which accounts for (\d+) % of the difference"
)
PLACES = re.compile(r"it has the right numbers in other places")
ROUNDING = re.compile(
    r"the differences have the size of the rounding of (\S+), and no direction"
)
EXCESS = re.compile(r"what is too much is (\S+) times (\w+)")
EVERYWHERE = re.compile(r"(\d+) of its (\d+) numbers are off, along all of its axes")


def is_true(summary, step, found, right, tensors):
    """Whether a clue's sentence is true; None if it is none of those that are known."""
    found, right = found.double(), right.double()
    axes = AXES.get(step, SCORE_AXES)
    free = is_number(right)
    off = torch.where(found == right, 0.0, (found - right).abs())
    size = right[free].abs().max().item()
    # between the two rounding decides
    surely, maybe = free & (off > SEEN * size), off > 0

    def places(which, axis):
        others = [other for other in range(which.dim()) if other != axis]
        return set(which.any(dim=others).nonzero().flatten().tolist())

    if match := PART.fullmatch(summary):
        axis = axes.index(AXIS[match[1]]) if match[1] in AXIS else len(axes) - 1
        told = set()
        for part in match[2].split(", "):
            first, _, last = part.partition(" to ")
            told |= set(range(int(first), int(last or first) + 1))
        is_part = len(told) < off.shape[axis]
        return is_part and places(surely, axis) <= told <= places(maybe, axis)
    if match := CHANGE.fullmatch(summary):
        cells = free & (off > 1e-5 + 1.3e-6 * right.abs()) if match[1] else free
        excess = (found - right)[cells]
        # a factor less 1 is of the right numbers what an addend is of ones
        of = right[cells] if match[2] else torch.ones_like(excess)
        change = (excess @ of / (of @ of)).item()
        share = (change * (excess @ of) / (excess @ excess)).item()
        told = float(match[2]) - 1 if match[2] else float(match[3])
        return math.isclose(told, change, rel_tol=0.01) and abs(int(match[4]) - 100 * share) < 1
    if PLACES.fullmatch(summary):
        own, meant = (values.flatten().sort().values for values in (found, right))
        return torch.allclose(own, meant, rtol=1e-3) and bool(surely.any())
    if match := ROUNDING.fullmatch(summary):
        spacing = 1 / 128 if match[1] == "bf16" else 1 / 1024
        return off[free].max().item() <= 2.1 * spacing * size
    if match := EXCESS.fullmatch(summary):
        excess = found - right
        left = excess - float(match[1]) * tensors[match[2]].double()
        return bool(left.square().sum() <= 0.02 * excess.square().sum())
    if match := EVERYWHERE.fullmatch(summary):
        least, most = int(surely.sum()), int(maybe.sum())
        spread = all(len(places(maybe, axis)) == size for axis, size in enumerate(off.shape))
        is_all = int(match[2]) == off.numel()
        return spread and is_all and least <= int(match[1]) <= most
    return None


def unexplained(args):
    """Runs with a fault that nothing explains: no mistake may be told, and clues must be true."""
    counts, count = Counter(), 0
    for dump, report in judged(args, faulty_run):
        count += 1
        wrong = []
        step, found, right = dump.truth
        whole = dump.about["kept"] == "all"
        if "refused" in report:
            wrong.append("refused")
        elif report["verdict"] == "same":
            wrong.append("called same")
        elif report["first_divergence"] != step:
            wrong.append("wrong first step")
            dump.about["told first"] = report["first_divergence"]
        if any(bug["kind"] != "noise" for bug in report.get("diagnosis", [])):
            wrong.append("invented")
        clues = report.get("clues", [])
        if whole and not any(clue["step"] == step for clue in clues):
            wrong.append("without clue")
        for clue in clues:
            known = is_true(clue["summary"], step, found, right, dump.tensors)
            if clue["step"] != step or known is False:
                wrong.append("false clue")
            elif known is None:
                wrong.append("clue not understood")
            counts["clues"] += 1
            dump.about.setdefault("clues", []).append(f"{clue['step']}: {clue['summary']}")
        for what in set(wrong):
            counts[what] += 1
        if wrong:
            tell(args, dump, sorted(set(wrong)), report)
    failures = ["invented", "called same", "wrong first step", "without clue", "false clue"]
    failures += ["clue not understood", "refused"]
    told = ", ".join(f"{counts[what]} {what}" for what in failures)
    print(f"{count} unexplained faults: {told}")
    print(f"  {counts['clues']} clues told")
    return int(any(counts[what] for what in failures))
