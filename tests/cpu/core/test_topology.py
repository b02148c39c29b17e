"""Every process derives the same world from the same few numbers."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.core.topology import LaneKind, LaneName, Topology, num_workers

TOPOLOGIES = st.builds(
    Topology,
    stages=st.lists(st.integers(1, 9), min_size=1, max_size=6).map(tuple),
    tp=st.integers(1, 4),
    cohorts=st.integers(1, 5),
    lanes=st.sampled_from(["local", "test", "gloo", "nccl"]),
    stages_per_worker=st.integers(1, 6),
)


def test_four_ranks_of_two_stages() -> None:
    topology = Topology(stages=(3, 1), tp=2, cohorts=3, lanes="gloo")
    assert [topology.stages_of(worker) for worker in range(4)] == [range(1)] * 2 + [range(1, 2)] * 2
    assert [topology.tp_rank_of(worker) for worker in range(4)] == [0, 1, 0, 1]
    assert topology.result_worker == 2 and topology.lane_depth == 4
    assert list(topology.communicators()) == [
        ("tensor group of stage 0", (0, 1)),
        ("tensor group of stage 1", (2, 3)),
        ("forward lane 0>1", (0, 2)),
        ("forward lane 0>1 of tensor rank 1", (1, 3)),
        ("return lane 1>0", (2, 0)),
        ("return lane 1>0 of tensor rank 1", (3, 1)),
    ]


def test_several_stages_a_worker() -> None:
    """Lanes inside a worker need no communicator; an odd stage is alone."""
    topology = Topology(stages=(1, 1, 2, 1, 1), lanes="nccl", stages_per_worker=2)
    assert [topology.stages_of(worker) for worker in range(3)] == [
        range(2),
        range(2, 4),
        range(4, 5),
    ]
    assert [topology.layers_of(stage) for stage in range(5)] == [
        range(1),
        range(1, 2),
        range(2, 4),
        range(4, 5),
        range(5, 6),
    ]
    assert list(topology.communicators()) == [
        ("forward lane 1>2", (0, 1)),
        ("forward lane 3>4", (1, 2)),
        ("return lane 4>0", (2, 0)),
    ]
    assert topology.result_worker == 2


def test_a_layer_is_named_with_its_stage_and_ranks() -> None:
    topology = Topology(stages=(1, 2, 1), tp=2, stages_per_worker=2)
    assert topology.place_of(0) == "layer 0 of stage 0 (ranks 0 to 1)"
    assert topology.place_of(2) == "layer 2 of stage 1 (ranks 0 to 1)"
    assert topology.place_of(3) == "layer 3 of stage 2 (ranks 2 to 3)"
    assert topology.place_of(4) == "layer 4 (the head) of stage 2 (ranks 2 to 3)"
    assert Topology(stages=(2,)).place_of(1) == "layer 1 of stage 0 (rank 0)"
    assert Topology().place_of(1) == "layer 1"


def test_one_stage_returns_to_itself() -> None:
    topology = Topology(stages=(4,))
    (lane,) = topology.lane_names()
    assert lane == LaneName(kind=LaneKind.RETURN, source=0, target=0, tp_rank=0)
    assert topology.workers_of(lane) == (0, 0)
    assert list(topology.communicators()) == []


@given(TOPOLOGIES)
def test_workers_and_stages_agree(topology: Topology) -> None:
    assert topology.num_workers == num_workers(
        topology.num_stages, tp=topology.tp, stages_per_worker=topology.stages_per_worker
    )
    held = [
        (stage, topology.tp_rank_of(worker))
        for worker in range(topology.num_workers)
        for stage in topology.stages_of(worker)
    ]
    ranks = [(s, t) for s in range(topology.num_stages) for t in range(topology.tp)]
    assert sorted(held) == ranks
    for stage, tp_rank in ranks:
        worker = topology.worker_of(stage, tp_rank)
        assert stage in topology.stages_of(worker) and topology.tp_rank_of(worker) == tp_rank
    layers = [layer for stage in range(topology.num_stages) for layer in topology.layers_of(stage)]
    assert layers == list(range(sum(topology.stages)))
    assert topology.num_stages - 1 in topology.stages_of(topology.result_worker)
    assert topology.tp_rank_of(topology.result_worker) == 0


@given(TOPOLOGIES)
def test_every_stage_has_its_lanes(topology: Topology) -> None:
    """A forward lane between neighbours and one return lane, for each tensor rank to itself."""
    names = topology.lane_names()
    assert len(set(names)) == len(set(map(str, names))) == len(names)
    last = topology.num_stages - 1
    for tp_rank in range(topology.tp):
        own = [(n.kind, n.source, n.target) for n in names if n.tp_rank == tp_rank]
        forward = [(LaneKind.FORWARD, stage, stage + 1) for stage in range(last)]
        assert own == [*forward, (LaneKind.RETURN, last, 0)]
    for name in names:
        source, target = topology.workers_of(name)
        assert topology.tp_rank_of(source) == topology.tp_rank_of(target) == name.tp_rank
        assert name.source in topology.stages_of(source)
        assert name.target in topology.stages_of(target)


@given(TOPOLOGIES)
def test_communicators_are_made_in_one_order(topology: Topology) -> None:
    """Names are unique, and each worker's list is a part of the whole in the same order: then the
    first that is not made yet has all its workers waiting for it, and nobody waits for ever."""
    every = list(topology.communicators())
    names = [name for name, _ in every]
    assert len(set(names)) == len(names)
    assert every == list(msgspec_copy(topology).communicators())
    todo = [[name for name, who in every if w in who] for w in range(topology.num_workers)]
    assert all(own == [name for name in names if name in set(own)] for own in todo)
    for name, workers in every:
        assert len(set(workers)) == len(workers) > 1
        for worker in workers:
            assert todo[worker].pop(0) == name
    assert not any(todo)
    lanes = {str(lane) for lane in topology.lane_names()}
    for lane in topology.lane_names():
        source, target = topology.workers_of(lane)
        assert ((str(lane), (source, target)) in every) == (source != target)
    groups = [workers for name, workers in every if name not in lanes]
    in_groups = sorted(worker for workers in groups for worker in workers)
    assert in_groups == (list(range(topology.num_workers)) if topology.tp > 1 else [])


def msgspec_copy(topology: Topology) -> Topology:
    """As it comes to a worker."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(topology), type=Topology)


@pytest.mark.parametrize("cohorts", [1, 2, 5])
def test_a_lane_holds_a_step_of_each_cohort_and_one_more(cohorts: int) -> None:
    assert Topology(stages=(1, 1), cohorts=cohorts).lane_depth == cohorts + 1
