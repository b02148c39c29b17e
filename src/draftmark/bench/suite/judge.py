"""Whether an answer is what its case wants: every fault, one sentence each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from draftmark.bench.ask import Reply
from draftmark.bench.client.stream import ToolCall
from draftmark.bench.quality.degenerate import degenerate
from draftmark.bench.suite.case import Bounds, Expect, TextRule, WantedCall


def faults_of(expect: Expect, reply: Reply, other: Reply | None) -> list[str]:
    """`other` is the reply to the case of `same_as`."""
    return list(_faults(expect, reply, other))


def _faults(expect: Expect, reply: Reply, other: Reply | None) -> Iterator[str]:
    record = reply.record
    if record.http is None:
        yield reply.problem
        return
    if record.http not in expect.http:
        wanted = " or ".join(map(str, expect.http))
        yield f"HTTP {record.http} instead of {wanted}" + _because(reply)
        return
    if record.http != 200:
        yield from _of_text(expect.error or TextRule(min=1), record.error or "", "the error")
        return
    if not reply.ok:
        yield reply.problem
    if expect.finish is not None and record.finish not in expect.finish:
        yield f"finish_reason {record.finish} instead of {' or '.join(expect.finish)}"
    yield from _of_text(expect.content, reply.content, "content")
    yield from _of_text(expect.reasoning, reply.reasoning, "reasoning")
    yield from _of_calls(expect.tools, reply.tools)
    yield from _of_count(expect.tokens, record.n_out, "tokens")
    yield from _of_count(expect.prompt_tokens, record.n_in_usage, "tokens of the prompt")
    yield from _of_count(expect.chunks, record.events, "chunks")
    yield from degenerate(f"{reply.reasoning}\n{reply.content}")
    if other is not None:
        yield from _of_twin(expect, reply, other)


def _because(reply: Reply) -> str:
    return f" ({reply.problem})" if reply.problem else ""


def _of_text(rule: TextRule | None, text: str, what: str) -> Iterator[str]:
    if rule is None:
        return
    yield from _of_count(Bounds(min=rule.min, max=rule.max), len(text), f"characters of {what}")
    yield from (f"{what} lacks {part!r}" for part in rule.contains if part not in text)
    yield from (f"{what} holds {part!r}" for part in rule.lacks if part in text)
    if rule.matches is not None and not _is_found(rule.matches, text):
        yield f"{what} does not match {rule.matches!r}: {text[:80]!r}"
    if rule.json and (fault := _json_fault(text)):
        yield f"{what} is no JSON: {fault}"


def _is_found(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.DOTALL) is not None


def _of_count(bounds: Bounds | None, value: int | None, what: str) -> Iterator[str]:
    if bounds is None or (bounds.min is None and bounds.max is None):
        return
    if value is None:
        yield f"the number of {what} is not known"
    elif bounds.min is not None and value < bounds.min:
        yield f"{value} {what}, at least {bounds.min} wanted"
    elif bounds.max is not None and value > bounds.max:
        yield f"{value} {what}, at most {bounds.max} wanted"


def _of_calls(wanted: list[WantedCall], given: list[ToolCall]) -> Iterator[str]:
    names = [call.name for call in given]
    if names != [call.name for call in wanted]:
        yield f"calls of {names} instead of {[call.name for call in wanted]}"
        return
    for want, call in zip(wanted, given, strict=True):
        arguments, fault = _object_of(call.arguments)
        if arguments is None:
            yield f"arguments of {call.name}: {fault}"
            continue
        for name, value in want.arguments.items():
            if arguments.get(name) != value:
                yield f"{call.name} has {name}={arguments.get(name)!r} instead of {value!r}"


def _of_twin(expect: Expect, reply: Reply, other: Reply) -> Iterator[str]:
    if (reply.reasoning, reply.content) != (other.reasoning, other.content):
        yield f"its text is another than that of {expect.same_as}: {reply.content[:80]!r}"
    calls, others = ([(c.name, c.arguments) for c in r.tools] for r in (reply, other))
    if calls != others:
        yield f"its calls are others than those of {expect.same_as}: {calls}"


def _json_fault(text: str) -> str | None:
    try:
        json.loads(text)
    except ValueError as error:
        return str(error)
    return None


def _object_of(text: str) -> tuple[dict[str, Any] | None, str]:
    try:
        found = json.loads(text)
    except ValueError as error:
        return None, f"no JSON: {error}"
    return (found, "") if isinstance(found, dict) else (None, f"no object: {text[:80]}")
