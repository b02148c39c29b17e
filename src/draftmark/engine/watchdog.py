"""The step watchdog: a step that takes too long is a hang, and a hang ends the engine.

It is a deadline of the loop's own wait, not a thread: the loop never blocks on anything else, and
an engine that hangs itself is noticed by the API process, which misses its heartbeat.
"""

from __future__ import annotations

from collections import deque

from draftmark.core.errors import EngineFailure
from draftmark.engine.whereabouts import suspects
from draftmark.engine.workers import Workers


class StepWatch:
    """Which steps are out, and since when the oldest has had the worker to itself. Seconds."""

    def __init__(self, limit_s: float, workers: Workers) -> None:
        self._limit_s = limit_s
        self._workers = workers
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
        """Raise `EngineFailure` naming the step, who holds it up and at what, when the oldest step
        is overdue."""
        if not self._out or now < self._since + self._limit_s:
            return
        step, topology = self._out[0], self._workers.topology
        guilty = suspects(self._workers.whereabouts(), topology, step=step)
        said = "; ".join(place.describe(topology, now_s=now) for place in guilty)
        raise EngineFailure(
            f"step {step} is not finished after {now - self._since:.1f} s (limit "
            f"{self._limit_s:g} s, --step-timeout-s): {said}"
        )

    def describe(self, *, now: float) -> str:
        """Where the worker was, for the report of its death."""
        if not self._out:
            return "between steps"
        return f"in step {self._out[0]}, {now - self._since:.1f} s into it"
