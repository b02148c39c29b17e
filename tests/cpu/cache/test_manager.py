"""What sequences own: every page and slot has one holder, through whatever they do."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.cache.holding import Holding
from draftmark.cache.manager import CacheManager
from draftmark.cache.spec import PAGE_TOKENS, pages_of

RESTED = 99  # a step by which every slot has rested


def tokens_of(pages: int, *, extra: int = 0, salt: int = 0) -> list[int]:
    """Whole pages that depend on `salt` from the second on, and `extra` tokens more."""
    draw = random.Random(salt)
    first = [7] * min(PAGE_TOKENS, pages * PAGE_TOKENS)
    rest = max(0, pages - 1) * PAGE_TOKENS + extra
    return first + [draw.randrange(1000) for _ in range(rest)]


def admitted(manager: CacheManager, tokens: list[int], *, matches: bool = True) -> Holding:
    holding = manager.open(tokens)
    if matches:
        manager.match(holding)
    assert manager.admit(holding, step=RESTED, headroom=0)
    manager.check()
    return holding


def counts(manager: CacheManager) -> tuple[int, int, int, int]:
    """(free, owned, draining, cached)"""
    manager.check()
    return (
        manager.pages.num_free,
        manager.num_owned,
        manager.num_draining,
        manager.num_cached,
    )


def test_the_life_of_a_sequence() -> None:
    manager = CacheManager(num_pages=11, num_slots=3)
    holding = admitted(manager, tokens_of(2, extra=3))
    assert counts(manager) == (7, 3, 0, 0)
    manager.commit(holding, 31)
    assert counts(manager) == (7, 2, 0, 1)
    manager.commit(holding, 35)
    assert counts(manager) == (7, 1, 0, 2)
    assert manager.reserve(holding, 48) == []
    pages = manager.reserve(holding, 49)
    assert pages is not None and len(pages) == 1 and holding.pages[3:] == pages
    manager.leave(holding, after_step=5)
    assert counts(manager) == (6, 0, 2, 2)
    manager.arrived(4)
    assert counts(manager) == (6, 0, 2, 2)
    manager.arrived(5)
    assert counts(manager) == (8, 0, 0, 2)
    assert manager.slots.num_free == 2


def test_a_match_leaves_a_token_to_run() -> None:
    manager = CacheManager(num_pages=11, num_slots=3)
    manager.commit(admitted(manager, tokens_of(3)), 48)
    assert manager.match(manager.open(tokens_of(3))) == 32
    assert manager.match(manager.open(tokens_of(3, extra=1))) == 48
    assert manager.match(manager.open([7])) == 0


def test_pages_are_not_matched_before_they_are_committed() -> None:
    manager = CacheManager(num_pages=11, num_slots=3)
    first = admitted(manager, tokens_of(3))
    other = manager.open(tokens_of(3))
    assert manager.match(other) == 0
    manager.commit(first, 47)
    assert manager.match(other) == 32


def test_an_uncommitted_page_is_free_again_and_never_matched() -> None:
    manager = CacheManager(num_pages=11, num_slots=3)
    holding = admitted(manager, tokens_of(3))
    manager.commit(holding, 16)
    manager.leave(holding, after_step=-1)
    assert counts(manager) == (9, 0, 0, 1)
    assert manager.match(manager.open(tokens_of(3))) == 16


def test_shared_pages_are_shared_and_outlive_their_writer() -> None:
    manager = CacheManager(num_pages=11, num_slots=3)
    first = admitted(manager, tokens_of(3))
    manager.commit(first, 48)
    second = admitted(manager, tokens_of(3, extra=2))
    assert second.pages[:3] == first.pages
    assert counts(manager) == (6, 1, 0, 3)
    manager.leave(first, after_step=-1)
    assert manager.reset_cache() == 0
    manager.leave(second, after_step=-1)
    assert manager.reset_cache() == 3
    assert counts(manager) == (10, 0, 0, 0)


def test_a_page_cached_by_another_stays_private() -> None:
    manager = CacheManager(num_pages=11, num_slots=3)
    first, second = admitted(manager, tokens_of(2)), admitted(manager, tokens_of(2))
    before = second.pages[:]
    manager.commit(first, 32)
    manager.commit(second, 32)
    assert second.pages == before and not set(before) & set(first.pages)
    assert counts(manager) == (6, 2, 0, 2)


def test_pages_after_a_twin_are_matchable() -> None:
    manager = CacheManager(num_pages=11, num_slots=4)
    first = admitted(manager, tokens_of(2, salt=1))
    second = admitted(manager, tokens_of(3, salt=2))
    manager.commit(first, 32)
    manager.commit(second, 48)
    third = admitted(manager, tokens_of(3, extra=1, salt=2))
    assert third.pages[0] == first.pages[0] and third.pages[1:3] == second.pages[1:]


def test_a_twin_that_nobody_reads_is_freed_when_pages_are_short() -> None:
    manager = CacheManager(num_pages=6, num_slots=3)
    first, second = admitted(manager, tokens_of(1)), admitted(manager, tokens_of(1))
    manager.commit(first, 16)
    manager.commit(second, 16)
    manager.leave(first, after_step=-1)
    assert counts(manager) == (3, 1, 0, 1)
    pages = manager.reserve(second, 5 * PAGE_TOKENS)
    assert pages is not None and len(pages) == 4
    assert counts(manager) == (0, 4, 0, 1)


def test_a_twin_that_is_still_read_is_kept() -> None:
    manager = CacheManager(num_pages=6, num_slots=3)
    first, second = admitted(manager, tokens_of(1)), admitted(manager, tokens_of(1))
    manager.commit(first, 16)
    manager.commit(second, 16)
    manager.arrived(0)
    manager.leave(first, after_step=1)
    assert manager.reserve(second, 5 * PAGE_TOKENS) is None
    assert counts(manager) == (3, 1, 0, 1)


def test_an_idle_page_gives_way_to_its_twin() -> None:
    manager = CacheManager(num_pages=6, num_slots=3)
    first = admitted(manager, tokens_of(2))
    manager.commit(first, 32)
    manager.leave(first, after_step=-1)
    second = admitted(manager, tokens_of(2), matches=False)
    manager.commit(second, 32)
    assert counts(manager) == (3, 0, 0, 2)
    assert [node.page for node in second.nodes] == second.pages


def test_a_refused_admission_changes_nothing() -> None:
    manager = CacheManager(num_pages=6, num_slots=2)
    first = admitted(manager, tokens_of(3))
    manager.commit(first, 48)
    other = manager.open(tokens_of(3, extra=17))
    manager.match(other)
    assert not manager.admit(other, step=RESTED, headroom=1)  # a page too few
    assert not manager.admit(other, step=RESTED, headroom=0)  # no slot
    assert counts(manager) == (2, 0, 0, 3)
    assert all(node.refs == 1 for node in first.nodes)


@pytest.mark.parametrize("num_cohorts", [1, 2, 4])
def test_a_slot_that_has_not_rested_admits_nobody(num_cohorts: int) -> None:
    manager = CacheManager(num_pages=6, num_slots=2, num_cohorts=num_cohorts)
    manager.leave(admitted(manager, [1, 2, 3]), after_step=200)
    manager.arrived(200)
    other = manager.open([4, 5])
    before = counts(manager)
    assert not manager.admit(other, step=200 + num_cohorts, headroom=0)
    assert counts(manager) == before
    assert manager.admit(other, step=201 + num_cohorts, headroom=0)
    assert (other.slot, other.generation) == (1, 2)


def test_idle_pages_make_room_and_the_matched_ones_stay() -> None:
    manager = CacheManager(num_pages=6, num_slots=2)
    for salt in (1, 2):
        holding = admitted(manager, tokens_of(3, salt=salt))
        manager.commit(holding, 48)
        manager.leave(holding, after_step=-1)
    assert counts(manager) == (0, 0, 0, 5)
    again = admitted(manager, tokens_of(3, extra=20, salt=1))
    assert len(again.pages) == 5
    assert len(set(again.pages)) == 5


def test_others_wait_for_a_prefix_that_is_being_written() -> None:
    manager = CacheManager(num_pages=20, num_slots=4)
    other = manager.open(tokens_of(4))

    def must_wait(at_least: int) -> bool:
        manager.match(other)
        return manager.is_being_written(other, at_least=at_least)

    assert not must_wait(16)
    writer = admitted(manager, tokens_of(4, extra=5))
    assert must_wait(16) and must_wait(48)
    assert not must_wait(64)  # one token is left to run: 48 are usable
    manager.commit(writer, 20)
    assert must_wait(32)
    assert not must_wait(48)
    manager.commit(writer, 48)
    assert not must_wait(16)
    assert manager.match(other) == 48


def test_nobody_waits_for_what_differs_or_for_who_left() -> None:
    manager = CacheManager(num_pages=20, num_slots=4)
    writer = admitted(manager, tokens_of(4, salt=1))
    same, different = manager.open(tokens_of(4, salt=1)), manager.open(tokens_of(4, salt=2))
    assert manager.is_being_written(different, at_least=16)
    assert not manager.is_being_written(different, at_least=32)
    assert manager.is_being_written(same, at_least=48)
    manager.arrived(0)
    manager.leave(writer, after_step=1)
    assert not manager.is_being_written(same, at_least=16)


def test_check_finds_a_lost_page() -> None:
    manager = CacheManager(num_pages=6, num_slots=2)
    admitted(manager, tokens_of(2))
    manager.pages.take(1)
    with pytest.raises(AssertionError, match="lost"):
        manager.check()


def test_check_finds_a_page_with_two_holders() -> None:
    manager = CacheManager(num_pages=6, num_slots=2)
    holding = admitted(manager, tokens_of(2))
    manager.pages.give([holding.pages[0]])
    with pytest.raises(AssertionError, match="free and owned"):
        manager.check()


steps = st.lists(
    st.tuples(
        st.sampled_from(["open", "open", "grow", "grow", "commit", "leave", "arrive", "reset"]),
        st.integers(0, 999),
    ),
    max_size=80,
)


@settings(max_examples=150)
@given(steps, st.integers(4, 20), st.integers(2, 6))
def test_nothing_is_lost(history: list[tuple[str, int]], num_pages: int, num_slots: int) -> None:
    manager = CacheManager(num_pages=num_pages, num_slots=num_slots)
    live: list[Holding] = []
    arrived = -1
    for operation, number in history:
        holding = live[number % len(live)] if live else None
        if operation == "open":
            draw = random.Random(number)
            tokens = tokens_of(draw.randint(1, 4), extra=draw.randint(0, 17), salt=number % 3)
            new = manager.open(tokens)
            before = counts(manager)
            manager.match(new)
            if manager.admit(new, step=arrived + 2, headroom=number % 2):
                live.append(new)
            else:
                assert counts(manager) == before
        elif operation == "grow" and holding is not None:
            table = holding.pages[:]
            upto = len(holding.tokens) + number % 20
            pages = manager.reserve(holding, upto)
            if pages is not None:
                assert holding.pages == table + pages and holding.covered >= upto
                holding.tokens += [number] * (upto - len(holding.tokens))
        elif operation == "commit" and holding is not None:
            table = holding.pages[:]
            manager.commit(holding, number % (min(len(holding.tokens), holding.covered) + 1))
            assert holding.pages == table
        elif operation == "leave" and holding is not None:
            live.remove(holding)
            manager.leave(holding, after_step=arrived + number % 3)
        elif operation == "arrive":
            arrived += 1
            manager.arrived(arrived)
        elif operation == "reset":
            manager.reset_cache()
        assert sum(counts(manager)) == num_pages - 1
        held = [page for h in live for page in h.pages[len(h.nodes) :]]
        assert len(set(held)) == len(held)
    for holding in live:
        manager.leave(holding, after_step=arrived)
    manager.arrived(arrived + 3)
    manager.reset_cache()
    assert counts(manager) == (num_pages - 1, 0, 0, 0)
    assert manager.slots.num_free == num_slots - 1


def test_page_counts_are_those_of_tokens() -> None:
    manager = CacheManager(num_pages=9, num_slots=2)
    for length in (1, 15, 16, 17, 33):
        holding = admitted(manager, [3] * length)
        assert len(holding.pages) == pages_of(length)
        manager.leave(holding, after_step=-1)


def drafted_from(manager: CacheManager, tokens: list[int]) -> int:
    """Of a sequence that begins with `tokens`, which are cached, and is let go at once."""
    holding = admitted(manager, [*tokens, 1])
    assert holding.usable == len(tokens)
    manager.leave(holding, after_step=-1)
    return holding.drafted_from


def test_a_prefix_says_from_where_on_a_head_has_all_its_entries() -> None:
    manager = CacheManager(num_pages=20, num_slots=3)
    tokens = tokens_of(4)
    writer = admitted(manager, tokens)
    manager.commit(writer, 2 * PAGE_TOKENS)
    # Tokens 40 to 44 were run without drafts: the page they are in lacks entries.
    writer.drafted_from = 46
    manager.commit(writer, 4 * PAGE_TOKENS)
    assert [node.is_drafted for node in writer.nodes] == [True, True, False, True]
    manager.leave(writer, after_step=-1)
    assert drafted_from(manager, tokens[: 2 * PAGE_TOKENS]) == 1
    # Behind page 2 the hidden state of its last token is gone too.
    assert drafted_from(manager, tokens[: 3 * PAGE_TOKENS]) == 3 * PAGE_TOKENS + 1
    assert drafted_from(manager, tokens) == 3 * PAGE_TOKENS
    assert drafted_from(manager, []) == 1


def test_a_node_that_changes_its_page_has_the_entries_of_the_new_one() -> None:
    manager = CacheManager(num_pages=20, num_slots=3)
    tokens = tokens_of(1, extra=1)
    without, having = admitted(manager, tokens), admitted(manager, tokens, matches=False)
    without.drafted_from = len(tokens)
    manager.commit(without, PAGE_TOKENS)
    [node] = without.nodes
    manager.leave(without, after_step=-1)
    manager.commit(having, PAGE_TOKENS)
    assert having.nodes == [node] and node.page == having.pages[0]
    assert node.is_drafted
    manager.leave(having, after_step=-1)
    manager.check()
