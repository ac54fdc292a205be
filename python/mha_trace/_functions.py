"""Calls of attention functions as the steps that they are."""

from __future__ import annotations

import inspect
from typing import Any

from . import _flex
from ._arrays import as_array
from ._binary import Error
from ._call import Call
from ._roles import MEMORY
from ._seen import UNSEEN

SDPA = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


def bound_names(function: Any) -> tuple[str, ...]:
    """What a function of torch calls its arguments, in order; some tell nobody."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return SDPA


def default_of(function: Any, name: str) -> dict[str, Any]:
    """An argument of a function by name, with its default; nothing where it has none of that name."""
    try:
        found = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):
        return {}
    return {} if found is None else {name: found.default}


def sdpa_call(arguments: dict[str, Any], result: Any) -> Call:
    """A call of ``scaled_dot_product_attention``."""
    return attention_call("scaled_dot_product_attention", arguments, result)


def attention_call(name: str, arguments: dict[str, Any], result: Any, module: Any = None) -> Call:
    """A call of ``scaled_dot_product_attention``, or of an attention function of transformers for ``module``.

    Both get q, k, v as (batch, head, token, head_dim); the first gives the heads' outputs so, the others as
    (batch, token, head, head_dim), with the weights (batch, head, query, key) behind them where they make any.
    """
    query, key, value = (kept(arguments[one]) for one in ("query", "key", "value"))
    causal_by = ""
    tensors: dict[str, Any] = {"q_heads": query, "k_heads": key, "v_heads": value}
    of_item = (lambda gradient: gradient[None]) if query.dim() == 3 else None
    live = {f"{one[0]}_heads": (arguments[one], of_item) for one in ("query", "key", "value")}
    if module is None:
        mask, is_causal, scale = (arguments.get(one) for one in ("attn_mask", "is_causal", "scale"))
        out, weights, dropout = result, None, arguments.get("dropout_p")
        live["head_outputs"] = (out, of_item)
    else:
        mask, scale = arguments.get("attention_mask"), arguments.get("scaling")
        out, weights = result if isinstance(result, tuple) else (result, None)
        given = out
        if out.dim() == 3:  # the heads side by side, which their models take, too
            out = out.reshape(*out.shape[:2], query.shape[1], -1)
        shape = out.shape
        live["head_outputs"] = (given, lambda gradient: gradient.reshape(shape).transpose(1, 2))
        out, dropout = out.transpose(1, 2), arguments.get("dropout")
        said = arguments.get("is_causal")
        own, kind = getattr(module, "is_causal", None), type(module).__name__
        # Eager functions go by the mask alone, and single queries see all.
        goes_by_it = mask is None and name != "eager" and query.shape[2] > 1
        is_causal = goes_by_it and bool(getattr(module, "is_causal", True) if said is None else said)
        if goes_by_it and said is not None:
            causal_by = f"{kind} calls it with is_causal={said}"
        elif goes_by_it:
            causal_by = f"{kind} has is_causal={own}" if own is not None else f"{kind} has none, which stands for true"
    # FlashAttention is told by two axes which keys are no padding; elsewhere masks broadcast from the right.
    is_told = module is not None and name not in ("eager", "sdpa")
    if mask is not None and is_told and getattr(mask, "ndim", 0) == 2:
        mask = mask[:, None, None, :].bool()
    mask = _mask(mask, arguments.get("position_bias"), query, key)
    if query.dim() == 3:  # of one item
        tensors = {name: tensor[None] for name, tensor in tensors.items()}
        out = out[None]
    if mask is not None:
        tensors["attn_mask"] = mask
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    tensors["scale"] = _scalar(scale)
    if arguments.get("softcap") is not None:
        tensors["softcap"] = _scalar(arguments["softcap"])
    if is_causal or mask is None:
        tensors["is_causal"] = _scalar(bool(is_causal))
    if hasattr(arguments.get("s_aux"), "detach"):
        tensors["sinks"] = kept(arguments["s_aux"]).flatten()
    if hasattr(weights, "detach") and not ("sinks" in tensors and _sum_to_one(weights)):
        tensors["weights"] = kept(weights)
        live["weights"] = (weights, None)
    tensors["head_outputs"] = kept(out)
    return Call("", None, 0, name, tensors, dropout=float(dropout or 0), live=live, causal_by=causal_by)


def _mask(mask: Any, bias: Any, query: Any, key: Any) -> Any:
    """The mask of a call as a tensor that broadcasts to (batch, head, query, key), the position biases added."""
    import torch

    if mask is not None and not hasattr(mask, "detach"):
        if not hasattr(mask, "mask_mod"):
            raise Error(f"error: a mask of type {type(mask).__name__} is not known")
        mask = _flex.as_mask(mask, query, key)
    if mask is not None:
        mask = kept(mask)[..., : key.shape[-2]]
        mask = mask[None] if mask.dim() == 3 else mask
    if bias is None:
        return mask
    bias = kept(bias)
    if mask is None:
        return bias
    return torch.where(mask, bias, torch.finfo(bias.dtype).min) if mask.dtype == torch.bool else bias + mask


def module_call(module: Any, arguments: dict[str, Any], result: Any) -> Call:
    """A call of ``nn.MultiheadAttention``, as the settings and tensors that say the same."""
    own = {
        "num_heads": module.num_heads,
        "add_zero_attn": module.add_zero_attn,
        "dropout_p": module.dropout,
        "training": module.training,
    }
    return _torch_call("nn.MultiheadAttention", {**arguments, **own}, result, module.batch_first)


def joined_call(arguments: dict[str, Any], result: Any) -> Call:
    """A call of ``F.multi_head_attention_forward``, with the parameters that it got."""
    call = _torch_call("multi_head_attention_forward", arguments, result, False)
    is_apart = arguments.get("use_separate_proj_weight")
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight") if is_apart else ("in_proj_weight",)
    parameters = {name: arguments.get(name) for name in (*names, "in_proj_bias", "bias_k", "bias_v")}
    parameters |= {f"out_proj.{name}": arguments.get(f"out_proj_{name}") for name in ("weight", "bias")}
    call.parameters = {name: kept(value) for name, value in parameters.items() if value is not None}
    return call


def _torch_call(name: str, arguments: dict[str, Any], result: Any, batch_first: bool) -> Call:
    import torch

    (output, weights), heads = result, arguments["num_heads"]

    def batched(tensor: Any) -> Any:
        tensor = kept(tensor)
        if tensor.dim() == 2:
            return tensor[None]
        return tensor if batch_first else tensor.transpose(0, 1).contiguous()

    x, memory, value = (batched(arguments[one]) for one in ("query", "key", "value"))
    tensors = {"x": x, "output": batched(output)}
    live = {"output": (output, batched)}
    if arguments["key"] is arguments["query"] or not torch.equal(memory, x):
        live["x"] = (arguments["query"], batched)
    is_apart = not torch.equal(memory, value)
    if is_apart or not torch.equal(memory, x):
        tensors["memory"] = memory
    if is_apart:
        tensors["memory_v"] = value
        live["memory_v"] = (arguments["value"], batched)
    if "memory" in tensors and (is_apart or arguments["key"] is arguments["value"]):
        live["memory"] = (arguments["key"], batched)
    settings = {"heads": str(heads), "mask-fill": "-inf"}
    if arguments.get("add_zero_attn"):
        settings["add-zero-attn"] = ""
    tokens, keys = x.shape[1], memory.shape[1]
    mask = _allowed(arguments.get("attn_mask"))
    padding = _allowed(arguments.get("key_padding_mask"))
    parts = []
    if mask is not None:
        parts.append(mask if mask.dim() == 2 else mask.reshape(-1, heads, tokens, keys))
    if padding is not None:
        parts.append(padding.reshape(-1, 1, 1, keys))
    if parts:
        tensors["attn_mask"] = _both(*parts) if len(parts) == 2 else parts[0]
    settings["mask"] = "recorded" if parts else "none"
    if weights is not None:
        is_mean = arguments.get("average_attn_weights", True) is not False
        axes = 3 if is_mean else 4
        tensors["weights_mean" if is_mean else "weights"] = kept(weights if weights.dim() == axes else weights[None])
        if is_mean:
            settings["mean-weights"] = ""
    dropout = arguments["dropout_p"] if arguments.get("training") else 0.0
    return Call("", None, 0, name, tensors, settings=settings, dropout=dropout, live=live)


def unseen_call(arguments: dict[str, Any], layer: Any, crosses: bool) -> Call:
    """A call of a module that does its own arithmetic: its mask, and what is in its cache of transformers after it,
    (batch, head, token, head_dim), unless its keys are of a second input."""
    mask, tensors = arguments.get("attention_mask"), {}
    if getattr(mask, "ndim", 0) == 4:
        tensors["attn_mask"] = attended(kept(mask))
    # In XLM true where a key is seen: (batch, key).
    x: Any = next(iter(arguments.values()), None)
    keys: Any = arguments.get("mask")
    is_of_keys = getattr(keys, "ndim", 0) == 2 and not keys.is_floating_point()
    if is_of_keys and getattr(x, "ndim", 0) == 3 and keys.shape == x.shape[:2]:
        tensors["attn_mask"] = kept(keys)[:, None, None].bool()
    cache = next((value for value in arguments.values() if hasattr(value, "get_seq_length")), None)
    crosses = crosses or any(arguments.get(name) is not None for name in MEMORY)
    if cache is not None and not crosses:
        slots = getattr(cache, "self_attention_cache", cache).layers[layer]
        # A cache that the module leaves alone holds nothing.
        if slots.keys is not None:
            tensors |= {"k_heads": kept(slots.keys), "v_heads": kept(slots.values)}
    return Call("", None, 0, UNSEEN, tensors)


def _allowed(mask: Any) -> Any:
    """A mask of ``nn.MultiheadAttention``, where true blocks, as one where true attends; floats as they are."""
    if mask is None:
        return None
    mask = kept(mask)
    return ~mask if mask.dtype.is_floating_point is False else mask


def _both(left: Any, right: Any) -> Any:
    """Two masks as one."""
    import torch

    if left.dtype == torch.bool and right.dtype == torch.bool:
        return left & right
    floats = [
        one if one.is_floating_point() else torch.zeros(one.shape).masked_fill(~one, -torch.inf)
        for one in (left, right)
    ]
    return floats[0] + floats[1]


def _sum_to_one(weights: Any) -> bool:
    """Whether the keys have all of the weight, as where sinks come in behind the weights (Granite)."""
    return bool(((weights.float().sum(-1) - 1).abs() < 1e-2).all())


def kept(tensor: Any) -> Any:
    """A copy on the CPU, of which nothing that happens later is seen."""
    return tensor.detach().to("cpu", copy=True)


def _scalar(value: Any) -> Any:
    return as_array(float(value))


def attended(mask: Any) -> Any:
    """A mask of which nothing says what true means, as one where it is to attend: tokens see themselves."""
    if not mask.is_floating_point() and mask.shape[-1] == mask.shape[-2]:
        seen = mask.diagonal(dim1=-2, dim2=-1).bool()
        return mask.bool() if seen.float().mean() > 0.5 else ~mask.bool()
    return mask
