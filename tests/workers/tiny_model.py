"""Models of random weights that four workers can share, with a tokenizer: model directories."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

from tests.fakes.tokenizer import write_model_dir

HIDDEN, LAYERS, HEADS, KV_HEADS, MIDDLE, VOCAB = 32, 4, 4, 2, 48, 264
MAX_CONTEXT = 512


def write_tiny_model(directory: Path) -> Path:
    """Float64, so that a token differs only where the logic does."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": HIDDEN,
        "intermediate_size": MIDDLE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": VOCAB,
        "max_position_embeddings": MAX_CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "eos_token_id": 263,
    }
    rng = np.random.default_rng(0)
    size = HIDDEN // HEADS
    shapes = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB, HIDDEN),
    }
    of_layer = {
        "self_attn.q_proj": (HEADS * size, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * size, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * size, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * size),
        "mlp.gate_proj": (MIDDLE, HIDDEN),
        "mlp.up_proj": (MIDDLE, HIDDEN),
        "mlp.down_proj": (HIDDEN, MIDDLE),
        "input_layernorm": (HIDDEN,),
        "post_attention_layernorm": (HIDDEN,),
    }
    for layer in range(LAYERS):
        shapes |= {f"model.layers.{layer}.{name}.weight": s for name, s in of_layer.items()}
    tensors = {name: rng.normal(len(shape) == 1, 0.35, shape) for name, shape in shapes.items()}
    write_model_dir(directory)
    (directory / "config.json").write_text(json.dumps(config))
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def write_tiny_hybrid(directory: Path) -> Path:
    """Likewise: two delta nets, an attention layer, a delta net, all with experts."""
    config = Qwen3_5MoeTextConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        layer_types=["linear_attention"] * 2 + ["full_attention", "linear_attention"],
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=16,
        linear_num_key_heads=4,
        linear_num_value_heads=8,
        linear_key_head_dim=8,
        linear_value_head_dim=6,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        num_experts=8,
        num_experts_per_tok=3,
        max_position_embeddings=MAX_CONTEXT,
        eos_token_id=263,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = Qwen3_5MoeForCausalLM(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    write_model_dir(directory)
    model.save_pretrained(directory)
    _add_mtp_head(directory / "model.safetensors")
    return directory


def _add_mtp_head(file: Path) -> None:
    """What transformers does not have: a head whose layer is a copy of the attention layer, so that
    some of its drafts are right, and norms and a mixing layer of its own."""
    tensors = load_file(file)
    rng = np.random.default_rng(1)
    copied = {
        "mtp.layers.0." + name.split(".layers.2.")[1]: tensor
        for name, tensor in tensors.items()
        if ".layers.2." in name
    }
    mixed = np.concatenate([np.eye(HIDDEN), np.eye(HIDDEN)], axis=1) * 0.7
    norms = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    own = {f"mtp.{name}.weight": rng.normal(0, 0.1, HIDDEN) for name in norms}
    own["mtp.fc.weight"] = mixed + rng.normal(0, 0.1, mixed.shape)
    save_file({**tensors, **copied, **own}, file, metadata={"format": "pt"})
