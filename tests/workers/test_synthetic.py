"""Coins that accept drafts, through whole engines: the same at any number of stages and tensor
ranks, and again when the recording is run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from draftmark.core.request import SamplingParams
from draftmark.kernels.sample import reference
from draftmark.runtime.rerun import rerun
from tests.workers.conftest import logged, open_engine
from tests.workers.tiny_model import write_tiny_hybrid

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]

RATES, TOKENS = (0.9, 0.7, 0.4), 60
PROMPTS = [[5], list(range(10, 60)), [7, 8, 9] * 12, [200, 3]]


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_hybrid(tmp_path_factory.mktemp("model") / "hybrid")


def windows_of(seed: int, num_prompt: int) -> list[int]:
    """Tokens of each window of a request, by coins in plain Python."""
    end, length, windows = num_prompt + TOKENS, num_prompt + 1, []
    while length < end:
        count = 1
        for place, rate in enumerate(RATES):
            noise = reference.noise(seed, length + place, -1)
            if 1 - math.exp(-math.exp(-noise)) >= rate:
                break
            count += 1
        windows.append(min(count, end - length))
        length += windows[-1]
    return windows


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"pp": 2, "stages": "1,3"},
        pytest.param({"tp": 2}, marks=pytest.mark.slow),
    ],
    ids=lambda flags: ",".join(f"{name}={value}" for name, value in flags.items()) or "alone",
)
def test_the_coins_of_seed_and_position_decide(
    hybrid: Path, socket_root: Path, tmp_path: Path, flags: dict[str, Any]
) -> None:
    recording = tmp_path / "plans.jsonl"
    given = {"draft": "mtp", "draft_tokens": 3, "synthetic_acceptance": RATES, **flags}
    with (
        logged() as log,
        open_engine(hybrid, **given, record_plans=str(recording)) as engine,
    ):
        assert engine.ready["synthetic_acceptance"] == list(RATES)
        for seed, prompt in enumerate(PROMPTS):
            sampling = SamplingParams(
                max_tokens=TOKENS, temperature=seed % 2, seed=seed, ignore_eos=True
            )
            [answer] = engine.generate([prompt], sampling)
            wanted = windows_of(seed, len(prompt))
            found = answer.usage.speculation
            assert found is not None and answer.usage.completion_tokens == TOKENS
            assert (found.windows, found.accepted_tokens) == (
                len(wanted),
                sum(wanted) - len(wanted),
            )
    assert log.find("SYNTHETIC ACCEPTANCE 0.9,0.7,0.4")
    report = rerun(recording, forced=False)
    assert report.divergence is None and report.tokens >= TOKENS * len(PROMPTS)
