"""Snapshots: every place has one holder, and what is restored is what the prefix says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.cache.holding import Holding
from draftmark.cache.manager import CacheManager
from draftmark.cache.spec import PAGE_TOKENS
from tests.cpu.cache.test_manager import RESTED, tokens_of


def manager_of(*, snapshots: int | None, pages: int = 40, slots: int = 6) -> CacheManager:
    return CacheManager(num_pages=pages + 1, num_slots=slots + 1, num_snapshots=snapshots)


def admitted(manager: CacheManager, tokens: list[int], *, saves: list[int]) -> Holding:
    holding = manager.open(tokens)
    manager.match(holding)
    manager.will_save(holding, saves)
    assert manager.admit(holding, step=RESTED, headroom=0)
    manager.check()
    return holding


def lived(manager: CacheManager, tokens: list[int], *, saves: list[int]) -> Holding:
    """A sequence that ran its prompt, saved its state and left."""
    holding = admitted(manager, tokens, saves=list(saves))
    for _ in saves:
        assert manager.save(holding) >= 0
    manager.commit(holding, len(tokens))
    manager.leave(holding, after_step=-1)
    manager.check()
    return holding


def usable(manager: CacheManager, tokens: list[int]) -> tuple[int, int]:
    """(tokens that pages match, tokens of them that can be used)"""
    holding = manager.open(tokens)
    manager.match(holding)
    return holding.matched, holding.usable


def places(manager: CacheManager) -> tuple[int, int]:
    """(free, evictions)"""
    manager.check()
    assert manager.snapshots is not None
    return manager.snapshots.num_free, manager.snapshots.evictions


def test_pages_alone_are_enough_where_no_layer_is_recurrent() -> None:
    manager = manager_of(snapshots=None)
    lived(manager, tokens_of(4), saves=[])
    assert usable(manager, tokens_of(4, extra=1)) == (64, 64)


def test_a_hit_ends_at_the_deepest_snapshot() -> None:
    manager = manager_of(snapshots=3)
    lived(manager, tokens_of(6), saves=[16, 64])
    assert usable(manager, tokens_of(6, extra=1)) == (96, 64)
    assert usable(manager, tokens_of(6)[:64]) == (48, 16)  # one token is left to run
    assert usable(manager, tokens_of(6, salt=1)) == (16, 16)
    holding = admitted(manager, tokens_of(6, extra=1), saves=[])
    assert len(holding.nodes) == 4 and holding.restore == 1
    other = admitted(manager, [9] * 40, saves=[])
    assert not other.nodes and other.restore == -1


def test_without_places_nothing_is_ever_usable() -> None:
    manager = manager_of(snapshots=0)
    assert not manager.can_save
    lived(manager, tokens_of(4), saves=[])
    assert usable(manager, tokens_of(4)) == (48, 0)


def test_a_snapshot_is_usable_once_its_result_was_finite() -> None:
    manager = manager_of(snapshots=1)
    holding = admitted(manager, tokens_of(4), saves=[32])
    assert manager.save(holding) == 0
    manager.commit(holding, 31)
    assert usable(manager, tokens_of(4)) == (16, 0)
    manager.commit(holding, 32)
    assert usable(manager, tokens_of(4)) == (32, 32)
    assert places(manager) == (0, 0)


def test_one_that_leaves_gives_its_place_back_after_its_last_step() -> None:
    manager = manager_of(snapshots=1)
    first = admitted(manager, tokens_of(4, salt=1), saves=[32])
    second = admitted(manager, tokens_of(4, salt=2), saves=[32, 48])
    manager.arrived(0)
    assert manager.save(first) == 0
    assert manager.save(second) == -1  # being written: not to be had
    manager.leave(first, after_step=3)
    manager.arrived(2)
    assert places(manager) == (0, 0)
    manager.arrived(3)
    assert places(manager) == (1, 0)
    assert manager.save(second) == 0


def test_a_preempted_sequence_keeps_what_its_last_steps_saved() -> None:
    manager = manager_of(snapshots=1)
    holding = admitted(manager, tokens_of(4), saves=[32])
    manager.save(holding)
    manager.arrived(0)
    manager.leave(holding, after_step=1)
    manager.commit(holding, 32)
    manager.arrived(1)
    assert usable(manager, tokens_of(4)) == (32, 32)
    assert places(manager) == (0, 0)


def test_the_second_of_two_that_save_the_same_gives_its_place_back() -> None:
    manager = manager_of(snapshots=2)
    both = [admitted(manager, tokens_of(4), saves=[32]) for _ in range(2)]
    assert [manager.save(holding) for holding in both] == [0, 1]
    for holding in both:
        manager.commit(holding, 40)
    assert places(manager) == (1, 0)


def test_the_least_recently_restored_goes_first() -> None:
    manager = manager_of(snapshots=2)
    for salt in (1, 2):
        lived(manager, tokens_of(4, salt=salt), saves=[32])
    manager.leave(admitted(manager, tokens_of(4, salt=1), saves=[]), after_step=-1)
    lived(manager, tokens_of(4, salt=3), saves=[32])
    found = [usable(manager, tokens_of(4, salt=salt))[1] for salt in (1, 2, 3)]
    assert found == [32, 0, 32]
    assert places(manager) == (0, 1)


def test_pages_that_lead_to_no_snapshot_go_first() -> None:
    manager = manager_of(snapshots=4, pages=12)
    lived(manager, tokens_of(4, salt=1), saves=[48])  # oldest, of use up to 48
    lived(manager, tokens_of(4, salt=2), saves=[])
    lived(manager, tokens_of(4, salt=3), saves=[48])
    assert manager.pages.num_free == 2  # the first page is the same in all
    admitted(manager, [9] * (6 * PAGE_TOKENS), saves=[])
    found = [usable(manager, tokens_of(4, salt=salt)) for salt in (1, 2, 3)]
    assert found == [(48, 48), (16, 0), (48, 48)]
    admitted(manager, [8] * (3 * PAGE_TOKENS), saves=[])
    found = [usable(manager, tokens_of(4, salt=salt)) for salt in (1, 2, 3)]
    assert found == [(16, 0), (16, 0), (48, 48)]  # then by age: with its page, a snapshot
    assert places(manager) == (3, 1)


def test_pages_whose_snapshot_was_evicted_are_of_no_use_any_more() -> None:
    manager = manager_of(snapshots=1, pages=8)
    lived(manager, [1] * 64, saves=[48])
    lived(manager, [2] * 64, saves=[48])
    admitted(manager, [3] * 64, saves=[])
    assert usable(manager, [1] * 64)[0] == 0
    assert usable(manager, [2] * 64) == (48, 48)


def test_a_reset_drops_the_snapshots_of_what_it_drops() -> None:
    manager = manager_of(snapshots=2)
    lived(manager, tokens_of(4, salt=1), saves=[16, 48])
    held = admitted(manager, tokens_of(4, salt=2), saves=[])
    assert len(held.nodes) == 1
    assert manager.reset_cache() == 3
    assert places(manager) == (1, 1)
    assert usable(manager, tokens_of(4, salt=2)) == (16, 16)


def test_others_wait_only_for_a_snapshot_that_they_can_use() -> None:
    manager = manager_of(snapshots=2)
    other = manager.open(tokens_of(8))

    def must_wait(at_least: int) -> bool:
        manager.match(other)
        return manager.is_being_written(other, at_least=at_least)

    none = admitted(manager, tokens_of(8), saves=[])
    assert not must_wait(16)
    beyond = admitted(manager, tokens_of(9), saves=[128])
    assert not must_wait(16)  # one token is left to run
    strange = admitted(manager, tokens_of(8, salt=1), saves=[64])
    assert not must_wait(16)
    writer = admitted(manager, tokens_of(8), saves=[32, 64])
    assert must_wait(64) and not must_wait(80)
    manager.save(writer)
    manager.commit(writer, 32)
    assert usable(manager, tokens_of(8)) == (32, 32)
    assert must_wait(32) and not must_wait(48)
    manager.save(writer)
    assert must_wait(32)
    for holding in (none, beyond, strange, writer):
        manager.leave(holding, after_step=-1)
    assert not must_wait(16)


def test_one_that_could_not_save_is_not_waited_for() -> None:
    manager = manager_of(snapshots=1)
    first = admitted(manager, tokens_of(4, salt=1), saves=[48])
    second = admitted(manager, tokens_of(4, salt=2), saves=[48])
    waiting = manager.open(tokens_of(4, salt=2))
    manager.match(waiting)
    assert manager.save(first) == 0
    assert manager.is_being_written(waiting, at_least=48)
    assert manager.save(second) == -1
    assert not manager.is_being_written(waiting, at_least=48)


def test_check_finds_a_place_that_is_lost_or_held_twice() -> None:
    manager = manager_of(snapshots=2)
    lived(manager, tokens_of(4), saves=[48])
    assert manager.snapshots is not None
    place = manager.snapshots._free.pop()
    with pytest.raises(AssertionError, match="lost"):
        manager.check()
    manager.snapshots._free += [place, place]
    with pytest.raises(AssertionError, match="two places"):
        manager.check()


class Device:
    """Sequences on a manager, and what a device would have in each place after the plans so far:
    the tokens that the state was saved after."""

    def __init__(self, *, pages: int, snapshots: int) -> None:
        self.manager = manager_of(snapshots=snapshots, pages=pages, slots=4)
        self.pool: dict[int, tuple[int, ...]] = {}
        self.live: list[Holding] = []
        self.planned: dict[Holding, int] = {}
        self.chunks: list[tuple[int, Holding, int]] = []  # (step, who, its end)
        self.last_step: dict[Holding, int] = {}
        self.step = 0
        self.restored = 0

    def open(self, number: int) -> None:
        manager = self.manager
        holding = manager.open(tokens_of(1 + number % 6, extra=1 + number % 17, salt=number % 4))
        start = manager.match(holding)
        last = len(holding.tokens) - 1
        ahead = range(start + PAGE_TOKENS, last + 1, PAGE_TOKENS)
        manager.will_save(holding, [p for p in ahead if p // PAGE_TOKENS & (1 + number // 7 % 3)])
        if not manager.admit(holding, step=self.step + 2, headroom=0):
            return
        if holding.restore >= 0:
            assert self.pool[holding.restore] == tuple(holding.tokens[:start]), "a stranger's state"
            self.restored += 1
        assert (start > 0) == (holding.restore >= 0)
        self.live.append(holding)
        self.planned[holding] = start
        self.last_step[holding] = -1

    def chunk(self, holding: Holding, count: int) -> None:
        start = self.planned[holding]
        stop = min(start + count, *(holding.saves[:1] or [len(holding.tokens)]))
        if stop <= start:
            return
        self.step += 1
        if holding.saves[:1] == [stop]:
            place = self.manager.save(holding)
            if place >= 0:
                self.pool[place] = tuple(holding.tokens[:stop])
        self.planned[holding] = stop
        self.last_step[holding] = self.step
        self.chunks.append((self.step, holding, stop))

    def result(self, *, is_finite: bool) -> None:
        if not self.chunks:
            return
        step, holding, stop = self.chunks.pop(0)
        if holding.after_step is None and not is_finite:
            self.leave(holding, resumes=False)
        if holding.after_step is None or holding in self.planned:
            self.manager.commit(holding, stop)
        self.manager.arrived(step)

    def leave(self, holding: Holding, *, resumes: bool) -> None:
        """Preempted, its results still count; else they do not."""
        self.live.remove(holding)
        self.manager.leave(holding, after_step=self.last_step[holding])
        if not resumes:
            del self.planned[holding]


events = st.lists(
    st.tuples(
        st.sampled_from(["open", "chunk", "chunk", "result"])
        | st.sampled_from(["result", "result", "bad", "preempt", "leave", "reset"]),
        st.integers(0, 999),
    ),
    max_size=120,
)


def live_through(device: Device, history: list[tuple[str, int]]) -> None:
    for kind, number in history:
        holding = device.live[number % len(device.live)] if device.live else None
        if kind == "open":
            device.open(number)
        elif kind in ("result", "bad"):
            device.result(is_finite=kind == "result")
        elif kind == "reset":
            device.manager.reset_cache()
        elif holding is not None and kind == "chunk":
            device.chunk(holding, 1 + number % 50)
        elif holding is not None:
            device.leave(holding, resumes=kind == "preempt")
        device.manager.check()


@settings(max_examples=200)
@given(events, st.integers(4, 24), st.integers(0, 5))
def test_what_is_restored_is_what_the_prefix_says(
    history: list[tuple[str, int]], pages: int, snapshots: int
) -> None:
    device = Device(pages=pages, snapshots=snapshots)
    live_through(device, history)
    while device.chunks:
        device.result(is_finite=True)
    for holding in device.live[:]:
        device.leave(holding, resumes=False)
    manager = device.manager
    manager.reset_cache()
    assert places(manager)[0] == snapshots
    assert manager.pages.num_free == pages
