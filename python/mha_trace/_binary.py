"""Where the binary is, and running it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

NAME = "mha-trace.exe" if sys.platform == "win32" else "mha-trace"


class Error(Exception):
    """What could not be done, in the words of the binary: what was wrong, where, and what to do."""

    said = ""
    """The same as the command says it, with flags."""


def find_binary() -> str:
    """The path of the binary: ``MHA_TRACE_BINARY`` if that is set, else the wheel's, else the one on ``PATH``.

    >>> find_binary().startswith(os.sep) or sys.platform == "win32"
    True
    """
    stated = os.environ.get("MHA_TRACE_BINARY")
    if stated:
        if os.path.isfile(stated):
            return os.path.abspath(stated)
        raise Error(f"error: MHA_TRACE_BINARY is {stated}, and no file is there")
    for folder in _folders():
        if (folder / NAME).is_file():
            return str(folder / NAME)
    found = shutil.which("mha-trace")
    if found:
        return os.path.abspath(found)
    raise Error(
        "error: the binary mha-trace is not installed beside this package, and not on PATH\n"
        "help: install the wheel (pip install mha-trace), or set MHA_TRACE_BINARY to the binary"
    )


def _folders() -> Iterator[Path]:
    """Where installers put the scripts of a package: of the environment, of the user, of ``pip install --target``."""
    yield Path(sysconfig.get_path("scripts"))
    user = f"{os.name}_user"
    if user in sysconfig.get_scheme_names():
        yield Path(sysconfig.get_path("scripts", scheme=user))
    beside = Path(__file__).resolve().parent.parent
    yield beside / ("Scripts" if sys.platform == "win32" else "bin")


def run(arguments: Sequence[str], hide: str = "") -> tuple[str, bool]:
    """What the binary prints, and whether it found all the same. ``hide`` is a folder that no text names.

    Raises ``Error`` with the text of the binary where it could not do it.
    """
    return run_all([arguments], hide)[0]


def run_all(commands: Sequence[Sequence[str]], hide: str = "") -> list[tuple[str, bool]]:
    """Runs the binary once for each, side by side. An exception, as that of Ctrl-C, ends all of them."""
    started: list[subprocess.Popen[str]] = []
    try:
        for arguments in commands:
            command = [find_binary(), *arguments]
            nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
            started.append(subprocess.Popen(command, stdin=nothing, stdout=pipe, stderr=pipe, encoding="utf-8"))
        said = [_said(process) for process in started]
    except OSError as error:
        raise Error(f"error: {find_binary()} cannot be run: {error.strerror}") from error
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
    for process, (_, errors) in zip(started, said):
        if process.returncode not in (0, 1):
            text = _in_python(errors.strip()) or f"error: the binary ended with {process.returncode}"
            failure = Error(_without(text, hide))
            failure.said = errors
            raise failure
    return [(_without(out, hide), process.returncode == 0) for process, (out, _) in zip(started, said)]


def _said(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process prints until it ends.

    A Ctrl-C that comes right before waiting begins does not end the wait, so it is looked for again and again.
    """
    while True:
        try:
            return process.communicate(timeout=0.5)
        except subprocess.TimeoutExpired:
            continue


def _in_python(errors: str) -> str:
    r"""An error about flags in the words of settings, each of its sentences on one line.

    >>> _in_python("error: there is no flag --head here\nhelp: did you mean --heads?")
    'error: there is no setting head here\nhelp: did you mean heads?'
    """
    text = errors.replace("\n  ", " ").replace("\nhelp: --help lists every flag.", "")
    text = text.replace("there is no flag", "there is no setting")
    return re.sub(r"--([a-z][a-z-]*)(?: <[^>]*>)?", lambda flag: flag[1].replace("-", "_"), text)


def _without(text: str, hide: str) -> str:
    if not hide:
        return text
    inside = hide + os.sep
    return text.replace(inside.replace("\\", "\\\\"), "").replace(inside, "")
