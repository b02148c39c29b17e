"""What runs on a GPU gives the tokens that the CPU's reference gives, in float64."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from draftmark import Engine, SamplingParams
from draftmark.kernels.backends import Backends
from draftmark.models import gguf
from tests.cpu.models.gguf_file import write_gguf
from tests.cpu.runtime.harness import VOCAB, Loop, make_run, make_stage, random_request

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("seed", range(3))
def test_any_history_on_a_gpu_gives_what_each_request_gives_alone_on_a_cpu(
    family: str, seed: int
) -> None:
    device = torch.device("cuda")
    rng = random.Random(seed)
    sizes = {"num_pages": rng.choice([9, 14, 40]), "num_slots": 9, "prefill_tokens": 16}
    stage = make_stage(family, backends=Backends(), device=device)
    loop = Loop(make_run(stage, **sizes, device=device), **sizes)
    prefixes = [[rng.randrange(VOCAB) for _ in range(n)] for n in (16, 33)]
    requests = [random_request(i, rng, prefixes=prefixes) for i in range(12)]
    for request in requests:
        loop.add(request)
        loop.step()
    loop.abort(5)
    loop.finish()
    loop.check_answers(make_stage(family), requests)


def test_the_engine_on_a_gpu_answers_as_the_engine_on_a_cpu(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    model = tmp_path / "model"
    gguf.convert(tmp_path / "m.gguf", model, generation={}, progress=lambda *said: None)
    rng = random.Random(3)
    prompts = [[rng.randrange(3, 380) for _ in range(n)] for n in (1, 5, 40, 90, 17, 64)]
    sampling = [
        SamplingParams(temperature=t, seed=11, max_tokens=24, ignore_eos=True) for t in (0.0, 0.9)
    ]
    answers = {}
    for device in ("cpu", "cuda"):
        flags = {"dtype": "float64", "kv_pool_tokens": 4096, "max_context": 256, "device": device}
        with Engine(str(model), **flags) as engine:
            answers[device] = [
                [answer.token_ids for answer in engine.generate(prompts, params)]
                for params in sampling
            ]
    assert answers["cuda"] == answers["cpu"]
    assert all(len(ids) == 24 for batch in answers["cuda"] for ids in batch)
