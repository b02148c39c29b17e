"""The last thing a rank did, in memory that others can read while it hangs.

One small shared file a worker: the worker writes it at every operation, the engine reads it when a
step is overdue or a worker is gone. A stopped process cannot answer, but its record can be read.
The file has no name once both sides hold it.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
from dataclasses import dataclass
from enum import IntEnum

# step, cohort, operation, lane, time in ns of CLOCK_MONOTONIC; then step, operation and lane of the
# last operation that was on a lane
_RECORD = struct.Struct("@8q")
_RECORDS = 64  # stages a worker can hold


class Operation(IntEnum):
    """What a stage of a worker is at. `RETURN` and `RECEIVE` wait for the other end of a lane."""

    IDLE = 0
    RETURN = 1
    RECEIVE = 2
    COMPUTE = 3
    SEND = 4

    def __str__(self) -> str:
        return _WORDS[self]


_WORDS = {
    Operation.IDLE: "finished",
    Operation.RETURN: "waiting on",
    Operation.RECEIVE: "waiting on",
    Operation.COMPUTE: "computing",
    Operation.SEND: "sending on",
}
NO_LANE = -1
TRACE_BYTES = _RECORD.size * _RECORDS
_NO_USE = (-1, Operation.IDLE, NO_LANE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneUse:
    """The latest operation of a stage on a lane."""

    step: int
    operation: Operation
    lane: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTrace:
    """`lane` is an index into `Topology.lane_names()`, or `NO_LANE`; `since_s` as
    `time.monotonic`. `step` is -1 before the first one, `last_use` None before a lane was used."""

    step: int
    cohort: int
    operation: Operation
    lane: int
    since_s: float
    last_use: LaneUse | None = None

    @property
    def is_waiting(self) -> bool:
        return self.operation in (Operation.RETURN, Operation.RECEIVE)


class TraceFile:
    """Both sides map the same file; `fd` is inherited by the worker."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._last_use: dict[int, tuple[int, int, int]] = {}
        self._map = mmap.mmap(fd, _RECORD.size * _RECORDS)

    @classmethod
    def create(cls) -> TraceFile:
        """A file without a name."""
        fd, path = tempfile.mkstemp(prefix="draftmark-trace-")
        os.unlink(path)
        os.ftruncate(fd, _RECORD.size * _RECORDS)
        trace = cls(fd)
        for index in range(_RECORDS):
            trace.write(index, step=-1, cohort=0, operation=Operation.IDLE)
        return trace

    def write(
        self, index: int, *, step: int, cohort: int, operation: Operation, lane: int = NO_LANE
    ) -> None:
        """Stage number `index` of this worker is now at this."""
        now = time.monotonic_ns()
        if lane != NO_LANE:
            self._last_use[index] = step, operation, lane
        last = self._last_use.get(index, _NO_USE)
        place = index * _RECORD.size
        _RECORD.pack_into(self._map, place, step, cohort, operation, lane, now, *last)

    def read(self, index: int) -> StageTrace:
        step, cohort, operation, lane, ns, *last = _RECORD.unpack_from(
            self._map, index * _RECORD.size
        )
        return StageTrace(
            step=step,
            cohort=cohort,
            operation=Operation(operation),
            lane=lane,
            since_s=ns / 1e9,
            last_use=_use(*last),
        )

    def content(self) -> bytes:
        """All of it, for a reader on another machine."""
        return self._map[:]

    def fill(self, content: bytes) -> None:
        """Show what another one's `content` was."""
        self._map[:] = content

    def close(self) -> None:
        self._map.close()
        os.close(self.fd)


def _use(step: int, operation: int, lane: int) -> LaneUse | None:
    if lane == NO_LANE:
        return None
    return LaneUse(step=step, operation=Operation(operation), lane=lane)
