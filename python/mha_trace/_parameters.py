"""Copies of a model's parameters, as they were when a layer ran."""

from __future__ import annotations

from typing import Any

TABLE = "relative_position_bias_table"


class Parameters:
    """The parameters of attention blocks by their whole names, copied once as long as they stay what they are."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._tensors: dict[str, dict[str, Any]] = {}
        self._copies: dict[str, tuple[Any, dict[str, Any]]] = {}

    def of(self, path: str) -> dict[str, Any]:
        """Those of the block at ``path``, and the biases of relative positions, which may stand outside of it."""
        if path not in self._tensors:
            inside, stack = (path + "." if path else ""), path.partition(".")[0]
            everything = self._model.state_dict(keep_vars=True)
            found = {
                name: tensor
                for name, tensor in everything.items()
                if name.startswith(inside) or ("relative_attention_bias" in name and name.startswith(stack))
            }
            # Beside the block, or one for all: the next one is the block's.
            tables = [name for name in everything if name.endswith(TABLE)]
            if tables and not any(name.endswith(TABLE) for name in found):
                found[inside + TABLE] = everything[max(tables, key=lambda name: _shared(name, path))]
            self._tensors[path] = found
        tensors = {name: tensor for name, tensor in self._tensors[path].items() if not tensor.is_meta}
        # An optimiser's step makes another version of a tensor.
        version = [(id(tensor), 0 if tensor.is_inference() else tensor._version) for tensor in tensors.values()]
        if path not in self._copies or self._copies[path][0] != version:
            copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
            self._copies[path] = (version, copies)
        return self._copies[path][1]

    def forget(self) -> None:
        """Lets go of the model."""
        self._model = None
        self._tensors.clear()
        self._copies.clear()


def _shared(name: str, path: str) -> int:
    """How many parts of two names are the same from the start."""
    pairs = list(zip(name.split("."), path.split(".")))
    return next((at for at, (one, other) in enumerate(pairs) if one != other), len(pairs))
