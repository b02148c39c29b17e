"""Grouped-query attention over the paged cache.

Legend: N tokens, H query heads, K KV heads, D head dimension (all of this rank).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from draftmark.cache.spec import PAGE_TOKENS, AttentionSpec
from draftmark.kernels import attention, attention_rows, kv_write, rope
from draftmark.layers.linear import Linear, RowLinear
from draftmark.layers.module import DirectModule
from draftmark.layers.norm import NormConfig, RMSNorm
from draftmark.layers.recurrent import LayerCache
from draftmark.layers.step import PromptStep, StageStep
from draftmark.layers.weight import Block, Placement
from draftmark.parallel.sharding import Heads, KVHeads, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """Sizes of the whole model, not of a rank. `qk_norm` None: no norm of q and k.

    The first `rotary_dim` features of a head are rotated, None for all. With `output_gate` each
    query head has a gate, whose sigmoid is a factor of what the head gives.
    """

    hidden_size: int
    num_heads: int
    kv_heads: int
    head_dim: int
    bias: bool = False
    qk_norm: NormConfig | None = None
    rotary_dim: int | None = None
    output_gate: bool = False


class Attention(DirectModule):
    """residual + o(attention(q, k, v) * gate): x, residual [N, hidden] -> [N, hidden]."""

    def __init__(self, config: AttentionConfig, *, layer: int, placement: Placement) -> None:
        super().__init__()
        self.layer = layer
        self.backends, self.itemsize = placement.backends, placement.dtype.itemsize
        size, tp_size = config.head_dim, placement.mesh.tp_size
        q, kv = Heads(config.num_heads), KVHeads(config.kv_heads)
        self.num_heads = config.num_heads // tp_size
        self.kv_heads = max(1, config.kv_heads // tp_size)
        self.head_dim = size
        self.rotary_dim = config.rotary_dim or size
        self.has_gate = config.output_gate
        splits: list[tuple[str, Heads | KVHeads]] = [("q", q), ("k", kv), ("v", kv)]
        if config.output_gate:
            splits.append(("gate", q))
        self.qkv = Linear(
            [
                Block(name, (split.num_heads * size, config.hidden_size), split)
                for name, split in splits
            ],
            bias=config.bias,
            placement=placement,
        )
        out = Block("", (config.hidden_size, config.num_heads * size), Rows())
        self.out = RowLinear(out, bias=config.bias, placement=placement)
        self.q_norm: RMSNorm | None = None
        self.k_norm: RMSNorm | None = None
        if config.qk_norm is not None:
            self.q_norm = RMSNorm(size, config.qk_norm, placement=placement)
            self.k_norm = RMSNorm(size, config.qk_norm, placement=placement)

    def forward(self, x: Tensor, residual: Tensor, step: StageStep, cache: LayerCache) -> Tensor:
        """`cache` are this layer's pages; this step's keys and values are written to them."""
        own = step.attention
        assert own is not None and isinstance(cache, Tensor)
        projected, first = self.qkv(x), own.num_prefill
        parts = []
        if own.prompts is not None:
            prompts = projected if own.rows is None else projected[:first]
            parts.append(self._prefill(prompts, own.prompts, cache))
        if own.rows is not None:
            rows = projected if own.prompts is None else projected[first:]
            parts.append(
                attention_rows.verify(
                    rows,
                    weights=self.row_weights,
                    pool=cache,
                    plan=own.rows,
                    backend=self.backends.attention_rows,
                )
            )
        return self.out(parts[0] if len(parts) == 1 else torch.cat(parts), residual)

    @cached_property
    def row_weights(self) -> attention_rows.RowWeights:
        """After `finish()`."""
        norms = (self.q_norm, self.k_norm)
        q_norm, k_norm = (None if norm is None else norm.prepared for norm in norms)
        eps = 0.0 if self.q_norm is None else self.q_norm.eps
        return attention_rows.RowWeights(
            q_norm=q_norm, k_norm=k_norm, eps=eps, has_gate=self.has_gate
        )

    def _prefill(self, projected: Tensor, own: PromptStep, cache: Tensor) -> Tensor:
        """Of the prefill rows' tokens [P, ...] -> [P, H D]."""
        heads, kv_heads = self.num_heads, self.kv_heads
        split = qkv = projected.view(len(projected), -1, self.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            q, k, v = qkv.narrow(1, 0, heads + 2 * kv_heads).split((heads, kv_heads, kv_heads), 1)
            qkv = torch.cat((self.q_norm(q)[0], self.k_norm(k)[0], v), dim=1)
        rotated = qkv.narrow(1, 0, heads + kv_heads).narrow(2, 0, self.rotary_dim)
        rope.apply_(rotated, own.rotation, backend=self.backends.rope)
        kv = qkv.narrow(1, heads, 2 * kv_heads)
        kv_write.kv_write(cache, kv=kv, store=own.store, backend=self.backends.kv_write)
        out = attention.attend(qkv.narrow(1, 0, heads), pool=cache, plan=own.plan)
        if self.has_gate:
            gate = split.narrow(1, heads + 2 * kv_heads, heads).flatten(1)
            out = out * torch.sigmoid(gate)
        return out

    def cache_spec(self, kv_dtype: torch.dtype, *, max_drafts: int) -> AttentionSpec:
        """Pages are as large for any number of drafts."""
        return AttentionSpec(
            layer=self.layer,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            dtype_bytes=kv_dtype.itemsize,
        )

    def token_bytes(self) -> int:
        """Upper bound of the temporaries for one token, but for keys that are gathered."""
        heads = (2 * self.num_heads if self.has_gate else self.num_heads) + 2 * self.kv_heads
        return 4 * heads * self.head_dim * self.itemsize

    def shape(self) -> attention.AttentionShape:
        """The same in all attention layers of a stage."""
        return attention.AttentionShape(
            num_heads=self.num_heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            page_tokens=PAGE_TOKENS,
            scale=self.head_dim**-0.5,
        )
