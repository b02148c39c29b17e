"""A tiny llama checkpoint on disk, with random weights."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN, LAYERS, HEADS, KV_HEADS, MIDDLE, VOCAB = 32, 2, 4, 2, 48, 101
MAX_CONTEXT = 160


def write_tiny_llama(
    directory: Path,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    layers: int = LAYERS,
) -> Path:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": HIDDEN,
        "intermediate_size": MIDDLE,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": VOCAB,
        "max_position_embeddings": MAX_CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "eos_token_id": 2,
    }
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * 0.35).to(dtype)

    size = HIDDEN // HEADS
    tensors = {
        "model.embed_tokens.weight": random(VOCAB, HIDDEN),
        "model.norm.weight": random(HIDDEN) + 1,
        "lm_head.weight": random(VOCAB, HIDDEN),
    }
    for layer in range(layers):
        shapes = {
            "self_attn.q_proj": (HEADS * size, HIDDEN),
            "self_attn.k_proj": (KV_HEADS * size, HIDDEN),
            "self_attn.v_proj": (KV_HEADS * size, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HEADS * size),
            "mlp.gate_proj": (MIDDLE, HIDDEN),
            "mlp.up_proj": (MIDDLE, HIDDEN),
            "mlp.down_proj": (HIDDEN, MIDDLE),
        }
        head = f"model.layers.{layer}"
        tensors |= {f"{head}.{name}.weight": random(*shape) for name, shape in shapes.items()}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{head}.{norm}.weight"] = random(HIDDEN) + 1
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer.json").write_text("{}")
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return directory
