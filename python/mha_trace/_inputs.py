"""The inputs of an attention block, of its queries and of its keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._functions import kept
from ._roles import MEMORY, isinstance_named


def apart(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the projections got, where that is not the same for queries, keys and values: positions may be added, or
    keys be of fewer places."""
    query, key, value = (given.get(role) for role in "qkv")
    if any(getattr(one, "ndim", 0) != 3 for one in (query, key, value)):
        return {}
    if _is_equal(query, key) and _is_equal(key, value):
        return {}
    found = {"x": kept(query), "memory": kept(key)}
    return found if _is_equal(key, value) else {**found, "memory_v": kept(value)}


def in_rows(seen: Mapping[str, Any]) -> dict[str, Any]:
    """The tokens of images one behind the other, where a block has them as (batch, height, width, model)."""
    x: Any = seen.get("x")
    output: Any = seen.get("output")
    if getattr(x, "ndim", 0) != 4 or getattr(output, "shape", ())[:3] != x.shape[:3]:
        return {}
    return {name: tensor.flatten(1, 2) for name, tensor in seen.items() if tensor.shape[:3] == x.shape[:3]}


def _is_equal(one: Any, other: Any) -> bool:
    return one is other or (one.shape == other.shape and bool((one == other).all()))


def inputs(module: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The input of a block, and the second one where there is one."""
    if isinstance_named(module, "MultiheadAttention"):
        return {}
    found = {}
    x = arguments.get("hidden_states", next(iter(arguments.values()), None))
    if hasattr(x, "detach"):
        found["x"] = x
    memory = next((arguments[name] for name in MEMORY if hasattr(arguments.get(name), "detach")), None)
    if memory is not None:
        found["memory"] = memory
    return found
