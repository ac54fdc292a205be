"""Products of tensors as sums over named axes, as ``torch.einsum`` names them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

# The functions of torch that make them.
PRODUCTS = ("matmul", "bmm", "einsum")


@dataclass(frozen=True)
class Operand:
    """A tensor of a product, and the order of axes (..., row, column) that it is wanted in."""

    tensor: Any
    axes: str
    wanted: str
    sizes: dict[str, int]

    def arranged(self, tensor: Any = None) -> Any:
        """The tensor, or its gradient, in that order; an axis that it does not have is repeated."""
        tensor = self.tensor if tensor is None else tensor
        there = [axis for axis in self.wanted if axis in self.axes]
        tensor = tensor.permute([self.axes.index(axis) for axis in there])
        for at, axis in enumerate(self.wanted):
            tensor = tensor if axis in there else tensor.unsqueeze(at)
        return tensor.expand([self.sizes[axis] for axis in self.wanted])

    def is_whole(self) -> bool:
        """Whether nothing of it is repeated, so that its gradient has the same axes."""
        return bool(math.prod(self.tensor.shape) == math.prod(self.sizes[axis] for axis in self.wanted))


def scores_of(name: str, args: Any, result: Any) -> tuple[Operand, Operand] | None:
    """Queries (..., query, head_dim) and keys (..., key, head_dim) of a product (..., query, key); none where it is
    another one."""
    found = _axes(name, args)
    if found is None:
        return None
    left, right, out, (first, second) = found
    if out[-2] in right:
        left, right, first, second = right, left, second, first
    row, column, lead, summed = out[-2], out[-1], out[:-2], (set(left) & set(right)) - set(out)
    if row in right or column in left or len(summed) != 1 or set(left + right) - set(out) != summed:
        return None
    width = summed.pop()
    sizes = dict(zip(out, result.shape)) | {width: first.shape[left.index(width)]}
    return Operand(first, left, lead + row + width, sizes), Operand(second, right, lead + column + width, sizes)


def outputs_of(name: str, args: Any, result: Any) -> tuple[Operand, Operand] | None:
    """Values (..., key, head_dim) and outputs (..., query, head_dim) of a product of weights (..., query, key) with
    values; none where it is another one."""
    found = _axes(name, args)
    if found is None:
        return None
    left, right, out, (first, second) = found
    lead, row, summed = left[:-2], left[-2], left[-1]
    columns = set(right) - set(left)
    is_it = summed in right and summed not in out and row not in right and set(out) == {*lead, row, *columns}
    if not is_it or len(columns) != 1:
        return None
    column = columns.pop()
    sizes = dict(zip(out, result.shape)) | {summed: first.shape[-1]}
    return Operand(second, right, lead + summed + column, sizes), Operand(result, out, lead + row + column, sizes)


def _axes(name: str, args: Any) -> tuple[str, str, str, tuple[Any, Any]] | None:
    """What the axes of the two operands and of the result are called, and the operands. Projections, which have a
    matrix, are none."""
    operands = args[1:] if name == "einsum" else args
    if len(operands) != 2 or any(getattr(one, "ndim", 0) < 3 for one in operands):
        return None
    first, second = operands
    lead = [one.ndim - 2 for one in operands]
    if name != "einsum":
        ahead = "0123456789"[: max(lead)]
        return ahead[max(lead) - lead[0] :] + "xy", ahead[max(lead) - lead[1] :] + "yz", ahead + "xz", (first, second)
    inputs, arrow, out = args[0].replace(" ", "").partition("->")
    sides = inputs.split(",")
    if not arrow or len(sides) != 2 or len(out) < 2:
        return None
    if "..." in inputs:
        counts = [one.ndim - len(side.replace("...", "")) for one, side in zip(operands, sides)]
        most = max(counts)
        sides = [side.replace("...", "0123456789"[most - count : most]) for side, count in zip(sides, counts)]
        out = out.replace("...", "0123456789"[:most])
    if any(len(set(axes)) != len(axes) for axes in [*sides, out]):
        return None
    return sides[0], sides[1], out, (first, second)
