"""The gated delta net: a convolution over the last inputs, then a recurrence with a matrix state.

    q, k, v = conv(Wqkv x);  g, beta = gates(Wa x, Wb x);  o = delta_rule(q, k, v, g, beta)
    residual + Wo (norm(o) * act(Wz x))

Legend: N tokens, P of them of prefill rows; K key heads, V value heads, D their dimensions (all of
this rank). Value head j belongs to key head j // (V / K), so that ranks split by key heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from draftmark.cache.spec import RecurrentSpec
from draftmark.kernels import causal_conv, delta_rows, gated_delta, norm
from draftmark.kernels.gated_delta import FOLD_TOKENS
from draftmark.layers.linear import Linear, RowLinear
from draftmark.layers.module import DirectModule
from draftmark.layers.recurrent import LayerCache, RecurrentCache
from draftmark.layers.step import RecurrentStep, StageStep
from draftmark.layers.weight import Block, Kept, Layer, Placement, Weight
from draftmark.parallel.sharding import Heads, Replicated, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaConfig:
    """Sizes of the whole model, not of a rank. `activation` is that of the output gate."""

    hidden_size: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_taps: int
    norm_eps: float
    activation: norm.GateActivation = "silu"


class GatedDelta(DirectModule):
    """x, residual [N, hidden] -> [N, hidden]."""

    def __init__(self, config: GatedDeltaConfig, *, layer: int, placement: Placement) -> None:
        super().__init__()
        self.layer, self.config, self.placement = layer, config, placement
        ranks = placement.mesh.tp_size
        self.key_heads, self.value_heads = config.key_heads // ranks, config.value_heads // ranks
        keys = Heads(config.key_heads, "linear key heads")
        values = Heads(config.value_heads, "linear value heads")
        key_size, value_size = (
            config.key_heads * config.key_dim,
            config.value_heads * config.value_dim,
        )
        mixed = [("q", key_size, keys), ("k", key_size, keys), ("v", value_size, values)]
        gates = [("z", value_size, values)]
        gates += [(name, config.value_heads, values) for name in ("b", "a")]
        self.in_proj = Linear(
            [Block(name, (size, config.hidden_size), split) for name, size, split in mixed + gates],
            bias=False,
            placement=placement,
        )
        self.conv = _Taps(
            [Block(name, (size, config.conv_taps), split) for name, size, split in mixed],
            placement,
            placement.wide_dtype,
        )
        self.gates = _Gates(Block("", (config.value_heads,), values), placement)
        # One for all heads, and not zero-centred as all other norms are.
        self.norm = Kept([Block("", (config.value_dim,), Replicated())], placement)
        out = Block("", (config.hidden_size, value_size), Rows())
        self.out = RowLinear(out, bias=False, placement=placement)
        own_keys = self.key_heads * config.key_dim
        own_values = self.value_heads * config.value_dim
        self.mixed_widths = (own_keys, own_keys, own_values)
        self.widths = (sum(self.mixed_widths), own_values, self.value_heads, self.value_heads)

    def forward(self, x: Tensor, residual: Tensor, step: StageStep, cache: LayerCache) -> Tensor:
        """`cache` is this layer's; the states of this step's rows move on in it."""
        assert step.recurrent is not None and isinstance(cache, RecurrentCache)
        projected, first = self.in_proj(x), step.recurrent.num_prefill
        if first == 0:
            normed = self._verify(projected, step.recurrent, cache)
        elif first == len(x):
            normed = self._prefill(projected, step.recurrent, cache)
        else:
            prompts, rows = projected[:first], projected[first:]
            parts = (
                self._prefill(prompts, step.recurrent, cache),
                self._verify(rows, step.recurrent, cache),
            )
            normed = torch.cat(parts)
        return self.out(normed, residual)

    def cache_spec(self, kv_dtype: torch.dtype, *, max_drafts: int) -> RecurrentSpec:
        """States do not depend on the number format of keys and values. A verify row runs its
        pending token and `max_drafts` more, all of which become records."""
        config, placement, widest = self.config, self.placement, max_drafts + 1
        return RecurrentSpec(
            layer=self.layer,
            key_heads=self.key_heads,
            value_heads=self.value_heads,
            key_dim=config.key_dim,
            value_dim=config.value_dim,
            conv_taps=config.conv_taps,
            conv_depth=config.conv_taps - 1 + widest,
            records=FOLD_TOKENS - 1 + 2 * widest,
            dtype_bytes=placement.dtype.itemsize,
            state_bytes_each=placement.wide_dtype.itemsize,
        )

    def token_bytes(self) -> int:
        """Upper bound of the temporaries for one token: projections and their mixture; in the wide
        format normed q and k, v, and what a chunk makes of them; the chunk's square matrices."""
        projected, wide = sum(self.widths), self.placement.wide_dtype.itemsize
        chunk = 6 * gated_delta.CHUNK_TOKENS * self.value_heads
        spread = 2 * self.value_heads * self.config.key_dim
        per_head = 8 * (spread + self.value_heads * self.config.value_dim)
        return 4 * projected * self.placement.dtype.itemsize + (chunk + per_head) * wide

    @cached_property
    def weights(self) -> delta_rows.DeltaWeights:
        """After `finish()`."""
        return delta_rows.DeltaWeights(
            taps=self.conv.data,
            decay=self.gates.decay,
            dt_bias=self.gates.dt_bias,
            norm=self.norm.data,
            eps=self.config.norm_eps,
            activation=self.config.activation,
        )

    def _prefill(self, projected: Tensor, own: RecurrentStep, cache: RecurrentCache) -> Tensor:
        """Of the prefill rows' tokens [P, ...] -> [P, V D]."""
        mixed, z, b, a = projected.split(self.widths, dim=1)
        weights, backends = self.weights, self.placement.backends
        mixed = causal_conv.prefill(
            mixed,
            weight=weights.taps,
            ring=cache.conv,
            spans=own.spans,
            backend=backends.causal_conv,
        )
        g, beta = gated_delta.gates(
            a, b, decay=weights.decay, dt_bias=weights.dt_bias, backend=backends.gated_delta
        )
        out = gated_delta.prefill(
            *self._heads(mixed),
            g,
            beta,
            cache=cache.delta,
            spans=own.spans,
            backend=backends.gated_delta,
        )
        return norm.gated_rms_norm(
            out,
            z.unflatten(1, (self.value_heads, -1)),
            weights.norm,
            eps=weights.eps,
            activation=weights.activation,
            backend=backends.norm,
        ).flatten(1)

    def _verify(self, projected: Tensor, own: RecurrentStep, cache: RecurrentCache) -> Tensor:
        """Of the verify rows' tokens [N - P, ...] -> [N - P, V D]."""
        return delta_rows.verify(
            projected,
            weights=self.weights,
            ring=cache.conv,
            cache=cache.delta,
            slots=own.slots,
            lengths=own.lengths,
            folds=own.folds,
            width=own.width,
            backend=self.placement.backends.delta_rows,
        )

    def _heads(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = mixed.split(self.mixed_widths, dim=1)
        return (
            q.unflatten(1, (self.key_heads, -1)),
            k.unflatten(1, (self.key_heads, -1)),
            v.unflatten(1, (self.value_heads, -1)),
        )


class _Taps(Kept):
    """The convolution's weight [channels of q, k and v, taps], wide, and kept a tap at a time."""

    def finish(self) -> None:
        super().finish()
        self.data = self.data.t().contiguous().t()


class _Gates(Layer):
    """How fast each value head forgets: decay = exp(A_log) > 0, and the bias of its step."""

    def __init__(self, block: Block, placement: Placement) -> None:
        super().__init__()
        dtype = placement.wide_dtype
        self.log_decay: Weight | None = Weight([block], placement, dtype)
        self.bias: Weight | None = Weight([block], placement, dtype)

    def finish(self) -> None:
        assert self.log_decay is not None and self.bias is not None, "finish() was called twice"
        self.decay, self.dt_bias = self.log_decay.data.exp(), self.bias.data
        self.log_decay = self.bias = None

    def stored_bytes(self) -> int:
        return self.decay.nbytes + self.dt_bias.nbytes
