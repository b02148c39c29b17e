"""A server over a fake engine, for every test here."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.api import Api, open_api


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with open_api() as opened:
        yield opened
