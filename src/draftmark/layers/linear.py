"""Linear layers: one product for several checkpoint tensors (q, k, v; gate, up)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from draftmark.kernels import linear as op
from draftmark.layers.weight import Block, Layer, Placement, Weight


class Linear(Layer):
    """y = x W^T + b (+ residual), with the rows of all blocks in one weight.

    x [N, in] -> [N, sum of the blocks' rows on this rank].
    """

    def __init__(self, blocks: Sequence[Block], *, bias: bool, placement: Placement) -> None:
        super().__init__()
        self.backend = placement.backends.linear
        self.weight: Weight | None = Weight(blocks, placement)
        self.bias: Weight | None = None
        if bias:
            self.bias = Weight([_bias_of(block) for block in blocks], placement)

    def finish(self) -> None:
        assert self.weight is not None, "finish() was called twice"
        self.prepared = op.prepare(self.weight.data, backend=self.backend)
        self.bias_data = None if self.bias is None else self.bias.data
        self.weight = self.bias = None

    def stored_bytes(self) -> int:
        bias = 0 if self.bias_data is None else self.bias_data.nbytes
        return bias + op.stored_bytes(self.prepared)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return op.linear(x, self.prepared, self.bias_data, residual=residual, backend=self.backend)


class RowLinear(Linear):
    """The same where the input features are split: x [N, in of this rank] -> [N, out] of all.

    Bias and residual, which every rank has, ride on the product of rank 0 alone.
    """

    def __init__(self, block: Block, *, bias: bool, placement: Placement) -> None:
        is_first = placement.mesh.tp_rank == 0
        super().__init__([block], bias=bias and is_first, placement=placement)
        self.group, self.is_first = placement.group, is_first

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        own = residual if self.is_first else None
        y = op.linear(x, self.prepared, self.bias_data, residual=own, backend=self.backend)
        return self.group.sum(y)


class GatedLinear(Layer):
    """y = silu(gate(x)) * up(x): x [N, in] -> [N, rows of one block]. Blocks: gate, up."""

    def __init__(self, gate: Block, up: Block, *, bias: bool, placement: Placement) -> None:
        super().__init__()
        self.backend = placement.backends.linear
        self.weight: Weight | None = Weight([gate, up], placement)
        self.bias: Weight | None = None
        if bias:
            self.bias = Weight([_bias_of(gate), _bias_of(up)], placement)

    def finish(self) -> None:
        assert self.weight is not None, "finish() was called twice"
        bias = None if self.bias is None else self.bias.data
        self.prepared = op.prepare_gated(self.weight.data, bias, backend=self.backend)
        self.weight = self.bias = None

    def stored_bytes(self) -> int:
        return sum(op.stored_bytes(tensor) for tensor in self.prepared)

    def forward(self, x: Tensor) -> Tensor:
        return op.gated_linear(x, self.prepared, backend=self.backend)


def _bias_of(block: Block) -> Block:
    return Block(block.name, block.shape[:1], block.sharding)
