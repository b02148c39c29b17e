"""What the layers of a stage share in one step: rotations, page indices and masks, slots.

Made once a step from its `Batch`, for the kinds of mixer that the stage has.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from draftmark.kernels import attention, attention_rows, rope
from draftmark.kernels.spans import Span
from draftmark.layers.batch import Batch
from draftmark.layers.rotary import Rotary
from draftmark.layers.weight import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptStep:
    """Of the prefill tokens [P]: places in a pool, rotations, page indices and masks."""

    store: Tensor
    rotation: rope.RopeRows
    plan: attention.Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionStep:
    """Prefill tokens come first; either part is None where the step has none of them."""

    num_prefill: int
    prompts: PromptStep | None
    rows: attention_rows.Plan | attention_rows.RowsLayout | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentStep:
    """Prefill tokens come first, `spans` of them; then `width` tokens of each verify row."""

    spans: tuple[Span, ...]
    num_prefill: int
    width: int
    slots: Tensor  # [B] int64
    lengths: Tensor  # [B] int64
    folds: Tensor  # [B] int64


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStep:
    """Both, or what is needed of them."""

    attention: AttentionStep | None = None
    recurrent: RecurrentStep | None = None


def attention_step(
    batch: Batch,
    *,
    shape: attention.AttentionShape,
    rotary: Rotary,
    placement: Placement,
) -> AttentionStep:
    """What attention layers of `shape` share."""
    count = batch.verify_offset
    prompts = rows = None
    if count > 0:
        prefill = [
            attention.PrefillLayout(
                offset=span.offset,
                count=span.count,
                start=span.start,
                pages=span.pages,
                first=span.first,
            )
            for span in batch.prefill
        ]
        prompts = PromptStep(
            store=batch.store[:count],
            rotation=rotary.rows(batch.positions[:count]),
            plan=attention.plan(
                shape,
                prefill=prefill,
                verify=None,
                dtype=placement.dtype,
                backend=placement.backends.attention,
            ),
        )
    if batch.num_verify > 0:
        layout = attention_rows.RowsLayout(
            shape=shape,
            table=rotary.table,
            width=batch.verify_width,
            pages=batch.verify_pages,
            lengths=batch.verify_lengths,
            store=batch.store[count:],
            positions=batch.positions[count:],
            first=batch.verify_first,
        )
        rows = attention_rows.plan(
            layout, dtype=placement.dtype, backend=placement.backends.attention_rows
        )
    return AttentionStep(num_prefill=count, prompts=prompts, rows=rows)


def recurrent_step(batch: Batch) -> RecurrentStep:
    """Where each row's state is, and what of it is to be folded."""
    return RecurrentStep(
        spans=tuple(
            Span(offset=span.offset, count=span.count, start=span.start, slot=span.slot)
            for span in batch.prefill
        ),
        num_prefill=batch.verify_offset,
        width=batch.verify_width,
        slots=batch.verify_slots,
        lengths=batch.verify_lengths,
        folds=batch.verify_folds,
    )
