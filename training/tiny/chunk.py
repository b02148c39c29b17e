"""The gated delta rule in chunks, differentiable: what training runs in place of a recurrence.

With G the sum of gates within a chunk, the d of its tokens solve (I + A) d = beta (v - e^G S^T k),
A_ij = beta_i e^(G_i - G_j) k_i.k_j below the diagonal; then o = e^G S^T q + (q.k decayed) d, and S
moves on by one product. Only differences of G that are not positive are exponentiated. The inverse
of I + A is taken by substitution in blocks of 16 and merged, in full float32: a Neumann series over
a whole chunk, or tf32, loses it where keys repeat.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_TOKENS = 64
# A gate of this size wipes a state out: e^-100 is 4e-44. Documents that share a row are parted so.
RESET_GATE = -100.0
_BLOCK = 16


def gated_delta(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """q, k [B, T, Hk, Dk] of unit length (q also scaled), v [B, T, Hv, Dv], g <= 0 and beta
    [B, T, Hv], all of one dtype, float32 or float64, T a multiple of `CHUNK_TOKENS`; value head j
    reads key head j // (Hv / Hk). Every row starts from an empty state. -> o [B, T, Hv, Dv]
    """
    group = v.shape[2] // k.shape[2]
    q, k = (x.repeat_interleave(group, dim=2) for x in (q, k))
    q, k, v = (_chunks(x) for x in (q, k, v))  # [B Hv, N, c, D]
    total = _chunks(g[..., None].clamp(min=RESET_GATE)).cumsum(dim=2)  # [B Hv, N, c, 1]
    beta = _chunks(beta[..., None])

    decay = _decay(total)
    inverse = unit_inverse((exact_matmul(k, k.mT) * decay * beta).tril(-1))
    entering = total.exp()
    fresh = torch.matmul(inverse, v * beta)
    known = torch.matmul(inverse, k * (beta * entering))
    last = total[:, :, -1:]
    leaving = (k * (last - total).exp()).mT
    fade = last.exp()

    state = v.new_zeros(v.shape[0], k.shape[-1], v.shape[-1])
    states, deltas = [], []
    # unbind, whose derivative writes each chunk once; that of an index writes all for each.
    for own, seen, given, faded in zip(
        *(x.unbind(1) for x in (fresh, known, leaving, fade)), strict=True
    ):
        states.append(state)
        deltas.append(torch.baddbmm(own, seen, state, alpha=-1))
        state = torch.baddbmm(state * faded, given, deltas[-1])
    among = torch.matmul(q, k.mT) * decay
    out = torch.matmul(q * entering, torch.stack(states, 1)) + torch.matmul(
        among, torch.stack(deltas, 1)
    )
    batch, heads = g.shape[0], g.shape[2]
    return out.flatten(1, 2).view(batch, heads, -1, out.shape[-1]).transpose(1, 2)


def _chunks(x: Tensor) -> Tensor:
    """[B, T, H, D] -> [B H, N, c, D]"""
    return x.transpose(1, 2).flatten(0, 1).unflatten(1, (-1, CHUNK_TOKENS)).contiguous()


def _decay(total: Tensor) -> Tensor:
    """e^(G_i - G_j), 0 where j is after i: chosen before the exponential, which overflows there."""
    difference = total - total.mT
    is_after = torch.ones(difference.shape[-2:], dtype=torch.bool, device=total.device).triu(1)
    return difference.masked_fill(is_after, -torch.inf).exp()


@torch.library.custom_op("draftmark_tiny::exact_matmul", mutates_args=())
def exact_matmul(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in full float32 also where tf32 is allowed. One op, so that a compiler leaves it be."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    try:
        return torch.matmul(a, b)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


@exact_matmul.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


def _keep_factors(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _matmul_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    a, b = ctx.saved_tensors
    return exact_matmul(grad, b.mT), exact_matmul(a.mT, grad)


exact_matmul.register_autograd(_matmul_backward, setup_context=_keep_factors)


@torch.library.custom_op("draftmark_tiny::unit_inverse", mutates_args=())
def unit_inverse(lower: Tensor) -> Tensor:
    """(I + A)^-1 of strictly lower triangular A [..., c, c]. Its derivative needs the inverse
    alone, so the substitution leaves no graph."""
    return _unit_inverse(lower)


@unit_inverse.register_fake
def _(lower: Tensor) -> Tensor:
    return torch.empty_like(lower, memory_format=torch.contiguous_format)


def _keep_inverse(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _inverse_backward(ctx: Any, grad: Tensor) -> Tensor:
    (inverse,) = ctx.saved_tensors
    turned = inverse.mT.contiguous()
    return -exact_matmul(exact_matmul(turned, grad), turned).tril(-1)


unit_inverse.register_autograd(_inverse_backward, setup_context=_keep_inverse)


def _unit_inverse(lower: Tensor) -> Tensor:
    size = lower.shape[-1]
    inverse = torch.zeros_like(lower, memory_format=torch.contiguous_format)
    blocks = _diagonal(lower, _BLOCK)
    solved = torch.eye(_BLOCK, dtype=lower.dtype, device=lower.device).expand_as(blocks).clone()
    for i in range(1, _BLOCK):
        solved[..., i, :i] = -exact_matmul(blocks[..., i, None, :i], solved[..., :i, :i])[..., 0, :]
    _diagonal(inverse, _BLOCK).copy_(solved)
    width = _BLOCK
    while width < size:
        # Two neighbours X, Y with B between them: [[X, 0], [-Y B X, Y]].
        pairs, below = _diagonal(inverse, 2 * width), _diagonal(lower, 2 * width)
        first, second = pairs[..., :width, :width], pairs[..., width:, width:]
        pairs[..., width:, :width] = -exact_matmul(
            exact_matmul(second, below[..., width:, :width]), first
        )
        width *= 2
    return inverse


def _diagonal(x: Tensor, width: int) -> Tensor:
    """The blocks on the diagonal as a view [..., c / w, w, w]."""
    blocks = x.unflatten(-1, (-1, width)).unflatten(-3, (-1, width))
    return blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
