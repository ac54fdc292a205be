"""A recorded call as a record of the whole layer: the settings that the binary reads off the model's config."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from . import _files
from ._arrays import Array, as_array
from ._binary import Error
from ._commands import run_to_file
from ._masks import LOW, hidden_keys, images
from ._seen import Seen

# What has the name of its step.
SEEN = (
    "x",
    "memory",
    "memory_v",
    "q",
    "k",
    "v",
    "q_norm",
    "k_norm",
    "v_norm",
    "masked_scores",
    "weights",
    "weights_mean",
    "head_outputs",
    "output",
)

# Models with latents that turn pairs of features and give the first ones of all pairs in front, without a key that
# says so.
PAIRED = ("bailing_hybrid",)
# Where a run begins.
INPUTS = ("x", "memory", "memory_v")
# Steps whose turned features models with latents may have in another order.
TURNED = {"q_rot", "q_scaled", "k_joined", "k_cached"}
# What happens to keys in front of the cache, in order.
KEYS = ("k_heads", "k_norm", "k_clipped", "k_rot", "k_rot_norm")
# What is given with an axis of queries, and follows from the input and the settings.
ROWS = ("x", "mask")


def layer(call: Seen, folder: Path, family: str | None = None) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays of the record, and what its metadata says: what was recorded, the inputs and parameters of the
    layer, and the settings, so that the file is checked without flags.

    ``family`` says which family of models its config is of. Raises ``Error`` where the binary does not know it, the
    layer has what no setting says, or keys that it did not make.
    """
    if _is_of_others(call):
        raise Error("error: its keys were made at another time, or by another layer")
    own = [f"--model-family={family}"] if family else []
    if call.settings:
        given, about = run_to_file(_settings(call, folder), folder)
    else:
        given, about = _with_config(call, _settings(call, folder) + own, folder)
        scaled = _keys_scaled_by(call, given, about) if past_keys(call) else None
        if scaled:
            given, about = _with_config(call, _settings(call, folder, scaled) + own, folder)
    arrays = {step["name"]: given[step["name"]] for step in about["steps"] if _is_given(step)}
    if about["config"].pop("queries", None):
        arrays.pop("mask", None)  # of the last query alone; it follows from the settings
    seen, sources = _seen(call, given, about)
    for name in TURNED & set(seen):
        seen[name] = _in_pairs(call, seen[name])
    if "output" not in seen:
        raise Error("error: the output of the layer was not seen")
    scale = seen.pop("scale", None)
    arrays.update(seen)
    gradients = _gradients(call, arrays, sources)
    # They were in files that are gone, and are in this one.
    for key in ("x", "weights", "prefix", "memory", "memory_v", "past", "attn_mask", "attn_mask_true", "attn_bias"):
        about["config"].pop(key, None)
    about["steps"] = [step for step in about["steps"] if step["name"] in arrays]
    kept = {step["name"]: arrays[step["name"]] for step in about["steps"]}
    if gradients:
        about["config"]["backward"] = True
        about["steps"] += [{"name": name} for name in gradients]
        kept.update(gradients)
    return {**kept, **_beside(call, scale, about)}, about


def _gradients(call: Seen, arrays: dict[str, Array], sources: dict[str, str]) -> dict[str, Array]:
    """The gradients of what was recorded, by the names of the steps; nothing where none came back to the output."""
    if "output" not in call.gradients:
        return {}
    lent = ("x", "memory", "k", "v") if call.lends else ()
    found = {name: call.gradients.get(sources.get(name, name)) for name in arrays if name not in lent}
    there = {name: _as_rows(own, arrays[name].shape) for name, own in found.items() if own is not None}
    fits = {f"d_{name}": own for name, own in there.items() if own.shape == arrays[name].shape}
    # What came back begins with the output's.
    if "d_output" not in fits:
        return {}
    return {name: _in_pairs(call, own) if name[2:] in TURNED else own for name, own in fits.items()}


def _as_rows(gradient: Array, shape: tuple[int, ...]) -> Array:
    """A gradient (batch, height, width, model) of what is kept in rows of tokens."""
    is_of_image = len(gradient.shape) == 4 and len(shape) == 3
    return gradient.map(lambda a: a.reshape(a.shape[0], -1, a.shape[3])) if is_of_image else gradient


