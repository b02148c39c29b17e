"""Blocking work beside an event loop, in a thread that never keeps the program from ending."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from draftmark.engine.source import Progress

Result = TypeVar("Result")


async def in_thread(work: Callable[[Progress], Result], progress: Progress) -> Result:
    """Run `work` in a daemon thread; what it reports is delivered to `progress` in this loop.

    `asyncio.to_thread` would make Ctrl-C wait for a download to end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def post(function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(function, *arguments)

    def settle(result: Result | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            result = work(lambda phase: post(progress, phase))
        except BaseException as error:  # handed to the awaiting side
            post(settle, None, error)
        else:
            post(settle, result, None)

    threading.Thread(target=run, name="source", daemon=True).start()
    return await future
