"""Copies of a model's parameters, as they were when a layer ran."""

from __future__ import annotations

from typing import Any


class Parameters:
    """The parameters of attention blocks by their whole names, copied once as long as they stay what they are."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._tensors: dict[str, dict[str, Any]] = {}
        self._copies: dict[str, tuple[Any, dict[str, Any]]] = {}

    def of(self, path: str) -> dict[str, Any]:
        """Those of the block at ``path``, and the relative biases that the layers of its stack share."""
        if path not in self._tensors:
            inside, stack = (path + "." if path else ""), path.partition(".")[0]
            self._tensors[path] = {
                name: tensor
                for name, tensor in self._model.state_dict(keep_vars=True).items()
                if name.startswith(inside) or ("relative_attention_bias" in name and name.startswith(stack))
            }
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
