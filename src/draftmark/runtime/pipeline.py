"""The stages of one worker and the lanes between them: every plan goes through each, in order.

What connects a stage to one in another process is a `Wire` that the caller makes (`Connect`); what
connects two stages here is a ring, or with lanes `test` a strict wire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from draftmark.core.step import StepPlan, StepResult
from draftmark.core.topology import LaneKind, LaneName, Topology
from draftmark.core.trace import Operation
from draftmark.models.stage import Stage
from draftmark.parallel.lanes import Lane, LaneFormat, Wire, make_lane
from draftmark.parallel.strict import StrictWire
from draftmark.runtime import sample_state
from draftmark.runtime.debug_sync import DebugSync
from draftmark.runtime.directory import SlotDirectory
from draftmark.runtime.drafting import Drafter, Seat
from draftmark.runtime.memory import RunLimits, allocate_caches
from draftmark.runtime.relay import forward_words
from draftmark.runtime.results import StepPending
from draftmark.runtime.sampler import Override, Sampler
from draftmark.runtime.slots import SlotState, SlotTables
from draftmark.runtime.stage_run import Ends, StageRun
from draftmark.runtime.staging import StagingRing
from draftmark.speculation.synthetic import SyntheticAcceptance

# The wire of a lane whose other end is in another process; its length and format are the lane's.
Connect = Callable[[LaneName], Wire]
# (index of the stage in its worker, step, cohort, operation, lane number)
NoteStage = Callable[[int, int, int, Operation, int], None]


class WorkerPending:
    """A step enqueued on every stage of a worker."""

    def __init__(self, runs: Sequence[StageRun], pendings: Sequence[StepPending]) -> None:
        self._runs = runs
        self._pendings = pendings

    def result(self) -> StepResult | None:
        """Wait for the step; its result, if the last stage's first tensor rank is here."""
        result = None
        for run, pending in zip(self._runs, self._pendings, strict=True):
            result = pending.result()
            run.busy_us += pending.busy_us
        return result


class WorkerRun:
    """`stages` are the numbers of the stages it has. Closing it ends its lanes."""

    def __init__(self, stages: range, runs: Sequence[StageRun], wires: Sequence[Wire]) -> None:
        self.stages = stages
        self.runs = tuple(runs)
        self._wires = wires

    @property
    def pool_bytes(self) -> int:
        return sum(run.pool_bytes for run in self.runs)

    @property
    def busy_us(self) -> list[int]:
        """Of each stage, since start."""
        return [run.busy_us for run in self.runs]

    def launch(self, plan: StepPlan, *, override: Override | None = None) -> WorkerPending:
        """Enqueue `plan` on every stage."""
        return WorkerPending(self.runs, [run.launch(plan, override=override) for run in self.runs])

    def zero_pages(self, count: int) -> None:
        for run in self.runs:
            run.zero_pages(count)

    def reset(self) -> None:
        for run in self.runs:
            run.reset()

    def close(self) -> None:
        for wire in self._wires:
            wire.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """Where a worker stands, and how it reaches the others. `checks` compares the header of every
    message with what is expected (on a GPU that waits for the device). `synthetic_acceptance` are
    the rates at which coins accept drafts, none where the model does."""

    topology: Topology
    worker: int
    connect: Connect
    note: NoteStage
    checks: bool = True
    poison: bool = False
    make_drafter: Callable[[Seat], Drafter] | None = None
    synthetic_acceptance: tuple[float, ...] = ()
    sync: DebugSync = field(default_factory=DebugSync)


def make_worker_run(
    stages: Sequence[Stage],
    *,
    placing: Placing,
    limits: RunLimits,
    kv_dtype: torch.dtype,
    device: torch.device,
) -> WorkerRun:
    """Allocate pools, slots, staging and lanes around the stages of a worker. Raises `BudgetError`.

    With `placing.poison`, pools begin as NaN and staging is overwritten when it is released: for
    tests.
    """
    topology, worker = placing.topology, placing.worker
    lanes, wires = _make_lanes(stages[0], placing=placing, limits=limits, device=device)
    numbers = topology.stages_of(worker)
    runs = [
        _make_stage_run(
            stage,
            index=index,
            ends=_ends_of(number, lanes),
            placing=placing,
            limits=limits,
            kv_dtype=kv_dtype,
            device=device,
        )
        for index, (number, stage) in enumerate(zip(numbers, stages, strict=True))
    ]
    return WorkerRun(numbers, runs, wires)


def make_lone_run(
    stage: Stage, *, limits: RunLimits, kv_dtype: torch.dtype, device: torch.device
) -> WorkerRun:
    """A worker that has the whole model, and nobody to tell what it is at."""
    placing = Placing(
        topology=Topology(stages=(len(stage.blocks),), cohorts=limits.cohorts),
        worker=0,
        connect=_no_wire,
        note=note_nothing,
    )
    return make_worker_run(
        [stage], placing=placing, limits=limits, kv_dtype=kv_dtype, device=device
    )


