"""What every stage is at, read from the workers' traces, and who keeps the others waiting.

A stage that waits on a lane is in good company as long as the other end has not sent, and so is one
that computes while a rank of its tensor group has not come as far: its next sum waits for that one.
Whoever is neither waiting nor finished, or waits for what was sent long ago, is the one to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftmark.core.topology import LaneName, Topology
from draftmark.core.trace import NO_LANE, LaneUse, Operation, StageTrace


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
        passed = f"{max(0.0, now_s - trace.since_s):.1f} s"
        names = topology.lane_names()
        if trace.operation is Operation.IDLE:
            last = _last_use(trace.last_use, names)
            return f"{who} has finished step {trace.step}, {passed} ago{last}{stopped}"
        at = f"at step {trace.step}, cohort {trace.cohort}, for {passed}"
        if trace.lane == NO_LANE:
            last = _last_use(trace.last_use, names)
            return f"{who} is {trace.operation} {at}{last}{stopped}"
        return f"{who} is {trace.operation} {names[trace.lane]} {at}{stopped}"


def _last_use(use: LaneUse | None, names: Sequence[LaneName]) -> str:
    if use is None:
        return ""
    did = "sent" if use.operation is Operation.SEND else "received"
    return f" (last on a lane: {did} step {use.step} on {names[use.lane]})"


def suspects(places: Sequence[Whereabouts], topology: Topology, *, step: int) -> list[Whereabouts]:
    """Those who hold up `step`: stopped processes if there are any, else whoever has not finished
    it and waits for nobody, or for what was sent; else all that have not finished it."""
    late = [place for place in places if not _has_finished(place.trace, step)]
    stopped = [place for place in late if place.is_stopped]
    if stopped:
        return stopped
    company = _Company(places, topology)
    guilty = [place for place in late if not company.excuses(place)]
    return guilty or late


def _has_finished(trace: StageTrace, step: int) -> bool:
    return trace.step > step or (trace.step == step and trace.operation is Operation.IDLE)


class _Company:
    """Who waits for whom."""

    def __init__(self, places: Sequence[Whereabouts], topology: Topology) -> None:
        self._by_rank = {(place.stage, place.tp_rank): place for place in places}
        self._names = topology.lane_names()

    def excuses(self, place: Whereabouts) -> bool:
        """Whether somebody else must move before `place` can."""
        trace = place.trace
        if trace.operation is Operation.COMPUTE:
            return any(self._is_behind(peer, trace.step) for peer in self._peers_of(place))
        if trace.lane == NO_LANE:
            return False
        return self._waits_in_vain(place) if trace.is_waiting else self._meets_no_reader(place)

    def _waits_in_vain(self, place: Whereabouts) -> bool:
        """The other end of the lane has not sent yet."""
        source = self._end(place, is_source=True)
        return source is None or not _has_finished(source.trace, place.trace.step)

    def _meets_no_reader(self, place: Whereabouts) -> bool:
        """The lane may be full: the other end is behind, and not waiting on this lane."""
        target = self._end(place, is_source=False)
        if target is None or _has_finished(target.trace, place.trace.step):
            return False
        return not (target.trace.is_waiting and target.trace.lane == place.trace.lane)

    def _end(self, place: Whereabouts, *, is_source: bool) -> Whereabouts | None:
        lane = self._names[place.trace.lane]
        return self._by_rank.get((lane.source if is_source else lane.target, lane.tp_rank))

    def _peers_of(self, place: Whereabouts) -> list[Whereabouts]:
        return [
            peer
            for (stage, tp_rank), peer in self._by_rank.items()
            if stage == place.stage and tp_rank != place.tp_rank
        ]

    @staticmethod
    def _is_behind(peer: Whereabouts, step: int) -> bool:
        """Whether it has not begun to compute `step`."""
        trace = peer.trace
        if trace.operation in (Operation.COMPUTE, Operation.SEND):
            return trace.step < step
        return not _has_finished(trace, step)


def lane_table(places: Sequence[Whereabouts], topology: Topology, *, now_s: float) -> list[str]:
    """For each lane a line with its name, then one for each end, source first."""
    by_rank = {(place.stage, place.tp_rank): place for place in places}
    lines = []
    for lane in topology.lane_names():
        lines.append(str(lane))
        for side, stage in (("source", lane.source), ("target", lane.target)):
            place = by_rank.get((stage, lane.tp_rank))
            told = "is not known" if place is None else place.describe(topology, now_s=now_s)
            lines.append(f"  {side}: {told}")
    return lines
