"""`Scheduler`: requests in, plans out, results in, outputs out. No I/O, no clock, no torch.

    outputs = scheduler.add(requests)       as do abort, finish, fail: what must be said at once
    plan = scheduler.plan()                 None when nothing can be planned now
    outputs = scheduler.commit(result)      results come in the order of their plans

Up to `Limits.depth` plans may be without result. Step ids rise and have gaps: that of a turn in
which a cohort has nothing to run is left out, and so are as many as there are cohorts when nothing
is in flight, so that whatever was planned before is applied on the device and out of the way. Every
request gets exactly one output with `finish`, from whichever of these calls ended it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

import msgspec

from draftmark.cache.manager import CacheManager
from draftmark.cache.snapshots import SnapshotPool
from draftmark.core.messages import DraftStats, DraftUse, EngineStats, RequestOutput
from draftmark.core.request import FinishReason, Request
from draftmark.core.start import CostPoint
from draftmark.core.step import StepPlan, StepResult
from draftmark.core.topology import Topology
from draftmark.scheduler.acceptance import Acceptance
from draftmark.scheduler.admission import end_of, make_sequence, refusal
from draftmark.scheduler.committer import Committer
from draftmark.scheduler.costs import CostTable
from draftmark.scheduler.draft_count import DraftCount
from draftmark.scheduler.exits import Exits, Totals
from draftmark.scheduler.planner import InFlight, Planner
from draftmark.scheduler.policy import Limits
from draftmark.scheduler.queue import Sequence
from draftmark.scheduler.roster import Roster


class Scheduler:
    """Owns every sequence, and through `manager` every page and slot."""

    def __init__(
        self,
        limits: Limits,
        manager: CacheManager,
        *,
        cost_table: Iterable[CostPoint] = (),
        topology: Topology | None = None,
    ) -> None:
        """`topology` says where a layer is that a fault is found in."""
        num_cohorts = limits.num_cohorts
        assert manager.slots.num_cohorts == num_cohorts, "slots rest for another number of cohorts"
        self._limits = limits
        self._depth = limits.depth
        self._num_cohorts = num_cohorts
        self._manager = manager
        self._roster = roster = Roster(num_cohorts)
        self._totals = totals = Totals()
        self._exits = exits = Exits(manager=manager, roster=roster, totals=totals)
        topology = topology or Topology()
        costs = CostTable(cost_table)
        self._acceptance = acceptance = Acceptance(limits.max_drafts)
        self._draft_count = draft_count = DraftCount(
            limits.max_drafts,
            adapts=limits.adapts_drafts,
            costs=costs,
            acceptance=acceptance,
            num_cohorts=num_cohorts,
            num_stages=topology.num_stages,
        )
        self._planner = Planner(
            limits,
            costs=costs,
            draft_count=draft_count,
            manager=manager,
            roster=roster,
            exits=exits,
            totals=totals,
        )
        self._committer = Committer(
            manager=manager,
            roster=roster,
            exits=exits,
            totals=totals,
            acceptance=acceptance,
            draft_count=draft_count,
            topology=topology,
        )
        self._steps: deque[InFlight] = deque()
        self._last_step = -1 - num_cohorts
        self._arrivals = 0
        self._most_output_tokens = 0

    @property
    def in_flight(self) -> int:
        """Plans without result."""
        return len(self._steps)

    @property
    def has_work(self) -> bool:
        """Whether any request awaits its end, or any plan its result."""
        return bool(self._roster.live or self._steps)

    def add(self, requests: Iterable[Request]) -> list[RequestOutput]:
        """Queue the choices of one call, all or none: when one could never run, all of them end
        with status 400."""
        batch = list(requests)
        pages = self._manager.pages.total
        for request in batch:
            reason = refusal(request, max_context=self._limits.max_context, num_pages=pages)
            if reason:
                return [_error(r.id, reason, status=400) for r in batch]
        for request in batch:
            self._arrivals += 1
            end = end_of(request, max_context=self._limits.max_context, num_pages=pages)
            holding = self._manager.open(list(request.prompt_ids))
            self._roster.add(
                make_sequence(
                    request,
                    arrival=self._arrivals,
                    end=end,
                    holding=holding,
                    max_drafts=self._limits.max_drafts,
                )
            )
        return []

    def abort(self, ids: Iterable[int]) -> list[RequestOutput]:
        """The clients left. Unknown and ended ids are ignored: an abort races with an end."""
        outputs = []
        for request_id in ids:
            sequence = self._roster.live.get(request_id)
            if sequence is not None:
                self._totals.aborts += 1
                self._exits.end(sequence, num_output=sequence.num_output)
                outputs.append(
                    RequestOutput(request_id, [], FinishReason.ABORT, drafts=sequence.draft_use)
                )
        return outputs

    def finish(self, request_id: int, num_tokens: int, reason: FinishReason) -> list[RequestOutput]:
        """End a request after its output token number `num_tokens`. The smallest index wins; an
        index that is not reached yet ends it when it is. Unknown and ended ids are ignored."""
        sequence = self._roster.live.get(request_id)
        if sequence is None:
            return []
        beyond = sequence.num_output - num_tokens
        if beyond < 0:
            if sequence.finish_at is None or num_tokens < sequence.finish_at[0]:
                sequence.finish_at = (num_tokens, reason)
                sequence.notice = 0
            return []
        self._totals.overrun_tokens += beyond
        self._exits.end(sequence, num_output=num_tokens)
        return [RequestOutput(request_id, [], reason, drafts=sequence.draft_use)]

    def fail(self, request_id: int, reason: str, *, status: int = 500) -> list[RequestOutput]:
        """End one request with an error; ignored when it is unknown or ended."""
        sequence = self._roster.live.get(request_id)
        if sequence is None:
            return []
        self._exits.end(sequence, num_output=sequence.num_output)
        return [_error(request_id, reason, status=status, drafts=sequence.draft_use)]

    def fail_all(self, reason: str, *, status: int = 500) -> list[RequestOutput]:
        """End every request with an error: the worker is gone, or the server stops."""
        ids = list(self._roster.live)
        return [output for i in ids for output in self.fail(i, reason, status=status)]

    def plan(self) -> StepPlan | None:
        """The next step, or None: as many as allowed are in flight, or no sequence can take part
        in the turn of any cohort.

        Nothing in flight, nothing to plan and somebody waiting is a fault of ours and raises.
        """
        if len(self._steps) >= self._depth:
            return None
        turn = self._last_step + 1
        if not self._steps:
            turn += self._num_cohorts
        for _ in range(self._num_cohorts):
            # Turns count, not plans: one cohort alone must not be planned ahead for all others.
            if self._steps and turn - self._steps[0].step >= self._depth:
                return None
            planned = self._planner.plan(turn)
            if planned is not None:
                plan, step = planned
                self._steps.append(step)
                self._last_step = turn
                return plan
            turn += 1
        if self._roster.live and not self._steps:
            raise AssertionError(f"no progress is possible: {self.describe()}")
        return None

    def commit(self, result: StepResult) -> list[RequestOutput]:
        """Apply the result of the oldest plan without one; one output for each row that gave
        tokens or an end."""
        if not self._steps:
            raise AssertionError(f"a result of step {result.step} came, no plan is in flight")
        return self._committer.commit(self._steps.popleft(), result)

    def reset_cache(self) -> int:
        """Drop every cached page that no sequence uses; returns how many."""
        return self._manager.reset_cache()

    def stats(self) -> EngineStats:
        """Gauges and totals. `engine_us` is the caller's to add.

        Tokens of running requests count as they come, but with stop strings only at the end: the
        host may yet take some back, and a total never falls.
        """
        roster, totals, manager = self._roster, self._totals, self._manager
        running = sum(s.num_output for s in roster.live.values() if not s.request.sampling.stop)
        self._most_output_tokens = max(self._most_output_tokens, totals.output_tokens + running)
        stats = EngineStats(
            waiting=len(roster.waiting),
            running=roster.num_active,
            draining=len(roster.draining),
            pages_total=manager.pages.total,
            pages_free=manager.pages.num_free,
            pages_cached=manager.tree.num_idle,
            slots_total=manager.slots.total,
            slots_free=manager.slots.num_free,
            steps=totals.steps,
            prompt_tokens=totals.prompt_tokens,
            matched_tokens=totals.matched_tokens,
            cached_tokens=totals.cached_tokens,
            output_tokens=self._most_output_tokens,
            overrun_tokens=totals.overrun_tokens,
            preemptions=totals.preemptions,
            aborts=totals.aborts,
            rows=totals.rows,
            bad_rows=totals.bad_rows,
            first_bad_layer=totals.first_bad_layer,
            worker_us=totals.worker_us,
            drafts=self._draft_stats(),
        )
        return stats if manager.snapshots is None else _with_snapshots(stats, manager.snapshots)

    def _draft_stats(self) -> DraftStats | None:
        if not self._limits.max_drafts:
            return None
        acceptance, totals, fullest = self._acceptance, self._totals, self._roster.cohorts.fullest
        return DraftStats(
            windows=acceptance.rounds,
            drafted=acceptance.drafted,
            accepted=sum(acceptance.accepted),
            judged_at=acceptance.judged[:],
            accepted_at=acceptance.accepted[:],
            turns=self._draft_count.turns[:],
            gaps=self._draft_count.num_gaps,
            verify_us=totals.verify_us,
            draft_us=totals.draft_us,
            break_even=self._draft_count.break_even(
                max(len(fullest.rows), 1), context=fullest.context
            ),
            low_length=acceptance.low_length,
            num_low=acceptance.num_low,
        )

    def cohort_loads(self) -> list[tuple[int, int]]:
        """Of each cohort (decoding rows, tokens of KV that they have at most)."""
        return [cohort.load for cohort in self._roster.cohorts.all]

    def describe(self) -> str:
        """One line about the whole state, for people who look for a fault."""
        roster, manager, snapshots = self._roster, self._manager, self._manager.snapshots
        places = f"; {snapshots.num_free} of {snapshots.total} snapshots free" if snapshots else ""
        return (
            f"last step {self._last_step}, {len(self._steps)} in flight; "
            f"{len(roster.waiting)} waiting, {len(roster.prefilling)} prefilling, "
            f"{roster.cohorts.num_rows} running, {len(roster.draining)} draining; of "
            f"{manager.pages.total} pages {manager.pages.num_free} free, {manager.num_owned} "
            f"owned, {manager.num_draining} draining, {manager.num_cached} cached "
            f"({manager.tree.num_idle} idle); {manager.slots.num_free} of {manager.slots.total} "
            f"slots free{places}"
        )

    def check(self) -> None:
        """Raise `AssertionError` when anything is lost, shared by mistake or in the wrong place.

        O(pages + tokens): for tests and idle times.
        """
        roster = self._roster
        roster.check()
        self._manager.check()
        active = [sequence for members in roster.active for sequence in members]
        assert {s.holding for s in active} == self._manager.active
        assert len(active) <= self._limits.max_running
        for sequence in active:
            assert sequence.bound <= sequence.holding.covered
            assert sequence.length <= sequence.bound <= sequence.most
            assert sequence.slot == sequence.holding.slot
        in_flight, last_steps = self._check_steps()
        for sequence in active:
            assert sequence.ahead == in_flight[sequence]
            assert sequence.bound == min(sequence.length + sequence.ahead, sequence.most)
        for sequence in (*active, *roster.draining):
            last = last_steps.get(sequence)
            assert last == sequence.last_step or (last is None and sequence in active)
            assert last is not None or sequence.last_step < self._oldest_step

    @property
    def _oldest_step(self) -> int:
        """All steps before this one have their result."""
        return self._steps[0].step if self._steps else self._last_step + 1

    def _check_steps(self) -> tuple[Counter[Sequence], dict[Sequence, int]]:
        """Check the plans in flight against each other; the tokens that they run of each sequence,
        and the last of them that holds it."""
        num_cohorts = self._num_cohorts
        tokens: Counter[Sequence] = Counter()
        last_steps: dict[Sequence, int] = {}
        before = -1
        for step in self._steps:
            assert before < step.step <= self._last_step, "step ids do not rise"
            assert step.cohort == step.step % num_cohorts
            before = step.step
            for sequence in step.verify:
                last = last_steps.get(sequence, before - num_cohorts)
                assert last <= before - num_cohorts, f"step {before}: a row is planned too soon"
                tokens[sequence] += step.width
                last_steps[sequence] = before
            for chunk in step.chunks:
                tokens[chunk.sequence] += chunk.stop - chunk.start
                last_steps[chunk.sequence] = before
        return tokens, last_steps


def _with_snapshots(stats: EngineStats, snapshots: SnapshotPool) -> EngineStats:
    return msgspec.structs.replace(
        stats,
        snapshots_total=snapshots.total,
        snapshots_used=snapshots.total - snapshots.num_free,
        snapshot_saves=snapshots.saves,
        snapshot_restores=snapshots.restores,
        snapshot_evictions=snapshots.evictions,
    )


def _error(
    request_id: int, message: str, *, status: int, drafts: DraftUse | None = None
) -> RequestOutput:
    error = FinishReason.ERROR
    return RequestOutput(request_id, [], error, error=message, error_status=status, drafts=drafts)
