"""oneDNN's blocked layout where compiled kernels can read it: strips of 32 outputs, one after
another, each [K / 2, 32, 2]. It is what oneDNN takes for bf16 on CPUs with AMX.

oneDNN promises no layout: each one it names is compared with a weight once.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from draftmark.kernels.linear import onednn

WIDTH = 32
_INPUTS = 32  # K is filled up to a multiple of it
_are_strips: dict[bytes, bool] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Strips:
    """A packed weight [num_out, num_in], `address` being that of its strips, 0 if it has none."""

    packed: Tensor
    address: int
    num_out: int
    num_in: int

    @property
    def nbytes(self) -> int:
        return onednn.stored_bytes(self.packed)


def prepare(weight: Tensor) -> Strips:
    packed = onednn.prepare(weight)
    num_out, num_in = weight.shape
    address = torch.ops.mkldnn.data_ptr(packed) if _is_in_strips(packed, weight) else 0
    return Strips(packed=packed, address=address, num_out=num_out, num_in=num_in)


@cache
def has_strips(dtype: torch.dtype) -> bool:
    """Whether this CPU's layout is one that can be read."""
    if dtype != torch.bfloat16:
        return False
    bits = torch.arange(16 * WIDTH * _INPUTS, dtype=torch.int16)
    return prepare(bits.view(torch.bfloat16).view(4 * WIDTH, 4 * _INPUTS)).address != 0


def _is_in_strips(packed: Tensor, weight: Tensor) -> bool:
    num_out, num_in = weight.shape
    if num_out % WIDTH != 0 or num_in % _INPUTS != 0 or weight.numel() == 0:
        return False
    layout = bytes(torch.ops.mkldnn._get_mkldnn_serialized_md(packed).tolist())
    if layout not in _are_strips:
        _are_strips[layout] = _holds_strips(packed, weight)
    return _are_strips[layout]


def _holds_strips(packed: Tensor, weight: Tensor) -> bool:
    num_out, num_in = weight.shape
    if onednn.stored_bytes(packed) != weight.nbytes:
        return False
    address = torch.ops.mkldnn.data_ptr(packed)
    held = (ctypes.c_int16 * weight.numel()).from_address(address)
    pairs = weight.view(torch.int16).reshape(num_out // WIDTH, WIDTH, num_in // 2, 2)
    return torch.equal(torch.frombuffer(held, dtype=torch.int16), pairs.transpose(1, 2).flatten())
