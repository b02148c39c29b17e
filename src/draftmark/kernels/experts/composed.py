"""mixture as calls of its parts, each rounded."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from draftmark.kernels.experts.weights import Mixture, Shared

Route = Callable[[Tensor, int, bool], tuple[Tensor, Tensor]]
Experts = Callable[[Tensor, Tensor, Tensor, tuple[Tensor, ...]], Tensor]
Expert = Callable[[Tensor, Shared], Tensor]


def mixture(
    x: Tensor,
    own: Mixture,
    residual: Tensor | None,
    *,
    route: Route,
    experts: Experts,
    expert: Expert,
) -> Tensor:
    rows = x.to(own.router.dtype)
    ids, weights = route(F.linear(rows, own.router), own.top_k, own.renormalise)
    y = experts(x, ids, weights, own.prepared)
    if own.shared is None and residual is None:
        return y
    wide = y.to(torch.promote_types(y.dtype, torch.float32))
    if own.shared is not None:
        answer = expert(x, own.shared).to(wide.dtype)
        gate = F.linear(rows, own.shared.gate)
        wide = torch.addcmul(wide, torch.sigmoid(gate), answer)
    if residual is not None:
        wide = wide + residual
    return wide.to(y.dtype)
