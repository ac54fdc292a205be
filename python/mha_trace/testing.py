"""A kernel in a test suite: one assertion, or a test case for each case of the sweep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

from ._kernel import case_names, check_kernel
from ._sweep_report import KernelReport

__all__ = ["KernelTest", "assert_attention_kernel", "sweep"]


def assert_attention_kernel(function: Callable[..., Any], *args: Any, **kwargs: Any) -> KernelReport:
    """Fails, with the table as its text, unless a kernel is right in all cases; takes what ``check_kernel`` takes.

    >>> import torch
    >>> attend = torch.nn.functional.scaled_dot_product_attention
    >>> assert_attention_kernel(attend, is_causal=True, only=["tail"]).verdict
    'same'
    """
    __tracebackhide__ = True
    report = check_kernel(function, *args, **kwargs)
    report.assert_same()
    return report


class KernelTest:
    """A case of the sweep in a test: ``case.check(kernel)``."""

    def __init__(self, row: str, dtype: str, settings: dict[str, Any]) -> None:
        self.row, self.dtype = row, dtype
        self._settings = settings

    def __repr__(self) -> str:
        return f"{self.row}-{self.dtype}"

    def check(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> KernelReport:
        """Fails, with the table as its text, unless the kernel is right in this case. A case that it refuses is
        skipped."""
        __tracebackhide__ = True
        import pytest

        settings = {**self._settings, **kwargs, "only": [self.row], "dtypes": [self.dtype]}
        report = check_kernel(function, *args, **settings)
        if report.cases and all(case.state == "refused" for case in report.cases):
            pytest.skip(report.cases[0].said)
        report.assert_same()
        return report


def sweep(
    *,
    argument: str = "case",
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    cases: int | None = None,
    dtypes: Iterable[str] = ("f32", "bf16", "f16"),
    tile_size: int | None = None,
    takes: Iterable[str] = (),
    **settings: Any,
) -> Any:
    """Parametrises a test by the cases of the sweep, each with its name in the id of the test: ``case.check(kernel)``.
    The settings are those of ``check_kernel``.

    >>> @sweep(causal=True, only=["tail", "decode"], dtypes=["f32"])
    ... def test_kernel(case):
    ...     case.check(my_kernel)
    >>> test_kernel.pytestmark[0].kwargs["ids"]
    ['tail-f32', 'decode-f32']
    """
    import pytest

    shared = {"cases": cases, "tile_size": tile_size, "takes": list(takes)}
    found = case_names({**shared, "only": only, "skip": skip, "dtypes": dtypes})
    # What the function takes is told by its names, unless it is stated here.
    stated = {name: value for name, value in shared.items() if value}
    tests = [KernelTest(row, dtype, {**settings, **stated}) for row, dtype in found]
    return pytest.mark.parametrize(argument, tests, ids=[repr(test) for test in tests])
