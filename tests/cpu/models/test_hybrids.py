"""Gated delta nets and experts against `transformers`, on random checkpoints of each model type.

In fp32 the largest difference of a logit is 1e-4 of the largest logit, and the greedy token is the
same, for a prompt as a whole, in chunks, and token by token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    PreTrainedModel,
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeForConditionalGeneration,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from draftmark.core.errors import CheckpointError, ModelError
from draftmark.models.config import describe
from tests.cpu.models.one_sequence import Runner, load_stage

RELATIVE = 1e-4
VOCAB = 131
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "max_position_embeddings": 256,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "pad_token_id": 0,
}
DENSE = {**SIZES, "intermediate_size": 80}
EXPERTS = {
    **SIZES,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
    "num_experts": 8,
    "num_experts_per_tok": 3,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "partial_rotary_factor": 0.25,
}
VISION = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "out_hidden_size": 48,
}
WIDE = {
    **EXPERTS,
    "num_hidden_layers": 5,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"] * 2,
}

VARIANTS: dict[str, tuple[type[PreTrainedModel], Any]] = {
    "qwen3_5_text": (Qwen3_5ForCausalLM, Qwen3_5TextConfig(**DENSE)),
    "qwen3_5_text-tied": (Qwen3_5ForCausalLM, Qwen3_5TextConfig(**DENSE, tie_word_embeddings=True)),
    "qwen3_5_text-yarn": (Qwen3_5ForCausalLM, Qwen3_5TextConfig(**DENSE, rope_parameters=YARN)),
    "qwen3_5": (
        Qwen3_5ForConditionalGeneration,
        Qwen3_5Config(text_config=DENSE, vision_config=VISION),
    ),
    "qwen3_5_moe_text": (Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig(**EXPERTS)),
    "qwen3_5_moe_text-types": (Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig(**WIDE)),
    "qwen3_5_moe": (
        Qwen3_5MoeForConditionalGeneration,
        Qwen3_5MoeConfig(text_config=EXPERTS, vision_config=VISION),
    ),
    "qwen3_next": (Qwen3NextForCausalLM, Qwen3NextConfig(**EXPERTS)),
    "qwen3_next-some-dense": (
        Qwen3NextForCausalLM,
        Qwen3NextConfig(**EXPERTS, intermediate_size=80, mlp_only_layers=[1], norm_topk_prob=False),
    ),
}


def save(name: str, directory: Path) -> PreTrainedModel:
    torch.manual_seed(7)
    make, config = VARIANTS[name]
    model = make(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(directory)
    (directory / "tokenizer.json").write_text("{}")
    return model


def ids_of(count: int) -> list[int]:
    return torch.randint(3, VOCAB, (count,), generator=torch.Generator().manual_seed(3)).tolist()


def logits_of(model: PreTrainedModel, ids: list[int]) -> Tensor:
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids])).logits[0]


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= RELATIVE * theirs.abs().max()
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    theirs = logits_of(save(name, tmp_path), ids_of(90))
    ids = ids_of(90)
    whole = Runner(tmp_path, dtype=torch.float32, context=96)
    assert_close(whole.feed(ids), theirs)
    cut = Runner(tmp_path, dtype=torch.float32, context=96)
    parts = [cut.feed(ids[a:b]) for a, b in ((0, 1), (1, 18), (18, 64), (64, 70))]
    parts += [cut.decode(token) for token in ids[70:]]
    assert_close(torch.cat(parts), theirs)


def mtp_of(model: PreTrainedModel) -> dict[str, Tensor]:
    """Tensors of a head, drawn at random: of its layer those of the model's own attention layer."""
    generator = torch.Generator().manual_seed(5)
    layer = model.model.layers[3].state_dict()
    shapes = {f"mtp.layers.0.{name}": tensor.shape for name, tensor in layer.items()}
    shapes |= {"mtp.fc.weight": (48, 96), "mtp.norm.weight": (48,)}
    shapes |= {f"mtp.pre_fc_norm_{what}.weight": (48,) for what in ("embedding", "hidden")}
    return {name: 0.2 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.mark.parametrize("name", ["qwen3_5_text", "qwen3_5_moe_text"])
@torch.inference_mode()
def test_the_mtp_head_is_loaded_and_computes_its_formula(name: str, tmp_path: Path) -> None:
    """Against a layer and norms of transformers that are given the head's weights."""
    model = save(name, tmp_path)
    head = mtp_of(model)
    change(tmp_path, lambda tensors: tensors.update(head))
    description = describe(tmp_path)
    assert description.config.mtp is not None
    runner = Runner(tmp_path, dtype=torch.float32, context=32, with_mtp=True)
    ids = torch.tensor(ids_of(21))
    inner = model.model
    hidden = inner(input_ids=ids[None]).last_hidden_state[0]
    ours = runner.draft(ids[1:].tolist(), hidden[:-1])
    layer, norm = inner.layers[3], inner.norm
    start = len("mtp.layers.0.")
    layer.load_state_dict({n[start:]: t for n, t in head.items() if n.startswith("mtp.layers.")})

    def normed(x: Tensor, weight: str) -> Tensor:
        norm.weight.copy_(head[weight])
        return norm(x)

    embedded = normed(inner.embed_tokens(ids[1:]), "mtp.pre_fc_norm_embedding.weight")
    both = torch.cat((embedded, normed(hidden[:-1], "mtp.pre_fc_norm_hidden.weight")), dim=1)
    x = (both @ head["mtp.fc.weight"].T)[None]
    position = torch.arange(20)[None]
    mask = torch.full((20, 20), -torch.inf).triu(1)[None, None]
    y = layer(x, position_embeddings=inner.rotary_emb(x, position), attention_mask=mask)
    y = normed(y[0] if y.dim() == 3 else y, "mtp.norm.weight")
    assert (ours - y).abs().max() <= RELATIVE * y.abs().max()


def test_without_being_asked_for_the_mtp_head_is_left_out(tmp_path: Path) -> None:
    model = save("qwen3_5_text", tmp_path)
    theirs = logits_of(model, ids_of(20))
    head = mtp_of(model)
    change(tmp_path, lambda tensors: tensors.update(head))
    runner = Runner(tmp_path, dtype=torch.float32, context=32)
    assert runner.stage.mtp is None
    assert_close(runner.feed(ids_of(20)), theirs)


def change(directory: Path, edit: Any) -> None:
    """Let `edit` change the checkpoint's tensors."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def _fuse(tensors: dict[str, Tensor]) -> None:
    """The form of published checkpoints: one tensor for all experts of a layer."""
    layers = sorted({int(name.split(".")[2]) for name in tensors if ".experts." in name})
    for layer in layers:
        head = f"model.layers.{layer}.mlp.experts"
        if f"{head}.gate_up_proj" in tensors:
            continue
        parts = {
            what: [tensors.pop(f"{head}.{e}.{what}_proj.weight") for e in range(8)]
            for what in ("gate", "up", "down")
        }
        both = [torch.cat(pair) for pair in zip(parts["gate"], parts["up"], strict=True)]
        tensors[f"{head}.gate_up_proj"] = torch.stack(both)
        tensors[f"{head}.down_proj"] = torch.stack(parts["down"])


def _split(tensors: dict[str, Tensor]) -> None:
    for name in [name for name in tensors if name.endswith("experts.gate_up_proj")]:
        head = name.removesuffix(".gate_up_proj")
        both, down = tensors.pop(name), tensors.pop(f"{head}.down_proj")
        for e, (gate_up, one) in enumerate(zip(both, down, strict=True)):
            gate, up = gate_up.chunk(2)
            for what, tensor in (("gate", gate), ("up", up), ("down", one)):
                tensors[f"{head}.{e}.{what}_proj.weight"] = tensor.clone()


@pytest.mark.parametrize("edit", [_fuse, _split])
def test_experts_in_both_forms(edit: Any, tmp_path: Path) -> None:
    theirs = logits_of(save("qwen3_5_moe_text", tmp_path), ids_of(20))
    change(tmp_path, edit)
    assert_close(Runner(tmp_path, dtype=torch.float32, context=32).feed(ids_of(20)), theirs)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.layers.0.linear_attn.A_log", "has 1 values that are not finite"),
        ("model.layers.3.self_attn.q_norm.weight", "has 1 values that are not finite"),
    ],
)
def test_a_tensor_that_is_not_finite_is_named(name: str, message: str, tmp_path: Path) -> None:
    save("qwen3_5_text", tmp_path)
    change(tmp_path, lambda tensors: tensors[name].view(-1)[0].fill_(float("nan")))
    with pytest.raises(CheckpointError, match=f"{name} {message}"):
        load_stage(tmp_path, dtype=torch.float32, context=16)


def test_a_tensor_of_another_shape_is_named(tmp_path: Path) -> None:
    save("qwen3_next", tmp_path)
    name = "model.layers.0.linear_attn.in_proj_qkvz.weight"

    def edit(tensors: dict[str, Tensor]) -> None:
        tensors[name] = tensors[name][:-8].clone()

    change(tmp_path, edit)
    with pytest.raises(
        CheckpointError, match=rf"{name} has shape \[168, 48\], expected \[176, 48\]"
    ):
        load_stage(tmp_path, dtype=torch.float32, context=16)


@pytest.mark.parametrize("fault", ["surplus", "missing"])
def test_every_tensor_is_accounted_for(fault: str, tmp_path: Path) -> None:
    save("qwen3_5_moe_text", tmp_path)
    name = f"model.layers.1.mlp.{'sinks' if fault == 'surplus' else 'shared_expert_gate.weight'}"

    def edit(tensors: dict[str, Tensor]) -> None:
        if fault == "surplus":
            tensors[name] = torch.zeros(6)
        else:
            del tensors[name]

    change(tmp_path, edit)
    with pytest.raises(CheckpointError, match=name):
        load_stage(tmp_path, dtype=torch.float32, context=16)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("output_gate_type", "tanh", "output_gate_type = 'tanh', which is not built"),
        ("attn_output_gate", False, "attn_output_gate = False, which is not built"),
        ("hidden_act", "gelu", "hidden_act = 'gelu', which is not built"),
        ("model_type", "glm5_next", "glm5_next .* is not built yet"),
        ("model_type", "qwen4_exp", "qwen4_exp .* is not built yet"),
        ("model_type", "glm_moe_dsa", "glm_moe_dsa .* is not built yet"),
        ("quantization_config", {"quant_method": "fp8"}, "quantization_config = 'fp8'"),
    ],
)
def test_what_is_not_built_is_refused(
    key: str, value: object, message: str, tmp_path: Path
) -> None:
    save("qwen3_5_text", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(ModelError, match=message):
        describe(tmp_path)
