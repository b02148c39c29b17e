"""The SwiGLU block."""

from __future__ import annotations

from torch import Tensor

from draftmark.layers.linear import GatedLinear, RowLinear
from draftmark.layers.module import DirectModule
from draftmark.layers.weight import Block, Placement
from draftmark.parallel.sharding import Columns, Rows


class GatedMLP(DirectModule):
    """residual + down(silu(gate(x)) * up(x)): x, residual [N, hidden] -> [N, hidden]."""

    def __init__(
        self, hidden_size: int, intermediate_size: int, *, bias: bool, placement: Placement
    ) -> None:
        super().__init__()
        wide, split = (intermediate_size, hidden_size), Columns("intermediate features")
        self.gate_up = GatedLinear(
            Block("gate", wide, split),
            Block("up", wide, split),
            bias=bias,
            placement=placement,
        )
        down = Block("", (hidden_size, intermediate_size), Rows())
        self.down = RowLinear(down, bias=bias, placement=placement)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.down(self.gate_up(x), residual)
