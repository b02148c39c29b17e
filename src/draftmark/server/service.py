"""What the routes work with: the engine, the model once it is there, figures, keys.

A `Service` is loading until `begin` gives it a model. It decides nothing about when processes start
or end; that is `lifecycle`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from draftmark.core.declared import Declared
from draftmark.core.errors import Unavailable
from draftmark.core.messages import EngineState
from draftmark.engine.threads import in_thread
from draftmark.server.access import ApiKeys, HostPolicy
from draftmark.server.metrics import Metrics
from draftmark.server.model import ServedModel, served_names
from draftmark.server.seam import ServedEngine

# Bodies beyond this are parsed, rendered and tokenised in a thread, so that running answers and
# /health do not wait. Below it the hop costs more than the work.
_INLINE_BYTES = 8192
_TEXT_THREADS = 2

_T = TypeVar("_T")


class Service:
    """Belongs to one event loop. `keys` and `hosts` say who may ask."""

    def __init__(self, declared: Declared, *, engine: ServedEngine, keys: ApiKeys) -> None:
        server = declared.config.server
        self.declared = declared
        self.engine = engine
        self.keys = keys
        self.hosts = HostPolicy.make(server.host, server.allowed_hosts)
        self.metrics = Metrics(
            model=served_names(declared.config)[0],
            state=lambda: self.state,
            stats=lambda: engine.stats,
        )
        self._model: ServedModel | None = None
        self._text_places = asyncio.Semaphore(_TEXT_THREADS)

    def begin(self, model: ServedModel) -> None:
        """Requests are taken from now on, while the engine is ready."""
        self._model = model

    @property
    def state(self) -> EngineState:
        """The engine's, but loading until there is a model."""
        state = self.engine.state
        if state.state == "ready" and self._model is None:
            return EngineState("loading", "reading the tokenizer")
        return state

    @property
    def model(self) -> ServedModel:
        """Raises `Unavailable` while it is not there."""
        if self._model is None:
            raise Unavailable(self.describe_state())
        return self._model

    def check_ready(self) -> None:
        """Raise `Unavailable` unless a request would be taken now."""
        if self.state.state != "ready":
            raise Unavailable(self.describe_state())

    def describe_state(self) -> str:
        state = self.state
        return f"the server is {state.state}" + (f": {state.detail}" if state.detail else "")

    async def off_loop(self, work: Callable[[], _T], *, size: int) -> _T:
        """Run `work` on a body of `size` bytes: here when it is small, else in a thread (one that
        does not keep the process alive, as those of an executor would).
        """
        if size <= _INLINE_BYTES:
            return work()
        async with self._text_places:
            return await in_thread(lambda progress: work(), _no_progress)


def _no_progress(phase: str) -> None:
    """There is nothing to tell."""
