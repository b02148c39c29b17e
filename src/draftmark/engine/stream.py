"""What the engine says about one request, as an async iterator in the API process."""

from __future__ import annotations

import asyncio
from collections import deque

from draftmark.core.messages import RequestOutput


class OutputStream:
    """The outputs of request `id`, in order; ends after the one with `finish`, always.

    Belongs to the event loop of its `EngineClient`; one reader. A reader that is behind finds
    several outputs ready and may take them together (`take_ready`).
    """

    __slots__ = ("_is_ended", "_ready", "_waiter", "id")

    def __init__(self, request_id: int) -> None:
        self.id = request_id
        self._ready: deque[RequestOutput] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_ended = False

    def push(self, output: RequestOutput) -> None:
        """Called by the client only."""
        self._ready.append(output)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take_ready(self) -> list[RequestOutput]:
        """Everything that is here now, without waiting; may be empty."""
        taken = list(self._ready)
        self._ready.clear()
        if taken and taken[-1].finish is not None:
            self._is_ended = True
        return taken

    def __aiter__(self) -> OutputStream:
        return self

    async def __anext__(self) -> RequestOutput:
        while not self._ready:
            if self._is_ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        output = self._ready.popleft()
        if output.finish is not None:
            self._is_ended = True
        return output
