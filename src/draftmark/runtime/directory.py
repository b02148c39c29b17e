"""What the host of a rank knows of its slots, and the proof that a plan fits to it.

All of it comes from plans; nothing is ever read back from the device. A plan that contradicts it
(wrong generation, a gap in the page table, a row out of turn) is a fault of ours and raises.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftmark.cache.spec import STATE_TOKENS
from draftmark.core.request import MAX_LOGIT_BIAS, MAX_LOGPROBS, MAX_STOP_IDS
from draftmark.core.step import Admit, PageDelta, PrefillRow, RowSampling, StepPlan, VerifyRow
from draftmark.kernels.sample import RowFlag


@dataclass(slots=True)
class SlotInfo:
    """One slot. `flags` are those of `RowFlag`, as a number. `planned` tokens are covered by
    prefill rows so far; after the last chunk that samples the slot is a verify row's
    (`is_sampling`). `last_step` is the last that held it.
    """

    generation: int = 0
    end: int = 0
    min_end: int = 0
    flags: int = 0
    logprobs: int = -1
    has_stop_ids: bool = False
    num_pages: int = 0
    planned: int = 0
    is_sampling: bool = False
    last_step: int = -(2**62)


class SlotDirectory:
    def __init__(
        self,
        *,
        num_slots: int,
        num_pages: int,
        max_pages: int,
        num_cohorts: int = 1,
        num_snapshots: int = 0,
        max_drafts: int = 0,
    ) -> None:
        """`num_slots` and `num_pages` include the dump ones; a table has `max_pages` columns. What
        step n returns is known to the device from step n + `num_cohorts` on."""
        self._num_cohorts = num_cohorts
        self._num_snapshots = num_snapshots
        self._max_drafts = max_drafts
        self._num_pages = num_pages
        self._max_pages = max_pages
        self._num_slots = num_slots
        self.reset()

    def reset(self) -> None:
        """No slot was ever in use, and no step was run."""
        self._slots = [SlotInfo() for _ in range(self._num_slots)]
        self._last_step = -1

    def __getitem__(self, slot: int) -> SlotInfo:
        return self._slots[slot]

    def accept(self, plan: StepPlan) -> None:
        """Enter the plan. Raises `AssertionError` for one that cannot be right."""
        if plan.step <= self._last_step:
            _fail(plan, f"comes after step {self._last_step}")
        if plan.cohort != plan.step % self._num_cohorts:
            _fail(plan, f"is of cohort {plan.cohort} of {self._num_cohorts}")
        if max(plan.verify_k, plan.draft_k) > self._max_drafts:
            _fail(plan, f"has {plan.verify_k} and {plan.draft_k} drafts, of {self._max_drafts}")
        self._last_step = plan.step
        for admit in plan.admits:
            self._admit(plan, admit)
        for delta in plan.pages:
            self._append(plan, delta)
        rows = {row.slot for row in plan.prefill} | {row.slot for row in plan.verify}
        if len(rows) != len(plan.prefill) + len(plan.verify):
            _fail(plan, "has two rows of one slot")
        for prefill in plan.prefill:
            self._prefill(plan, prefill)
        for verify in plan.verify:
            self._verify(plan, verify)

    def _admit(self, plan: StepPlan, admit: Admit) -> None:
        if not 0 < admit.slot < len(self._slots):
            _fail(plan, f"admits to slot {admit.slot} of {len(self._slots)}")
        old = self._slots[admit.slot]
        if admit.generation <= old.generation:
            _fail(plan, f"admits generation {admit.generation} after {old.generation}", admit.slot)
        if plan.step <= old.last_step + self._num_cohorts:
            _fail(plan, f"admits to a slot of step {old.last_step}, too soon", admit.slot)
        if len(admit.stop_ids) > MAX_STOP_IDS or len(admit.sampling.bias) > MAX_LOGIT_BIAS:
            _fail(plan, "has more stop ids or biases than a slot holds", admit.slot)
        if admit.sampling.logprobs > MAX_LOGPROBS:
            _fail(plan, f"asks for {admit.sampling.logprobs} log-probabilities", admit.slot)
        self._check_snapshot(plan, admit.restore, admit.slot, length=admit.cached)
        self._slots[admit.slot] = SlotInfo(
            generation=admit.generation,
            end=admit.end,
            min_end=admit.min_end if admit.stop_ids else 0,
            flags=int(_flags(admit.sampling)),
            logprobs=admit.sampling.logprobs,
            has_stop_ids=bool(admit.stop_ids),
            planned=admit.cached,
            last_step=old.last_step,
        )

    def _append(self, plan: StepPlan, delta: PageDelta) -> None:
        info = self._current(plan, delta)
        if delta.first != info.num_pages:
            _fail(plan, f"puts pages at {delta.first}, {info.num_pages} are there", delta.slot)
        if not all(0 < page < self._num_pages for page in delta.pages):
            _fail(plan, f"hands out pages {delta.pages} of {self._num_pages}", delta.slot)
        info.num_pages += len(delta.pages)
        if info.num_pages > self._max_pages:
            _fail(plan, f"has {info.num_pages} pages, a table {self._max_pages}", delta.slot)

    def _prefill(self, plan: StepPlan, row: PrefillRow) -> None:
        info = self._current(plan, row)
        if row.start != info.planned or not row.ids or info.is_sampling:
            _fail(plan, f"prefills from {row.start}, {info.planned} are planned", row.slot)
        if row.prompt_logprobs > MAX_LOGPROBS:
            _fail(plan, f"asks for {row.prompt_logprobs} log-probabilities", row.slot)
        info.planned += len(row.ids)
        self._check_snapshot(plan, row.snapshot, row.slot, length=info.planned)
        info.last_step = plan.step
        if row.samples and not (row.is_last and info.planned < info.end):
            _fail(plan, "samples where it cannot", row.slot)
        info.is_sampling = row.samples
        if info.planned < info.min_end:
            info.flags |= int(RowFlag.MIN_TOKENS)

    def _verify(self, plan: StepPlan, row: VerifyRow) -> None:
        info = self._current(plan, row)
        if not info.is_sampling:
            _fail(plan, "verifies before the last chunk", row.slot)
        if info.last_step > plan.step - self._num_cohorts:
            _fail(plan, f"verifies a row of step {info.last_step}, too soon", row.slot)
        info.last_step = plan.step

    def _check_snapshot(self, plan: StepPlan, snapshot: int, slot: int, *, length: int) -> None:
        """A snapshot is of whole blocks of tokens, and in its place."""
        if snapshot < 0:
            return
        if snapshot >= self._num_snapshots:
            _fail(plan, f"means snapshot {snapshot} of {self._num_snapshots}", slot)
        if length == 0 or length % STATE_TOKENS != 0:
            _fail(plan, f"means a snapshot at length {length}", slot)

    def _current(self, plan: StepPlan, row: PageDelta | PrefillRow | VerifyRow) -> SlotInfo:
        info = self._slots[row.slot]
        if row.generation != info.generation:
            _fail(plan, f"means generation {row.generation}, {info.generation} is there", row.slot)
        return info


def _flags(sampling: RowSampling) -> RowFlag:
    """`MIN_TOKENS` is added at the last chunk, when the first sampled index is known."""
    flags = RowFlag.PLAIN
    if sampling.bias:
        flags |= RowFlag.BIAS
    penalties = (sampling.presence_penalty, sampling.frequency_penalty)
    if penalties != (0.0, 0.0) or sampling.repetition_penalty != 1.0:
        flags |= RowFlag.PENALTIES
    if sampling.temperature > 0.0:
        flags |= RowFlag.RANDOM
        if sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0:
            flags |= RowFlag.TRUNCATED
    return flags


def _fail(plan: StepPlan, what: str, slot: int | None = None) -> None:
    where = "" if slot is None else f", slot {slot},"
    raise AssertionError(f"plan {plan.step}{where} {what}")
