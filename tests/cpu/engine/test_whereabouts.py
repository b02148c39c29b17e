"""Who holds up a step, from made-up traces: pp=2 and tp=2 unless said otherwise."""

from __future__ import annotations

import os

import pytest

from draftmark.core.topology import LaneKind, LaneName, Topology
from draftmark.core.trace import NO_LANE, LaneUse, Operation, StageTrace, TraceFile
from draftmark.engine.whereabouts import Whereabouts, lane_table, suspects

IDLE, RETURN, RECEIVE, COMPUTE, SEND = Operation
FORWARD, BACK = LaneKind.FORWARD, LaneKind.RETURN

PP2 = Topology(stages=(1, 1), cohorts=2, lanes="gloo")
PP3 = Topology(stages=(1, 1, 1), cohorts=3, lanes="gloo")
PP2_TP2 = Topology(stages=(1, 1), tp=2, cohorts=2, lanes="gloo")


def at(
    topology: Topology,
    worker: int,
    operation: Operation,
    step: int,
    *,
    lane: LaneName | None = None,
    state: str = "sleeping",
    since_s: float = 0.0,
    last_use: LaneUse | None = None,
) -> Whereabouts:
    """Of a worker with one stage. Without a `lane`, the one that the operation is usual on."""
    [stage] = topology.stages_of(worker)
    rank, last = topology.tp_rank_of(worker), topology.num_stages - 1
    usual = {
        RETURN: (BACK, last, 0),
        RECEIVE: (FORWARD, stage - 1, stage),
        SEND: (FORWARD, stage, stage + 1) if stage < last else (BACK, last, 0),
    }.get(operation)
    if lane is None and usual is not None:
        lane = LaneName(kind=usual[0], source=usual[1], target=usual[2], tp_rank=rank)
    trace = StageTrace(
        step=step,
        cohort=step % topology.cohorts,
        operation=operation,
        lane=NO_LANE if lane is None else topology.lane_names().index(lane),
        since_s=since_s,
        last_use=last_use,
    )
    return Whereabouts(worker=worker, stage=stage, tp_rank=rank, trace=trace, state=state)


def blamed(topology: Topology, *places: Whereabouts, step: int = 8) -> list[int]:
    return [place.worker for place in suspects(places, topology, step=step)]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # The first computes, the second waits for it.
        ((COMPUTE, 8), (RECEIVE, 8), [0]),
        # What the second waits for was sent: it must be frozen, or the network is.
        ((IDLE, 8), (RECEIVE, 8), [1]),
        # The first waits for a step that the second has not finished.
        ((RETURN, 8), (COMPUTE, 8), [1]),
        # It never began it: the step before is finished, and it waits for nobody.
        ((RETURN, 8), (IDLE, 7), [1]),
        # The return was sent, and the first does not take it.
        ((RETURN, 8), (IDLE, 8), [0]),
        # The lane is full, because the second reads nothing.
        ((SEND, 9), (COMPUTE, 8), [1]),
        # The second reads, and nothing comes.
        ((SEND, 8), (RECEIVE, 8), [0]),
        ((IDLE, 7), (RECEIVE, 8), [0]),
        ((COMPUTE, 8), (IDLE, 7), [0, 1]),
        # A step has not even arrived here.
        ((IDLE, -1), (RECEIVE, 8), [0]),
    ],
)
def test_two_stages(
    first: tuple[Operation, int], second: tuple[Operation, int], expected: list[int]
) -> None:
    assert blamed(PP2, at(PP2, 0, *first), at(PP2, 1, *second)) == expected


def test_a_stopped_process_comes_first() -> None:
    first = at(PP2, 0, COMPUTE, 8)
    assert blamed(PP2, first, at(PP2, 1, RECEIVE, 8, state="stopped")) == [1]
    assert blamed(PP2, first, at(PP2, 1, RECEIVE, 8, state="tracing-stop")) == [1]


def test_a_stopped_process_that_has_finished_the_step_is_innocent() -> None:
    stopped = at(PP2, 0, IDLE, 8, state="stopped")
    assert blamed(PP2, stopped, at(PP2, 1, COMPUTE, 8)) == [1]


def test_who_waits_for_who_waits_is_innocent() -> None:
    places = (at(PP3, 0, COMPUTE, 8), at(PP3, 1, RECEIVE, 8), at(PP3, 2, RECEIVE, 8))
    assert blamed(PP3, *places) == [0]
    places = (at(PP3, 0, RETURN, 8), at(PP3, 1, COMPUTE, 8), at(PP3, 2, RECEIVE, 8))
    assert blamed(PP3, *places) == [1]


