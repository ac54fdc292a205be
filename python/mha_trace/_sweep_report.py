"""What ``check_kernel`` found."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from typing import Any

from ._binary import _in_python


@dataclass(frozen=True)
class KernelCase:
    """A case of a sweep. ``state`` is same, differs, shape, refused, failed, slow, overwrites or aliases; ``said`` is
    what was said of it where there were no numbers to check."""

    name: str
    row: str
    dtype: str
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    numbers: str
    state: str
    first_divergence: str | None = None
    said: str = ""
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mistake:
    """A mistake that explains failing cases: its name in ``mha-trace bugs`` or its kind, and the names of the cases."""

    id: str
    summary: str
    cases: tuple[str, ...]
    is_known: bool


@dataclass(frozen=True, repr=False)
class KernelReport:
    """Which cases of a sweep fail, and what explains them; ``str()`` is the table.

    >>> KernelReport('{"cases": [], "text": "kernel: same"}', True)
    kernel: same
    """

    json: str
    same: bool
    layout: str = "bhsd"
    """The order of axes in which the function was called."""

    @property
    def _said(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.json)
        return found

    @property
    def verdict(self) -> str:
        """``same`` or ``differs``."""
        return "same" if self.same else "differs"

    @property
    def cases(self) -> list[KernelCase]:
        """All cases, in order."""
        return [_case(case) for case in self._said["cases"]]

    @property
    def failing(self) -> list[KernelCase]:
        """The cases that are neither the same nor refused."""
        return [case for case in self.cases if case.state not in ("same", "refused")]

    @property
    def mistakes(self) -> list[Mistake]:
        """What explains failing cases: the mistake that explains most of them first."""
        return [
            Mistake(found["id"], found["summary"], tuple(found["cases"]), found["is_known"])
            for found in self._said.get("mistakes", [])
        ]

    @property
    def fails_where(self) -> list[str]:
        """What is true of the failing cases and of no other."""
        return list(self._said.get("fails_exactly_where", []))

    def assert_same(self) -> None:
        """Fails, with the table as its text, unless all cases are the same or refused."""
        __tracebackhide__ = True
        if not self.same:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        text = "\n".join(_in_python(line) for line in self._said["text"].rstrip("\n").splitlines())
        axes = "" if self.layout == "bhsd" else "\nq, k and v are (batch, token, head, head_dim), as the numbers tell"
        return text + axes

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The table, for notebooks."""
        cases, said = self.cases, self._said
        kinds = list(dict.fromkeys(case.dtype for case in cases))
        heads = ["case", "batch", "heads", "queries", "keys", "head_dim", "numbers", *kinds]
        rows = []
        for row in dict.fromkeys(case.row for case in cases):
            same = [case for case in cases if case.row == row]
            first = same[0]
            shared = "" if first.heads == first.kv_heads else f"/{first.kv_heads}"
            sizes = [first.batch, f"{first.heads}{shared}", first.queries, first.keys, first.head_dim, first.numbers]
            states = [next((_shown(case) for case in same if case.dtype == kind), "") for kind in kinds]
            rows.append([escape(row), *map(str, sizes), *states])
        body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
        head = "".join(f"<th>{one}</th>" for one in heads)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        below = str(self).partition("\nkernel: ")[2]
        return f"{table}\n<pre>kernel: {escape(below)}</pre>" if said["cases"] else f"<pre>{escape(str(self))}</pre>"


def _shown(case: KernelCase) -> str:
    colour = {"same": "#2e7d32", "refused": "#a06000"}.get(case.state, "#c62828")
    text = case.first_divergence if case.state == "differs" and case.first_divergence else case.state
    return f'<span style="color:{colour}">{escape(text)}</span>'


def _case(case: dict[str, Any]) -> KernelCase:
    report = case.get("report") or {}
    found = tuple(one["id"] for one in report.get("diagnosis", ()) if case["state"] == "differs")
    names = KernelCase.__dataclass_fields__.keys() - {"findings"}
    return KernelCase(**{name: case[name] for name in names}, findings=found)
