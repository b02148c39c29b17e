"""The device state of every slot, and what a step makes of it.

`SlotTables` is what every stage keeps: where a slot's pages are, and where it must end. `SlotState`
is stage 0's alone: lengths, pending tokens and who is done; later stages hear of it in the forward
message and keep none of it.

Slot 0 is the dump slot: done for ever, its page table all dump page. A slot is done from its
admission until the return of its last prefill chunk, so that a row out of turn is inert. An
inactive (done) row sits at position 0, stores to the dump page and emits nothing.

Legend: S slots, P pages of a table, N tokens of a step, M rows that sample, B verify rows.
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
    PACKED_FOLD,
    PACKED_GENERATION,
    PACKED_LENGTH,
    PACKED_SLOT,
    PACKED_TOKEN,
    ROW_COLUMNS,
)

# Of a slot's state; the first columns are those of a row (`relay.ROW_COLUMNS`).
_TOKEN, _GENERATION = ROW_COLUMNS, ROW_COLUMNS + 1
STATE_COLUMNS = ROW_COLUMNS + 2
# Where each column of a slot's state is in a return row.
_RETURNED = (PACKED_LENGTH, PACKED_DONE, PACKED_FOLD, PACKED_TOKEN, PACKED_GENERATION)


class SlotTables:
    """Page tables [S, P] and ends [S] of every slot."""

    def __init__(self, *, num_slots: int, max_context: int, device: torch.device) -> None:
        self.max_pages = pages_of(max_context)
        self.pages = torch.zeros((num_slots, self.max_pages), dtype=torch.int32, device=device)
        self.ends = torch.zeros(num_slots, dtype=torch.int64, device=device)

    @torch.inference_mode()
    def reset(self) -> None:
        """No slot is in use."""
        self.pages.zero_()
        self.ends.zero_()

    def apply(self, inputs: PlanInputs) -> None:
        """Admissions, then page-table deltas."""
        if inputs.admits is not None:
            self.pages.index_fill_(0, inputs.admits.slots, 0)
            self.ends.index_copy_(0, inputs.admits.slots, inputs.admits.ends)
        if inputs.pages is not None:
            where = (inputs.pages.slots, inputs.pages.columns)
            self.pages.index_put_(where, inputs.pages.pages.to(torch.int32))

    def batch(self, plan: StepPlan, inputs: PlanInputs, rows: Tensor) -> Batch:
        """What the layers need to know; `rows` [M, ROW_COLUMNS] of the rows that sample."""
        verify = rows[inputs.num_sampling_prefill :]
        active = is_live = verify[:, DONE] == 0
        slots = inputs.verify_slots
        positions = lengths = verify[:, LENGTH] * is_live
        prefill = inputs.prefill
        if prefill is not None:
            positions = torch.cat((prefill.positions, positions))
            below_end = prefill.positions < self.ends.index_select(0, prefill.slots)
            active = torch.cat((below_end, active))
            slots = torch.cat((prefill.slots, slots))
        return Batch(
            positions=positions,
            store=self._store(slots, positions, active),
            prefill=self._spans(plan),
            verify_offset=len(positions) - len(lengths),
            verify_width=1,
            verify_pages=self.pages[:, : inputs.verify_columns].index_select(
                0, inputs.verify_slots
            ),
            verify_lengths=lengths,
            verify_slots=inputs.verify_slots * is_live,
            verify_folds=verify[:, FOLD] * is_live,
        )

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
            spans.append(
                PrefillSpan(offset=offset, count=count, start=row.start, pages=pages, slot=row.slot)
            )
            offset += count
        return tuple(spans)


class SlotState:
    """Lengths, pending tokens and ends of the slots: stage 0's own. `faults` [1] counts return rows
    that came for a generation that is not there any more."""

    def __init__(self, *, num_slots: int, device: torch.device) -> None:
        self.state = torch.zeros((num_slots, STATE_COLUMNS), dtype=torch.int64, device=device)
        self.faults = torch.zeros(1, dtype=torch.int64, device=device)
        self._columns = torch.tensor(_RETURNED, device=device)
        self.reset()

    @torch.inference_mode()
    def reset(self) -> None:
        """No slot is in use."""
        self.state.zero_()
        self.state[:, DONE] = 1
        self.faults.zero_()

    def admit(self, admits: AdmitInputs) -> None:
        slots = admits.slots
        state = torch.zeros((len(slots), STATE_COLUMNS), dtype=torch.int64, device=slots.device)
        state[:, DONE] = 1
        state[:, _GENERATION] = admits.generations
        self.state.index_copy_(0, slots, state)

    def apply_return(self, packed: Tensor) -> None:
        """`packed` [M, PACKED_COLUMNS] is how the rows of an earlier step came out."""
        slots = packed[:, PACKED_SLOT]
        generations = packed[:, PACKED_GENERATION]
        state = self.state.index_select(0, slots)
        self.faults += (state[:, _GENERATION] != generations).sum()
        self.state.index_copy_(0, slots, packed.index_select(1, self._columns))

    def rows(self, inputs: PlanInputs) -> tuple[Tensor, Tensor]:
        """(ids [N], rows [M, ROW_COLUMNS]) of a step. The last token of a prefill row that samples
        is like a verify row's pending token: what is before it is written."""
        verify = self.state.index_select(0, inputs.verify_slots)
        ids, rows = verify[:, _TOKEN], verify[:, :ROW_COLUMNS]
        if inputs.prefill is not None:
            ids = torch.cat((inputs.prefill.ids, ids))
            lengths = inputs.prefill.sampling_lengths
            own = torch.zeros((len(lengths), ROW_COLUMNS), dtype=torch.int64, device=rows.device)
            own[:, LENGTH] = lengths
            rows = torch.cat((own, rows))
        return ids, rows


def slot_bytes(*, max_context: int) -> int:
    """Device bytes one slot costs on every stage beside its cache, those of stage 0 included."""
    return 8 * (STATE_COLUMNS + 1) + 4 * pages_of(max_context)
