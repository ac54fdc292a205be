"""A run's steps: a dict of arrays that shows itself in notebooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from itertools import islice, product
from typing import Any

import numpy as np

# As many tables of a step, and as many rows and columns of one, are shown.
TABLES, EDGE = 4, 12


@dataclass(frozen=True)
class Shown:
    """Tables of some steps, for notebooks."""

    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.html


class Steps(dict[str, "np.ndarray[Any, Any]"]):
    """The steps of a run by name, in order of execution; ``formulas`` and ``axes`` say what they are.

    >>> import mha_trace
    >>> steps = mha_trace.trace()
    >>> steps["scores"].shape, steps.axes["scores"], steps.formulas["scores"]
    ((1, 2, 4, 4), ('batch', 'head', 'query', 'key'), 'scores_raw / √d_k')
    """

    def __init__(self, arrays: dict[str, Any], formulas: dict[str, str], axes: dict[str, tuple[str, ...]]) -> None:
        super().__init__(arrays)
        self.formulas = formulas
        self.axes = axes

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"there is no step {name} in this run; there are {', '.join(self)}")

    def show(self, *names: str, decimals: int = 3) -> Shown:
        """Tables of these steps, or of all that are computed, rendered in a notebook."""
        chosen = names or tuple(name for name, formula in self.formulas.items() if formula != "given")
        return Shown("\n".join(self._step(name, decimals) for name in chosen))

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    def _step(self, name: str, decimals: int) -> str:
        array, axes = self[name], self.axes[name]
        parts = [f"<h4>{escape(name)} = {escape(self.formulas[name])}</h4>", f"<p>{escape(_shape(array, axes))}</p>"]
        outer = array.shape[:-2]
        for at in islice(product(*map(range, outer)), TABLES):
            where = " · ".join(f"{axis} {number}" for axis, number in zip(axes, at))
            parts.append(f"<p>{escape(where)}</p>" if where else "")
            parts.append(_table(array[at], axes[-2:], decimals))
        left = int(np.prod(outer)) - TABLES
        return "".join(parts) + (f"<p>… and {left} more</p>" if left > 0 else "")


def _shape(array: np.ndarray[Any, Any], axes: tuple[str, ...]) -> str:
    return "shape (" + ", ".join(f"{axis} {length}" for axis, length in zip(axes, array.shape)) + ")"


def _table(array: np.ndarray[Any, Any], axes: tuple[str, ...], decimals: int) -> str:
    """A matrix, or a vector as a row; the shade of a cell is its size beside the largest of its row."""
    cells = np.atleast_2d(array)[:EDGE, :EDGE]
    heads = "".join(f"<th>{escape(axes[-1])} {number}</th>" for number in range(cells.shape[1]))
    rows = []
    for number, row in enumerate(cells):
        head = f"{axes[0]} {number}" if array.ndim > 1 else ""
        numbers = np.where(np.isfinite(row.astype(float)), row.astype(float), 0)
        largest = np.abs(numbers[np.abs(numbers) < 1e9]).max(initial=0) or 1
        shades = np.minimum(np.abs(numbers) / largest, 1) * (np.abs(numbers) < 1e9)
        shown = "".join(
            f'<td style="background:rgba(30,110,200,{shade / 3:.2f})">{_number(cell, decimals)}</td>'
            for cell, shade in zip(row, shades)
        )
        rows.append(f"<tr><th>{escape(head)}</th>{shown}</tr>")
    return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _number(cell: Any, decimals: int) -> str:
    if isinstance(cell, np.bool_):
        return "■" if cell else "·"
    return f"{cell:.{decimals}f}" if abs(cell) < 1e6 else f"{cell:.3g}"
