"""The shards of one run as their parent leads them: it starts them, listens, and ends them."""

from __future__ import annotations

import math
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from time import perf_counter_ns

import msgspec

from draftmark.bench.client.health import why_dead
from draftmark.bench.client.messages import (
    Ended,
    Finished,
    Halt,
    NotOpened,
    Opened,
    Progress,
    Resume,
    Setup,
    Start,
    Suspect,
    Tick,
)
from draftmark.bench.client.process import ShardProcess, Word
from draftmark.bench.request import PlannedRequest, RequestRecord
from draftmark.bench.result import ClientReport
from draftmark.core.errors import Unavailable

_START_S = 30.0
# From the word to start to the start: every shard must have heard it.
_LEAD_NS = 50_000_000
# Between ticks, by chance, so that they never walk in step with the server's events.
_TICK_S = (0.002, 0.006)
_LOOK_S = 0.1


class LoadProgress(msgspec.Struct, frozen=True, kw_only=True):
    """So far. `tokens` are of answers under way, too; `lag_ms` is the longest of the last quarter
    of a second; `new` are the records since the last call."""

    t_s: float
    planned: int
    sent: int
    ok: int
    failed: int
    in_flight: int
    tokens: int
    lag_ms: float | None
    new: list[RequestRecord]


class Crew:
    """The shards of one run and what they said."""

    def __init__(
        self,
        plans: Sequence[PlannedRequest],
        *,
        url: str,
        api_key: str | None,
        on_progress: Callable[[LoadProgress], None] | None,
        stop: threading.Event | None,
    ) -> None:
        self._plans = plans
        self._url = url
        self._api_key = api_key
        self._on_progress = on_progress
        self._stop = stop
        self._words: queue.SimpleQueue[Word] = queue.SimpleQueue()
        self._shards: list[ShardProcess] = []
        self._at_work: set[ShardProcess] = set()
        self.records: dict[int, RequestRecord] = {}
        # Requests whose connection broke, and those followed by a sign of life.
        self.suspects: set[int] = set()
        self.cleared: set[int] = set()
        self.why_partial: str | None = None
        self.server_died = False
        self.started = self.ended = ""
        self._new: list[RequestRecord] = []
        self._told: dict[ShardProcess, Progress] = {}
        self._reports: list[Finished] = []
        self._started_ns = 0
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._is_over = threading.Event()

    def add(self, setups: Sequence[Setup]) -> None:
        """Starts all before it tells the first: a long word waits until its shard reads."""
        for setup in setups:
            queue_fd = setup.share.queue_fd
            fds = () if queue_fd is None else (queue_fd,)
            self._shards.append(ShardProcess(self._words, pass_fds=fds))
        for shard, setup in zip(self._shards, setups, strict=True):
            shard.tell(setup)

    def wait_until_open(self) -> None:
        for _ in self._shards:
            try:
                word = self._words.get(timeout=_START_S)
            except queue.Empty:
                raise Unavailable(f"{self._url}: no connections in {_START_S:g} s") from None
            if isinstance(word.message, NotOpened):
                raise Unavailable(f"{self._url}: {word.message.reason}")
            assert isinstance(word.message, Opened), f"a shard ended at its start: {word.message}"

    def start(self) -> int:
        for shard in self._shards:
            shard.compare_clocks()
        self._started_ns = perf_counter_ns() + _LEAD_NS
        self.started = datetime.now(UTC).isoformat()
        for shard in self._shards:
            shard.tell(Start(at=self._started_ns + shard.offset, offset=shard.offset))
        self._at_work = set(self._shards)
        self._ticker.start()
        return self._started_ns

    def follow(self) -> None:
        """Until every shard has ended its work. Ctrl-C ends it early, a second one at once."""
        has_been_interrupted = False
        last_look = time.monotonic()
        while self._at_work:
            try:
                self._hear()
                if self._stop is not None and self._stop.is_set():
                    self._give_up("stopped")
                if time.monotonic() - last_look >= _LOOK_S:
                    last_look = time.monotonic()
                    self._show()
            except KeyboardInterrupt:
                if has_been_interrupted:
                    raise
                has_been_interrupted = True
                self._give_up("interrupted")
        self.ended = datetime.now(UTC).isoformat()
        self._show()

    def close(self) -> None:
        self._is_over.set()
        if self._ticker.ident is not None:
            self._ticker.join()
        for shard in self._shards:
            shard.end()

    def report(self) -> ClientReport:
        lags = [lag for report in self._reports if (lag := lag_p99_ms(report.lags_us)) is not None]
        cpu = [report.cpu_ns / report.wall_ns for report in self._reports if report.wall_ns]
        return ClientReport(
            shards=len(self._shards),
            lag_p99_ms=max(lags, default=None),
            cpu_share=max(cpu, default=None),
        )

    def _hear(self) -> None:
        try:
            word = self._words.get(timeout=_LOOK_S)
        except queue.Empty:
            return  # a quiet moment: others look at the clock and for a stop
        match word.message:
            case Ended():
                self.records[word.message.record.i] = word.message.record
                self._new.append(word.message.record)
            case Progress():
                self._told[word.shard] = word.message
            case Finished():
                self._reports.append(word.message)
                self._at_work.discard(word.shard)
            case Suspect():
                self._examine(word)
            case None if word.shard in self._at_work:
                self._at_work.discard(word.shard)
                self._give_up("a shard of the client ended by itself")

    def _examine(self, word: Word) -> None:
        """Of one request's broken connection: has the server died?"""
        assert isinstance(word.message, Suspect)
        self.suspects.add(word.message.index)
        if self.why_partial is not None:
            return
        reason = why_dead(self._url, api_key=self._api_key)
        if reason is None:
            self.cleared.add(word.message.index)
            self._tell(word.shard, Resume())
        else:
            self.server_died = True
            self._give_up(f"the server died: {reason}")

    def _give_up(self, reason: str) -> None:
        if self.why_partial is None:
            self.why_partial = reason
            for shard in self._at_work:
                self._tell(shard, Halt(server_is_gone=self.server_died, reason=reason))

    def _tell(self, shard: ShardProcess, message: Resume | Halt | Tick) -> None:
        try:
            shard.tell(message)
        except BrokenPipeError:
            # It has ended; its last word, or the end of its pipe, is on the way.
            return

    def _show(self) -> None:
        if self._on_progress is None:
            return
        new, self._new = self._new, []
        failed = sum(not record.ok for record in self.records.values())
        told = self._told.values()
        lags = [progress.lag_us for progress in told if progress.lag_us is not None]
        sent = max(sum(progress.sent for progress in told), len(self.records))
        self._on_progress(
            LoadProgress(
                t_s=(perf_counter_ns() - self._started_ns) / 1e9,
                planned=len(self._plans),
                sent=sent,
                ok=len(self.records) - failed,
                failed=failed,
                in_flight=sent - len(self.records),
                tokens=sum(progress.tokens for progress in told),
                lag_ms=max(lags) / 1000 if lags else None,
                new=new,
            )
        )

    def _tick(self) -> None:
        """In a thread of its own: tells shards the time, for them to see how late they read it."""
        rng = random.Random(0)
        while not self._is_over.wait(rng.uniform(*_TICK_S)):
            for shard in self._shards:
                self._tell(shard, Tick(t=perf_counter_ns()))


def lag_p99_ms(lags_us: list[int]) -> float | None:
    """Of the ticks of one shard; the largest where they are too few to have a 99th percentile."""
    if not lags_us:
        return None
    lags = sorted(lags_us)
    return lags[min(len(lags) - 1, math.ceil(0.99 * len(lags)))] / 1000
