"""Answers of an OpenAI-compatible server as JSON, whole and streamed, for `scripted_http`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.fakes.scripted_http import Events


def usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}


def chat_answer(content: str | None, *, finish: str = "stop", **message: Any) -> dict[str, Any]:
    """A whole answer of one token a word."""
    told = {"role": "assistant", "content": content, **message}
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": told, "finish_reason": finish}],
        "usage": usage(len((content or "x").split())),
    }


def tool_answer(name: str, arguments: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
    return chat_answer(None, finish="tool_calls", tool_calls=[call])


def chat_events(pieces: Sequence[str], *, finish: str = "stop") -> Events:
    """A stream of one token a piece, with its usage in a last chunk."""
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces)]
    chunks = [_chunk(delta, None) for delta in deltas]
    last = {"object": "chat.completion.chunk", "choices": [], "usage": usage(len(pieces))}
    return Events([*chunks, _chunk({}, finish), last, "data: [DONE]\n\n"])


def _chunk(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice]}
