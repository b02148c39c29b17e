"""A plan as device tensors: written into one staging entry, then sent in one copy.

Everything here is known to the host. What only the device knows about a verify row (length,
pending token, whether it is done) is put together in `slots.py` from device tensors.

Legend: A admits, D appended pages, T prefill tokens, R prefill rows, S rows that sample (those of
prefill first, then the B verify rows).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from torch import Tensor

from draftmark.core.request import MAX_LOGIT_BIAS, MAX_STOP_IDS
from draftmark.core.step import Admit, PageDelta, PrefillRow, StepPlan
from draftmark.kernels.sample import NUM_FLOATS, NUM_INTS, RowFlag
from draftmark.parallel.lanes import LABEL_WORDS, Label
from draftmark.runtime.directory import SlotDirectory
from draftmark.runtime.staging import StepStaging


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasInputs:
    slots: Tensor  # [b] int64
    ids: Tensor  # [b, MAX_LOGIT_BIAS] int64
    values: Tensor  # [b, MAX_LOGIT_BIAS] float64


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldIds:
    """The ids that an admission told of its slot; all of them where penalties count them."""

    slot: int
    prompt_ids: Tensor  # int64
    output_ids: Tensor  # int64
    has_penalties: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitInputs:
    slots: Tensor  # [A] int64
    generations: Tensor  # [A] int64
    ends: Tensor  # [A] int64
    max_drafts: Tensor  # [A] int64
    drafted_from: Tensor  # [A] int64
    floats: Tensor  # [A, NUM_FLOATS] float64
    ints: Tensor  # [A, NUM_INTS] int64
    stop_ids: Tensor  # [A, MAX_STOP_IDS] int64
    bias: BiasInputs | None
    told: tuple[ToldIds, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageInputs:
    slots: Tensor  # [D] int64
    columns: Tensor  # [D] int64
    pages: Tensor  # [D] int64


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillInputs:
    """`next_ids` [T] is the id after each token, -1 after the last of a last chunk."""

    ids: Tensor  # [T] int64
    next_ids: Tensor  # [T] int64
    positions: Tensor  # [T] int64
    slots: Tensor  # [T] int64
    rows: Tensor  # [T] int64, index of the token's prefill row
    last_tokens: Tensor  # [s] int64, token index of the last token of each row that samples
    sampling_rows: Tensor  # [s] int64, which prefill rows those are
    sampling_lengths: Tensor  # [s] int64, tokens before the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """`label` is the step's as lanes carry it."""

    label: Tensor  # [LABEL_WORDS] int64
    admits: AdmitInputs | None
    pages: PageInputs | None
    prefill: PrefillInputs | None
    sampling_slots: Tensor  # [S] int64
    sampling_generations: Tensor  # [S] int64
    num_sampling_prefill: int
    verify_columns: int

    @property
    def verify_slots(self) -> Tensor:
        """[B] int64."""
        return self.sampling_slots[self.num_sampling_prefill :]


def stage_plan(
    plan: StepPlan, staging: StepStaging, directory: SlotDirectory, *, label: Label
) -> PlanInputs:
    """Write `plan`, which `directory` has accepted, into `staging` and send it to the device."""
    staging.reserve(_words(plan))
    sampling = plan.sampling
    inputs = PlanInputs(
        label=staging.ints(label),
        admits=_admits(plan.admits, staging, directory) if plan.admits else None,
        pages=_pages(plan.pages, staging) if plan.pages else None,
        prefill=_prefill(plan.prefill, staging) if plan.prefill else None,
        sampling_slots=staging.ints([row.slot for row in sampling]),
        sampling_generations=staging.ints([row.generation for row in sampling]),
        num_sampling_prefill=len(sampling) - len(plan.verify),
        verify_columns=max((directory[row.slot].num_pages for row in plan.verify), default=0),
    )
    staging.upload()
    return inputs


def _words(plan: StepPlan) -> int:
    words = LABEL_WORDS + 2 * (len(plan.prefill) + len(plan.verify))
    words += 3 * sum(len(delta.pages) for delta in plan.pages)
    words += sum(5 * len(row.ids) + 3 for row in plan.prefill)
    for admit in plan.admits:
        words += 5 + NUM_FLOATS + NUM_INTS + MAX_STOP_IDS
        words += len(admit.prompt_ids) + len(admit.output_ids)
        if admit.sampling.bias:
            words += 1 + 2 * MAX_LOGIT_BIAS
    return words