def test_a_tensor_rank_that_waits_for_its_peer_is_innocent() -> None:
    """Workers 0 and 1 are stage 0, 2 and 3 are stage 1."""
    waiting = at(PP2_TP2, 2, RECEIVE, 8), at(PP2_TP2, 3, RECEIVE, 8)
    computing = at(PP2_TP2, 0, COMPUTE, 8)
    for behind in (at(PP2_TP2, 1, IDLE, 7), at(PP2_TP2, 1, COMPUTE, 7)):
        assert blamed(PP2_TP2, computing, behind, *waiting) == [1]


def test_tensor_ranks_that_compute_the_same_step_cannot_be_told_apart() -> None:
    waiting = at(PP2_TP2, 2, RECEIVE, 8), at(PP2_TP2, 3, RECEIVE, 8)
    computing = at(PP2_TP2, 0, COMPUTE, 8), at(PP2_TP2, 1, COMPUTE, 8)
    assert blamed(PP2_TP2, *computing, *waiting) == [0, 1]
    ahead = at(PP2_TP2, 0, SEND, 8)
    assert blamed(PP2_TP2, ahead, at(PP2_TP2, 1, COMPUTE, 8), *waiting) == [0, 1]


def test_blame_goes_through_lanes_and_groups() -> None:
    """Worker 1 hangs; 3 waits for it on a lane, 2 in a sum with 3; 0 is done."""
    places = (
        at(PP2_TP2, 0, IDLE, 8),
        at(PP2_TP2, 1, COMPUTE, 8),
        at(PP2_TP2, 2, COMPUTE, 8),
        at(PP2_TP2, 3, RECEIVE, 8),
    )
    assert blamed(PP2_TP2, *places) == [1]


def test_where_everybody_waits_all_are_named() -> None:
    places = (at(PP2, 0, RETURN, 8), at(PP2, 1, RECEIVE, 8))
    assert blamed(PP2, *places) == [0, 1]


def test_one_stage_alone() -> None:
    alone = Topology(stages=(2,))
    assert blamed(alone, at(alone, 0, COMPUTE, 8)) == [0]
    assert blamed(alone, at(alone, 0, IDLE, 8)) == []


def test_a_place_in_words() -> None:
    use = LaneUse(step=7, operation=RECEIVE, lane=1)
    name = "forward lane 0>1 of tensor rank 1"

    def told(operation: Operation, step: int, **more: object) -> str:
        place = at(PP2_TP2, 3, operation, step, since_s=5.0, **more)  # type: ignore[arg-type]
        return place.describe(PP2_TP2, now_s=7.25)

    who = "worker 3 (stage 1, tensor rank 1)"
    last = f"(last on a lane: received step 7 on {name})"
    assert told(RECEIVE, 8) == f"{who} is waiting on {name} at step 8, cohort 0, for 2.2 s"
    assert told(COMPUTE, 7, last_use=use) == (
        f"{who} is computing at step 7, cohort 1, for 2.2 s {last}"
    )
    assert told(IDLE, 7, last_use=use, state="stopped") == (
        f"{who} has finished step 7, 2.2 s ago {last}, and the process is stopped"
    )
    assert told(IDLE, -1) == f"{who} has not begun a step"
    assert told(SEND, 8).startswith(f"{who} is sending on return lane 1>0 of tensor rank 1 at")


def test_both_ends_of_a_lane_stand_together() -> None:
    places = [at(PP2, 0, IDLE, 8), at(PP2, 1, RECEIVE, 8)]
    first, second = (place.describe(PP2, now_s=1.0) for place in places)
    assert lane_table(places, PP2, now_s=1.0) == [
        "forward lane 0>1",
        f"  source: {first}",
        f"  target: {second}",
        "return lane 1>0",
        f"  source: {second}",
        f"  target: {first}",
    ]


def test_a_trace_is_read_by_who_maps_the_same_file() -> None:
    ours = TraceFile.create()
    theirs = TraceFile(os.dup(ours.fd))
    assert (ours.read(3).step, ours.read(3).last_use) == (-1, None)
    theirs.write(3, step=9, cohort=1, operation=RECEIVE, lane=2)
    theirs.write(3, step=10, cohort=0, operation=COMPUTE)
    theirs.write(4, step=300, cohort=0, operation=SEND, lane=0)
    found = ours.read(3)
    assert (found.step, found.cohort, found.operation, found.lane) == (10, 0, COMPUTE, NO_LANE)
    assert found.last_use == LaneUse(step=9, operation=RECEIVE, lane=2)
    assert ours.read(4).last_use == LaneUse(step=300, operation=SEND, lane=0)
    for trace in (ours, theirs):
        trace.close()
