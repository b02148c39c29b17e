"""route and experts token by token, in at least fp32, rounded where the formula says so."""

from __future__ import annotations

import torch
from torch import Tensor

from draftmark.kernels.experts import composed
from draftmark.kernels.experts.weights import Mixture, Shared
from draftmark.kernels.linear import reference as linear


def route(logits: Tensor, top_k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    shares = logits.softmax(dim=1)
    ids = torch.empty(logits.shape[0], top_k, dtype=torch.int64, device=logits.device)
    for row, values in enumerate(logits.tolist()):
        # Python's sort is stable: of equal ones the lowest id stays first.
        best = sorted(range(len(values)), key=lambda expert: -values[expert])[:top_k]
        ids[row] = torch.tensor(best, device=logits.device)
    weights = shares.gather(1, ids)
    return ids, weights / weights.sum(dim=1, keepdim=True) if renormalise else weights


def prepare(gate_up: Tensor, down: Tensor) -> tuple[Tensor, ...]:
    return gate_up, down


def experts(x: Tensor, ids: Tensor, weights: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
    gate_up, down = prepared
    wide = torch.promote_types(x.dtype, torch.float32)
    y = torch.zeros(x.shape, dtype=wide, device=x.device)
    for row in range(x.shape[0]):
        for expert, weight in zip(ids[row].tolist(), weights[row], strict=True):
            act = linear.gated_linear(x[row : row + 1], (gate_up[expert],))
            y[row] += weight * linear.wide_linear(act, (down[expert],))[0]
    return y.to(x.dtype)


def mixture(x: Tensor, own: Mixture, residual: Tensor | None) -> Tensor:
    return composed.mixture(x, own, residual, route=route, experts=experts, expert=_expert)


def _expert(x: Tensor, shared: Shared) -> Tensor:
    act = linear.gated_linear(x, (shared.gate_up,))
    return linear.linear(act, shared.down, None, None)
