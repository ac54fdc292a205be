"""Arrays of NumPy, PyTorch, JAX and MLX as bytes with a type, bf16 among them, which NumPy does not have."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._binary import Error

# The types of safetensors, and NumPy's; bf16 is held as its bits.
CODES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "uint16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
BY_NAME = {name: code for code, name in CODES.items() if code != "BF16"}


@dataclass(frozen=True)
class Array:
    """A tensor: the type as safetensors calls it, and the numbers (of bf16 the 16 bits)."""

    code: str
    data: np.ndarray[Any, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return tuple(self.data.shape)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The numbers; bf16 as float32, which holds all of them.

        >>> Array("BF16", np.array([0x3FC0], dtype=np.uint16)).numpy().tolist()
        [1.5]
        """
        if self.code == "BF16":
            return (self.data.astype(np.uint32) << 16).view(np.float32)
        return self.data

    def map(self, change: Any) -> Array:
        """The same type with other axes: ``change`` gets and gives a NumPy array."""
        return Array(self.code, change(self.data))


def as_array(value: Any, name: str = "the array") -> Array:
    """Any array as it is: of NumPy, PyTorch (on any device, with gradients), JAX, MLX, or nested lists.

    >>> as_array([[1.0, 2.0]]).shape
    (1, 2)
    """
    if isinstance(value, Array):
        return value
    module = type(value).__module__.partition(".")[0]
    if "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
        return _from_torch(value)
    if module == "mlx" and "bfloat16" in str(value.dtype):
        return Array("BF16", np.array(value.view(sys.modules["mlx.core"].uint16)))
    try:
        data = np.asarray(value)
    except Exception as error:
        raise Error(f"error: {name} is no array: {type(value).__name__} ({error})") from error
    if data.dtype.name == "bfloat16":  # of ml_dtypes, as JAX has it
        return Array("BF16", data.view(np.uint16))
    if data.dtype.name in BY_NAME:
        return Array(BY_NAME[data.dtype.name], data)
    if data.dtype.kind == "u" and (data.size == 0 or data.max() <= np.iinfo(np.int64).max):
        return Array("I64", data.astype(np.int64))
    raise Error(f"error: {name} is of type {data.dtype}\nhelp: floats, integers and booleans are taken")


def _from_torch(tensor: Any) -> Array:
    torch = sys.modules["torch"]
    tensor = tensor.detach()
    if hasattr(tensor, "full_tensor"):  # of a sharded model
        tensor = tensor.full_tensor()
    tensor = tensor.resolve_neg().to("cpu").contiguous()
    if tensor.dtype == torch.bfloat16:
        return Array("BF16", tensor.view(torch.int16).numpy().view(np.uint16))
    name = str(tensor.dtype).rpartition(".")[2]
    if name not in BY_NAME:
        raise Error(f"error: a tensor of {tensor.dtype}\nhelp: floats from 16 to 64 bits, integers, booleans are taken")
    return Array(BY_NAME[name], tensor.numpy())


def is_array(value: Any) -> bool:
    """Whether it is an array with axes, of any library."""
    if isinstance(value, type):
        return False
    return isinstance(value, Array) or (hasattr(value, "shape") and hasattr(value, "dtype") and len(value.shape) > 0)


def as_arrays(values: Mapping[str, Any]) -> dict[str, Array]:
    """A dict of arrays by name."""
    return {str(name): as_array(value, str(name)) for name, value in values.items()}
