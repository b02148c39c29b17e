"""A request as the engine sees it: token ids and sampling parameters, no text but stop strings.

The API process makes one `Request` per choice (n > 1 is n requests with seeds seed + i). A
*request* is the client's; what runs for it is a *sequence* (`scheduler.queue`).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from draftmark.core.errors import RequestError

# Fixed widths of the per-slot tables on the device: a request that needs more is refused by name.
MAX_STOP_IDS = 64
MAX_LOGIT_BIAS = 1024
MAX_LOGPROBS = 20
MAX_DRAFT_TOKENS = 8


class FinishReason(StrEnum):
    """Why a request ended. `abort` and `error` never reach an OpenAI `finish_reason` field."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are chosen. Defaults are OpenAI's, spelled as OpenAI, vLLM and SGLang spell them.

    `None` for `max_tokens` means the rest of the context; for `seed`, one drawn at admission.
    `logprobs` is the number of alternatives to report beside the chosen token (0 is the chosen
    token alone, None reports nothing); `prompt_logprobs` likewise for prompt tokens. `draft_tokens`
    is the most drafts of a step, None for the server's own choice: it changes the speed, and no
    token.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    max_tokens: int | None = None
    draft_tokens: int | None = None

    def validate(self, *, vocab_size: int) -> None:
        """Raise `RequestError` naming the first field that is out of range."""
        for name, low, high in _FLOAT_RANGES:
            value = getattr(self, name)
            if not low <= value <= high:  # also refuses NaN
                raise RequestError(
                    f"{name} must be between {low:g} and {high:g}, got {value!r}", param=name
                )
        if self.repetition_penalty <= 0:
            raise RequestError("repetition_penalty must be above 0", param="repetition_penalty")
        if self.top_p <= 0:
            raise RequestError("top_p must be above 0", param="top_p")
        for name, low_int, high_int in _INT_RANGES:
            count = getattr(self, name)
            if count is not None and not low_int <= count <= high_int:
                raise RequestError(
                    f"{name} must be between {low_int} and {high_int}, got {count}", param=name
                )
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens ({self.min_tokens}) is above max_tokens ({self.max_tokens})",
                param="min_tokens",
            )
        self._validate_ids(vocab_size)
        if any(not text for text in self.stop):
            raise RequestError("stop must not contain an empty string", param="stop")

    def _validate_ids(self, vocab_size: int) -> None:
        for token in self.stop_token_ids:
            check_token_id(token, vocab_size=vocab_size, param="stop_token_ids")
        if len(self.logit_bias) > MAX_LOGIT_BIAS:
            raise RequestError(
                f"logit_bias has {len(self.logit_bias)} entries, the limit is {MAX_LOGIT_BIAS}",
                param="logit_bias",
            )
        for token, bias in self.logit_bias.items():
            check_token_id(token, vocab_size=vocab_size, param="logit_bias")
            if not -100.0 <= bias <= 100.0:
                raise RequestError(
                    f"logit_bias of token {token} must be between -100 and 100, got {bias!r}",
                    param="logit_bias",
                )

    @property
    def has_penalties(self) -> bool:
        return (
            self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )


_INT32_MAX = 2**31 - 1
_FLOAT_RANGES = (
    ("temperature", 0.0, 1e4),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
    ("repetition_penalty", 0.0, 1e4),
)
_INT_RANGES = (
    ("top_k", -1, _INT32_MAX),
    ("seed", -(2**63), 2**63 - 1),
    ("logprobs", 0, MAX_LOGPROBS),
    ("prompt_logprobs", 0, MAX_LOGPROBS),
    ("min_tokens", 0, _INT32_MAX),
    ("max_tokens", 0, _INT32_MAX),
    ("draft_tokens", 0, MAX_DRAFT_TOKENS),
)


def check_token_id(token: int, *, vocab_size: int, param: str) -> None:
    """Raise `RequestError` naming `param` unless `token` is in the vocabulary."""
    if not 0 <= token < vocab_size:
        raise RequestError(
            f"{param}: token id {token} is outside the vocabulary (0 to {vocab_size - 1})",
            param=param,
        )


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to run. `id` is unique among live requests; `sampling.max_tokens` is resolved.

    Lower `priority` runs first, ties by arrival (vLLM's order). `max_tokens` 0 (echo) runs the
    prompt and emits nothing. `history_tokens` is how many tokens of a chat's prompt come before its
    generation prompt, None where that is not known: a hint, what a later turn is sure to repeat.
    """

    id: int
    prompt_ids: list[int]
    sampling: SamplingParams
    seed: int
    stop_ids: tuple[int, ...] = ()
    priority: int = 0
    label: str = ""
    history_tokens: int | None = None
