"""The same requests alone and in a crowd: short, long, streamed and tool requests at N in flight,
each answer compared with the answer to the same request alone.

Sums of other batch sizes round otherwise, so two tokens that are nearly equally likely may change
places. Such a tie is told by the solo answer's own log probabilities: at the first token that
differs, the crowd's must be the runner-up, at most `tie_nats` behind. Everything else differs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Literal

import msgspec

from draftmark.bench.ask import Ask, Asker, Reply
from draftmark.bench.quality.quick import WEATHER_TOOL, needle_text
from draftmark.bench.request import Failure
from draftmark.bench.result import Gate, GateKind, GateState

# Two roundings of a logit between 16 and 32 in bfloat16. Servers that keep logits in float32 need
# far less.
TIE_NATS = 0.25
# What is compared ends at a tie: with more of them too little was seen.
_MAX_TIE_SHARE = 0.5
_THINGS = "rivers bees bridges clocks bread glass wind maps salt wool lamps ships"
_CITIES = "Paris Rome Oslo Lima Cairo Delhi Quito Seoul Turin Bergen Nairobi Lisbon"


class Kind(StrEnum):
    SHORT = "short"
    LONG = "long"
    STREAMED = "streamed"
    TOOL = "tool"


class Word(StrEnum):
    EQUAL = "equal"
    TIE = "tie"
    DIFFERS = "differs"
    FAILED = "failed"


class Outcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer of the crowd. `at` is the token where it leaves the solo answer, `margin` how far
    the solo answer's choice there was ahead of its runner-up, in nats."""

    round: int
    index: int
    kind: Kind
    word: Word
    at: int | None = None
    margin: float | None = None
    note: str = ""


class ConcResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`conc.json`. `outcomes` are those that are not equal. `left_out` says what the server does
    not take, by its own words, `stopped` why not everything was asked."""

    schema: Literal["bench.conc/1"] = "bench.conc/1"
    model: str
    in_flight: int
    rounds: int
    tie_nats: float
    equal: int
    ties: int
    differs: int
    failed: int
    stopped: str | None = None
    left_out: list[str]
    outcomes: list[Outcome]


class _Token(msgspec.Struct, frozen=True):
    """A token of an answer as the server tells it, and the runner-up there."""

    text: str
    runner_up: str | None
    margin: float | None


def run_conc(
    asker: Asker,
    *,
    in_flight: int = 16,
    rounds: int = 3,
    tie_nats: float = TIE_NATS,
    long_tokens: int = 1500,
    max_tokens: int = 64,
    fields: dict[str, Any] | None = None,
    on_round: Callable[[int], None] | None = None,
) -> ConcResult:
    """`in_flight` requests, alone one after the other, then all at once in `rounds` orders."""
    fields = {"max_tokens": max_tokens, **(fields or {})}
    extra, left_out = _probe(asker, fields)
    has_tools = not any(reason.startswith("tools") for reason in left_out)
    made = _requests(asker, in_flight, long_tokens, has_tools, {**fields, **extra})
    solo = asker.ask([ask for _, ask in made])
    outcomes: list[Outcome] = []
    draw = random.Random(in_flight)
    for number in range(1, rounds + 1):
        order = draw.sample(range(len(made)), len(made))
        replies = asker.ask([made[index][1] for index in order], in_flight=in_flight)
        outcomes += [
            _compare(number, index, made[index][0], solo[index], reply, tie_nats)
            for index, reply in zip(order, replies, strict=True)
        ]
        if on_round is not None:
            on_round(number)
    words = [outcome.word for outcome in outcomes]
    return ConcResult(
        model=asker.model,
        in_flight=in_flight,
        rounds=rounds,
        tie_nats=tie_nats,
        equal=words.count(Word.EQUAL),
        ties=words.count(Word.TIE),
        differs=words.count(Word.DIFFERS),
        failed=words.count(Word.FAILED),
        stopped=asker.stopped,
        left_out=left_out,
        outcomes=[outcome for outcome in outcomes if outcome.word is not Word.EQUAL],
    )


def conc_gate(result: ConcResult, *, evidence: str) -> Gate:
    """Unknown when most answers ended in a tie."""
    count = result.equal + result.ties + result.differs + result.failed
    state = GateState.OK
    if result.differs or result.failed:
        state = GateState.FAIL
    elif result.ties > _MAX_TIE_SHARE * count:
        state = GateState.UNKNOWN
    return Gate(
        id="crowd_equals_solo",
        kind=GateKind.STABILITY,
        observed=f"{result.equal} equal, {result.ties} ties, {result.differs} differ, "
        f"{result.failed} failed of {count} at {result.in_flight} in flight",
        limit=f"none differs, none fails, ties at most {_MAX_TIE_SHARE:.0%} "
        f"(a tie: within {result.tie_nats:g} nats)",
        state=state,
        evidence=evidence,
        advice="ask the first of the other answers alone again; look for state that sequences "
        "share. Many ties: a larger model, or shorter answers",
    )


def _probe(asker: Asker, fields: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Fields for log probabilities, and what the server refuses, by its own words."""
    told = {"logprobs": True, "top_logprobs": 2}
    asked = [{"role": "user", "content": "Say hello."}]
    short = {**fields, "max_tokens": 4}
    with_logprobs, with_tools = asker.ask(
        [asker.chat(asked, **short, **told), asker.chat(asked, **short, tools=[WEATHER_TOOL])]
    )
    left_out = []
    if is_refused := _is_refused(with_logprobs):
        left_out.append(f"logprobs: {with_logprobs.problem}; every difference counts")
    if _is_refused(with_tools):
        left_out.append(f"tools: {with_tools.problem}")
    return ({} if is_refused else told), left_out


