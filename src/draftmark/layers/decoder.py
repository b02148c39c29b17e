"""The block that all families share: pre-norm mixer, pre-norm MLP, residuals.

A *mixer* is what mixes tokens: attention, or a gated delta net. Which one a layer has, and which
MLP, its `LayerConfig` says; nobody else asks.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from draftmark.layers.attention import Attention, AttentionConfig
from draftmark.layers.gated_delta import GatedDelta, GatedDeltaConfig
from draftmark.layers.mlp import GatedMLP, MLPConfig
from draftmark.layers.module import DirectModule
from draftmark.layers.moe import MoE, MoEConfig
from draftmark.layers.norm import NormConfig, RMSNorm
from draftmark.layers.recurrent import LayerCache
from draftmark.layers.rotary import RotaryConfig
from draftmark.layers.step import StageStep
from draftmark.layers.weight import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    mixer: AttentionConfig | GatedDeltaConfig
    mlp: MLPConfig | MoEConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """A decoder, translated from its checkpoint's configuration; one `layers` entry a layer. `mtp`
    is the layer of the head that predicts one token further, where the checkpoint has one."""

    vocab_size: int
    hidden_size: int
    layers: tuple[LayerConfig, ...]
    norm: NormConfig
    rotary: RotaryConfig
    tied_head: bool
    max_context: int
    mtp: LayerConfig | None = None

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def kinds(self) -> tuple[LayerConfig, ...]:
        """The different ones, in order of appearance."""
        return tuple(dict.fromkeys(self.layers))

    @property
    def kind_of_layers(self) -> tuple[int, ...]:
        """Index in `kinds` of each layer."""
        kinds = self.kinds
        return tuple(kinds.index(layer) for layer in self.layers)


class DecoderLayer(DirectModule):
    """h += mixer(norm(h)); h += mlp(norm(h))."""

    def __init__(
        self, config: DecoderConfig, own: LayerConfig, *, layer: int, placement: Placement
    ) -> None:
        super().__init__()
        size = config.hidden_size
        self.mixer_norm = RMSNorm(size, config.norm, placement=placement)
        self.mixer = _make_mixer(own.mixer, layer=layer, placement=placement)
        self.mlp_norm = RMSNorm(size, config.norm, placement=placement)
        self.mlp = _make_mlp(own.mlp, placement=placement)

    def forward(
        self, hidden: Tensor, step: StageStep, cache: LayerCache, scales: list[Tensor]
    ) -> Tensor:
        """hidden [N, hidden] -> the same; appends the two norm scales, for the sentinel."""
        normed, scale = self.mixer_norm(hidden)
        scales.append(scale)
        hidden = self.mixer(normed, hidden, step, cache)
        normed, scale = self.mlp_norm(hidden)
        scales.append(scale)
        return self.mlp(normed, hidden)

    def token_bytes(self) -> int:
        """Upper bound of the temporaries for one token of a step."""
        return self.mixer.token_bytes() + self.mlp.token_bytes()

    def fixed_bytes(self) -> int:
        """Upper bound of those that do not grow with the tokens."""
        return self.mlp.fixed_bytes()


def _make_mixer(
    config: AttentionConfig | GatedDeltaConfig, *, layer: int, placement: Placement
) -> Attention | GatedDelta:
    match config:
        case AttentionConfig():
            return Attention(config, layer=layer, placement=placement)
        case GatedDeltaConfig():
            return GatedDelta(config, layer=layer, placement=placement)


def _make_mlp(config: MLPConfig | MoEConfig, *, placement: Placement) -> GatedMLP | MoE:
    match config:
        case MLPConfig():
            return GatedMLP(config, placement=placement)
        case MoEConfig():
            return MoE(config, placement=placement)
