"""The chat of the page: streaming, stopping, history, text, errors."""

from __future__ import annotations

import json

import pytest

from tests.browser.chromium import ENTER, ESCAPE, SHIFT, Chromium
from tests.browser.fake_server import MODEL, Answer, FakeServer, Reply, refusal

pytestmark = pytest.mark.browser

TEXT = "document.querySelector('.answer:last-child .text').innerText"
META = "document.querySelector('.answer:last-child .meta span').innerText"
READ_NOW = "document.dispatchEvent(new Event('visibilitychange'))"
PROBLEM = "document.querySelector('.answer:last-child .problem:not([hidden])').innerText"


def ask(page: Chromium, question: str) -> None:
    page.type("#message", question + ENTER)


def wait_text(page: Chromium, text: str) -> None:
    page.wait(f"{TEXT} === {json.dumps(text)}")


def wait_end(page: Chromium, word: str = "stop") -> None:
    page.wait(f"{META}.includes({json.dumps(word)})")


def exchange(page: Chromium, server: FakeServer, question: str, answer: str) -> None:
    """A whole question and answer."""
    server.next_answer().say(answer).end()
    ask(page, question)
    wait_end(page)


def test_an_answer_streams_in(page: Chromium, server: FakeServer) -> None:
    answer = server.next_answer()
    ask(page, "Hello?")
    page.wait(
        "document.querySelector('.running .meta').innerText === 'waiting for the first token'"
    )
    answer.say("Good")
    wait_text(page, "Good")
    assert page.js("return document.querySelector('.answer').getAttribute('aria-busy')") == "true"
    answer.say(" day.", tokens=41)
    wait_text(page, "Good day.")
    answer.end()
    wait_end(page)
    meta = page.js(f"return {META}")
    assert meta.startswith("42 tokens · ")
    assert "tok/s · TTFT " in meta
    assert page.js("return document.querySelector('.answer').getAttribute('aria-busy')") == "false"
    assert page.js("return document.activeElement.id") == "message"
    assert page.problems() == []


def test_what_is_sent_by_default(page: Chromium, server: FakeServer) -> None:
    exchange(page, server, "Hello?", "Yes.")
    assert server.chats == [
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Hello?"}],
            "max_tokens": 512,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
    ]
    assert server.authorizations == [None]


def test_history_and_settings_are_sent(page: Chromium, server: FakeServer) -> None:
    exchange(page, server, "One?", "First.")
    page.click("#settings summary")
    page.type("#temperature", "0.7")
    page.clear("#max-tokens")
    page.type("#max-tokens", "33")
    page.type("#system", "Be brief.")
    assert (
        page.text("#settings summary") == "Settings · temperature 0.7 · 33 tokens · system prompt"
    )
    exchange(page, server, "Two?", "Second.")
    sent = server.chats[1]
    assert (sent["temperature"], sent["max_tokens"]) == (0.7, 33)
    assert [(m["role"], m["content"]) for m in sent["messages"]] == [
        ("system", "Be brief."),
        ("user", "One?"),
        ("assistant", "First."),
        ("user", "Two?"),
    ]


def test_an_emptied_token_limit_means_the_default(page: Chromium, server: FakeServer) -> None:
    page.js("document.querySelector('#max-tokens').value = ''")
    exchange(page, server, "Hello?", "Yes.")
    assert server.chats[0]["max_tokens"] == 512


def test_a_wrong_setting_opens_the_settings_and_sends_nothing(
    page: Chromium, server: FakeServer
) -> None:
    page.js("document.querySelector('#max-tokens').value = '-3'")
    ask(page, "Hello?")
    page.wait("document.activeElement.id === 'max-tokens'")
    assert page.js("return document.querySelector('#settings').open") is True
    assert server.chats == []
    assert page.problems() == []


@pytest.mark.parametrize("way", ["button", "escape"])
def test_stop_ends_the_request_and_keeps_the_text(
    page: Chromium, server: FakeServer, way: str
) -> None:
    answer = server.next_answer().say("So far", tokens=2)
    ask(page, "Tell me everything.")
    wait_text(page, "So far")
    if way == "button":
        page.click("#stop")
    else:
        page.type("#message", ESCAPE)
    wait_end(page, "stopped by you")
    assert answer.left.wait(5), "the server never saw the client leave"
    wait_text(page, "So far")
    assert page.js(f"return {META}").startswith("2 tokens · ")
    assert page.js("return document.activeElement.id") == "message"
    # What was said stays part of the conversation.
    exchange(page, server, "Go on.", "Fine.")
    assert server.chats[1]["messages"][1] == {"role": "assistant", "content": "So far"}
    assert page.problems() == []


def test_stop_before_the_first_token(page: Chromium, server: FakeServer) -> None:
    answer = server.next_answer()
    ask(page, "Hello?")
    page.wait("document.querySelector('.running')")
    page.click("#stop")
    wait_end(page, "stopped by you")
    assert answer.left.wait(5)
    exchange(page, server, "Again?", "Yes.")
    assert [m["content"] for m in server.chats[-1]["messages"]] == ["Again?"]


