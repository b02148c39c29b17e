"""linear and gated_linear on weights in oneDNN's blocked layout.

At one row a bf16 step is the reading of its weights; blocked weights are read at the memory's
speed where plain ones are not (10 against 17 ms for SmolLM2-135M on two cores). The layout is
chosen for `_ROWS_HINT` rows and works for any number: one chosen for 1 or for 512 gained nothing.
Residual, SiLU and gate product ride on the products as post-operations, before rounding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_ROWS_HINT = 16
# More than the 20 log-probabilities that a request may ask for.
WIDE_CANDIDATES = 32
_pointwise = torch.ops.mkldnn._linear_pointwise.default
_pointwise_binary = torch.ops.mkldnn._linear_pointwise.binary


def prepare(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_HINT)


def prepare_gated(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    """Two weights, then two biases if there are any."""
    weights = tuple(prepare(half.contiguous()) for half in weight.chunk(2))
    return weights if bias is None else weights + tuple(b.contiguous() for b in bias.chunk(2))


def prepare_wide(weight: Tensor, is_kept: bool) -> tuple[Tensor, ...]:
    """The plain weight, whose rows can be looked up, and a blocked one unless that would double
    the memory of a large head: plain rows take 1.5 times as long to read."""
    return (weight, prepare(weight)) if is_kept else (weight,)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
    if residual is None:
        return _pointwise(x, weight, bias, "none", [], "")
    return _pointwise_binary(x, residual, weight, bias, "add")


def wide_linear(x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
    """oneDNN's binding has no output wider than its inputs: the product is rounded, and the largest
    of each row are made again from the weight's rows."""
    weight, *packed = prepared
    y = linear(x, packed[0], None, None) if packed else F.linear(x, weight)
    best = y.topk(min(WIDE_CANDIDATES, y.shape[1]), sorted=False).indices
    rows = weight.index_select(0, best.view(-1)).view(*best.shape, -1)
    exact = torch.bmm(rows.float(), x.float().unsqueeze(2)).squeeze(2)
    return y.float().scatter_(1, best, exact)


def gated_linear(x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
    gate_weight, up_weight, *biases = prepared
    gate_bias, up_bias = biases if biases else (None, None)
    gate = _pointwise(x, gate_weight, gate_bias, "swish", [], "")
    return _pointwise_binary(x, gate, up_weight, up_bias, "mul")


def stored_bytes(prepared: Tensor) -> int:
    return int(torch.ops.mkldnn._nbytes(prepared))
