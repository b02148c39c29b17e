"""A call that passed every check: what to run and what to show. Made by `params`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftmark.core.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """`text` is what the client or the template wrote; None for a prompt of ids. `history_tokens`
    are those of a chat before its generation prompt, None where that is not known."""

    ids: list[int]
    text: str | None = None
    history_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One sequence of a call, in the order of the answer's `choices`. Its request has no id yet."""

    prompt: Prompt
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the answer holds besides text. `logprobs` and `prompt_logprobs` are the numbers of
    alternatives that were asked for, None for none at all.
    """

    is_chat: bool
    model: str
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False
    tokens_as_ids: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    echo: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """`choices` has `per_prompt` entries for each prompt, in prompt order."""

    choices: Sequence[Choice]
    per_prompt: int
    shown: Shown
