"""The fixture ``attention_golden`` of pytest; nothing happens where it is not used."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from ._goldens import AttentionGolden


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--force-regen``, which pytest-regressions has too."""
    if find_spec("pytest_regressions") is None:
        group = parser.getgroup("mha-trace")
        group.addoption("--force-regen", action="store_true", help="write the goldens of attention_golden again")


@pytest.fixture
def attention_golden(request: pytest.FixtureRequest) -> AttentionGolden:
    """Compares recorded attention with a file beside the test: ``attention_golden.check(run)``."""
    regenerate = bool(request.config.getoption("--force-regen", default=False))
    return AttentionGolden(request.path, request.node.name, regenerate)
