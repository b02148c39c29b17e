"""Muon for the matrices, Adam for the rest: momentum of a matrix, made orthogonal before each step.

The orthogonalisation is the quintic Newton-Schulz iteration of Jordan et al. 2024 (Muon). Stacks of
matrices (experts) are taken one by one, and all of one shape in one product.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
# Small, or not a product with a hidden state: Adam's.
_ADAM = (
    "embed_tokens",
    "norm",
    "conv1d",
    "A_log",
    "dt_bias",
    "in_proj_a",
    "in_proj_b",
    "mlp.gate.",
    "shared_expert_gate",
)


class Muon(torch.optim.Optimizer):
    """lr is the step's size in units of a matrix whose singular values are all one."""

    def __init__(
        self, parameters: list[nn.Parameter], *, lr: float, momentum: float, weight_decay: float
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape[-2:], []).append(parameter)
            for parameters in by_shape.values():
                self._step_alike(parameters, group)

    def _step_alike(self, parameters: list[nn.Parameter], group: dict) -> None:
        grads = [parameter.grad for parameter in parameters]
        momenta = []
        for parameter in parameters:
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter)
            momenta.append(state["momentum"])
        torch._foreach_lerp_(momenta, grads, 1 - group["momentum"])
        ahead = torch._foreach_lerp(grads, momenta, group["momentum"])  # Nesterov
        height, width = parameters[0].shape[-2:]
        stack = torch.cat([update.reshape(-1, height, width) for update in ahead])
        stack = orthogonal(stack).to(parameters[0].dtype)
        stack *= max(1.0, height / width) ** 0.5
        updates = stack.split([p.numel() // (height * width) for p in parameters])
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["decay"])
        torch._foreach_add_(
            parameters,
            [update.view_as(p) for update, p in zip(updates, parameters, strict=True)],
            alpha=-group["lr"],
        )


def orthogonal(x: Tensor) -> Tensor:
    """[n, a, b] -> the nearest matrices with singular values near one, in bfloat16."""
    a, b, c = _COEFFICIENTS
    is_tall = x.shape[-2] > x.shape[-1]
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-12)).bfloat16()
    x = x.mT if is_tall else x
    for _ in range(_ITERATIONS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if is_tall else x


def make_optimizers(
    model: nn.Module, *, matrix_lr: float, adam_lr: float
) -> list[torch.optim.Optimizer]:
    """Both optimisers; each group keeps its first rate as `peak_lr`."""
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        (others if any(part in name for part in _ADAM) else matrices).append(parameter)
    optimizers: list[torch.optim.Optimizer] = [
        Muon(matrices, lr=matrix_lr, momentum=0.95, weight_decay=0.05),
        torch.optim.Adam(others, lr=adam_lr, betas=(0.9, 0.95), fused=others[0].is_cuda),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers
