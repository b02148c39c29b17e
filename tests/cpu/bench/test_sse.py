"""The reader of event streams: the same events for every cut, and byte-exact data (H08)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.bench.client import sse
from draftmark.bench.client.sse import Event, EventTooLong, SseParser

LINES = [
    'data: {"t": " leading"}',
    "",
    ": a comment",
    "",
    'data: {"t": "汉字, 🙂"}',
    "id: 7",
    "",
    ":",
    "event: error",
    "data: one",
    "data:  two ",
    "data:three",
    "data",
    "retry: 5",
    "",
    "",
    "data: [DONE]",
    "",
    "",
]
EVENTS = [
    Event(b'{"t": " leading"}'),
    Event('{"t": "汉字, 🙂"}'.encode()),
    Event(b"one\n two \nthree\n", b"error"),
    Event(b"[DONE]"),
]


def read(pieces: list[bytes]) -> list[Event]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close()


def stream(end: str) -> bytes:
    return end.join(LINES).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_cut_in_two_at_every_byte(end: str, bom: bytes) -> None:
    data = bom + stream(end)
    for cut in range(len(data) + 1):
        assert read([data[:cut], data[cut:]]) == EVENTS, f"cut at {cut}"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_cut_everywhere_at_once(end: str) -> None:
    data = b"\xef\xbb\xbf" + stream(end)
    assert read([data[i : i + 1] for i in range(len(data))]) == EVENTS


@given(st.lists(st.integers(0, 200)), st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_cuts(cuts: list[int], end: str) -> None:
    data = stream(end)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert read([data[a:b] for a, b in pairwise(edges)]) == EVENTS


@given(st.lists(st.text(min_size=1).filter(lambda t: not set(t) & set("\r\n"))), st.data())
def test_any_text_survives_any_cut(texts: list[str], data: st.DataObject) -> None:
    whole = "".join(f"data: {text}\n\n" for text in texts).encode()
    cut = data.draw(st.integers(0, len(whole)))
    assert read([whole[:cut], whole[cut:]]) == [Event(text.encode()) for text in texts]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_missing_last_blank_line_loses_nothing(end: str) -> None:
    assert read([b"data: a\n\ndata: b" + end.encode()]) == [Event(b"a"), Event(b"b")]


def test_an_event_is_given_as_soon_as_it_is_whole() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\n\r") == [Event(b"a")]
    assert parser.feed(b"\n") == []
    assert parser.feed(b"data: b\n") == []
    assert parser.feed(b"\n") == [Event(b"b")]


def test_comments_and_pings_are_no_events() -> None:
    assert read([b": keep-alive\n\nevent: ping\n\n\n\nid: 3\n\n"]) == []


def test_a_stream_without_line_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "_MAX_EVENT_BYTES", 100)
    with pytest.raises(EventTooLong):
        SseParser().feed(b"x" * 101)
