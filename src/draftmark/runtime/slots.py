"""The device state of every slot, and what a step makes of it.

`SlotTables` is what every stage keeps: where a slot's pages are, and where it must end. `SlotState`
is stage 0's alone: lengths, pending tokens and who is done; later stages hear of it in the forward
message and keep none of it.

Slot 0 is the dump slot: done for ever, its page table all dump page. A slot is done from its
admission until the return of its last prefill chunk, so that a row out of turn is inert. An
inactive (done) row sits at position 0, stores to the dump page and emits nothing.

Legend: S slots, P pages of a table, N tokens of a step, M rows that sample, B verify rows, q tokens
of a verify row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from draftmark.cache.spec import PAGE_TOKENS, pages_of
from draftmark.core.step import StepPlan
from draftmark.layers.batch import Batch, PrefillSpan
from draftmark.runtime.inputs import AdmitInputs, PlanInputs
from draftmark.runtime.relay import (
    DONE,
    FOLD,
    LENGTH,
    PACKED_DONE,
    PACKED_DRAFTS,
    PACKED_FOLD,
    PACKED_GENERATION,
    PACKED_LENGTH,
    PACKED_SLOT,
    PACKED_TOKEN,
    TOKEN,
    RowLayout,
)

# Where the first columns of a slot's state are in a return row; its token and drafts follow there
# as here, and last of all a slot has its generation.
_RETURNED = (PACKED_LENGTH, PACKED_DONE, PACKED_FOLD, PACKED_DRAFTS)


class SlotTables:
    """Page tables [S, P], ends [S] and the most drafts of a step [S] of every slot."""

    def __init__(self, *, num_slots: int, max_context: int, device: torch.device) -> None:
        self.max_pages = pages_of(max_context)
        self.pages = torch.zeros((num_slots, self.max_pages), dtype=torch.int32, device=device)
        self.ends = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self.max_drafts = torch.zeros_like(self.ends)

    @torch.inference_mode()
    def reset(self) -> None:
        """No slot is in use."""
        self.pages.zero_()
        self.ends.zero_()
        self.max_drafts.zero_()

    def apply(self, inputs: PlanInputs) -> None:
        """Admissions, then page-table deltas."""
        if inputs.admits is not None:
            self.pages.index_fill_(0, inputs.admits.slots, 0)
            self.ends.index_copy_(0, inputs.admits.slots, inputs.admits.ends)
            self.max_drafts.index_copy_(0, inputs.admits.slots, inputs.admits.max_drafts)
        if inputs.pages is not None:
            where = (inputs.pages.slots, inputs.pages.columns)
            self.pages.index_put_(where, inputs.pages.pages.to(torch.int32))

    def batch(self, plan: StepPlan, inputs: PlanInputs, rows: Tensor) -> Batch:
        """What the layers need to know; `rows` [M, row_columns] of the rows that sample."""
        verify, width = rows[inputs.num_sampling_prefill :], plan.verify_k + 1
        is_live, slots = verify[:, DONE] == 0, inputs.verify_slots
        lengths = verify[:, LENGTH] * is_live
        active = is_live
        positions = lengths
        if width > 1:
            # What lies at or beyond the end is inert, and so must not be out of any table.
            slots = slots.repeat_interleave(width)
            positions = (lengths[:, None] + torch.arange(width, device=rows.device)).flatten()
            active = is_live.repeat_interleave(width)
            active = active & (positions < self.ends.index_select(0, slots))
            positions = positions * active
        prefill = inputs.prefill
        if prefill is not None:
            positions = torch.cat((prefill.positions, positions))
            below_end = prefill.positions < self.ends.index_select(0, prefill.slots)
            active = torch.cat((below_end, active))
            slots = torch.cat((prefill.slots, slots))
        return Batch(
            positions=positions,
            store=self.store(slots, positions, active),
            prefill=self._spans(plan),
            verify_offset=len(positions) - len(lengths) * width,
            verify_width=width,
            verify_pages=self.pages[:, : inputs.verify_columns].index_select(
                0, inputs.verify_slots
            ),
            verify_lengths=lengths,
            verify_slots=inputs.verify_slots * is_live,
            verify_folds=verify[:, FOLD] * is_live,
        )

    def store(self, slots: Tensor, positions: Tensor, active: Tensor) -> Tensor:
        """Flat pool index of each token [N]; inside page 0 for those that must not be stored."""
        page = self.pages[slots, positions // PAGE_TOKENS]
        return (positions % PAGE_TOKENS).add_(page, alpha=PAGE_TOKENS).mul_(active)

    def _spans(self, plan: StepPlan) -> tuple[PrefillSpan, ...]:
        spans = []
        offset = 0
        for row in plan.prefill:
            count = len(row.ids)
            pages = self.pages[row.slot]
            spans.append(
                PrefillSpan(offset=offset, count=count, start=row.start, pages=pages, slot=row.slot)
            )
            offset += count
        return tuple(spans)


class SlotState:
    """Lengths, pending tokens and ends of the slots: stage 0's own. `faults` [1] counts return rows
    that came for a generation that is not there any more."""

    def __init__(self, *, num_slots: int, layout: RowLayout, device: torch.device) -> None:
        self._layout = layout
        columns = state_columns(layout)
        self.state = torch.zeros((num_slots, columns), dtype=torch.int64, device=device)
        self.faults = torch.zeros(1, dtype=torch.int64, device=device)
        tokens = range(PACKED_TOKEN, layout.packed_emitted)
        self._columns = torch.tensor((*_RETURNED, *tokens, PACKED_GENERATION), device=device)
        self.reset()

    @torch.inference_mode()
    def reset(self) -> None:
        """No slot is in use."""
        self.state.zero_()
        self.state[:, DONE] = 1
        self.faults.zero_()

    def admit(self, admits: AdmitInputs) -> None:
        slots = admits.slots
        columns = state_columns(self._layout)
        state = torch.zeros((len(slots), columns), dtype=torch.int64, device=slots.device)
        state[:, DONE] = 1
        state[:, -1] = admits.generations
        self.state.index_copy_(0, slots, state)

    def apply_return(self, packed: Tensor) -> None:
        """`packed` [M, packed_columns] is how the rows of an earlier step came out."""
        slots = packed[:, PACKED_SLOT]
        generations = packed[:, PACKED_GENERATION]
        state = self.state.index_select(0, slots)
        self.faults += (state[:, -1] != generations).sum()
        self.state.index_copy_(0, slots, packed.index_select(1, self._columns))

    def rows(self, inputs: PlanInputs, *, width: int) -> tuple[Tensor, Tensor]:
        """(ids [N], rows [M, row_columns]) of a step whose verify rows run `width` tokens. The last
        token of a prefill row that samples is like a verify row's pending token: what is before it
        is written."""
        columns = self._layout.row_columns
        verify = self.state.index_select(0, inputs.verify_slots)
        ids, rows = verify[:, TOKEN : TOKEN + width].flatten(), verify[:, :columns]
        if inputs.prefill is not None:
            ids = torch.cat((inputs.prefill.ids, ids))
            lengths = inputs.prefill.sampling_lengths
            own = torch.zeros((len(lengths), columns), dtype=torch.int64, device=rows.device)
            own[:, LENGTH] = lengths
            rows = torch.cat((own, rows))
        return ids, rows


def state_columns(layout: RowLayout) -> int:
    return layout.row_columns + 1


def slot_bytes(*, max_context: int, layout: RowLayout) -> int:
    """Device bytes one slot costs on every stage beside its cache, those of stage 0 included."""
    return 8 * (state_columns(layout) + 2) + 4 * pages_of(max_context)
