"""What every stage is at, read from the workers' traces, and who keeps the others waiting.

A stage that waits on a lane is in good company as long as the other end has not sent. Whoever is
neither waiting nor finished, or waits for what was sent long ago, is the one to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftmark.core.topology import LaneName, Topology
from draftmark.core.trace import NO_LANE, Operation, StageTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """One stage of one worker. `state` is the process's as the system tells it."""

    worker: int
    stage: int
    tp_rank: int
    trace: StageTrace
    state: str

    @property
    def is_stopped(self) -> bool:
        return self.state in ("stopped", "tracing-stop")

    def describe(self, topology: Topology, *, now_s: float) -> str:
        """e.g. `worker 1 (stage 1) is waiting on forward lane 0>1 at step 7, cohort 1, for 2 s`."""
        trace = self.trace
        rank = f", tensor rank {self.tp_rank}" if topology.tp > 1 else ""
        who = f"worker {self.worker} (stage {self.stage}{rank})"
        stopped = f", and the process is {self.state}" if self.is_stopped else ""
        if trace.step < 0:
            return f"{who} has not begun a step{stopped}"
        if trace.operation is Operation.IDLE:
            return f"{who} has finished step {trace.step}{stopped}"
        lane = "" if trace.lane == NO_LANE else f" {topology.lane_names()[trace.lane]}"
        return (
            f"{who} is {trace.operation}{lane} at step {trace.step}, cohort {trace.cohort}, for "
            f"{max(0.0, now_s - trace.since_s):.1f} s{stopped}"
        )


def suspects(places: Sequence[Whereabouts], topology: Topology, *, step: int) -> list[Whereabouts]:
    """Those who hold up `step`: stopped processes if there are any, else whoever has not finished
    it and waits for nobody, or for what was sent; else all that have not finished it."""
    late = [place for place in places if not _has_finished(place.trace, step)]
    stopped = [place for place in late if place.is_stopped]
    if stopped:
        return stopped
    by_rank = {(place.stage, place.tp_rank): place for place in places}
    names = topology.lane_names()
    guilty = [place for place in late if not _waits_in_vain(place, by_rank, names)]
    return guilty or late


def _has_finished(trace: StageTrace, step: int) -> bool:
    return trace.step > step or (trace.step == step and trace.operation is Operation.IDLE)


def _waits_in_vain(
    place: Whereabouts,
    by_rank: dict[tuple[int, int], Whereabouts],
    names: Sequence[LaneName],
) -> bool:
    """Whether it waits on a lane whose other end has not sent yet."""
    trace = place.trace
    if not trace.is_waiting or trace.lane == NO_LANE:
        return False
    lane = names[trace.lane]
    source = by_rank.get((lane.source, lane.tp_rank))
    if source is None:
        return True
    return not _has_finished(source.trace, trace.step)


def lane_table(places: Sequence[Whereabouts], topology: Topology, *, now_s: float) -> list[str]:
    """A line for each lane with both its ends, source first."""
    by_rank = {(place.stage, place.tp_rank): place for place in places}
    lines = []
    for lane in topology.lane_names():
        ends = [
            by_rank[stage, lane.tp_rank].describe(topology, now_s=now_s)
            for stage in (lane.source, lane.target)
        ]
        lines.append(f"{lane}: {ends[0]} | {ends[1]}")
    return lines
