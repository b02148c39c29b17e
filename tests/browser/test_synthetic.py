"""A page that shows what coins accepted says so, above everything."""

from __future__ import annotations

import pytest

from tests.browser.chromium import Chromium
from tests.browser.fake_server import MODEL, FakeServer, Reply

pytestmark = pytest.mark.browser

_SHOWN = "return document.querySelector('#synthetic').checkVisibility()"


def test_a_banner_while_acceptance_is_synthetic(
    chromium: Chromium, page: Chromium, server: FakeServer
) -> None:
    assert page.js(_SHOWN) is False
    card = {"id": MODEL, "max_model_len": 8192, "synthetic_acceptance": [0.9, 0.5]}
    server.instead["/v1/models"] = Reply(200, {"data": [card]})
    for width in (1400, 420):
        chromium.resize(width)
        page.open(server.url)
        page.wait("document.querySelector('#status').dataset.state === 'ready'")
        assert page.js(_SHOWN) is True
        text = page.js("return document.querySelector('#synthetic').textContent")
        assert text.startswith("Synthetic acceptance 0.9, 0.5: ")
        assert page.js("return document.documentElement.scrollWidth <= innerWidth") is True
        assert page.problems() == []
