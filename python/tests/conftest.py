"""Tests that need torch and transformers run with ``--torch``; the others need NumPy alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import mha_trace


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--torch", action="store_true", help="also run the tests that need torch and transformers")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "torch: needs torch and transformers")


@pytest.fixture(autouse=True, scope="session")
def processes_find_the_package():
    """What tests start imports the package that they import, and speaks English."""
    home = str(Path(mha_trace.__file__).parent.parent)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([home, before] if before else [home])
    os.environ["LC_ALL"] = "C"
    yield
    os.environ["PYTHONPATH"] = before or ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--torch"):
        return
    for item in items:
        if "torch" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="run by --torch"))
