"""What the Python API gives back, and how it is put together from deltas."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass

from draftmark.core.errors import DraftmarkError, EngineFailure, RequestError, Unavailable
from draftmark.core.messages import DraftUse
from draftmark.core.request import FinishReason
from draftmark.core.step import TokenLogprobs
from draftmark.engine.textstream import TextDelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """What became of an answer's drafts. `windows` are the rows of steps that had any: each emits
    the drafts it accepted and one token more, `acceptance_length` in the mean. What a stop string
    cuts off the last window was accepted all the same; `completion_tokens` do not count it.
    """

    windows: int
    draft_tokens: int
    accepted_tokens: int
    acceptance_length: float

    @classmethod
    def of(cls, uses: Iterable[DraftUse | None]) -> Speculation | None:
        """Of several answers together; None where none had drafts."""
        had = [use for use in uses if use is not None]
        if not had:
            return None
        windows, accepted = sum(use.windows for use in had), sum(use.accepted for use in had)
        return cls(
            windows=windows,
            draft_tokens=sum(use.drafted for use in had),
            accepted_tokens=accepted,
            acceptance_length=round(1 + accepted / windows, 4),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens. `cached_tokens` of the prompt came from the prefix cache. `speculation` is None where
    nothing was drafted."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    speculation: Speculation | None = None

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds from the hand-over to the engine. `first_token_s` is None without a token."""

    first_token_s: float | None
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer. `finish_reason` is `stop` or `length`; `stop` names the stop string, if any.

    `logprobs` and `prompt_logprobs` are there when `SamplingParams` asked for them.
    """

    text: str
    token_ids: list[int]
    finish_reason: str
    stop: str | None
    logprobs: list[TokenLogprobs] | None
    prompt_logprobs: list[TokenLogprobs] | None
    usage: Usage
    timings: Timings


async def collect(deltas: AsyncIterable[TextDelta], *, num_prompt: int) -> Completion:
    """The whole answer. Raises what `check_end` raises."""
    began = time.monotonic()
    first_token_s: float | None = None
    text: list[str] = []
    token_ids: list[int] = []
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    cached = 0
    last = TextDelta()
    async for last in deltas:
        check_end(last)
        if first_token_s is None and last.token_ids:
            first_token_s = time.monotonic() - began
        text.append(last.text)
        token_ids += last.token_ids
        if last.logprobs is not None:
            logprobs = (logprobs or []) + last.logprobs
        if last.prompt_logprobs is not None:
            prompt_logprobs = (prompt_logprobs or []) + last.prompt_logprobs
        cached = max(cached, last.cached_tokens)
    assert last.finish is not None, "a stream of deltas ended without an end"
    return Completion(
        text="".join(text),
        token_ids=token_ids,
        finish_reason=last.finish.value,
        stop=last.matched,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        usage=Usage(
            prompt_tokens=num_prompt,
            completion_tokens=len(token_ids),
            cached_tokens=cached,
            speculation=Speculation.of([last.drafts]),
        ),
        timings=Timings(first_token_s=first_token_s, total_s=time.monotonic() - began),
    )


def check_end(delta: TextDelta) -> None:
    """Raise for an answer that the engine ended with an error, or that was aborted."""
    if delta.finish is FinishReason.ERROR:
        raise _ERRORS.get(delta.error_status, EngineFailure)(delta.error)
    if delta.finish is FinishReason.ABORT:
        raise Unavailable("the request was aborted")


_ERRORS: dict[int, type[DraftmarkError]] = {400: RequestError, 503: Unavailable}
