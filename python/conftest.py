"""Tests that need torch and transformers run with ``--torch``; the others need NumPy alone."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--torch", action="store_true", help="also run the tests that need torch and transformers")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "torch: needs torch and transformers")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--torch"):
        return
    for item in items:
        if "torch" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="run by --torch"))
