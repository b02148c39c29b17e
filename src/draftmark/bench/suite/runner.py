"""Asks the cases and writes one row each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from draftmark.bench.ask import Ask, Asker, Reply
from draftmark.bench.single_file import read_value
from draftmark.bench.suite.case import Case
from draftmark.bench.suite.judge import faults_of
from draftmark.core.errors import ConfigError


class SuiteRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`content` and `reasoning` are characters, `tokens` and `chunks` of the answer, None of one in
    one piece. `excerpt` is the start of its text, for a reader."""

    id: str
    title: str
    passed: bool
    seconds: float | None
    http: int | None
    content: int
    reasoning: int
    tools: list[str]
    finish: str | None
    tokens: int | None
    chunks: int | None
    faults: list[str]
    excerpt: str


class SuiteResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`suite.json`. `stopped` says why not all cases were asked: what was not asked has not failed,
    and then nothing is said of the whole."""

    schema: Literal["bench.suite/1"] = "bench.suite/1"
    model: str
    start_id: str | None
    passed: int
    failed: int
    stopped: str | None = None
    rows: list[SuiteRow]


def run_suite(
    asker: Asker,
    cases: Sequence[Case],
    *,
    in_flight: int = 1,
    start_id: str | None = None,
    on_case: Callable[[Case], None] | None = None,
) -> SuiteResult:
    """One at a time unless `in_flight` says otherwise: times are then those of a busy server.
    `on_case` gets each as it is answered."""

    def tell(index: int, _: Reply) -> None:
        if on_case is not None:
            on_case(cases[index])

    asks = [_ask(asker, case) for case in cases]
    replies = asker.ask(asks, in_flight=in_flight, on_reply=tell)
    by_id = {case.id: reply for case, reply in zip(cases, replies, strict=True)}
    rows = []
    for case in cases:
        other = None if case.expect.same_as is None else by_id[case.expect.same_as]
        rows.append(_row(case, by_id[case.id], other))
    passed = sum(row.passed for row in rows)
    return SuiteResult(
        model=asker.model,
        start_id=start_id,
        passed=passed,
        failed=len(rows) - passed,
        stopped=asker.stopped,
        rows=rows,
    )


def read_suite(path: Path) -> SuiteResult:
    """Raises `ConfigError` for what is no `suite.json`, and for one that broke off."""
    found = read_value(path, SuiteResult)
    if found.stopped is not None:
        raise ConfigError(f"{path} is partial ({found.stopped}): nothing is compared with it")
    return found


def _ask(asker: Asker, case: Case) -> Ask:
    return Ask(path=case.path, body={"model": asker.model, "temperature": 0.0, **case.body})


def _row(case: Case, reply: Reply, other: Reply | None) -> SuiteRow:
    faults = faults_of(case.expect, reply, other)
    return SuiteRow(
        id=case.id,
        title=case.title,
        passed=not faults,
        seconds=reply.seconds,
        http=reply.record.http,
        content=len(reply.content),
        reasoning=len(reply.reasoning),
        tools=[call.name for call in reply.tools],
        finish=reply.record.finish,
        tokens=reply.record.n_out,
        chunks=reply.record.events if case.body.get("stream") else None,
        faults=faults,
        excerpt=(reply.content or reply.reasoning)[:200],
    )
