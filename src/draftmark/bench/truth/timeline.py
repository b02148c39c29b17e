"""From a reply's few fields to its steps, and from a step to the bytes of its event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from draftmark.bench.truth.script import Kind, Reply, Step

Json = dict[str, Any]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a request wants, of either endpoint."""

    is_chat: bool
    max_tokens: int
    prompt_tokens: int
    stream: bool
    include_usage: bool


def asked(path: str, body: Json) -> Asked:
    """Prompts are counted by ids where they are ids, and by words where they are text."""
    is_chat = path.endswith("/chat/completions")
    if is_chat:
        words = [str(message.get("content") or "") for message in body.get("messages", [])]
        count = sum(len(text.split()) for text in words)
    else:
        prompt = body.get("prompt", "")
        count = len(prompt.split()) if isinstance(prompt, str) else len(prompt)
    limit = body.get("max_tokens") or body.get("max_completion_tokens") or 16
    return Asked(
        is_chat=is_chat,
        max_tokens=int(limit),
        prompt_tokens=count,
        stream=bool(body.get("stream")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
    )


def steps_of(reply: Reply, request: Asked) -> list[Step]:
    if reply.steps is not None:
        return reply.steps
    steps: list[Step] = []
    if request.is_chat and reply.role_chunk:
        steps.append(Step(at_ms=reply.ttft_ms / 2, kind=Kind.ROLE))
    events = list(_events(reply, request))
    if reply.breaks_after is not None:
        return [*steps, *_broken(reply, events)]
    if reply.comments:
        events = [step for event in events for step in (_comment(event.at_ms), event)]
    return [*steps, *events, *_ending(reply, request, events[-1].at_ms if events else 0.0)]


def _events(reply: Reply, request: Asked) -> Iterator[Step]:
    """Those that bring tokens."""
    left = request.max_tokens if reply.tokens is None else reply.tokens
    at, index, begun, held = reply.ttft_ms, 0, 0, ""
    while left > 0:
        size = reply.tokens_per_event
        if index == 0 and reply.first_tokens is not None:
            size = reply.first_tokens
        if begun < reply.reasoning_tokens:
            size = min(size, reply.reasoning_tokens - begun)
        size = min(size, left)
        kind = _channel(reply, begun)
        text = held + "".join(word(begun + i, is_noise=reply.digit_noise) for i in range(size))
        left, begun, held = left - size, begun + size, ""
        if index in reply.empty_events:
            kind, text, held = Kind.EMPTY, "", text
        finish = reply.finish if left == 0 and not reply.bare_finish else None
        yield Step(at_ms=at, kind=kind, text=text, tokens=size, finish=finish)
        if reply.gaps_ms is None:
            at += reply.gap_ms
        elif index < len(reply.gaps_ms):
            at += reply.gaps_ms[index]
        index += 1


def _channel(reply: Reply, begun: int) -> Kind:
    if begun < reply.reasoning_tokens:
        return Kind.REASONING
    return Kind.TOOL if reply.as_tool_call else Kind.TEXT


def word(index: int, *, is_noise: bool) -> str:
    """Text of one token; the same number always has the same."""
    return str(index * 7919 % 10) if is_noise else f" w{index}"


def _comment(at_ms: float) -> Step:
    return Step(at_ms=at_ms, kind=Kind.COMMENT, text="keep-alive")


def _broken(reply: Reply, events: list[Step]) -> list[Step]:
    kept = [msgspec.structs.replace(step, finish=None) for step in events[: reply.breaks_after]]
    at = kept[-1].at_ms if kept else reply.ttft_ms
    steps = [*kept, Step(at_ms=at, kind=reply.breaks_by, text=reply.message)]
    if reply.breaks_by is Kind.ERROR:
        steps += [Step(at_ms=at, kind=Kind.DONE), Step(at_ms=at, kind=Kind.END)]
    return steps


def _ending(reply: Reply, request: Asked, at: float) -> Iterator[Step]:
    if reply.bare_finish or reply.tokens == 0:
        yield Step(at_ms=at, kind=Kind.FINISH, finish=reply.finish)
    if reply.usage in ("final", "continuous") and request.include_usage:
        yield Step(at_ms=at, kind=Kind.USAGE)
    if reply.done:
        yield Step(at_ms=at, kind=Kind.DONE)
    yield Step(at_ms=at, kind=Kind.END)


def usage_of(reply: Reply, request: Asked, *, tokens: int) -> Json:
    prompt = request.prompt_tokens + reply.prompt_tokens_off
    usage: Json = {
        "prompt_tokens": prompt,
        "completion_tokens": tokens,
        "total_tokens": prompt + tokens,
    }
    if reply.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": reply.cached_tokens}
    return usage


def event_bytes(step: Step, reply: Reply, request: Asked, *, tokens: int) -> bytes:
    """The bytes of the body that a step writes. `tokens` are those of the answer so far."""
    end = "\r\n" if reply.crlf else "\n"
    match step.kind:
        case Kind.COMMENT:
            return f": {step.text}{end}{end}".encode()
        case Kind.RAW:
            return step.text.encode("utf-8", "surrogateescape")
        case Kind.DONE:
            return f"data: [DONE]{end}{end}".encode()
        case Kind.ERROR:
            chunk: Json = {"error": {"message": step.text, "type": "server_error", "code": 500}}
        case Kind.USAGE:
            chunk = {**_frame(request), "choices": []}
            chunk["usage"] = usage_of(reply, request, tokens=tokens)
        case _:
            chunk = _choice_chunk(step, reply, request, tokens=tokens)
    return b"data: " + msgspec.json.encode(chunk) + (end + end).encode()


def _frame(request: Asked) -> Json:
    kind = "chat.completion.chunk" if request.is_chat else "text_completion"
    return {"id": "truth-1", "object": kind, "created": 0, "model": "truth"}


def _choice_chunk(step: Step, reply: Reply, request: Asked, *, tokens: int) -> Json:
    choice: Json = {"index": 0, "finish_reason": step.finish}
    if request.is_chat:
        is_first_output = tokens - step.tokens == reply.reasoning_tokens
        choice["delta"] = _delta(step, reply, is_first_output=is_first_output)
    else:
        choice["text"] = step.text
    if reply.token_ids:
        choice["token_ids"] = list(range(tokens - step.tokens, tokens))
    chunk = {**_frame(request), "choices": [choice]}
    has_usage = reply.usage == "continuous" or (reply.usage == "with_finish" and step.finish)
    if has_usage:
        chunk["usage"] = usage_of(reply, request, tokens=tokens)
    return chunk


def _delta(step: Step, reply: Reply, *, is_first_output: bool) -> Json:
    match step.kind:
        case Kind.ROLE:
            return {"role": "assistant", "content": ""}
        case Kind.TEXT:
            return {"content": step.text}
        case Kind.REASONING:
            both = ["reasoning_content", "reasoning"]
            fields = both if reply.reasoning_field == "both" else [reply.reasoning_field]
            return dict.fromkeys(fields, step.text)
        case Kind.TOOL:
            call: Json = {"index": 0, "function": {"arguments": step.text}}
            if is_first_output:
                call["id"], call["type"], call["function"]["name"] = "call-0", "function", "truth"
            return {"tool_calls": [call]}
        case _:
            return {}


def whole_bytes(steps: list[Step], reply: Reply, request: Asked) -> bytes:
    """The answer in one piece, of what its steps would have brought."""
    texts = dict.fromkeys(Kind, "")
    for step in steps:
        texts[step.kind] += step.text
    tokens = sum(step.tokens for step in steps)
    choice: Json = {"index": 0, "finish_reason": reply.finish}
    if not request.is_chat:
        choice["text"] = texts[Kind.TEXT]
    else:
        choice["message"] = message = {"role": "assistant", "content": texts[Kind.TEXT]}
        if texts[Kind.REASONING]:
            message["reasoning_content"] = texts[Kind.REASONING]
        if texts[Kind.TOOL]:
            call = {"name": "truth", "arguments": texts[Kind.TOOL]}
            choice["message"] = {**message, "tool_calls": [{"type": "function", "function": call}]}
    if reply.token_ids:
        choice["token_ids"] = list(range(tokens))
    whole = {**_frame(request), "choices": [choice]}
    if reply.usage != "none":
        whole["usage"] = usage_of(reply, request, tokens=tokens)
    return msgspec.json.encode(whole)
