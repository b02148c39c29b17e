"""Clauses made of parts: every verb that brings or takes, with every way to name what it moves.

The families tie a verb to the few sentences they use it in; here it meets all others, so that a
problem's sense is to be read from its verb. The words are those of the training families.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from training.tiny.data.arithmetic_frames import Frame, Op, add, owners_of, start, take

_GET = (
    "gets",
    "finds",
    "wins",
    "earns",
    "receives",
    "collects",
    "gathers",
    "makes",
    "adds",
    "bakes",
    "buys",
    "brings",
    "picks",
    "catches",
    "plants",
    "builds",
    "orders",
    "paints",
    "picks up",
    "brings home",
    "is given",
)
_OWN = ("has", "owns", "counts", "keeps", "holds", "saves", "starts with")
_LOSE = (
    "sells",
    "loses",
    "drops",
    "breaks",
    "burns",
    "eats",
    "uses",
    "spends",
    "donates",
    "lends",
    "sends away",
    "gives away",
    "throws away",
    "takes away",
    "hands out",
    "leaves behind",
)
_COME = (
    "arrive",
    "come",
    "come in",
    "join",
    "are added",
    "are brought",
    "are found",
    "are bought",
    "are built",
    "are made",
    "are delivered",
    "are put in",
)
_GO = (
    "leave",
    "go away",
    "go home",
    "are lost",
    "are sold",
    "are eaten",
    "are broken",
    "are used",
    "are taken away",
    "are thrown away",
    "are given away",
    "are sent away",
)
_OTHERS = ("The {other}", "A {other}", "A friend", "A woman", "Somebody")


@cache
def composed_frames() -> Mapping[tuple[Op, str], tuple[Frame, ...]]:
    """By operation and by whom they speak of, as `owners_of` says it."""
    frames = [*_starts(), *_additions(), *_removals()]
    found: dict[tuple[Op, str], list[Frame]] = defaultdict(list)
    for frame in frames:
        found[frame.op, owners_of(frame)].append(frame)
    return {key: tuple(alike) for key, alike in found.items()}


def _starts() -> list[Frame]:
    objects = ("{n} {things}]", "{n}]", "{n} old {things}]", "{n}] good {things}")
    frames = [
        start(f"{{{owner}}} [{verb} {what}")
        for owner in "ABC"
        for verb in (*_OWN, *_OWN, *_GET)
        # The first of all has to say what is counted.
        for what in (objects if owner != "A" else (objects[0], objects[2]))
    ]
    places = ("at home", "on a table", "in a room", "at the {other}", "in the {other}")
    return frames + [start(f"There [are {{n}} {{things}}] {place}") for place in places]


def _additions() -> list[Frame]:
    objects = (
        "{n} {things}]",
        "{n} more {things}]",
        "{n} more] {things}",
        "{n} more]",
        "another {n}]",
        "another {n} {things}]",
        "{n}] new {things}",
        "{n}]",
    )
    frames = [
        add(f"{who} [{verb} {what}")
        for who in ("{A}", "{A}", *_OTHERS)
        for verb in _GET
        for what in objects
    ]
    return frames + [
        add(f"[{{n}} {more}{{things}} ~{verb}]") for more in ("", "more ", "new ") for verb in _COME
    ]


def _removals() -> list[Frame]:
    objects = (
        "{n} {things}]",
        "{n} of the {things}]",
        "{n} of them]",
        "{n}] of {his} {things}",
        "{n}] old {things}",
        "{n}]",
    )
    frames = [take(f"{{A}} [{verb} {what}") for verb in _LOSE for what in objects]
    # What a stranger loses would not be theirs that the question is about.
    frames += [
        take(f"{who} [{verb} {what}")
        for who in _OTHERS
        for verb in ("takes away", "eats", "breaks", "buys", "burns", "throws away", "uses")
        for what in ("{n} of the {things}]", "{n} of them]", "{n} of {A}'s {things}]")
    ]
    return frames + [
        take(f"[{{n}} {which}{{things}} ~{verb}]")
        for which in ("", "of the ", "old ")
        for verb in _GO
    ]
