"""The JSON of answers, streamed and whole, of completions and of chat: what a client must read.

Servers differ in what they send, so every field may be missing or null, and what is not named here
is skipped without being built. A field of another type than here makes the chunk malformed. None of
these can be part of a cycle, so the collector is told not to look (`gc=False`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

# A server that counts calls by millions is no server; the list grows up to the index.
CallIndex = Annotated[int, msgspec.Meta(ge=0, lt=1024)]


class PromptDetails(msgspec.Struct, frozen=True, gc=False):
    cached_tokens: int | None = None


class CompletionDetails(msgspec.Struct, frozen=True, gc=False):
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class FunctionPart(msgspec.Struct, frozen=True, gc=False):
    name: str | None = None
    arguments: str | None = None


class ToolPart(msgspec.Struct, frozen=True, gc=False):
    """`index` says whose part it is; calls of a whole answer have none and come in order."""

    index: CallIndex | None = None
    function: FunctionPart | None = None


class Delta(msgspec.Struct, frozen=True, gc=False):
    """New text of a chat, or the message of a whole one. Reasoning has two names in the field;
    servers that send both send the same twice."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolPart] | None = None


class MetaInfo(msgspec.Struct, frozen=True, gc=False):
    """SGLang's: verify steps, and drafted tokens accepted in them."""

    spec_verify_ct: int | None = None
    spec_accept_token_num: int | None = None


class Choice(msgspec.Struct, frozen=True, gc=False):
    text: str | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    meta_info: MetaInfo | None = None


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """One event of a stream, or a whole answer. Errors come under `error`, or as an object of the
    kind "error" with a message."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")
    object: str | None = None
    message: str | None = None


decode_chunk = msgspec.json.Decoder(Chunk).decode


def error_of(chunk: Chunk) -> str | None:
    """What the server says went wrong, or None."""
    if bytes(chunk.error) != b"null":
        return error_text(bytes(chunk.error))
    return (chunk.message or "an error without a message") if chunk.object == "error" else None


def error_text(body: bytes) -> str:
    """The message in an error of any of the usual shapes; the start of the text when it is none."""
    text = body[:300].decode(errors="replace").strip()
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return text
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    return found if isinstance(found, str) else text
