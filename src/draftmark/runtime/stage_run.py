"""One step on one stage, eagerly: plan in, everything enqueued, nothing read back.

    head        the returns of all steps up to this one - M are applied (stage 0)
    rows        ids and rows from the slots (stage 0), or from the forward lane
    layers      prefill and verify rows in one forward
    tail        hidden states to the next stage; on the last one: sample, return, result

A stage alone is first and last at once; its return lane is then a ring in this process, and
everything else is the same. Only rows that sample get logits, and prompt tokens whose
log-probabilities are wanted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from draftmark.core.step import StepPlan
from draftmark.core.trace import NO_LANE, Operation
from draftmark.layers.batch import Batch
from draftmark.models.stage import Stage
from draftmark.parallel.lanes import Inlet, Label, Outlet, Shape
from draftmark.runtime import sample_state
from draftmark.runtime.debug_sync import COPY, LANE, DebugSync
from draftmark.runtime.directory import SlotDirectory
from draftmark.runtime.drafting import Drafter, Drafting
from draftmark.runtime.inputs import PlanInputs, PrefillInputs, stage_plan
from draftmark.runtime.memory import Caches
from draftmark.runtime.relay import RowLayout, RowWords, StepSize, label_of, own_places
from draftmark.runtime.results import StepPending
from draftmark.runtime.sampler import (
    Override,
    Sampler,
    first_bad_of_rows,
    first_bad_of_windows,
)
from draftmark.runtime.slots import SlotState, SlotTables
from draftmark.runtime.staging import StagingRing

# (step, cohort, operation, lane number): what the stage is at.
Note = Callable[[int, int, Operation, int], None]


class Ends(NamedTuple):
    """The ends of the lanes of one stage. `None` where the stage is the first or the last."""

    forward_in: Inlet | None = None
    forward_out: Outlet | None = None
    return_in: Inlet | None = None
    return_out: Outlet | None = None


@dataclass(frozen=True, slots=True)
class _Due:
    """The return of a step, which stage 0 has yet to apply."""

    label: Label
    shape: Shape


class _Input(NamedTuple):
    """What the layers run on: ids [N] or hidden states [N, H], and the rows they belong to."""

    layers: Tensor
    words: RowWords


class StageRun:
    """Owns the tables of the slots; the caches are written by the forward, and by the snapshots
    that plans ask for."""

    def __init__(
        self,
        stage: Stage,
        *,
        caches: Caches,
        tables: SlotTables,
        state: SlotState | None,
        sampler: Sampler | None,
        drafter: Drafter | None,
        directory: SlotDirectory,
        layout: RowLayout,
        ring: StagingRing,
        ends: Ends,
        cohorts: int,
        note: Note,
        tells: bool,
        sync: DebugSync,
    ) -> None:
        """`state` is there on the first stage, `sampler` on the last, and there also a `drafter`
        where anything drafts; the last stage's first tensor rank tells the host what a step gave
        (`tells`)."""
        self.tables = tables
        self.state = state
        self.busy_us = 0
        self._stage = stage
        self._caches = caches
        self._sampler = sampler
        self._drafter = drafter
        self._directory = directory
        self._layout = layout
        self._ring = ring
        self._ends = ends
        self._cohorts = cohorts
        self._note = note
        self._tells = tells
        self._sync = sync
        self._due: deque[_Due] = deque()

    @property
    def pool_bytes(self) -> int:
        return self._caches.nbytes

    @torch.inference_mode()
    def launch(self, plan: StepPlan, *, override: Override | None = None) -> StepPending:
        """Enqueue `plan`. Raises `AssertionError` for a plan that contradicts those before it."""
        self._directory.accept(plan)
        size, label = StepSize.of(plan, self._layout), label_of(plan)
        staging = self._ring.take()
        pending = StepPending(plan, staging)
        self._sync.around(COPY)
        inputs = stage_plan(plan, staging, self._directory, label=label)
        self._sync.around(COPY)
        self._apply(plan, inputs, _Due(label, size.backward))
        given = self._receive(plan, inputs, size=size, label=label)
        pending.computing()
        self._say(plan, Operation.COMPUTE)
        batch = self.tables.batch(plan, inputs, given.words.rows)
        out = self._stage.forward(given.layers, batch, self._caches.layers)
        for row in plan.prefill:
            if row.snapshot >= 0:
                self._caches.save(row.slot, row.snapshot)
        self._compare(out.hidden, plan, "hidden states")
        is_own = None
        if batch.verify_width > 1:
            ends = self.tables.ends.index_select(0, inputs.verify_slots)
            rows = given.words.rows[inputs.num_sampling_prefill :]
            is_own = own_places(rows, ends=ends, width=batch.verify_width)
        bad = _first_bad(given.words, out.bad_layer, batch, inputs, is_own)
        words = RowWords(given.words.faults, given.words.rows, bad)
        if self._sampler is not None:
            self._finish(plan, inputs, batch, words, is_own, out.hidden, size, pending, override)
        else:
            self._pass_on(plan, inputs, words, out.hidden, size)
        if self._ends.forward_in is not None:
            self._ends.forward_in.release()
        self._sync.around(COPY)
        pending.enqueued()
        self._say(plan, Operation.IDLE)
        return pending

    @torch.inference_mode()
    def zero_pages(self, count: int) -> None:
        """Make the first `count` pages, and the states of all slots, hold zeros, so that they can
        be claimed as cached."""
        self._caches.zero(count)

    @torch.inference_mode()
    def reset(self) -> None:
        """Forget every slot and step. No step may be in flight; pages keep what they hold."""
        while self._due:
            self._apply_return(self._due.popleft())
        self.tables.reset()
        if self.state is not None:
            self.state.reset()
        self._directory.reset()

    def _apply(self, plan: StepPlan, inputs: PlanInputs, due: _Due) -> None:
        """The head of a step: returns that are due, then admissions and pages."""
        state = self.state
        if state is not None:
            while self._due and self._due[0].label.step <= plan.step - self._cohorts:
                self._apply_return(self._due.popleft())
            if inputs.admits is not None:
                state.admit(inputs.admits)
            if len(inputs.sampling_slots):
                self._due.append(due)
        self.tables.apply(inputs)
        for admit in plan.admits:
            if admit.restore >= 0:
                self._caches.restore(admit.slot, admit.restore)
        if self._sampler is not None and inputs.admits is not None:
            sample_state.admit(self._sampler.tables, inputs.admits)

    def _apply_return(self, due: _Due) -> None:
        lane = self._ends.return_in
        assert lane is not None and self.state is not None
        step, cohort, _ = due.label
        self._note(step, cohort, Operation.RETURN, lane.format.number)
        parcel = lane.receive(due.shape, due.label)
        self._sync.around(LANE)
        self.state.apply_return(parcel.words.view(-1, self._layout.packed_columns))
        lane.release()

    def _receive(
        self, plan: StepPlan, inputs: PlanInputs, *, size: StepSize, label: Label
    ) -> _Input:
        if self.state is not None:
            ids, rows = self.state.rows(inputs, width=plan.verify_k + 1)
            clean = torch.full((size.num_rows,), -1, dtype=torch.int64, device=rows.device)
            return _Input(ids, RowWords(self.state.faults, rows, clean))
        lane = self._ends.forward_in
        assert lane is not None
        self._say(plan, Operation.RECEIVE)
        parcel = lane.receive(size.forward, label)
        self._sync.around(LANE)
        return _Input(parcel.hidden, size.split(parcel.words))

    def _pass_on(
        self, plan: StepPlan, inputs: PlanInputs, words: RowWords, hidden: Tensor, size: StepSize
    ) -> None:
        lane = self._ends.forward_out
        assert lane is not None
        self._say(plan, Operation.SEND)
        parcel = lane.open(size.forward)
        parcel.label.copy_(inputs.label)
        parcel.hidden.copy_(hidden)
        for section, value in zip(size.split(parcel.words), words, strict=True):
            section.copy_(value)
        self._sync.around(LANE)
        lane.send()
        self._sync.around(LANE)

    def _finish(
        self,
        plan: StepPlan,
        inputs: PlanInputs,
        batch: Batch,
        words: RowWords,
        is_own: Tensor | None,
        every_hidden: Tensor,
        size: StepSize,
        pending: StepPending,
        override: Override | None,
    ) -> None:
        """Sample, draft, send the rows back, and collect what the host is to know."""
        sampler, lane = self._sampler, self._ends.return_out
        assert sampler is not None and lane is not None
        bad_layer, hidden = words.bad_layer, every_hidden
        prefill, num_prefill = inputs.prefill, len(plan.prefill)
        if prefill is not None:
            bad_rows, bad_verify = bad_layer[:num_prefill].clone(), bad_layer[num_prefill:]
            self._prompt_logprobs(plan, prefill, hidden, bad_rows, pending)
            pending.collect_bad_prefill(bad_rows)
            bad_layer = torch.cat((bad_rows[prefill.sampling_rows], bad_verify))
            verify = hidden[len(prefill.ids) :]
            hidden = torch.cat((hidden[prefill.last_tokens], verify))
        if size.num_sampling:
            sampled = sampler.run(
                plan,
                inputs,
                rows=words.rows,
                is_own=is_own,
                hidden=hidden,
                bad_layer=bad_layer,
                directory=self._directory,
                override=override,
            )
            self._draft(plan, inputs, batch, every_hidden, sampled.packed, pending)
            self._compare(sampled.packed, plan, "return rows")
            self._say(plan, Operation.SEND)
            parcel = lane.open(size.backward)
            parcel.label.copy_(inputs.label)
            parcel.words.copy_(sampled.packed.view(-1))
            self._sync.around(LANE)
            lane.send()
            self._sync.around(LANE)
            # Stage 0 waits for the return, the host only for the result.
            pending.collect_rows(sampled)
        else:
            self._draft(plan, inputs, batch, every_hidden, None, pending)
        if self._tells:
            pending.collect_faults(words.faults)

    def _draft(
        self,
        plan: StepPlan,
        inputs: PlanInputs,
        batch: Batch,
        hidden: Tensor,
        packed: Tensor | None,
        pending: StepPending,
    ) -> None:
        """Tell the drafter of the step; it writes into `packed`, where there is any."""
        if self._drafter is None:
            return
        pending.drafting()
        self._drafter.draft(
            Drafting(
                plan=plan,
                inputs=inputs,
                batch=batch,
                packed=packed,
                hidden=hidden,
                layout=self._layout,
                max_drafts=self.tables.max_drafts,
            )
        )
        pending.drafted()

    def _prompt_logprobs(
        self,
        plan: StepPlan,
        prefill: PrefillInputs,
        hidden: Tensor,
        bad_rows: Tensor,
        pending: StepPending,
    ) -> None:
        assert self._sampler is not None
        offset = 0
        for index, row in enumerate(plan.prefill):
            count = len(row.ids) - row.is_last  # what follows the last token is not known yet
            if row.prompt_logprobs >= 0:
                parts = self._sampler.prompt_logprobs(
                    hidden[offset : offset + count],
                    chosen=prefill.next_ids[offset : offset + count],
                    top=row.prompt_logprobs,
                    bad_layer=bad_rows[index : index + 1],
                )
                pending.collect_prompt(index, offset=offset, parts=parts)
            offset += len(row.ids)

    def _compare(self, value: Tensor, plan: StepPlan, what: str) -> None:
        """Only for debugging: are the tensor ranks still of one mind?"""
        if LANE in self._sync.kinds:
            placement = self._stage.placement
            stage = placement.mesh.stage
            where = f"{what} of stage {stage}, step {plan.step}, cohort {plan.cohort}"
            self._sync.compare(placement.group, value, where)

    def _say(self, plan: StepPlan, operation: Operation) -> None:
        ends = self._ends
        lane: Inlet | Outlet | None = None
        match operation:
            case Operation.RECEIVE:
                lane = ends.forward_in
            case Operation.SEND:
                lane = ends.forward_out or ends.return_out
        number = NO_LANE if lane is None else lane.format.number
        self._note(plan.step, plan.cohort, operation, number)


def _first_bad(
    given: RowWords, found: Tensor, batch: Batch, inputs: PlanInputs, is_own: Tensor | None
) -> Tensor:
    """First bad layer of each row of the plan [R + B], prefill rows first: what earlier stages
    found, or what this one did in `found` [N] tokens, of windows those that `is_own` [B, q]."""
    before, prefill = given.bad_layer, inputs.prefill
    own = found[batch.verify_offset :].to(torch.int64)
    if is_own is not None:
        own = first_bad_of_windows(own.view(is_own.shape), is_own)
    if prefill is not None:
        num_prefill = len(before) - len(own)
        of_tokens = found[: batch.verify_offset].to(torch.int64)
        own = torch.cat((first_bad_of_rows(of_tokens, prefill.rows, num_rows=num_prefill), own))
    return torch.where(before >= 0, before, own)
