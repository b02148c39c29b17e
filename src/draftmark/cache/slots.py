"""Which slots (places for the device state of one sequence) are free, and their generations.

A slot is handed out under a new generation each time, so that a row or result of an earlier
sequence in the same slot is recognised. The return of a step is applied on the first stage at the
head of the first step that is `num_cohorts` later: a slot rests until such a step is behind, also
when no step is in flight (the scheduler then leaves out as many step ids).
"""

from __future__ import annotations

from heapq import heappop, heappush


class SlotAllocator:
    """Slots 1 .. num_slots - 1; slot 0 is the dump slot and is never handed out."""

    def __init__(self, num_slots: int, *, num_cohorts: int) -> None:
        if num_slots < 2:
            raise ValueError(f"slots are the dump slot and one more at least, got {num_slots}")
        self.total = num_slots - 1
        self.num_cohorts = num_cohorts
        self._generations = [0] * num_slots
        self._is_free = bytearray(b"\1") * num_slots
        self._is_free[0] = 0
        # (last step that held it, slot), a heap: the longest rested goes out first.
        never = -num_cohorts - 1
        self._free = [(never, slot) for slot in range(1, num_slots)]

    @property
    def num_free(self) -> int:
        return len(self._free)

    def can_take(self, *, step: int) -> bool:
        """Whether a slot is free that has rested enough for plan `step` to use it."""
        return bool(self._free) and step > self._free[0][0] + self.num_cohorts

    def take(self) -> tuple[int, int]:
        """(slot, generation); generations of a slot rise by one from 1."""
        _, slot = heappop(self._free)
        self._is_free[slot] = 0
        self._generations[slot] += 1
        return slot, self._generations[slot]

    def give(self, slot: int, *, last_step: int) -> None:
        """Take a slot back once the result of `last_step`, the last that held it, has arrived."""
        assert 0 < slot <= self.total, f"slot {slot} is not of this pool"
        assert not self._is_free[slot], f"slot {slot} was freed twice"
        self._is_free[slot] = 1
        heappush(self._free, (last_step, slot))

    def free_slots(self) -> frozenset[int]:
        """For integrity checks."""
        free = frozenset(slot for _, slot in self._free)
        assert len(free) == len(self._free) == sum(self._is_free)
        return free
