"""Qwen3.5, 3.6 and 3.8, dense and with experts, and Qwen3-Next: gated delta nets, and every few
layers an attention layer with an output gate. Text only.

All norms but that of the delta net are zero-centred. A checkpoint may be of the text model alone or
of the whole, whose vision part is left out by name; its experts may be one tensor a layer or one
each. Qwen3-Next keeps the inputs of a delta net together by key head: they are taken apart while
loading, so that one layer serves all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig

from draftmark.core.errors import ModelError
from draftmark.kernels.norm import GateActivation
from draftmark.layers.attention import AttentionConfig
from draftmark.layers.decoder import DecoderConfig, LayerConfig
from draftmark.layers.gated_delta import GatedDeltaConfig
from draftmark.layers.mlp import MLPConfig
from draftmark.layers.moe import MoEConfig
from draftmark.layers.norm import NormConfig
from draftmark.layers.rotary import RotaryConfig
from draftmark.models.family import (
    Names,
    Piece,
    Source,
    Take,
    decoder_names,
    read_rope,
    refuse_unbuilt,
    whole_sources,
)

ARCHITECTURES = {
    "qwen3_5": ("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"),
    "qwen3_5_text": ("Qwen3_5ForCausalLM",),
    "qwen3_5_moe": ("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"),
    "qwen3_5_moe_text": ("Qwen3_5MoeForCausalLM",),
    "qwen3_next": ("Qwen3NextForCausalLM",),
}
_CONFIGS = {
    "qwen3_5": Qwen3_5TextConfig,
    "qwen3_5_text": Qwen3_5TextConfig,
    "qwen3_5_moe": Qwen3_5MoeTextConfig,
    "qwen3_5_moe_text": Qwen3_5MoeTextConfig,
    "qwen3_next": Qwen3NextConfig,
}
_LINEAR, _FULL = "linear_attention", "full_attention"
# Read here, so no reason to refuse.
_READ = ("partial_rotary_factor", "num_experts")
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "attention_bias": (None, False),
    "attn_output_gate": (None, True),
    "mlp_bias": (None, False),
}
_ROPE_OF_IMAGES = ("mrope_section", "mrope_interleaved")
_GATE_ACTIVATIONS: dict[str | None, GateActivation] = {
    None: "silu",
    "swish": "silu",
    "silu": "silu",
    "sigmoid": "sigmoid",
}

# Checkpoint tensor of a layer -> (parameter, block).
_NORMS = {
    "input_layernorm.weight": ("mixer_norm.weight", ""),
    "post_attention_layernorm.weight": ("mlp_norm.weight", ""),
}
_ATTENTION = {
    "self_attn.k_proj.weight": ("mixer.qkv.weight", "k"),
    "self_attn.v_proj.weight": ("mixer.qkv.weight", "v"),
    "self_attn.q_norm.weight": ("mixer.q_norm.weight", ""),
    "self_attn.k_norm.weight": ("mixer.k_norm.weight", ""),
    "self_attn.o_proj.weight": ("mixer.out.weight", ""),
}
_DELTA = {
    "linear_attn.A_log": ("mixer.gates.log_decay", ""),
    "linear_attn.dt_bias": ("mixer.gates.bias", ""),
    "linear_attn.norm.weight": ("mixer.norm.weight", ""),
    "linear_attn.out_proj.weight": ("mixer.out.weight", ""),
}
_DELTA_INPUTS = {
    "linear_attn.in_proj_z.weight": ("mixer.in_proj.weight", "z"),
    "linear_attn.in_proj_b.weight": ("mixer.in_proj.weight", "b"),
    "linear_attn.in_proj_a.weight": ("mixer.in_proj.weight", "a"),
}
_DENSE = {
    "mlp.gate_proj.weight": ("mlp.gate_up.weight", "gate"),
    "mlp.up_proj.weight": ("mlp.gate_up.weight", "up"),
    "mlp.down_proj.weight": ("mlp.down.weight", ""),
}
_EXPERTS = {
    "mlp.gate.weight": ("mlp.router.weight", ""),
    "mlp.shared_expert.gate_proj.weight": ("mlp.shared.gate_up.weight", "gate"),
    "mlp.shared_expert.up_proj.weight": ("mlp.shared.gate_up.weight", "up"),
    "mlp.shared_expert.down_proj.weight": ("mlp.shared.down.weight", ""),
    "mlp.shared_expert_gate.weight": ("mlp.shared_gate.weight", ""),
}
# The head that predicts one token further, always at the top.
_MTP_LAYER = "mtp.layers.0."
_MTP = {
    "mtp.fc.weight": ("mtp.fc.weight", ""),
    "mtp.pre_fc_norm_embedding.weight": ("mtp.embedding_norm.weight", ""),
    "mtp.pre_fc_norm_hidden.weight": ("mtp.hidden_norm.weight", ""),
    "mtp.norm.weight": ("mtp.norm.weight", ""),
}
_IGNORED = (re.compile(r"model\.visual\..*"),)


def read(raw: Mapping[str, Any], *, present: Collection[str]) -> DecoderConfig:
    """`raw` is config.json; transformers fills in its defaults. `present` are the tensors of the
    checkpoint. Raises `ModelError`."""
    text = dict(raw.get("text_config") or raw)
    tied = text.get("tie_word_embeddings", raw.get("tie_word_embeddings"))
    hf = _CONFIGS[raw["model_type"]].from_dict(text)
    refuse_unbuilt(text, neutral=_NEUTRAL, read=_READ, layer_types=(_LINEAR, _FULL))
    if "text_config" in raw:
        refuse_unbuilt(raw, neutral={}, read=("hidden_act",))
    theta, scaling = read_rope(
        hf.rope_parameters,
        max_context=hf.max_position_embeddings,
        read=("partial_rotary_factor", *_ROPE_OF_IMAGES),
    )
    rotary_dim = int(hf.head_dim * hf.rope_parameters["partial_rotary_factor"])
    norm = NormConfig(eps=hf.rms_norm_eps, zero_centred=True)
    mixers: dict[str, AttentionConfig | GatedDeltaConfig] = {
        _LINEAR: _delta(hf, text),
        _FULL: AttentionConfig(
            hidden_size=hf.hidden_size,
            num_heads=hf.num_attention_heads,
            kv_heads=hf.num_key_value_heads,
            head_dim=hf.head_dim,
            qk_norm=norm,
            rotary_dim=rotary_dim,
            output_gate=True,
        ),
    }
    return DecoderConfig(
        vocab_size=hf.vocab_size,
        hidden_size=hf.hidden_size,
        layers=tuple(
            LayerConfig(mixer=mixers[kind], mlp=_mlp(hf, layer))
            for layer, kind in enumerate(hf.layer_types)
        ),
        norm=norm,
        rotary=RotaryConfig(dim=rotary_dim, theta=theta, scaling=scaling),
        tied_head=hf.tie_word_embeddings if tied is None else bool(tied),
        max_context=hf.max_position_embeddings,
        mtp=_mtp(hf, mixers[_FULL], present),
    )


def names(config: DecoderConfig, *, present: Collection[str]) -> Names:
    """`present` are the tensors of the checkpoint, which tell its form."""
    whole = "model.language_model."
    prefix = whole if any(name.startswith(whole) for name in present) else "model."
    found = decoder_names(
        [
            _layer_names(layer, present=present, prefix=f"{prefix}layers.{n}.")
            for n, layer in enumerate(config.layers)
        ],
        tied_head=config.tied_head,
        prefix=prefix,
        ignored=_IGNORED,
    )
    if config.mtp is None:
        return found
    head = whole_sources(_MTP)
    layer = _layer_names(config.mtp, present=present, prefix=_MTP_LAYER)
    head |= {_MTP_LAYER + tensor: source.under("mtp.layer.") for tensor, source in layer.items()}
    return replace(found, used={**found.used, **head})


def _mtp(
    hf: Any, mixer: AttentionConfig | GatedDeltaConfig, present: Collection[str]
) -> LayerConfig | None:
    """Whether there is a head the tensors say, not the configuration."""
    if not any(name.startswith("mtp.") for name in present):
        return None
    return LayerConfig(mixer=mixer, mlp=_mlp(hf, hf.num_hidden_layers - 1))


def _delta(hf: Any, text: Mapping[str, Any]) -> GatedDeltaConfig:
    named = text.get("output_gate_type")
    if named not in _GATE_ACTIVATIONS:
        raise ModelError(
            f"config.json has output_gate_type = {named!r}, which is not built",
            param="output_gate_type",
        )
    return GatedDeltaConfig(
        hidden_size=hf.hidden_size,
        key_heads=hf.linear_num_key_heads,
        value_heads=hf.linear_num_value_heads,
        key_dim=hf.linear_key_head_dim,
        value_dim=hf.linear_value_head_dim,
        conv_taps=hf.linear_conv_kernel_dim,
        norm_eps=hf.rms_norm_eps,
        activation=_GATE_ACTIVATIONS[named],
    )


def _mlp(hf: Any, layer: int) -> MLPConfig | MoEConfig:
    """Qwen3-Next may have dense layers among the others."""
    is_dense = not getattr(hf, "num_experts", 0)
    if isinstance(hf, Qwen3NextConfig):
        is_dense |= layer in hf.mlp_only_layers or (layer + 1) % hf.decoder_sparse_step != 0
    if is_dense:
        return MLPConfig(hidden_size=hf.hidden_size, intermediate_size=hf.intermediate_size)
    return MoEConfig(
        hidden_size=hf.hidden_size,
        num_experts=hf.num_experts,
        top_k=hf.num_experts_per_tok,
        intermediate_size=hf.moe_intermediate_size,
        renormalise=hf.norm_topk_prob if isinstance(hf, Qwen3NextConfig) else True,
        shared_intermediate_size=hf.shared_expert_intermediate_size,
    )


def _layer_names(layer: LayerConfig, *, present: Collection[str], prefix: str) -> dict[str, Source]:
    """`prefix` is that of the layer's tensors."""
    found = whole_sources(_NORMS)
    if isinstance(layer.mixer, GatedDeltaConfig):
        is_interleaved = f"{prefix}linear_attn.in_proj_qkvz.weight" in present
        found |= _delta_names(layer.mixer, is_interleaved=is_interleaved)
    else:
        found |= _attention_names(layer.mixer)
    if isinstance(layer.mlp, MoEConfig):
        is_fused = f"{prefix}mlp.experts.gate_up_proj" in present
        found |= whole_sources(_EXPERTS) | _expert_names(layer.mlp, is_fused=is_fused)
    else:
        found |= whole_sources(_DENSE)
    return found


