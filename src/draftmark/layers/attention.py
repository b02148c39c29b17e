"""Grouped-query attention over the paged cache.

Legend: N tokens, H query heads, K KV heads, D head dimension (all of this rank).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftmark.cache.spec import AttentionSpec
from draftmark.kernels import attention, kv_write, rope
from draftmark.layers.batch import Batch
from draftmark.layers.linear import Linear, RowLinear
from draftmark.layers.module import DirectModule
from draftmark.layers.norm import RMSNorm
from draftmark.layers.rotary import Rotary
from draftmark.layers.weight import Block, Placement
from draftmark.parallel.sharding import Heads, KVHeads, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """Sizes of the whole model, not of a rank. `qk_norm_eps` None: no norm of q and k."""

    hidden_size: int
    num_heads: int
    kv_heads: int
    head_dim: int
    bias: bool = False
    qk_norm_eps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionStep:
    """What all attention layers of a stage share in one step."""

    store: Tensor
    rotation: rope.RopeRows
    plan: attention.Plan


class Attention(DirectModule):
    """residual + o(attention(q, k, v)): x, residual [N, hidden] -> [N, hidden]."""

    def __init__(self, config: AttentionConfig, *, layer: int, placement: Placement) -> None:
        super().__init__()
        self.layer = layer
        self.backends = placement.backends
        size, tp_size = config.head_dim, placement.mesh.tp_size
        q, kv = Heads(config.num_heads), KVHeads(config.kv_heads)
        self.num_heads = config.num_heads // tp_size
        self.kv_heads = max(1, config.kv_heads // tp_size)
        self.head_dim = size
        self.qkv = Linear(
            [
                Block(name, (split.num_heads * size, config.hidden_size), split)
                for name, split in (("q", q), ("k", kv), ("v", kv))
            ],
            bias=config.bias,
            placement=placement,
        )
        out = Block("", (config.hidden_size, config.num_heads * size), Rows())
        self.out = RowLinear(out, bias=config.bias, placement=placement)
        self.q_norm: RMSNorm | None = None
        self.k_norm: RMSNorm | None = None
        if config.qk_norm_eps is not None:
            self.q_norm = RMSNorm(size, eps=config.qk_norm_eps, placement=placement)
            self.k_norm = RMSNorm(size, eps=config.qk_norm_eps, placement=placement)

    def forward(self, x: Tensor, residual: Tensor, step: AttentionStep, pool: Tensor) -> Tensor:
        """`pool` is this layer's; this step's keys and values are written to it."""
        heads, kv_heads = self.num_heads, self.kv_heads
        qkv = self.qkv(x).view(x.shape[0], -1, self.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            q, k, v = qkv.split((heads, kv_heads, kv_heads), dim=1)
            qkv = torch.cat((self.q_norm(q)[0], self.k_norm(k)[0], v), dim=1)
        rope.apply_(qkv.narrow(1, 0, heads + kv_heads), step.rotation, backend=self.backends.rope)
        kv = qkv.narrow(1, heads, 2 * kv_heads)
        kv_write.kv_write(pool, kv=kv, store=step.store, backend=self.backends.kv_write)
        out = attention.attend(qkv.narrow(1, 0, heads), pool=pool, plan=step.plan)
        return self.out(out, residual)

    def cache_spec(self, kv_dtype: torch.dtype) -> AttentionSpec:
        return AttentionSpec(
            layer=self.layer,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            dtype_bytes=kv_dtype.itemsize,
        )


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
            offset=span.offset, count=span.count, start=span.start, pages=span.pages
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
        )
    plan = attention.plan(
        shape,
        prefill=prefill,
        verify=verify,
        dtype=placement.dtype,
        backend=placement.backends.attention,
    )
    return AttentionStep(store=batch.store, rotation=rotary.rows(batch.positions), plan=plan)
