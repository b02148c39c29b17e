"""Lanes between two GPUs under random timing: every event is needed, and every one is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.dist,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


def wrong_values(lanes: str, fault: str, tmp_path: Path) -> int:
    """What the reader of a lane found wrong in a thousand rounds."""
    command = [sys.executable, "-m", "tests.gpu.lane_rank", lanes]
    ranks = [
        subprocess.Popen(
            [*command, str(worker), str(tmp_path / "port"), fault],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for worker in range(2)
    ]
    try:
        said = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    return int(said[1][0].split()[-1])


@pytest.mark.parametrize("lanes", ["nccl", "peer"])
def test_no_value_is_read_too_early_or_written_too_early(lanes: str, tmp_path: Path) -> None:
    assert wrong_values(lanes, "none", tmp_path) == 0


@pytest.mark.parametrize("fault", ["written", "arrived", "released", "sent"])
@pytest.mark.parametrize("lanes", ["nccl", "peer"])
def test_one_missing_event_is_seen(lanes: str, fault: str, tmp_path: Path) -> None:
    assert wrong_values(lanes, fault, tmp_path) > 0
