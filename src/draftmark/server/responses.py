"""The shapes of answers: OpenAI's, with vLLM's additions where a request asks for them.

A field with default UNSET is left out of the JSON unless it was set; None is written as null.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from draftmark.engine.results import Speculation


class PromptTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """`speculation` is ours, and there where anything was drafted. OpenAI's counts of accepted
    and rejected predictions are of text that a client predicts, and the rejected ones are part of
    `completion_tokens`: drafts are neither."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    speculation: Speculation | UnsetType = UNSET


class AlternativeLogprob(msgspec.Struct, frozen=True):
    """`bytes` is exact where `token` is not: half a character has no text of its own."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[AlternativeLogprob]


class ChatLogprobs(msgspec.Struct):
    """One entry a token of the answer; the token that ended it (a stop id) has none."""

    content: list[ChatTokenLogprob]

    def extend(self, later: ChatLogprobs) -> None:
        self.content += later.content


class TextLogprobs(msgspec.Struct):
    """Four lists side by side, one entry a token as in `ChatLogprobs`, echoed tokens included.
    `text_offset` counts characters of the choice's whole text.
    """

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]

    def extend(self, later: TextLogprobs) -> None:
        self.text_offset += later.text_offset
        self.token_logprobs += later.token_logprobs
        self.tokens += later.tokens
        self.top_logprobs += later.top_logprobs


class PromptLogprob(msgspec.Struct, frozen=True):
    logprob: float
    rank: int | None
    decoded_token: str


# One entry a prompt token, by id as text; the first token has none.
PromptLogprobList = list[dict[str, PromptLogprob] | None]


class ChatDelta(msgspec.Struct, frozen=True, kw_only=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    content: str
    refusal: None = None


class ChatChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class TextChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of a completion, and of its chunks: they are the same."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobList | UnsetType = UNSET


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer or one chunk of it; `object` says which. `synthetic_acceptance` is in all of
    them where coins accept drafts."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice] | list[ChatChunkChoice] | list[TextChoice]
    usage: Usage | UnsetType | None = UNSET
    synthetic_acceptance: list[float] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobList | UnsetType = UNSET


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """`max_model_len` is vLLM's name for the context, `context_length` that of other servers."""

    id: str
    created: int
    root: str
    max_model_len: int
    context_length: int
    object: str = "model"
    owned_by: str = "draftmark"
    parent: None = None
    synthetic_acceptance: list[float] | UnsetType = UNSET


class ModelList(msgspec.Struct, frozen=True):
    data: list[ModelCard]
    object: str = "list"


class TokenizeResponse(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeResponse(msgspec.Struct, frozen=True):
    prompt: str