def _attention_names(mixer: AttentionConfig) -> dict[str, Source]:
    """The rows of q_proj are a query and a gate by turns, head by head."""
    heads, dim = mixer.num_heads, mixer.head_dim

    def half(index: int) -> Take:
        return lambda whole: whole.unflatten(0, (heads, 2, dim))[:, index].flatten(0, 1)

    q = Source(
        tuple(
            Piece("mixer.qkv.weight", block, half(index))
            for index, block in enumerate(("q", "gate"))
        ),
        shape=(2 * heads * dim, mixer.hidden_size),
    )
    return {"self_attn.q_proj.weight": q} | whole_sources(_ATTENTION)


def _delta_names(mixer: GatedDeltaConfig, *, is_interleaved: bool) -> dict[str, Source]:
    keys, values = mixer.key_heads * mixer.key_dim, mixer.value_heads * mixer.value_dim
    flat = {"q": slice(0, keys), "k": slice(keys, 2 * keys), "v": slice(2 * keys, None)}
    channels = 2 * keys + values

    def rows(part: slice) -> Take:
        return lambda whole: whole[part]

    conv = Source(
        tuple(Piece("mixer.conv.weight", name, _taps(part)) for name, part in flat.items()),
        shape=(channels, 1, mixer.conv_taps),
    )
    found = {"linear_attn.conv1d.weight": conv} | whole_sources(_DELTA)
    if is_interleaved:
        return found | _interleaved_names(mixer)
    qkv = Source(
        tuple(Piece("mixer.in_proj.weight", name, rows(part)) for name, part in flat.items()),
        shape=(channels, mixer.hidden_size),
    )
    return found | {"linear_attn.in_proj_qkv.weight": qkv} | whole_sources(_DELTA_INPUTS)


