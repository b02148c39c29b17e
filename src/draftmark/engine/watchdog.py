"""The step watchdog: a step that takes too long is a hang, and a hang ends the engine.

It is a deadline of the loop's own wait, not a thread: the loop never blocks on anything else, and
an engine that hangs itself is noticed by the API process, which misses its heartbeat.
"""

from __future__ import annotations

import faulthandler
import logging
import sys
from collections import deque
from collections.abc import Sequence

from draftmark.core.errors import EngineFailure
from draftmark.engine.launch import Child

logger = logging.getLogger(__name__)

_DUMP_WAIT_S = 1.0


class StepWatch:
    """Which steps are out, and since when the oldest has had the worker to itself. Seconds."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._out: deque[int] = deque()
        self._since = 0.0

    def sent(self, step: int, *, now: float) -> None:
        if not self._out:
            self._since = now
        self._out.append(step)

    def arrived(self, *, now: float) -> None:
        """The oldest step's result is here; the next one's time begins."""
        self._out.popleft()
        self._since = now

    @property
    def deadline(self) -> float | None:
        return self._since + self._limit_s if self._out else None

    def check(self, *, now: float) -> None:
        """Raise `EngineFailure` naming rank, step and time when the oldest step is overdue."""
        if self._out and now >= self._since + self._limit_s:
            raise EngineFailure(
                f"worker 0 has not finished step {self._out[0]} after {now - self._since:.1f} s "
                f"(limit {self._limit_s:g} s, --step-timeout-s)"
            )

    def describe(self, *, now: float) -> str:
        """Where the worker was, for the report of its death."""
        if not self._out:
            return "between steps"
        return f"in step {self._out[0]}, {now - self._since:.1f} s into it"


def dump_all_stacks(children: Sequence[Child]) -> None:
    """Write our stacks, and have every child write its own, into the one log; waits briefly.

    A stopped process cannot write: its stacks are missing, which says so too.
    """
    logger.error("stacks of the engine process and of %d worker(s) follow", len(children))
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
    alive = [child for child in children if child.poll() is None]
    for child in alive:
        child.ask_for_stacks()
    for child in alive:
        child.await_lines(_DUMP_WAIT_S)
