"""Drafts from the model's own MTP head, at the tail of the last stage.

The head's layer has pages of its own under the same page tables. Its entry of the hidden state h_i
and the token t_{i+1} stands at i + 1, so that it depends on nothing behind it; its position is i.
After a step the entries of the tokens that it accepted are written anew from the model's hidden
states, those of the first drafts having been made from the head's own.

Entries before `first` of a slot do not exist: nothing was run there, or it came from the prefix
cache, whose hidden states are gone. What is missing costs acceptance, never a token.

Legend: T prefill tokens, M rows that sample (s of them prefill rows), B verify rows, q tokens of a
verify row, k drafts.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from draftmark.kernels import sample as op
from draftmark.layers.batch import Batch, PrefillSpan
from draftmark.runtime.drafting import Drafting, Seat
from draftmark.runtime.relay import PACKED_DONE, PACKED_EMITTED, PACKED_LENGTH, PACKED_TOKEN


class MTPDrafter:
    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._cache, self._behind = seat.caches.layers[-2:]
        assert isinstance(self._behind, Tensor)
        num_slots = len(seat.tables.ends)
        self._first = torch.ones(num_slots, dtype=torch.int64, device=seat.tables.ends.device)
        # The same of prefilling slots, whose rows only the host describes.
        self._first_of_prompts: dict[int, int] = {}

    def draft(self, step: Drafting) -> None:
        plan, admits = step.plan, step.inputs.admits
        for admit in plan.admits:
            self._first_of_prompts[admit.slot] = admit.cached + 1
        if admits is not None:
            first = admits.cached + 1
            self._first.index_copy_(0, admits.slots, first)
        if plan.draft_k == 0:
            self._leave_out(step)
            return
        hidden = self._extend(step)
        if step.packed is not None:
            self._chain(step, step.packed, hidden)

    def _leave_out(self, step: Drafting) -> None:
        """Nothing is run: the entries of this step are missing."""
        for row in step.plan.prefill:
            self._first_of_prompts[row.slot] = row.start + len(row.ids) + 1
        if step.packed is not None:
            first = step.packed[:, PACKED_LENGTH] + 1
            self._first.index_copy_(0, step.inputs.sampling_slots, first)

    def _extend(self, step: Drafting) -> Tensor:
        """Entries of all tokens that the step ran and kept, from the model's hidden states. Returns
        the head's own of each row's last one [M, H]; of rows that ended they mean nothing."""
        inputs, tables, batch = step.inputs, self._seat.tables, step.batch
        width, prefill = batch.verify_width, inputs.prefill
        num_prefill = inputs.num_sampling_prefill
        slots, index, ids, kept, last = [], [], [], [], []
        if prefill is not None:
            own = prefill.next_ids
            if step.packed is not None:
                sampled = step.packed[:num_prefill, PACKED_TOKEN]
                own = own.index_copy(0, prefill.last_tokens, sampled)
            slots.append(prefill.slots)
            index.append(prefill.positions + 1)
            ids.append(own.clamp_min(0))  # a last chunk that samples nothing is followed by nothing
            kept.append(own >= 0)
            last.append(prefill.last_tokens)
        if batch.num_verify > 0:
            assert step.packed is not None
            rows = step.packed[num_prefill:]
            emitted = rows[:, PACKED_EMITTED, None]
            column = torch.arange(width, device=rows.device)
            begin = step.layout.packed_emitted
            slots.append(inputs.verify_slots.repeat_interleave(width))
            index.append((batch.verify_lengths[:, None] + 1 + column).flatten())
            ids.append(rows[:, begin : begin + width].flatten())
            kept.append((column < emitted).flatten())
            offset = batch.verify_offset + width * torch.arange(len(rows), device=rows.device)
            last.append(offset + emitted[:, 0].clamp_min(1) - 1)
        owner, entry, keep = torch.cat(slots), torch.cat(index), torch.cat(kept)
        keep &= entry < tables.ends.index_select(0, owner)
        shifted = replace(
            batch,
            store=tables.store(owner, entry * keep, keep),
            prefill=tuple(self._shifted(span) for span in batch.prefill),
            verify_lengths=batch.verify_lengths + 1,
            verify_first=self._first.index_select(0, inputs.verify_slots),
        )
        out = self._seat.stage.draft(torch.cat(ids), step.hidden, shifted, self._cache)
        return out.index_select(0, torch.cat(last))

    def _shifted(self, span: PrefillSpan) -> PrefillSpan:
        return replace(span, start=span.start + 1, first=self._first_of_prompts[span.slot])

    def _chain(self, step: Drafting, packed: Tensor, hidden: Tensor) -> None:
        """k drafts of each row, each from the head's state of the one before."""
        seat, plan, slots = self._seat, step.plan, step.inputs.sampling_slots
        infos = [seat.directory[row.slot] for row in plan.sampling]
        flags = tuple(info.flags for info in infos)
        columns = max(info.num_pages for info in infos)
        pages = seat.tables.pages[:, :columns].index_select(0, slots)
        length, alive = packed[:, PACKED_LENGTH], packed[:, PACKED_DONE] == 0
        first, ends = self._first.index_select(0, slots), seat.tables.ends.index_select(0, slots)
        none = torch.zeros_like(slots)
        drafts: list[Tensor] = []
        for number in range(plan.draft_k):
            if number > 0:
                entry = length + number
                keep = alive & (entry < ends)
                batch = Batch(
                    positions=(entry - 1) * keep,
                    store=seat.tables.store(slots, entry * keep, keep),
                    prefill=(),
                    verify_offset=0,
                    verify_width=1,
                    verify_pages=pages,
                    verify_lengths=entry * keep,
                    verify_slots=none,
                    verify_folds=none,
                    verify_first=first * keep,
                )
                hidden = seat.stage.draft(drafts[-1], hidden, batch, self._cache)
            token = op.sample(
                seat.stage.logits(hidden),
                slots=slots,
                position=length + 1 + number,
                tables=seat.sampler.tables,
                flags=flags,
                window=torch.stack(drafts, dim=1) if drafts else None,
                backend="torch",
            )
            drafts.append(token)
        step.enter(torch.stack(drafts, dim=1), alive * plan.draft_k)
