"""What ``check`` and ``diff`` found."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from typing import Any


@dataclass(frozen=True)
class Step:
    """A step that was compared. ``left`` is the recorded number of the worst cell, ``right`` the recomputed one."""

    file: str
    name: str
    status: str
    axes: tuple[str, ...] = ()
    max_abs: float | None = None
    max_rel: float | None = None
    mismatched: int | None = None
    count: int | None = None
    worst: tuple[int, ...] = ()
    left: float | None = None
    right: float | None = None


@dataclass(frozen=True)
class Finding:
    """What explains the recorded numbers: a known mistake (``id``; see ``mha-trace bugs``), or a change, described in
    a sentence."""

    file: str
    summary: str
    step: str | None = None
    id: str | None = None
    kind: str | None = None
    also: tuple[tuple[str, str], ...] = ()
    """Other mistakes that give the same numbers here: their ids and what they are."""

    @property
    def is_known(self) -> bool:
        """Whether it is a mistake that has a name: ``id``."""
        return self.id is not None and self.kind not in (None, "noise", self.id)


@dataclass(frozen=True, repr=False)
class Report:
    """The verdict of a check or a comparison; ``str()`` is what the command prints.

    >>> report = Report('{"files": []}', "run: same, 13 steps compared", True)
    >>> report.same, report.verdict, str(report)
    (True, 'same', 'run: same, 13 steps compared')
    """

    json: str
    text: str
    same: bool
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """``same``, ``differs``, or ``unchecked``: all the same but for gradients that were not checked."""
        if self.same:
            return "same"
        return "unchecked" if {file["verdict"] for file in self.files} <= {"same", "unchecked"} else "differs"

    @property
    def files(self) -> list[dict[str, Any]]:
        """The files' reports, as ``--format json`` has them."""
        found: list[dict[str, Any]] = json.loads(self.json)["files"]
        return found

    @property
    def steps(self) -> list[Step]:
        """The steps in order of execution, of one file after the other."""
        return [_step(file["path"], step) for file in self.files for step in file["steps"]]

    @property
    def findings(self) -> list[Finding]:
        """What explains the differences, of one file after the other; empty where nothing does."""
        return [found_in(file["path"], found) for file in self.files for found in file["diagnosis"]]

    @property
    def clues(self) -> list[Finding]:
        """What can be said of the differences that nothing explains, of one file after the other."""
        return [found_in(file["path"], clue) for file in self.files for clue in file.get("clues") or ()]

    @property
    def first_divergence(self) -> str | None:
        """The first step that goes wrong by itself."""
        return next((file["first_divergence"] for file in self.files if file["first_divergence"]), None)

    def __str__(self) -> str:
        return "\n".join([self.text.rstrip("\n"), *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = []
        for file in self.files:
            parts.append(f"<p><b>{escape(file['path'])}: {escape(file['verdict'])}</b></p>")
            parts.append(_table([_step(file["path"], step) for step in file["steps"]]))
            for found in file["diagnosis"]:
                one = found_in(file["path"], found)
                name = f"known mistake <b>{escape(one.id or '')}</b>: " if one.is_known else ""
                others = [f"<br>or, with the same numbers here, {escape(': '.join(other))}" for other in one.also]
                parts.append(f"<p>{name}{escape(one.summary)}, at {escape(one.step or '')}{''.join(others)}</p>")
        parts += [f"<p>{escape(clue.step or '')}: {escape(clue.summary)}</p>" for clue in self.clues]
        parts += [f"<p>{escape(note)}</p>" for note in self.notes]
        return "\n".join(parts)


COLOURS = {"same": "#2e7d32", "differs": "#c62828", "inherited": "#a06000", "missing": "#c62828"}


def _table(steps: list[Step]) -> str:
    heads = "".join(f"<th>{head}</th>" for head in ("step", "status", "max abs", "max rel", "mismatched", "worst cell"))
    rows = []
    for step in steps:
        where = ", ".join(f"{axis} {at}" for axis, at in zip(step.axes, step.worst))
        cells = [
            escape(step.name),
            f'<span style="color:{COLOURS.get(step.status, "inherit")}">{escape(step.status)}</span>',
            _number(step.max_abs),
            _number(step.max_rel),
            "" if step.count is None else f"{step.mismatched} of {step.count}",
            "" if step.left is None else f"{escape(where)}: {_number(step.left)}, {_number(step.right)}",
        ]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _float(value: Any) -> float | None:
    """Numbers that JSON has no word for are strings, which ``float`` reads."""
    return None if value is None else float(value)


def _step(file: str, step: dict[str, Any]) -> Step:
    return Step(
        file=file,
        name=step["name"],
        status=step["status"],
        axes=tuple(step.get("axes") or ()),
        max_abs=_float(step.get("max_abs")),
        max_rel=_float(step.get("max_rel")),
        mismatched=step.get("mismatched"),
        count=step.get("count"),
        worst=tuple(step.get("worst") or ()),
        left=_float(step.get("left")),
        right=_float(step.get("right")),
    )


def found_in(file: str, found: dict[str, Any]) -> Finding:
    """A finding of a file's report."""
    also = tuple(zip(found.get("also", ()), found.get("also_summaries", ())))
    return Finding(file, found["summary"], found.get("step"), found.get("id"), found.get("kind"), also)
