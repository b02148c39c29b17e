"""`Engine`: the Python API for programs without an event loop of their own.

An `AsyncEngine` runs in a thread of ours. Ctrl-C aborts the call that waits and leaves the engine
usable.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from draftmark.core.errors import Unavailable
from draftmark.core.generation import GenerationDefaults
from draftmark.core.messages import EngineStats
from draftmark.core.request import SamplingParams
from draftmark.engine.api import AsyncEngine, Messages, Prompt
from draftmark.engine.results import Completion
from draftmark.engine.textstream import TextDelta
from draftmark.text.tokenizer import Tokenizer

Result = TypeVar("Result")


class Engine:
    """`with Engine("smollm2", max_running=8) as engine: engine.generate("Once upon")`

    Ready when constructed. Arguments, defaults and errors are those of `AsyncEngine`. Closed by
    `close`, by `with`, when collected as garbage, and when the program ends. Threads may share it.
    """

    def __init__(
        self, model: str | None = None, *, config: str | Path | None = None, **options: Any
    ) -> None:
        self._engine = AsyncEngine(model, config=config, **options)
        self._thread = _LoopThread()
        try:
            self._thread.run(self._engine.start())
        except BaseException:  # Ctrl-C too: leave no thread
            self._thread.end()
            raise
        self._finalizer = weakref.finalize(self, _close, self._thread, self._engine)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling: SamplingParams | None = None,
        **fields: object,
    ) -> list[Completion]:
        """One `Completion` a prompt, in order; prompts run together. A prompt is text or ids."""
        return self._thread.run(self._engine.generate(prompts, sampling, **fields))

    def chat(
        self, messages: Messages, sampling: SamplingParams | None = None, **fields: object
    ) -> Completion:
        """The answer to a conversation in OpenAI's form, by the model's chat template."""
        return self._thread.run(self._engine.chat(messages, sampling, **fields))

    def stream(
        self, prompt: Prompt, sampling: SamplingParams | None = None, **fields: object
    ) -> Iterator[TextDelta]:
        """The answer as it comes; the last delta has `finish`. Leaving early aborts the request."""
        return self._thread.iterate(self._engine.stream(prompt, sampling, **fields))

    def stream_chat(
        self, messages: Messages, sampling: SamplingParams | None = None, **fields: object
    ) -> Iterator[TextDelta]:
        """`chat` as it comes."""
        return self._thread.iterate(self._engine.stream_chat(messages, sampling, **fields))

    def reset_cache(self) -> int:
        """Drop cached prefixes that nothing uses; the number of pages."""
        return self._thread.run(self._engine.reset_cache())

    @property
    def tokenizer(self) -> Tokenizer:
        return self._engine.tokenizer

    @property
    def defaults(self) -> GenerationDefaults:
        """The model's sampling defaults, each with its source."""
        return self._engine.defaults

    @property
    def ready(self) -> dict[str, object]:
        """The ready record: sizes, times, and every resolved option with its source."""
        return self._engine.ready

    @property
    def stats(self) -> EngineStats:
        return self._engine.stats

    def close(self) -> None:
        """End the processes; calls in flight in other threads raise `Unavailable`. Idempotent."""
        self._finalizer()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _close(thread: _LoopThread, engine: AsyncEngine) -> None:
    try:
        thread.run(engine.close())
    finally:
        thread.end()


class _LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_ended = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="draftmark-engine", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`, run in the loop; cancelled there if the wait here is broken off.

        Raises `Unavailable` when the loop ended before or meanwhile.
        """
        with self._lock:
            if self._is_ended:
                work.close()
                raise Unavailable("the engine was closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise Unavailable("the engine was closed") from error
        except BaseException:  # KeyboardInterrupt among them
            future.cancel()
            raise

    def iterate(self, deltas: AsyncGenerator[TextDelta, None]) -> Iterator[TextDelta]:
        """The items of an async generator, which is closed when the caller leaves."""
        try:
            while True:
                try:
                    yield self.run(_next(deltas))
                except StopAsyncIteration:  # the generator's way to end
                    return
        finally:
            with contextlib.suppress(Unavailable):  # closed meanwhile
                self.run(_close_generator(deltas))

    def end(self) -> None:
        """Cancel what still runs, and end the thread."""
        with self._lock:
            self._is_ended = True
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(deltas: AsyncGenerator[TextDelta, None]) -> TextDelta:
    return await anext(deltas)


async def _close_generator(deltas: AsyncGenerator[TextDelta, None]) -> None:
    await deltas.aclose()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
