"""A checkpoint over stages and tensor ranks: who loads what, and that together they are the model.

Checkpoints are real ones, of tiny random models as `transformers` saves them.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from draftmark.core.errors import CheckpointError
from draftmark.kernels.backends import REFERENCE
from draftmark.layers.moe import MoEConfig
from draftmark.layers.weight import Target, Weight
from draftmark.models import checkpoint
from draftmark.models.config import Description, describe
from draftmark.models.family import Take
from draftmark.models.stage import Stage, build
from draftmark.parallel.collectives import Alone, TensorGroup, Unconnected
from draftmark.parallel.mesh import Mesh
from tests.cpu.parallel.ranked_stage import CPU, MAX_CONTEXT, Runner
from tests.fakes.thread_group import run_ranks

SIZES = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 10,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 131,
    "max_position_embeddings": MAX_CONTEXT,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "pad_token_id": 0,
}
HYBRID = {name: size for name, size in SIZES.items() if name != "intermediate_size"} | {
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 6,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}
MODELS: dict[str, Any] = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SIZES, head_dim=12, tie_word_embeddings=True)),
    "qwen3_next": (
        Qwen3NextForCausalLM,
        Qwen3NextConfig(
            **HYBRID, linear_num_value_heads=6, intermediate_size=80, mlp_only_layers=[1]
        ),
    ),
}
SPLITS = {
    1: [range(10)],
    2: [range(7), range(7, 10)],
    3: [range(4), range(4, 8), range(8, 10)],
}
TP = 2
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


# Hybrids over stages and ranks have fast tests in `tests/cpu/runtime`.
@pytest.fixture(
    scope="module",
    params=[
        "llama",
        pytest.param("qwen3", marks=pytest.mark.slow),
        pytest.param("qwen3_next", marks=pytest.mark.slow),
    ],
)
def model_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(7)
    make, config = MODELS[request.param]
    model = make(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(directory)
    (directory / "tokenizer.json").write_text("{}")
    return directory


def loaded(
    model_dir: Path,
    *,
    layers: range,
    group: TensorGroup,
    description: Description,
) -> Stage:
    """Not finished: its parameters are still there to be looked at."""
    stage = build(
        description,
        dtype=torch.float64,
        device=CPU,
        max_context=MAX_CONTEXT,
        backends=REFERENCE,
        layers=layers,
        mesh=Mesh(tp_rank=group.rank, tp_size=group.size),
        group=group,
    )
    checkpoint.load(stage, model_dir, description=description, progress=lambda done, total: None)
    return stage


def targets_of(stage: Stage, description: Description) -> dict[str, list[tuple[Take, Target]]]:
    """Checkpoint name -> what is taken of it, and where this stage has how much of that."""
    places = {}
    for parameter, weight in stage.named_parameters():
        assert isinstance(weight, Weight)
        places |= {(parameter, block): target for block, target in weight.targets()}
    found = {
        name: [
            (piece.take or _all, places[piece.parameter, piece.block])
            for piece in source.pieces
            if (piece.parameter, piece.block) in places
        ]
        for name, source in description.names.used.items()
    }
    return {name: targets for name, targets in found.items() if targets}


def _all(tensor: Tensor) -> Tensor:
    return tensor


@pytest.mark.parametrize("num_stages", [2, 3])
def test_every_tensor_is_on_one_stage(model_dir: Path, num_stages: int) -> None:
    """On each tensor rank; the table of a tied head on the first and the last."""
    description = describe(model_dir)
    for rank in range(TP):
        found: Counter[str] = Counter()
        for layers in SPLITS[num_stages]:
            group = Unconnected(rank=rank, size=TP)
            stage = loaded(model_dir, layers=layers, group=group, description=description)
            found.update(targets_of(stage, description).keys())
        tensors = set(load_file(model_dir / "model.safetensors"))
        # The biases of split inputs are rank 0's.
        tensors -= {
            n for n in tensors if rank > 0 and n.endswith(("o_proj.bias", "down_proj.bias"))
        }
        assert set(found) == tensors
        twice = {name for name, count in found.items() if count == 2}
        assert twice == ({EMBEDDING} if description.config.tied_head else set())
        assert found.total() == len(found) + len(twice)


def test_every_element_is_loaded_where_it_belongs(model_dir: Path) -> None:
    """Split tensors are on one rank each, norms and what chooses experts on all, everything with
    the checkpoint's values."""
    description = describe(model_dir)
    tensors = load_file(model_dir / "model.safetensors")
    copies = {name: torch.zeros(tensor.shape) for name, tensor in tensors.items()}
    layers = SPLITS[3]
    for rank in range(TP):
        for part in layers:
            group = Unconnected(rank=rank, size=TP)
            stage = loaded(model_dir, layers=part, group=group, description=description)
            for name, targets in targets_of(stage, description).items():
                numbers = torch.arange(tensors[name].numel()).view(tensors[name].shape)
                for take, target in targets:
                    assert torch.equal(target.view, take(tensors[name])[target.part]), name
                    places = take(numbers)[target.part].flatten()
                    copies[name].view(-1)[places] += 1
    for name, count in copies.items():
        ends = 2 if name == EMBEDDING and description.config.tied_head else 1
        is_whole = any(part in name for part in ("norm", "mlp.gate.", "expert_gate"))
        assert (count == ends * (TP if is_whole else 1)).all(), name


