"""The block most dense families share: pre-norm attention, pre-norm SwiGLU, residuals."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from draftmark.kernels.rope import RopeScaling
from draftmark.layers.attention import Attention, AttentionConfig, AttentionStep
from draftmark.layers.mlp import GatedMLP
from draftmark.layers.module import DirectModule
from draftmark.layers.norm import RMSNorm
from draftmark.layers.weight import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """A dense decoder, translated from its checkpoint's configuration."""

    num_layers: int
    vocab_size: int
    intermediate_size: int
    norm_eps: float
    attention: AttentionConfig
    mlp_bias: bool
    tied_head: bool
    rope_theta: float
    rope_scaling: RopeScaling
    max_context: int

    @property
    def hidden_size(self) -> int:
        return self.attention.hidden_size


class DecoderLayer(DirectModule):
    """h += attention(norm(h)); h += mlp(norm(h))."""

    def __init__(self, config: DecoderConfig, *, layer: int, placement: Placement) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.norm_eps
        self.attention_norm = RMSNorm(size, eps=eps, placement=placement)
        self.attention = Attention(config.attention, layer=layer, placement=placement)
        self.mlp_norm = RMSNorm(size, eps=eps, placement=placement)
        self.mlp = GatedMLP(
            size, config.intermediate_size, bias=config.mlp_bias, placement=placement
        )

    def forward(
        self,
        hidden: Tensor,
        step: AttentionStep,
        pool: Tensor,
        scales: list[Tensor],
    ) -> Tensor:
        """hidden [N, hidden] -> the same; appends the two norm scales, for the sentinel."""
        normed, scale = self.attention_norm(hidden)
        scales.append(scale)
        hidden = self.attention(normed, hidden, step, pool)
        normed, scale = self.mlp_norm(hidden)
        scales.append(scale)
        return self.mlp(normed, hidden)
