"""Gated delta done wrong in the ways it has been done wrong: the judge's cases find each of them.

`chunked` is the chunk algorithm in plain steps, right by default; each specimen changes one step.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.cpu.kernels.gated_delta_cases import KEYS, Inputs, error, judge, make_inputs

CHUNK = 64


def unit(x: Tensor) -> Tensor:
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def bounded_sums(g: Tensor) -> Tensor:
    return g.clamp(min=-100.0).double().cumsum(1)


def selected(total: Tensor) -> Tensor:
    """total [Hv, c] -> e^(total_i - total_j), 0 above the diagonal."""
    difference = (total[:, :, None] - total[:, None]).float()
    above = torch.ones_like(difference, dtype=torch.bool).triu(1)
    return difference.masked_fill(above, -torch.inf).exp()


def substituted(lower: Tensor) -> Tensor:
    """(I + lower)^-1."""
    eye = torch.eye(lower.shape[-1])
    return torch.linalg.solve_triangular(lower, eye, upper=False, unitriangular=True)


def chunked(
    inputs: Inputs,
    *,
    normalise: Callable[[Tensor], Tensor] = unit,
    sums: Callable[[Tensor], Tensor] = bounded_sums,
    decay: Callable[[Tensor], Tensor] = selected,
    inverse: Callable[[Tensor], Tensor] = substituted,
    spread: Callable[[Tensor, int], Tensor] = lambda x, group: x.repeat_interleave(group, dim=0),
) -> Tensor:
    """o [T, Hv, Dv] in float32."""
    q, k, v, g, beta = (x.float().transpose(0, 1) for x in inputs.all)
    group = v.shape[0] // k.shape[0]
    q, k = spread(unit(q), group) * q.shape[-1] ** -0.5, spread(normalise(k), group)
    state, outs = torch.zeros(v.shape[0], k.shape[-1], v.shape[-1]), []
    for first in range(0, v.shape[1], CHUNK):
        cut = slice(first, first + CHUNK)
        total = sums(g[:, cut])
        weights, entering = decay(total), total.float().exp()[..., None]
        scores = k[:, cut] @ k[:, cut].mT * weights * beta[:, cut, None]
        known = v[:, cut] - k[:, cut] * entering @ state
        delta = inverse(scores.tril(-1)) @ (known * beta[:, cut, None])
        outs.append(q[:, cut] * entering @ state + q[:, cut] @ k[:, cut].mT * weights @ delta)
        leaving = (total[:, -1:] - total).float().exp()[..., None]
        state = state * entering[:, -1:] + (k[:, cut] * leaving).mT @ delta
    return torch.cat(outs, dim=1).transpose(0, 1)


def times_mask(total: Tensor) -> Tensor:
    """e^difference overflows above the diagonal, and infinity times 0 is no number."""
    return (total[:, :, None] - total[:, None]).float().exp() * torch.ones(CHUNK, CHUNK).tril()


def factored(total: Tensor) -> Tensor:
    """e^total_i e^-total_j: the second factor overflows."""
    return (total.float().exp()[:, :, None] * (-total.float()).exp()[:, None]).tril()


def doubled(lower: Tensor) -> Tensor:
    """(I - L)(I + L^2)(I + L^4)...: powers of L grow beyond all bounds before they vanish."""
    eye, power = torch.eye(lower.shape[-1]), -lower
    result = eye + power
    for _ in range(5):
        power = power @ power
        result = result + result @ power
    return result


def clamped(g: Tensor) -> Tensor:
    """What follows position -20 counts as not decayed."""
    return g.double().cumsum(1).clamp(-20.0, 20.0)


def tiled(x: Tensor, group: int) -> Tensor:
    """Value head j reads key head j % Hk."""
    return x.repeat(group, 1, 1)


def errors(**changed: Callable[..., Tensor]) -> dict[str, float]:
    """The error of a variant on each of the judge's cases of 128 tokens."""
    found = {}
    for keys in KEYS:
        inputs = make_inputs(128, keys=keys, dtype=torch.float32)
        found[keys] = error(chunked(inputs, **changed), judge(inputs)[0], head_dim=1)
    return found


def test_the_right_algorithm_passes() -> None:
    assert max(errors().values()) < 1e-5


@pytest.mark.parametrize(
    "changed, on",
    [
        ({"decay": times_mask}, KEYS),
        ({"decay": factored}, KEYS),
        ({"inverse": doubled}, ("identical",)),
        ({"sums": clamped}, ("random", "long", "repeated")),
        ({"spread": tiled}, KEYS),
        ({"normalise": lambda k: k}, ("random", "long")),
    ],
    ids=["inf-times-mask", "factored", "neumann", "clamped", "tiled", "not-normalised"],
)
def test_the_judges_cases_find_it(changed: dict[str, Callable], on: tuple[str, ...]) -> None:
    found = errors(**changed)
    assert all(found[keys] > 1e-2 for keys in on), found


def test_sums_in_float32_are_found() -> None:
    """After a few gates of -100 the differences of float32 sums are off by 1e-4."""
    found = errors(sums=lambda g: g.clamp(min=-100.0).cumsum(1))
    assert max(found.values()) > 1e-5, found
