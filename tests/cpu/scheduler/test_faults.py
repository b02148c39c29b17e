"""Planted faults: each must turn the histories red.

The integrity checks of the scheduler are off here, and where it says so those of the fake worker
too: what has to notice is the answer of some request, or a device that cannot run the plan. A row
that ran a token twice shows as an answer that the host cannot count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import msgspec
import pytest

from draftmark.cache.holding import Holding
from draftmark.cache.manager import CacheManager
from draftmark.cache.pages import PageAllocator
from draftmark.cache.slots import SlotAllocator
from draftmark.cache.snapshots import SnapshotPool
from draftmark.cache.spec import PAGE_TOKENS
from draftmark.core.step import PageDelta, StepPlan
from draftmark.scheduler.queue import Sequence
from tests.cpu.scheduler.histories import (
    Event,
    World,
    hybrid_history,
    make_simulation,
    play,
    random_history,
)
from tests.cpu.scheduler.simulation import Simulation
from tests.fakes.worker import FakeWorker

HISTORIES = range(120)
OTHER_ANSWER = "gave other tokens"
MISCOUNT = "emitted tokens, the host knows"


class ReusesEarly(PageAllocator):
    """Now and then hands out the page that it handed out last, as if it had been freed."""

    def __init__(self, num_pages: int) -> None:
        super().__init__(num_pages)
        self._last = 0
        self._turn = 0

    def take(self, count: int) -> list[int]:
        pages = super().take(count)
        self._turn += 1
        if self._turn % 4 == 0 and self._last and not self._is_free[self._last]:
            super().give(pages[-1:])
            pages[-1] = self._last
        self._last = pages[-1]
        return pages

    def give(self, pages: Iterable[int]) -> None:
        super().give(page for page in dict.fromkeys(pages) if not self._is_free[page])


class MatchesBeforeTheResult(CacheManager):
    """Prompt pages are matchable as soon as they are planned."""

    def admit(self, holding: Holding, *, step: int, headroom: int, upto: int | None = None) -> bool:
        if not super().admit(holding, step=step, headroom=headroom, upto=upto):
            return False
        self.commit(holding, len(holding.tokens))
        return True


class CommitsOneTokenTooMany(CacheManager):
    """A page is matchable before its last token is written."""

    def commit(self, holding: Holding, length: int) -> None:
        super().commit(holding, min(length + 1, len(holding.tokens)))


class Remaps(CacheManager):
    """A page that another sequence cached first is exchanged while its owner runs."""

    def commit(self, holding: Holding, length: int) -> None:
        super().commit(holding, length)
        for index, node in enumerate(holding.nodes):
            if holding.pages[index] != node.page:
                self.pages.give([holding.pages[index]])
                holding.pages[index] = node.page
                holding.num_private -= 1
                self._owned -= holding.after_step is None
                self._draining -= holding.after_step is not None
                self._duplicates -= 1


class LeavesAtOnce(CacheManager):
    """Pages and slot are free at once, whatever is in flight."""

    def leave(self, holding: Holding, *, after_step: int) -> None:
        super().leave(holding, after_step=-1)

    def commit(self, holding: Holding, length: int) -> None:
        if holding.after_step is None:
            super().commit(holding, length)


class EvictsWhatIsBeingWritten(SnapshotPool):
    """Where no place is free or cached, one that a plan in flight writes is handed out again."""

    def take(self, holding: Holding) -> int:
        place = super().take(holding)
        others = [place for other in self._savers for _, place in other.writing]
        return others[0] if place < 0 and others else place


class HangsOneNodeTooDeep(SnapshotPool):
    """A snapshot is taken for that of one page more than it was saved after."""

    def take(self, holding: Holding) -> int:
        place = super().take(holding)
        if place >= 0:
            position, _ = holding.writing.pop()
            holding.writing.append((position + PAGE_TOKENS, place))
        return place


class ForgetsGenerations(SlotAllocator):
    def take(self) -> tuple[int, int]:
        slot, _ = super().take()
        return slot, 1


class NeverRests(SlotAllocator):
    """A slot is reused as soon as its last result arrived, whether its return is applied or not."""

    def can_take(self, *, step: int) -> bool:
        return bool(self._free)


class AppliesReturnsEarly(FakeWorker):
    """The return of a step is applied at the head of the next one, as if there were one cohort."""

    def _begin(self, plan: StepPlan) -> None:
        self._apply_returns(upto=plan.step - 1)
        super()._begin(plan)


class AppliesReturnsAfterAdmits(FakeWorker):
    """A slot that is admitted anew gets the return of its former sequence."""

    def _begin(self, plan: StepPlan) -> None:
        for admit in plan.admits:
            self._admit(admit, plan.step)
        self._apply_returns(upto=plan.step - self.num_cohorts)


class AppliesReturnsEarlyAfterAdmits(AppliesReturnsAfterAdmits):
    """The same, one step later."""

    def _begin(self, plan: StepPlan) -> None:
        super()._begin(plan)
        self._apply_returns(upto=plan.step - 1)


MakeManager = Callable[[World], CacheManager]
Plant = Callable[[Simulation], None]


def manager_with(
    kind: type[CacheManager] = CacheManager,
    *,
    pages: type[PageAllocator] = PageAllocator,
    slots: type[SlotAllocator] = SlotAllocator,
    snapshots: type[SnapshotPool] = SnapshotPool,
) -> MakeManager:
    def make(world: World) -> CacheManager:
        num_pages, num_slots = world.pages + 1, world.slots + 1
        manager = kind(num_pages=num_pages, num_slots=num_slots, num_cohorts=world.num_cohorts)
        manager.pages = pages(num_pages)
        manager.slots = slots(num_slots, num_cohorts=world.num_cohorts)
        if world.snapshots is not None:
            manager.snapshots = snapshots(world.snapshots, tree=manager.tree)
        return manager

    return make


HONEST = manager_with()


def verify_one_turn_too_soon(simulation: Simulation) -> None:
    """The planner's rule is that of a cohort less."""
    planner = simulation.scheduler._planner
    one_less = max(1, planner._limits.num_cohorts - 1)
    planner._limits = replace(planner._limits, num_cohorts=one_less)


