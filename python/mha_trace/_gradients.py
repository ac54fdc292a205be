"""``check_gradients``: an attention function and its backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from ._binary import Error
from ._function import record_function
from ._report import Report
from ._run import Run


def check_gradients(
    function: Callable[..., Any],
    q: Any,
    k: Any,
    v: Any,
    d_out: Any,
    *args: Any,
    settings: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Report:
    """Calls an attention function with PyTorch tensors q, k and v, runs its backward pass from ``d_out``, the gradient
    of its output, and checks both passes. All other arguments are passed to the function; ``settings`` are those of
    ``check``.

    >>> import mha_trace, torch
    >>> q, k, v, d_out = torch.randn(4, 2, 3, 5, 8)
    >>> attend = torch.nn.functional.scaled_dot_product_attention
    >>> mha_trace.check_gradients(attend, q, k, v, d_out, is_causal=True).same
    True
    """
    run = recorded_backward(function, q, k, v, d_out, *args, **kwargs)
    return run.check(**(settings or {}))


def recorded_backward(
    function: Callable[..., Any], q: Any, k: Any, v: Any, d_out: Any, *args: Any, **kwargs: Any
) -> Run:
    """Calls an attention function with copies of q, k and v, and runs its backward pass from ``d_out``."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (q, k, v)]
    run = record_function(function, *leaves, *args, **kwargs)
    out = run.result[0] if isinstance(run.result, (tuple, list)) else run.result
    if out.shape != d_out.shape:
        raise Error(
            f"error: d_out is {tuple(d_out.shape)}, and the function gives {tuple(out.shape)}\n"
            "help: give a gradient of that shape"
        )
    out.backward(d_out)
    missing = [f"d{name}" for name in "qkv" if name not in run[0].gradients]
    if missing:
        raise Error(f"error: the backward pass gives no {', '.join(missing)}\nhelp: return a gradient of q, k and v")
    return run
