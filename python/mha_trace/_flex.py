"""FlexAttention's functions of places, as the bias, the soft cap and the mask that they are."""

from __future__ import annotations

from typing import Any, Callable

from ._binary import Error

# Scores at which a function of scores is looked at.
PROBES = (0.0, 1.0, -2.0, 5.0)


def as_mask(block_mask: Any, query: Any, key: Any) -> Any:
    """The mask of a ``BlockMask``, true where a query attends: (batch, head, query, key)."""
    from torch.nn.attention.flex_attention import create_mask

    sizes = (query.shape[0], query.shape[1], query.shape[-2], key.shape[-2])
    return create_mask(block_mask.mask_mod, *sizes, device=str(query.device))


def modified(score_mod: Callable[..., Any], query: Any, key: Any) -> tuple[Any, float | None]:
    """What a ``score_mod`` adds to the scores, and the soft cap that it is; one of the two is none.

    Raises ``Error`` where it is neither.
    """
    import torch

    places = [torch.arange(size) for size in (query.shape[0], query.shape[1], query.shape[-2], key.shape[-2])]
    at = score_mod
    for axis in (3, 2, 1, 0):
        axes: list[int | None] = [None, None, None, None]
        axes[axis] = 0
        at = torch.vmap(at, in_dims=(None, *axes), out_dims=0)
    made = [at(torch.tensor(score, dtype=torch.float64), *places) for score in PROBES]
    bias = made[0]
    if all(torch.allclose(one - score, bias, rtol=1e-9, atol=1e-9) for one, score in zip(made, PROBES)):
        return bias.to(query.dtype), None
    # A function of the score alone is the same at all places.
    values = [one.flatten()[0] for one in made]
    if all(bool((one == value).all()) for one, value in zip(made, values)):
        cap = _cap([float(value) for value in values])
        if cap is not None:
            return None, cap
    raise Error(
        "error: score_mod neither adds a bias to the scores nor caps them softly, and so is not traced\n"
        "help: leave it out, or give what it adds by attn_mask"
    )


def _cap(values: list[float]) -> float | None:
    """The soft cap C of which these numbers are C·tanh(score / C)."""
    import math

    low, high = 1e-3, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if middle * math.tanh(PROBES[1] / middle) < values[1] else (low, middle)
    cap = float(f"{low:.9g}")
    fits = all(math.isclose(cap * math.tanh(score / cap), value, rel_tol=1e-6) for score, value in zip(PROBES, values))
    return cap if fits else None
