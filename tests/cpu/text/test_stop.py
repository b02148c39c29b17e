"""C05: stop strings over any cut of the text, with the shortest possible hold-back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.core.errors import RequestError
from draftmark.text.stop import MAX_STOP_CHARS, MAX_STOP_STRINGS, StopMatcher, check_stop


def _run(stop: list[str], deltas: list[str]) -> tuple[list[str], str | None]:
    matcher = StopMatcher(stop)
    shown: list[str] = []
    for delta in deltas:
        shown.append(matcher.feed(delta))
        if matcher.matched is not None:
            return shown, matcher.matched
    return [*shown, matcher.flush()], None


def test_a_stop_string_spread_over_chunks_is_never_shown() -> None:
    shown, matched = _run(["\nHuman:", "END"], ["ok", "\nHu", "man", ": hi"])
    assert (shown, matched) == (["ok", "", "", ""], "\nHuman:")


def test_a_near_miss_is_released() -> None:
    shown, matched = _run(["\nHuman:", "END"], ["EN", "TRY"])
    assert (shown, matched) == (["", "ENTRY", ""], None)


def test_held_text_comes_with_the_flush() -> None:
    assert _run(["END"], ["the EN"]) == (["the ", "EN"], None)


@pytest.mark.parametrize(
    ("stop", "text", "before", "matched"),
    [
        (["abcd", "bc"], "xabcd", "xa", "bc"),  # complete first
        (["bc", "abc"], "xabcd", "x", "abc"),  # complete together: the longest
        (["aab"], "aaab", "a", "aab"),  # an overlapping false start
        (["a"], "a", "", "a"),
        (["日本"], "日日本語", "日", "日本"),
    ],
)
def test_which_match_wins(stop: list[str], text: str, before: str, matched: str) -> None:
    for deltas in ([text], list(text)):
        shown, found = _run(stop, deltas)
        assert ("".join(shown), found) == (before, matched)


_ALPHABET = st.text(alphabet="ab", max_size=24)
_STOPS = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=4)


@given(_STOPS, st.lists(_ALPHABET, max_size=8))
def test_every_cut_equals_one_piece_and_the_definition(stop: list[str], deltas: list[str]) -> None:
    text = "".join(deltas)
    shown, matched = _run(stop, deltas)
    whole, whole_matched = _run(stop, [text])
    assert ("".join(shown), matched) == ("".join(whole), whole_matched)
    assert ("".join(shown), matched) == _by_definition(stop, text)


@given(_STOPS, st.lists(_ALPHABET, max_size=8))
def test_hold_back_is_the_longest_tail_that_begins_a_stop_string(
    stop: list[str], deltas: list[str]
) -> None:
    matcher = StopMatcher(stop)
    seen = shown = ""
    for delta in deltas:
        seen += delta
        shown += matcher.feed(delta)
        if matcher.matched is not None:
            return
        tails = [seen[at:] for at in range(len(seen) + 1)]
        held = next(tail for tail in tails if any(text.startswith(tail) for text in [*stop, ""]))
        assert shown + held == seen
        assert len(held) <= max((len(text) - 1 for text in stop), default=0)


def _by_definition(stop: list[str], text: str) -> tuple[str, str | None]:
    for end in range(1, len(text) + 1):
        complete = [candidate for candidate in stop if text[:end].endswith(candidate)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


@pytest.mark.parametrize(
    "stop", [[""], ["a", ""], ["x"] * (MAX_STOP_STRINGS + 1), ["x" * (MAX_STOP_CHARS + 1)]]
)
def test_what_cannot_be_taken_names_the_field(stop: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        check_stop(stop)
    assert caught.value.param == "stop"
