"""Planted faults of the protocol: each must turn the equality test of `test_pipelines` red.

Where a check stands before the answers, the fault is planted twice: with the check, which has to
name it, and with the check taken out, when some request has to give another answer. So the check is
needed, and the equality test would find the fault without it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
import torch

from draftmark.cache import manager as cache_manager
from draftmark.cache.slots import SlotAllocator
from draftmark.cache.spec import PAGE_TOKENS
from draftmark.core.step import StepPlan
from draftmark.parallel import lanes, strict
from draftmark.runtime import directory, slots, stage_run, staging
from draftmark.runtime.relay import (
    DONE,
    LENGTH,
    PACKED_GENERATION,
    PACKED_LENGTH,
    PACKED_SLOT,
    RowLayout,
    RowWords,
)
from draftmark.scheduler.queue import Sequence
from tests.cpu.runtime import pipeline_harness
from tests.cpu.runtime.pipeline_harness import Cut, PipelineLoop, one_stage, play
from tests.cpu.runtime.test_pipelines import check_blame, check_equal
from tests.fakes import thread_group

Plant = Callable[[pytest.MonkeyPatch], None]
# A row that ran twice is an answer that the host cannot count; garbage may be no index of anything.
OTHER_ANSWER = "other tokens|other end|other result|emitted tokens, the host knows"
CRASH = f"{OTHER_ANSWER}|index .*out of|generation that is not there"


# -- checks, taken out ----------------------------------------------------------------------------


def no_directory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(directory, "_fail", lambda *what: None)


def no_generations(patch: pytest.MonkeyPatch) -> None:
    """Returns for a generation that is not there are not counted."""
    original = slots.SlotState.apply_return

    def apply_return(self: slots.SlotState, packed: torch.Tensor) -> None:
        original(self, packed)
        self.faults.zero_()

    patch.setattr(slots.SlotState, "apply_return", apply_return)


def no_headers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lanes._Buffer, "check", lambda self, label: None)


# -- faults ---------------------------------------------------------------------------------------


def slots_never_rest(patch: pytest.MonkeyPatch) -> None:
    """A slot goes out again as soon as its last result came: its return is still to be applied."""
    patch.setattr(SlotAllocator, "can_take", lambda self, *, step: bool(self._free))


def slots_leave_at_once(patch: pytest.MonkeyPatch) -> None:
    """Slot and pages go out again while the steps that hold them are in flight."""
    leave, commit = cache_manager.CacheManager.leave, cache_manager.CacheManager.commit

    def commit_those_there(self: Any, holding: Any, length: int) -> None:
        if holding.after_step is None:
            commit(self, holding, length)

    def leave_at_once(self: Any, holding: Any, *, after_step: int) -> None:
        leave(self, holding, after_step=-1)

    patch.setattr(cache_manager.CacheManager, "leave", leave_at_once)
    patch.setattr(cache_manager.CacheManager, "commit", commit_those_there)


def early_return_to_a_stranger(patch: pytest.MonkeyPatch) -> None:
    """The return of step n is applied in step n + 1, after its admits, to a slot that was given to
    another sequence meanwhile."""
    original = stage_run.StageRun._apply

    def apply(self: Any, plan: StepPlan, inputs: Any, due: Any) -> None:
        original(self, plan, inputs, due)
        while self._due and self._due[0].label.step < plan.step:
            self._apply_return(self._due.popleft())

    slots_leave_at_once(patch)
    patch.setattr(stage_run.StageRun, "_apply", apply)


def returns_to_strangers(patch: pytest.MonkeyPatch) -> None:
    """Two rows of a return go to one another's slots, where those are of different generations.
    Their lengths end in the same page: a plan without room for them would be a crash."""
    original = slots.SlotState.apply_return

    def apply_return(self: slots.SlotState, packed: torch.Tensor) -> None:
        packed = packed.clone()
        for a, b in itertools.combinations(packed, 2):
            same_page = a[PACKED_LENGTH] // PAGE_TOKENS == b[PACKED_LENGTH] // PAGE_TOKENS
            if a[PACKED_GENERATION] != b[PACKED_GENERATION] and same_page:
                a[PACKED_SLOT], b[PACKED_SLOT] = b[PACKED_SLOT].clone(), a[PACKED_SLOT].clone()
                break
        original(self, packed)

    patch.setattr(slots.SlotState, "apply_return", apply_return)


def returns_are_early(patch: pytest.MonkeyPatch) -> None:
    """The return of step n is applied at the head of step n + 1."""
    original = stage_run.StageRun._apply

    def apply(self: Any, plan: StepPlan, *rest: Any) -> None:
        cohorts, self._cohorts = self._cohorts, 1
        original(self, plan, *rest)
        self._cohorts = cohorts

    patch.setattr(stage_run.StageRun, "_apply", apply)


def returns_are_late(patch: pytest.MonkeyPatch) -> None:
    """The return of step n is applied one step after its time."""
    original = stage_run.StageRun._apply

    def apply(self: Any, plan: StepPlan, inputs: Any, due: Any) -> None:
        self._cohorts += 1
        original(self, plan, inputs, due)
        self._cohorts -= 1

    patch.setattr(stage_run.StageRun, "_apply", apply)


def messages_are_read_before_they_come(patch: pytest.MonkeyPatch) -> None:
    """The receive is posted, nobody waits for it."""

    def receive(self: Any, shape: Any, label: Any) -> Any:
        buffer = self._ring[0]
        parcel = buffer.parcel(shape)
        self._held = parcel, label
        self._wire.receive(parcel)
        if self._checks:
            buffer.check(label)
        return parcel

    patch.setattr(lanes.WiredInlet, "receive", receive)


def staging_is_too_short(patch: pytest.MonkeyPatch) -> None:
    """Fewer entries than steps in flight; who needs one does not wait until it is free."""

    def take(self: Any) -> Any:
        self._next = (self._next + 1) % 2
        return self._entries[self._next]

    patch.setattr(staging.StagingRing, "take", take)
    # A step that lost its entry would wait for ever for its event.
    patch.setattr(staging.StepEvent, "clear", lambda self: None)


def ring_is_too_short(patch: pytest.MonkeyPatch) -> None:
    """The same, but for the check of the ring."""
    original = staging.StagingRing.__init__

    def init(self: Any, depth: int, **options: Any) -> None:
        original(self, 2, **options)

    patch.setattr(staging, "PATIENCE_S", 0.0)
    patch.setattr(staging.StagingRing, "__init__", init)


def rows_move_too_soon(loop: PipelineLoop) -> None:
    """A row that moves is in the next turn of its new cohort, whenever it was in a plan."""
    cohorts = loop.scheduler._roster.cohorts
    move = cohorts._move

    def move_at_once(sequence: Sequence, index: int, *, step: int) -> None:
        horizon = sequence.horizon
        move(sequence, index, step=step)
        sequence.horizon = horizon

    cohorts._move = move_at_once  # type: ignore[method-assign]


def rows_come_a_turn_too_soon(loop: PipelineLoop) -> None:
    """The planner waits for a return one step less than it takes."""
    planner = loop.scheduler._planner
    planner._limits = replace(planner._limits, num_cohorts=planner._limits.num_cohorts - 1)


def sends_are_swapped(kind: str) -> Plant:
    """Of messages of one length that wait to be sent, the second goes first."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        original = strict.StrictWire._post

        def post(self: Any, queue: Any, parcel: Any) -> Any:
            transfer = original(self, queue, parcel)
            with self._changed:
                if queue is self._sends and self.kind == kind and len(queue) > 1:
                    last, before = queue[-1], queue[-2]
                    if len(last.parcel.payload) == len(before.parcel.payload):
                        queue[-1], queue[-2] = before, last
            return transfer

        patch.setattr(strict.StrictWire, "_post", post)

    return plant


