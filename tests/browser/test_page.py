"""The page around the chat: loading, policy, figures, layout, colours, access by keyboard."""

from __future__ import annotations

import pytest

from draftmark.core.messages import DraftStats
from tests.browser.chromium import Chromium
from tests.browser.fake_server import FakeServer, metrics_text, refusal
from tests.browser.test_chat import READ_NOW, TEXT, ask, exchange, wait_end

NONE = "\N{EN DASH}"  # shown for a figure that is not known

pytestmark = pytest.mark.browser


def test_loads_from_one_file_without_a_complaint(page: Chromium, server: FakeServer) -> None:
    page.open(server.url)
    page.wait("document.querySelector('#status').dataset.state === 'ready'")
    assert page.problems() == []
    for css in ("#key-form", "#stop", "#latest"):
        assert (
            page.js("return document.querySelector(arguments[0]).checkVisibility()", css) is False
        )
    loaded = page.js("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    asked = {name.removeprefix(server.url) for name in loaded}
    assert asked == {"v1/models", "v1/engine/config", "metrics"}
    policy = server.page.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert policy.count("'sha256-") == 2


def test_policy_stops_a_foreign_script(page: Chromium) -> None:
    page.js(
        "const script = document.createElement('script');"
        "script.textContent = 'document.title = 1'; document.body.append(script);"
    )
    assert page.js("return document.title") != "1"
    assert any("Content Security Policy" in line for line in page.problems())


def test_model_and_config_are_read_once_and_shown(page: Chromium, server: FakeServer) -> None:
    assert page.text("#facts").split("\n") == [
        "model", "fake-135m", "context", "8,192 tokens", "dtype", "float32",
    ]  # fmt: skip
    assert page.text("#settings summary") == "Settings · temperature 0.2 · 512 tokens"
    placeholder = page.js("return document.querySelector('#temperature').placeholder")
    assert placeholder == "0.2 (model default)"
    reads = server.metrics_reads
    page.wait("performance.getEntriesByName(location + 'metrics').length > 1")
    assert server.metrics_reads > reads
    assert page.js("return performance.getEntriesByName(location + 'v1/models').length") == 1


def test_figures_follow_the_metrics(page: Chromium, server: FakeServer) -> None:
    assert page.text("#figure-ttft") == NONE
    server.metrics = metrics_text(
        running=3,
        waiting=12,
        kv_usage=0.254,
        generated=400,
        hits=30,
        queries=40,
        ttft={"0.1": 0, "0.2": 4, "1.0": 5, "+Inf": 5},
    )
    page.wait("document.querySelector('#figure-running').innerText === '3'")
    shown = {key: page.text(f"#figure-{key}") for key in ("waiting", "kv", "hits", "ttft", "speed")}
    speed = float(shown.pop("speed").replace(",", ""))
    # Half of 5 observations lie at 2.5 of the 4 in (0.1, 0.2].
    assert shown == {"waiting": "12", "kv": "25%", "hits": "75%", "ttft": "163 ms"}
    assert 40 < speed < 1000, "400 tokens in about a second"
    assert page.js("return document.querySelector('.curve').getAttribute('d').includes('L')")
    assert page.problems() == []


def drafts(factor: int, *, low: bool = False, break_even: bool = True) -> DraftStats:
    """Totals that grow with `factor`; windows of 3 drafts, once in five of 1."""
    return DraftStats(
        windows=100 * factor,
        drafted=260 * factor,
        accepted=150 * factor,
        judged_at=[100 * factor, 80 * factor, 40 * factor],
        accepted_at=[90 * factor, 40 * factor, 20 * factor],
        turns=[0, 20 * factor, 0, 80 * factor],
        gaps=0,
        verify_us=0,
        draft_us=0,
        break_even=[1.25, 1.5, 1.756] if break_even else [],
        low_length=1.02 if low else None,
        num_low=int(low),
    )


ROWS = """
return [...document.querySelectorAll('#drafts tbody tr')].map(
  (row) => [...row.children].map((cell) => cell.innerText.trim()));
"""


def test_drafts_are_shown_where_a_server_makes_them(page: Chromium, server: FakeServer) -> None:
    visible = "document.querySelector('#drafts').checkVisibility()"
    assert page.js(f"return {visible}") is False
    server.metrics = metrics_text(drafts=drafts(1, break_even=False))
    page.open(server.url)
    page.wait(visible)
    assert page.text("#figure-perWindow") == NONE  # nothing was drafted since the page is open
    assert page.js(ROWS) == [
        ["0", "", NONE, ""],
        *[[str(count), NONE, NONE, ""] for count in (1, 2, 3)],
    ]
    server.metrics = metrics_text(drafts=drafts(3))
    page.wait("document.querySelector('#figure-perWindow').innerText === '2.50'")
    assert page.js(ROWS) == [
        ["0", "", "0%", ""],
        ["1", "90%", "20%", "1.25"],
        ["2", "50%", "0%", "1.50"],
        ["3", "50%", "80%", "1.76"],
    ]
    assert page.js("return document.querySelector('#drafts-low').checkVisibility()") is False
    server.metrics = metrics_text(drafts=drafts(3, low=True))
    page.wait("document.querySelector('#drafts-low').checkVisibility()")
    server.metrics = metrics_text()  # another server, which makes none
    page.wait(f"!{visible}")
    assert page.problems() == []


def test_an_answer_tells_what_its_windows_gave(page: Chromium, server: FakeServer) -> None:
    answer = server.next_answer()
    ask(page, "Hello?")
    answer.say("Yes", tokens=1)
    answer.draft(2.6125).say(", indeed.", tokens=8).end()
    page.wait("document.querySelector('.answer.done')")
    assert " · 2.61 tok/window · TTFT " in page.text(".meta span")


def test_figures_fail_and_come_back_while_the_chat_goes_on(
    page: Chromium, server: FakeServer
) -> None:
    server.metrics = metrics_text(running=2)
    page.js(READ_NOW)
    page.wait("document.querySelector('#figure-running').innerText === '2'")
    server.instead["/metrics"] = refusal(500, "Broken.")
    page.js(READ_NOW)
    page.wait("document.querySelector('#trouble').innerText.startsWith('No figures. ')")
    assert "Broken." in page.text("#trouble")
    assert page.text("#figure-running") == "2"  # the last one known, shown dimmed
    exchange(page, server, "Hello?", "Yes.")
    del server.instead["/metrics"]
    page.js(READ_NOW)
    page.wait("document.querySelector('#trouble').innerText === ''")
    assert page.text("#status") == "ready"
    # What came back may be another server.
    assert page.js("return performance.getEntriesByName(location + 'v1/models').length") == 2
    assert page.text(".answer .text") == "Yes."


def test_loading_is_said_and_ends(page: Chromium, server: FakeServer) -> None:
    for path in ("/metrics", "/v1/models"):
        server.instead[path] = refusal(503, "Loading weights.")
    page.open(server.url)
    page.wait("document.querySelector('#status').innerText === 'not ready'")
    assert "Loading weights." in page.text("#trouble")
    server.instead.clear()
    page.wait("document.querySelector('#status').innerText === 'ready'")  # by itself


def test_a_restarted_server_begins_a_new_plot(page: Chromium, server: FakeServer) -> None:
    server.metrics = metrics_text(running=1, generated=5000)
    page.js(READ_NOW)
    page.wait("document.querySelector('#figure-running').innerText === '1'")
    server.metrics = metrics_text(running=2, generated=10)
    page.js(READ_NOW)
    page.wait("document.querySelector('#figure-running').innerText === '2'")
    assert page.text("#figure-speed") == NONE
    page.js(READ_NOW)
    page.wait("performance.getEntriesByName(location + 'v1/models').length === 2")


def test_a_hidden_tab_asks_nothing(page: Chromium, server: FakeServer) -> None:
    hide = "Object.defineProperty(document, 'hidden', {{ value: {0}, configurable: true }});"
    hide += "document.dispatchEvent(new Event('visibilitychange'));"
    page.js(hide.format("true") + "window.hiddenAt = performance.now();")
    reads = server.metrics_reads
    # A time has to pass for nothing to happen in it; one reading may have been under way.
    page.wait("performance.now() - hiddenAt > 1300")
    assert server.metrics_reads <= reads + 1
    page.js(hide.format("false"))
    page.wait("document.querySelector('#status').innerText === 'ready'")


WIDE_TEXT = "x" * 300 + "\n\n```\n" + "y = 1; " * 60 + "\n```\n\nhttps://example.org/" + "a" * 200


@pytest.mark.parametrize("width", [320, 400, 800, 801, 1400])
def test_nothing_scrolls_sideways(page: Chromium, server: FakeServer, width: int) -> None:
    page.resize(width)
    exchange(page, server, "z" * 300, WIDE_TEXT)
    server.next_answer(refusal(400, "w" * 300))
    ask(page, "And an error?")
    page.wait("document.querySelector('.problem:not([hidden])')")
    page.click("#settings summary")
    server.metrics = metrics_text(drafts=drafts(1, low=True))
    page.wait("!document.querySelector('#drafts').hidden")
    if width <= 800:
        page.click("#show-figures")
        page.wait("document.querySelector('#plots').checkVisibility()")
    for css in ("html", "body", "#log", "#foot", "#figures"):
        over = page.js(
            "const box = document.querySelector(arguments[0]);"
            "return box.scrollWidth - box.clientWidth",
            css,
        )
        assert over <= 0, f"{css} is {over} px too wide at {width} px"
    assert page.js("return document.querySelector('#message').getBoundingClientRect().bottom") < 800


CONTRAST = """
const channel = (v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const light = (css) => {
  const [r, g, b] = css.match(/[\\d.]+/g).map(Number).map(channel);
  return .2126 * r + .7152 * g + .0722 * b;
};
const ground = (node) => {
  const own = getComputedStyle(node).backgroundColor;
  return own !== 'rgba(0, 0, 0, 0)' ? own : ground(node.parentElement);
};
return arguments[0].map((css) => {
  const node = document.querySelector(css);
  const pair = [light(getComputedStyle(node).color), light(ground(node))].sort((a, b) => b - a);
  return [css, (pair[0] + .05) / (pair[1] + .05), light(ground(node))];
});
"""


PLACES = """
.question .text|.answer p|.text p code|.text pre code|.meta span|#model|#status|summary|#send
|#trouble|.figure .label|#facts dt|#drafts th|#drafts td|#drafts-low
""".replace("\n", "").split("|")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_can_be_read(
    page: Chromium, server: FakeServer, scheme: str
) -> None:
    page.prefer(scheme)
    server.metrics = metrics_text(drafts=drafts(1, low=True))
    page.js(READ_NOW)
    page.wait("document.querySelector('#drafts-low').checkVisibility()")
    server.instead["/metrics"] = refusal(500, "Broken.")
    page.js(READ_NOW)
    page.wait("document.querySelector('#trouble').innerText !== ''")
    exchange(page, server, "Hello?", "Yes, `code`.\n\n```sh\nls\n```")
    for css, contrast, ground in page.js(CONTRAST, PLACES):
        assert contrast >= 4.5, f"{css}: {contrast:.2f} to 1"
        if css != "#send":
            assert (ground > 0.5) == (scheme == "light"), css


def test_every_control_has_a_name_and_a_focus_ring(page: Chromium, server: FakeServer) -> None:
    exchange(page, server, "Hello?", "Yes.")
    page.click("#settings summary")
    nodes = page.cdp("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "textbox", "spinbutton", "DisclosureTriangle", "log", "complementary"}
    controls = [n for n in nodes if not n["ignored"] and n["role"]["value"] in roles]
    names = [n["name"]["value"] for n in controls]
    assert all(names), controls
    assert {"Message", "Temperature", "Max tokens", "System prompt", "Send", "Copy"} <= set(names)
    seen = []
    page.js("document.querySelector('#log').focus()")
    for _ in range(8):
        page.press("Tab")
        seen.append(page.js("return document.activeElement.id || document.activeElement.tagName"))
        ring = page.js("return getComputedStyle(document.activeElement).outlineStyle")
        assert ring == "solid", seen
    assert seen[:7] == [
        "BUTTON",
        "SUMMARY",
        "temperature",
        "max-tokens",
        "system",
        "clear",
        "message",
    ]


LONG = "A line of text that is long enough.\n\n"
AT_END = (
    "((log) => log.scrollHeight - log.scrollTop - log.clientHeight < 24)"
    "(document.querySelector('#log'))"
)


def test_follows_the_answer_only_when_at_its_end(page: Chromium, server: FakeServer) -> None:
    answer = server.next_answer()
    ask(page, "Hello?")
    answer.say(LONG * 40)
    page.wait(f"{TEXT}.length > 1000 && {AT_END}")
    assert page.js("return document.querySelector('#log').scrollTop") > 100
    page.js("document.querySelector('#log').scrollTop = 50")
    page.wait("!document.querySelector('#latest').hidden")
    answer.say(LONG * 40)
    page.wait(f"{TEXT}.length > 2500")
    assert page.js("return document.querySelector('#log').scrollTop") == 50
    page.click("#latest")
    page.wait("document.querySelector('#latest').hidden")
    answer.say(LONG * 40)
    page.wait(f"{TEXT}.length > 4000 && {AT_END}")
    answer.end()
    wait_end(page)
    assert page.js(f"return {AT_END}") is True


def test_the_end_of_an_answer_moves_nothing(page: Chromium, server: FakeServer) -> None:
    boxes = (
        "return ['.question .text', '.answer .text p', '.answer .meta', '#message', '#foot']"
        ".map((css) => document.querySelector(css).getBoundingClientRect().toJSON())"
    )
    answer = server.next_answer().say("First paragraph.\n\nSecond.")
    ask(page, "Hello?")
    page.wait(f"{TEXT}.includes('Second.')")
    before = page.js(boxes)
    answer.end()
    wait_end(page)
    assert page.js(boxes) == before


def test_selection_in_older_text_survives_new_text(page: Chromium, server: FakeServer) -> None:
    answer = server.next_answer().say("Chosen words.\n\nTail")
    ask(page, "Hello?")
    page.wait(f"{TEXT}.includes('Tail')")
    page.js("getSelection().selectAllChildren(document.querySelector('.answer .text p'))")
    answer.say(" grows.\n\nAnd more.").end()
    wait_end(page)
    assert page.js("return String(getSelection())") == "Chosen words."
