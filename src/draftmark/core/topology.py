"""Which ranks there are, which process holds them, and what connects them.

A *rank* is a (stage, tensor rank); a worker process holds one tensor rank of one or more
neighbouring stages. The engine makes one `Topology` and every process gets the same bytes: all
processes derive from it the same list of communicators in the same order, and both ends of a lane
are made from one `LaneName`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import msgspec


class LaneKind(Enum):
    """What a lane carries: hidden states of a step one stage on, or its rows back to stage 0."""

    FORWARD = "forward"
    RETURN = "return"


class LaneName(msgspec.Struct, frozen=True, kw_only=True):
    """One lane: from stage `source` to stage `target`, of tensor rank `tp_rank`."""

    kind: LaneKind
    source: int
    target: int
    tp_rank: int

    def __str__(self) -> str:
        rank = f" of tensor rank {self.tp_rank}" if self.tp_rank else ""
        return f"{self.kind.value} lane {self.source}>{self.target}{rank}"


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """`stages` counts the layers of each stage, first to last. `lanes` is the kind that connects
    stages of different processes. M = `cohorts`."""

    stages: tuple[int, ...] = (0,)
    tp: int = 1
    cohorts: int = 1
    lanes: str = "local"
    stages_per_worker: int = 1

    @property
    def num_stages(self) -> int:
        return len(self.stages)

    @property
    def num_workers(self) -> int:
        return num_workers(self.num_stages, tp=self.tp, stages_per_worker=self.stages_per_worker)

    @property
    def lane_depth(self) -> int:
        """Steps a lane holds: those of every cohort, and one that is being written."""
        return self.cohorts + 1

    def stages_of(self, worker: int) -> range:
        """The stages a worker holds; workers are numbered by stage, then by tensor rank."""
        first = worker // self.tp * self.stages_per_worker
        return range(first, min(first + self.stages_per_worker, self.num_stages))

    def tp_rank_of(self, worker: int) -> int:
        return worker % self.tp

    def worker_of(self, stage: int, tp_rank: int) -> int:
        return stage // self.stages_per_worker * self.tp + tp_rank

    def layers_of(self, stage: int) -> range:
        first = sum(self.stages[:stage])
        return range(first, first + self.stages[stage])

    def place_of(self, layer: int) -> str:
        """In words, for a fault that was found after a layer: its stage and the ranks that run it,
        which after a sum over tensor ranks all hold the same. One past the last is the head; of
        stages whose layers are not told (0), only the layer is said."""
        if not sum(self.stages):
            return f"layer {layer}"
        stage = next(
            (s for s in range(self.num_stages) if layer in self.layers_of(s)), self.num_stages - 1
        )
        head = " (the head)" if layer == sum(self.stages) else ""
        first = self.worker_of(stage, 0)
        ranks = f"rank {first}" if self.tp == 1 else f"ranks {first} to {first + self.tp - 1}"
        return f"layer {layer}{head} of stage {stage} ({ranks})"

    @property
    def result_worker(self) -> int:
        """Which worker tells the engine what a step gave."""
        return self.worker_of(self.num_stages - 1, 0)

    def lane_names(self) -> list[LaneName]:
        """Every lane, in the one order in which they are made."""
        last = self.num_stages - 1
        pairs = [(LaneKind.FORWARD, stage, stage + 1) for stage in range(last)]
        pairs.append((LaneKind.RETURN, last, 0))
        return [
            LaneName(kind=kind, source=source, target=target, tp_rank=tp_rank)
            for kind, source, target in pairs
            for tp_rank in range(self.tp)
        ]

    def workers_of(self, lane: LaneName) -> tuple[int, int]:
        """(worker at the source, worker at the target)."""
        source = self.worker_of(lane.source, lane.tp_rank)
        return source, self.worker_of(lane.target, lane.tp_rank)

    def communicators(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """(name, workers) of every communicator, in the one order in which all workers make those
        they are in: tensor groups by stage, then lanes between different workers."""
        if self.tp > 1:
            for first in range(0, self.num_workers, self.tp):
                stages = self.stages_of(first)
                yield f"tensor group of stage {stages.start}", tuple(range(first, first + self.tp))
        for lane in self.lane_names():
            source, target = self.workers_of(lane)
            if source != target:
                yield str(lane), (source, target)


# Lanes that connect stages of one process.
ONE_WORKER_LANES = ("local", "test")


def num_workers(num_stages: int, *, tp: int, stages_per_worker: int) -> int:
    """Worker processes that so many stages need."""
    return -(-num_stages // stages_per_worker) * tp
