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
from draftmark.core.messages import RequestOutput
from draftmark.core.step import PageDelta, StepPlan, StepResult, VerifyRow
from draftmark.scheduler.planner import InFlight
from draftmark.scheduler.queue import Sequence
from tests.cpu.scheduler.histories import (
    Event,
    World,
    drafting_history,
    hybrid_history,
    make_simulation,
    play,
    random_history,
)
from tests.cpu.scheduler.simulation import Simulation
from tests.fakes.worker import FakeWorker

HISTORIES = range(80)
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


class ReservesForWindowsOnly(CacheManager):
    """What a head writes for the drafts of the next window has no room of its own."""

    def reserve(self, holding: Holding, upto: int) -> list[int] | None:
        return super().reserve(holding, upto - 1)


class AdmitsForPromptsOnly(CacheManager):
    """The same of the first window."""

    def admit(self, holding: Holding, *, step: int, headroom: int, upto: int | None = None) -> bool:
        return super().admit(holding, step=step, headroom=headroom)


class TakesRejectedDraftsIntoTheState(FakeWorker):
    def _store_window(self, row: VerifyRow, plan: StepPlan) -> None:
        slot = self.slots[row.slot]
        slot.fold = len(slot.records)
        super()._store_window(row, plan)


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
MakeHistory = Callable[[int], tuple[World, list[Event]]]
Plant = Callable[[Simulation], None]
Tamper = Callable[[StepPlan], StepPlan]


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


def count_windows_as_one_token(simulation: Simulation) -> None:
    """The most that a slot's length can be is told without the drafts of its windows."""
    planner, committer = simulation.scheduler._planner, simulation.scheduler._committer
    plan_verify, commit = planner._plan_verify, committer.commit

    def plan_one_token(draft: InFlight) -> list[VerifyRow]:
        rows = plan_verify(draft)
        for sequence in draft.verify:
            sequence.ahead -= draft.width - 1
            committer._lower_bound(sequence)
        return rows

    def commit_one_token(step: InFlight, result: StepResult) -> list[RequestOutput]:
        for sequence in step.verify:
            sequence.ahead += step.width - 1
        return commit(step, result)

    planner._plan_verify = plan_one_token  # type: ignore[method-assign]
    committer.commit = commit_one_token  # type: ignore[method-assign]


def never_lower_bounds(simulation: Simulation) -> None:
    """As if no draft was ever rejected."""
    committer = simulation.scheduler._committer
    committer._lower_bound = lambda sequence: None  # type: ignore[method-assign]


def see_too_far(simulation: Simulation) -> None:
    """A row may go on without looking until its windows reach the end of its pages; the drafts of
    the last one reach beyond."""
    planner = simulation.scheduler._planner
    extend = planner._extend

    def extend_to_the_last_place(sequence: Sequence, draft: InFlight) -> bool:
        has_room = extend(sequence, draft)
        if has_room:
            sequence.horizon = min(sequence.holding.covered, sequence.end - 1)
        return has_room

    planner._extend = extend_to_the_last_place  # type: ignore[method-assign]


def forget_what_has_no_entries(simulation: Simulation) -> None:
    """Pages that were filled without drafts are taken for such that have the head's entries."""
    committer = simulation.scheduler._committer
    commit = committer.commit

    def commit_as_drafted(step: InFlight, result: StepResult) -> list[RequestOutput]:
        return commit(replace(step, drafts=step.drafts or 1), result)

    committer.commit = commit_as_drafted  # type: ignore[method-assign]


def narrow_windows(plan: StepPlan) -> StepPlan:
    """Windows have a place less than there are drafts."""
    return msgspec.structs.replace(plan, verify_k=max(plan.verify_k - 1, 0))


def forget_draft_limits(plan: StepPlan) -> StepPlan:
    """Every request gets as many drafts as any other."""
    admits = [msgspec.structs.replace(admit, max_drafts=8) for admit in plan.admits]
    return msgspec.structs.replace(plan, admits=admits)


