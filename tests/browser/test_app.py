"""The page on the real HTTP application over a fake engine: what both say must fit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.browser.chromium import ENTER, Chromium
from tests.browser.test_chat import META, PROBLEM, TEXT, ask, wait_end
from tests.fakes.api import MODEL, Api, listening, open_api
from tests.fakes.engine import EOS, LETTERS, FakeEngine

pytestmark = pytest.mark.browser

READY = "document.querySelector('#status').innerText === 'ready'"


def engine(**options: object) -> FakeEngine:
    """One with room for the page's default of 512 tokens."""
    fake = FakeEngine(**options)  # type: ignore[arg-type]
    fake.ready["max_context"] = 4096
    return fake


def letters(word: str) -> list[int]:
    return [LETTERS[ord(letter) - ord("A")] for letter in word]


async def visit(api: Api, chromium: Chromium, steps: Callable[[], None]) -> None:
    """Open the page of `api` and take `steps` there, away from the loop that serves it."""

    def go(url: str) -> None:
        chromium.resize(1400)
        chromium.open(url)
        chromium.problems()
        steps()
        chromium.open("about:blank")

    async with listening(api) as url:
        await asyncio.to_thread(go, url)


async def test_a_conversation(chromium: Chromium) -> None:
    answers = iter([letters("HELLO"), letters("AGAIN")])

    def steps() -> None:
        chromium.wait(READY)
        facts = chromium.text("#facts").split("\n")
        assert facts == ["model", MODEL, "context", "4,096 tokens", "dtype", "float32"]
        assert chromium.text("#settings summary") == "Settings · temperature 1 · 512 tokens"
        ask(chromium, "One?")
        wait_end(chromium)
        assert chromium.js(f"return {TEXT}") == "HELLO"
        meta = chromium.js(f"return {META}")
        assert meta.startswith("6 tokens · "), "the end token counts"
        assert "tok/s · TTFT " in meta
        ask(chromium, "Two?")
        chromium.wait(f"{TEXT} === 'AGAIN'")
        assert chromium.problems() == []

    async with open_api(engine(answer=lambda _: [*next(answers), EOS], step_s=0.005)) as api:
        await visit(api, chromium, steps)
    first, second = (str(request.prompt_ids) for request in api.engine.submitted)
    said = str(letters("HELLO"))[1:-1]
    assert said not in first and said in second, "the first answer is part of the second prompt"
    assert not api.engine.abort_calls


async def test_stop_aborts_in_the_engine_and_figures_show_what_runs(chromium: Chromium) -> None:
    def steps() -> None:
        chromium.wait(READY)
        ask(chromium, "Endless?")
        chromium.wait(f"{TEXT}.length > 3")
        chromium.wait("document.querySelector('#figure-running').innerText === '1'")
        assert chromium.text("#figure-kv") == "10%"
        assert chromium.text("#figure-ttft").endswith("ms")
        chromium.click("#stop")
        wait_end(chromium, "stopped by you")
        chromium.wait("document.querySelector('#figure-running').innerText === '0'")
        assert chromium.problems() == []

    async with open_api(engine(answer=lambda _: [LETTERS[0]], step_s=0.02)) as api:
        await visit(api, chromium, steps)
    assert api.engine.abort_calls == [request.id for request in api.engine.submitted]


async def test_refusals_of_the_real_server(chromium: Chromium) -> None:
    def steps() -> None:
        chromium.wait(READY)
        ask(chromium, "Is there room?")
        chromium.wait(f"{PROBLEM}.includes('Too busy: the queue is full. Wait 2 s.')")
        assert chromium.js("return document.querySelector('.problem button').disabled")
        chromium.js("document.querySelector('#max-tokens').value = 5000")
        ask(chromium, "Too much?")
        chromium.wait(f"{PROBLEM}.includes('HTTP 400') && {PROBLEM}.includes('4096')")

    async with open_api(engine(most_in_flight=1)) as api:
        api.engine.pause()
        other = asyncio.create_task(api.chat(max_tokens=1))
        while not api.engine.submitted:
            await asyncio.sleep(0)
        await visit(api, chromium, steps)
        api.engine.resume()
        await other


async def test_an_engine_that_dies_is_said(chromium: Chromium) -> None:
    def steps() -> None:
        chromium.wait(READY)
        ask(chromium, "Hello?")
        chromium.wait(f"{PROBLEM}.includes('injected fault')")
        assert chromium.js(f"return {TEXT}") == "AAA"

    async with open_api(engine(answer=lambda _: [LETTERS[0]], fail_after=3)) as api:
        await visit(api, chromium, steps)


async def test_a_loading_server_is_said(chromium: Chromium) -> None:
    def steps() -> None:
        chromium.wait("document.querySelector('#status').innerText === 'not ready'")
        assert "the server is loading: " in chromium.text("#trouble")
        ask(chromium, "Hello?")
        chromium.wait(f"{PROBLEM}.includes('Not ready: the server is loading: ')")

    async with open_api(engine(), ready=False) as api:
        await visit(api, chromium, steps)


async def test_the_page_asks_for_the_key_of_a_guarded_server(chromium: Chromium) -> None:
    def steps() -> None:
        chromium.wait("document.querySelector('#status').innerText === 'needs a key'")
        chromium.type("#key", "wrong" + ENTER)
        chromium.wait("document.querySelector('#key-label').innerText.includes('refused')")
        chromium.type("#key", "right" + ENTER)
        chromium.wait(READY)
        ask(chromium, "Hello?")
        wait_end(chromium)

    async with open_api(engine(), keys=("right",)) as api:
        await visit(api, chromium, steps)
