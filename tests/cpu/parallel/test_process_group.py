"""The tensor group between two processes, on gloo: the same bits as between threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.cpu.parallel.gloo_rank import collectives
from tests.fakes.thread_group import run_ranks

ROOT = Path(__file__).resolve().parents[3]
MODULE = "tests.cpu.parallel.gloo_rank"


def start(tmp_path: Path, rank: int, *, leaves: bool = False) -> subprocess.Popen[str]:
    arguments = [str(tmp_path), str(rank), *(["--leave"] if leaves else [])]
    return subprocess.Popen(
        [sys.executable, "-m", MODULE, *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.dist
def test_processes_agree_with_threads(tmp_path: Path) -> None:
    ranks = [start(tmp_path, rank) for rank in range(2)]
    for process in ranks:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    want = run_ranks(2, collectives)
    for rank in range(2):
        found = torch.load(tmp_path / f"rank{rank}.pt")
        assert len(found) == len(want[0])
        for ours, theirs in zip(found, want[rank], strict=True):
            assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


@pytest.mark.dist
def test_a_process_that_leaves_is_an_error_of_the_other(tmp_path: Path) -> None:
    left, other = start(tmp_path, 1, leaves=True), start(tmp_path, 0)
    left.communicate(timeout=60)
    assert left.returncode == 0
    _, errors = other.communicate(timeout=60)
    assert other.returncode != 0
    assert "RuntimeError" in errors
