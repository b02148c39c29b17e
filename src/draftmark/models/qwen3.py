"""The dense qwen3 family: as llama, with q and k normed by head and heads of their own size."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from transformers.models.qwen3.configuration_qwen3 import Qwen3Config

from draftmark.layers.attention import AttentionConfig
from draftmark.layers.decoder import DecoderConfig, LayerConfig
from draftmark.layers.mlp import MLPConfig
from draftmark.layers.norm import NormConfig
from draftmark.layers.rotary import RotaryConfig
from draftmark.models.family import (
    Names,
    decoder_names,
    read_rope,
    refuse_unbuilt,
    whole_sources,
)

ARCHITECTURES = {"qwen3": ("Qwen3ForCausalLM",)}

# Checkpoint tensor of a layer -> (parameter, block).
_LAYER = {
    "input_layernorm.weight": ("mixer_norm.weight", ""),
    "self_attn.q_proj.weight": ("mixer.qkv.weight", "q"),
    "self_attn.k_proj.weight": ("mixer.qkv.weight", "k"),
    "self_attn.v_proj.weight": ("mixer.qkv.weight", "v"),
    "self_attn.q_norm.weight": ("mixer.q_norm.weight", ""),
    "self_attn.k_norm.weight": ("mixer.k_norm.weight", ""),
    "self_attn.o_proj.weight": ("mixer.out.weight", ""),
    "post_attention_layernorm.weight": ("mlp_norm.weight", ""),
    "mlp.gate_proj.weight": ("mlp.gate_up.weight", "gate"),
    "mlp.up_proj.weight": ("mlp.gate_up.weight", "up"),
    "mlp.down_proj.weight": ("mlp.down.weight", ""),
}
_ATTENTION_BIAS = {
    "self_attn.q_proj.bias": ("mixer.qkv.bias", "q"),
    "self_attn.k_proj.bias": ("mixer.qkv.bias", "k"),
    "self_attn.v_proj.bias": ("mixer.qkv.bias", "v"),
    "self_attn.o_proj.bias": ("mixer.out.bias", ""),
}


def read(raw: Mapping[str, Any], *, present: Collection[str]) -> DecoderConfig:
    """`raw` is config.json; transformers fills in its defaults. `present` are the tensors of the
    checkpoint. Raises `ModelError`."""
    hf = Qwen3Config.from_dict(dict(raw))
    refuse_unbuilt(raw, neutral={"mlp_bias": (None, False)})
    theta, scaling = read_rope(hf.rope_parameters, max_context=hf.max_position_embeddings)
    norm = NormConfig(eps=hf.rms_norm_eps)
    mixer = AttentionConfig(
        hidden_size=hf.hidden_size,
        num_heads=hf.num_attention_heads,
        kv_heads=hf.num_key_value_heads,
        head_dim=hf.head_dim,
        bias=hf.attention_bias,
        qk_norm=norm,
    )
    mlp = MLPConfig(hidden_size=hf.hidden_size, intermediate_size=hf.intermediate_size)
    return DecoderConfig(
        vocab_size=hf.vocab_size,
        hidden_size=hf.hidden_size,
        layers=(LayerConfig(mixer=mixer, mlp=mlp),) * hf.num_hidden_layers,
        norm=norm,
        rotary=RotaryConfig(dim=hf.head_dim, theta=theta, scaling=scaling),
        tied_head=hf.tie_word_embeddings,
        max_context=hf.max_position_embeddings,
    )


def names(config: DecoderConfig, *, present: Collection[str]) -> Names:
    """`present` are the tensors of the checkpoint."""
    layer, mixer = dict(_LAYER), config.layers[0].mixer
    assert isinstance(mixer, AttentionConfig)
    if mixer.bias:
        layer |= _ATTENTION_BIAS
    layers = [whole_sources(layer)] * config.num_layers
    return decoder_names(layers, tied_head=config.tied_head)
