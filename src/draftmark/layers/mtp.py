"""The head that predicts one token further (multi-token prediction), as the Qwen families have it.

    x_i = fc [norm(embedding of t_{i+1}), norm(h_i)],  y = norm(layer(x))

h_i is what the final norm of the model gave for token i. y goes to the model's own output head, and
in h's place to the next use of this one. The layer is a decoder layer with pages of its own.

Legend: N tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from draftmark.layers.decoder import DecoderConfig, DecoderLayer
from draftmark.layers.linear import Linear
from draftmark.layers.module import DirectModule
from draftmark.layers.norm import RMSNorm
from draftmark.layers.recurrent import LayerCache
from draftmark.layers.step import StageStep
from draftmark.layers.weight import Block, Placement
from draftmark.parallel.sharding import Replicated


class MTPHead(DirectModule):
    """embedded, hidden [N, hidden] -> [N, hidden]. Its layer's number follows the model's last."""

    def __init__(self, config: DecoderConfig, *, placement: Placement) -> None:
        super().__init__()
        assert config.mtp is not None, "the model has no such head"
        size = config.hidden_size
        self.embedding_norm = RMSNorm(size, config.norm, placement=placement)
        self.hidden_norm = RMSNorm(size, config.norm, placement=placement)
        both = Block("", (size, 2 * size), Replicated())
        self.fc = Linear([both], bias=False, placement=placement)
        self.layer = DecoderLayer(config, config.mtp, layer=config.num_layers, placement=placement)
        self.norm = RMSNorm(size, config.norm, placement=placement)

    def forward(
        self,
        embedded: Tensor,
        hidden: Tensor,
        step: StageStep,
        cache: LayerCache,
        scales: list[Tensor],
    ) -> Tensor:
        """Appends the scales of the layer's norms and of the last, for the sentinel."""
        parts = (self.embedding_norm(embedded)[0], self.hidden_norm(hidden)[0])
        y = self.layer(self.fc(torch.cat(parts, dim=1)), step, cache, scales)
        y, scale = self.norm(y)
        scales.append(scale)
        return y