@pytest.mark.parametrize("num_stages", [2, 3])
def test_a_stage_holds_its_share_of_bytes(model_dir: Path, num_stages: int) -> None:
    description = describe(model_dir)

    def sizes(layers: list[range], tp_size: int) -> list[int]:
        """Of every rank of every stage, without the rotary table, which all have."""
        stages = [
            loaded(
                model_dir,
                layers=part,
                group=Unconnected(rank=rank, size=tp_size),
                description=description,
            )
            for part in layers
            for rank in range(tp_size)
        ]
        planned = [stage.planned_bytes() for stage in stages]
        for stage in stages:
            stage.finish()
        assert planned == [stage.weight_bytes() for stage in stages]
        return [
            stage.weight_bytes() - (0 if stage.rotary is None else stage.rotary.table.nbytes)
            for stage in stages
        ]

    def layer(number: int) -> int:
        name = f"layers.{number}."
        return sum(weight.nbytes for key, weight in whole.named_parameters() if name in key)

    whole = loaded(model_dir, layers=SPLITS[1][0], group=Alone(), description=description)
    table = 8 * 131 * 48
    held = sizes(SPLITS[num_stages], TP)
    # Norms and routers are on every rank.
    has_experts = isinstance(description.config.layers[0].mlp, MoEConfig)
    tolerance = 0.1 if has_experts else 0.03
    for index, layers in enumerate(SPLITS[num_stages]):
        tables = (layers.start == 0) + (layers.stop == 10)
        for rank in range(TP):
            share = (sum(map(layer, layers)) + tables * table) / TP
            assert held[TP * index + rank] == pytest.approx(share, rel=tolerance)


@pytest.mark.parametrize(("num_stages", "tp_size"), [(2, 1), (3, 1), (1, 2), (2, 2), (3, 2)])
def test_stages_and_ranks_are_the_model(model_dir: Path, num_stages: int, tp_size: int) -> None:
    """Hidden states handed on from stage to stage, a prefill and a verify row of 3."""
    description = describe(model_dir)
    steps = (torch.arange(5, 40), torch.tensor([130, 3, 66]))

    def run(layers: list[range], group: TensorGroup) -> list[Tensor]:
        with torch.inference_mode():
            stages = [
                loaded(model_dir, layers=part, group=group, description=description)
                for part in layers
            ]
            for stage in stages:
                stage.finish()
            runners = [Runner(stage) for stage in stages]
        logits = []
        for hidden in steps:
            for runner in runners:
                out = runner.feed(hidden)
                hidden = out.hidden
                assert (out.bad_layer == -1).all()
            logits.append(out.logits)
        return logits

    ((whole, after),) = run_ranks(1, lambda group: run(SPLITS[1], group))
    for ours, ours_after in run_ranks(tp_size, lambda group: run(SPLITS[num_stages], group)):
        if tp_size == 1:
            assert torch.equal(ours, whole) and torch.equal(ours_after, after)
        torch.testing.assert_close(ours, whole, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(ours_after, after, rtol=1e-12, atol=1e-12)


def test_a_tensor_lost_is_an_error_of_its_stage_alone(model_dir: Path, tmp_path: Path) -> None:
    tensors = load_file(model_dir / "model.safetensors")
    [name, *_] = [n for n in tensors if n.startswith("model.layers.8.") and "up_proj" in n]
    del tensors[name]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    for file in ("config.json", "tokenizer.json"):
        (tmp_path / file).write_bytes((model_dir / file).read_bytes())
    description, group = describe(tmp_path), Unconnected(rank=1, size=TP)
    first, last = SPLITS[2]
    loaded(tmp_path, layers=first, group=group, description=description)
    with pytest.raises(CheckpointError, match=re.escape(name)):
        loaded(tmp_path, layers=last, group=group, description=description)
