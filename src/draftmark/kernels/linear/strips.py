"""oneDNN's blocked layout where compiled kernels can read it: strips of 32 outputs, one after
another, each [K / 2, 32, 2], outputs and inputs filled up with zeros to multiples of 32. It is what
oneDNN takes for bf16 on CPUs with AMX.

oneDNN promises no layout: each one it names is compared with a weight once.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from draftmark.kernels.linear import onednn

WIDTH = 32
_INPUTS = 32
_are_strips: dict[bytes, bool] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Strips:
    """A packed weight [num_out, num_in], `address` being that of its strips, 0 if it has none."""

    packed: Tensor
    address: int
    num_out: int
    num_in: int

    @property
    def num_strips(self) -> int:
        return -(-self.num_out // WIDTH)

    @property
    def depth(self) -> int:
        """Inputs that a strip has weights for, zeros included."""
        return -(-self.num_in // _INPUTS) * _INPUTS

    @property
    def nbytes(self) -> int:
        return onednn.stored_bytes(self.packed)


def prepare(weight: Tensor) -> Strips:
    packed = onednn.prepare(weight)
    num_out, num_in = weight.shape
    address = torch.ops.mkldnn.data_ptr(packed)
    strips = Strips(packed=packed, address=address, num_out=num_out, num_in=num_in)
    return strips if _are_read_right(strips, weight) else replace(strips, address=0)


@cache
def has_strips(dtype: torch.dtype) -> bool:
    """Whether this CPU's layout is one that can be read."""
    if dtype != torch.bfloat16:
        return False
    bits = torch.arange(16 * WIDTH * _INPUTS, dtype=torch.int16)
    return prepare(bits.view(torch.bfloat16).view(4 * WIDTH, 4 * _INPUTS)).address != 0


def _are_read_right(strips: Strips, weight: Tensor) -> bool:
    if weight.numel() == 0 or strips.nbytes != 2 * strips.num_strips * WIDTH * strips.depth:
        return False
    layout = bytes(torch.ops.mkldnn._get_mkldnn_serialized_md(strips.packed).tolist())
    if layout not in _are_strips:
        _are_strips[layout] = _holds_strips(strips, weight)
    return _are_strips[layout]


def _holds_strips(strips: Strips, weight: Tensor) -> bool:
    held = (ctypes.c_int16 * (strips.nbytes // 2)).from_address(strips.address)
    outs, ins = strips.num_strips * WIDTH - strips.num_out, strips.depth - strips.num_in
    bits = F.pad(weight.view(torch.int16), (0, ins, 0, outs))
    pairs = bits.view(strips.num_strips, WIDTH, strips.depth // 2, 2)
    return torch.equal(torch.frombuffer(held, dtype=torch.int16), pairs.transpose(1, 2).flatten())
