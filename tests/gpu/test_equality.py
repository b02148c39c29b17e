"""What runs on a GPU gives the tokens that the CPU's reference gives, in float64."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from draftmark import Engine, SamplingParams
from draftmark.kernels.backends import Backends
from draftmark.models import gguf
from tests.cpu.models.gguf_file import SIZES, write_gguf
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


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A random llama of four layers."""
    monkeypatch.setitem(SIZES, "num_hidden_layers", 4)
    write_gguf(tmp_path / "m.gguf")
    gguf.convert(
        tmp_path / "m.gguf", tmp_path / "model", generation={}, progress=lambda *said: None
    )
    return str(tmp_path / "model")


def answers_of(model: str, *, most_id: int = 380, **flags: object) -> list[list[list[int]]]:
    """Tokens of a burst of prompts, greedy and sampled."""
    rng = random.Random(3)
    prompts = [[rng.randrange(3, most_id) for _ in range(n)] for n in (1, 5, 40, 90, 17, 64, 1, 33)]
    sampling = [
        SamplingParams(temperature=t, seed=11, max_tokens=24, ignore_eos=True) for t in (0.0, 0.9)
    ]
    fixed = {"dtype": "float64", "kv_pool_tokens": 4096, "max_context": 256, "max_running": 8}
    with Engine(model, **fixed, **flags) as engine:
        return [
            [answer.token_ids for answer in engine.generate(prompts, params)] for params in sampling
        ]


def test_the_engine_on_a_gpu_answers_as_the_engine_on_a_cpu(model: str) -> None:
    expected = answers_of(model, device="cpu")
    assert answers_of(model, device="cuda") == expected
    assert answers_of(model, device="cuda", pp=2, lanes="test") == expected
    assert all(len(ids) == 24 for batch in expected for ids in batch)


@pytest.mark.dist
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_answer_as_a_cpu_whatever_is_split(model: str) -> None:
    """Stages and tensor ranks, both kinds of lanes, and two stages in each of two processes."""
    expected = answers_of(model, device="cpu")
    splits: list[dict[str, object]] = [
        {"tp": 2},
        *(
            {"lanes": lanes, **split}
            for lanes in ("nccl", "peer")
            for split in (
                {"pp": 2},
                {"pp": 2, "debug_sync": "lane,copy"},
                {"pp": 4, "stages_per_worker": 2, "cohorts": 2},
            )
        ),
    ]
    for split in splits:
        assert answers_of(model, device="cuda", **split) == expected, split