def forget_cached_ids(plan: StepPlan) -> StepPlan:
    """Of what is cached, the ids of the first page are told only, but where penalties need them."""
    admits = [
        admit
        if admit.sampling.presence_penalty
        else msgspec.structs.replace(
            admit, prompt_ids=admit.prompt_ids[:PAGE_TOKENS], output_ids=[]
        )
        for admit in plan.admits
    ]
    return msgspec.structs.replace(plan, admits=admits)


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
    tamper: Tamper | None = None,
    plant: Plant = lambda simulation: None,
    make_worker: type[FakeWorker] = FakeWorker,
    strict: bool = False,
    history_of: MakeHistory = random_history,
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
@pytest.mark.parametrize("history_of", [random_history, hybrid_history, drafting_history])
def test_nothing_is_red_without_a_fault(history_of: MakeHistory) -> None:
    assert list(reds(history_of=history_of)) == []


@pytest.mark.slow
def test_returns_that_are_applied_early_harm_no_honest_plan() -> None:
    assert list(reds(make_worker=AppliesReturnsEarly, history_of=drafting_history)) == []


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
def test_a_planted_fault_changes_answers(make_manager: MakeManager, tamper: Tamper | None) -> None:
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
    tamper: Tamper | None,
    message: str,
) -> None:
    assert any(message in found for found in reds(make_manager, tamper=tamper, strict=True))


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
    snapshots: type[SnapshotPool], tamper: Tamper | None, strict: bool
) -> None:
    found = reds(
        manager_with(snapshots=snapshots), tamper=tamper, strict=strict, history_of=hybrid_history
    )
    messages = ("the state is not that", "cached tokens, snapshot") if strict else (OTHER_ANSWER,)
    assert any(message in red for red in found for message in messages)


@dataclass(frozen=True)
class Fault:
    """`crash` is what a strict device says, `answer` how it shows else."""

    crash: str
    answer: str = OTHER_ANSWER
    manager: MakeManager = HONEST
    tamper: Tamper | None = None
    plant: Plant = lambda simulation: None
    worker: type[FakeWorker] = FakeWorker
    history_of: MakeHistory = random_history

    def is_seen(self, *, strict: bool) -> bool:
        found = reds(
            self.manager,
            tamper=self.tamper,
            plant=self.plant,
            make_worker=self.worker,
            strict=strict,
            history_of=self.history_of,
        )
        return any((self.crash if strict else self.answer) in message for message in found)


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
    assert fault.is_seen(strict=strict)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "fault",
    [
        Fault("is outside its", plant=count_windows_as_one_token),
        Fault("no progress", answer="no progress", plant=never_lower_bounds),
        Fault("is outside its", manager=manager_with(ReservesForWindowsOnly)),
        Fault("drafts, step", answer="had more drafts than", tamper=forget_draft_limits),
        Fault("before its return", plant=verify_one_turn_too_soon),
        Fault("the state is not that", worker=TakesRejectedDraftsIntoTheState),
    ],
    ids=[
        "window counted as one token",
        "bound never lowered",
        "no room for drafts",
        "limit of a request not told",
        "window a turn too soon",
        "rejected drafts in the state",
    ],
)
def test_a_planted_fault_of_drafts_is_seen_by_the_device_and_in_answers(
    fault: Fault, strict: bool
) -> None:
    assert replace(fault, history_of=drafting_history).is_seen(strict=strict)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("drafts, step", tamper=narrow_windows),
        Fault("is outside its", plant=see_too_far),
        Fault("is outside its", manager=manager_with(AdmitsForPromptsOnly)),
        Fault("the head lacks entries", plant=forget_what_has_no_entries),
        Fault("no hidden state behind", plant=forget_what_has_no_entries),
        Fault("is not told its cached ids", tamper=forget_cached_ids),
    ],
    ids=[
        "window narrower than its drafts",
        "horizon without drafts",
        "admitted without room for drafts",
        "entries that are not there",
        "hidden state that is not there",
        "cached ids not told",
    ],
)
def test_a_planted_fault_that_costs_drafts_only_is_seen_by_the_device(fault: Fault) -> None:
    """Worse drafts, or what drafts write, change no answer."""
    assert replace(fault, history_of=drafting_history).is_seen(strict=True)
