"""What became of drafts: totals since start, running rates by position, and whether it is sane.

A draft at position j of a window (1 is the first) is *judged* when all before it were accepted and
the sequence did not end before it; the rate of a position is the share of judged ones that were
accepted. So rates are conditional, and those of positions that have not been drafted lately keep
what is known of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from draftmark.core.step import ResultRow

# Judged drafts after which what is new weighs as much as all before: a change of traffic shows
# within some hundred tokens, and one row's luck does not.
_MEMORY = 256
# What is believed of a position before anything was judged there, and how many drafts that is worth
# (a belief too low would never be put to the test).
_PRIOR_RATE, _PRIOR_DRAFTS = 0.8, 16
# Windows after which acceptance is looked at, and how little of it is no longer believable: a head
# that is of any use emits more than this many tokens a window for each draft, beside the one that
# is always emitted.
HEALTH_ROUNDS = 1000
_LEAST_PER_DRAFT = 0.1


class Acceptance:
    """Of windows with drafts. `judged` and `accepted` are totals by position; `rounds` counts
    windows, `emitted` their tokens. `low_length` is the mean length of the last `HEALTH_ROUNDS`
    windows where it is too low to believe, None where it is not; `num_low` counts those times."""

    def __init__(self, max_drafts: int) -> None:
        self.judged = [0] * max_drafts
        self.accepted = [0] * max_drafts
        self.rounds = 0
        self.drafted = 0
        self.emitted = 0
        self.low_length: float | None = None
        self.num_low = 0
        self._judged_lately = [float(_PRIOR_DRAFTS)] * max_drafts
        self._accepted_lately = [_PRIOR_RATE * _PRIOR_DRAFTS] * max_drafts
        # Totals at the last look at the health.
        self._looked_at = (0, 0, 0)

    def observe(self, rows: Iterable[ResultRow]) -> None:
        """The verify rows of one step."""
        judged, accepted = [0] * len(self.judged), [0] * len(self.judged)
        for row in rows:
            drafted, emitted = row.drafted, len(row.emitted)
            if not drafted or not emitted:
                continue
            self.rounds += 1
            self.drafted += drafted
            self.emitted += emitted
            # What stands behind the end of a sequence is not judged.
            for position in range(min(drafted, emitted - row.done)):
                judged[position] += 1
            for position in range(emitted - 1):
                accepted[position] += 1
        for position, count in enumerate(judged):
            if count:
                self._add(position, count, accepted[position])
        if self.rounds - self._looked_at[0] >= HEALTH_ROUNDS:
            self._look_at_health()

    def rate(self, position: int) -> float:
        """How likely a draft at `position` (from 1) is accepted when all before it are."""
        return self._accepted_lately[position - 1] / self._judged_lately[position - 1]

    def expected(self, drafts: int) -> float:
        """Tokens that a window with so many drafts is expected to emit."""
        length, chance = 1.0, 1.0
        for position in range(1, drafts + 1):
            chance *= self.rate(position)
            length += chance
        return length

    def doubt(self, drafts: int) -> None:
        """Positions beyond `drafts` are tried again: what was known of them counts no more than a
        belief, so that a short trial decides."""
        for position in range(drafts, len(self.judged)):
            share = min(1.0, _PRIOR_DRAFTS / self._judged_lately[position])
            self._judged_lately[position] *= share
            self._accepted_lately[position] *= share

    def _add(self, position: int, judged: int, accepted: int) -> None:
        self.judged[position] += judged
        self.accepted[position] += accepted
        kept = 0.5 ** (judged / _MEMORY)
        self._judged_lately[position] = self._judged_lately[position] * kept + judged
        self._accepted_lately[position] = self._accepted_lately[position] * kept + accepted

    def _look_at_health(self) -> None:
        rounds, drafted, emitted = (
            now - before
            for now, before in zip(
                (self.rounds, self.drafted, self.emitted), self._looked_at, strict=True
            )
        )
        length = emitted / rounds
        is_low = length <= 1 + _LEAST_PER_DRAFT * drafted / rounds
        self.low_length = length if is_low else None
        self.num_low += is_low
        self._looked_at = (self.rounds, self.drafted, self.emitted)
