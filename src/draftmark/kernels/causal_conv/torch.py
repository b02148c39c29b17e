"""causal_conv as one multiply-add a tap over shifted views, after the earlier inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from draftmark.kernels.spans import Span, read_ring, write_ring

# Tokens of a prompt taken at once: what the taps pass over several times stays in a CPU's cache.
_BLOCK_TOKENS = 64


def prefill(x: Tensor, weight: Tensor, ring: Tensor, spans: Sequence[Span]) -> Tensor:
    y = torch.empty_like(x)
    by_tap = _by_tap(weight, x.dtype)
    for span in spans:
        _prefill_span(y[span.tokens], x[span.tokens], by_tap, ring[span.slot], span)
    return y


def _prefill_span(y: Tensor, x: Tensor, by_tap: Tensor, ring: Tensor, span: Span) -> None:
    before = by_tap.shape[0] - 1
    known = min(before, span.start)
    history = x.new_zeros(before, x.shape[1])
    if known:
        history[before - known :] = read_ring(ring, span.start - known, known)
    step = _BLOCK_TOKENS if x.is_cpu else span.count
    for first in range(0, span.count, step):
        block = torch.cat((history, x[first : first + step])).to(by_tap.dtype)
        y[first : first + step] = _convolve(block, by_tap)
        history = x[max(first + step - before, 0) : first + step]
    kept = min(before, span.count)
    write_ring(ring, span.end - kept, x[span.count - kept :])


def verify(
    x: Tensor, weight: Tensor, ring: Tensor, slots: Tensor, lengths: Tensor, width: int
) -> Tensor:
    depth, channels, taps = ring.shape[1], ring.shape[2], weight.shape[1]
    position = lengths[:, None] + torch.arange(1 - taps, width, device=x.device)
    places = slots[:, None] * depth + position.remainder(depth)
    stored = ring.view(-1, channels)
    # Stored first, so that one gather brings each row's earlier inputs and its own.
    stored.index_copy_(0, places[:, taps - 1 :].reshape(-1), x)
    by_tap = _by_tap(weight, x.dtype)
    block = stored.index_select(0, places.view(-1)).view(*places.shape, channels).to(by_tap.dtype)
    is_before = position < 0
    if x.is_cpu:  # a pass over everything is a third of the time, and few rows are that short
        block.flatten(0, 1).index_fill_(0, is_before.view(-1).nonzero().view(-1), 0.0)
    else:
        block.masked_fill_(is_before[..., None], 0.0)
    return _convolve(block, by_tap).to(x.dtype).view(x.shape)


def _by_tap(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """[C, T] -> [T, C] contiguous, in W."""
    return weight.t().to(torch.promote_types(dtype, torch.float32)).contiguous()


def _convolve(block: Tensor, by_tap: Tensor) -> Tensor:
    """block [..., T - 1 + n, C] -> [..., n, C]."""
    taps = by_tap.shape[0]
    num_tokens = block.shape[-2] - taps + 1
    total = block.narrow(-2, 0, num_tokens) * by_tap[0]
    for j in range(1, taps):
        total.addcmul_(block.narrow(-2, j, num_tokens), by_tap[j])
    return F.silu(total, inplace=True)
