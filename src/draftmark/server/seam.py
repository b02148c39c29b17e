"""What the server needs of an engine: the part of `EngineClient` it uses, and a fake's contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from draftmark.core.messages import EngineState, EngineStats
from draftmark.core.request import FinishReason, Request
from draftmark.engine.stream import OutputStream


class ServedEngine(Protocol):
    """`submit` never waits: it queues all requests or raises `Overloaded` or `Unavailable`."""

    most_in_flight: int

    @property
    def state(self) -> EngineState: ...

    @property
    def stats(self) -> EngineStats: ...

    @property
    def ready(self) -> dict[str, object]: ...

    def new_ids(self, count: int) -> list[int]: ...

    def submit(self, requests: Sequence[Request]) -> list[OutputStream]: ...

    def abort(self, ids: Sequence[int]) -> None: ...

    def finish(self, request_id: int, num_tokens: int, reason: FinishReason) -> None: ...

    async def reset_cache(self) -> int: ...

    async def stacks(self) -> str:
        """Raises `Unavailable` when the engine does not answer within seconds."""
        ...
