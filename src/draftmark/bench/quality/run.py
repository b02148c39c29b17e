"""A set of problems asked of one server, and two such results compared problem by problem.

A problem that the server failed to answer has no result, and then the whole has none: a share of
what came through would be a figure of a broken run. What the model did badly (nothing but
reasoning, nothing at all, cut at the limit) is a wrong answer and counted as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from draftmark.bench.ask import Asker, Reply
from draftmark.bench.quality.degenerate import degenerate
from draftmark.bench.quality.paired import Paired, compare_paired, wilson_interval
from draftmark.bench.quality.problems import Problem, is_marked, is_right
from draftmark.bench.request import Failure
from draftmark.bench.single_file import read_value
from draftmark.core.errors import ConfigError

# The model's own doing: the answer came, and is a bad one.
_ANSWERED = (None, Failure.EMPTY_OUTPUT, Failure.REASONING_ONLY)


class Item(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One problem. `correct` is None where the request failed; `marked` says whether the answer
    kept to the form that was asked for."""

    id: str
    sha: str
    correct: bool | None
    marked: bool
    finish: str | None
    tokens: int | None
    failure: str | None
    degenerate: list[str]
    text: str


class QualityResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`quality.json`. `share` and its interval are None when any item failed. `start_id` is the
    server's start, which a speed run of the same start must share; `stopped` says why not all were
    asked."""

    schema: Literal["bench.quality/1"] = "bench.quality/1"
    task: str
    model: str
    start_id: str | None
    fields: dict[str, Any]
    n: int
    correct: int
    failed: int
    marked: int
    degenerate: int
    share: float | None
    low: float | None
    high: float | None
    stopped: str | None = None
    items: list[Item]


def run_quality(
    asker: Asker,
    problems: Sequence[Problem],
    *,
    task: str,
    in_flight: int = 8,
    start_id: str | None = None,
    fields: Mapping[str, Any] | None = None,
    on_reply: Callable[[int, Reply], None] | None = None,
) -> QualityResult:
    """Greedy unless `fields`, which go into every request, say otherwise."""
    fields = {"max_tokens": 1024, **(fields or {})}
    asks = [asker.chat(p.messages, **{**fields, **p.fields}) for p in problems]
    replies = asker.ask(asks, in_flight=in_flight, on_reply=on_reply)
    items = [_item(*pair) for pair in zip(problems, replies, strict=True)]
    right = sum(item.correct is True for item in items)
    failed = sum(item.correct is None for item in items)
    low, high = wilson_interval(right, len(items))
    return QualityResult(
        task=task,
        model=asker.model,
        start_id=start_id,
        fields=fields,
        n=len(items),
        correct=right,
        failed=failed,
        marked=sum(item.marked for item in items),
        degenerate=sum(bool(item.degenerate) for item in items),
        share=None if failed else right / len(items),
        low=None if failed else low,
        high=None if failed else high,
        stopped=asker.stopped,
        items=items,
    )


def check_reference(reference: QualityResult, problems: Sequence[Problem], *, task: str) -> None:
    """Before `problems` are asked. Raises `ConfigError` when `reference` is not of them, or lacks
    answers."""
    _check_whole(reference, "the reference")
    _check_same(task, {problem.id: problem.sha for problem in problems}, reference)


def compare_quality(result: QualityResult, reference: QualityResult) -> Paired:
    """Raises `ConfigError` unless both answered the very same problems, all of them."""
    _check_whole(result, "this result")
    _check_whole(reference, "the reference")
    _check_same(result.task, _asked(result), reference)
    theirs = {item.id: item.correct for item in reference.items}
    pairs = [(item.correct, theirs[item.id]) for item in result.items]
    return compare_paired(
        n=len(pairs), gained=pairs.count((True, False)), lost=pairs.count((False, True))
    )


def read_quality(path: Path) -> QualityResult:
    """Raises `ConfigError` for what is no `quality.json`."""
    return read_value(path, QualityResult)


def _check_whole(result: QualityResult, name: str) -> None:
    if result.failed:
        raise ConfigError(
            f"{name} lacks {result.failed} of {result.n} answers: it compares nothing"
        )


def _check_same(task: str, asked: Mapping[str, str], reference: QualityResult) -> None:
    if task != reference.task or asked != _asked(reference):
        raise ConfigError(
            f"{task} ({len(asked)}) and {reference.task} ({reference.n}) are not the same "
            "problems, word for word: they cannot be paired"
        )


def _asked(result: QualityResult) -> dict[str, str]:
    return {item.id: item.sha for item in result.items}


def _item(problem: Problem, reply: Reply) -> Item:
    record = reply.record
    is_answered = record.failure in _ANSWERED
    return Item(
        id=problem.id,
        sha=problem.sha,
        correct=is_right(reply.content, problem.answer) if is_answered else None,
        marked=is_marked(reply.content),
        finish=record.finish,
        tokens=record.n_out,
        failure=reply.problem or None,
        degenerate=degenerate(reply.reasoning + "\n" + reply.content) if is_answered else [],
        text=reply.content,
    )
