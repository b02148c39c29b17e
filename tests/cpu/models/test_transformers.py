"""Logits equal those of `transformers` on the same checkpoint, and so does greedy text.

Tolerance in fp32: 1e-4 of the largest logit. The stage runs with the fast backends, through pages
in random order, so that what is compared is what serves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from draftmark.core.errors import CheckpointError, DraftmarkError
from tests.cpu.models.one_sequence import Runner, load_stage

RELATIVE = 1e-4
BF16_TIE = 0.05
SIZES = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 131,
    "max_position_embeddings": 256,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
VARIANTS: dict[str, tuple[type[PreTrainedModel], Any]] = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SIZES)),
    "llama-tied": (LlamaForCausalLM, LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama-biases": (LlamaForCausalLM, LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True)),
    "llama3-rope": (LlamaForCausalLM, LlamaConfig(**SIZES, rope_parameters=LLAMA3)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SIZES, head_dim=16)),
    "qwen3-tied": (Qwen3ForCausalLM, Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True)),
}


def _save(name: str, directory: Path, **options: object) -> PreTrainedModel:
    torch.manual_seed(7)
    make, config = VARIANTS[name]
    model = make(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(directory, **options)
    (directory / "tokenizer.json").write_text("{}")
    return model


def _assert_close(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= RELATIVE * theirs.abs().max()
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    model = _save(name, tmp_path)
    ids = torch.randint(3, 131, (90,), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        theirs = model(ids[None]).logits[0]
    whole = Runner(tmp_path, dtype=torch.float32, context=96).feed(ids.tolist())
    _assert_close(whole, theirs)
    chunked = Runner(tmp_path, dtype=torch.float32, context=96)
    parts = [chunked.feed(ids[a:b].tolist()) for a, b in ((0, 1), (1, 18), (18, 64), (64, 90))]
    _assert_close(torch.cat(parts), theirs)


def test_a_sharded_checkpoint_is_the_same_model(tmp_path: Path) -> None:
    model = _save("llama", tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    with torch.inference_mode():
        theirs = model(torch.tensor([[5, 6, 7]])).logits[0]
    _assert_close(Runner(tmp_path, dtype=torch.float32, context=16).feed([5, 6, 7]), theirs)


def test_a_truncated_file_is_one_clear_error(tmp_path: Path) -> None:
    _save("llama", tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(DraftmarkError, match=r"model\.safetensors") as caught:
        load_stage(tmp_path, dtype=torch.float32, context=16)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("fault", ["surplus", "missing"])
def test_every_tensor_is_accounted_for(fault: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    _save("llama", tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    if fault == "surplus":
        name = "model.layers.1.self_attn.sinks"
        tensors[name] = torch.zeros(6)
    else:
        name = "model.layers.2.mlp.up_proj.weight"
        del tensors[name]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        load_stage(tmp_path, dtype=torch.float32, context=16)


@pytest.mark.slow
@pytest.mark.model
def test_smollm2_equals_transformers() -> None:
    """Logits and 64 greedy tokens in fp32; in bf16 the same text up to the first near tie."""
    from transformers import AutoModelForCausalLM

    from draftmark.engine.source import resolve_source

    model_dir = resolve_source("smollm2", progress=lambda line: None).directory
    prompt = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    with torch.inference_mode():
        _assert_close(
            Runner(model_dir, dtype=torch.float32, context=128).feed(prompt),
            model(torch.tensor([prompt])).logits[0],
        )
        theirs = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=64,
            min_new_tokens=64,
            do_sample=False,
            temperature=None,
            top_p=None,
            pad_token_id=2,
        )[0, len(prompt) :].tolist()
    ours, _ = _greedy(model_dir, prompt, dtype=torch.float32)
    assert ours == theirs
    narrow, gaps = _greedy(model_dir, prompt, dtype=torch.bfloat16)
    same = next(
        (i for i, pair in enumerate(zip(narrow, theirs, strict=True)) if len(set(pair)) > 1), 64
    )
    assert same == 64 or gaps[same] < BF16_TIE, f"token {same} differs at a gap of {gaps[same]}"


def _greedy(
    model_dir: Path, prompt: list[int], *, dtype: torch.dtype
) -> tuple[list[int], list[float]]:
    """64 tokens, and the gap between the two best logits at each."""
    runner = Runner(model_dir, dtype=dtype, context=128)
    logits = runner.feed(prompt)[-1].clone()
    tokens: list[int] = []
    gaps: list[float] = []
    for _ in range(64):
        logits[2] = -torch.inf
        best = logits.topk(2)
        tokens.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
        logits = runner.feed(tokens[-1:])[-1].clone()
    return tokens, gaps