def test_leaving_the_page_ends_the_request(page: Chromium, server: FakeServer) -> None:
    answer = server.next_answer().say("So far")
    ask(page, "Tell me everything.")
    wait_text(page, "So far")
    page.open("about:blank")  # the browser would keep the page, and its request, for "back"
    assert answer.left.wait(5), "the server never saw the client leave"


def test_keys(page: Chromium, server: FakeServer) -> None:
    page.type("#message", "   " + ENTER)
    page.clear("#message")
    page.type("#message", "one" + SHIFT + ENTER + SHIFT + "two")
    assert page.js("return document.querySelector('#message').value") == "one\ntwo"
    answer = server.next_answer()
    page.type("#message", ENTER)
    page.wait("document.querySelector('.running')")
    # While an answer runs, Enter keeps what was typed.
    page.type("#message", "three" + ENTER)
    assert page.js("return document.querySelector('#message').value") == "three"
    answer.say("Yes.").end()
    wait_end(page)
    assert [chat["messages"][0]["content"] for chat in server.chats] == ["one\ntwo"]


def test_clear_while_an_answer_runs(page: Chromium, server: FakeServer) -> None:
    answer = server.next_answer().say("Half")
    ask(page, "Hello?")
    wait_text(page, "Half")
    page.click("#clear")
    assert answer.left.wait(5)
    assert page.js("return document.querySelectorAll('.turn').length") == 0
    exchange(page, server, "New?", "Yes.")
    assert [m["content"] for m in server.chats[-1]["messages"]] == ["New?"]


def test_finish_reason_length_is_said(page: Chromium, server: FakeServer) -> None:
    server.next_answer().say("Cut").end("length")
    ask(page, "Hello?")
    wait_end(page, "cut at the token limit")


HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=1</script>&amp;'


def test_markup_is_shown_as_text(page: Chromium, server: FakeServer) -> None:
    said = f"{HOSTILE}\n\n```<b>\n{HOSTILE}\n```\n\n`{HOSTILE}` **{HOSTILE}**"
    server.next_answer().say(said).end()
    server.next_answer(refusal(400, HOSTILE))
    ask(page, HOSTILE)
    wait_end(page)
    ask(page, "And an error?")
    page.wait(f"{PROBLEM}.includes('onerror')")
    assert page.js("return document.querySelectorAll('#log img, #log script, #log b').length") == 0
    assert page.text(".question .text") == HOSTILE
    parts = page.js(
        "return [...document.querySelectorAll('.answer .text p, .answer .text code,"
        " .answer .text strong')].map((node) => node.textContent)"
    )
    assert parts == [HOSTILE, HOSTILE, f"{HOSTILE} {HOSTILE}", HOSTILE, HOSTILE]
    assert page.js("return document.title") == f"{MODEL} · draftmark"


MARKDOWN = """Use `len` on a **list**:

```python
print(len([1, 2]))

# not a paragraph
```
1. one
2. two

~~~
```
~~~

Never closed:
````
tail ``` tail"""


def shape(page: Chromium) -> str:
    """The nodes of the last answer; comparable, as it holds what was built and nothing else."""
    return page.js("return document.querySelector('.answer:last-child .text').innerHTML")


def test_text_built_in_pieces_equals_text_built_at_once(page: Chromium, server: FakeServer) -> None:
    exchange(page, server, "Whole?", MARKDOWN)
    whole = shape(page)
    assert page.js(
        "return [...document.querySelector('.answer:last-child .text').children]"
        ".map((node) => [node.tagName, node.dataset.language ?? '', node.textContent])"
    ) == [
        ["P", "", "Use len on a list:"],
        ["PRE", "python", "print(len([1, 2]))\n\n# not a paragraph"],
        ["P", "", "1. one\n2. two"],
        ["PRE", "", "```"],
        ["P", "", "Never closed:"],
        ["PRE", "", "tail ``` tail"],
    ]
    answer = server.next_answer()
    ask(page, "Pieces?")
    for end in range(1, len(MARKDOWN) + 1):
        answer.say(MARKDOWN[end - 1])
        if end % 16 == 0:  # let it be painted, in the middle of whatever this is
            page.wait(f"{TEXT}.length > 0")
    answer.end()
    wait_end(page)
    assert shape(page) == whole