def receives_are_swapped(patch: pytest.MonkeyPatch) -> None:
    """Once, stage 0 asks for the return of the next step before that of this one."""
    original = stage_run.StageRun._apply_return

    def apply_return(self: Any, due: Any) -> None:
        after, state = self._due[0] if self._due else None, self.state
        kept = self.__dict__.pop("kept", None)
        if kept is not None:
            state.apply_return(kept)
        elif hasattr(self, "swapped") or after is None or after.shape != due.shape:
            original(self, due)
        else:
            self.swapped = True
            lane, words = self._ends.return_in, []
            for expected in (after, due):
                parcel = lane.receive(expected.shape, expected.label)
                words.append(parcel.words.view(-1, RowLayout().packed_columns).clone())
                lane.release()
            self.kept = words[0]
            state.apply_return(words[1])

    patch.setattr(stage_run.StageRun, "_apply_return", apply_return)


def outlet_of_one_buffer(patch: pytest.MonkeyPatch) -> None:
    """The sender writes its next message into the buffer of the last, sent or not."""

    def open_at_once(self: Any, shape: Any) -> Any:
        buffer = self._ring[0]
        buffer.stamp()
        self._open = buffer.parcel(shape)
        return self._open

    def send(self: Any) -> None:
        self._ring[0].ticket = self._wire.send(self._open)
        self._open = None

    patch.setattr(lanes.WiredOutlet, "open", open_at_once)
    patch.setattr(lanes.WiredOutlet, "send", send)


