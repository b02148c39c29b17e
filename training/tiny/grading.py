"""Whether an answer is right: numbers, calls and loops, read from a server's text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_NUMBER = re.compile(r"^#### (-?[\d,]+)\s*$", re.MULTILINE)
_CALL = re.compile(r"<tool_call>\n<function=([^>\n]+)>\n(.*?)</function>\n</tool_call>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", re.DOTALL)
# A piece of this many tokens that follows itself this often is a loop.
_LONGEST_PERIOD = 32
_REPEATS = 3

Call = tuple[str, dict[str, str]]


def final_number(text: str) -> int | None:
    """What stands after the last `####`; None without one."""
    found = _NUMBER.findall(text)
    return int(found[-1].replace(",", "")) if found else None


def calls(text: str) -> list[Call]:
    """The calls of an answer, values as written; a malformed one is not among them."""
    return [
        (name, dict(_PARAMETER.findall(body)))
        for name, body in _CALL.findall(text)
        if not _PARAMETER.sub("", body)
    ]


def has_call(text: str) -> bool:
    return "<tool_call>" in text or "<function=" in text


def wanted_calls(message: Mapping[str, Any]) -> list[Call]:
    """The calls of an assistant's message, values as the template writes them."""
    return [
        (
            call["function"]["name"],
            {
                name: value if isinstance(value, str) else json.dumps(value)
                for name, value in call["function"]["arguments"].items()
            },
        )
        for call in message["tool_calls"]
    ]


def is_exactly_called(text: str, wanted: Sequence[Call]) -> bool:
    """These calls in this order and no other, and nothing but thinking and blank lines beside
    them. The order of a call's parameters is free."""
    answer = text.rpartition("</think>")[2]
    return calls(text) == list(wanted) and not _CALL.sub("", answer).strip()


def looped_share(tokens: Sequence[int]) -> float:
    """The share of tokens within a stretch where a piece of at most 32 tokens follows itself three
    times or more."""
    looped = [False] * len(tokens)
    for period in range(1, _LONGEST_PERIOD + 1):
        run = 0
        for i in range(period, len(tokens)):
            run = run + 1 if tokens[i] == tokens[i - period] else 0
            if run >= period * (_REPEATS - 1):
                start = i - run - period + 1
                looped[start : i + 1] = [True] * (i + 1 - start)
    return sum(looped) / len(looped) if looped else 0.0
