"""What the mask of a call says."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._arrays import Array, as_array
from ._seen import Seen

# What is added to scores that are blocked is this low at least.
LOW = -1e4


def hidden_keys(call: Seen) -> np.ndarray[Any, Any] | None:
    """Which keys no query of an item sees, (batch, key), if there are any: those of padding."""
    mask = call.array("attn_mask")
    if mask is None or len(mask.shape) != 4 or call.settings:
        return None
    numbers: Any = mask.numpy()
    # The masks of 16-bit models add so much, and others far less; no bias of a key is as low for all queries.
    blocked = ~numbers if mask.code == "BOOL" else numbers <= LOW
    hidden: Any = np.all(blocked, axis=(1, 2))
    return hidden if hidden.any() else None


def images(call: Seen) -> Array | None:
    """The mask of a layer in a model of images that shows the tokens of an image, or of a prefix, to each other, as the
    model makes it itself: true where a query attends."""
    mask = call.array("attn_mask")
    has_images = any(isinstance(config.get("vision_config"), dict) for config in call.configs)
    if not has_images or mask is None or len(mask.shape) != 4 or mask.shape[-1] != mask.shape[-2]:
        return None
    numbers: Any = mask.numpy()
    seen = numbers if mask.code == "BOOL" else numbers > LOW
    is_it = np.triu(seen, 1).any() and all(_shows_blocks(item) for items in seen for item in items)
    return as_array(seen) if is_it else None


def _shows_blocks(seen: np.ndarray[Any, Any]) -> bool:
    """Whether the later keys that queries see are those to the end of a block of tokens, the same for all of it."""
    start = 0
    while start < len(seen):
        end = int(np.flatnonzero(seen[start]).max(initial=start)) + 1
        later = np.triu(np.ones((end - start,) * 2, bool))
        is_block = seen[start:end, start:end][later].all() and not seen[start:end, end:].any()
        # A row of padding sees nothing.
        if not is_block and seen[start].any():
            return False
        start = end
    return True
