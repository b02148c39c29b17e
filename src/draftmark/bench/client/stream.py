"""An answer while it arrives: which of its events bring tokens, how many, and when.

What a token event is depends on what the server tells. Where chunks carry their token ids or the
usage so far, an event is one that grows them. Otherwise it is one with text, reasoning or a piece
of a tool call, or an empty one without a role: a step whose text is still held back. Roles, usage
alone, comments and pings never are. Both readings are kept until the end, because a server may
send a usage that only its last chunk fills.
"""

from __future__ import annotations

import msgspec

from draftmark.bench.client.chunks import (
    Choice,
    Chunk,
    Delta,
    MetaInfo,
    ToolPart,
    Usage,
    decode_chunk,
    error_of,
)
from draftmark.bench.client.sse import Event, EventTooLong, SseParser
from draftmark.bench.request import Acceptance

_NO_DELTA = Delta()


class ToolCall(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class Channels(msgspec.Struct):
    """The text of an answer by where it went."""

    reasoning: list[str] = []
    content: list[str] = []
    tools: list[ToolCall] = []

    def whole(self) -> str:
        """All of it: reasoning, then content, then calls as `name(arguments)`."""
        calls = [f"{call.name}({call.arguments})" for call in self.tools]
        return "".join([*self.reasoning, *self.content, *calls])


class AnswerStream:
    """The events of one streamed answer. Times are `perf_counter_ns` of this process."""

    def __init__(self) -> None:
        self.channels = Channels()
        self.finish: str | None = None
        self.is_done = False
        self.error: str | None = None
        self.malformed: str | None = None
        self.usage: Usage | None = None
        self.accept: Acceptance | None = None
        self.t_first_text: int | None = None
        self.t_first_output: int | None = None
        # Events by their text, and by what the server counts with the tokens of each.
        self.text_times: list[int] = []
        self.counted_times: list[int] = []
        self.counted_tokens: list[int] = []
        self.counted_total = 0
        # One of `text_times` said only why the answer ended.
        self.has_bare_finish = False
        self.has_usage_so_far = False
        self._is_usage_final = False
        self._parser = SseParser()

    def feed(self, now: int, data: bytes) -> None:
        """Bytes of the body that arrived at `now`."""
        try:
            events = self._parser.feed(data)
        except EventTooLong as error:
            self.malformed = str(error)
            return
        for event in events:
            self._read(now, event)

    def close(self, now: int) -> None:
        """The body is over."""
        for event in self._parser.close():
            self._read(now, event)

    @property
    def is_whole(self) -> bool:
        """It ended as an answer must: with a reason and with the mark of the end."""
        return self.is_done and self.finish is not None

    @property
    def is_counted(self) -> bool:
        """The server's counts are by event: no text came before the first of them."""
        if not self.counted_times:
            return False
        return self.t_first_text is None or self.counted_times[0] <= self.t_first_text

    @property
    def final_usage(self) -> Usage | None:
        """The usage that counts the whole answer, where one came."""
        return self.usage if self._is_usage_final else None

    @property
    def tokens_so_far(self) -> int:
        """For a reader who waits: by the server's counts, or one an event."""
        return self.counted_total or len(self.text_times)

    def _read(self, now: int, event: Event) -> None:
        if event.data.startswith(b"[DONE]"):
            self.is_done = True
            return
        try:
            chunk = decode_chunk(event.data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.malformed = self.malformed or f"{error}: {event.data[:200]!r}"
            return
        problem = error_of(chunk)
        if problem is None and event.kind == b"error":
            problem = event.data[:300].decode(errors="replace")
        if problem is not None:
            self.error = self.error or problem
            return
        self._take(now, chunk)

    def _take(self, now: int, chunk: Chunk) -> None:
        choices = chunk.choices or ()
        for choice in choices:
            if choice.finish_reason is not None:
                self.finish = choice.finish_reason
            self._take_text(now, choice)
        if chunk.usage is not None:
            self.usage = chunk.usage
            self._is_usage_final = self.finish is not None
        if choices:
            self._count(now, chunk.usage, choices)

    def _take_text(self, now: int, choice: Choice) -> None:
        delta = choice.delta or _NO_DELTA
        content = delta.content or choice.text
        reasoning = delta.reasoning_content or delta.reasoning
        if reasoning:
            self.channels.reasoning.append(reasoning)
        if content:
            self.channels.content.append(content)
        if delta.tool_calls:
            join_tools(self.channels.tools, delta.tool_calls)
        has_output = bool(content or delta.tool_calls)
        if has_output or reasoning:
            if self.t_first_text is None:
                self.t_first_text = now
            if has_output and self.t_first_output is None:
                self.t_first_output = now
            self.text_times.append(now)
        elif delta.role is None:
            self.text_times.append(now)
            self.has_bare_finish = self.has_bare_finish or choice.finish_reason is not None
        if choice.meta_info is not None:
            self.accept = acceptance(choice.meta_info)

    def _count(self, now: int, usage: Usage | None, choices: list[Choice] | tuple[()]) -> None:
        if usage is not None and usage.completion_tokens is not None:
            new = usage.completion_tokens - self.counted_total
            self.has_usage_so_far = True
        else:
            new = sum(len(choice.token_ids or ()) for choice in choices)
        if new > 0:
            self.counted_total += new
            self.counted_times.append(now)
            self.counted_tokens.append(new)


def join_tools(calls: list[ToolCall], parts: list[ToolPart]) -> None:
    """Put the pieces of calls where they belong; a piece without an index is a call of its own."""
    for part in parts:
        index = len(calls) if part.index is None else part.index
        calls.extend(ToolCall() for _ in range(index + 1 - len(calls)))
        if part.function is not None:
            calls[index].name += part.function.name or ""
            calls[index].arguments += part.function.arguments or ""


def acceptance(meta: MetaInfo) -> Acceptance | None:
    if meta.spec_verify_ct is None or meta.spec_accept_token_num is None:
        return None
    return Acceptance(steps=meta.spec_verify_ct, accepted=meta.spec_accept_token_num)
