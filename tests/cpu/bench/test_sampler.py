"""The sampler reads on while the server lives, and says what it missed when it does not."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from draftmark.bench.adapters import make_adapter
from draftmark.bench.result import Sample
from draftmark.bench.sampler import Sampler
from tests.fakes.scripted_http import Status, scripted_http


class _Watched:
    """Counts samples and wakes who waits for one of them."""

    def __init__(self) -> None:
        self.seen: list[Sample] = []
        self._changed = threading.Condition()

    def __call__(self, sample: Sample) -> None:
        with self._changed:
            self.seen.append(sample)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.seen) >= count, timeout=30)


def _metrics(running: int) -> str:
    return f"# TYPE draftmark_x gauge\ndraftmark_requests_running {running}.0\n"


def test_samples_lie_on_the_clock_of_the_run() -> None:
    watched = _Watched()
    with scripted_http({"GET /metrics": _metrics(3)}) as server:
        adapter = make_adapter("draftmark", server.url)
        origin = time.perf_counter_ns()
        with Sampler(adapter, interval_s=0.01, on_sample=watched) as sampler:
            sampler.start(origin)
            watched.wait_for(3)
        took = time.perf_counter_ns() - origin
        count = len(sampler.samples)
        time.sleep(0.03)
    times = [sample.t for sample in sampler.samples]
    assert times == sorted(times)
    assert all(0 <= t <= took for t in times)
    assert {sample.running for sample in sampler.samples} == {3}
    assert sampler.missed == []
    assert len(sampler.samples) == count  # nothing after the end


def test_a_failing_scrape_is_missed_and_not_zero() -> None:
    watched = _Watched()
    failing = threading.Event()

    def metrics(_: Any) -> Any:
        return Status(503, "dying") if failing.is_set() else _metrics(1)

    with scripted_http({"GET /metrics": metrics}) as server:
        adapter = make_adapter("draftmark", server.url)
        with Sampler(adapter, interval_s=0.01, on_sample=watched) as sampler:
            sampler.start(time.perf_counter_ns())
            watched.wait_for(1)
            failing.set()
            while not sampler.missed:
                time.sleep(0.01)
            failing.clear()
            watched.wait_for(len(watched.seen) + 2)
    assert "503: dying" in sampler.missed[0].why
    assert all(sample.running == 1 for sample in sampler.samples)


def test_a_fault_of_ours_is_raised_where_it_is_waited_for() -> None:
    def fail(_: Sample) -> None:
        raise RuntimeError("screen is gone")

    with scripted_http({"GET /metrics": _metrics(1)}) as server:
        adapter = make_adapter("draftmark", server.url)
        sampler = Sampler(adapter, interval_s=0.01, on_sample=fail)
        with pytest.raises(RuntimeError, match="screen is gone"), sampler:
            sampler.start(time.perf_counter_ns())
            while sampler._thread.is_alive():
                time.sleep(0.01)


def test_a_run_that_never_began_has_no_samples() -> None:
    with scripted_http({}) as server:
        adapter = make_adapter("draftmark", server.url)
        with Sampler(adapter) as sampler:
            pass
    assert (sampler.samples, sampler.missed) == ([], [])