def buffer_released_before_it_is_used(patch: pytest.MonkeyPatch) -> None:
    original = lanes.WiredInlet.receive

    def receive(self: Any, shape: Any, label: Any) -> Any:
        parcel = original(self, shape, label)
        if parcel.hidden.numel():
            self._wire.released(parcel)
        return parcel

    patch.setattr(lanes.WiredInlet, "receive", receive)


def _on_later_stages(patch: pytest.MonkeyPatch, change: Callable[[Any, Any], Any]) -> None:
    """Change the batch of every stage but the first: (tables, batch) -> batch."""
    original = stage_run.StageRun._receive

    def receive(self: Any, *args: Any, **options: Any) -> Any:
        self.tables.is_later = self.state is None
        return original(self, *args, **options)

    batch = slots.SlotTables.batch

    def changed(self: Any, *args: Any) -> Any:
        given = batch(self, *args)
        return change(self, given) if self.is_later else given

    patch.setattr(stage_run.StageRun, "_receive", receive)
    patch.setattr(slots.SlotTables, "batch", changed)


def position_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """Of verify rows, on later stages."""

    def change(tables: Any, batch: Any) -> Any:
        positions = batch.positions.clone()
        positions[batch.verify_offset :] += 1
        return replace(batch, positions=positions)

    _on_later_stages(patch, change)


def length_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """Later stages see a key less of every verify row."""

    def change(tables: Any, batch: Any) -> Any:
        return replace(batch, verify_lengths=(batch.verify_lengths - 1).clamp(min=0))

    _on_later_stages(patch, change)


def stale_kv(patch: pytest.MonkeyPatch) -> None:
    """Later stages do not write the keys of one decoded token in five: what was there stays."""

    def change(tables: Any, batch: Any) -> Any:
        store, of_verify = batch.store.clone(), torch.arange(len(batch.store))
        is_lost = (batch.positions % 5 == 3) & (of_verify >= batch.verify_offset)
        # Inactive rows are in the dump page already; these go there, but are attended.
        store[is_lost] = 0
        kept = replace(batch, store=store)
        return kept

    _on_later_stages(patch, change)


def stale_page_table(patch: pytest.MonkeyPatch) -> None:
    """Pages that are appended while a sequence runs do not reach later stages."""
    original = stage_run.StageRun._apply

    def apply(self: Any, plan: StepPlan, inputs: Any, due: Any) -> None:
        if self.state is None and inputs.admits is None:
            inputs = replace(inputs, pages=None)
        original(self, plan, inputs, due)

    patch.setattr(stage_run.StageRun, "_apply", apply)


def done_is_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    """The last stage takes every row for an active one."""
    original = stage_run.StageRun._receive

    def receive(self: Any, *args: Any, **options: Any) -> Any:
        given = original(self, *args, **options)
        if self.state is None:
            given.words.rows[:, DONE] = 0
        return given

    patch.setattr(stage_run.StageRun, "_receive", receive)


def lengths_are_kept_by_later_stages(patch: pytest.MonkeyPatch) -> None:
    """A later stage uses the lengths that it heard of in the step before, where rows are the
    same."""
    original = stage_run.StageRun._receive

    def receive(self: Any, plan: StepPlan, *args: Any, **options: Any) -> Any:
        given = original(self, plan, *args, **options)
        if self.state is None and not plan.prefill:
            rows = [row.slot for row in plan.verify]
            heard = getattr(self, "heard", None)
            self.heard = rows, given.words.rows[:, LENGTH].clone()
            if heard is not None and heard[0] == rows:
                given.words.rows[:, LENGTH] = heard[1]
        return given

    patch.setattr(stage_run.StageRun, "_receive", receive)


def last_rank_runs(other: Callable[[StepPlan], StepPlan]) -> Plant:
    """The last rank decides for itself what a plan means."""
    original = pipeline_harness._Rank.__init__

    def init(self: Any, crew: Any, worker: int, run: Any, **options: Any) -> None:
        launch = run.launch
        if worker == crew._topology.num_workers - 1:
            run.launch = lambda plan: launch(other(plan))
        original(self, crew, worker, run, **options)

    return lambda patch: patch.setattr(pipeline_harness._Rank, "__init__", init)


