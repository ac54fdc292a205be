"""The core of a module that does its own arithmetic: told by the products and the softmax that run in it."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Union

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode

from ._arrays import as_array
from ._backward import own_tensors
from ._call import Call
from ._functions import kept
from ._products import PRODUCTS, Operand, outputs_of, scores_of
from ._seen import UNSEEN

# By the names of functions and methods of torch, in place or not: these leave numbers and their order as they are.
SAME: tuple[str, ...] = ("view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten")
SAME += ("float", "half", "bfloat16", "double", "to", "type", "type_as", "contiguous", "clone", "detach")
# What modules call the number of their heads.
HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads")
# How far scores may be from what was seen of them, relative to the largest, to be these: products in half precision
# are off by less.
CLOSE = 1e-2
# Scores as low as that are masked.
MASKED = -1e4


@dataclass(frozen=True)
class Scores:
    """Products of queries and keys, each by a factor, with something added: (..., query, key)."""

    products: tuple[tuple[Operand, Operand, Any], ...]
    shape: tuple[int, ...]
    bias: Any = None

    def linear(self) -> Any:
        """The products alone."""
        return sum(q.arranged() @ k.arranged().mT * factor for q, k, factor in self.products)

    def times(self, factor: Any) -> Scores:
        """By a number, or by a tensor that has one for all keys, in the scores' own order of axes."""
        products = tuple((q, k, own * factor) for q, k, own in self.products)
        return replace(self, products=products, bias=None if self.bias is None else self.bias * factor)

    def plus(self, other: Any, like: Any) -> Scores:
        """With a number or a tensor added that broadcasts to the tensor that came out."""
        more = torch.as_tensor(other, device=like.device).detach().expand(like.shape).reshape(self.shape)
        return replace(self, bias=more.clone() if self.bias is None else self.bias + more)

    def filled(self, mask: Any, value: Any, like: Any) -> Scores:
        """With other numbers where a mask is true."""
        mask, value = (
            torch.as_tensor(one, device=like.device).detach().expand(like.shape).reshape(self.shape)
            for one in (mask, value)
        )
        linear = self.linear()
        bias = torch.zeros_like(linear) if self.bias is None else self.bias
        return replace(self, bias=torch.where(mask.bool(), value - linear, bias))


@dataclass(frozen=True)
class Weights:
    """The softmax of scores, and the dropout that came over it."""

    scores: Scores
    dropout: float = 0.0


@dataclass(frozen=True)
class Lost:
    """Made of scores or of weights by a function that is no part of a core."""

    of: str
    by: str


@dataclass(frozen=True)
class Other:
    """Anything else."""


State = Union[Scores, Weights, Lost, Other, None]


