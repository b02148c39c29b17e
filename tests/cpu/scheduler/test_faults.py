"""Planted faults: each must turn the histories red.

The integrity checks of the scheduler are off here, and where it says so those of the fake worker
too: what has to notice is the answer of some request, or a device that cannot run the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
import pytest

from draftmark.cache.manager import CacheManager, Holding
from draftmark.cache.pages import PageAllocator
from draftmark.cache.slots import SlotAllocator
from draftmark.core.step import PageDelta, StepPlan
from tests.cpu.scheduler.histories import MAX_CONTEXT, World, play, random_history
from tests.cpu.scheduler.simulation import Simulation

HISTORIES = range(60)
OTHER_ANSWER = "gave other tokens"


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

    def admit(self, holding: Holding, *, step: int, is_quiet: bool, headroom: int) -> bool:
        if not super().admit(holding, step=step, is_quiet=is_quiet, headroom=headroom):
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


class ForgetsGenerations(SlotAllocator):
    def take(self) -> tuple[int, int]:
        slot, _ = super().take()
        return slot, 1


def manager_with(kind: type[CacheManager] = CacheManager) -> Callable[[int, int], CacheManager]:
    return lambda pages, slots: kind(num_pages=pages, num_slots=slots)


def manager_that_reuses_early(pages: int, slots: int) -> CacheManager:
    manager = CacheManager(num_pages=pages, num_slots=slots)
    manager.pages = ReusesEarly(pages)
    return manager


def manager_without_generations(pages: int, slots: int) -> CacheManager:
    manager = CacheManager(num_pages=pages, num_slots=slots)
    manager.slots = ForgetsGenerations(slots, num_cohorts=1)
    return manager


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


def age_rows(plan: StepPlan) -> StepPlan:
    """Verify rows name the generation before."""
    rows = [msgspec.structs.replace(row, generation=row.generation - 1) for row in plan.verify]
    return msgspec.structs.replace(plan, verify=rows)


def reds(
    make_manager: Callable[[int, int], CacheManager],
    *,
    tamper: Callable[[StepPlan], StepPlan] | None,
    strict: bool = False,
) -> Iterator[str]:
    """What goes wrong in the histories, a message for each that does not pass."""

    def make(world: World, bad: dict[int, int]) -> Simulation:
        pages, slots = world.pages + 1, world.slots + 1
        simulation = Simulation(
            num_pages=pages,
            num_slots=slots,
            max_context=MAX_CONTEXT,
            max_running=world.max_running,
            prefill_tokens=world.prefill_tokens,
            max_in_flight=world.max_in_flight,
            min_shared_tokens=world.min_shared_tokens,
            max_prefix_waits=world.max_prefix_waits,
            bad=bad,
            strict=strict,
            manager=make_manager(pages, slots),
        )
        simulation.checks = False
        simulation.tamper = tamper or simulation.tamper
        return simulation

    for seed in HISTORIES:
        try:
            play(*random_history(seed), make=make)
        except AssertionError as error:
            yield str(error)


def test_nothing_is_red_without_a_fault() -> None:
    assert list(reds(manager_with(), tamper=None)) == []


@pytest.mark.parametrize(
    ("make_manager", "tamper"),
    [
        (manager_that_reuses_early, None),
        (manager_with(MatchesBeforeTheResult), None),
        (manager_with(CommitsOneTokenTooMany), None),
        (manager_with(Remaps), None),
        (manager_with(), skip_a_page),
        (manager_with(), swap_pages),
        (manager_with(), forget_deltas),
        (manager_with(), forget_penalties),
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
    make_manager: Callable[[int, int], CacheManager],
    tamper: Callable[[StepPlan], StepPlan] | None,
) -> None:
    assert any(OTHER_ANSWER in found for found in reds(make_manager, tamper=tamper))


@pytest.mark.parametrize(
    ("make_manager", "tamper", "message"),
    [
        (manager_without_generations, None, "old generation"),
        (manager_with(), age_rows, "the plan says"),
        (manager_with(LeavesAtOnce), None, "before"),
    ],
    ids=["slot without generation", "row of an old generation", "reused before the last result"],
)
def test_a_planted_fault_crashes_the_device(
    make_manager: Callable[[int, int], CacheManager],
    tamper: Callable[[StepPlan], StepPlan] | None,
    message: str,
) -> None:
    assert any(message in found for found in reds(make_manager, tamper=tamper, strict=True))
