"""The llama family: Llama 2 and 3, SmolLM2 and others saved as `LlamaForCausalLM`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from transformers.models.llama.configuration_llama import LlamaConfig

from draftmark.layers.attention import AttentionConfig
from draftmark.layers.decoder import DecoderConfig
from draftmark.models.family import Names, decoder_names, read_rope, refuse_unbuilt

ARCHITECTURE = "LlamaForCausalLM"

# Checkpoint tensor of a layer -> (parameter, block).
_LAYER = {
    "input_layernorm.weight": ("attention_norm.weight", ""),
    "self_attn.q_proj.weight": ("attention.qkv.weight", "q"),
    "self_attn.k_proj.weight": ("attention.qkv.weight", "k"),
    "self_attn.v_proj.weight": ("attention.qkv.weight", "v"),
    "self_attn.o_proj.weight": ("attention.out.weight", ""),
    "post_attention_layernorm.weight": ("mlp_norm.weight", ""),
    "mlp.gate_proj.weight": ("mlp.gate_up.weight", "gate"),
    "mlp.up_proj.weight": ("mlp.gate_up.weight", "up"),
    "mlp.down_proj.weight": ("mlp.down.weight", ""),
}
_ATTENTION_BIAS = {
    "self_attn.q_proj.bias": ("attention.qkv.bias", "q"),
    "self_attn.k_proj.bias": ("attention.qkv.bias", "k"),
    "self_attn.v_proj.bias": ("attention.qkv.bias", "v"),
    "self_attn.o_proj.bias": ("attention.out.bias", ""),
}
_MLP_BIAS = {
    "mlp.gate_proj.bias": ("mlp.gate_up.bias", "gate"),
    "mlp.up_proj.bias": ("mlp.gate_up.bias", "up"),
    "mlp.down_proj.bias": ("mlp.down.bias", ""),
}


def read(raw: Mapping[str, Any]) -> DecoderConfig:
    """`raw` is config.json; transformers fills in its defaults. Raises `ModelError`."""
    hf = LlamaConfig.from_dict(dict(raw))
    refuse_unbuilt(raw, neutral={"sliding_window": (None,)})
    theta, scaling = read_rope(hf.rope_parameters, max_context=hf.max_position_embeddings)
    return DecoderConfig(
        num_layers=hf.num_hidden_layers,
        vocab_size=hf.vocab_size,
        intermediate_size=hf.intermediate_size,
        norm_eps=hf.rms_norm_eps,
        attention=AttentionConfig(
            hidden_size=hf.hidden_size,
            num_heads=hf.num_attention_heads,
            kv_heads=hf.num_key_value_heads,
            head_dim=hf.head_dim,
            bias=hf.attention_bias,
        ),
        mlp_bias=hf.mlp_bias,
        tied_head=hf.tie_word_embeddings,
        rope_theta=theta,
        rope_scaling=scaling,
        max_context=hf.max_position_embeddings,
    )


def names(config: DecoderConfig) -> Names:
    layer = dict(_LAYER)
    if config.attention.bias:
        layer |= _ATTENTION_BIAS
    if config.mlp_bias:
        layer |= _MLP_BIAS
    return decoder_names(
        layer,
        num_layers=config.num_layers,
        tied_head=config.tied_head,
        # Old checkpoints saved the rotary frequencies, which the configuration gives.
        ignored=(re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),),
    )