def _no_wire(name: LaneName) -> Wire:
    raise AssertionError(f"{name} has both its ends here")


def note_nothing(index: int, step: int, cohort: int, operation: Operation, lane: int) -> None:
    pass


def _make_stage_run(
    stage: Stage,
    *,
    index: int,
    ends: Ends,
    placing: Placing,
    limits: RunLimits,
    kv_dtype: torch.dtype,
    device: torch.device,
) -> StageRun:
    config = stage.config
    num_slots = limits.num_slots
    tables = SlotTables(num_slots=num_slots, max_context=limits.max_context, device=device)
    state = None
    if stage.embeds:
        state = SlotState(num_slots=num_slots, layout=limits.layout, device=device)
    sampler = None
    if stage.head is not None:
        sampler = Sampler(
            sample_state.make_sample_tables(
                num_slots=num_slots, vocab_size=config.vocab_size, device=device
            ),
            ends=tables.ends,
            head=stage.logits,
            head_layer=config.num_layers,
            layout=limits.layout,
            backend=stage.placement.backends.sample,
            synthetic=_synthetic(placing.synthetic_acceptance, limits=limits, device=device),
        )
    caches = allocate_caches(
        stage.cache_specs(kv_dtype, max_drafts=limits.max_drafts),
        limits=limits,
        dtype=stage.placement.dtype,
        kv_dtype=kv_dtype,
        device=device,
    )
    if placing.poison:
        caches.fill(torch.nan)
    directory = SlotDirectory(
        num_slots=num_slots,
        num_pages=limits.num_pages,
        max_pages=tables.max_pages,
        num_cohorts=limits.cohorts,
        num_snapshots=limits.num_snapshots,
        max_drafts=limits.max_drafts,
    )
    drafter = None
    if sampler is not None and placing.make_drafter is not None:
        seat = Seat(stage=stage, caches=caches, tables=tables, sampler=sampler, directory=directory)
        drafter = placing.make_drafter(seat)
    return StageRun(
        stage,
        caches=caches,
        tables=tables,
        state=state,
        sampler=sampler,
        drafter=drafter,
        directory=directory,
        layout=limits.layout,
        ring=StagingRing(
            limits.ring_depth, shape=limits.step_shape, device=device, poison=placing.poison
        ),
        ends=ends,
        cohorts=limits.cohorts,
        tells=stage.placement.mesh.tp_rank == 0,
        sync=placing.sync,
        note=lambda step, cohort, operation, lane: placing.note(
            index, step, cohort, operation, lane
        ),
    )


def _synthetic(
    rates: tuple[float, ...], *, limits: RunLimits, device: torch.device
) -> SyntheticAcceptance | None:
    if not rates:
        return None
    return SyntheticAcceptance(rates, max_drafts=limits.max_drafts, device=device)


def _make_lanes(
    stage: Stage, *, placing: Placing, limits: RunLimits, device: torch.device
) -> tuple[list[Lane], list[Wire]]:
    """The lanes that end in this worker, in the topology's order."""
    topology, worker = placing.topology, placing.worker
    lanes, wires = [], []
    for number, name in enumerate(topology.lane_names()):
        source, target = topology.workers_of(name)
        if worker not in (source, target):
            continue
        wire: Wire | None = None
        if source != target:
            wire = placing.connect(name)
        elif topology.lanes == "test":
            wire = StrictWire(seed=number)
        if wire is not None:
            wires.append(wire)
        lanes.append(
            make_lane(
                _format(name, number=number, stage=stage, limits=limits, depth=topology.lane_depth),
                device=device,
                has_source=worker == source,
                has_target=worker == target,
                wire=wire,
                checks=placing.checks,
            )
        )
    return lanes, wires


def _format(
    name: LaneName, *, number: int, stage: Stage, limits: RunLimits, depth: int
) -> LaneFormat:
    """The bounds of a lane's messages, the same at both ends."""
    rows, layout = limits.max_running, limits.layout
    if name.kind is LaneKind.RETURN:
        words = rows * layout.packed_columns
        return LaneFormat(name=name, number=number, depth=depth, max_words=words)
    return LaneFormat(
        name=name,
        number=number,
        depth=depth,
        # Each token may be a prompt's, and each prompt a row.
        max_words=forward_words(rows, rows + limits.prefill_tokens, layout=layout),
        max_tokens=limits.step_shape.max_sampled + limits.prefill_tokens,
        hidden_size=stage.config.hidden_size,
        dtype=stage.placement.dtype,
    )


def _ends_of(stage: int, lanes: Sequence[Lane]) -> Ends:
    ends: dict[str, object] = {}
    for lane in lanes:
        name = lane.format.name
        kind = name.kind.value
        if name.target == stage:
            ends[f"{kind}_in"] = lane.inlet
        if name.source == stage:
            ends[f"{kind}_out"] = lane.outlet
    return Ends(**ends)  # type: ignore[arg-type]
