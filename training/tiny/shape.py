"""The sizes of `tiny` and its special tokens: what tokenizer, model and export must agree on."""

from __future__ import annotations

from dataclasses import dataclass

# The added tokens of the family, in its order. Those in angle brackets alone are part of the text
# that a reader gets (thinking, tool calls); the others mark structure and are left out of it.
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Names as in config.json of the family. Heads keep the family's sizes, so that kernels meet
    the shapes of the large models."""

    vocab_size: int = 4096
    hidden_size: int = 256
    num_hidden_layers: int = 8
    full_attention_interval: int = 4
    num_attention_heads: int = 2
    num_key_value_heads: int = 1
    head_dim: int = 256
    rotary_dim: int = 64
    rope_theta: float = 100_000.0
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 4
    linear_key_head_dim: int = 128
    linear_value_head_dim: int = 128
    linear_conv_kernel_dim: int = 4
    num_experts: int = 16
    num_experts_per_tok: int = 4
    moe_intermediate_size: int = 48
    shared_expert_intermediate_size: int = 48
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 4096

    @property
    def key_dim(self) -> int:
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def value_dim(self) -> int:
        return self.linear_num_value_heads * self.linear_value_head_dim

    def is_attention(self, layer: int) -> bool:
        return (layer + 1) % self.full_attention_interval == 0
