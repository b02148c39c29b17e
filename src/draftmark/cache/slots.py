"""Which slots (places for the device state of one sequence) are free, and their generations.

A slot is handed out under a new generation each time, so that a row or result of an earlier
sequence in the same slot is recognised. The return of a step is applied on the first stage by the
head of the step `num_cohorts` later: a slot rests until that step is behind.
"""

from __future__ import annotations

from collections import deque


class SlotAllocator:
    """Slots 1 .. num_slots - 1; slot 0 is the dump slot and is never handed out."""

    def __init__(self, num_slots: int, *, num_cohorts: int) -> None:
        if num_slots < 2:
            raise ValueError(f"slots are the dump slot and one more at least, got {num_slots}")
        self.total = num_slots - 1
        self._num_cohorts = num_cohorts
        self._generations = [0] * num_slots
        self._is_free = bytearray(b"\1") * num_slots
        self._is_free[0] = 0
        # (slot, last step that held it), in order of release: the longest rested goes out first.
        never = -num_cohorts - 1
        self._free = deque((slot, never) for slot in range(1, num_slots))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def can_take(self, *, step: int, is_quiet: bool) -> bool:
        """Whether plan `step` may use a slot. `is_quiet` says that no step is without a result:
        then the return of the last step is applied at the head of the next one, before its admits,
        and a slot need not rest.
        """
        if not self._free:
            return False
        return is_quiet or step > self._free[0][1] + self._num_cohorts

    def take(self) -> tuple[int, int]:
        """(slot, generation); generations of a slot rise by one from 1."""
        slot, _ = self._free.popleft()
        self._is_free[slot] = 0
        self._generations[slot] += 1
        return slot, self._generations[slot]

    def give(self, slot: int, *, last_step: int) -> None:
        """Take a slot back once the result of `last_step`, the last that held it, has arrived."""
        assert 0 < slot <= self.total, f"slot {slot} is not of this pool"
        assert not self._is_free[slot], f"slot {slot} was freed twice"
        self._is_free[slot] = 1
        self._free.append((slot, last_step))

    def free_slots(self) -> frozenset[int]:
        """For integrity checks."""
        free = frozenset(slot for slot, _ in self._free)
        assert len(free) == len(self._free) == sum(self._is_free)
        return free
