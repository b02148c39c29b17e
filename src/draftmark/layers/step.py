"""What the layers of a stage share in one step: rotations, page indices and masks, slots.

Made once a step from its `Batch`, for the kinds of mixer that the stage has.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from draftmark.kernels import attention, rope
from draftmark.kernels.spans import Span
from draftmark.layers.batch import Batch
from draftmark.layers.rotary import Rotary
from draftmark.layers.weight import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionStep:
    """`store` [N] is the place of each token in a pool."""

    store: Tensor
    rotation: rope.RopeRows
    plan: attention.Plan


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
    """Rotations, page indices and masks of a step."""
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
    verify = None
    if batch.num_verify > 0:
        verify = attention.VerifyLayout(
            offset=batch.verify_offset,
            width=batch.verify_width,
            pages=batch.verify_pages,
            lengths=batch.verify_lengths,
            store=batch.store[batch.verify_offset :],
            first=batch.verify_first,
        )
    plan = attention.plan(
        shape,
        prefill=prefill,
        verify=verify,
        dtype=placement.dtype,
        backend=placement.backends.attention,
    )
    return AttentionStep(store=batch.store, rotation=rotary.rows(batch.positions), plan=plan)


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
