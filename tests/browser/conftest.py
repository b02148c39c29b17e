"""One browser for all tests of the page, a fresh server (so a fresh origin) for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.chromium import Chromium
from tests.browser.fake_server import FakeServer


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    browser = Chromium()
    yield browser
    browser.close()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.close()
    assert fake.faults == []


@pytest.fixture
def page(chromium: Chromium, server: FakeServer) -> Chromium:
    """The page, open and supplied with its first figures."""
    chromium.resize(1400)
    chromium.prefer("light")
    chromium.open(server.url)
    chromium.wait("document.querySelector('#status').dataset.state === 'ready'")
    chromium.problems()
    return chromium
