"""The noise of a candidate: a counter hash of (seed, position, token id), the same on any device.

    key  = mix(mix(seed + GOLDEN) + position * GOLDEN)
    bits = mix(key + token * GOLDEN)                         all modulo 2**64
    v    = ((bits >> 12) + 0.5) / 2**52                      in (0, 1), exact: `uniform`
    Gumbel = -log(-log(1 - v))                               in float64

`mix` is the finaliser of SplitMix64. Nothing else enters: not the row, the batch, the other
parameters or a generator's state. torch has no unsigned 64-bit arithmetic, so int64 wraps, and a
logical shift is an arithmetic one with the copied sign bits masked off.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


GOLDEN = _signed(0x9E3779B97F4A7C15)
MIX_1 = _signed(0xBF58476D1CE4E5B9)
MIX_2 = _signed(0x94D049BB133111EB)


def _xor_shift_(x: Tensor, bits: int) -> Tensor:
    return x.bitwise_xor_((x >> bits).bitwise_and_((1 << (64 - bits)) - 1))


def mix_(x: Tensor) -> Tensor:
    """SplitMix64's finaliser of int64 `x`, in place."""
    _xor_shift_(x, 30).mul_(MIX_1)
    _xor_shift_(x, 27).mul_(MIX_2)
    return _xor_shift_(x, 31)


def row_keys(seed: Tensor, position: Tensor) -> Tensor:
    """Key of each row: `seed`, `position` [R] int64 -> [R] int64."""
    return mix_(mix_(seed + GOLDEN).add_(position * GOLDEN))


def uniform(keys: Tensor, token_ids: Tensor) -> Tensor:
    """For `token_ids` [R or 1, C] int64 under `keys` [R] -> [R, C] float64, in (0, 1)."""
    bits = mix_(token_ids * GOLDEN + keys[:, None])
    return (bits >> 12).bitwise_and_((1 << 52) - 1).to(torch.float64).add_(0.5).mul_(2.0**-52)


def gumbel(keys: Tensor, token_ids: Tensor) -> Tensor:
    """Noise of `token_ids` [R or 1, C] int64 under `keys` [R] -> [R, C] float64.

    v is small for the likeliest winners, so 1 - v is taken by log1p: the tail down to 2**-53 is
    as exact as float64.
    """
    return uniform(keys, token_ids).neg_().log1p_().neg_().log_().neg_()
