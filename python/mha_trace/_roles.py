"""Which modules belong to an attention layer, and as what, told by their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ._orders import NORMED

# The last part of a module's name: what its output is.
ROLES = {
    "q": ("q_proj", "query", "q_lin", "q", "wq", "W_q", "w_q", "to_q", "query_proj", "linear_q", "hook_q"),
    "k": ("k_proj", "key", "k_lin", "k", "wk", "W_k", "w_k", "to_k", "key_proj", "linear_k", "hook_k"),
    "v": ("v_proj", "value", "v_lin", "v", "wv", "W_v", "w_v", "to_v", "value_proj", "linear_v", "hook_v"),
    "q_norm": ("q_norm", "q_layernorm", "query_layernorm", "q_ln"),
    "k_norm": ("k_norm", "k_layernorm", "key_layernorm", "k_ln"),
    "v_norm": ("v_norm", "v_layernorm", "value_layernorm", "v_ln"),
    "packed": ("query_key_value", "qkv_proj", "qkv", "Wqkv", "W_pack", "c_attn", "in_proj", "qkv_linear"),
    "output": (
        "o_proj",
        "out_proj",
        "c_proj",
        "dense",
        "o",
        "wo",
        "W_o",
        "w_o",
        "out_lin",
        "proj",
        "projection",
        "projection_layer",
        "out",
        "Wo",
        "linear_out",
        "output_proj",
        "hook_attn_out",
    ),
    "q_rot": ("hook_rot_q",),
    "k_rot": ("hook_rot_k",),
    "masked_scores": ("hook_attn_scores",),
    "weights": ("hook_pattern",),
    "head_outputs": ("hook_z",),
}
ROLE_OF = {name: role for role, names in ROLES.items() for name in names}
# What norms of queries, keys and values are called.
NORMED_ROLES = tuple(name for role in NORMED for name in ROLES[role])
# One projection makes queries, keys and values: what it gives is no step, and tells where heads stand in it.
PACKED = "packed"
# The methods of modules that make biases of their scores, (batch · head, query, key).
BIASES = ("disentangled_attention_bias",)
# What the parameters of a forward function that takes the second input are called.
MEMORY = ("key_value_states", "encoder_hidden_states", "cross_attention_states")


def is_attention(module: Any) -> bool:
    """Whether a module's class is called attention."""
    return re.search(r"attention|attn", type(module).__name__, re.IGNORECASE) is not None


def isinstance_named(module: Any, name: str) -> bool:
    """Whether a class of that name of torch's is among its classes."""
    return any(kind.__name__ == name and kind.__module__.startswith("torch.") for kind in type(module).__mro__)


def numbers(path: str) -> list[int]:
    """The numbers among the parts of a module's path: ``model.layers.3.self_attn`` has 3."""
    return [int(part) for part in path.split(".") if part.isdigit()]


def layer_of(path: str, module: Any = None) -> int | None:
    """The layer that a module stands in, as the module or else its path says it."""
    said = getattr(module, "layer_idx", None)
    if isinstance(said, int) and not isinstance(said, bool):
        return said
    return next(iter(numbers(path)), None)


def roles(block: str, module: Any) -> Iterator[tuple[str, Any, str]]:
    """Path, module and role of everything in an attention block whose output is a step of it."""
    for name, part in module.named_modules():
        parts = name.split(".")
        # to_out.0 is a projection in front of a dropout; BERT's projection is output.dense.
        last = "out_proj" if parts[-2:] == ["to_out", "0"] else parts[-1]
        last = parts[-2] if last == "linear" and len(parts) > 1 else last
        role = ROLE_OF.get(last)
        # A norm may be made of one for every head.
        if role and name and (role in NORMED or not list(part.children())):
            yield f"{block}.{name}" if block else name, part, role


def is_called(path: str, module: Any, name: str) -> bool:
    """Whether a module is called so, by its class or by the last part of its path."""
    return bool(name) and name in (type(module).__name__, path.rpartition(".")[2])


def alike(modules: dict[str, Any]) -> list[str]:
    """The innermost modules that have the projections of an attention, and neither are called one nor hold one."""
    found = []
    named = [path for path, module in modules.items() if is_attention(module)]
    others = {path: module for path, module in modules.items() if not any(is_in(one, path) for one in named)}
    for path, module in others.items():
        names = {role: name for name, _, role in roles("", module)}
        has_all = {"q", "k", "v", "output"} <= names.keys() or names.get(PACKED, "in_proj") != "in_proj"
        if has_all and "output" in names and not is_attention(module):
            found.append(path)
    return [path for path in found if not any(is_in(other, path) for other in found if other != path)]


def blocks(modules: dict[str, Any], named: str = "") -> dict[str, str]:
    """The paths of the attention blocks, each with the module in it that gets the layer's input.

    A block is an innermost attention module, or, where this has no output projection, the attention module around it
    that has one, as BERT's; and so is a module that is called as ``named`` says. The input is that of the innermost one
    if it makes the queries: a norm may stand before it.
    """
    paths = [path for path, module in modules.items() if is_attention(module) or is_called(path, module, named)]
    inside = {path: [other for other in paths if other != path and is_in(other, path)] for path in paths}
    found = {}
    for path in (path for path in paths if not inside[path]):
        around = path
        for parent in (parent for parent in reversed(paths) if is_in(path, parent) and parent != path):
            if has_output(modules[around]) or len([one for one in inside[parent] if not inside[one]]) > 1:
                break
            around = parent
        block = around if has_output(modules[around]) else path
        makes_queries = any(role == "q" for _, _, role in roles("", modules[path]))
        found[block] = path if makes_queries else block
    return found


def has_output(module: Any) -> bool:
    """Whether an output projection is in a module, or is the whole of what it does."""
    return isinstance_named(module, "MultiheadAttention") or any(role == "output" for _, _, role in roles("", module))


def is_in(path: str, around: str) -> bool:
    """Whether a module stands in the one at a path."""
    return around == "" or path.startswith(around + ".")


def is_list(path: str) -> bool:
    """Whether a module is one of a list, as the layers of a model are."""
    return path.rpartition(".")[2].isdigit()


def config_of(ancestors: list[Any]) -> dict[str, Any] | None:
    """The config of the last of these modules that has one of transformers, as its ``config.json`` says it."""
    for module in reversed(ancestors):
        config: Any = getattr(module, "config", None)
        if hasattr(config, "to_dict") and getattr(config, "model_type", None):
            said: dict[str, Any] = config.to_dict()
            return said
    return None
