"""The gradients of what is recorded, kept as a backward pass gives them."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Callable

from ._arrays import as_array


def needs_gradient(value: Any) -> bool:
    """Whether it is a tensor that a backward pass will come through."""
    return bool(getattr(value, "requires_grad", False)) and hasattr(value, "register_hook")


def keep_gradient(
    gradients: MutableMapping[str, Any], name: str, tensor: Any, change: Callable[[Any], Any] | None = None
) -> Callable[[], None]:
    """Puts the gradient of a tensor among others once it is there, as ``change`` makes it; gives what ends it."""
    if not needs_gradient(tensor):
        return lambda: None

    def keep(gradient: Any) -> None:
        gradients[name] = as_array((change(gradient) if change else gradient).detach().to("cpu", copy=True), name)

    end: Callable[[], None] = tensor.register_hook(keep).remove
    return end


def own_tensors(args: tuple[Any, ...], kwargs: dict[str, Any], *, each: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as tensors of their own, whose gradients are those of this call alone. What is one tensor stays
    one, unless ``each`` argument is to have its own."""
    known: dict[int, Any] = {}

    def own(value: Any) -> Any:
        if not needs_gradient(value) or type(value).__name__ == "Parameter":
            return value
        if each:
            return value.view_as(value)
        return known.setdefault(id(value), value.view_as(value))

    return tuple(map(own, args)), {name: own(value) for name, value in kwargs.items()}
