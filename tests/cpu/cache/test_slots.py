"""A slot is handed out again once a step is behind that applies the return of its last one."""

from __future__ import annotations

import pytest

from draftmark.cache.slots import SlotAllocator


@pytest.mark.parametrize("num_cohorts", [1, 2, 3, 4])
def test_a_new_slot_can_be_taken_at_once(num_cohorts: int) -> None:
    assert SlotAllocator(2, num_cohorts=num_cohorts).can_take(step=0)


@pytest.mark.parametrize("num_cohorts", [1, 2, 3, 4])
def test_a_slot_rests_as_many_steps_as_there_are_cohorts(num_cohorts: int) -> None:
    slots = SlotAllocator(2, num_cohorts=num_cohorts)
    slots.take()
    assert not slots.can_take(step=99)
    slots.give(1, last_step=10)
    assert not slots.can_take(step=10 + num_cohorts)
    assert slots.can_take(step=11 + num_cohorts)


def test_the_longest_rested_goes_out_first_whenever_it_came_back() -> None:
    slots = SlotAllocator(4, num_cohorts=2)
    for _ in range(3):
        slots.take()
    for slot, last_step in ((1, 9), (2, 4), (3, 7)):
        slots.give(slot, last_step=last_step)
    assert slots.can_take(step=7)
    assert slots.take() == (2, 2)
    assert not slots.can_take(step=7)
    assert [slots.take() for _ in range(2)] == [(3, 2), (1, 2)]