def move_too_soon(simulation: Simulation) -> None:
    """A row that moves may be in the next turn of its new cohort, whenever it was in a plan."""
    cohorts = simulation.scheduler._roster.cohorts
    move = cohorts._move

    def move_at_once(sequence: Sequence, index: int, *, step: int) -> None:
        horizon = sequence.horizon
        move(sequence, index, step=step)
        sequence.horizon = horizon

    cohorts._move = move_at_once  # type: ignore[method-assign]


def skip_a_page(plan: StepPlan) -> StepPlan:
    """Of every delta of more than one page, the last is left out."""
    deltas = [
        PageDelta(d.slot, d.generation, d.first, d.pages[:-1] if len(d.pages) > 1 else d.pages)
        for d in plan.pages
    ]
    return msgspec.structs.replace(plan, pages=deltas)


def swap_pages(plan: StepPlan) -> StepPlan:
    """The pages of a delta come in another order."""
    deltas = [PageDelta(d.slot, d.generation, d.first, d.pages[::-1]) for d in plan.pages]
    return msgspec.structs.replace(plan, pages=deltas)


def forget_deltas(plan: StepPlan) -> StepPlan:
    """Pages of decoding sequences are not announced: the slot's former ones stay in the table."""
    return msgspec.structs.replace(plan, pages=[d for d in plan.pages if d.first == 0])


def forget_penalties(plan: StepPlan) -> StepPlan:
    """A resumed sequence's output is not counted."""
    admits = [msgspec.structs.replace(admit, output_ids=[]) for admit in plan.admits]
    return msgspec.structs.replace(plan, admits=admits)


def forget_restores(plan: StepPlan) -> StepPlan:
    """The state of a sequence with a cached prefix begins at zero."""
    admits = [msgspec.structs.replace(admit, restore=-1) for admit in plan.admits]
    return msgspec.structs.replace(plan, admits=admits)


def age_rows(plan: StepPlan) -> StepPlan:
    """Verify rows name the generation before."""
    rows = [msgspec.structs.replace(row, generation=row.generation - 1) for row in plan.verify]
    return msgspec.structs.replace(plan, verify=rows)


def reds(
    make_manager: MakeManager = HONEST,
    *,
    tamper: Callable[[StepPlan], StepPlan] | None = None,
    plant: Plant = lambda simulation: None,
    make_worker: type[FakeWorker] = FakeWorker,
    strict: bool = False,
    history_of: Callable[[int], tuple[World, list[Event]]] = random_history,
) -> Iterator[str]:
    """What goes wrong in the histories, a message for each that does not pass."""

    def make(world: World, bad: dict[int, int]) -> Simulation:
        simulation = make_simulation(
            world, bad, strict=strict, manager=make_manager(world), make_worker=make_worker
        )
        simulation.checks = False
        simulation.tamper = tamper or simulation.tamper
        plant(simulation)
        return simulation

    for seed in HISTORIES:
        try:
            play(*history_of(seed), make=make)
        except AssertionError as error:
            yield str(error)


