"""A tensor group whose ranks are threads of this process, and a way to run one call on all ranks.

Stricter than processes: ranks that come with different calls or shapes fail, all of them, and a
rank that does not come fails the others in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from typing import TypeVar

from torch import Tensor

from draftmark.parallel.collectives import Alone, TensorGroup, ordered_sum, side_by_side

T = TypeVar("T")


class ThreadGroup:
    """One rank's end of a meeting."""

    def __init__(self, meeting: _Meeting, rank: int) -> None:
        self._meeting = meeting
        self.rank = rank
        self.size = meeting.size

    def sum(self, x: Tensor) -> Tensor:
        return ordered_sum(self._meeting.exchange(self.rank, ("sum", x.shape), x))

    def gather_columns(self, x: Tensor, *, widths: Sequence[int]) -> Tensor:
        assert x.shape == (x.shape[0], widths[self.rank])
        call = ("gather_columns", x.shape[0], tuple(widths))
        return side_by_side(self._meeting.exchange(self.rank, call, x), widths)


class _Meeting:
    def __init__(self, size: int, *, timeout_s: float) -> None:
        self.size = size
        self.barrier = Barrier(size, timeout=timeout_s)
        self._offers: list[tuple[object, Tensor] | None] = [None] * size

    def exchange(self, rank: int, call: object, x: Tensor) -> list[Tensor]:
        """Every rank's tensor, copied: what a rank does with its own afterwards is not seen."""
        self._offers[rank] = ((call, x.dtype), x)
        self.barrier.wait()
        offers = [offer for offer in self._offers if offer is not None]
        parts = [part.clone() for _, part in offers]
        self.barrier.wait()
        calls = [call for call, _ in offers]
        assert calls == calls[:1] * self.size, f"ranks met with different calls: {calls}"
        return parts


def run_ranks(size: int, call: Callable[[TensorGroup], T], *, timeout_s: float = 20.0) -> list[T]:
    """What `call` gives on each rank. Raises what the first failing rank raised."""
    if size == 1:
        return [call(Alone())]
    meeting = _Meeting(size, timeout_s=timeout_s)

    def run(rank: int) -> T:
        try:
            return call(ThreadGroup(meeting, rank))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        causes = [error for error in errors if not isinstance(error, BrokenBarrierError)]
        raise (causes or errors)[0]
    return [future.result() for future in futures]