def _admits(admits: list[Admit], staging: StepStaging, directory: SlotDirectory) -> AdmitInputs:
    floats: list[float] = []
    ints: list[int] = []
    stop_ids = numpy.full((len(admits), MAX_STOP_IDS), -1, dtype=numpy.int64)
    for row, admit in enumerate(admits):
        sampling = admit.sampling
        floats += (  # in the order of the columns of `kernels.sample`
            sampling.temperature,
            sampling.top_p,
            sampling.min_p,
            sampling.presence_penalty,
            sampling.frequency_penalty,
            sampling.repetition_penalty,
        )
        ints += (sampling.seed, max(sampling.top_k, 0), admit.min_end)
        stop_ids[row, : len(admit.stop_ids)] = admit.stop_ids
    count = len(admits)
    return AdmitInputs(
        slots=staging.ints([admit.slot for admit in admits]),
        generations=staging.ints([admit.generation for admit in admits]),
        ends=staging.ints([admit.end for admit in admits]),
        max_drafts=staging.ints([admit.max_drafts for admit in admits]),
        drafted_from=staging.ints([admit.drafted_from for admit in admits]),
        floats=staging.floats(floats).view(count, NUM_FLOATS),
        ints=staging.ints(ints).view(count, NUM_INTS),
        stop_ids=staging.ints(stop_ids.ravel()).view(count, MAX_STOP_IDS),
        bias=_bias([admit for admit in admits if admit.sampling.bias], staging),
        told=tuple(
            ToldIds(
                slot=admit.slot,
                prompt_ids=staging.ints(admit.prompt_ids),
                output_ids=staging.ints(admit.output_ids),
                has_penalties=bool(directory[admit.slot].flags & RowFlag.PENALTIES),
            )
            for admit in admits
            if admit.prompt_ids or admit.output_ids
        ),
    )


def _bias(admits: list[Admit], staging: StepStaging) -> BiasInputs | None:
    if not admits:
        return None
    ids = numpy.full((len(admits), MAX_LOGIT_BIAS), -1, dtype=numpy.int64)
    values = numpy.zeros((len(admits), MAX_LOGIT_BIAS))
    for row, admit in enumerate(admits):
        bias = admit.sampling.bias
        ids[row, : len(bias)] = [token for token, _ in bias]
        values[row, : len(bias)] = [value for _, value in bias]
    return BiasInputs(
        slots=staging.ints([admit.slot for admit in admits]),
        ids=staging.ints(ids.ravel()).view(ids.shape),
        values=staging.floats(values.ravel()).view(values.shape),
    )


def _pages(deltas: list[PageDelta], staging: StepStaging) -> PageInputs:
    return PageInputs(
        slots=staging.ints([delta.slot for delta in deltas for _ in delta.pages]),
        columns=staging.ints(
            [delta.first + index for delta in deltas for index in range(len(delta.pages))]
        ),
        pages=staging.ints([page for delta in deltas for page in delta.pages]),
    )


def _prefill(rows: list[PrefillRow], staging: StepStaging) -> PrefillInputs:
    counts = numpy.array([len(row.ids) for row in rows])
    starts = numpy.array([row.start for row in rows])
    offsets = numpy.cumsum(counts) - counts
    row_of = numpy.repeat(numpy.arange(len(rows)), counts)
    sampling = [index for index, row in enumerate(rows) if row.samples]
    return PrefillInputs(
        ids=staging.ints([token for row in rows for token in row.ids]),
        next_ids=staging.ints([token for row in rows for token in (*row.ids[1:], row.lookahead)]),
        positions=staging.ints(numpy.arange(len(row_of)) + (starts - offsets)[row_of]),
        slots=staging.ints(numpy.array([row.slot for row in rows])[row_of]),
        rows=staging.ints(row_of),
        last_tokens=staging.ints((offsets + counts - 1)[sampling]),
        sampling_rows=staging.ints(sampling),
        sampling_lengths=staging.ints((starts + counts - 1)[sampling]),
    )