def _is_refused(reply: Reply) -> bool:
    """By a server that answers and does not do it; a connection that broke says nothing of that."""
    return reply.record.failure in (Failure.HTTP_4XX, Failure.HTTP_5XX)


def _requests(
    asker: Asker, count: int, long_tokens: int, has_tools: bool, fields: dict[str, Any]
) -> list[tuple[Kind, Ask]]:
    kinds = [kind for kind in Kind if has_tools or kind is not Kind.TOOL]
    return [
        (kind, _request(asker, kind, index, long_tokens, fields))
        for index in range(count)
        for kind in [kinds[index % len(kinds)]]
    ]


def _request(asker: Asker, kind: Kind, index: int, long_tokens: int, fields: dict[str, Any]) -> Ask:
    things, cities = _THINGS.split(), _CITIES.split()
    thing = f"{things[index % len(things)]} and {things[(index // 3 + 1) % len(things)]}"
    if kind is Kind.TOOL:
        text = f"What is the weather in {cities[index % len(cities)]} now? ({index})"
        fields = {**fields, "tools": [WEATHER_TOOL]}
    elif kind is Kind.LONG:
        text = f"Text {index} of several.\n\n{needle_text(long_tokens)}"
    else:
        text = f"Write a few sentences about {thing}. ({index})"
    if kind is Kind.STREAMED:
        fields = {**fields, "stream": True, "stream_options": {"include_usage": True}}
    return asker.chat([{"role": "user", "content": text}], **fields)


def _compare(
    number: int, index: int, kind: Kind, solo: Reply, crowd: Reply, tie_nats: float
) -> Outcome:
    def outcome(
        word: Word, note: str = "", at: int | None = None, margin: float | None = None
    ) -> Outcome:
        return Outcome(
            round=number, index=index, kind=kind, word=word, at=at, margin=margin, note=note
        )

    for reply, name in ((solo, "alone"), (crowd, "in the crowd")):
        if not reply.ok:
            return outcome(Word.FAILED, f"{name}: {reply.problem}")
    if _said(solo) == _said(crowd):
        return outcome(Word.EQUAL)
    ours, theirs = tokens_of(crowd), tokens_of(solo)
    at = first_difference([one.text for one in theirs], [one.text for one in ours])
    if at is None or at >= min(len(ours), len(theirs)):
        return outcome(Word.DIFFERS, f"no token tells why: {_excerpts(solo, crowd)}")
    chosen = theirs[at]
    is_tie = (
        chosen.margin is not None
        and chosen.margin <= tie_nats
        and ours[at].text == chosen.runner_up
    )
    note = f"{chosen.text!r} alone, {ours[at].text!r} in the crowd"
    return outcome(Word.TIE if is_tie else Word.DIFFERS, note, at, chosen.margin)


def tokens_of(reply: Reply) -> list[_Token]:
    """From the log probabilities of a chat's answer, streamed or not; [] without any."""
    found = []
    for part in reply.objects():
        for choice in part.get("choices") or []:
            for entry in (choice.get("logprobs") or {}).get("content") or []:
                found.append(_token(entry))
    return found


def first_difference(a: Sequence[str], b: Sequence[str]) -> int | None:
    """The first place where they are not the same, the end of the shorter one included; None when
    they are equal."""
    for place, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return place
    return None if len(a) == len(b) else min(len(a), len(b))


def _token(entry: dict[str, Any]) -> _Token:
    text, own = str(entry["token"]), float(entry["logprob"])
    others = [other for other in entry.get("top_logprobs") or [] if other["token"] != text]
    if not others:
        return _Token(text, None, None)
    nearest = max(others, key=lambda other: float(other["logprob"]))
    return _Token(text, str(nearest["token"]), own - float(nearest["logprob"]))


def _said(reply: Reply) -> tuple[Any, ...]:
    calls = [(call.name, call.arguments) for call in reply.tools]
    return reply.reasoning, reply.content, calls, reply.record.finish


def _excerpts(solo: Reply, crowd: Reply) -> str:
    place = first_difference(solo.content, crowd.content) or 0
    start = max(place - 10, 0)
    return f"{solo.content[start : start + 40]!r} alone, {crowd.content[start : start + 40]!r}"
