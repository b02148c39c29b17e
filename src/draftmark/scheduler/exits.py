"""How sequences leave the plans: preempted or ended, drained, settled.

The one place that keeps the roster and the cache of one mind about who left.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftmark.cache.manager import CacheManager
from draftmark.scheduler.queue import Sequence, State
from draftmark.scheduler.roster import Roster


@dataclass(slots=True)
class Totals:
    """Running totals since start. `output_tokens` counts ended requests only."""

    steps: int = 0
    prompt_tokens: int = 0
    matched_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    overrun_tokens: int = 0
    preemptions: int = 0
    aborts: int = 0
    rows: int = 0
    bad_rows: int = 0
    first_bad_layer: int = -1
    worker_us: int = 0
    verify_us: int = 0
    draft_us: int = 0


class Exits:
    def __init__(self, *, manager: CacheManager, roster: Roster, totals: Totals) -> None:
        self._manager = manager
        self._roster = roster
        self._totals = totals
        self._arrived = -1

    def preempt(self, sequence: Sequence) -> None:
        """Take its pages and slot. It waits again once its last planned step has a result; tokens
        of results until then still count."""
        sequence.resumes = True
        self._totals.preemptions += 1
        self._leave(sequence)

    def end(self, sequence: Sequence, *, num_output: int) -> None:
        """Its request has its end, with `num_output` tokens; the caller says so to the client."""
        del self._roster.live[sequence.id]
        self._totals.output_tokens += num_output
        sequence.resumes = False
        if sequence.state is State.WAITING:
            self._roster.end(sequence)
        elif sequence.state is not State.DRAINING:
            self._leave(sequence)

    def settle(self, step: int) -> None:
        """The result of `step` is there and committed: let go what waited for it."""
        self._arrived = step
        self._manager.arrived(step)
        if self._roster.draining:
            for sequence in [s for s in self._roster.draining if s.last_step <= step]:
                self._settle(sequence)

    def _leave(self, sequence: Sequence) -> None:
        self._manager.leave(sequence.holding, after_step=sequence.last_step)
        self._roster.drain(sequence)
        if sequence.last_step <= self._arrived:
            self._settle(sequence)

    def _settle(self, sequence: Sequence) -> None:
        if not sequence.resumes:
            self._roster.end(sequence)
            return
        sequence.resumes = False
        sequence.holding = self._manager.open(sequence.tokens)
        sequence.planned = sequence.waits = 0
        # Log-probabilities that were not handed out are gathered anew, from the start.
        sequence.prompt_logprobs = []
        self._roster.wait_again(sequence)