def _taps(part: slice) -> Take:
    return lambda whole: whole[part, 0]


def _interleaved_names(mixer: GatedDeltaConfig) -> dict[str, Source]:
    """Qwen3-Next: for each key head its q, its k, then v and z of its value heads; b and a so."""
    each = mixer.value_heads // mixer.key_heads
    sizes = {"q": mixer.key_dim, "k": mixer.key_dim}
    sizes |= dict.fromkeys(("v", "z"), each * mixer.value_dim)
    return {
        "linear_attn.in_proj_qkvz.weight": _by_key_head(mixer, sizes),
        "linear_attn.in_proj_ba.weight": _by_key_head(mixer, {"b": each, "a": each}),
    }


def _by_key_head(mixer: GatedDeltaConfig, sizes: Mapping[str, int]) -> Source:
    """A tensor that has, for each key head, so many rows of each block."""
    heads, total = mixer.key_heads, sum(sizes.values())

    def rows(first: int, count: int) -> Take:
        def take(whole: Tensor) -> Tensor:
            return whole.unflatten(0, (heads, total))[:, first : first + count].flatten(0, 1)

        return take

    pieces, first = [], 0
    for block, count in sizes.items():
        pieces.append(Piece("mixer.in_proj.weight", block, rows(first, count)))
        first += count
    return Source(tuple(pieces), shape=(heads * total, mixer.hidden_size))


def _expert_names(mlp: MoEConfig, *, is_fused: bool) -> dict[str, Source]:
    experts, size = range(mlp.num_experts), mlp.intermediate_size
    gate_up, down = "mlp.experts.gate_up", "mlp.experts.down"
    if not is_fused:
        return {
            f"mlp.experts.{e}.{name}_proj.weight": Source.whole(parameter, block)
            for e in experts
            for name, parameter, block in (
                ("gate", gate_up, f"{e}.gate"),
                ("up", gate_up, f"{e}.up"),
                ("down", down, f"{e}"),
            )
        }

    def rows(expert: int, part: slice) -> Take:
        return lambda whole: whole[expert, part]

    halves = {"gate": slice(0, size), "up": slice(size, None)}
    return {
        "mlp.experts.gate_up_proj": Source(
            tuple(
                Piece(gate_up, f"{e}.{name}", rows(e, part))
                for e in experts
                for name, part in halves.items()
            ),
            shape=(mlp.num_experts, 2 * size, mlp.hidden_size),
        ),
        "mlp.experts.down_proj": Source(
            tuple(Piece(down, f"{e}", rows(e, slice(None))) for e in experts),
            shape=(mlp.num_experts, mlp.hidden_size, size),
        ),
    }
