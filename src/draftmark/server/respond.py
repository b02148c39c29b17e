"""Sends an answer, streamed or whole, for as long as the client is there.

The framework notices a client that leaves only while it writes to it; here the socket is watched
from the first moment, so that a request dies with its client while it is queued, too. A stream's
headers wait for its first piece: what the engine refuses is then an HTTP status, not an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from contextlib import aclosing

import msgspec
from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from draftmark.core.errors import DraftmarkError
from draftmark.engine.results import Speculation
from draftmark.server.answer import Answer
from draftmark.server.assemble import Piece
from draftmark.server.formats import Format
from draftmark.server.logs import RequestLog
from draftmark.server.problems import error_response, internal_error

logger = logging.getLogger(__name__)

# nginx's own: "client closed request". It is only ever logged and counted.
CLIENT_LEFT = 499
_DONE = b"data: [DONE]\n\n"
_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx would collect events otherwise
}


class AnswerResponse(HttpResponse):
    """The HTTP response of one call. Submits it, and abandons what is left of it at the end."""

    def __init__(
        self,
        answer: Answer,
        form: Format,
        *,
        log: RequestLog,
        log_prompts: bool,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__()
        self._answer = answer
        self._form = form
        self._log = log
        self._log_prompts = log_prompts
        self._extra = [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()]
        self._joined: list[Piece | None] = [None] * len(answer.prepared.choices)
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if not await _unless_client_leaves(receive, self._guarded(scope, receive, send)):
                self._log.status = CLIENT_LEFT
        finally:
            self._answer.abandon()
            self._note()

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Turn what ends the work wrongly into a status, or into the last event of a stream."""
        try:
            await (self._stream(send) if self._form.shown.stream else self._send_whole(send))
        except DraftmarkError as error:
            await self._fail(error, scope, receive, send)
        except Exception:
            # Process edge: a fault of ours must end this answer with a reason, and no other.
            logger.exception(
                "request failed", extra={"fields": {"request_id": self._log.request_id}}
            )
            await self._fail(internal_error(), scope, receive, send)

    async def _fail(
        self, error: DraftmarkError, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._log.fields |= {"error": error.code, "reason": error.message}
        if error.status >= 500:
            logger.error(
                "request failed: %s",
                error.message,
                extra={"fields": {"request_id": self._log.request_id}},
            )
        if not self._has_begun:
            response = error_response(error)
            response.raw_headers.extend(self._extra)
            await response(scope, receive, send)
            return
        await _send_event(send, msgspec.json.encode(error.body()))
        await send({"type": "http.response.body", "body": _DONE})

    async def _stream(self, send: Send) -> None:
        self._answer.submit()
        async with aclosing(self._answer.pieces()) as pieces:
            async for index, piece in pieces:
                if not self._has_begun:
                    await self._begin(send, _STREAM_HEADERS)
                if self._log_prompts:
                    self._join(index, piece)
                usage = self._answer.usage if self._form.shown.continuous_usage else None
                chunk = self._form.chunk(index, piece, usage)
                await _send_event(send, msgspec.json.encode(chunk))
        last = _DONE
        if self._form.shown.include_usage:
            total = self._form.usage_chunk(self._answer.usage)
            last = _event(msgspec.json.encode(total)) + _DONE
        await send({"type": "http.response.body", "body": last})

    async def _send_whole(self, send: Send) -> None:
        self._answer.submit()
        async with aclosing(self._answer.pieces()) as pieces:
            async for index, piece in pieces:
                self._join(index, piece)
        whole = [piece for piece in self._joined if piece is not None]
        assert len(whole) == len(self._joined), "a choice ended without a piece"
        body = msgspec.json.encode(self._form.whole(whole, self._answer.usage))
        headers = {"content-type": "application/json", "content-length": str(len(body))}
        await self._begin(send, headers)
        await send({"type": "http.response.body", "body": body})

    def _join(self, index: int, piece: Piece) -> None:
        before = self._joined[index]
        if before is None:
            self._joined[index] = piece
        else:
            before.extend(piece)

    async def _begin(self, send: Send, headers: Mapping[str, str]) -> None:
        self._has_begun = True
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw + self._extra})

    def _note(self) -> None:
        """What the log says of the answer."""
        usage = self._answer.usage
        self._log.fields |= {
            "stream": self._form.shown.stream,
            "choices": len(self._joined),
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.prompt_tokens_details.cached_tokens,
            "completion_tokens": usage.completion_tokens,
        }
        if isinstance(usage.speculation, Speculation):
            self._log.fields["acceptance_length"] = usage.speculation.acceptance_length
        if self._log_prompts:
            prompts = [
                choice.prompt.text or choice.prompt.ids for choice in self._answer.prepared.choices
            ]
            texts = [piece.text if piece else "" for piece in self._joined]
            self._log.fields |= {"prompts": prompts, "answers": texts}


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


async def _send_event(send: Send, data: bytes) -> None:
    """Returns when the socket has room again; meanwhile newer tokens join in the next piece."""
    await send({"type": "http.response.body", "body": _event(data), "more_body": True})


async def _unless_client_leaves(receive: Receive, work: Awaitable[None]) -> bool:
    """Run `work`, or cancel it when the client is gone. True when it ran to its end."""
    running = asyncio.ensure_future(work)
    leaving = asyncio.create_task(_client_leaves(receive))
    try:
        await asyncio.wait({running, leaving}, return_when=asyncio.FIRST_COMPLETED)
        is_whole = running.done()
    finally:
        for task in (running, leaving):
            task.cancel()
        await asyncio.gather(running, leaving, return_exceptions=True)
    if is_whole:
        running.result()
    return is_whole


async def _client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
