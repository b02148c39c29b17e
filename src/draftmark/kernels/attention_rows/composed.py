"""attention_rows as calls of its parts."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from draftmark.kernels.attention import AttentionShape, VerifyLayout
from draftmark.kernels.attention_rows.layout import RowsLayout
from draftmark.kernels.attention_rows.weights import RowWeights
from draftmark.kernels.rope import RopeRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`attention` is the plan of that op's backend."""

    shape: AttentionShape
    store: Tensor
    rotation: RopeRows
    attention: Any


def plan(attention: ModuleType, layout: RowsLayout, dtype: torch.dtype) -> Plan:
    rows = VerifyLayout(
        offset=0,
        width=layout.width,
        pages=layout.pages,
        lengths=layout.lengths,
        store=layout.store,
        first=layout.first,
    )
    return Plan(
        shape=layout.shape,
        store=layout.store,
        rotation=layout.table.rows(layout.positions, dtype=dtype),
        attention=attention.plan(layout.shape, (), rows, dtype),
    )


def verify(
    parts: tuple[ModuleType, ModuleType, ModuleType],
    x: Tensor,
    weights: RowWeights,
    pool: Tensor,
    plan: Plan,
) -> Tensor:
    """`parts` are one backend's norm, rope and kv_write."""
    norm, rope, kv_write = parts
    heads, kv_heads = plan.shape.num_heads, plan.shape.kv_heads
    projected = qkv = x.view(len(x), -1, plan.shape.head_dim)
    if weights.q_norm is not None:
        q, k, v = qkv.narrow(1, 0, heads + 2 * kv_heads).split((heads, kv_heads, kv_heads), 1)
        q, _ = norm.rms_norm(q, weights.q_norm, weights.eps)
        k, _ = norm.rms_norm(k, weights.k_norm, weights.eps)
        qkv = torch.cat((q, k, v), dim=1)
    rotated = qkv.narrow(1, 0, heads + kv_heads).narrow(2, 0, plan.rotation.cos.shape[-1])
    rope.apply_(rotated, plan.rotation)
    kv_write.kv_write(pool, qkv.narrow(1, heads, 2 * kv_heads), plan.store)
    y: Tensor = plan.attention.attend(qkv.narrow(1, 0, heads), pool)
    if weights.has_gate:
        y = y * torch.sigmoid(projected.narrow(1, heads + 2 * kv_heads, heads).flatten(1))
    return y
