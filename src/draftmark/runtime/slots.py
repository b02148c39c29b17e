"""The device state of every slot, and what a step makes of it.

Slot 0 is the dump slot: done for ever, its page table all dump page. A slot is done from its
admission until its last prefill chunk samples, so that a row out of turn is inert. An inactive
(done) row sits at position 0, stores to the dump page and emits nothing.

Legend: S slots, P pages of a table, N tokens of a step, M rows that sample, B verify rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftmark.cache.spec import PAGE_TOKENS, pages_of
from draftmark.core.request import MAX_LOGIT_BIAS, MAX_STOP_IDS
from draftmark.core.step import StepPlan
from draftmark.kernels.sample import IN_PROMPT, NUM_FLOATS, NUM_INTS, SampleTables
from draftmark.layers.batch import Batch, PrefillSpan
from draftmark.runtime.inputs import AdmitInputs, CountInputs, PlanInputs, PrefillInputs
from draftmark.runtime.staging import DONE, END, LENGTH, TOKEN

STATE_COLUMNS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTensors:
    """Inputs of the forward, and the state of the rows that sample, before they do."""

    ids: Tensor  # [N] int64
    batch: Batch
    state: Tensor  # [M, STATE_COLUMNS] int64


class Slots:
    def __init__(
        self, *, num_slots: int, max_context: int, vocab_size: int, device: torch.device
    ) -> None:
        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros((num_slots, *shape), dtype=dtype, device=device)

        self.max_pages = pages_of(max_context)
        self.state = zeros(STATE_COLUMNS, dtype=torch.int64)
        self.pages = zeros(self.max_pages, dtype=torch.int32)
        self.tables = SampleTables(
            floats=zeros(NUM_FLOATS, dtype=torch.float64),
            ints=zeros(NUM_INTS, dtype=torch.int64),
            stop_ids=zeros(MAX_STOP_IDS, dtype=torch.int64),
            bias_ids=zeros(MAX_LOGIT_BIAS, dtype=torch.int64),
            bias_values=zeros(MAX_LOGIT_BIAS, dtype=torch.float64),
            counts=zeros(vocab_size, dtype=torch.int32),
        )
        self.reset()

    @torch.inference_mode()
    def reset(self) -> None:
        """No slot is in use. Parameters and counts stay: an admission writes those it needs."""
        self.state.zero_()
        self.state[:, DONE] = 1
        self.pages.zero_()

    def apply(self, inputs: PlanInputs) -> None:
        """Admissions, then page-table deltas."""
        if inputs.admits is not None:
            self._admit(inputs.admits)
        if inputs.pages is not None:
            where = (inputs.pages.slots, inputs.pages.columns)
            self.pages.index_put_(where, inputs.pages.pages.to(torch.int32))

    def _admit(self, admits: AdmitInputs) -> None:
        slots, tables = admits.slots, self.tables
        state = torch.zeros((len(slots), STATE_COLUMNS), dtype=torch.int64, device=slots.device)
        state[:, DONE] = 1
        state[:, END] = admits.ends
        self.state.index_copy_(0, slots, state)
        self.pages.index_fill_(0, slots, 0)
        tables.floats.index_copy_(0, slots, admits.floats)
        tables.ints.index_copy_(0, slots, admits.ints)
        tables.stop_ids.index_copy_(0, slots, admits.stop_ids)
        if admits.bias is not None:
            tables.bias_ids.index_copy_(0, admits.bias.slots, admits.bias.ids)
            tables.bias_values.index_copy_(0, admits.bias.slots, admits.bias.values)
        for counts in admits.counts:
            self._count(counts)

    def _count(self, inputs: CountInputs) -> None:
        """Rebuild the penalty counts of a slot from its ids."""
        row = self.tables.counts[inputs.slot]
        row.zero_().index_fill_(0, inputs.prompt_ids, IN_PROMPT)
        row.index_add_(0, inputs.output_ids, torch.ones_like(inputs.output_ids).to(row.dtype))

    def begin(self, plan: StepPlan, inputs: PlanInputs) -> StepTensors:
        """What the forward runs on. The last token of a prefill row that samples becomes the
        slot's pending token, so that from here on such a row is like a verify row."""
        prefill = inputs.prefill
        if prefill is not None and inputs.num_sampling_prefill:
            self._make_pending(inputs, prefill)
        state = self.state.index_select(0, inputs.sampling_slots)
        verify = state[inputs.num_sampling_prefill :]
        ids, positions, slots, active = _verify_tokens(verify, inputs.verify_slots)
        lengths = positions
        if prefill is not None:
            ids = torch.cat((prefill.ids, ids))
            positions = torch.cat((prefill.positions, positions))
            slots = torch.cat((prefill.slots, slots))
            below_end = prefill.positions < self.state[prefill.slots, END]
            active = torch.cat((below_end, active))
        batch = Batch(
            positions=positions,
            store=self._store(slots, positions, active),
            prefill=self._spans(plan),
            verify_offset=len(positions) - len(lengths),
            verify_width=1,
            verify_pages=self.pages[:, : inputs.verify_columns].index_select(
                0, inputs.verify_slots
            ),
            verify_lengths=lengths,
        )
        return StepTensors(ids=ids, batch=batch, state=state)

    def _make_pending(self, inputs: PlanInputs, prefill: PrefillInputs) -> None:
        slots = inputs.sampling_slots[: inputs.num_sampling_prefill]
        state = self.state.index_select(0, slots)
        state[:, LENGTH] = prefill.sampling_lengths
        state[:, TOKEN] = prefill.ids.index_select(0, prefill.last_tokens)
        state[:, DONE] = 0
        self.state.index_copy_(0, slots, state)

    def _store(self, slots: Tensor, positions: Tensor, active: Tensor) -> Tensor:
        """Flat pool index of each token [N]; inside page 0 for those that must not be stored."""
        column = positions // PAGE_TOKENS
        page = self.pages[slots, column].to(torch.int64) * active
        return page * PAGE_TOKENS + positions % PAGE_TOKENS

    def _spans(self, plan: StepPlan) -> tuple[PrefillSpan, ...]:
        spans = []
        offset = 0
        for row in plan.prefill:
            count = len(row.ids)
            pages = self.pages[row.slot]
            spans.append(PrefillSpan(offset=offset, count=count, start=row.start, pages=pages))
            offset += count
        return tuple(spans)

    def finish(self, slots: Tensor, packed: Tensor) -> None:
        """Store the state of rows that sampled: the first columns of `packed` [M, ...]."""
        self.state.index_copy_(0, slots, packed[:, :STATE_COLUMNS])


def _verify_tokens(state: Tensor, slots: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(ids, positions, slots, active) of verify rows [B]; an inactive one sits at position 0."""
    active = state[:, DONE] == 0
    return state[:, TOKEN], state[:, LENGTH] * active, slots, active


def slot_bytes(*, max_context: int, vocab_size: int) -> int:
    """Device bytes one slot costs beside its pages."""
    words = STATE_COLUMNS + NUM_FLOATS + NUM_INTS + MAX_STOP_IDS + 2 * MAX_LOGIT_BIAS
    return 8 * words + 4 * (pages_of(max_context) + vocab_size)
