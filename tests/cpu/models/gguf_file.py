"""GGUF files with random weights, written as llama.cpp's converter lays them out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

TEXT = (
    "The quick brown fox jumps over the lazy dog. It's 1234 o'clock, they'll say we've 56 ways.\n"
    "naïve café, größer, Ελληνικά, 漢字かな, emoji 🙂🙃; x = f(a, b) + 3.14 # tab\there\r\n\n  two"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CONTROL, NORMAL = 3, 1
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def train_bpe() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of a byte-level BPE over `TEXT`; the special tokens come first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def make_model(arch: str, vocab_size: int, *, tied: bool) -> PreTrainedModel:
    torch.manual_seed(11)
    sizes = {**SIZES, "vocab_size": vocab_size, "tie_word_embeddings": tied}
    if arch == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**sizes, head_dim=32)).eval()
    return LlamaForCausalLM(LlamaConfig(**sizes)).eval()


def write_gguf(
    path: Path,
    *,
    arch: str = "llama",
    tied: bool = True,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    pre: str = "smollm",
    changes: Mapping[str, Any] | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
) -> PreTrainedModel:
    """Write the file; the model whose weights it holds, before they were quantised. `changes`
    replace string fields, `extra` adds tensors."""
    vocab, merges = train_bpe()
    model = make_model(arch, len(vocab), tied=tied)
    writer = GGUFWriter(path, arch)
    tokens = sorted(vocab, key=vocab.__getitem__)
    fields: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.chat_template": "{{ messages[0].content }}",
        **(changes or {}),
    }
    for name, value in fields.items():
        writer.add_string(name, value)
    for name, value in {
        "context_length": SIZES["max_position_embeddings"],
        "embedding_length": SIZES["hidden_size"],
        "block_count": SIZES["num_hidden_layers"],
        "feed_forward_length": SIZES["intermediate_size"],
        "attention.head_count": SIZES["num_attention_heads"],
        "attention.head_count_kv": SIZES["num_key_value_heads"],
        "attention.key_length": model.config.head_dim,
        "rope.dimension_count": model.config.head_dim,
    }.items():
        writer.add_uint32(f"{arch}.{name}", int(value))
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", SIZES["rms_norm_eps"])
    writer.add_float32(f"{arch}.rope.freq_base", 10000.0)
    writer.add_array("tokenizer.ggml.tokens", tokens)
    types = [CONTROL if token in SPECIALS else NORMAL for token in tokens]
    writer.add_array("tokenizer.ggml.token_type", types)
    writer.add_array("tokenizer.ggml.merges", [" ".join(pair) for pair in merges])
    writer.add_uint32("tokenizer.ggml.bos_token_id", 1)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 2)
    for name, tensor in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        _add(writer, *_as_gguf(name, tensor.numpy(), arch), kind)
    for name, values in (extra or {}).items():
        _add(writer, name, values, GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _as_gguf(name: str, values: np.ndarray, arch: str) -> tuple[str, np.ndarray]:
    if name in _TOP:
        return _TOP[name], values
    _, _, layer, *middle, last = name.split(".")
    short = _LAYER[".".join(middle)]
    if arch == "llama" and short in ("attn_q", "attn_k"):
        key = "num_attention_heads" if short == "attn_q" else "num_key_value_heads"
        heads = int(SIZES[key])
        # Half-split rotary pairs to interleaved ones, as llama.cpp wants them.
        pairs = values.reshape(heads, 2, -1, values.shape[-1])
        values = pairs.swapaxes(1, 2).reshape(values.shape)
    return f"blk.{layer}.{short}.{last}", values


def _add(writer: GGUFWriter, name: str, values: np.ndarray, kind: GGMLQuantizationType) -> None:
    if values.ndim == 1:
        kind = GGMLQuantizationType.F32  # as real files have norms
    writer.add_tensor(name, quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)
