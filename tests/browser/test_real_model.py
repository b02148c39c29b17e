"""The page, the command, the processes and the real model together."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.browser.chromium import Chromium
from tests.browser.test_chat import META, TEXT, ask, wait_end

pytestmark = [
    pytest.mark.browser,
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # a conversion and a start, on a machine that may be busy
]

READY = "document.querySelector('#status').innerText === 'ready'"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The page's address, as `draftmark serve` prints it."""
    flags = ["--port", "0", "--kv-pool-tokens", "4096", "--max-running", "4"]
    # The first word of the answer leads by 0.1 only, less than the rounding of bfloat16, and which
    # of the two is faster depends on the machine.
    flags += ["--dtype", "float32"]
    process = subprocess.Popen(
        [sys.executable, "-m", "draftmark.cli.main", "serve", "smollm2", *flags],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        found = None
        while found is None:
            line = process.stdout.readline()
            assert line, f"the server ended with status {process.wait()}"
            found = re.search(r"chat page at (http://\S+)", line)
        yield found[1]
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def page(chromium: Chromium, url: str) -> Iterator[Chromium]:
    chromium.resize(1400)
    chromium.open(url)
    chromium.wait(READY, limit_s=60)
    chromium.problems()
    yield chromium
    chromium.open("about:blank")


def test_a_conversation_about_france(page: Chromium) -> None:
    facts = dict(zip(*[iter(page.text("#facts").split("\n"))] * 2, strict=True))
    assert facts.keys() == {"model", "context", "dtype"}
    assert facts["model"] == "smollm2"
    assert page.text("#settings summary") == "Settings · temperature 0.2 · 512 tokens"
    page.click("#settings summary")
    page.type("#temperature", "0")
    ask(page, "What is the capital of France?")
    page.wait(f"{META}.endsWith(' · stop')", limit_s=120)
    assert "Paris" in page.js(f"return {TEXT}")
    assert re.fullmatch(
        r"\d+ tokens · [\d.,]+ tok/s · TTFT [\d.]+ m?s · stop", page.js(f"return {META}")
    )
    # The second question makes sense, and hits the cache, only with the first exchange before it.
    ask(page, "Repeat your last answer.")
    page.wait(f"document.querySelectorAll('.answer').length === 2 && {META}.includes(' · TTFT ')")
    page.wait(f"{META}.endsWith(' · stop') || {META}.endsWith('limit')", limit_s=120)
    page.wait("parseInt(document.querySelector('#figure-hits').innerText) > 0")
    assert page.problems() == []


def test_stop_frees_the_engine(page: Chromium) -> None:
    ask(page, "Write a very long story about a lighthouse.")
    page.wait(f"{TEXT}.length > 20", limit_s=60)
    page.wait("document.querySelector('#figure-running').innerText === '1'")
    page.wait("parseFloat(document.querySelector('#figure-speed').innerText) > 0")
    page.click("#stop")
    wait_end(page, "stopped by you")
    page.wait("document.querySelector('#figure-running').innerText === '0'")
    page.wait("document.querySelector('#figure-kv').innerText === '0%'")
    assert page.problems() == []
