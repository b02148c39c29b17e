"""experts on plain weights, in one of two ways that `is_whole_faster` chooses by shapes alone.

*whole*: every token through every expert, two products in all, of which the chosen answers are
picked. A GPU always takes it, in slices of tokens that bound the temporaries: it reads nothing on
the host. *looped* (see `grouped`): the experts that were hit, one after the other.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from draftmark.kernels.experts import composed, grouped
from draftmark.kernels.experts.weights import Mixture, Shared
from draftmark.kernels.silu_mul import torch as silu_mul

SLICE_BYTES = 64 << 20
# bf16 on two cores with AMX, as benchmarks/experts.py found them. A product takes oneDNN 30 us even
# of 0.1 MB, so that 16 rows through 58 of 64 experts of 0.4 MB took 8.7 ms looped and 2.0 whole;
# 512 rows 17 and 33. In fp32, whose calls take 6 us, whole was never more than 1.2 times as fast.
_LOOPED_US = 130.0  # of one expert, besides reading it
_MACS_PER_US = 300e3
_BYTES_PER_US = 16e3


def route(logits: Tensor, top_k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    # `topk` would be faster but promises no order of equal values.
    values, order = logits.sort(dim=1, descending=True, stable=True)
    ids = order[:, :top_k]
    if renormalise:
        # The softmax of all over its sum over these is the softmax of these.
        return ids, values[:, :top_k].softmax(dim=1)
    return ids, logits.softmax(dim=1).gather(1, ids)


def prepare(gate_up: Tensor, down: Tensor) -> tuple[Tensor, ...]:
    return gate_up, down


def experts(x: Tensor, ids: Tensor, weights: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
    gate_up, down = prepared
    if x.is_cuda or is_whole_faster(gate_up, num_tokens=ids.shape[0], top_k=ids.shape[1]):
        return whole(x, ids, weights, gate_up, down)
    return looped(x, ids, weights, gate_up, down)


def is_whole_faster(gate_up: Tensor, *, num_tokens: int, top_k: int) -> bool:
    """Whether the loop's calls take longer than reading and multiplying what nobody chose, where
    all experts are chosen equally often."""
    if gate_up.itemsize >= 4:
        return False
    num_experts, double_size, hidden_size = gate_up.shape
    expert_macs = double_size * hidden_size * 3 // 2
    hit = num_experts * (1 - (1 - top_k / num_experts) ** num_tokens)
    read_us = (num_experts - hit) * expert_macs * gate_up.itemsize / _BYTES_PER_US
    multiplied_us = num_tokens * (num_experts - top_k) * expert_macs / _MACS_PER_US
    return read_us + multiplied_us < hit * _LOOPED_US


def looped(x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    def expert(rows: Tensor, number: int) -> Tensor:
        act = silu_mul.silu_mul(F.linear(rows, gate_up[number]))
        return F.linear(act, down[number])

    return grouped.experts(x, ids, weights, expert)


def whole(x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    num_experts, double_size, hidden_size = gate_up.shape
    sizes = (ids.shape[1], num_experts, hidden_size, double_size // 2, x.itemsize)
    count = max(1, SLICE_BYTES // _token_bytes(*sizes))
    slices = zip(x.split(count), ids.split(count), weights.split(count), strict=True)
    parts = [_whole(*part, gate_up, down) for part in slices]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _whole(x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    (num_tokens, top_k), (num_experts, double_size, hidden_size) = ids.shape, gate_up.shape
    both = F.linear(x, gate_up.flatten(0, 1)).view(num_tokens, num_experts, double_size)
    act = silu_mul.silu_mul(both).transpose(0, 1)
    answers = torch.bmm(act, down.transpose(1, 2)).flatten(0, 1)
    places = ids * num_tokens + torch.arange(num_tokens, device=x.device)[:, None]
    chosen = answers.index_select(0, places.flatten()).to(weights.dtype)
    summed = torch.bmm(weights[:, None], chosen.view(num_tokens, top_k, hidden_size))
    return summed[:, 0].to(x.dtype)


def mixture(x: Tensor, own: Mixture, residual: Tensor | None) -> Tensor:
    return composed.mixture(x, own, residual, route=route, experts=experts, expert=expert)


def expert(x: Tensor, shared: Shared) -> Tensor:
    return F.linear(silu_mul.silu_mul(F.linear(x, shared.gate_up)), shared.down)


def workspace_bytes(
    top_k: int, num_experts: int, hidden_size: int, intermediate_size: int, itemsize: int
) -> int:
    """Of one slice, which has at least one token."""
    token = _token_bytes(top_k, num_experts, hidden_size, intermediate_size, itemsize)
    return max(SLICE_BYTES, token)


def _token_bytes(
    top_k: int, num_experts: int, hidden_size: int, intermediate_size: int, itemsize: int
) -> int:
    """Both halves, the act, perhaps once more in another order, and the answers; those chosen."""
    every = num_experts * (4 * intermediate_size + hidden_size) * itemsize
    return every + top_k * (hidden_size * (itemsize + max(itemsize, 4)) + 16)
