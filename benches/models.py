"""Records and checks every model of fixtures/families_specs.py as it is: none of them is to be called different.

    python benches/models.py [--backward] [NAME…]

Each is recorded plain, with padding on the left and on the right, and through `generate`, by its eager attention and by
scaled_dot_product_attention; those of fixtures/images.py with images, plain and through `generate`; and those of
fixtures/cores.py, which do arithmetic of their own, once. With --backward each is called plain, and a loss of all that it
gives is run back: the gradients of outputs, heads, queries, keys, values and inputs are checked, too. Their parameters
are random; norms, biases and sinks are not trivial. One line a model: how many calls were the same, how many of those as
the core alone, how many contradict their config and are right but for that, and all that was different or refused.
"""

import contextlib
import re
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "fixtures")]

import families  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from cores import CORES  # noqa: E402
from families_specs import SPECS, class_of  # noqa: E402
from images import IMAGES  # noqa: E402

import mha_trace  # noqa: E402

TOKENS = 7
# What the library's own code does otherwise than its config says (docs/python.md).
SETTINGS = {("falcon-alibi-eager", "eager"): {"alibi_form": "falcon-eager"}}
# What stands behind the names of fixtures/cores.py.
CORE = "-core"
TEXT = ("decoder", "encoder", "masked", "seq2seq")


def made(name, attention):
    spec = SPECS[name]
    torch.manual_seed(sum(map(ord, name)))
    kind = class_of(spec["cls"])
    config = spec["config"]() if callable(spec["config"]) else kind.config_class(**spec["config"])
    config._attn_implementation = attention
    model = kind(config).eval()
    families.randomize(model, spec.get("std", 0.3))
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return model


def ways(spec, model):
    """The ways in which a model is called, by name."""
    kind, tokens = spec["input"], torch.randint(3, 27, (2, TOKENS))
    found = {"plain": families.caller(kind, model)}
    if kind not in TEXT:
        return found
    own = {"decoder_input_ids": tokens} if kind == "seq2seq" else {}
    for side, part in (("left", slice(0, 3)), ("right", slice(TOKENS - 3, None))):
        seen = torch.ones_like(tokens)
        seen[1, part] = 0
        found[side] = lambda m, seen=seen: m(input_ids=tokens, attention_mask=seen, **own)
    if kind in ("decoder", "seq2seq") and model.can_generate():
        found["generate"] = lambda m: m.generate(tokens, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    return found


def outcome(call, settings):
    try:
        report = call.check(**settings)
    except mha_trace.Error as error:
        return "refused", re.sub(r"\s+", " ", str(error).splitlines()[0])[:150]
    if report.same:
        return ("core" if "read as the core alone" in str(report) else "same"), ""
    first = report.findings[0].summary if report.findings else f"unexplained: {report.first_divergence}"
    if report.first_divergence is None and [one.kind for one in report.findings] == ["contradiction"]:
        return "contradicts", "; ".join([first, *report.notes])
    return "different", first[:150]


def with_images(name, attention):
    """A model of images, and the ways in which it is called."""
    model, inputs = IMAGES[name](attention)
    more = dict(max_new_tokens=3, min_new_tokens=3, do_sample=False)
    return model, {"plain": lambda m: m(**inputs), "generate": lambda m: m.generate(**inputs, **more)}


def loss_of(output):
    """A number that depends on every number that a model gives."""
    if torch.is_tensor(output):
        is_of_graph = output.is_floating_point() and output.requires_grad
        return (output.float() * torch.randn(output.shape)).mean() if is_of_graph else 0
    parts = output.values() if hasattr(output, "values") else output if isinstance(output, (list, tuple)) else ()
    return sum(map(loss_of, parts))


def checked(name, attention, backward=False):
    if name.removesuffix(CORE) in CORES and name.endswith(CORE):
        model, inputs = CORES[name.removesuffix(CORE)](attention)
        return count(name, attention, model, {"plain": lambda m: m(**inputs)}, {}, backward)
    if name in IMAGES:
        return count(name, attention, *with_images(name, attention), {}, backward)
    spec = SPECS[name]
    if spec.get("attention", attention) != attention:
        return
    if not getattr(class_of(spec["cls"]), f"_supports_{attention}", True):
        return
    model = made(name, attention)
    count(name, attention, model, ways(spec, model), SETTINGS.get((name, attention), {}), backward)


def count(name, attention, model, calls, settings, backward):
    counts, told = {"same": 0, "core": 0, "contradicts": 0, "refused": 0, "different": 0}, []
    for way, call in [("plain", calls["plain"])] if backward else calls.items():
        with mha_trace.record(model, backward=backward) as run, torch.set_grad_enabled(backward):
            try:
                output = call(model)
                if backward:
                    loss_of(output).backward()
            except Exception as error:  # a model that cannot be called so
                told.append(f"{way}: not called: {type(error).__name__}")
                continue
        with ThreadPoolExecutor(2) as pool:
            for one, (verdict, why) in zip(run, pool.map(lambda one: outcome(one, settings), run)):
                counts[verdict] += 1
                if why:
                    told.append(f"{way}: {one.name}: {verdict}: {why}")
    print(f"| {name} | {attention} | " + " | ".join(str(count) for count in counts.values()) + " |", flush=True)
    for line in told:
        print(f"    {line}", file=sys.stderr, flush=True)


def main(names, backward):
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}\n")
    print("| model | attention | same | core alone | contradicts its config | refused | different |")
    print("|---|---|---|---|---|---|---|")
    # what is given to recordings is the same, whatever a checkpoint has of it
    specs = [name for name, spec in SPECS.items() if not spec.get("terms")]
    for name in names or [*specs, *IMAGES, *(name + CORE for name in CORES)]:
        for attention in ("eager", "sdpa"):
            with contextlib.suppress(NotImplementedError, ValueError):
                checked(name, attention, backward)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--backward"]
    main(words, backward=len(words) < len(sys.argv) - 1)
