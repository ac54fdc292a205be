"""The items of a padded batch, each by itself: their tokens are counted from behind their padding."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _layer

if TYPE_CHECKING:
    from ._call import Call

# Which axes of a tensor are tokens of the call, and which keys; the first is the batch.
QUERIES = {"x": 1, "q": 1, "k": 1, "v": 1, "concat": 1, "output": 1, "q_heads": 2, "head_outputs": 2}
NORMS = ("q_norm", "k_norm", "v_norm")
KEYS = {"k_heads": 2, "v_heads": 2}
BOTH = ("weights", "attn_mask")


def items(call: Call) -> list[Call]:
    """The call as one for every item without the padding in front of it; none where that is not what it is.

    A position is then a whole number more than that of the token before, as the settings of a run have it.
    """
    if call.positions is None or call.positions.ndim != 2 or "k_heads" not in call.tensors or "memory" in call.tensors:
        return []
    batch, tokens = call.tensors["x"].shape[:2]
    keys = call.tensors["k_heads"].shape[2]
    past, offset = _layer.past_and_offset(call, tokens)
    hidden = _layer.hidden_keys(call)
    hidden = np.zeros((batch, keys), bool) if hidden is None else hidden
    if offset is not None or hidden.shape != (batch, keys):
        return []
    positions = np.broadcast_to(np.asarray(call.positions), (batch, tokens))
    found = []
    for item, row in enumerate(hidden):
        first = int(np.argmin(row))  # the first key that is seen
        skipped = max(first - past, 0)
        if row[first:].any() or (np.diff(positions[item, skipped:]) != 1).any():
            return []
        tensors = {name: _part(name, tensor, item, skipped, first) for name, tensor in call.tensors.items()}
        found.append(replace(call, item=item, tensors=tensors, positions=positions[item : item + 1, skipped:]))
    return found


def _part(name: str, tensor: Any, item: int, skipped: int, first: int) -> Any:
    if name in QUERIES or name in NORMS:
        one = slice(item, item + 1)
        # Norms are of heads, or of all of them side by side.
        at = QUERIES.get(name, tensor.ndim - 2)
        return tensor[one, skipped:] if at == 1 else tensor[one, :, skipped:]
    if name in KEYS:
        return tensor[item : item + 1, :, first:]
    if name in BOTH:
        return tensor[item : item + 1, :, skipped:, first:]
    return tensor
