"""Drafts from the model's own MTP head, at the tail of the last stage.

The head's layer has pages of its own under the same page tables. Its entry of the hidden state h_i
and the token t_{i+1} stands at i + 1, so that it depends on nothing behind it; its position is i.
After a step the entries of the tokens that it accepted are written anew from the model's hidden
states, those of the first drafts having been made from the head's own.

Cached pages bring their entries along. The entry of the first token behind them is of the hidden
state before it, which was run by somebody else: the one behind each page is kept beside it.

Entries before `first` of a slot do not exist: nothing was drafted there. What is missing costs
acceptance, never a token. Prompts get theirs even in steps without drafts, for who comes after.

Legend: N tokens, T prefill tokens, M rows that sample (s of them prefill rows), B verify rows, q
tokens of a verify row, k drafts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from draftmark.cache.spec import PAGE_TOKENS
from draftmark.kernels import sample as op
from draftmark.kernels.sample import RowFlag
from draftmark.layers.batch import Batch, PrefillSpan
from draftmark.runtime.drafting import Drafting, Seat
from draftmark.runtime.relay import PACKED_DONE, PACKED_EMITTED, PACKED_LENGTH, PACKED_TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tokens:
    """Those of a step that get entries: of its prompts, or of all rows. `last` is the last of each
    row that samples."""

    slots: Tensor  # [N] int64
    positions: Tensor  # [N] int64
    following: Tensor  # [N] int64, the ids after them
    is_true: Tensor  # [N] bool, no rejected draft or inert row
    is_followed: Tensor  # [N] bool, true and not the last that is ever run
    last: Tensor  # [s] or [M] int64
    num_verify: int

    @classmethod
    def of_prompts(cls, step: Drafting) -> _Tokens:
        prefill = step.inputs.prefill
        assert prefill is not None
        following = prefill.next_ids
        if step.packed is not None:
            sampled = step.packed[: step.inputs.num_sampling_prefill, PACKED_TOKEN]
            following = following.index_copy(0, prefill.last_tokens, sampled)
        return cls(
            slots=prefill.slots,
            positions=prefill.positions,
            following=following.clamp_min(0),
            is_true=torch.ones_like(following, dtype=torch.bool),
            is_followed=following >= 0,
            last=prefill.last_tokens,
            num_verify=0,
        )

    @classmethod
    def of_windows(cls, step: Drafting) -> _Tokens:
        assert step.packed is not None
        batch, width = step.batch, step.batch.verify_width
        rows = step.packed[step.inputs.num_sampling_prefill :]
        emitted, begin = rows[:, PACKED_EMITTED], step.layout.packed_emitted
        column = torch.arange(width, device=rows.device)
        is_true = (column < emitted[:, None]).flatten()
        before = batch.verify_offset - 1
        row = torch.arange(before, before + width * len(rows), width, device=rows.device)
        return cls(
            slots=step.inputs.verify_slots.repeat_interleave(width),
            positions=batch.positions[batch.verify_offset :],
            following=rows[:, begin : begin + width].flatten(),
            is_true=is_true,
            is_followed=is_true,
            last=row + emitted.clamp_min(1),
            num_verify=len(rows),
        )

    @classmethod
    def of(cls, step: Drafting) -> _Tokens:
        """Of all rows."""
        if step.batch.num_verify == 0:
            return cls.of_prompts(step)
        windows = cls.of_windows(step)
        if step.inputs.prefill is None:
            return windows
        prompts = cls.of_prompts(step)
        return cls(
            slots=torch.cat((prompts.slots, windows.slots)),
            positions=torch.cat((prompts.positions, windows.positions)),
            following=torch.cat((prompts.following, windows.following)),
            is_true=torch.cat((prompts.is_true, windows.is_true)),
            is_followed=torch.cat((prompts.is_followed, windows.is_followed)),
            last=torch.cat((prompts.last, windows.last)),
            num_verify=windows.num_verify,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """The first tokens [n] of prompts that begin behind cached pages: each is an entry of its own,
    of the hidden state behind those pages."""

    spans: tuple[PrefillSpan, ...]
    ids: Tensor
    positions: Tensor
    store: Tensor
    hidden: Tensor  # [n, H]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """Of all drafts but the last: one entry of each row. `sampled` [k, M] is the index of each
    draft; the others but `pages` [M, P] and `none` [M] are [k - 1, M]."""

    sampled: Tensor
    pages: Tensor
    lengths: Tensor
    positions: Tensor
    store: Tensor
    first: Tensor
    none: Tensor

    def batch(self, number: int) -> Batch:
        """What the head runs on for draft `number`."""
        return Batch(
            positions=self.positions[number],
            store=self.store[number],
            prefill=(),
            verify_offset=0,
            verify_width=1,
            verify_pages=self.pages,
            verify_lengths=self.lengths[number],
            verify_slots=self.none,
            verify_folds=self.none,
            verify_first=self.first[number],
        )


class MTPDrafter:
    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._cache, behind = seat.caches.layers[-2:]
        assert isinstance(behind, Tensor)
        self._behind = behind  # [pages, H]
        num_slots = len(seat.tables.ends)
        self._first = torch.ones(num_slots, dtype=torch.int64, device=seat.tables.ends.device)
        # The same of prefilling slots, whose rows only the host describes.
        self._first_of_prompts: dict[int, int] = {}

    def draft(self, step: Drafting) -> None:
        plan, admits = step.plan, step.inputs.admits
        for admit in plan.admits:
            self._first_of_prompts[admit.slot] = admit.drafted_from
        if admits is not None:
            self._first.index_copy_(0, admits.slots, admits.drafted_from)
        if plan.draft_k == 0:
            self._leave_out(step)
            return
        hidden = self._extend(step, _Tokens.of(step))
        if step.packed is not None:
            self._chain(step, step.packed, hidden)

    def _leave_out(self, step: Drafting) -> None:
        """No drafts are wanted: verify rows get no entries."""
        if step.inputs.prefill is not None:
            self._extend(step, _Tokens.of_prompts(step))
        if step.packed is not None:
            rows = step.packed[step.inputs.num_sampling_prefill :]
            first = rows[:, PACKED_LENGTH] + 1
            self._first.index_copy_(0, step.inputs.verify_slots, first)

    def _extend(self, step: Drafting, tokens: _Tokens) -> Tensor:
        """Entries of `tokens`, from the model's hidden states, and what is kept beside their pages.
        Returns the head's own hidden states [len(last), H] of each row's last token; of rows that
        ended they mean nothing."""
        tables, batch = self._seat.tables, step.batch
        hidden = step.hidden[: len(tokens.slots)]
        self._keep_behind(hidden, tokens)
        entry = tokens.positions + 1
        keep = tokens.is_followed & (entry < tables.ends.index_select(0, tokens.slots))
        store = tables.store(tokens.slots, entry * keep, keep)
        spans = tuple(self._shifted(span) for span in batch.prefill)
        ids, positions, last = tokens.following, tokens.positions, tokens.last
        offset, verify = batch.verify_offset, slice(0, tokens.num_verify)
        begun = self._begun(step)
        if begun is not None:
            count = len(begun.spans)
            spans = begun.spans + tuple(replace(s, offset=s.offset + count) for s in spans)
            ids, positions = torch.cat((begun.ids, ids)), torch.cat((begun.positions, positions))
            store, hidden = torch.cat((begun.store, store)), torch.cat((begun.hidden, hidden))
            offset, last = offset + count, last + count
        shifted = Batch(
            positions=positions,
            store=store,
            prefill=spans,
            verify_offset=offset,
            verify_width=batch.verify_width,
            verify_pages=batch.verify_pages[verify],
            verify_lengths=batch.verify_lengths[verify] + 1,
            verify_slots=batch.verify_slots[verify],
            verify_folds=batch.verify_folds[verify],
            verify_first=self._first.index_select(0, step.inputs.verify_slots[verify]),
        )
        return self._seat.stage.draft(ids, hidden, shifted, self._cache).index_select(0, last)

    def _keep_behind(self, hidden: Tensor, tokens: _Tokens) -> None:
        is_end = tokens.is_true & (tokens.positions % PAGE_TOKENS == PAGE_TOKENS - 1)
        page = self._seat.tables.pages[tokens.slots, tokens.positions // PAGE_TOKENS]
        self._behind.index_copy_(0, page.to(torch.int64) * is_end, hidden)

    def _begun(self, step: Drafting) -> _Begun | None:
        """Of the prompts whose first chunk this step runs, where the pages before it are whole."""
        starts = {a.slot: a.cached for a in step.plan.admits if a.cached >= a.drafted_from}
        spans = [span for span in step.batch.prefill if starts.get(span.slot) == span.start]
        if not spans:
            return None
        prefill = step.inputs.prefill
        assert prefill is not None
        assert all(span.start % PAGE_TOKENS == 0 for span in spans), "pages are cached as a whole"
        column = [span.start // PAGE_TOKENS for span in spans]
        pages = [span.pages[n - 1 : n + 1] for span, n in zip(spans, column, strict=True)]
        before, own = torch.stack(pages).to(torch.int64).unbind(1)
        first = [slice(span.offset, span.offset + 1) for span in spans]
        return _Begun(
            spans=tuple(
                replace(span, offset=number, count=1, first=self._first_of_prompts[span.slot])
                for number, span in enumerate(spans)
            ),
            ids=torch.cat([prefill.ids[token] for token in first]),
            positions=torch.cat([prefill.positions[token] for token in first]) - 1,
            store=own * PAGE_TOKENS,
            hidden=self._behind.index_select(0, before),
        )

    def _shifted(self, span: PrefillSpan) -> PrefillSpan:
        return replace(span, start=span.start + 1, first=self._first_of_prompts[span.slot])

    def _chain(self, step: Drafting, packed: Tensor, hidden: Tensor) -> None:
        """k drafts of each row, each from the head's state of the one before."""
        seat, plan, slots = self._seat, step.plan, step.inputs.sampling_slots
        flags = tuple(seat.directory[row.slot].flags for row in plan.sampling)
        has_penalties = any(flag & RowFlag.PENALTIES for flag in flags)
        alive = packed[:, PACKED_DONE] == 0
        entries = self._entries(step, packed[:, PACKED_LENGTH], alive)
        drafts: list[Tensor] = []
        for number in range(plan.draft_k):
            if number > 0:
                hidden = seat.stage.draft(
                    drafts[-1], hidden, entries.batch(number - 1), self._cache
                )
            token = op.sample(
                seat.stage.logits(hidden),
                slots=slots,
                position=entries.sampled[number],
                tables=seat.sampler.tables,
                flags=flags,
                window=torch.stack(drafts, dim=1) if drafts and has_penalties else None,
                backend=seat.sampler.backend,
            )
            drafts.append(token)
        step.enter(torch.stack(drafts, dim=1), alive * plan.draft_k)

    def _entries(self, step: Drafting, length: Tensor, alive: Tensor) -> _Entries:
        seat, plan, slots = self._seat, step.plan, step.inputs.sampling_slots
        columns = max(seat.directory[row.slot].num_pages for row in plan.sampling)
        number = torch.arange(plan.draft_k, device=slots.device)[:, None]
        entry = number[1:] + length
        keep = alive & (entry < seat.tables.ends.index_select(0, slots))
        entry *= keep
        return _Entries(
            sampled=number + (length + 1),
            pages=seat.tables.pages[:, :columns].index_select(0, slots),
            lengths=entry,
            positions=entry - keep.to(torch.int64),
            store=seat.tables.store(slots.expand_as(entry), entry, keep),
            first=self._first.index_select(0, slots) * keep,
            none=torch.zeros_like(slots),
        )
