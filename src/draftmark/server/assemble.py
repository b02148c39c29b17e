"""From the deltas of an answer to what the client sees of it, streamed or whole.

A streamed chunk is one `Piece`; a whole answer is all pieces of a choice joined. There is no other
difference between the two, so they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET

from draftmark.core.messages import DraftUse
from draftmark.core.request import FinishReason
from draftmark.core.step import TokenLogprobs
from draftmark.engine.results import Speculation
from draftmark.engine.textstream import TextDelta
from draftmark.server.logprobs import (
    TextLogprobBuilder,
    TokenNames,
    chat_logprobs,
    prompt_logprobs,
)
from draftmark.server.prepared import Choice, Prepared, Shown
from draftmark.server.responses import (
    ChatLogprobs,
    PromptLogprobList,
    PromptTokensDetails,
    TextLogprobs,
    Usage,
)
from draftmark.text.detokenize import decode
from draftmark.text.tokenizer import Tokenizer


@dataclass(slots=True, kw_only=True)
class Piece:
    """What is new of one choice. `is_first` is set on its first piece, `finish_reason` on its last
    one. What was not asked for is None.
    """

    text: str
    token_ids: list[int]
    is_first: bool = False
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: ChatLogprobs | TextLogprobs | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobList | None = None

    def extend(self, later: Piece) -> None:
        """Append the next piece of the same choice."""
        self.text += later.text
        self.token_ids = self.token_ids + later.token_ids
        self.finish_reason = later.finish_reason
        self.stop_reason = later.stop_reason
        match self.logprobs, later.logprobs:
            case (ChatLogprobs() as mine, ChatLogprobs() as theirs):
                mine.extend(theirs)
            case (TextLogprobs() as mine, TextLogprobs() as theirs):
                mine.extend(theirs)


class ChoiceAssembler:
    """Turns the deltas of one choice into pieces. `completion_tokens` counts as usage does,
    `drafts` is what speculation gave as far as it is known."""

    def __init__(self, choice: Choice, *, shown: Shown, tokenizer: Tokenizer) -> None:
        self.completion_tokens = 0
        self.cached_tokens = 0
        self.drafts: DraftUse | None = None
        self._choice = choice
        self._shown = shown
        self._tokenizer = tokenizer
        self._names = TokenNames(tokenizer, as_ids=shown.tokens_as_ids)
        self._is_first = True
        self._prompt_entries: list[TokenLogprobs] = []
        self._text_logprobs: TextLogprobBuilder | None = None
        if shown.logprobs is not None and not shown.is_chat:
            self._text_logprobs = TextLogprobBuilder(
                tokenizer,
                self._names,
                num_top=shown.logprobs,
                skip_special_tokens=shown.skip_special_tokens,
                after_prompt=not shown.echo,
            )

    def feed(self, delta: TextDelta) -> Piece | None:
        """The piece of a delta, or None when there is nothing in it to show."""
        self.completion_tokens += len(delta.token_ids)
        self.cached_tokens = max(self.cached_tokens, delta.cached_tokens)
        self.drafts = delta.drafts
        self._prompt_entries += delta.prompt_logprobs or []
        if not delta.token_ids and delta.finish is None:
            return None  # prompt logprobs of a chunk: they are shown together
        piece = Piece(
            text=delta.text,
            token_ids=delta.token_ids,
            finish_reason=None if delta.finish is None else str(delta.finish),
            stop_reason=self._stop_reason(delta),
        )
        if self._is_first:
            self._begin(piece)
        self._add_logprobs(piece, delta)
        return piece if self._has_content(piece) else None

    def _begin(self, piece: Piece) -> None:
        """Put what comes before the answer in front of its first piece."""
        self._is_first = False
        piece.is_first = True
        prompt, shown = self._choice.prompt, self._shown
        if shown.token_ids:
            piece.prompt_token_ids = prompt.ids
        if shown.prompt_logprobs is not None:
            piece.prompt_logprobs = prompt_logprobs(
                self._prompt_entries, self._names, num_top=shown.prompt_logprobs
            )
        if shown.echo:
            text = prompt.text
            if text is None:
                skip = shown.skip_special_tokens
                text = decode(self._tokenizer, prompt.ids, skip_special_tokens=skip)
            piece.text = text + piece.text
            if self._text_logprobs is not None:
                piece.logprobs = self._text_logprobs.prompt(
                    prompt.ids, self._prompt_entries, text=text
                )
        self._prompt_entries = []

    def _add_logprobs(self, piece: Piece, delta: TextDelta) -> None:
        """Of the visible tokens: the one that ended the answer (a stop id) is none."""
        if self._shown.logprobs is None:
            return
        entries = delta.logprobs or []
        if _ended_by_token(delta):
            entries = entries[:-1]
        if self._text_logprobs is None:
            piece.logprobs = chat_logprobs(entries, self._names, num_top=self._shown.logprobs)
        elif isinstance(piece.logprobs, TextLogprobs):
            piece.logprobs.extend(self._text_logprobs.answer(entries))
        else:
            piece.logprobs = self._text_logprobs.answer(entries)

    def _stop_reason(self, delta: TextDelta) -> str | int | None:
        """The stop string or stop token id of the request that ended the answer."""
        if delta.matched is not None:
            return delta.matched
        if _ended_by_token(delta):
            token = delta.token_ids[-1]
            return token if token in self._choice.request.sampling.stop_token_ids else None
        return None

    def _has_content(self, piece: Piece) -> bool:
        """Text that is held back makes no event, unless something else must be said."""
        shown = self._shown
        says_more = shown.token_ids or shown.continuous_usage or shown.logprobs is not None
        return bool(piece.text or piece.finish_reason or piece.is_first or says_more)


def _ended_by_token(delta: TextDelta) -> bool:
    return delta.finish is FinishReason.STOP and delta.matched is None and bool(delta.token_ids)


def usage_of(assemblers: list[ChoiceAssembler], prepared: Prepared) -> Usage:
    """Totals so far. A prompt counts once however many answers it has, as OpenAI counts."""
    first_ones = range(0, len(assemblers), prepared.per_prompt)
    prompt = sum(len(prepared.choices[index].prompt.ids) for index in first_ones)
    completion = sum(assembler.completion_tokens for assembler in assemblers)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=PromptTokensDetails(
            sum(assemblers[index].cached_tokens for index in first_ones)
        ),
        speculation=Speculation.of(assembler.drafts for assembler in assemblers) or UNSET,
    )
