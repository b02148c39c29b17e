"""Hybrid models on a GPU give the tokens that a CPU gives, in float64."""

from __future__ import annotations

import random

import pytest
import torch

from tests.cpu.runtime.harness import Loop, make_run, make_stage
from tests.cpu.runtime.test_hybrids import MAX_CONTEXT, NUM_LAYERS, counts_of, some_requests
from tests.gpu.test_equality import answers_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("seed", range(3))
def test_any_history_on_a_gpu_gives_what_each_request_gives_alone_on_a_cpu(seed: int) -> None:
    """With chunks, preemption, snapshots and restores."""
    device, rng = torch.device("cuda"), random.Random(seed)
    sizes = {"num_pages": rng.choice([24, 45, 90]), "num_slots": 5, "prefill_tokens": 64}
    shape = {"num_layers": NUM_LAYERS, "max_context": MAX_CONTEXT}
    run = make_run(
        make_stage("hybrid", device=device, **shape),
        max_context=MAX_CONTEXT,
        num_snapshots=5,
        device=device,
        **sizes,
    )
    loop = Loop(run, max_context=MAX_CONTEXT, num_snapshots=5, **sizes)
    requests = some_requests(rng, 10)
    for request in requests:
        loop.add(request)
        loop.step()
    loop.abort(5)
    loop.finish()
    loop.check_answers(make_stage("hybrid", **shape), requests)
    assert all(counts_of(loop))


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tests.workers.tiny_model import write_tiny_hybrid

    return str(write_tiny_hybrid(tmp_path_factory.mktemp("model") / "hybrid"))


def test_the_engine_on_a_gpu_answers_as_the_engine_on_a_cpu(hybrid: str) -> None:
    expected = answers_of(hybrid, device="cpu", most_id=250)
    assert answers_of(hybrid, device="cuda", most_id=250) == expected


@pytest.mark.dist
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_answer_as_a_cpu_whatever_is_split(hybrid: str) -> None:
    expected = answers_of(hybrid, device="cpu", most_id=250)
    splits: list[dict[str, object]] = [
        {"tp": 2},
        {"pp": 2, "stages": "1,3", "lanes": "nccl"},
        {"pp": 4, "stages": "1,1,1,1", "stages_per_worker": 2, "lanes": "peer"},
    ]
    for split in splits:
        assert answers_of(hybrid, device="cuda", most_id=250, **split) == expected, split