def rows_reversed(plan: StepPlan) -> StepPlan:
    return msgspec.structs.replace(plan, verify=plan.verify[::-1])


def fewer_rows(plan: StepPlan) -> StepPlan:
    rows = plan.verify
    return msgspec.structs.replace(plan, verify=rows[:-1] if len(rows) > 1 else rows)


def sums_in_another_order(patch: pytest.MonkeyPatch) -> None:
    """Tensor rank 1 adds the parts from the last to the first."""

    def total(self: Any, x: torch.Tensor) -> torch.Tensor:
        parts = self._meeting.exchange(self.rank, ("sum", x.shape), x)
        return thread_group.ordered_sum(parts[::-1] if self.rank == 1 else parts)

    patch.setattr(thread_group.ThreadGroup, "sum", total)


# -- that they are seen ---------------------------------------------------------------------------


TWO_STAGES = Cut(stages=(2, 2), cohorts=2)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`checks` are what stands before the answers, one behind the other, each with what it says.
    Without `answer` no answer can change: see below."""

    plant: Plant = lambda patch: None
    on_loop: Callable[[PipelineLoop], None] | None = None
    checks: tuple[tuple[str, Plant], ...] = ()
    answer: str = OTHER_ANSWER
    cut: Cut = TWO_STAGES
    seed: int = 4
    num_requests: int = 8
    slow_rank: int | None = None

    def red(self, patch: pytest.MonkeyPatch, *, disarmed: int) -> str:
        """What the equality test says, without the first `disarmed` checks."""
        one_stage("llama", self.seed, self.cut.cohorts, self.num_requests)
        self.plant(patch)
        for _, disarm in self.checks[:disarmed]:
            disarm(patch)

        def on_loop(loop: PipelineLoop) -> None:
            _unchecked(loop)
            if self.on_loop is not None:
                self.on_loop(loop)

        def on_run(run: Any) -> None:
            if self.slow_rank is not None:
                run.ranks[self.slow_rank].delay(0.01)

        with pytest.raises(AssertionError) as caught:
            check_equal(
                self.cut,
                seed=self.seed,
                num_requests=self.num_requests,
                on_loop=on_loop,
                on_run=on_run,
            )
        frame = caught.traceback[-1]
        return str(caught.value) or f"{frame.path.name}: {frame.statement}"


DIRECTORY = ("too soon", no_directory)
GENERATIONS = ("generation that is not there", no_generations)
HEADERS = ("stage . sent step", no_headers)
ONE_THREAD = Cut(stages=(2, 2), cohorts=2, lanes="test")
SHORT_DEPTH = {"cut": Cut(stages=(2, 2), cohorts=3), "seed": 37}

FAULTS = {
    "slot without rest": Fault(
        plant=slots_never_rest, checks=(DIRECTORY, GENERATIONS), answer="", **SHORT_DEPTH
    ),
    "early return to a stranger": Fault(
        plant=early_return_to_a_stranger, checks=(DIRECTORY, GENERATIONS), answer="", seed=24
    ),
    "return to a stranger's slot": Fault(
        plant=returns_to_strangers, checks=(GENERATIONS,), seed=24
    ),
    "late return": Fault(plant=returns_are_late),
    "return read before it came": Fault(
        plant=messages_are_read_before_they_come, checks=(HEADERS,), answer=CRASH
    ),
    "reused staging entry": Fault(plant=staging_is_too_short, cut=ONE_THREAD),
    "staging ring too short": Fault(
        plant=ring_is_too_short, cut=ONE_THREAD, answer="steps are in flight"
    ),
    "cohort moved too soon": Fault(on_loop=rows_move_too_soon, checks=(DIRECTORY,)),
    "row planned too soon": Fault(on_loop=rows_come_a_turn_too_soon, checks=(DIRECTORY,)),
    "sends of returns swapped": Fault(
        plant=sends_are_swapped("return"), checks=(HEADERS,), answer=CRASH, slow_rank=0
    ),
    "sends of hidden states swapped": Fault(
        plant=sends_are_swapped("forward"), checks=(HEADERS,), answer=CRASH, slow_rank=1
    ),
    "receives of returns swapped": Fault(plant=receives_are_swapped, checks=(HEADERS,)),
    "outlet of one buffer": Fault(plant=outlet_of_one_buffer, checks=(HEADERS,), answer=CRASH),
    "buffer released before it is used": Fault(
        plant=buffer_released_before_it_is_used, answer="generation that is not there"
    ),
    "position off by one": Fault(plant=position_off_by_one),
    "length off by one": Fault(plant=length_off_by_one),
    "stale KV": Fault(plant=stale_kv),
    "stale page table": Fault(plant=stale_page_table),
    "done not passed on": Fault(plant=done_is_not_passed_on),
    "lengths kept by later stages": Fault(plant=lengths_are_kept_by_later_stages),
    "a rank with rows in another order": Fault(
        plant=last_rank_runs(rows_reversed), checks=(HEADERS,), answer="returned slot"
    ),
    "a rank with fewer rows": Fault(plant=last_rank_runs(fewer_rows), answer="bytes were sent"),
}
# With every check in place in the fast run, the rest with all tests.
CASES = [
    pytest.param(name, disarmed, marks=pytest.mark.slow if disarmed or not fault.checks else ())
    for name, fault in FAULTS.items()
    for disarmed in range(len(fault.checks) + bool(fault.answer))
]


@pytest.mark.parametrize(("name", "disarmed"), CASES)
def test_a_planted_fault_turns_the_equality_test_red(
    name: str, disarmed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULTS[name]
    said = fault.red(monkeypatch, disarmed=disarmed)
    print(name, disarmed, said[:300])
    expected = [*(says for says, _ in fault.checks), fault.answer][disarmed]
    assert re.search(expected, said), said


@pytest.mark.slow
def test_an_early_return_harms_no_honest_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs the overlap of the stages, and no answer."""
    one_stage("llama", 4, 2)
    returns_are_early(monkeypatch)
    check_equal(TWO_STAGES, seed=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["slot without rest", "early return to a stranger"])
