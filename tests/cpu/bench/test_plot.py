"""Charts: scales with round ticks, and places where values belong."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.bench.report.plot import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    numbered,
    scale,
)


def chart(**changes) -> Chart:
    fields = {"title": "t", "x": scale(0, 10, "s"), "y": scale(0, 1, ""), "parts": []}
    return Chart(**{**fields, **changes})


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0, 10, ["0", "2", "4", "6", "8", "10"]),
        (15.2, 19.6, ["16", "17", "18", "19"]),
        (0, 0.031, ["0.00", "0.01", "0.02", "0.03"]),
        (0, 12345, ["0", "5,000", "10,000"]),
        (3, 3, ["3.0", "3.2", "3.4", "3.6", "3.8", "4.0"]),
    ],
)
def test_ticks_are_round(low: float, high: float, words: list[str]):
    made = scale(low, high, "")
    assert [made.words(tick) for tick in made.ticks] == words


@given(st.floats(0, 1e6), st.floats(1e-6, 1e6))
def test_there_are_a_few_ticks_and_all_are_within(low: float, width: float):
    made = scale(low, low + width, "")
    assert 1 <= len(made.ticks) <= 7
    slack = 1e-6 * (made.high - made.low) + 1e-9 * made.high
    assert all(made.low - slack <= tick <= made.high + slack for tick in made.ticks)


def test_shares_are_said_in_percent():
    made = scale(0, 1, "", is_share=True)
    assert [made.words(tick) for tick in made.ticks][:2] == ["0%", "20%"]
    small = scale(0, 0.0012, "", is_share=True)
    assert [small.words(tick) for tick in small.ticks][:2] == ["0.00%", "0.05%"]


def test_values_have_their_places():
    drawn = chart()
    assert (drawn.at_x(0), drawn.at_x(10)) == (LEFT, WIDTH - RIGHT)
    assert (drawn.at_y(0), drawn.at_y(1)) == (HEIGHT - BOTTOM, TOP)


def test_a_step_holds_until_the_next():
    drawn = chart()
    drawn.steps([(0, 0), (5, 1), (10, 0)])
    path = ElementTree.fromstring(drawn.svg()).findall("path")[-1].get("d")
    assert path == "M54.0 212.0L300.0 212.0L300.0 12.0L546.0 12.0L546.0 212.0"


def test_what_is_drawn_is_well_formed_and_escaped():
    drawn = chart(x=numbered(3, "<position>"), title='"a" & b')
    drawn.bars([0.5, 0.2, 0.0])
    drawn.band(1, 2, "<steady>")
    drawn.mark(3, "<end>")
    drawn.legend([("a", "one & two"), ("b", "three")])
    drawn.rug([1, 2])
    root = ElementTree.fromstring(drawn.svg())
    assert root.get("aria-label") == '"a" & b'
    said = [text.text for text in root.iter("text")]
    assert {"<position>", "<end>", "one & two", "three", "0.5"} <= set(said)
