"""The llama family: Llama 2 and 3, SmolLM2 and others saved as `LlamaForCausalLM`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from transformers.models.llama.configuration_llama import LlamaConfig

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

ARCHITECTURES = {"llama": ("LlamaForCausalLM",)}

# Checkpoint tensor of a layer -> (parameter, block).
_LAYER = {
    "input_layernorm.weight": ("mixer_norm.weight", ""),
    "self_attn.q_proj.weight": ("mixer.qkv.weight", "q"),
    "self_attn.k_proj.weight": ("mixer.qkv.weight", "k"),
    "self_attn.v_proj.weight": ("mixer.qkv.weight", "v"),
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
_MLP_BIAS = {
    "mlp.gate_proj.bias": ("mlp.gate_up.bias", "gate"),
    "mlp.up_proj.bias": ("mlp.gate_up.bias", "up"),
    "mlp.down_proj.bias": ("mlp.down.bias", ""),
}


def read(raw: Mapping[str, Any], *, present: Collection[str]) -> DecoderConfig:
    """`raw` is config.json; transformers fills in its defaults. `present` are the tensors of the
    checkpoint. Raises `ModelError`."""
    hf = LlamaConfig.from_dict(dict(raw))
    refuse_unbuilt(raw, neutral={"sliding_window": (None,)})
    theta, scaling = read_rope(hf.rope_parameters, max_context=hf.max_position_embeddings)
    mixer = AttentionConfig(
        hidden_size=hf.hidden_size,
        num_heads=hf.num_attention_heads,
        kv_heads=hf.num_key_value_heads,
        head_dim=hf.head_dim,
        bias=hf.attention_bias,
    )
    mlp = MLPConfig(
        hidden_size=hf.hidden_size, intermediate_size=hf.intermediate_size, bias=hf.mlp_bias
    )
    return DecoderConfig(
        vocab_size=hf.vocab_size,
        hidden_size=hf.hidden_size,
        layers=(LayerConfig(mixer=mixer, mlp=mlp),) * hf.num_hidden_layers,
        norm=NormConfig(eps=hf.rms_norm_eps),
        rotary=RotaryConfig(dim=hf.head_dim, theta=theta, scaling=scaling),
        tied_head=hf.tie_word_embeddings,
        max_context=hf.max_position_embeddings,
    )


def names(config: DecoderConfig, *, present: Collection[str]) -> Names:
    """`present` are the tensors of the checkpoint."""
    layer, kind = dict(_LAYER), config.layers[0]
    assert isinstance(kind.mixer, AttentionConfig) and isinstance(kind.mlp, MLPConfig)
    if kind.mixer.bias:
        layer |= _ATTENTION_BIAS
    if kind.mlp.bias:
        layer |= _MLP_BIAS
    return decoder_names(
        [whole_sources(layer)] * config.num_layers,
        tied_head=config.tied_head,
        # Old checkpoints saved the rotary frequencies, which the configuration gives.
        ignored=(re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),),
    )
