"""What counts as a right answer."""

from __future__ import annotations

import pytest

from training.tiny.grading import (
    calls,
    final_number,
    has_call,
    is_exactly_called,
    looped_share,
    wanted_calls,
)

CALL = (
    "<tool_call>\n<function=track>\n<parameter=code>\nZK-4\n</parameter>\n"
    "<parameter=urgent>\ntrue\n</parameter>\n</function>\n</tool_call>"
)
WANTED = [("track", {"code": "ZK-4", "urgent": "true"})]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Tom has 12.\n#### 12", 12),
        ("#### 1,200", 1200),
        ("#### 3\nno\n#### 4", 4),
        ("the answer is 12", None),
        ("### 12", None),
        ("#### twelve", None),
        ("#### 12 apples", None),
    ],
)
def test_final_number(text: str, number: int | None) -> None:
    assert final_number(text) == number


def test_a_call_is_read() -> None:
    assert calls(CALL) == WANTED
    assert is_exactly_called(CALL, WANTED)
    assert is_exactly_called(f"track fits.\n</think>\n\n{CALL}", WANTED)


def test_values_of_a_message_are_as_the_template_writes_them() -> None:
    function = {"name": "track", "arguments": {"code": "ZK-4", "urgent": True}}
    assert wanted_calls({"tool_calls": [{"function": function}]}) == WANTED


@pytest.mark.parametrize(
    "text",
    [
        f"Sure.\n{CALL}",
        f"{CALL}\n{CALL}",
        CALL.replace("ZK-4", "ZK-5"),
        CALL.replace("track", "trace"),
        CALL.replace("</parameter>\n<parameter=urgent>", "<parameter=urgent>"),
        CALL.replace("</tool_call>", ""),
        CALL.replace("true", "true\nfalse"),
        "",
    ],
)
def test_another_call_is_not_right(text: str) -> None:
    assert not is_exactly_called(text, WANTED)


def test_a_broken_call_is_a_call() -> None:
    assert has_call("<tool_call>\n<func")
    assert not has_call("I have no tool for that.")


def test_loops() -> None:
    assert looped_share(list(range(50))) == 0
    assert looped_share([1, 2, 3] * 10) == 1
    assert looped_share([*range(10), 1, 2, 1, 2]) == 0  # twice is no loop
    assert looped_share([*range(12), 7, 7, 7, *range(20, 25)]) == pytest.approx(3 / 20)
