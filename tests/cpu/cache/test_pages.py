"""The free list and the slots: handed out once, taken back once."""

from __future__ import annotations

import pytest

from draftmark.cache.pages import PageAllocator
from draftmark.cache.slots import SlotAllocator


def test_pages_are_handed_out_once_and_never_the_dump_page() -> None:
    pages = PageAllocator(9)
    first, rest = pages.take(3), pages.take(5)
    assert sorted(first + rest) == list(range(1, 9))
    assert pages.num_free == 0
    pages.give(first)
    assert pages.free_pages() == frozenset(first)


@pytest.mark.parametrize("wrong", [0, 9, -1, 4])
def test_a_page_that_was_not_handed_out_is_not_taken_back(wrong: int) -> None:
    pages = PageAllocator(9)
    pages.take(3)
    with pytest.raises(AssertionError):
        pages.give([wrong])


def test_more_pages_than_there_are_is_a_fault() -> None:
    with pytest.raises(AssertionError):
        PageAllocator(4).take(4)


def test_a_pool_has_a_page_beside_the_dump_page() -> None:
    with pytest.raises(ValueError, match="dump page"):
        PageAllocator(1)


def test_generations_rise_by_one_in_each_slot() -> None:
    slots = SlotAllocator(3, num_cohorts=1)
    assert [slots.take() for _ in range(2)] == [(1, 1), (2, 1)]
    slots.give(2, last_step=4)
    slots.give(1, last_step=5)
    assert [slots.take() for _ in range(2)] == [(2, 2), (1, 2)]


def test_a_slot_is_not_given_back_twice() -> None:
    slots = SlotAllocator(3, num_cohorts=1)
    slots.take()
    slots.give(1, last_step=0)
    for wrong in (0, 1, 2, 3):
        with pytest.raises(AssertionError):
            slots.give(wrong, last_step=0)
