"""Requests whose answers are read for what they say: quality, functional cases, comparisons.

They go through the load client's own transport and its reading of answers, so what counts as a
failure or a token is the same everywhere. A connection a request; nothing here is a speed figure.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

import msgspec

from draftmark.bench.client.answer import Answer, Problem
from draftmark.bench.client.health import why_dead
from draftmark.bench.client.sse import SseParser
from draftmark.bench.client.stream import ToolCall
from draftmark.bench.client.transport import Broken, Target, connect, parse_url, request_bytes
from draftmark.bench.request import Failure, PlannedRequest, RequestRecord

# What a server that is gone, or hangs, leaves of a request.
_BROKEN = frozenset(
    {
        Failure.REFUSED,
        Failure.RESET,
        Failure.CONNECT_TIMEOUT,
        Failure.READ_TIMEOUT,
        Failure.TRUNCATED_STREAM,
    }
)
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """`body` as it goes out, but for the encoding. `raw` goes out in its place where a case needs
    bytes that are no JSON."""

    path: str = CHAT
    body: Mapping[str, Any] = {}
    raw: bytes | None = None

    @property
    def data(self) -> bytes:
        return msgspec.json.encode(self.body) if self.raw is None else self.raw


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer by its channels. `data` is the whole body as it came, a stream's events included.
    `record` says whether it succeeded; a failed one keeps what arrived."""

    record: RequestRecord
    reasoning: str
    content: str
    tools: list[ToolCall]
    data: bytes

    @property
    def ok(self) -> bool:
        return self.record.ok

    @property
    def seconds(self) -> float | None:
        """From the first byte sent to the end of the answer."""
        record = self.record
        if record.t_send is None or record.t_done is None:
            return None
        return (record.t_done - record.t_send) / 1e9

    @property
    def problem(self) -> str:
        """Why it failed, one line; "" when it did not."""
        return "" if self.record.failure is None else f"{self.record.failure}: {self.record.error}"

    def objects(self) -> list[dict[str, Any]]:
        """The JSON of the answer: one of a whole answer, one a chunk of a stream. What is no JSON
        object is left out; the record has said what is wrong with it."""
        if self.data.lstrip().startswith(b"{"):
            parts = [self.data]
        else:
            parser = SseParser()
            events = [*parser.feed(self.data), *parser.close()]
            parts = [event.data for event in events if not event.data.startswith(b"[DONE]")]
        return [found for part in parts if (found := _object(part)) is not None]


class Asker:
    """Asks one server as model `model`. `ask` blocks until all answers have ended.

    Once the server is gone, or answers nothing any more, or after Ctrl-C, nothing more is sent, by
    later calls either: `stopped` says why, and what was not sent is a failed reply that says so.
    """

    def __init__(
        self, url: str, *, model: str, api_key: str | None = None, timeout_s: float = 600.0
    ) -> None:
        self.model = model
        self.stopped: str | None = None
        self.was_interrupted = False
        self._broken_in_a_row = 0
        self._url = url
        self._target = parse_url(url)
        self._api_key = api_key
        self._timeout_s = timeout_s

    def ask(
        self,
        asks: Sequence[Ask],
        *,
        in_flight: int = 1,
        on_reply: Callable[[int, Reply], None] | None = None,
    ) -> list[Reply]:
        """Answers in the order of `asks`, `in_flight` at a time. `on_reply` gets each with its
        index as it ends. A server that is not there is a failed reply, not an exception."""
        replies: dict[int, Reply] = {}

        def keep(index: int, reply: Reply) -> None:
            replies[index] = reply
            if on_reply is not None:
                on_reply(index, reply)

        try:
            asyncio.run(self._ask_all(asks, in_flight, keep))
        except KeyboardInterrupt:
            self.stopped, self.was_interrupted = "interrupted", True
        return [replies.get(i) or _not_sent(i, ask, self.stopped) for i, ask in enumerate(asks)]

    def chat(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> Ask:
        """A greedy chat request; `fields` go on top."""
        body = {"model": self.model, "messages": list(messages), "temperature": 0.0, **fields}
        return Ask(body=body)

    async def _ask_all(
        self, asks: Sequence[Ask], in_flight: int, keep: Callable[[int, Reply], None]
    ) -> None:
        waiting = iter(enumerate(asks))

        async def ask_in_turn() -> None:
            while self.stopped is None and (found := next(waiting, None)) is not None:
                index, ask = found
                reply = await ask_once(
                    self._target, ask, api_key=self._api_key, timeout_s=self._timeout_s, index=index
                )
                keep(index, reply)
                await self._watch(reply, in_flight)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(in_flight, len(asks))):
                group.create_task(ask_in_turn())

    async def _watch(self, reply: Reply, in_flight: int) -> None:
        """A look at its health tells a death from a request that broke. Of a server that lives and
        lets two rounds of requests break, nothing more is to be had either."""
        is_broken = reply.record.failure in _BROKEN
        self._broken_in_a_row = self._broken_in_a_row + 1 if is_broken else 0
        if not is_broken or self.stopped is not None:
            return
        why = await asyncio.to_thread(why_dead, self._url, api_key=self._api_key)
        if why is not None:
            self.stopped = f"the server is gone: {why}"
        elif self._broken_in_a_row > 2 * in_flight:
            self.stopped = f"the last {self._broken_in_a_row} requests failed, {reply.problem}"


async def ask_once(
    target: Target, ask: Ask, *, api_key: str | None, timeout_s: float, index: int = 0
) -> Reply:
    data = ask.data
    reading = _Reading(_plan(index, ask, data))
    problem = None
    try:
        connection = await connect(target)
        try:
            request = request_bytes(target, ask.path, body=data, api_key=api_key)
            await connection.exchange(request, reading, timeout_s=timeout_s)
        finally:
            connection.close()
    except Broken as error:
        problem = error.problem
    record = reading.answer.end(perf_counter_ns(), problem)
    channels = reading.answer.channels
    return Reply(
        record=record,
        reasoning="".join(channels.reasoning),
        content="".join(channels.content),
        tools=channels.tools,
        data=b"".join(reading.data),
    )


def _not_sent(index: int, ask: Ask, why: str | None) -> Reply:
    reading = _Reading(_plan(index, ask, ask.data))
    problem = Problem(Failure.CLIENT_ERROR, f"not sent: {why}")
    record = reading.answer.end(perf_counter_ns(), problem)
    record.t_done = None
    return Reply(record=record, reasoning="", content="", tools=[], data=b"")


class _Reading:
    """Hands an exchange to the client's reader, and keeps its bytes."""

    def __init__(self, plan: PlannedRequest) -> None:
        self.answer = Answer(plan, origin=perf_counter_ns(), keep_text=True)
        self.data: list[bytes] = []
        self.begin = self.answer.begin
        self.sent = self.answer.sent

    def feed(self, now: int, data: bytes, /) -> None:
        self.data.append(data)
        self.answer.feed(now, data)


def _plan(index: int, ask: Ask, data: bytes) -> PlannedRequest:
    return PlannedRequest(
        index=index,
        at_s=None,
        path=ask.path,
        body=data,
        max_tokens=0,
        ignore_eos=False,
        num_prompt_tokens=None,
        prompt_sha=hashlib.sha256(data).hexdigest(),
    )


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:  # the client's reader has told of it already
        return None
    return found if isinstance(found, dict) else None
