"""The order of the axes of what modules give. As sizes may coincide, it is told by what is known, or by numbers."""

from __future__ import annotations

from typing import Any

# What is normed, by the norm.
NORMED = {"q_norm": "q", "k_norm": "k", "v_norm": "v"}
# The projections and hook points that make heads give (batch, token, head, head_dim), and are steps of these names.
TOKENS_FIRST = {"q": "q_heads", "k": "k_heads", "v": "v_heads"}
TOKENS_FIRST |= {name: name for name in ("q_rot", "k_rot", "head_outputs")}


def normed_heads(result: Any, given: Any, made: Any, tokens: int) -> Any:
    """What a norm of heads gave, as (batch, head, token, head_dim); none where nothing tells which axis is which.

    ``given`` is what the norm got, ``made`` (batch, token, width) the projection's output that it was cut out of, if
    that is known. A token's heads stand side by side in its row of the projection, in front of any rotation, which
    leaves the first token of a prompt as it is, too.
    """
    readings = [(result, given), (result.transpose(1, 2), given.transpose(1, 2))]
    readings = [one for one in readings if one[0].shape[2] == tokens]
    if len(readings) == 2:
        readings = [one for one in readings if made is not None and _stands_in(one[1], made)]
    return readings[0][0] if len(readings) == 1 else None


def _stands_in(heads: Any, rows: Any) -> bool:
    """Whether the heads of the first token are parts of its row, each another one."""
    first, row = heads[0, :, 0].detach().to("cpu"), rows[0, 0].detach().to("cpu")
    if row.shape[0] % first.shape[1]:
        return False
    equal = (first[:, None] == row.reshape(-1, first.shape[1])).all(-1)
    return bool(equal.any(1).all()) and int(equal.any(0).sum()) >= len(first)
