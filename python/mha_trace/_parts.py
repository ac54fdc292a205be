"""What the modules between attentions get and give: embeddings, norms, MLPs, layers, and the logits."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from . import _files
from ._functions import kept
from ._parameters import EPS
from ._roles import NORMED_ROLES, is_in, is_list
from ._undone import bound, is_in_backward, replaced

# What the model itself may be called with, and tells which token stands where.
ABOUT_TOKENS = ("input_ids", "attention_mask", "position_ids", "cache_position")
# Modules that hand on what they get, or give no tokens.
LEFT_OUT = ("Dropout", "Identity", "Rotary")


class Pass:
    """One forward pass: the tensors by name, in order of execution, and what made each.

    The tensors of a part are ``PATH.in`` and ``PATH.out``; one that an earlier part gave is kept once. What made a
    tensor reads as a call: ``LlamaRMSNorm(model.layers.0.in, eps=1e-06)``.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self.made: dict[str, str] = {}
        self._known: dict[int, tuple[Any, int, str]] = {}

    def name_of(self, tensor: Any) -> str | None:
        """The name that the same tensor was kept under, if nothing has changed it since."""
        known = self._known.get(id(tensor))
        is_it = known is not None and known[0]() is tensor and known[1] == _version(tensor)
        return known[2] if known is not None and is_it else None

    def take(self, name: str, tensor: Any, made: str) -> str:
        """Keeps a tensor, unless it is known by another name already, and gives the name."""
        known = self.name_of(tensor)
        if known is not None:
            return known
        self.tensors[name] = kept(tensor)
        self.made[name] = made
        self._known[id(tensor)] = (weakref.ref(tensor), _version(tensor), name)
        return name


class Parts:
    """Watches the modules between attentions, and keeps what they get and give in each forward pass."""

    def __init__(self, modules: Mapping[str, Any], blocks: Mapping[str, str]) -> None:
        self._model = modules.get("")
        self.parts = parts_of(modules, blocks)
        self.passes: list[Pass] = []
        # The weights as they are, and as which versions they were used: nothing is copied.
        self._weights = {
            f"{path}.{name}": (tensor, _version(tensor))
            for path, module in self.parts.items()
            if path not in blocks and not is_list(path) and "Embedding" not in type(module).__name__
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]
            if tensor.dim() > 0
        }

    def start(self, undo: ExitStack) -> None:
        """Watches; ``undo`` puts all back."""
        if self._model is not None:
            replaced(self._model, "forward", self._watch_model(self._model.forward), undo)
        for path, module in self.parts.items():
            replaced(module, "forward", self._watch(path, module), undo)

    def save(self, folder: Path) -> list[Path]:
        """Writes a file for each pass: ``parts.safetensors``, ``parts.1.safetensors`` and so on."""
        same = {name: tensor for name, (tensor, version) in self._weights.items() if _version(tensor) == version}
        paths = []
        for at, one in enumerate(self.passes):
            path = folder / ("parts.safetensors" if at == 0 else f"parts.{at}.safetensors")
            steps = [{"name": name, "formula": made} for name, made in one.made.items()]
            _files.write(
                path,
                {**one.tensors, **(same if at == 0 else {})},
                {"format": "mha-trace", "version": 1, "steps": steps},
            )
            paths.append(path)
        return paths

    def _watch_model(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if not is_in_backward():
                self.passes.append(Pass())
                arguments = bound(original, args, kwargs)
                for name in ABOUT_TOKENS:
                    if hasattr(arguments.get(name), "detach") and arguments[name].dim() in (1, 2):
                        self.passes[-1].take(name, arguments[name], "given")
            result = original(*args, **kwargs)
            # A model may do something with the logits of its last layer, such as cap them.
            logits: Any = getattr(result, "logits", None)
            if not is_in_backward() and hasattr(logits, "detach") and logits.dim() > 1:
                last = next(reversed(self.passes[-1].made), None)
                self.passes[-1].take("logits", logits, _call(self._model, last))
            return result

        return forward

    def _watch(self, path: str, module: Any) -> Callable[..., Any]:
        original = module.forward

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if is_in_backward():  # recomputed by checkpointing, and seen already
                return original(*args, **kwargs)
            if not self.passes:
                self.passes.append(Pass())
            one = self.passes[-1]
            own = path if f"{path}.out" not in one.made else _again(path, one)
            got = next((value for value in [*args, *kwargs.values()] if hasattr(value, "detach")), None)
            read = None if got is None else one.take(f"{own}.in", got, "given")
            result = original(*args, **kwargs)
            made = first_tensor(result)
            if made is not None:
                one.take(f"{own}.out", made, _call(module, read))
            return result

        return forward


def parts_of(modules: Mapping[str, Any], blocks: Mapping[str, str]) -> dict[str, Any]:
    """The modules that a model with these attention blocks is made of: layers, and what stands in them and around them.

    Where norms stand in a module beside other things, as in BERT's attention, its own modules are the parts.
    """
    found = {}

    def walk(path: str, module: Any) -> None:
        for name, child in module.named_children():
            own = f"{path}.{name}" if path else name
            if any(word in type(child).__name__ for word in LEFT_OUT):
                continue
            # Of a layer that was not asked for nothing is looked into.
            holds = any(is_in(block, own) and block != own for block in blocks)
            is_outer = holds or _holds_a_norm(child)
            is_part = own in modules and type(child).__name__ not in ("ModuleList", "ModuleDict")
            if is_part and (is_list(own) or not is_outer):
                found[own] = child
            if is_outer:
                walk(own, child)

    if "" in modules:
        walk("", modules[""])
    return found


def _holds_a_norm(module: Any) -> bool:
    """Whether a norm stands in a module beside other things, but for those of queries, keys and values."""
    inner = [(name, part) for name, part in module.named_modules() if name]
    return any("Norm" in type(part).__name__ and name.rpartition(".")[2] not in NORMED_ROLES for name, part in inner)


def _call(module: Any, read: str | None) -> str:
    """What a module is, as a call: its class, what it reads, and the ε of a norm."""
    numbers = [f"eps={getattr(module, key)!r}" for key in EPS if isinstance(getattr(module, key, None), float)]
    return f"{type(module).__name__}({', '.join([*([read] if read else []), *numbers[:1]])})"


def first_tensor(result: Any) -> Any:
    """The tensor that a module gives: itself, the first of several, or of an output of transformers."""
    if isinstance(result, (tuple, list)):
        result = next(iter(result), None)
    elif hasattr(result, "to_tuple"):
        result = next(iter(result.to_tuple()), None)
    return result if hasattr(result, "detach") else None


def _again(path: str, one: Pass) -> str:
    """The name of a module that ran before in the pass, as a layer that is used several times."""
    at = 1
    while f"{path}#{at}.out" in one.made:
        at += 1
    return f"{path}#{at}"


def _version(tensor: Any) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)
