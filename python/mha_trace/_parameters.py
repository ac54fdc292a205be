"""Copies of a model's parameters, as they were when a layer ran."""

from __future__ import annotations

import inspect
from typing import Any

TABLE = "relative_position_bias_table"
# The norm of queries and what norms call their ε.
Q_NORMS = ("q_norm", "q_layernorm", "query_layernorm", "q_ln")
EPS = ("variance_epsilon", "eps", "epsilon")


class Parameters:
    """The parameters of attention blocks by their whole names, copied once as long as they stay what they are."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._tensors: dict[str, dict[str, Any]] = {}
        self._copies: dict[str, tuple[Any, dict[str, Any]]] = {}
        self._facts: dict[str, tuple[dict[str, Any], list[str], dict[str, list[int]]]] = {}
        self._rotary: dict[str, Any] | None = None

    def of(self, path: str) -> dict[str, Any]:
        """Those of the block at ``path``, and the biases of relative positions, which may stand outside of it."""
        if path not in self._tensors:
            inside, stack = (path + "." if path else ""), path.partition(".")[0]
            everything = self._model.state_dict(keep_vars=True)
            found = {
                name: tensor
                for name, tensor in everything.items()
                if name.startswith(inside) or ("relative_attention_bias" in name and name.startswith(stack))
            }
            # Beside the block, or one for all: the next one is the block's.
            tables = [name for name in everything if name.endswith(TABLE)]
            if tables and not any(name.endswith(TABLE) for name in found):
                found[inside + TABLE] = everything[max(tables, key=lambda name: _shared(name, path))]
            self._tensors[path] = found
        tensors = {name: tensor for name, tensor in self._tensors[path].items() if not tensor.is_meta}
        # An optimiser's step makes another version of a tensor.
        version = [(id(tensor), 0 if tensor.is_inference() else tensor._version) for tensor in tensors.values()]
        if path not in self._copies or self._copies[path][0] != version:
            copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
            self._copies[path] = (version, copies)
        return self._copies[path][1]

    def facts(self, path: str, block: Any) -> tuple[dict[str, Any], list[str], dict[str, list[int]]]:
        """The block's own numbers, where it differs from its config, and which biases it lacks. Models are looked
        through once."""
        if self._rotary is None:
            self._rotary = {name: part for name, part in self._model.named_modules() if is_rotary(part)}
        if path not in self._facts:
            self._facts[path] = (own_numbers(block), *differences(block))
        numbers, others, lacks = self._facts[path]
        # A model of images may turn in another part of it alone.
        above = [part for name, part in self._rotary.items() if f"{path}.".startswith(name[: name.rfind(".") + 1])]
        if len(above) == 1:
            numbers = {**numbers, "inv_freq": above[0].inv_freq.detach().to("cpu", copy=True)}
        return numbers, others, lacks

    def forget(self) -> None:
        """Lets go of the model."""
        self._model = self._rotary = None
        self._tensors.clear()
        self._copies.clear()


def _shared(name: str, path: str) -> int:
    """How many parts of two names are the same from the start."""
    pairs = list(zip(name.split("."), path.split(".")))
    return next((at for at, (one, other) in enumerate(pairs) if one != other), len(pairs))


def is_rotary(module: Any) -> bool:
    """Whether a module holds the frequencies by which a model turns."""
    return "Rotary" in type(module).__name__ and hasattr(getattr(module, "inv_freq", None), "detach")


def own_numbers(block: Any) -> dict[str, Any]:
    """What a block's modules hold that its config says, too: the ε of its norms."""
    norms = [part for name, part in block.named_modules() if name.rpartition(".")[2] in Q_NORMS]
    found = [getattr(norm, key) for norm in norms for key in EPS if isinstance(getattr(norm, key, None), float)]
    return {"qk_norm_eps": found[0]} if found else {}


def differences(block: Any) -> tuple[list[str], dict[str, list[int]]]:
    """What a block of transformers holds in another way than a new one of its config: numbers, and which parameters;
    and the shapes of biases that it lacks beside their weights."""
    import torch

    asked = inspect.signature(type(block)).parameters
    known = {name: getattr(block, name) for name in asked if hasattr(block, name)}
    # BERT's block leaves its config to the attention in it.
    config = next((part.config for part in block.modules() if hasattr(part, "config")), None)
    known = {"config": config, **known}
    others = {name: one for name, one in asked.items() if name not in known}
    is_open = any(one.default is one.empty or "bias" in name for name, one in others.items())
    if "config" not in asked or is_open:
        return [], {}
    try:
        with torch.device("meta"):
            new = type(block)(**known)
    except Exception:
        return [], {}  # It is made in another way.
    found: list[str] = []
    lacks: dict[str, list[int]] = {}
    own, other = dict(block.named_parameters()), dict(new.named_parameters())
    for name in sorted(own.keys() | other.keys()):
        shapes = [tuple(side[name].shape) if name in side else None for side in (other, own)]
        if name not in own and name.endswith("bias") and name[: -len("bias")] + "weight" in own:
            lacks[name] = list(other[name].shape)
        elif shapes[0] != shapes[1]:
            said = ["none" if shape is None else str(list(shape)) for shape in shapes]
            found.append(f"{name} is {said[1]}, and its config says {said[0]}")
    # What else it was made with is known where it holds all of it.
    if others:
        return [], lacks
    parts = dict(new.named_modules())
    for name, part in block.named_modules():
        for key, value in vars(part).items():
            is_number = isinstance(value, (int, float)) and not key.startswith("_") and key != "training"
            stated = vars(parts[name]).get(key, value) if name in parts and is_number else value
            if is_number and stated != value:
                found.append(f"{f'{name}.' if name else ''}{key} is {value}, and its config says {stated}")
    return found, lacks
