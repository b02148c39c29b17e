"""From what one request met to its record: times after the start of the run, counts with their
source, and one class for what failed.

A request succeeds only with a reason for its end, with the mark of the end (or a complete body)
and with at least one token. Times end at the last token event. A chunk that only carries the
reason is one, unless the counts say otherwise: with some servers it is the step of the token that
ended the answer.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise

import msgspec

from draftmark.bench.client.chunks import (
    Choice,
    Chunk,
    Delta,
    Usage,
    decode_chunk,
    error_of,
    error_text,
)
from draftmark.bench.client.stream import AnswerStream, Channels, acceptance, join_tools
from draftmark.bench.request import (
    CountSource,
    Failure,
    PlannedRequest,
    RequestRecord,
    unsent,
)

# Of the text of an error: enough to tell one from another.
_MAX_ERROR = 500


class Problem(msgspec.Struct, frozen=True):
    """What kept an exchange from its end, by the transport's own knowledge."""

    failure: Failure
    text: str


class Answer:
    """Takes in the response of one planned request. `origin` is the start of the run, on this
    process's clock; so are all times given here."""

    def __init__(self, plan: PlannedRequest, *, origin: int, keep_text: bool) -> None:
        self.plan = plan
        self.stream: AnswerStream | None = None
        self.channels = Channels()
        self._origin = origin
        self._keep_text = keep_text
        self._body: list[bytes] = []
        self.record = unsent(plan)

    def sent(self, now: int) -> None:
        self.record.t_send = now - self._origin

    def begin(self, status: int, content_type: bytes) -> None:
        self.record.http = status
        if status == 200 and content_type.startswith(b"text/event-stream"):
            self.stream = AnswerStream()
            self.channels = self.stream.channels

    def feed(self, now: int, data: bytes) -> None:
        if self.stream is not None:
            self.stream.feed(now, data)
        else:
            self._body.append(data)

    def end(self, now: int, problem: Problem | None) -> RequestRecord:
        """The exchange is over; `problem` is why it broke, if it did."""
        record = self.record
        record.t_done = now - self._origin
        if self.stream is not None:
            self.stream.close(now)
            self._fill_from_stream(self.stream)
            problem = self._problem_of_stream(self.stream, problem)
        elif record.http is not None:
            problem = self._problem_of_body(problem)
        self._fail(problem or self._problem_of_output())
        text = self.channels.whole()
        if text:
            record.text_sha = hashlib.sha256(text.encode()).hexdigest()
            record.text = text if self._keep_text else None
        return record

    def _fail(self, problem: Problem | None) -> None:
        if problem is not None:
            self.record.failure = problem.failure
            self.record.error = problem.text[:_MAX_ERROR]

    def _problem_of_stream(self, stream: AnswerStream, problem: Problem | None) -> Problem | None:
        if stream.error is not None:
            return Problem(Failure.INBAND_ERROR, stream.error)
        if stream.malformed is not None:
            return Problem(Failure.BAD_SSE, stream.malformed)
        if stream.is_whole:
            return None  # a connection that breaks after the end of its answer harms nothing
        if problem is None:
            missing = "a finish_reason" if stream.finish is None else "[DONE]"
            return Problem(Failure.TRUNCATED_STREAM, f"the stream ended without {missing}")
        if problem.failure is Failure.RESET:
            return Problem(Failure.TRUNCATED_STREAM, f"cut in the stream: {problem.text}")
        return problem

    def _problem_of_body(self, problem: Problem | None) -> Problem | None:
        """Of an error's body, or of an answer in one piece."""
        status, body = self.record.http, b"".join(self._body)
        assert status is not None
        if status >= 400:
            failure = Failure.HTTP_5XX if status >= 500 else Failure.HTTP_4XX
            return Problem(failure, f"HTTP {status}: {error_text(body)}")
        if problem is not None:
            is_cut = problem.failure is Failure.RESET
            return Problem(Failure.TRUNCATED_STREAM, problem.text) if is_cut else problem
        if status != 200:
            return Problem(Failure.CLIENT_ERROR, f"HTTP {status}, where 200 was expected")
        try:
            whole = decode_chunk(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Problem(Failure.BAD_SSE, f"{error}: {body[:200]!r}")
        error_message = error_of(whole)
        if error_message is not None:
            return Problem(Failure.INBAND_ERROR, error_message)
        return self._fill_from_whole(whole)

    def _fill_from_whole(self, whole: Chunk) -> Problem | None:
        record = self.record
        if not whole.choices:
            return Problem(Failure.EMPTY_OUTPUT, "an answer without choices")
        choice = whole.choices[0]
        _fill_channels(self.channels, choice)
        record.finish = choice.finish_reason
        if choice.meta_info is not None:
            record.accept = acceptance(choice.meta_info)
        self._fill_usage(whole.usage)
        if whole.usage is not None and whole.usage.completion_tokens is not None:
            record.n_out, record.n_out_source = whole.usage.completion_tokens, CountSource.USAGE
        elif choice.token_ids is not None:
            record.n_out, record.n_out_source = len(choice.token_ids), CountSource.TOKEN_IDS
        # When its first token was made, an answer in one piece does not tell.
        record.t_last = record.t_done
        if record.finish is None:
            return Problem(Failure.TRUNCATED_STREAM, "an answer without a finish_reason")
        return None

    def _fill_from_stream(self, stream: AnswerStream) -> None:
        record = self.record
        record.finish = stream.finish
        record.accept = stream.accept
        record.t_first_content = self._after_start(stream.t_first_text)
        record.t_first_output = self._after_start(stream.t_first_output)
        self._fill_usage(stream.usage)
        record.n_out, record.n_out_source = _count_output(stream)
        if stream.is_counted:
            times = stream.counted_times
            record.event_tokens = stream.counted_tokens
            record.n_first = stream.counted_tokens[0]
        else:
            times = stream.text_times
            if stream.has_bare_finish and len(times) > (record.n_out or 0):
                times = times[:-1]  # more events than tokens: the bare end was no step
        if times:
            record.t_first, record.t_last = times[0] - self._origin, times[-1] - self._origin
            # Rounded sums, not rounded gaps: no error adds up over an answer.
            marks = [(time - times[0] + 500) // 1000 for time in times]
            record.icl_us = [after - before for before, after in pairwise(marks)]
        record.events = len(times)

    def _after_start(self, time: int | None) -> int | None:
        return None if time is None else time - self._origin

    def _fill_usage(self, usage: Usage | None) -> None:
        if usage is None:
            return
        record = self.record
        record.n_in_usage = usage.prompt_tokens
        if usage.prompt_tokens_details is not None:
            record.n_cached = usage.prompt_tokens_details.cached_tokens
        if usage.completion_tokens_details is not None:
            record.n_reason = usage.completion_tokens_details.reasoning_tokens

    def _problem_of_output(self) -> Problem | None:
        """Of an answer that came to its end: is it what was asked for?"""
        record, plan = self.record, self.plan
        has_tokens = record.events > 0 if self.stream is not None else bool(self.channels.whole())
        if record.n_out == 0 or not has_tokens:
            return Problem(Failure.EMPTY_OUTPUT, "the answer holds no token")
        is_exact = record.n_out_source in (CountSource.USAGE, CountSource.TOKEN_IDS)
        if plan.ignore_eos and is_exact and record.n_out is not None:
            # Asked for a number of tokens and for nothing else: where they went is no failure.
            if record.n_out < plan.max_tokens:
                text = f"{record.n_out} of {plan.max_tokens} tokens, with ignore_eos"
                return Problem(Failure.SHORT_OUTPUT, text)
        elif self.channels.reasoning and not self.channels.content and not self.channels.tools:
            return Problem(Failure.REASONING_ONLY, "reasoning, and no answer after it")
        return None


def _count_output(stream: AnswerStream) -> tuple[int | None, CountSource | None]:
    """Tokens of the answer, by the surest source that there is."""
    usage = stream.final_usage
    if usage is not None and usage.completion_tokens is not None:
        return usage.completion_tokens, CountSource.USAGE
    if stream.is_counted:
        source = CountSource.USAGE if stream.has_usage_so_far else CountSource.TOKEN_IDS
        return stream.counted_total, source
    if not stream.text_times:
        return None, None
    return len(stream.text_times) - stream.has_bare_finish, CountSource.CHUNKS


def _fill_channels(channels: Channels, choice: Choice) -> None:
    message = choice.message or Delta()
    if reasoning := message.reasoning_content or message.reasoning:
        channels.reasoning.append(reasoning)
    if content := message.content or choice.text:
        channels.content.append(content)
    join_tools(channels.tools, message.tool_calls or [])