def test_a_character_and_an_event_split_over_chunks(page: Chromium, server: FakeServer) -> None:
    def event(text: str) -> bytes:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        return f"data: {json.dumps({'choices': [choice]}, ensure_ascii=False)}\r\n\r\n".encode()

    split = event("\N{WAVING HAND SIGN} ok")
    middle = split.index("\N{WAVING HAND SIGN}".encode()) + 2
    answer = server.next_answer()
    ask(page, "Hello?")
    answer.raw(b": comment\r\n\r\n" + event("One ") + split[:middle])
    wait_text(page, "One ")  # the page has read up to the middle of the character
    answer.raw(split[middle:]).end()
    wait_end(page)
    assert page.js(f"return {TEXT}") == "One \N{WAVING HAND SIGN} ok"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (refusal(429, "queue is full", Retry_After="7"), ["Too busy: queue is full. Wait 7 s."]),
        (refusal(503, "Loading weights."), ["Not ready: Loading weights."]),
        (refusal(400, "no such field"), ["Refused (HTTP 400): no such field."]),
        (refusal(500, "internal error"), ["The server failed (HTTP 500): internal error."]),
        (Reply(502, {"error": {}}), ["The server failed (HTTP 502)."]),
        (Answer().say("Half").fail("It died."), ["The server failed: It died.", "incomplete"]),
        (Answer().break_off(), ["connection", "broke"]),
        (Answer().say("Half").cut(), ["ended before the answer was complete", "incomplete"]),
        (Answer().raw(b"data: {]\n\n"), ["could not read the answer"]),
    ],
    ids=["429", "503", "400", "500", "502", "error-event", "broken", "cut", "not-json"],
)  # fmt: skip
def test_errors_are_said_in_place(
    page: Chromium, server: FakeServer, reply: object, words: list[str]
) -> None:
    server.answers.put(reply)
    ask(page, "Hello?")
    page.wait(f"{PROBLEM}.length > 0")
    said = page.js(f"return {PROBLEM}")
    assert all(word in said for word in words), said
    assert page.js(f"return {TEXT}") in ("", "Half")
    # The page goes on.
    exchange(page, server, "Still there?", "Yes.")


def test_a_broken_connection_keeps_the_text(page: Chromium, server: FakeServer) -> None:
    answer = server.next_answer().say("Half")
    ask(page, "Hello?")
    wait_text(page, "Half")
    answer.break_off()
    page.wait(f"{PROBLEM}.length > 0")
    said = page.js(f"return {PROBLEM}")
    assert said.startswith("The connection to the server broke. The text above is incomplete.")
    assert page.js(f"return {TEXT}") == "Half"


def test_try_again_waits_as_told_and_repeats_the_question(
    page: Chromium, server: FakeServer
) -> None:
    server.next_answer(refusal(429, "Full.", Retry_After="1"))
    ask(page, "Hello?")
    page.wait("document.querySelector('.problem button').disabled")
    assert page.text(".problem button") == "Try again in 1 s"
    page.wait("!document.querySelector('.problem button').disabled")
    server.next_answer().say("Yes.").end()
    page.click(".problem button")
    wait_end(page)
    assert page.js("return document.querySelector('.problem').hidden") is True
    assert server.chats[0] == server.chats[1]


def test_a_question_without_an_answer_is_not_sent_again(page: Chromium, server: FakeServer) -> None:
    server.next_answer(refusal(503, "Loading."))
    ask(page, "Lost?")
    page.wait(f"{PROBLEM}.length > 0")
    exchange(page, server, "Hello?", "Yes.")
    assert [m["content"] for m in server.chats[-1]["messages"]] == ["Hello?"]


def test_server_gone(page: Chromium, server: FakeServer) -> None:
    exchange(page, server, "Hello?", "Yes.")
    server.close()
    ask(page, "And now?")
    page.wait(f"{PROBLEM}.includes('The server cannot be reached.')")
    page.js(READ_NOW)
    page.wait("document.querySelector('#trouble').innerText.startsWith('No figures. ')")
    assert page.text(".answer .text") == "Yes."


def test_api_key(page: Chromium, server: FakeServer) -> None:
    server.next_answer(refusal(401, "No key was given."))
    ask(page, "Hello?")
    page.wait("!document.querySelector('#key-form').hidden")
    assert "asks for an API key" in page.js(f"return {PROBLEM}")
    server.next_answer(refusal(401, "Unknown key."))
    page.type("#key", "wrong" + ENTER)
    page.wait("document.querySelector('#key-label').innerText.includes('refused')")
    server.next_answer().say("Yes.").end()
    page.type("#key", "right" + ENTER)
    wait_end(page)
    assert server.authorizations == [None, "Bearer wrong", "Bearer right"]
    assert page.js("return document.querySelector('#key-form').hidden") is True
    assert page.js("return [Object.values(sessionStorage), localStorage.length]") == [["right"], 0]
    assert page.js("return document.querySelector('#key').value") == ""


def test_api_key_for_the_figures(page: Chromium, server: FakeServer) -> None:
    for path in ("/v1/models", "/v1/engine/config", "/metrics"):
        server.instead[path] = refusal(401, "No key was given.")
    page.open(server.url)
    page.wait("document.querySelector('#status').innerText === 'needs a key'")
    server.instead.clear()
    page.type("#key", "right" + ENTER)
    page.wait("document.querySelector('#status').innerText === 'ready'")
    assert page.js("return document.querySelector('#key-form').hidden") is True


def test_copy(page: Chromium, server: FakeServer) -> None:
    page.cdp(
        "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    exchange(page, server, "Hello?", "**One**\n\n`two`")
    page.click(".meta button")
    page.wait("document.querySelector('.meta button').innerText === 'Copied'")
    page.js("window.pasted = null; navigator.clipboard.readText().then((t) => { pasted = t; })")
    assert page.wait("window.pasted") == "**One**\n\n`two`"
