"""``python -m mha_trace`` runs the binary."""

from __future__ import annotations

import os
import subprocess
import sys

from ._binary import Error, find_binary


def main() -> int:
    """Runs the binary with this process's arguments, and gives its exit code."""
    try:
        command = [find_binary(), *sys.argv[1:]]
    except Error as error:
        print(error, file=sys.stderr)
        return 2
    if sys.platform != "win32":
        os.execv(command[0], command)
    try:
        return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
