"""Drafts from the sequence itself, for models without a head: what followed the last time.

The last tokens of a row, 4 of them or as many as match, are looked for in all that came before,
and what followed there is drafted. The longest match wins, among equals the latest one: text that
repeats goes on as it did most recently, an edited copy or a changed pattern more so. A match so
near that fewer than k tokens follow it is a repetition with that period, and is drafted as one: a
loop gets all its drafts, not one a period. A row without a match has none.

The ids of every slot are kept on the device, and nothing is read from there: the search is the same
work for any content. They come with admissions (what the prefix cache had, which no prefill row
brings), prefill rows, and the tokens that steps sampled.

Legend: S slots, C tokens of a context, W tokens searched, M rows that sample, k drafts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from draftmark.cache.spec import PAGE_TOKENS, pages_of
from draftmark.runtime.drafting import Drafting, Seat
from draftmark.runtime.inputs import AdmitInputs, PrefillInputs
from draftmark.runtime.relay import PACKED_DONE, PACKED_EMITTED, PACKED_LENGTH

# As prompt lookup is mostly run: one equal token is worth a draft, more than four say no more.
MIN_MATCH, MAX_MATCH = 1, 4
# Elements of one [M, W] temporary: half a megabyte of ids, which stays in the cache.
CHUNK_ELEMENTS = 1 << 17
# Of one element: ids, indices, sizes, and three comparisons.
_ELEMENT_BYTES = 4 + 4 + 1 + 3
_DTYPE = torch.int32


class NgramDrafter:
    def __init__(self, seat: Seat) -> None:
        tables = seat.tables
        shape = (len(tables.ends), tables.max_pages * PAGE_TOKENS)
        self._directory = seat.directory
        self._history = torch.zeros(shape, dtype=_DTYPE, device=tables.ends.device)

    def draft(self, step: Drafting) -> None:
        plan, inputs, packed = step.plan, step.inputs, step.packed
        if inputs.admits is not None:
            self._note_admits(inputs.admits)
        if inputs.prefill is not None:
            self._note_prefill(inputs.prefill)
        if packed is None:
            return
        self._note_sampled(step, packed)
        if plan.draft_k > 0:
            # A pending token may be the first behind the pages of its slot.
            pages = max(self._directory[row.slot].num_pages for row in plan.sampling)
            drafts, found = propose(
                self._history,
                slots=inputs.sampling_slots,
                length=packed[:, PACKED_LENGTH],
                columns=pages * PAGE_TOKENS + 1,
                k=plan.draft_k,
            )
            is_meant = found & (packed[:, PACKED_DONE] == 0)
            step.enter(drafts, is_meant * plan.draft_k)

    def _note_admits(self, admits: AdmitInputs) -> None:
        for told in admits.told:
            row, num_prompt = self._history[told.slot], len(told.prompt_ids)
            row[:num_prompt] = told.prompt_ids
            row[num_prompt : num_prompt + len(told.output_ids)] = told.output_ids

    def _note_prefill(self, prefill: PrefillInputs) -> None:
        where = (prefill.slots, prefill.positions)
        self._history.index_put_(where, prefill.ids.to(_DTYPE))

    def _note_sampled(self, step: Drafting, packed: Tensor) -> None:
        """What the rows emitted; all else goes to the dump slot."""
        width = step.batch.verify_width
        first = step.layout.packed_emitted
        column = torch.arange(width, device=packed.device)
        emitted = packed[:, PACKED_EMITTED, None]
        keep = column < emitted
        index = packed[:, PACKED_LENGTH, None] - emitted + 1 + column
        where = (step.inputs.sampling_slots[:, None] * keep, index * keep)
        ids = packed[:, first : first + width] * keep
        self._history.index_put_(where, ids.to(_DTYPE))


def propose(
    history: Tensor, *, slots: Tensor, length: Tensor, columns: int, k: int
) -> tuple[Tensor, Tensor]:
    """`history` [S, C] holds the ids of rows `slots` [M] up to the pending token at index `length`
    [M]; matches are looked for in its first `columns`. Returns (drafts [M, k] int64, whether there
    was a match [M]); without one the drafts mean nothing, but are ids."""
    columns = min(columns, history.shape[1])
    back = length[:, None] - torch.arange(MAX_MATCH, device=length.device)
    last = history[slots[:, None], back.clamp_min(0)].masked_fill_(back < 0, -1)
    rows = max(1, CHUNK_ELEMENTS // columns)
    parts = [
        _longest(
            history[:, :columns].index_select(0, slots[begin : begin + rows]),
            last=last[begin : begin + rows],
            length=length[begin : begin + rows],
        )
        for begin in range(0, len(slots), rows)
    ]
    found = torch.cat([size for size, _ in parts]) >= MIN_MATCH
    end = torch.where(found, torch.cat([end for _, end in parts]), -1)
    period = torch.where(found, length - end, 1)
    step = torch.arange(k, device=length.device)
    index = end[:, None] + 1 + step % period[:, None]
    return history[slots[:, None], index].to(torch.int64), found


def _longest(ids: Tensor, *, last: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """(tokens matched [m], index of the last of them [m]) of the longest and then latest match in
    `ids` [m, W]; `last` [m, MAX_MATCH] are the pending token and those before it, latest first."""
    column = torch.arange(ids.shape[1], dtype=_DTYPE, device=ids.device)
    run = ids == last[:, :1]
    run &= column < length[:, None]
    size = run.to(torch.int8)
    for back in range(1, MAX_MATCH):
        run[:, back:] &= ids[:, :-back] == last[:, back : back + 1]
        run[:, :back] = False
        size += run
    largest = size.amax(1)
    return largest, torch.where(size == largest[:, None], column, -1).amax(1)


def history_bytes(*, max_context: int) -> int:
    """Device bytes one slot costs on the last stage."""
    return _DTYPE.itemsize * pages_of(max_context) * PAGE_TOKENS


def workspace_bytes(*, max_context: int) -> int:
    """Upper bound of the temporaries of a step's search."""
    return _ELEMENT_BYTES * max(CHUNK_ELEMENTS, history_bytes(max_context=max_context) // 4 + 1)
