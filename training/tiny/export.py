"""A trained `tiny` as a Hugging Face checkpoint, for servers and `transformers` as it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from training.tiny.model import Tiny
from training.tiny.rendering import TEMPLATE
from training.tiny.shape import SPECIAL_TOKENS, Shape

MAX_SHARD_BYTES = 12_000_000
MAX_BYTES = 24_000_000


def export(model: Tiny, tokenizer: Tokenizer, folder: Path) -> None:
    """Weights in bfloat16 (A_log and dt_bias, which set the decay, in float32), shards, config,
    tokenizer and template. Raises `ValueError` when the whole is over `MAX_BYTES`, or a weight not
    finite."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: _stored(name, parameter.detach()) for name, parameter in model.named_parameters()
    }
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name} holds values that are not finite")
    _save_shards(tensors, folder)
    _write_json(folder / "config.json", config(model.shape, tokenizer))
    eos = [tokenizer.token_to_id(token) for token in ("<|im_end|>", "<|endoftext|>")]
    generation = {
        "bos_token_id": None,
        "eos_token_id": eos,
        "pad_token_id": eos[1],
        "do_sample": False,
    }
    _write_json(folder / "generation_config.json", generation)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(model.shape))
    shutil.copyfile(TEMPLATE, folder / "chat_template.jinja")
    size = sum(path.stat().st_size for path in folder.iterdir())
    if size > MAX_BYTES:
        raise ValueError(f"the checkpoint has {size} bytes, over {MAX_BYTES}")


def load(folder: Path) -> tuple[Tiny, Tokenizer]:
    """The model in float32 and its tokenizer, from an export."""
    model = Tiny(Shape())
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(path)
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return model, Tokenizer.from_file(str(folder / "tokenizer.json"))


def config(shape: Shape, tokenizer: Tokenizer) -> dict[str, object]:
    """config.json of `qwen3_5_moe_text`."""
    layers = [
        "full_attention" if shape.is_attention(i) else "linear_attention"
        for i in range(shape.num_hidden_layers)
    ]
    return {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "dtype": "bfloat16",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "layer_types": layers,
        "full_attention_interval": shape.full_attention_interval,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "attention_bias": False,
        "attn_output_gate": True,
        "linear_num_key_heads": shape.linear_num_key_heads,
        "linear_num_value_heads": shape.linear_num_value_heads,
        "linear_key_head_dim": shape.linear_key_head_dim,
        "linear_value_head_dim": shape.linear_value_head_dim,
        "linear_conv_kernel_dim": shape.linear_conv_kernel_dim,
        "mamba_ssm_dtype": "float32",
        "num_experts": shape.num_experts,
        "num_experts_per_tok": shape.num_experts_per_tok,
        "moe_intermediate_size": shape.moe_intermediate_size,
        "shared_expert_intermediate_size": shape.shared_expert_intermediate_size,
        "hidden_act": "silu",
        "rms_norm_eps": shape.rms_norm_eps,
        "max_position_embeddings": shape.max_position_embeddings,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": shape.rope_theta,
            "partial_rotary_factor": shape.rotary_dim / shape.head_dim,
        },
        "tie_word_embeddings": True,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "eos_token_id": tokenizer.token_to_id("<|endoftext|>"),
        "bos_token_id": None,
        "pad_token_id": None,
    }


def _tokenizer_config(shape: Shape) -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": shape.max_position_embeddings,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "additional_special_tokens": [
            token for token in SPECIAL_TOKENS[3:] if token.startswith("<|")
        ],
        "clean_up_tokenization_spaces": False,
    }


def _stored(name: str, tensor: Tensor) -> Tensor:
    is_decay = name.endswith(("A_log", "dt_bias"))
    return tensor.to(torch.float32 if is_decay else torch.bfloat16).cpu().contiguous()


def _save_shards(tensors: dict[str, Tensor], folder: Path) -> None:
    shards: list[dict[str, Tensor]] = [{}]
    for name, tensor in tensors.items():
        # Headers take about a hundred bytes a tensor.
        if _num_bytes(shards[-1]) + tensor.nbytes + 150 * len(shards[-1]) > MAX_SHARD_BYTES:
            shards.append({})
        shards[-1][name] = tensor
    where = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": _num_bytes(tensors)}, "weight_map": where}
    _write_json(folder / "model.safetensors.index.json", index)


def _num_bytes(tensors: dict[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