def test_a_stale_return_that_nothing_checks_is_overwritten_before_it_is_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Returns are applied in plan order, so that the one of the new sequence's own prefill is the
    last before its first verify row. Its generation is checked because drafts would read more."""
    fault = FAULTS[name]
    fault.plant(monkeypatch)
    no_directory(monkeypatch)
    no_generations(monkeypatch)
    played = play(fault.cut, seed=fault.seed, on_loop=_unchecked)
    played.check_alone("llama")


def _unchecked(loop: PipelineLoop) -> None:
    loop.scheduler.check = lambda: None  # type: ignore[method-assign]


@pytest.mark.slow
@pytest.mark.parametrize("layer", [0, 1])
def test_a_bad_layer_lost_between_stages_is_seen(
    layer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later stages forget what earlier ones found, and blame the layer before theirs."""
    cut = Cut(stages=(2, 2) if layer == 0 else (3, 1), cohorts=2)
    check_blame(cut, layer=layer)
    original = stage_run._first_bad

    def forgetful(given: RowWords, *rest: Any) -> torch.Tensor:
        clean = torch.full_like(given.bad_layer, -1)
        return original(given._replace(bad_layer=clean), *rest)

    monkeypatch.setattr(stage_run, "_first_bad", forgetful)
    with pytest.raises(AssertionError, match=f"in layer {cut.stages[0] - 1} at"):
        check_blame(cut, layer=layer)


@pytest.mark.slow
def test_tensor_ranks_that_differ_in_a_bit_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token need differ for it."""
    sums_in_another_order(monkeypatch)
    with pytest.raises(AssertionError, match="tensor ranks sent other bits"):
        check_equal(Cut(stages=(2, 2), tp=4, cohorts=2), seed=5, num_requests=6)


@pytest.mark.slow
def test_a_hang_is_a_failure_with_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage 0 loses its messages: stage 1 waits, and the report says where."""
    monkeypatch.setattr(pipeline_harness, "HANG_S", 1.0)
    original = strict.StrictWire.send

    def send(self: Any, parcel: Any) -> Any:
        if self.kind == "return" or len(self.sent) < 5:
            return original(self, parcel)
        lost = strict._Transfer(parcel, patience_s=0.0)
        lost.done.set()
        return lost

    monkeypatch.setattr(strict.StrictWire, "send", send)
    with pytest.raises(AssertionError, match="no result within 1 s") as caught:
        check_equal(Cut(stages=(2, 2), cohorts=2), seed=4)
    said = str(caught.value)
    assert "waiting on forward lane 0>1" in said
    assert "in receive" in said and "stage_run.py" in said
