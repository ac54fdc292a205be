"""Multi-head attention step by step, with PyTorch's numbers: recorded, checked, compared.

>>> import mha_trace
>>> print(mha_trace.check(mha_trace.trace(seed=42), heads=2).verdict)
same
"""

from __future__ import annotations

from ._binary import Error, find_binary
from ._call import Call
from ._commands import check, diff, trace
from ._compare import ByLayer, compare, first_wrong
from ._function import record_function
from ._goldens import assert_same
from ._gradients import check_gradients
from ._kernel import check_kernel
from ._record import record
from ._report import Finding, Report, Step
from ._run import Run
from ._steps import Steps
from ._sweep_report import KernelCase, KernelReport, Mistake

__all__ = [
    "ByLayer",
    "Call",
    "Error",
    "Finding",
    "KernelCase",
    "KernelReport",
    "Mistake",
    "Report",
    "Run",
    "Step",
    "Steps",
    "assert_same",
    "check",
    "check_gradients",
    "check_kernel",
    "compare",
    "diff",
    "find_binary",
    "first_wrong",
    "record",
    "record_function",
    "trace",
]