def _beside(call: Seen, scale: Array | None, about: dict[str, Any]) -> dict[str, Array]:
    """What the call was given and the settings state, too: a check tells it where the one contradicts the other."""
    if call.settings:
        return {}
    found = {name: array for name in ("is_causal", "softcap") if (array := call.array(name)) is not None}
    mask = call.array("attn_mask")
    keys = call.tensors["memory"].shape[1] if _crosses(call) else past_keys(call) + call.tensors["x"].shape[1]
    if mask is not None:
        found.pop("is_causal", None)
        if len(mask.shape) == 4 and mask.shape[-1] >= keys:
            found["attn_mask"] = mask.map(lambda a: a[..., :keys])
    if scale is not None:
        found["scale"] = scale
    needs = {"inv_freq": "rope", "qk_norm_eps": "qk_norm"}
    numbers = {name: value for name, value in call.own_numbers.items() if about["config"].get(needs[name])}
    found.update({name: as_array(value) for name, value in numbers.items()})
    found.update({f"lacks.{name}": as_array(np.array(shape)) for name, shape in call.lacks.items()})
    positions = None if _crosses(call) or call.positions_are_own else _own_positions(call)
    if positions is not None and about["config"].get("rope") and not about["config"].get("positions"):
        found["position_ids"] = as_array(positions)
    return found


def _is_of_others(call: Seen) -> bool:
    """Whether keys are neither of the layer's inputs nor in front of them in a cache of its past: those of a memory of
    earlier calls are in no input."""
    keys = call.array("k_heads")
    if _crosses(call) and keys is not None:
        return bool(_filled(call, keys) > call.tensors["memory"].shape[1])
    return call.is_borrowed and not _is_shared(call)


