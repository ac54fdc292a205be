"""How functions of a model are replaced for a while, and what their calls say."""

from __future__ import annotations

import inspect
import sys
from contextlib import ExitStack
from typing import Any, Callable


def replaced(home: Any, name: str, value: Any, undo: ExitStack) -> None:
    """Sets an attribute, and lets ``undo`` put back what was there, or nothing."""
    had = vars(home).get(name, replaced)
    setattr(home, name, value)
    if had is replaced:
        undo.callback(delattr, home, name)
    else:
        undo.callback(setattr, home, name, had)


def transformers_interface() -> Any:
    """The class of transformers by which its models get their attention functions, where transformers is in use."""
    if "transformers" not in sys.modules:
        return None
    try:
        from transformers import AttentionInterface
    except ImportError:
        return None
    return AttentionInterface if hasattr(AttentionInterface, "get_interface") else None


def bound(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name; those behind ``**kwargs`` too."""
    try:
        signature = inspect.signature(function)
        bound = signature.bind_partial(*args, **kwargs)
    except (TypeError, ValueError):
        return dict(kwargs)
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            found.update(value)
        elif kind is not inspect.Parameter.VAR_POSITIONAL:
            found[name] = value
    return found


def is_in_backward() -> bool:
    """Whether a backward pass runs, in which checkpointing computes layers again."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)
