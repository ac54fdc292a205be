"""Multi-head attention step by step, with PyTorch's numbers: recorded, checked, compared.

>>> import mha_trace
>>> print(mha_trace.check(mha_trace.trace(seed=42), heads=2).verdict)
same
"""

from __future__ import annotations

from ._binary import Error, find_binary
from ._commands import check, diff, trace
from ._report import Finding, Report, Step

__all__ = ["Error", "Finding", "Report", "Step", "check", "diff", "find_binary", "trace"]