class Arithmetic(TorchFunctionMode):  # type: ignore[misc]
    """Watches what runs in a module, and makes a call of each core: softmax(q · kᵀ · scale + bias) · v."""

    def __init__(self, module: Any, has_backward: bool) -> None:
        super().__init__()
        self.cores: list[Call] = []
        # Why some of what ran is no core.
        self.problem = ""
        self._heads = next((n for name in HEADS if isinstance(n := getattr(module, name, None), int) and n > 0), 1)
        self._has_backward = has_backward
        self._states: dict[int, tuple[Any, State]] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(function, "__name__", "").strip("_")
        # A compiled function would compile this, too.
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        states = [self._state(one) for one in args]
        inner = [self._state(one) for some in args if isinstance(some, (tuple, list)) for one in some]
        known = [state for state in [*states, *inner] if state and not isinstance(state, Other)]
        if not known and name not in PRODUCTS and name != "softmax":
            return function(*args, **kwargs)
        if self._has_backward and name in PRODUCTS:
            args, _ = own_tensors(args, {}, each=True)
        result = function(*args, **kwargs)
        made = [*(result if isinstance(result, (tuple, list)) else [result]), *(args[:1] if name == "setitem" else [])]
        made = [one for one in made if isinstance(one, torch.Tensor)]
        if not made:
            return result
        # What cannot be read is told when it is checked: the model runs on.
        try:
            with torch.no_grad():
                state = self._made(name, args, kwargs, states, made[0])
        except Exception as error:
            state, self.problem = None, f"{name} cannot be read: {error!r}"
        if state is None and known:
            lost = next((one for one in known if isinstance(one, Lost)), None)
            state = lost or Lost("weights" if isinstance(known[0], Weights) else "scores", name)
        for tensor in made:
            self._states[id(tensor)] = (weakref.ref(tensor), state)
        return result

    def _state(self, value: Any) -> State:
        found = self._states.get(id(value))
        return found[1] if found is not None and found[0]() is value else None

    def _made(self, name: str, args: Any, kwargs: Any, states: list[State], result: Any) -> State:
        """What a function gave; none where it belongs to no core."""
        first = states[0] if states else None
        if name in PRODUCTS:
            return self._product(name, args, states, result)
        if name in SAME or (name == "getitem" and _is_whole(args[1])):
            return first
        if name == "softmax":
            return self._softmax(args[0], kwargs.get("dim", args[1] if len(args) > 1 else None), first)
        if name == "dropout":
            p, training = kwargs.get("p", [*args, 0.5][1]), kwargs.get("training", [*args, 0, True][2])
            is_at_work = bool(training and p)
            return first if not is_at_work else replace(first, dropout=p) if isinstance(first, Weights) else None
        if name == "masked_fill" and isinstance(first, Weights):
            return None if torch.as_tensor(args[2]).any() else first
        return _moved(name, args, kwargs, states, result)

    def _softmax(self, given: Any, dim: Any, state: State) -> State:
        if not isinstance(state, Scores):
            lost = state if isinstance(state, Lost) and state.of == "scores" else None
            made = f"go through {lost.by}" if lost else "are no product of queries and keys"
            self.problem = f"its scores {made} before the softmax"
            return None
        if dim not in (-1, given.dim() - 1) or given.shape[-2:] != state.shape[-2:]:
            self.problem = "its softmax is not over keys"
            return None
        seen, own = given.detach().reshape(state.shape), state.linear()
        own = own if state.bias is None else own + state.bias
        is_masked = ~(seen > MASKED)
        largest = seen.masked_fill(is_masked, 0).abs().amax() if seen.numel() else 0
        apart = torch.where(is_masked, own > MASKED, ~((seen - own).abs() <= CLOSE * largest))
        if apart.any():
            self.problem = "its scores are not what its products and what is added to them make"
            return None
        return Weights(state)

    def _product(self, name: str, args: Any, states: list[State], result: Any) -> State:
        first = states[1 if name == "einsum" and len(states) > 1 else 0]
        if isinstance(first, Lost) and first.of == "weights":
            self.problem = f"its weights go through {first.by} before they meet the values"
        if isinstance(first, Weights):
            found = outputs_of(name, args, result)
            weights = args[1] if name == "einsum" else args[0]
            if found is None or weights.shape[-2:] != first.scores.shape[-2:]:
                self.problem = "its weights and values are multiplied along other axes"
            else:
                self._keep(first, weights, *found)
            return Other()
        found = scores_of(name, args, result)
        return Other() if found is None else Scores(((*found, 1.0),), tuple(result.shape))

    def _keep(self, state: Weights, weights: Any, values: Operand, outputs: Operand) -> None:
        """Keeps a core."""
        lead, scores = weights.shape[:-2], state.scores
        heads = self._heads if len(lead) < 2 else lead[-1]
        form = (-1, heads if math.prod(lead) % heads == 0 else 1)

        def shaped(tensor: Any) -> Any:
            return tensor.reshape(*form, *tensor.shape[-2:])

        named = {"v_heads": values, "head_outputs": outputs}
        if len(scores.products) == 1 and isinstance(scores.products[0][2], float):
            named["q_heads"], named["k_heads"], scale = scores.products[0]
            query, key = (named[name].arranged() for name in ("q_heads", "k_heads"))
        else:
            # One product, of all features side by side.
            query = torch.cat([q.arranged() * factor for q, _, factor in scores.products], -1)
            key, scale = torch.cat([k.arranged() for _, k, _ in scores.products], -1), 1.0
        parts = {"q_heads": query, "k_heads": key, "v_heads": values.arranged(), "attn_mask": scores.bias}
        parts |= {"weights": weights, "head_outputs": outputs.arranged()}
        tensors = {name: kept(shaped(tensor)) for name, tensor in parts.items() if tensor is not None}
        tensors["scale"] = as_array(scale)
        if scores.bias is None:
            tensors["is_causal"] = as_array(0.0)
        # No gradient goes through scores that are replaced, as it does through those to which a mask is added.
        is_masked = scores.bias is not None and bool((scores.bias <= MASKED).all(-1).any())
        live = {
            name: (one.tensor, lambda gradient, one=one: shaped(one.arranged(gradient)))
            for name, one in named.items()
            if one.is_whole() and not (is_masked and name in ("q_heads", "k_heads"))
        }
        self.cores.append(Call("", None, 0, UNSEEN, tensors, dropout=state.dropout, live=live))