@pytest.mark.slow
def test_nothing_is_red_without_a_fault() -> None:
    assert list(reds()) == []


@pytest.mark.slow
def test_returns_that_are_applied_early_harm_no_honest_plan() -> None:
    assert list(reds(make_worker=AppliesReturnsEarly)) == []


@pytest.mark.parametrize(
    ("make_manager", "tamper"),
    [
        (manager_with(pages=ReusesEarly), None),
        (manager_with(MatchesBeforeTheResult), None),
        (manager_with(CommitsOneTokenTooMany), None),
        (manager_with(Remaps), None),
        (HONEST, skip_a_page),
        (HONEST, swap_pages),
        (HONEST, forget_deltas),
        (HONEST, forget_penalties),
    ],
    ids=[
        "page reused too early",
        "matchable before its result",
        "matchable one token early",
        "page remapped",
        "page skipped in a delta",
        "pages swapped in a delta",
        "pages not announced",
        "penalties forget",
    ],
)
def test_a_planted_fault_changes_answers(
    make_manager: MakeManager, tamper: Callable[[StepPlan], StepPlan] | None
) -> None:
    assert any(OTHER_ANSWER in found for found in reds(make_manager, tamper=tamper))


@pytest.mark.parametrize(
    ("make_manager", "tamper", "message"),
    [
        (manager_with(slots=ForgetsGenerations), None, "old generation"),
        (HONEST, age_rows, "the plan says"),
        (manager_with(LeavesAtOnce), None, "before"),
    ],
    ids=["slot without generation", "row of an old generation", "reused before the last result"],
)
def test_a_planted_fault_crashes_the_device(
    make_manager: MakeManager,
    tamper: Callable[[StepPlan], StepPlan] | None,
    message: str,
) -> None:
    assert any(message in found for found in reds(make_manager, tamper=tamper, strict=True))


@pytest.mark.slow
def test_nothing_is_red_without_a_fault_where_a_hit_needs_a_snapshot() -> None:
    assert list(reds(history_of=hybrid_history)) == []


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("snapshots", "tamper"),
    [
        (EvictsWhatIsBeingWritten, None),
        (HangsOneNodeTooDeep, None),
        (SnapshotPool, forget_restores),
    ],
    ids=["evicted while it is written", "hung one node too deep", "not restored"],
)
def test_a_planted_fault_of_snapshots_is_seen_by_the_device_and_in_answers(
    snapshots: type[SnapshotPool], tamper: Callable[[StepPlan], StepPlan] | None, strict: bool
) -> None:
    found = reds(
        manager_with(snapshots=snapshots), tamper=tamper, strict=strict, history_of=hybrid_history
    )
    messages = ("the state is not that", "cached tokens, snapshot") if strict else (OTHER_ANSWER,)
    assert any(message in red for red in found for message in messages)


@dataclass(frozen=True)
class Fault:
    """Of turns and returns. `crash` is what a strict device says, `answer` how it shows else."""

    crash: str
    answer: str = OTHER_ANSWER
    manager: MakeManager = HONEST
    plant: Plant = lambda simulation: None
    worker: type[FakeWorker] = FakeWorker

    def reds(self, *, strict: bool) -> Iterator[str]:
        return reds(self.manager, plant=self.plant, make_worker=self.worker, strict=strict)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "fault",
    [
        Fault("before its return", plant=verify_one_turn_too_soon),
        Fault("before its return", answer=MISCOUNT, plant=move_too_soon),
        Fault("without a rest", manager=manager_with(slots=NeverRests)),
        Fault("before its last result", manager=manager_with(LeavesAtOnce)),
        Fault("the plan says", worker=AppliesReturnsAfterAdmits),
        Fault(
            "before its last result",
            manager=manager_with(LeavesAtOnce),
            worker=AppliesReturnsEarlyAfterAdmits,
        ),
    ],
    ids=[
        "verify row a turn too soon",
        "cohort moved too soon",
        "slot without rest",
        "slot reused before its last result",
        "return after the admits",
        "early return to a stranger",
    ],
)
def test_a_planted_fault_of_turns_is_seen_by_the_device_and_in_answers(
    fault: Fault, strict: bool
) -> None:
    message = fault.crash if strict else fault.answer
    assert any(message in found for found in fault.reds(strict=strict))
