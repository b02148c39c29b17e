"""The form of `tiny` at sizes that a test can train and compare in float64."""

from __future__ import annotations

from training.tiny.shape import Shape

SMALL = Shape(
    vocab_size=97,
    hidden_size=32,
    num_hidden_layers=4,
    head_dim=16,
    rotary_dim=8,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    num_experts=6,
    num_experts_per_tok=2,
    moe_intermediate_size=8,
    shared_expert_intermediate_size=8,
)
