"""The server once a second while a run goes on, by a thread beside it.

A scrape that fails is kept as missed, with its reason: the run does not end for it, and the second
is not invented.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

import msgspec

from draftmark.bench.adapters import Adapter
from draftmark.bench.result import Sample
from draftmark.core.errors import Unavailable


class Missed(msgspec.Struct, frozen=True):
    """A second of which nothing is known. `t` as in `Sample`."""

    t: int
    why: str


class Sampler:
    """For `with`: samples from `start` to the end of the block, one every `interval_s`.

    `on_sample` is called in the sampler's thread. `samples` and `missed` may be read at any time
    and are complete after the block.
    """

    def __init__(
        self,
        adapter: Adapter,
        *,
        interval_s: float = 1.0,
        on_sample: Callable[[Sample], None] | None = None,
    ) -> None:
        self.samples: list[Sample] = []
        self.missed: list[Missed] = []
        self._adapter = adapter
        self._origin_ns = 0
        self._interval_s = interval_s
        self._on_sample = on_sample
        self._ended = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="bench sampler", daemon=True)

    def __enter__(self) -> Sampler:
        return self

    def start(self, origin_ns: int) -> None:
        """`origin_ns` is `time.perf_counter_ns()` of the start of the run: what `run_load` gives to
        its `on_start`."""
        self._origin_ns = origin_ns
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raises what the thread met besides an unreachable server."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._fault is not None and error is None:
            raise self._fault

    def _run(self) -> None:
        try:
            self._sample_until_ended()
        except BaseException as fault:  # edge of the thread: raised in the one that waits for it
            self._fault = fault

    def _sample_until_ended(self) -> None:
        """Ticks that a slow scrape ran over are left out, not caught up with."""
        due = time.monotonic()
        while not self._ended.wait(max(due - time.monotonic(), 0)):
            self._take()
            behind = time.monotonic() - due
            due += self._interval_s * max(1, -(-behind // self._interval_s))

    def _take(self) -> None:
        asked = self._now()
        try:
            sample = self._adapter.sample(t=asked)
        except Unavailable as error:
            self.missed.append(Missed(asked, error.message))
            return
        # The server looked at itself somewhere between the question and the answer.
        sample = msgspec.structs.replace(sample, t=(asked + self._now()) // 2)
        self.samples.append(sample)
        if self._on_sample is not None:
            self._on_sample(sample)

    def _now(self) -> int:
        return time.perf_counter_ns() - self._origin_ns
