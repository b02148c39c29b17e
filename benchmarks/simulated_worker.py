"""A real worker whose layers sleep: the worker process of `benchmarks/pipeline.py`.

    python benchmarks/simulated_worker.py --layer-ms 10 --jitter 0.1 --seed 0 [the worker's own]

Embedding, final norm, head, sampling, slots, pages, lanes and results are the real ones. The layers
of a stage are replaced by one sleep, whatever the rows: hidden states leave as they came.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from draftmark.core.start import LoadWeights, WeightsLoaded
from draftmark.layers.batch import Batch
from draftmark.models.stage import Stage, StageOutput
from draftmark.runtime import rank, worker

LAYERS, HIDDEN, VOCAB, MAX_CONTEXT = 4, 2048, 512, 8192
_HEADS, _HEAD_DIM, _MIDDLE = 1, 16, 16


def command(*, layer_ms: float, jitter: float, seed: int) -> list[str]:
    """Arguments to Python that start this worker."""
    flags = {"--layer-ms": layer_ms, "--jitter": jitter, "--seed": seed}
    return [str(Path(__file__)), *(str(word) for flag in flags.items() for word in flag)]


def write_model(directory: Path) -> None:
    """A llama of `LAYERS` layers with wide hidden states and little else; needs a tokenizer yet."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": HIDDEN,
        "intermediate_size": _MIDDLE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _HEADS,
        "head_dim": _HEAD_DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": MAX_CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "eos_token_id": 2,
    }
    generator = torch.Generator().manual_seed(0)

    def random_weight(rows: int, columns: int) -> Tensor:
        weight = torch.randn(rows, columns, generator=generator) * columns**-0.5
        return weight.to(torch.bfloat16)

    attention = _HEADS * _HEAD_DIM
    shapes = {
        "self_attn.q_proj": (attention, HIDDEN),
        "self_attn.k_proj": (attention, HIDDEN),
        "self_attn.v_proj": (attention, HIDDEN),
        "self_attn.o_proj": (HIDDEN, attention),
        "mlp.gate_proj": (_MIDDLE, HIDDEN),
        "mlp.up_proj": (_MIDDLE, HIDDEN),
        "mlp.down_proj": (HIDDEN, _MIDDLE),
    }
    # Embeddings of unit size: what they hold is what the tokens are drawn from.
    ones = torch.ones(HIDDEN, dtype=torch.bfloat16)
    tensors = {
        "model.embed_tokens.weight": random_weight(VOCAB, HIDDEN) * HIDDEN**0.5,
        "lm_head.weight": random_weight(VOCAB, HIDDEN),
        "model.norm.weight": ones,
    }
    for layer in range(LAYERS):
        head = f"model.layers.{layer}"
        tensors |= {f"{head}.{name}.weight": random_weight(*shapes[name]) for name in shapes}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{head}.{norm}.weight"] = ones.clone()
    (directory / "config.json").write_text(json.dumps(config))
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


class SimulatedRank(rank.Rank):
    """`arguments` are set before the worker makes its only one."""

    arguments = argparse.Namespace()

    def load(self, load: LoadWeights) -> WeightsLoaded:
        loaded = super().load(load)
        for number, stage in zip(load.topology.stages_of(load.worker), self._stages, strict=True):
            seconds = self.arguments.layer_ms * len(stage.blocks) / 1000
            draw = random.Random(f"{self.arguments.seed} {number}")
            jitter = self.arguments.jitter
            stage.logits = _cheap_logits  # type: ignore[method-assign]
            stage.forward = _asleep(  # type: ignore[method-assign]
                stage, draw=lambda s=seconds, d=draw, j=jitter: s * d.uniform(1 - j, 1 + j)
            )
        return loaded


def _asleep(
    stage: Stage, *, draw: Callable[[], float]
) -> Callable[[Tensor, Batch, Sequence[Tensor]], StageOutput]:
    """A forward of `stage` whose layers take `draw()` seconds and do nothing."""

    def forward(inputs: Tensor, batch: Batch, pools: Sequence[Tensor]) -> StageOutput:
        hidden = inputs
        if stage.embedding is not None and stage.embeds:
            hidden = stage.embedding(inputs)
        time.sleep(draw())
        return StageOutput(hidden, torch.full((len(hidden),), -1, dtype=torch.int32))

    return forward


def _cheap_logits(hidden: Tensor) -> Tensor:
    """The head's part of the sleep is the stage's."""
    return hidden[:, :VOCAB].float()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layer-ms", type=float, required=True)
    parser.add_argument("--jitter", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    SimulatedRank.arguments, sys.argv[1:] = parser.parse_known_args()
    worker.Rank = SimulatedRank  # type: ignore[misc]
    worker.main()


if __name__ == "__main__":
    main()
