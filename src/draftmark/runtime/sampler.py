"""Hidden states to tokens, and to the new state of the slots: what ends a step on the device.

Legend: N tokens, M rows that sample, R prefill rows, V vocabulary.
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
    LENGTH,
    PACKED_EMITTED,
    PACKED_TOKEN,
)

# Rows of logits that prompt log-probabilities compute at a time.
PROMPT_SLICE = 64
# Plain numbers: arithmetic on enums costs more than the questions asked of them.
_MIN_TOKENS, _PENALTIES = int(RowFlag.MIN_TOKENS), int(RowFlag.PENALTIES)
_CLEAN = torch.iinfo(torch.int32).max

# Given (logits [M, V], own tokens [M]), the tokens to take instead: `rerun --forced`.
Override = Callable[[Tensor, Tensor], Tensor]
Head = Callable[[Tensor], Tensor]  # to float32 at least


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRows:
    """`packed` [M, PACKED_COLUMNS] int64 (columns in `relay`). `logprobs` are of the rows where
    `logprobs_wanted` [M] is not -1, in order."""

    packed: Tensor
    logprobs_wanted: tuple[int, ...]
    logprobs: Logprobs | None

    @property
    def logprob_rows(self) -> list[int]:
        return [row for row, wanted in enumerate(self.logprobs_wanted) if wanted >= 0]


@dataclass(frozen=True, slots=True)
class _RowFacts:
    """What the host knows of the rows that sample."""

    flags: tuple[int, ...]
    logprobs: tuple[int, ...]
    has_stop_ids: bool

    @classmethod
    def of(cls, plan: StepPlan, directory: SlotDirectory) -> _RowFacts:
        slots = [row.slot for row in plan.prefill if row.samples]
        slots += [row.slot for row in plan.verify]
        infos = [directory[slot] for slot in slots]
        return cls(
            flags=tuple(info.flags for info in infos),
            logprobs=tuple(info.logprobs for info in infos),
            has_stop_ids=any(info.has_stop_ids for info in infos),
        )


class Sampler:
    """`head` maps hidden states [M, H] to logits [M, V]; `head_layer` names it in faults. `ends`
    [S] are the slots' (`SlotTables.ends`)."""

    def __init__(
        self,
        tables: SampleTables,
        *,
        ends: Tensor,
        head: Head,
        head_layer: int,
        backend: str,
    ) -> None:
        self.tables = tables
        self._ends = ends
        self._head = head
        self._head_layer = head_layer
        self._backend = backend

    def run(
        self,
        plan: StepPlan,
        inputs: PlanInputs,
        *,
        rows: Tensor,
        hidden: Tensor,
        bad_layer: Tensor,
        directory: SlotDirectory,
        override: Override | None = None,
    ) -> SampledRows:
        """Of the rows that sample: `rows` [M, ROW_COLUMNS] before they do, `hidden` [M, H], and
        `bad_layer` [M] int64 from the layers of all stages."""
        facts = _RowFacts.of(plan, directory)
        logits = self._head(hidden)
        slots = inputs.sampling_slots
        position = rows[:, LENGTH] + 1
        token = op.sample(
            logits,
            slots=slots,
            position=position,
            tables=self.tables,
            flags=facts.flags,
            backend=self._backend,
        )
        if override is not None:
            token = override(logits, token)
        is_bad_head = (bad_layer < 0) & ~op.is_finite(logits)
        bad = bad_layer.masked_fill(is_bad_head, self._head_layer)
        packed = self._pack(rows, position, token, bad, inputs=inputs, facts=facts)
        self._count(facts, slots, packed)
        return SampledRows(
            packed=packed,
            logprobs_wanted=facts.logprobs,
            logprobs=self._logprobs(logits, token, facts=facts),
        )

    def _pack(
        self,
        rows: Tensor,
        position: Tensor,
        token: Tensor,
        bad: Tensor,
        *,
        inputs: PlanInputs,
        facts: _RowFacts,
    ) -> Tensor:
        """[M, PACKED_COLUMNS]. A row that was done keeps its length and is not looked at for
        faults; a row with a fault emits nothing and is done."""
        slots = inputs.sampling_slots
        active = rows[:, DONE] == 0
        is_bad = active & (bad >= 0)
        emitted = active & (bad < 0)
        ended = position + 1 >= self._ends.index_select(0, slots)
        if facts.has_stop_ids:
            ended |= self._is_stop(token, position, slots=slots, facts=facts)
        # A prefill row leaves nothing to fold: what it ran is in the state for good.
        fold = emitted.to(torch.int64)
        fold[: inputs.num_sampling_prefill] = 0
        columns = (
            slots,
            inputs.sampling_generations,
            torch.where(active, position, rows[:, LENGTH]),
            token,
            ~active | ended | is_bad,
            emitted,
            fold,
            torch.where(is_bad, bad, -1),
        )
        return torch.stack([column.to(torch.int64) for column in columns], dim=1)

    def _is_stop(
        self, token: Tensor, position: Tensor, *, slots: Tensor, facts: _RowFacts
    ) -> Tensor:
        tables = self.tables
        is_stop = (tables.stop_ids.index_select(0, slots) == token[:, None]).any(1)
        if any(flag & _MIN_TOKENS for flag in facts.flags):
            is_stop &= position >= tables.ints[slots, op.MIN_END]
        return is_stop

    def _count(self, facts: _RowFacts, slots: Tensor, packed: Tensor) -> None:
        """Add the emitted token to the counts of rows with penalties."""
        rows = [row for row, flag in enumerate(facts.flags) if flag & _PENALTIES]
        if rows:
            index = torch.tensor(rows, device=slots.device)
            picked = packed.index_select(0, index)
            where = (slots.index_select(0, index), picked[:, PACKED_TOKEN])
            counts = self.tables.counts
            counts.index_put_(where, picked[:, PACKED_EMITTED].to(counts.dtype), accumulate=True)

    def _logprobs(self, logits: Tensor, token: Tensor, *, facts: _RowFacts) -> Logprobs | None:
        rows = [row for row, wanted in enumerate(facts.logprobs) if wanted >= 0]
        if not rows:
            return None
        index = torch.tensor(rows, device=logits.device)
        return op.logprobs(
            logits.index_select(0, index),
            chosen=token.index_select(0, index),
            top=min(max(facts.logprobs), logits.shape[1]),
            backend=self._backend,
        )

    def prompt_logprobs(
        self, hidden: Tensor, *, chosen: Tensor, top: int, bad_layer: Tensor
    ) -> Iterator[Logprobs]:
        """Of the tokens `chosen` [T] that follow `hidden` [T, H], a slice at a time, so that few
        logits live at once. Blames the head in `bad_layer` [1], if it is the first."""
        for begin in range(0, len(chosen), PROMPT_SLICE):
            logits = self._head(hidden[begin : begin + PROMPT_SLICE])
            is_bad = (bad_layer < 0) & ~op.is_finite(logits).all()
            bad_layer.masked_fill_(is_bad, self._head_layer)
            yield op.logprobs(
                logits,
                chosen=chosen[begin : begin + PROMPT_SLICE],
                top=min(top, logits.shape[1]),
                backend=self._backend,
            )


def first_bad_of_rows(bad_layer: Tensor, rows: Tensor, *, num_rows: int) -> Tensor:
    """First bad layer of each prefill row: `bad_layer` [T] of its tokens -> [num_rows] int64."""
    layers = torch.where(bad_layer < 0, _CLEAN, bad_layer).to(torch.int64)
    first = torch.full((num_rows,), _CLEAN, dtype=layers.dtype, device=layers.device)
    first.scatter_reduce_(0, rows, layers, "amin")
    return torch.where(first == _CLEAN, -1, first)
