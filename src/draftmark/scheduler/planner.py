"""Builds the plan of one turn from what the host knows: verify rows of the turn's cohort first,
then prompts in what is left.

Plans are blind. Of a running sequence the host knows an upper bound of its length, and plans a
verify row while that bound is below its end and its pages cover it. A prefilling sequence is of no
cohort: its chunks go into any turns, one after the other, until the last one gives it a cohort.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, islice

from draftmark.cache.manager import CacheManager
from draftmark.core.step import Admit, PageDelta, PrefillRow, StepPlan, VerifyRow
from draftmark.scheduler import policy
from draftmark.scheduler.costs import CostTable
from draftmark.scheduler.draft_count import DraftCount
from draftmark.scheduler.exits import Exits, Totals
from draftmark.scheduler.policy import Limits, Share
from draftmark.scheduler.queue import Sequence, State, by_order
from draftmark.scheduler.roster import Roster


@dataclass(slots=True)
class Chunk:
    """Tokens `start` .. `stop` - 1 of a sequence, planned as one prefill row."""

    sequence: Sequence
    start: int
    stop: int
    is_last: bool
    samples: bool


@dataclass(slots=True)
class InFlight:
    """A plan without result: which sequences its rows are, in the plan's order. Each verify row
    runs `width` tokens, behind about `context` others, and gets `drafts` for its next."""

    step: int
    cohort: int
    width: int = 1
    drafts: int = 0
    context: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    verify: list[Sequence] = field(default_factory=list)
    admits: list[Admit] = field(default_factory=list)
    deltas: list[PageDelta] = field(default_factory=list)


class Planner:
    def __init__(
        self,
        limits: Limits,
        *,
        costs: CostTable,
        draft_count: DraftCount,
        manager: CacheManager,
        roster: Roster,
        exits: Exits,
        totals: Totals,
    ) -> None:
        self._limits = limits
        self._costs = costs
        self._draft_count = draft_count
        self._manager = manager
        self._roster = roster
        self._exits = exits
        self._totals = totals
        self._cohorts = roster.cohorts
        # Cohorts in whose last turn a row lacked a page.
        self._lacking: set[int] = set()
        self._round_end = 0
        self._part = 0

    def plan(self, step: int) -> tuple[StepPlan, InFlight] | None:
        """The plan of `step`, or None when no sequence can take part in this turn."""
        cohorts = self._cohorts
        if cohorts.may_be_uneven:
            cohorts.rebalance(step)
        draft = InFlight(step, step % len(cohorts.all))
        rows = self._plan_verify(draft)
        prefill: list[PrefillRow] = []
        if self._roster.prefilling or self._roster.waiting:
            prefill = self._plan_prefill(draft)
        if not rows and not prefill:
            return None
        plan = StepPlan(
            step,
            draft.cohort,
            draft.width - 1,
            draft.drafts,
            draft.admits,
            draft.deltas,
            prefill,
            rows,
        )
        return plan, draft

    def _plan_verify(self, draft: InFlight) -> list[VerifyRow]:
        """A verify row for each sequence of the cohort that may have one, in order, oldest
        first."""
        step = draft.step
        cohort = self._cohorts.all[draft.cohort]
        if self._lacking:
            self._lacking.discard(draft.cohort)
        if self._limits.max_drafts:
            draft.width = 1 + max((sequence.drafts for sequence in cohort.rows), default=0)
            draft.context = cohort.context
            draft.drafts = self._draft_count.choose(
                draft.cohort, cohort.rows, context=draft.context
            )
        members, width, drafts = draft.verify, draft.width, draft.drafts
        for sequence in cohort.rows:
            bound = sequence.bound
            if bound + width > sequence.horizon and not self._extend(sequence, draft):
                continue
            sequence.ahead += width
            sequence.bound = min(bound + width, sequence.most)
            sequence.drafts = min(drafts, sequence.max_drafts) if drafts else 0
            sequence.last_step = step
            cohort.tokens += sequence.bound - bound
            members.append(sequence)
        if members and self._limits.max_drafts:
            self._draft_count.took(draft.cohort, drafts, rows=len(members))
        return [sequence.row for sequence in members]

    def _extend(self, sequence: Sequence, draft: InFlight) -> bool:
        """Make room for one more window; False when the sequence must sit this step out: what its
        last step gave is not applied yet, its steps without result may reach its end already, or
        there is no page yet. What a window runs beyond the end needs no room.

        For want of pages the last in order is preempted, but not while anything drains: those
        pages come by themselves. A victim comes after every sequence planned so far, so removing it
        does not disturb the loop over the cohort's rows.
        """
        bound = sequence.bound
        if bound + 1 >= sequence.end:
            return False
        if sequence.last_step > draft.step - self._limits.num_cohorts:
            return False
        holding = sequence.holding
        # A head that drafts has entries as far as its drafts go.
        upto = min(bound + draft.width + self._limits.max_drafts, sequence.end)
        while (pages := self._manager.reserve(holding, upto)) is None:
            self._lacking.add(draft.cohort)
            if self._roster.draining:
                return False
            victim = policy.victim(self._roster.active)
            self._exits.preempt(victim)
            if victim is sequence:
                return False
        if pages:
            first = len(holding.pages) - len(pages)
            draft.deltas.append(PageDelta(sequence.slot, sequence.generation, first, pages))
        is_whole = holding.covered >= sequence.end
        covered = sequence.end if is_whole else holding.covered - self._limits.max_drafts
        sequence.horizon = min(covered, sequence.end - 1)
        return True

    def _plan_prefill(self, draft: InFlight) -> list[PrefillRow]:
        """Chunks for prompts that are under way and for waiting ones, sharing one budget."""
        roster = self._roster
        # A running sequence that lacks pages comes first, and order is kept among the waiting.
        is_full = bool(self._lacking) or roster.num_active >= self._limits.max_running
        waiting = list(islice(roster.waiting, 0 if is_full else self._limits.lookahead))
        share = Share(self._prefill_budget(draft.step, waiting, drafts=draft.drafts))
        takers: list[Sequence] = []
        takes: list[int] = []
        admitted: list[Sequence] = []
        for sequence in merge(roster.prefilling, waiting, key=by_order):
            if share.is_spent:
                break
            is_new = sequence.state is State.WAITING
            if is_new and (is_full or self._awaits_prefix(sequence)):
                continue
            remaining = len(sequence.tokens) - sequence.planned
            # State is saved at the end of a chunk only.
            saves = sequence.holding.saves
            most = saves[0] - sequence.planned if saves else remaining
            priority = sequence.order[0]
            tokens = share.offer(priority=priority, remaining=remaining, most=most)
            if tokens == 0:
                continue
            if is_new:
                num_active = roster.num_active + len(admitted)
                if not self._admit(sequence, draft, num_active=num_active):
                    is_full = True
                    continue
                admitted.append(sequence)
            share.accept(priority=priority, remaining=remaining, most=most, tokens=tokens)
            takers.append(sequence)
            takes.append(tokens)
        for sequence in admitted:
            roster.start(sequence)
        if takers:
            takes[0] = share.first_tokens
        return [self._chunk(s, count, draft) for s, count in zip(takers, takes, strict=True)]

    def _prefill_budget(self, step: int, waiting: list[Sequence], *, drafts: int) -> int:
        """Prompt tokens of this turn: what the first turn of its round found for all of them. A
        round begins with the first turn that asks after the end of the last one."""
        if step >= self._round_end:
            prefilling, num_cohorts = self._roster.prefilling, self._limits.num_cohorts
            self._round_end = step + num_cohorts
            left = sum(len(s.tokens) - s.planned for s in chain(prefilling, waiting))
            fullest = self._cohorts.fullest
            budget = policy.prefill_budget(
                self._limits,
                self._costs,
                verify=(len(fullest.rows), fullest.context),
                prefill_context=max((sequence.planned for sequence in prefilling), default=0),
                drafts=drafts,
            )
            self._part = policy.part_of_turn(budget, left=left, num_cohorts=num_cohorts)
        return self._part

    def _awaits_prefix(self, sequence: Sequence) -> bool:
        """Look up the cached prefix of a waiting sequence; True when it pays to wait because
        another sequence is writing more of it right now, and it has not waited too often."""
        holding = sequence.holding
        if not sequence.wants_prompt_logprobs:
            sequence.planned = self._manager.match(holding)
        if self._manager.can_save:
            self._manager.will_save(holding, self._snapshot_positions(sequence))
        if sequence.wants_prompt_logprobs:
            return False
        if sequence.waits >= self._limits.max_prefix_waits * self._limits.num_cohorts:
            return False
        at_least = self._limits.min_shared_tokens
        if not self._manager.is_being_written(holding, at_least=at_least):
            return False
        sequence.waits += 1
        return True

    def _snapshot_positions(self, sequence: Sequence) -> list[int]:
        """Those of its prompt; output that a preempted sequence runs again leaves none."""
        return policy.snapshot_positions(
            self._limits,
            usable=sequence.holding.usable,
            matched=sequence.holding.matched,
            num_prompt=sequence.num_prompt,
            history=sequence.request.history_tokens,
        )

    def _admit(self, sequence: Sequence, draft: InFlight, *, num_active: int) -> bool:
        """Give a waiting sequence a slot and pages for all its tokens, if there are any left."""
        if num_active >= self._limits.max_running:
            return False
        holding = sequence.holding
        # A page for everyone who runs, or the newcomer would be preempted within a few steps.
        drafts, num_tokens = self._limits.max_drafts, len(sequence.tokens)
        upto = num_tokens
        if drafts:
            upto = max(num_tokens, min(num_tokens + 1 + drafts, sequence.end))
        if not self._manager.admit(holding, step=draft.step, headroom=num_active, upto=upto):
            return False
        sequence.slot, sequence.generation = holding.slot, holding.generation
        sequence.row = VerifyRow(holding.slot, holding.generation)
        sequence.length = sequence.bound = sequence.planned
        sequence.ahead = sequence.drafts = 0
        if sequence.cached_tokens < 0:
            sequence.cached_tokens = sequence.planned
            self._totals.matched_tokens += holding.matched
            self._totals.cached_tokens += sequence.planned
            self._totals.prompt_tokens += sequence.num_prompt
        told = sequence.planned if self._limits.drafts_from_ids else 0
        draft.admits.append(_admission(sequence, told=told))
        draft.deltas.append(PageDelta(holding.slot, holding.generation, 0, holding.pages[:]))
        return True

    def _chunk(self, sequence: Sequence, count: int, draft: InFlight) -> PrefillRow:
        """The next `count` tokens of a prefilling sequence; after the last it runs."""
        tokens, start = sequence.tokens, sequence.planned
        stop = start + count
        is_last = stop == len(tokens)
        samples = is_last and stop < sequence.end
        wanted = sequence.request.sampling.prompt_logprobs
        saves = sequence.holding.saves
        snapshot = self._manager.save(sequence.holding) if saves and saves[0] == stop else -1
        sequence.planned = sequence.bound = stop
        sequence.ahead += count
        sequence.last_step = draft.step
        if is_last:
            sequence.drafts = min(draft.drafts, sequence.max_drafts)
            self._roster.run(sequence, step=draft.step)
        draft.chunks.append(Chunk(sequence, start, stop, is_last, samples))
        return PrefillRow(
            sequence.slot,
            sequence.generation,
            start,
            tokens[start:stop],
            -1 if is_last else tokens[stop],
            samples,
            wanted if wanted is not None and sequence.wants_prompt_logprobs else -1,
            snapshot,
        )


def _admission(sequence: Sequence, *, told: int) -> Admit:
    """What the device must know: the first `told` ids, all of them where penalties count them."""
    tokens, num_prompt = sequence.tokens, sequence.num_prompt
    if sequence.request.sampling.has_penalties:
        told = len(tokens)
    return Admit(
        sequence.slot,
        sequence.generation,
        sequence.id,
        sequence.planned,
        sequence.end,
        sequence.min_end,
        sequence.request.stop_ids,
        sequence.sampling,
        tokens[: min(told, num_prompt)],
        tokens[num_prompt:told],
        sequence.holding.restore,
        sequence.max_drafts,
        sequence.holding.drafted_from,
    )
