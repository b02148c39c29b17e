"""Configurations of tiny random models, of every kind of layer."""

from __future__ import annotations

from draftmark.layers.attention import AttentionConfig
from draftmark.layers.decoder import DecoderConfig, LayerConfig
from draftmark.layers.gated_delta import GatedDeltaConfig
from draftmark.layers.mlp import MLPConfig
from draftmark.layers.moe import MoEConfig
from draftmark.layers.norm import NormConfig
from draftmark.layers.rotary import RotaryConfig

VOCAB, HIDDEN, MIDDLE = 101, 32, 48


def make_config(
    family: str,
    *,
    num_layers: int,
    max_context: int,
    num_heads: int = 4,
    kv_heads: int = 2,
    vocab_size: int = VOCAB,
    intermediate_size: int = MIDDLE,
    has_biases: bool = False,
    with_mtp: bool = False,
) -> DecoderConfig:
    """`llama`: untied head. `qwen3`: q and k norms, tied head. `hybrid`: delta nets but for every
    third layer, experts but for every fourth. `delta`: delta nets alone."""
    attention = _attention(family, num_heads, kv_heads, has_biases)
    mlp = MLPConfig(hidden_size=HIDDEN, intermediate_size=intermediate_size, bias=has_biases)
    layers = [LayerConfig(mixer=attention, mlp=mlp)] * num_layers
    if family in ("hybrid", "delta"):
        layers = [
            LayerConfig(
                mixer=attention if family == "hybrid" and n % 3 == 2 else _DELTA,
                mlp=mlp if n % 4 == 3 else _EXPERTS,
            )
            for n in range(num_layers)
        ]
    return DecoderConfig(
        vocab_size=vocab_size,
        hidden_size=HIDDEN,
        layers=tuple(layers),
        norm=NormConfig(eps=1e-6, zero_centred=family in ("hybrid", "delta")),
        rotary=RotaryConfig(dim=attention.rotary_dim or attention.head_dim, theta=10_000.0),
        tied_head=family == "qwen3",
        max_context=max_context,
        mtp=LayerConfig(mixer=attention, mlp=mlp) if with_mtp else None,
    )


def _attention(family: str, num_heads: int, kv_heads: int, has_biases: bool) -> AttentionConfig:
    sizes = {"hidden_size": HIDDEN, "num_heads": num_heads, "kv_heads": kv_heads}
    if family == "llama":
        return AttentionConfig(**sizes, head_dim=8, bias=has_biases)
    if family == "qwen3":
        return AttentionConfig(**sizes, head_dim=12, qk_norm=NormConfig(eps=1e-6))
    return AttentionConfig(
        **sizes,
        head_dim=12,
        qk_norm=NormConfig(eps=1e-6, zero_centred=True),
        rotary_dim=6,
        output_gate=True,
    )


# Four key heads, so that four tensor ranks have one each.
_DELTA = GatedDeltaConfig(
    hidden_size=HIDDEN,
    key_heads=4,
    value_heads=8,
    key_dim=6,
    value_dim=10,
    conv_taps=4,
    norm_eps=1e-6,
)
_EXPERTS = MoEConfig(
    hidden_size=HIDDEN,
    num_experts=8,
    top_k=3,
    intermediate_size=16,
    renormalise=True,
    shared_intermediate_size=24,
)
