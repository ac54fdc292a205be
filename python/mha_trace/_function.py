"""``record_function``: a function of q, k and v."""

from __future__ import annotations

from typing import Any, Callable

from . import _flex
from ._arrays import Array, as_array, is_array
from ._backward import keep_gradient, needs_gradient, own_tensors
from ._binary import Error
from ._call import Call
from ._run import Run
from ._undone import bound

# What functions call their other arguments, and the format.
NAMES = {
    "attn_mask": ("attn_mask", "mask", "attention_mask"),
    "scale": ("scale", "softmax_scale", "sm_scale", "scaling"),
    "softcap": ("softcap", "logits_soft_cap"),
    "is_causal": ("is_causal", "causal"),
    "sinks": ("sinks", "s_aux"),
}
NAME_OF = {name: ours for ours, names in NAMES.items() for name in names}


def record_function(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Run:
    """Calls an attention function of q, k and v, and records its inputs and outputs.

    The first three arguments are q, k, v: (batch, head, token, head_dim), or (batch, token, head, head_dim) if that
    gives the recorded numbers. Of the other arguments, these are recorded: ``attn_mask`` (true where a query attends,
    or floats to add), ``scale``, ``softcap``, ``is_causal``, ``sinks``, and FlexAttention's ``score_mod`` and
    ``block_mask``, as the bias, the soft cap and the mask that they stand for. The function must return the outputs of
    the heads, alone or first in a tuple; ``run.result`` is what it returned. If q, k or v require gradients, the
    gradients of a backward pass through ``run.result`` are recorded and checked too.

    >>> import mha_trace, torch
    >>> q, k, v = torch.randn(3, 2, 3, 5, 8)
    >>> run = mha_trace.record_function(torch.nn.functional.scaled_dot_product_attention, q, k, v, is_causal=True)
    >>> run.check().same
    True
    """
    named = bound(function, args, kwargs)
    inputs = [*args[:3], *list(named.values())[len(args) : 3]]
    if len(inputs) < 3 or not all(is_array(value) for value in inputs):
        raise Error("error: the function was not called with three arrays: q, k and v")
    tensors = {name: _copy(value) for name, value in zip(("q", "k", "v"), inputs)}
    for name, value in {**kwargs, **named}.items():
        ours = NAME_OF.get(name)
        if ours is None or value is None or value is False:
            continue
        tensors[ours] = _copy(value) if is_array(value) else as_array(float(value), name)
    tensors.update(_of_places({**kwargs, **named}, *inputs[:2]))
    gradients: dict[str, Any] = {}
    if any(map(needs_gradient, inputs)):
        args, kwargs = own_tensors(args, kwargs, each=True)
        named = bound(function, args, kwargs)
        inputs = [*args[:3], *list(named.values())[len(args) : 3]]
        for name, value in zip(("q", "k", "v"), inputs):
            keep_gradient(gradients, name, value)
    result = function(*args, **kwargs)
    out = result[0] if isinstance(result, (tuple, list)) else result
    name = getattr(function, "__name__", type(function).__name__)
    if not is_array(out):
        raise Error(f"error: {name} gave {type(out).__name__}\nhelp: it is to give the heads' outputs, alone or first")
    tensors["out"] = _copy(out)
    keep_gradient(gradients, "out", out)
    return Run([Call(name, None, 0, name, tensors, gradients=gradients)], result=result)


def _of_places(arguments: dict[str, Any], query: Any, key: Any) -> dict[str, Array]:
    """FlexAttention's functions of places, as a mask, a bias or a soft cap."""
    block_mask, score_mod = arguments.get("block_mask"), arguments.get("score_mod")
    found: dict[str, Any] = {}
    mask = _flex.as_mask(block_mask, query, key) if block_mask is not None else None
    bias, cap = _flex.modified(score_mod, query, key) if score_mod is not None else (None, None)
    if cap is not None:
        found["softcap"] = as_array(cap)
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    return found if mask is None else {**found, "attn_mask": _copy(mask)}


def _copy(value: Any) -> Array:
    return as_array(value).map(lambda data: data.copy())
