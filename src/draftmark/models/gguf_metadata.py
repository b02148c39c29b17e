"""What a GGUF file's metadata and tensor names are called in a Hugging Face checkpoint.

llama files hold q and k with the rows of each head reordered for interleaved rotary pairs; qwen3
files do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from draftmark.core.errors import ModelError

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
# Divisors of the rotary frequencies: llama3 scaling written out, see `_llama3_scaling`.
ROPE_FACTORS = "rope_freqs.weight"


def hf_name(tensor: str) -> str:
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight; raises `ModelError`."""
    if tensor in _TOP_NAMES:
        return _TOP_NAMES[tensor]
    parts = tensor.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _LAYER_NAMES:
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.{parts[3]}"
    raise ModelError(f"the GGUF file has a tensor {tensor} that is not built")


def permuted_heads(tensor: str, metadata: Mapping[str, Any]) -> int:
    """Heads whose rows must be put back in order, 0 for none."""
    arch = metadata["general.architecture"]
    if arch == "llama" and ".attn_q." in tensor:
        return int(metadata["llama.attention.head_count"])
    if arch == "llama" and ".attn_k." in tensor:
        return int(metadata["llama.attention.head_count_kv"])
    return 0


def unpermute(rows: np.ndarray, num_heads: int, *, tensor: str) -> np.ndarray:
    """[heads * D, ...] interleaved pairs -> half-split; raises `ModelError` naming `tensor`."""
    head_dim, rest = divmod(rows.shape[0], num_heads)
    if rest or head_dim % 2 or not head_dim:
        raise ModelError(
            f"the GGUF file's tensor {tensor} has {rows.shape[0]} rows, which are not those of "
            f"{num_heads} heads"
        )
    pairs = rows.reshape(num_heads, head_dim // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def hf_config(
    metadata: Mapping[str, Any], *, tensors: frozenset[str], rope_factors: np.ndarray | None
) -> dict[str, Any]:
    """config.json for the file; `tensors` are its tensor names. Raises `ModelError`."""
    arch = metadata.get("general.architecture")
    if arch not in _ARCHITECTURES:
        raise ModelError(
            f"GGUF architecture {arch!r} is not built; built: {', '.join(_ARCHITECTURES)}"
        )
    if metadata.get(f"{arch}.expert_count"):
        raise ModelError(f"GGUF architecture {arch} with experts is not built")
    hidden, heads = _number(metadata, arch, "embedding_length"), _heads(metadata, arch)
    config: dict[str, Any] = {
        "architectures": [_ARCHITECTURES[arch]],
        "model_type": arch,
        "dtype": "bfloat16",
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "hidden_size": hidden,
        "intermediate_size": _number(metadata, arch, "feed_forward_length"),
        "num_hidden_layers": _number(metadata, arch, "block_count"),
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": int(metadata.get(f"{arch}.attention.key_length", hidden // heads[0])),
        "hidden_act": "silu",
        "max_position_embeddings": _number(metadata, arch, "context_length"),
        "rms_norm_eps": _shortest(metadata[f"{arch}.attention.layer_norm_rms_epsilon"]),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "rope_parameters": _rope(metadata, arch, rope_factors),
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
    }
    if arch == "llama":
        config["mlp_bias"] = "blk.0.ffn_up.bias" in tensors
    rotary = int(metadata.get(f"{arch}.rope.dimension_count", config["head_dim"]))
    if rotary != config["head_dim"]:
        raise ModelError("GGUF rope.dimension_count below the head size is not built")
    return config


def generation_config(metadata: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """generation_config.json: the file's special tokens, and what the caller adds."""
    ends = [
        metadata[key]
        for key in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
        if key in metadata
    ]
    config = {
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": list(dict.fromkeys(ends)),
        "pad_token_id": metadata.get("tokenizer.ggml.padding_token_id"),
    }
    return {key: value for key, value in config.items() if value is not None} | dict(given)


def _number(metadata: Mapping[str, Any], arch: str, key: str) -> int:
    value = metadata.get(f"{arch}.{key}")
    if not isinstance(value, int):
        raise ModelError(f"the GGUF file has {arch}.{key} = {value!r}, expected a number")
    return value


def _heads(metadata: Mapping[str, Any], arch: str) -> tuple[int, int]:
    heads = _number(metadata, arch, "attention.head_count")
    if f"{arch}.attention.head_count_kv" not in metadata:
        return heads, heads
    return heads, _number(metadata, arch, "attention.head_count_kv")


def _shortest(value: float) -> float:
    """1e-05 for the float32 that prints as 9.999999747378752e-06 in double precision."""
    return float(str(np.float32(value)))


def _rope(metadata: Mapping[str, Any], arch: str, factors: np.ndarray | None) -> dict[str, Any]:
    theta = _shortest(metadata.get(f"{arch}.rope.freq_base", 10000.0))
    if factors is not None:
        return {"rope_theta": theta, **_llama3_scaling(factors, theta)}
    kind = metadata.get(f"{arch}.rope.scaling.type", "none")
    if kind == "none":
        return {"rope_theta": theta, "rope_type": "default"}
    if kind not in ("linear", "yarn"):
        raise ModelError(f"GGUF rope scaling {kind!r} is not built; built: none, linear, yarn")
    rope = {
        "rope_theta": theta,
        "rope_type": kind,
        "factor": _shortest(metadata[f"{arch}.rope.scaling.factor"]),
    }
    if kind == "yarn":
        rope["original_max_position_embeddings"] = _number(
            metadata, arch, "rope.scaling.original_context_length"
        )
    return rope


def _llama3_scaling(factors: np.ndarray, theta: float) -> dict[str, Any]:
    """The published llama3 parameters that give these divisors; raises `ModelError`."""
    low, high, original = 1.0, 4.0, 8192
    frequencies = theta ** (-np.arange(factors.size) / factors.size)
    turns = original * frequencies / (2 * math.pi)
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
    for factor in (8.0, 16.0, 32.0):
        if np.allclose(1.0 / (keep + (1.0 - keep) / factor), factors, rtol=1e-4):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": original,
            }
    raise ModelError(f"the GGUF file's {ROPE_FACTORS} match no known llama3 scaling")
