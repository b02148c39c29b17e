"""The SwiGLU block."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from draftmark.layers.linear import GatedLinear, RowLinear
from draftmark.layers.module import DirectModule
from draftmark.layers.weight import Block, Placement
from draftmark.parallel.sharding import Columns, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class MLPConfig:
    hidden_size: int
    intermediate_size: int
    bias: bool = False


class GatedMLP(DirectModule):
    """residual + down(silu(gate(x)) * up(x)): x, residual [N, hidden] -> [N, hidden]."""

    def __init__(self, config: MLPConfig, *, placement: Placement) -> None:
        super().__init__()
        hidden_size, intermediate_size = config.hidden_size, config.intermediate_size
        wide, split = (intermediate_size, hidden_size), Columns("intermediate features")
        self.gate_up = GatedLinear(
            Block("gate", wide, split),
            Block("up", wide, split),
            bias=config.bias,
            placement=placement,
        )
        down = Block("", (hidden_size, intermediate_size), Rows())
        self.down = RowLinear(down, bias=config.bias, placement=placement)
        share = intermediate_size // placement.mesh.tp_size
        self._token_bytes = 3 * share * placement.dtype.itemsize

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.down(self.gate_up(x), residual)

    def token_bytes(self) -> int:
        """Upper bound of the temporaries for one token."""
        return self._token_bytes

    def fixed_bytes(self) -> int:
        """Upper bound of the temporaries that do not grow with the tokens."""
        return 0
