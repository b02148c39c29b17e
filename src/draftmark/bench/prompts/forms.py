"""A prompt in the form that an endpoint takes: ids, a text, or messages, and how long it is there.

A text made of ids need not be cut into the same ids again, so its length is counted anew.
"""

from __future__ import annotations

from typing import Any

import msgspec

from draftmark.bench.profile import Endpoint
from draftmark.bench.prompts.prompt import Prompt
from draftmark.bench.tokenizer import BenchTokenizer
from draftmark.core.errors import ConfigError

PATHS = {
    Endpoint.COMPLETIONS_IDS: "/v1/completions",
    Endpoint.COMPLETIONS: "/v1/completions",
    Endpoint.CHAT: "/v1/chat/completions",
}


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """`fields` go into the body. `num_tokens` is what the server must find; None where that is not
    known before."""

    fields: dict[str, Any]
    num_tokens: int | None


def form_of(
    prompt: Prompt,
    endpoint: Endpoint,
    *,
    tokenizer: BenchTokenizer | None,
    template_tokens: int | None = None,
) -> Form:
    """Raises `ConfigError` where the prompt has no such form. `template_tokens` is what the chat
    template puts around one message of a user, where a probe has shown it."""
    match endpoint:
        case Endpoint.COMPLETIONS_IDS:
            ids = _ids(prompt, tokenizer)
            return Form(fields={"prompt": ids}, num_tokens=len(ids))
        case Endpoint.COMPLETIONS:
            text = _text(prompt, tokenizer)
            return Form(fields={"prompt": text}, num_tokens=_count(text, tokenizer))
        case Endpoint.CHAT:
            return _chat(prompt, tokenizer, template_tokens)


def _chat(prompt: Prompt, tokenizer: BenchTokenizer | None, template_tokens: int | None) -> Form:
    if prompt.messages is not None:
        return Form(fields={"messages": prompt.messages}, num_tokens=None)
    text = _text(prompt, tokenizer)
    fields = {"messages": [{"role": "user", "content": text}]}
    if tokenizer is None or template_tokens is None:
        return Form(fields=fields, num_tokens=None)
    return Form(fields=fields, num_tokens=len(tokenizer.encode(text)) + template_tokens)


def _ids(prompt: Prompt, tokenizer: BenchTokenizer | None) -> list[int]:
    if prompt.ids is not None:
        return prompt.ids
    if prompt.text is None:
        raise ConfigError("prompts with messages need endpoint chat", param="endpoint")
    tokens = _needed(tokenizer, "a text is sent as ids")
    return [*tokens.lead, *tokens.encode(prompt.text)]


def _text(prompt: Prompt, tokenizer: BenchTokenizer | None) -> str:
    """Without what the server itself puts before every text."""
    if prompt.text is not None:
        return prompt.text
    if prompt.ids is None:
        raise ConfigError("prompts with messages need endpoint chat", param="endpoint")
    return _needed(tokenizer, "ids are sent as text").decode(prompt.ids[prompt.num_lead :])


def _count(text: str, tokenizer: BenchTokenizer | None) -> int | None:
    return None if tokenizer is None else len(tokenizer.lead) + len(tokenizer.encode(text))


def _needed(tokenizer: BenchTokenizer | None, what: str) -> BenchTokenizer:
    if tokenizer is None:
        raise ConfigError(f"{what}: give the model's tokenizer with --tokenizer", param="tokenizer")
    return tokenizer
