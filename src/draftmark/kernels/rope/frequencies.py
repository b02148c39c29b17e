"""Rotary frequencies in float64: plain, linear, llama3 and yarn scaling.

Dimension pair i of D/2 turns by theta^(-2i/D) a position. The scalings slow the pairs down so that
positions beyond the trained context look like trained ones: `linear` all alike, `llama3` and `yarn`
only those that turn less than about once in the trained context, with a ramp between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """`kind` is default, linear, llama3 or yarn; the other fields belong to the kinds named."""

    kind: str = "default"
    factor: float = 1.0  # linear, llama3, yarn
    original_context: int = 0  # llama3, yarn: tokens of the context trained first
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    truncate: bool = True  # yarn: round the ramp's ends to whole dimensions
    attention_factor: float = 1.0  # yarn: cos and sin are multiplied by it


def inverse_frequencies(dim: int, *, theta: float, scaling: RopeScaling) -> Tensor:
    """[dim / 2] float64 radians a position. Raises ValueError for an unknown kind."""
    plain = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if scaling.kind == "default":
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "llama3":
        return _llama3(plain, scaling)
    if scaling.kind == "yarn":
        return _yarn(plain, theta, scaling)
    raise ValueError(f"rope scaling {scaling.kind!r} is not built")


def yarn_attention_factor(factor: float, mscale: float = 1.0) -> float:
    """The published correction of attention's temperature for a stretched context."""
    return 1.0 if factor <= 1.0 else 0.1 * mscale * math.log(factor) + 1.0


def _llama3(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """Pairs with more than high_freq_factor turns in the original context stay, those with fewer
    than low_freq_factor are slowed in full, linear in the number of turns between."""
    turns = scaling.original_context * plain / (2 * math.pi)
    width = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / width).clamp(0.0, 1.0)
    return keep * plain + (1.0 - keep) * plain / scaling.factor


def _yarn(plain: Tensor, theta: float, scaling: RopeScaling) -> Tensor:
    """As llama3, but linear in the dimension between those of beta_fast and beta_slow turns."""
    dim = 2 * plain.numel()

    def dimension_of(turns: float) -> float:
        ratio = scaling.original_context / (turns * 2 * math.pi)
        return dim * math.log(ratio) / (2 * math.log(theta))

    low, high = dimension_of(scaling.beta_fast), dimension_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    span = high - low if high != low else 1e-3
    slow = ((torch.arange(plain.numel(), dtype=torch.float64) - low) / span).clamp(0.0, 1.0)
    return (1.0 - slow) * plain + slow * plain / scaling.factor
