"""experts on weights in oneDNN's blocked layout, each expert's packed by itself.

Gate and up are one product: a call takes 30 us whatever it multiplies, more than fusing their
activation saves (8 experts of 0.4 MB at one row: 0.83 ms, 1.07 as two products). Experts below
`PACKED_BYTES` stay plain, so that all of them can be one product (see `torch`): at 0.4 MB that is
the faster from two rows on, at 3 MB never by more than 1.3.
"""

from __future__ import annotations

from torch import Tensor

from draftmark.kernels.experts import composed, grouped
from draftmark.kernels.experts import torch as plain
from draftmark.kernels.experts.weights import Mixture
from draftmark.kernels.linear import onednn as linear
from draftmark.kernels.silu_mul import torch as silu_mul

PACKED_BYTES = 1 << 20


def prepare(gate_up: Tensor, down: Tensor) -> tuple[Tensor, ...]:
    """Plain as they are, or gate_up of each expert, then down of each."""
    if gate_up[0].nbytes + down[0].nbytes < PACKED_BYTES:
        return plain.prepare(gate_up, down)
    return tuple(linear.prepare(weight) for part in (gate_up, down) for weight in part)


def experts(x: Tensor, ids: Tensor, weights: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
    if not prepared[0].is_mkldnn:
        return plain.experts(x, ids, weights, prepared)
    num_experts = len(prepared) // 2

    def one(rows: Tensor, number: int) -> Tensor:
        act = silu_mul.silu_mul(linear.linear(rows, prepared[number], None, None))
        return linear.linear(act, prepared[num_experts + number], None, None)

    return grouped.experts(x, ids, weights, one)


def mixture(x: Tensor, own: Mixture, residual: Tensor | None) -> Tensor:
    return composed.mixture(
        x, own, residual, route=plain.route, experts=experts, expert=plain.expert
    )
