"""What was seen of one call of an attention: what went in and what came out."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._arrays import Array, as_array

# What the core's file holds, by the names of the format.
CORE = (
    "q_heads",
    "k_heads",
    "v_heads",
    "attn_mask",
    "scale",
    "softcap",
    "is_causal",
    "sinks",
    "scores",
    "masked_scores",
    "weights",
    "head_outputs",
    "lse",
)
# The function of a call of which only the module was seen.
UNSEEN = "unseen"


@dataclass
class Seen:
    """What was seen of one call of an attention layer or function.

    ``tensors`` holds what was seen, by the names of the steps: ``x`` (batch, query, model), ``q_heads``, ``k_heads``,
    ``v_heads`` (batch, head, token, head_dim) as the attention function got them, ``attn_mask``, ``weights``
    (batch, head, query, key), ``head_outputs``, ``output``. ``index`` counts the calls of the same module.
    """

    path: str
    layer: int | None
    index: int
    function: str
    tensors: dict[str, Any] = field(repr=False)
    prefix: str = ""
    configs: list[dict[str, Any]] = field(default_factory=list, repr=False)
    parameters: dict[str, Any] = field(default_factory=dict, repr=False)
    positions: Any = field(default=None, repr=False)
    # Whether the model made its positions itself, and nobody called it with them.
    positions_are_own: bool = True
    # What its modules hold that its config says, too, and where they differ from it.
    own_numbers: dict[str, Any] = field(default_factory=dict, repr=False)
    differences: list[str] = field(default_factory=list, repr=False)
    # The biases that its modules lack though the config says them, and their shapes.
    lacks: dict[str, list[int]] = field(default_factory=dict, repr=False)
    dropout: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    # The gradients of tensors, by their names, where they were asked for and a backward pass came through.
    gradients: MutableMapping[str, Any] = field(default_factory=dict, repr=False)
    has_backward: bool = False
    # Tensors of the graph whose gradients are these, and what makes the documented order of axes of them.
    live: dict[str, tuple[Any, Any]] = field(default_factory=dict, repr=False)
    problem: str = ""
    # The core, by the products and the softmax that ran, where the module does its own arithmetic, and why some of what
    # ran is none.
    arithmetic: dict[str, Any] = field(default_factory=dict, repr=False)
    no_core: str = ""
    # Why the function of transformers took it as causal or not, where it got no mask.
    causal_by: str = ""
    # Whether its keys came from elsewhere: it made its queries, and neither of its inputs went through its projection
    # of keys.
    is_borrowed: bool = False
    # Whether other layers read its keys, so that more comes back to them than it gives.
    lends: bool = False

    @property
    def name(self) -> str:
        """What its file is called: the path of the module, and the number of the call where there are more."""
        path = self.path.replace("/", "_") or "attention"
        return path if self.index == 0 else f"{path}.{self.index}"

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """A recorded tensor as a NumPy array; bf16 as float32."""
        if name not in self:
            raise KeyError(f"{name} was not recorded; recorded: {', '.join(self)}")
        return as_array(self._all()[name], name).numpy()

    def _all(self) -> Mapping[str, Any]:
        return ChainMap(self.arithmetic, self.tensors)

    def __iter__(self) -> Iterator[str]:
        """The names of what was recorded, so that ``dict(run[0])`` holds it all."""
        return iter(self._all())

    def __contains__(self, name: object) -> bool:
        return name in self._all()

    def keys(self) -> list[str]:
        """The names of what was recorded."""
        return list(self._all())

    def items(self) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """What was recorded, by name, as NumPy arrays."""
        return ((name, self[name]) for name in self)

    def array(self, name: str) -> Array | None:
        """A recorded tensor in its own type."""
        return as_array(self.tensors[name], name) if name in self.tensors else None

    def is_unknown(self) -> bool:
        """Whether it is of a module that does its own arithmetic and belongs to no model with a config: the settings of
        a check can say what it does."""
        is_told = self.configs or self.settings or self.is_borrowed
        if self.arithmetic and "output" not in self.tensors:
            return False
        return "x" in self.tensors and not is_told and not {"q_heads", "k_heads"} & self.tensors.keys()

    def core(self) -> dict[str, Array]:
        """What the attention function got and gave.

        Queries, keys and values have one width in a file; where values have another one, zeros fill up what is
        narrower, which changes no score and no output.
        """
        seen = self.arithmetic or self.tensors
        if "x" not in self.tensors:
            found = {name: as_array(tensor, name) for name, tensor in seen.items()}
        else:
            found = {name: as_array(seen[name], name) for name in CORE if name in seen}
        end = "head_outputs" if "q_heads" in found else "out"
        if end in self.gradients:
            own = {f"d_{name}": self.gradients[name] for name in list(found) if name in self.gradients}
            found.update(own)
        if "q_heads" in found and "scale" in found:
            heads = ("q_heads", "k_heads", "v_heads", "head_outputs")
            most = max(found[name].shape[-1] for name in heads)
            padded = [own for head in heads for own in (head, f"d_{head}") if own in found]
            for name in padded:
                more = [(0, 0)] * 3 + [(0, most - found[name].shape[-1])]
                found[name] = found[name].map(lambda a, more=more: np.pad(a, more))
        return found
