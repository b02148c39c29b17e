"""Hidden states to tokens, and to the new state of the slots: what ends a step on the device.

Legend: N tokens, M rows that sample, R tokens that they sample, B verify rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from draftmark.core.step import StepPlan
from draftmark.kernels import sample as op
from draftmark.kernels.sample import Logprobs, RowFlag, SampleTables
from draftmark.runtime.directory import SlotDirectory
from draftmark.runtime.inputs import PlanInputs
from draftmark.runtime.relay import (
    DONE,
    DRAFTS,
    LENGTH,
    PACKED_EMITTED,
    TOKEN,
    RowLayout,
)
from draftmark.speculation.acceptance import count_emitted
from draftmark.speculation.synthetic import SyntheticAcceptance

# Rows of logits that prompt log-probabilities compute at a time.
PROMPT_SLICE = 64
# Plain numbers: arithmetic on enums costs more than the questions asked of them.
_MIN_TOKENS, _PENALTIES = int(RowFlag.MIN_TOKENS), int(RowFlag.PENALTIES)
_CLEAN = torch.iinfo(torch.int32).max

# Given (logits [R, V], own tokens [R]), the tokens to take instead: `rerun --forced`.
Override = Callable[[Tensor, Tensor], Tensor]
Head = Callable[[Tensor], Tensor]  # to float32 at least


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRows:
    """`packed` [M, packed_columns] int64 (columns in `relay`). `logprobs` are of the rows where
    `logprobs_wanted` [M] is not -1, in order, of each token of their windows."""

    packed: Tensor
    num_prefill: int
    width: int
    logprobs_wanted: tuple[int, ...]
    logprobs: Logprobs | None

    def width_of(self, row: int) -> int:
        """Tokens sampled in this row."""
        return 1 if row < self.num_prefill else self.width


@dataclass(frozen=True, slots=True)
class _RowFacts:
    """What the host knows of the rows that sample."""

    flags: tuple[int, ...]
    logprobs: tuple[int, ...]
    has_stop_ids: bool

    @classmethod
    def of(cls, plan: StepPlan, directory: SlotDirectory) -> _RowFacts:
        infos = [directory[row.slot] for row in plan.sampling]
        return cls(
            flags=tuple(info.flags for info in infos),
            logprobs=tuple(info.logprobs for info in infos),
            has_stop_ids=any(info.has_stop_ids for info in infos),
        )

    def of_tokens(self, num_prefill: int, width: int) -> tuple[int, ...]:
        """The flags of each sampled token."""
        if width == 1:
            return self.flags
        verify = self.flags[num_prefill:]
        return self.flags[:num_prefill] + tuple(flag for flag in verify for _ in range(width))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The sampled tokens of a step: one of each prefill row, then `width` of each verify row.
    `slots`, `position` [R]: whose they are, and the index they get. `drafted` [B, width - 1] stands
    after each in its window."""

    num_prefill: int
    width: int
    slots: Tensor
    position: Tensor
    drafted: Tensor

    @classmethod
    def of(cls, rows: Tensor, inputs: PlanInputs, width: int) -> _Window:
        first = inputs.num_sampling_prefill
        slots, position = inputs.sampling_slots, rows[:, LENGTH] + 1
        if width > 1:
            steps = torch.arange(width, device=rows.device)
            of_verify = (position[first:, None] + steps).flatten()
            position = torch.cat((position[:first], of_verify))
            slots = torch.cat((slots[:first], slots[first:].repeat_interleave(width)))
        return cls(
            num_prefill=first,
            width=width,
            slots=slots,
            position=position,
            drafted=rows[first:, TOKEN + 1 : TOKEN + width],
        )

    def tokens_of(self, row: int) -> range:
        """Which of the sampled tokens are this row's."""
        if row < self.num_prefill:
            return range(row, row + 1)
        begin = self.num_prefill + (row - self.num_prefill) * self.width
        return range(begin, begin + self.width)

    def split(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """[R] -> ([prefill rows], [B, width])."""
        return value[: self.num_prefill], value[self.num_prefill :].view(-1, self.width)

    def before(self) -> Tensor:
        """[R, width - 1]: the drafts that stand before each token in its window, -1 for none."""
        column = torch.arange(self.width - 1, device=self.slots.device)
        row = torch.arange(self.width, device=self.slots.device)
        shown = torch.where(column < row[:, None], self.drafted[:, None, :], -1).flatten(0, 1)
        none = shown.new_full((self.num_prefill, self.width - 1), -1)
        return torch.cat((none, shown))


class Sampler:
    """`head` maps hidden states [R, H] to logits [R, V]; `head_layer` names it in faults. `ends`
    [S] are the slots' (`SlotTables.ends`)."""

    def __init__(
        self,
        tables: SampleTables,
        *,
        ends: Tensor,
        head: Head,
        head_layer: int,
        layout: RowLayout,
        backend: str,
        synthetic: SyntheticAcceptance | None = None,
    ) -> None:
        self.tables = tables
        self._synthetic = synthetic
        self._ends = ends
        self._head = head
        self._head_layer = head_layer
        self._layout = layout
        self.backend = backend

    def run(
        self,
        plan: StepPlan,
        inputs: PlanInputs,
        *,
        rows: Tensor,
        is_own: Tensor | None,
        hidden: Tensor,
        bad_layer: Tensor,
        directory: SlotDirectory,
        override: Override | None = None,
    ) -> SampledRows:
        """Of the rows that sample: `rows` [M, row_columns] before they do, `hidden` [R, H] of their
        tokens, and `bad_layer` [M] int64 from the layers of all stages. `is_own` [B, q] as
        `own_places` says, None where windows have one place."""
        facts = _RowFacts.of(plan, directory)
        window = _Window.of(rows, inputs, plan.verify_k + 1)
        flags = facts.of_tokens(window.num_prefill, window.width)
        has_penalties = any(flag & _PENALTIES for flag in flags)
        logits = self._head(hidden)
        token = op.sample(
            logits,
            slots=window.slots,
            position=window.position,
            tables=self.tables,
            flags=flags,
            window=window.before() if has_penalties and window.width > 1 else None,
            backend=self.backend,
        )
        if self._synthetic is not None and window.width > 1:
            token = self._accept_by_coins(self._synthetic, rows, window, token, logits.shape[1])
        if override is not None:
            token = override(logits, token)
        is_bad_head = self._is_bad_head(logits, window, is_own)
        bad = bad_layer.masked_fill((bad_layer < 0) & is_bad_head, self._head_layer)
        packed = self._pack(rows, window, token, bad, inputs=inputs, facts=facts)
        if has_penalties:
            self._count(facts, inputs.sampling_slots, packed)
        return SampledRows(
            packed=packed,
            num_prefill=window.num_prefill,
            width=window.width,
            logprobs_wanted=facts.logprobs,
            logprobs=self._logprobs(logits, token, window, facts=facts),
        )

    def _accept_by_coins(
        self,
        synthetic: SyntheticAcceptance,
        rows: Tensor,
        window: _Window,
        token: Tensor,
        vocab_size: int,
    ) -> Tensor:
        """The tokens [R] to take for those that were sampled."""
        prefill, verify = window.split(token)
        first = window.num_prefill
        replaced = synthetic.replace(
            verify,
            window.drafted,
            num_drafts=rows[first:, DRAFTS],
            seeds=self.tables.ints[window.slots[first :: window.width], op.SEED],
            position=window.position[first:].view(verify.shape),
            vocab_size=vocab_size,
        )
        return torch.cat((prefill, replaced.flatten()))

    def _is_bad_head(self, logits: Tensor, window: _Window, is_own: Tensor | None) -> Tensor:
        """[M]: of tokens that may be emitted."""
        is_bad = ~op.is_finite(logits, backend=self.backend)
        if is_own is None:
            return is_bad
        prefill, verify = window.split(is_bad)
        return torch.cat((prefill, (verify & is_own).any(1)))

    def _pack(
        self,
        rows: Tensor,
        window: _Window,
        token: Tensor,
        bad: Tensor,
        *,
        inputs: PlanInputs,
        facts: _RowFacts,
    ) -> Tensor:
        """[M, packed_columns]. A row that was done keeps its length and is not looked at for
        faults; a row with a fault emits nothing and is done."""
        slots, length = inputs.sampling_slots, rows[:, LENGTH]
        active = rows[:, DONE] == 0
        is_bad = active & (bad >= 0)
        emits = active & (bad < 0)
        is_end = window.position + 1 >= self._ends.index_select(0, window.slots)
        if facts.has_stop_ids:
            is_end |= self._is_stop(token, window, facts=facts)
        count, ended, pending, tokens = self._emitted(rows, window, token, is_end)
        emitted = count * emits
        fold, drafted = emitted, rows[:, DRAFTS].clamp_max(window.width - 1) * active
        if window.num_prefill > 0:
            # A prefill row leaves nothing to fold: what it ran is in the state for good.
            fold = emitted.clone()
            fold[: window.num_prefill] = 0
            drafted[: window.num_prefill] = 0
        columns = (
            slots,
            inputs.sampling_generations,
            length + torch.where(is_bad, 1, emitted),
            ~active | ended | is_bad,
            fold,
            torch.zeros_like(slots),
            drafted,
            emitted,
            torch.where(is_bad, bad, -1),
            pending,
        )
        packed = slots.new_zeros((len(slots), self._layout.packed_columns))
        packed[:, : len(columns)] = torch.stack(columns, dim=1)
        packed[:, self._layout.packed_emitted :][:, : window.width] = tokens
        return packed

    def _emitted(
        self, rows: Tensor, window: _Window, token: Tensor, is_end: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(tokens emitted [M], whether that is the end [M], the last of them [M], all of them
        [M, width]): what active rows give. What stands behind the last one means nothing."""
        if window.width == 1:
            return torch.ones_like(token), is_end, token, token[:, None]
        first, (prefill, verify) = window.num_prefill, window.split(token)
        end_prefill, end_verify = window.split(is_end)
        emitted, ended = count_emitted(
            verify, window.drafted, num_drafts=rows[first:, DRAFTS], is_end=end_verify
        )
        last = verify.gather(1, emitted[:, None] - 1)[:, 0]
        if first == 0:
            return emitted, ended, last, verify
        padded = torch.zeros_like(rows[:, : window.width])
        padded[:first, 0] = prefill
        padded[first:] = verify
        return (
            torch.cat((torch.ones_like(prefill), emitted)),
            torch.cat((end_prefill, ended)),
            torch.cat((prefill, last)),
            padded,
        )

    def _is_stop(self, token: Tensor, window: _Window, *, facts: _RowFacts) -> Tensor:
        tables, slots = self.tables, window.slots
        is_stop = (tables.stop_ids.index_select(0, slots) == token[:, None]).any(1)
        if any(flag & _MIN_TOKENS for flag in facts.flags):
            is_stop &= window.position >= tables.ints[slots, op.MIN_END]
        return is_stop

    def _count(self, facts: _RowFacts, slots: Tensor, packed: Tensor) -> None:
        """Add the emitted tokens to the counts of rows with penalties."""
        rows = [row for row, flag in enumerate(facts.flags) if flag & _PENALTIES]
        index = torch.tensor(rows, device=slots.device)
        picked, counts = packed.index_select(0, index), self.tables.counts
        where = slots.index_select(0, index)
        first = self._layout.packed_emitted
        for column in range(self._layout.max_drafts + 1):
            is_emitted = (column < picked[:, PACKED_EMITTED]).to(counts.dtype)
            counts.index_put_((where, picked[:, first + column]), is_emitted, accumulate=True)

    def _logprobs(
        self, logits: Tensor, token: Tensor, window: _Window, *, facts: _RowFacts
    ) -> Logprobs | None:
        wanted = [row for row, top in enumerate(facts.logprobs) if top >= 0]
        if not wanted:
            return None
        places = [place for row in wanted for place in window.tokens_of(row)]
        index = torch.tensor(places, device=logits.device)
        return op.logprobs(
            logits.index_select(0, index),
            chosen=token.index_select(0, index),
            top=min(max(facts.logprobs), logits.shape[1]),
            backend=self.backend,
        )

    def prompt_logprobs(
        self, hidden: Tensor, *, chosen: Tensor, top: int, bad_layer: Tensor
    ) -> Iterator[Logprobs]:
        """Of the tokens `chosen` [T] that follow `hidden` [T, H], a slice at a time, so that few
        logits live at once. Blames the head in `bad_layer` [1], if it is the first."""
        for begin in range(0, len(chosen), PROMPT_SLICE):
            logits = self._head(hidden[begin : begin + PROMPT_SLICE])
            is_bad = (bad_layer < 0) & ~op.is_finite(logits, backend=self.backend).all()
            bad_layer.masked_fill_(is_bad, self._head_layer)
            yield op.logprobs(
                logits,
                chosen=chosen[begin : begin + PROMPT_SLICE],
                top=min(top, logits.shape[1]),
                backend=self.backend,
            )


def first_bad_of_rows(bad_layer: Tensor, rows: Tensor, *, num_rows: int) -> Tensor:
    """First bad layer of each prefill row: `bad_layer` [T] of its tokens -> [num_rows] int64."""
    layers = torch.where(bad_layer < 0, _CLEAN, bad_layer).to(torch.int64)
    first = torch.full((num_rows,), _CLEAN, dtype=layers.dtype, device=layers.device)
    first.scatter_reduce_(0, rows, layers, "amin")
    return torch.where(first == _CLEAN, -1, first)


def first_bad_of_windows(bad_layer: Tensor, is_own: Tensor) -> Tensor:
    """The same of windows, `bad_layer` [B, q] int64 -> [B]: of places that `is_own`."""
    first = bad_layer.masked_fill(~is_own | (bad_layer < 0), _CLEAN).amin(1)
    return first.masked_fill_(first == _CLEAN, -1)
