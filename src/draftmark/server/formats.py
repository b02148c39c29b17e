"""Pieces to the objects of the API: the same pieces make a chunk and, joined, a whole answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec import UNSET, UnsetType

from draftmark.server.assemble import Piece
from draftmark.server.prepared import Shown
from draftmark.server.responses import (
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    Response,
    TextChoice,
    TextLogprobs,
    Usage,
)

_T = TypeVar("_T")
_Choices = list[ChatChoice] | list[ChatChunkChoice] | list[TextChoice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """Fixed for one call: its id and time, what its answer shows, and at which rates coins accept
    drafts, if they do."""

    id: str
    created: int
    shown: Shown
    synthetic_acceptance: tuple[float, ...] = ()

    def chunk(self, index: int, piece: Piece, usage: Usage | None) -> Response:
        """`usage` is the total so far, where every chunk shows it."""
        choices: _Choices
        if self.shown.is_chat:
            choices = [self._chat_chunk_choice(index, piece)]
        else:
            choices = [self._text_choice(index, piece)]
        none_yet = None if self.shown.include_usage else UNSET
        return self._response(choices, [piece], usage=none_yet if usage is None else usage)

    def usage_chunk(self, usage: Usage) -> Response:
        """The last chunk of a stream whose request wants totals."""
        choices: list[ChatChunkChoice] = []
        return self._response(choices, [], usage=usage)

    def whole(self, pieces: Sequence[Piece], usage: Usage) -> Response:
        """An answer in one; each piece is all that its choice said."""
        choices: _Choices
        if self.shown.is_chat:
            choices = [self._chat_choice(index, piece) for index, piece in enumerate(pieces)]
        else:
            choices = [self._text_choice(index, piece) for index, piece in enumerate(pieces)]
        return self._response(choices, pieces, usage=usage)

    def _response(
        self,
        choices: _Choices,
        pieces: Sequence[Piece],
        *,
        usage: Usage | UnsetType | None,
    ) -> Response:
        kind = "chat.completion" if self.shown.is_chat else "text_completion"
        is_chunk = self.shown.stream and self.shown.is_chat
        # A chat has one prompt, so what belongs to it stands beside the choices.
        first = pieces[0] if pieces and self.shown.is_chat else None
        return Response(
            id=self.id,
            object=f"{kind}.chunk" if is_chunk else kind,
            created=self.created,
            model=self.shown.model,
            choices=choices,
            usage=usage,
            synthetic_acceptance=list(self.synthetic_acceptance) or UNSET,
            prompt_token_ids=UNSET if first is None else _or_unset(first.prompt_token_ids),
            prompt_logprobs=UNSET if first is None else _or_unset(first.prompt_logprobs),
        )

    def _chat_chunk_choice(self, index: int, piece: Piece) -> ChatChunkChoice:
        return ChatChunkChoice(
            index=index,
            delta=ChatDelta(
                role="assistant" if piece.is_first else UNSET,
                content=piece.text if piece.text or piece.is_first else UNSET,
            ),
            logprobs=piece.logprobs if isinstance(piece.logprobs, ChatLogprobs) else None,
            finish_reason=piece.finish_reason,
            stop_reason=_or_unset(piece.stop_reason),
            token_ids=piece.token_ids if self.shown.token_ids else UNSET,
        )

    def _chat_choice(self, index: int, piece: Piece) -> ChatChoice:
        return ChatChoice(
            index=index,
            message=ChatMessage(role="assistant", content=piece.text),
            logprobs=piece.logprobs if isinstance(piece.logprobs, ChatLogprobs) else None,
            finish_reason=piece.finish_reason,
            stop_reason=_or_unset(piece.stop_reason),
            token_ids=piece.token_ids if self.shown.token_ids else UNSET,
        )

    def _text_choice(self, index: int, piece: Piece) -> TextChoice:
        return TextChoice(
            index=index,
            text=piece.text,
            logprobs=piece.logprobs if isinstance(piece.logprobs, TextLogprobs) else None,
            finish_reason=piece.finish_reason,
            stop_reason=_or_unset(piece.stop_reason),
            token_ids=piece.token_ids if self.shown.token_ids else UNSET,
            prompt_token_ids=_or_unset(piece.prompt_token_ids),
            prompt_logprobs=_or_unset(piece.prompt_logprobs),
        )


def _or_unset(value: _T | None) -> _T | UnsetType:
    return UNSET if value is None else value
