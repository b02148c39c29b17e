"""One thread a test: several run at a time, and tiny products only wait for a second one."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tests that are about threads choose their own number, and put it back."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
