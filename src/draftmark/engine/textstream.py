"""From a request's outputs to text: one implementation for streams, whole answers and Python.

A stop string ends an answer here, because text is here: the token that completes it counts, later
ones appear nowhere (ids, log-probabilities, usage). The result does not depend on how tokens were
grouped into outputs, so a stream and a whole answer are equal at every split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from draftmark.core.messages import DraftUse, RequestOutput
from draftmark.core.request import FinishReason
from draftmark.core.step import TokenLogprobs
from draftmark.engine.stream import OutputStream
from draftmark.text.detokenize import Detokenizer
from draftmark.text.stop import StopMatcher
from draftmark.text.tokenizer import Tokenizer


@dataclass(slots=True, kw_only=True)
class TextDelta:
    """What is new of one answer. `text` may be empty (held back) where `token_ids` is not.

    `logprobs` runs beside `token_ids` when they were asked for. `cached_tokens` is -1 but in the
    first delta. `finish` is set on the last delta only; `matched` is the stop string that ended it.
    `drafts` is what speculation gave so far, as far as it is known: on the last delta it is.
    `error` and `error_status` belong to finish `error`.
    """

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    cached_tokens: int = -1
    finish: FinishReason | None = None
    matched: str | None = None
    drafts: DraftUse | None = None
    error: str = ""
    error_status: int = 500


class TextAssembler:
    """Outputs of one request in, deltas out; pure. Nothing may be fed once a delta has `finish`.

    A stop string counts only if it lies in the text of tokens from number `min_tokens` on.
    `num_tokens` is the number of tokens that count (usage).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: Sequence[str] = (),
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
    ) -> None:
        self.num_tokens = 0
        self._drafts: DraftUse | None = None
        self._has_stop = bool(stop)
        self._min_tokens = min_tokens
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip_special_tokens)
        self._matcher = StopMatcher(stop)

    def feed(self, output: RequestOutput) -> TextDelta:
        self._drafts = output.drafts or self._drafts
        delta = TextDelta(
            token_ids=output.token_ids,
            logprobs=output.logprobs,
            prompt_logprobs=output.prompt_logprobs,
            cached_tokens=output.cached_tokens,
            finish=output.finish,
            drafts=self._drafts,
            error=output.error,
            error_status=output.error_status,
        )
        shown = len(output.token_ids)
        if output.finish is FinishReason.STOP:
            shown -= 1  # the token that ended it (a stop id) counts, but is no text
        if self._has_stop:
            self._feed_tokens(delta, shown=shown)
        else:
            self.num_tokens += len(output.token_ids)
            delta.text = self._detokenizer.feed(output.token_ids[: max(shown, 0)])
        if delta.finish is not None and self._matcher.matched is None:
            delta.text += self._match(self._detokenizer.flush()) + self._matcher.flush()
        if self._matcher.matched is not None:
            delta.finish = FinishReason.STOP
            delta.matched = self._matcher.matched
        return delta

    def _feed_tokens(self, delta: TextDelta, *, shown: int) -> None:
        """Token by token, so that the one that completes a stop string is known."""
        for position, token in enumerate(delta.token_ids, start=1):
            self.num_tokens += 1
            if position > shown:
                return
            delta.text += self._match(self._detokenizer.feed((token,)))
            if self._matcher.matched is not None:
                delta.token_ids = delta.token_ids[:position]
                if delta.logprobs is not None:
                    delta.logprobs = delta.logprobs[:position]
                return

    def _match(self, text: str) -> str:
        return text if self.num_tokens < self._min_tokens else self._matcher.feed(text)


class Ender(Protocol):
    """The part of `EngineClient` that ends requests."""

    def finish(self, request_id: int, num_tokens: int, reason: FinishReason) -> None: ...

    def abort(self, ids: Sequence[int]) -> None: ...


class TextStream:
    """The deltas of one request, in order; the last one has `finish`. One reader.

    A reader that is behind gets what is ready as one delta. Whoever stops reading early calls
    `abandon`.
    """

    def __init__(self, outputs: OutputStream, *, assembler: TextAssembler, engine: Ender) -> None:
        self.id = outputs.id
        self._outputs = outputs
        self._assembler = assembler
        self._engine = engine
        self._is_ended = False

    @property
    def num_tokens(self) -> int:
        return self._assembler.num_tokens

    def __aiter__(self) -> TextStream:
        return self

    async def __anext__(self) -> TextDelta:
        if self._is_ended:
            raise StopAsyncIteration
        output = await anext(self._outputs)
        delta = self._take(output)
        for output in self._outputs.take_ready():
            if delta.finish is None:
                delta = _join(delta, self._take(output))
        return delta

    def abandon(self) -> None:
        """Abort the request unless it has ended."""
        if not self._is_ended:
            self._is_ended = True
            self._engine.abort([self.id])

    def _take(self, output: RequestOutput) -> TextDelta:
        delta = self._assembler.feed(output)
        if delta.finish is not None:
            self._is_ended = True
        if delta.matched is not None and output.finish is None:
            self._engine.finish(self.id, self.num_tokens, FinishReason.STOP)
        return delta


def _join(delta: TextDelta, later: TextDelta) -> TextDelta:
    later.text = delta.text + later.text
    later.token_ids = delta.token_ids + later.token_ids
    if delta.logprobs is not None:
        later.logprobs = delta.logprobs + (later.logprobs or [])
    if delta.prompt_logprobs is not None:
        later.prompt_logprobs = delta.prompt_logprobs + (later.prompt_logprobs or [])
    if delta.cached_tokens >= 0:
        later.cached_tokens = delta.cached_tokens
    return later