def _moved(name: str, args: Any, kwargs: Any, states: list[State], result: Any) -> State:
    """Scores to which something is added, by which they are multiplied, or which are replaced where a mask says it."""
    at = next((at for at, state in enumerate(states) if isinstance(state, Scores)), None)
    scores = None if at is None else states[at]
    if not isinstance(scores, Scores) or kwargs or math.prod(result.shape) != math.prod(scores.shape):
        return None
    if name == "masked_fill" and at == 0 and len(args) == 3:
        return scores.filled(args[1], args[2], result)
    if name == "where" and at and len(args) == 3:
        return scores.filled(args[0].logical_not() if at == 1 else args[0], args[3 - at], result)
    if len(args) != 2:
        return None
    other: Any = args[1] if at == 0 else args[0]
    second = states[1]
    if name == "add" and at == 0 and isinstance(second, Scores) and second.shape == scores.shape:
        joined = replace(scores, products=scores.products + second.products)
        return joined if second.bias is None else joined.plus(second.bias.reshape(result.shape), result)
    if name == "add":
        return scores if isinstance(other, (int, float)) and other == 0 else scores.plus(other, result)
    if name in ("sub", "subtract") and at == 0:
        return scores.plus(-other, result)
    factor = _factor(other, scores, result)
    if name in ("mul", "multiply") and factor is not None:
        return scores.times(factor)
    if name in ("div", "true_divide", "divide") and at == 0 and factor is not None:
        return scores.times(1 / factor)
    return None


def _factor(value: Any, scores: Scores, like: Any) -> Any:
    """A number, or a tensor of one for all keys of a row; none of what differs from key to key."""
    if not isinstance(value, torch.Tensor):
        return float(value) if isinstance(value, (int, float)) and value else None
    if value.numel() == 1:
        return float(value) or None
    if value.shape[-1] != 1 or like.shape[-1] != scores.shape[-1]:
        return None
    return value.detach().expand(*like.shape[:-1], 1).reshape(*scores.shape[:-1], 1)


def _is_whole(index: Any) -> bool:
    """Whether an index leaves all numbers where they are, and adds axes at most."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or part is Ellipsis or (isinstance(part, slice) and part == slice(None)) for part in parts)


@contextmanager
def paused() -> Iterator[None]:
    """Watches nothing for a while: attention functions are known by their arguments, and may be compiled."""
    mode: Any = _get_current_function_mode()
    if not isinstance(mode, Arithmetic):
        yield
        return
    mode.__exit__(None, None, None)
    try:
        yield
    finally:
        mode.__enter__()