def _in_pairs(call: Seen, heads: Array) -> Array:
    """Turned features with the two of a pair side by side, as the run has them: models with latents may keep the first
    of all pairs in front of the second ones. Scores do not change by it."""
    config = next((config for config in call.configs if config.get("kv_lora_rank")), {})
    turned = config.get("qk_rope_head_dim")
    if not turned or not (config.get("rope_interleave") or config.get("model_type") in PAIRED):
        return heads

    def paired(a: Any) -> Any:
        halves = a[..., -turned:].reshape(*a.shape[:-1], 2, turned // 2)
        return np.concatenate([a[..., :-turned], halves.swapaxes(-1, -2).reshape(*a.shape[:-1], turned)], axis=-1)

    return heads.map(paired)


def _is_given(step: dict[str, Any]) -> bool:
    return bool(step["formula"] == "given")


def _with_config(call: Seen, stated: list[str], folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run of the first config that the binary takes: of the part of the model that the layer is in, or of all.

    What the layer is given does not depend on the queries, so that the last one is enough; but for biases of positions.
    """
    refused: Error | None = None
    for config in call.configs:
        path = folder / "config.json"
        path.write_text(json.dumps(config, default=str), encoding="utf-8")
        layer_number = [] if call.layer is None else [f"--layer={call.layer}"]
        model = [f"--model-config={path}", f"--prefix={call.prefix}", *layer_number, *stated]
        try:
            given, about = run_to_file([*model, "--queries=T-1..T"], folder)
            may_turn = about["config"].get("rope") and not _crosses(call) and _are_meant(call)
            places = _places(call, folder) if may_turn else []
            if places:
                model += places
                given, about = run_to_file([*model, "--queries=T-1..T"], folder)
            if any("query" in step["axes"] for step in about["steps"] if _is_given(step) and step["name"] not in ROWS):
                return run_to_file(model, folder)
            return given, about
        except Error as error:
            refused = refused or error
    raise refused or Error("error: no config of a model says what the layer is")


# Numbers that are lower swallow the scores that they are added to.
MILDEST = -1e6


def _settings(call: Seen, folder: Path, scaled: float = 1) -> list[str]:
    """The flags for what was recorded, and the files that they name. The keys of the cache are scaled by that."""
    x = call.array("x")
    if x is None or len(x.shape) != 3:
        raise Error("error: the input of the layer was not seen, or is not (batch, query, model)")
    wanted = ("x", "memory", "memory_v", "attn_mask", "attn_bias")
    inputs = {name: array for name in wanted if (array := call.array(name)) is not None}
    _files.write(folder / "inputs.safetensors", inputs)
    _files.write(folder / "weights.safetensors", call.parameters)
    stated = [f"--x={folder / 'inputs.safetensors'}:x", f"--weights={folder / 'weights.safetensors'}"]
    for name in ("memory", "memory_v", "attn_bias"):
        if name in inputs:
            stated.append(f"--{name.replace('_', '-')}={folder / 'inputs.safetensors'}:{name}")
    if call.settings:
        if "attn_mask" in inputs:
            stated.append(f"--attn-mask={folder / 'inputs.safetensors'}:attn_mask")
        stated += [f"--{name}={value}" if value else f"--{name}" for name, value in call.settings.items()]
        return stated
    past = past_keys(call)
    if past:
        names = {"k_past": "k_heads", "v_past": "v_heads"}
        cut = {name: as_array(call.tensors[of]).map(lambda a: a[:, :, :past]) for name, of in names.items()}
        cut["k_past"] = _in_pairs(call, cut["k_past"])
        if scaled != 1:
            cut["k_past"] = as_array(cut["k_past"].numpy() / np.float32(scaled))
        each = min(_repeats(array) for array in cut.values())
        _files.write(
            folder / "past.safetensors", {name: array.map(lambda a: a[:, ::each]) for name, array in cut.items()}
        )
        stated.append(f"--past={folder / 'past.safetensors'}")
    if _is_shared(call):
        names = {"k_shared": "k_heads", "v_shared": "v_heads"}
        _files.write(folder / "shared.safetensors", {name: as_array(call.tensors[of]) for name, of in names.items()})
        stated.append(f"--shared-kv={folder / 'shared.safetensors'}")
    mask = call.array("attn_mask")
    if mask is not None and mask.code == "BOOL":
        # As scaled_dot_product_attention has it, also where a row of padding sees nothing.
        stated += ["--mask-fill=-inf", "--empty-rows=zero"]
    shown = images(call)
    if shown is not None:
        _files.write(folder / "shown.safetensors", {"attn_mask": shown})
        stated += [f"--attn-mask={folder / 'shown.safetensors'}:attn_mask", "--mask=recorded", "--without=window"]
    hidden = hidden_keys(call)
    if hidden is None or shown is not None:
        return stated
    if hidden.all(axis=1).any() and _is_mild(mask) and "attn_bias" not in inputs:
        # Added to all scores of a row, such numbers change nothing, and as a fill they would make all weights equal.
        stated.append(f"--attn-bias={folder / 'inputs.safetensors'}:attn_mask")
    else:
        keys = hidden.shape[1] if _crosses(call) else past + x.shape[1]
        rows = np.broadcast_to(hidden, (x.shape[0], hidden.shape[1]))[:, :keys]
        stated.append("--key-mask=" + ",".join("".join("01"[not one] for one in row) for row in rows))
    return stated


def _is_shared(call: Seen) -> bool:
    """Whether the layer takes keys and values of an earlier one, as the last layers of Gemma 3n do."""
    said = ((config.get("num_kv_shared_layers"), config.get("num_hidden_layers")) for config in call.configs)
    own = next((layers - shared for shared, layers in said if shared and layers), None)
    return (
        own is not None
        and call.layer is not None
        and call.layer >= own
        and {"k_heads", "v_heads"} <= call.tensors.keys()
    )


def _crosses(call: Seen) -> bool:
    return "memory" in call.tensors


def _repeats(heads: Array) -> int:
    """How often every head stands there, one behind the other, where a cache holds them for every query head."""
    count = heads.shape[1]
    sizes = (size for size in range(count, 1, -1) if count % size == 0)
    return next((size for size in sizes if np.array_equal(heads.data[:, ::size].repeat(size, 1), heads.data)), 1)


def _keys_scaled_by(call: Seen, given: dict[str, Array], about: dict[str, Any]) -> float | None:
    """By what the keys are scaled in front of the cache, where it is the scale of the run: there it is that of the
    scores."""
    seen, last = call.array("k_heads"), [name for name in KEYS if name in given][-1:]
    factor = _scaled_before(call, given, about)
    if seen is None or not last or factor is None:
        return None
    past, own = past_keys(call), given[last[0]].numpy()
    new = seen.map(lambda a: a[:, :, past : past + own.shape[2]]).numpy()
    is_it = new.shape == own.shape and np.allclose(new, own * factor, rtol=0.02, atol=0.02 * np.abs(own).max(initial=0))
    return factor if is_it else None


def past_keys(call: Seen) -> int:
    """How many keys stand before the call's own."""
    keys = call.array("k_heads")
    return 0 if keys is None or _crosses(call) else _filled(call, keys) - call.tensors["x"].shape[1]


def _places(call: Seen, folder: Path) -> list[str]:
    """The positions of the tokens, where they are not simply behind those of the cache."""
    positions = _own_positions(call)
    if positions is None:
        return []
    _files.write(folder / "positions.safetensors", {"positions": positions})
    return [f"--positions={folder / 'positions.safetensors'}:positions"]


def _are_meant(call: Seen) -> bool:
    """Whether positions are those that the model makes, of the tokens of a padded batch, or of documents one behind
    the other that do not see each other: what the caller said may be wrong."""
    positions = np.asarray(call.positions)
    # Those of images have three numbers each.
    if call.positions_are_own or hidden_keys(call) is not None or positions.ndim > 2:
        return True
    starts = np.flatnonzero(positions.reshape(-1, positions.shape[-1])[0] == 0)
    mask = call.array("attn_mask")
    if mask is None or len(starts) < 2 or mask.shape[-2] != positions.shape[-1]:
        return False
    numbers = mask.numpy()
    seen = numbers if mask.code == "BOOL" else numbers > LOW
    return not any(seen[..., start:, :start].any() for start in starts[1:])


def _is_mild(mask: Array | None) -> bool:
    """Whether a mask is of numbers to add that leave something of the scores, as -10000 does."""
    return mask is not None and mask.code != "BOOL" and float(mask.numpy().min()) > MILDEST


def _own_positions(call: Seen) -> np.ndarray[Any, Any] | None:
    tokens, past = call.tensors["x"].shape[1], past_keys(call)
    if call.positions is None or call.positions.shape[-1] != tokens:
        return None
    positions = np.asarray(call.positions)
    counted = np.broadcast_to(past + np.arange(tokens), positions.shape)
    return None if np.array_equal(positions, counted) else positions


def positions_note(call: Seen, about: dict[str, Any]) -> list[str]:
    """What is to be said of positions behind a cache that do not follow it, nor are those of a padded batch: they are
    taken as what was meant, though the mistake may be the caller's."""
    if not about["config"].get("rope") or _crosses(call) or hidden_keys(call) is not None:
        return []
    positions = _own_positions(call)
    if positions is None or positions.ndim > 2 or not past_keys(call):
        return []
    if any(about["config"].get(key) for key in ("window", "chunk")) and positions.min() >= past_keys(call):
        return []  # The cache keeps only what is seen.
    first = positions.reshape(-1, positions.shape[-1])[0].tolist()
    said = ", ".join(map(str, first[:6])) + (", …" if len(first) > 6 else "")
    return [
        f"{call.name}: rotated by the positions that the model was called with ({said}), behind {past_keys(call)} keys"
    ]


def causal_note(call: Seen, about: dict[str, Any]) -> list[str]:
    """Why an attention function that got no mask was causal where the config says that the layer is not, or was not."""
    is_causal = "is_causal" in call.tensors and bool(call["is_causal"])
    if not call.causal_by or is_causal == (about["config"].get("mask") == "causal"):
        return []
    stated, found = ("not causal", "is") if is_causal else ("causal", "is not")
    return [
        f"{call.name}: the config says that it is {stated}, and the module {found}: no mask came to {call.function}, "
        f"which then goes by is_causal, as the eager function does not: {call.causal_by}"
    ]


def has_empty_slots(call: Seen) -> bool:
    """Whether slots of a cache are not filled yet: rows of padding that see nothing spread over them, too."""
    keys = call.array("k_heads")
    return keys is not None and _filled(call, keys) < keys.shape[2]


def _filled(call: Seen, keys: Array) -> int:
    """How many keys there are: slots of a cache that are not filled yet stand behind them, are zero, and nobody sees
    them."""
    hidden, unseen = hidden_keys(call), np.zeros(keys.shape[2], bool)
    if hidden is not None:
        unseen[: hidden.shape[1]] = hidden.all(axis=0)
    elif "is_causal" in call.tensors and call["is_causal"]:
        unseen[call.tensors["x"].shape[1] :] = True
    empty = unseen & ~keys.data.any(axis=(0, 1, 3))
    return int(np.flatnonzero(~empty).max(initial=-1)) + 1


def _seen(call: Seen, given: dict[str, Array], about: dict[str, Any]) -> tuple[dict[str, Array], dict[str, str]]:
    """What was recorded, as the steps of the run have it, and what the call knows it as where that has another name."""
    sources: dict[str, str] = {}
    tokens = call.tensors["x"].shape[1]
    shapes = {
        step["name"]: tuple(
            tokens if axis == "query" else length for axis, length in zip(step["axes"], given[step["name"]].shape)
        )
        for step in about["steps"]
        if not _is_given(step) or step["name"] in INPUTS
    }
    steps = [name for name in shapes if name not in INPUTS]
    found: dict[str, Array] = {}
    for name in SEEN:
        array = call.array(name)
        if array is not None and name in shapes:
            fitted = _fit(array, shapes[name])
            if fitted is not None:
                found[name] = fitted
    # What the output projection gets is the last step in front of it: a gate or a norm may stand behind the heads.
    joined = call.array("concat")
    if joined is not None and {"head_outputs", "output"} <= set(steps):
        behind = steps[steps.index("head_outputs") + 1 : steps.index("output")]
        fits = [name for name in behind if shapes[name] == joined.shape]
        found.update(dict.fromkeys(fits[-1:], joined))
        sources.update(dict.fromkeys(fits[-1:], "concat"))
    before = steps[: steps.index("scores_raw")] if "scores_raw" in steps else []
    got: dict[str, Array] = {}
    for short in "qkv":
        array = call.array(f"{short}_heads")
        fits = [name for name in before if array and name.startswith(f"{short}_") and shapes[name] == array.shape]
        # The attention function gets the last of them.
        got.update((name, array) for name in fits[-1:] if array)
    made_scale = call.array("scale") is not None and "q_heads" in given
    factor = _scaled_before(call, given, about)
    in_front = factor and any(_is_times(factor, got[one], given[one]) for one in got if one[0] in "qk")
    for name, array in got.items():
        if name.startswith("v_") or (made_scale and not in_front):
            found[name] = array
            sources[name] = f"{name[0]}_heads"
    if made_scale and not in_front:
        found["scale"] = call.tensors["scale"]
    return found, sources


def _is_times(factor: float, seen: Array, own: Array) -> bool:
    """Whether the numbers are rather the factor, or its root, times those of the run, than as large. How large they are
    tells it for wrongly turned ones, too."""
    rows = own.shape[2]
    seen_size, own_size = (float(np.linalg.norm(a.numpy()[:, :, -rows:].astype(np.float64))) for a in (seen, own))
    if not seen_size or not own_size:
        return False
    return abs(math.log(seen_size / own_size)) > abs(math.log(factor)) / 4


def _scaled_before(call: Seen, given: dict[str, Array], about: dict[str, Any]) -> float | None:
    """By which factor queries or keys come scaled to the attention function; None where it makes the scale of the run,
    or is not seen."""
    array = call.array("scale")
    if array is None or "q_heads" not in given:
        return None
    scale = about["config"].get("scale") or 1 / math.sqrt(given["q_heads"].shape[-1])
    factor: float = scale / float(array.numpy())
    return None if math.isclose(factor, 1, rel_tol=1e-5) else factor


def _fit(array: Array, shape: tuple[int, ...]) -> Array | None:
    """The array with the axes of a step; None if it has others. Heads that stand side by side, (batch, token, width),
    are split where the step has them as (batch, head, token, head_dim)."""
    if len(shape) == 4 and len(array.shape) == 3 and math.prod(shape) == math.prod(array.shape):
        array = array.map(lambda a: a.reshape(shape[0], shape[2], shape[1], shape[3]).swapaxes(1, 2))
    return array if array.shape == shape else None
