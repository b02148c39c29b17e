"""Sums are those of the rank order, rounded once, and the same bits on every rank."""

from __future__ import annotations

import time
from threading import BrokenBarrierError

import pytest
import torch

from draftmark.parallel.collectives import Alone, TensorGroup, Unconnected
from tests.fakes.thread_group import run_ranks


def test_alone_nothing_is_copied() -> None:
    x = torch.randn(3, 4)
    assert Alone().sum(x) is x
    assert Alone().gather_columns(x, widths=(4,)) is x


def test_a_sum_is_taken_in_rank_order() -> None:
    """In float32, 1e8 takes no 1: only the order of the ranks gives 1."""
    parts = [1e8, -1e8, 1.0]
    sums = run_ranks(3, lambda group: group.sum(torch.full((2, 3), parts[group.rank])))
    assert all(torch.equal(x, torch.ones(2, 3)) for x in sums)


def test_a_sum_is_rounded_once() -> None:
    """In bfloat16, 256 takes no 1 either, but twice 1 it does."""
    parts = [256.0, 1.0, 1.0]

    def one(group: TensorGroup) -> torch.Tensor:
        return group.sum(torch.full((2, 3), parts[group.rank], dtype=torch.bfloat16))

    for x in run_ranks(3, one):
        assert torch.equal(x, torch.full((2, 3), 258.0, dtype=torch.bfloat16))


def test_a_sum_leaves_its_parts_alone() -> None:
    def one(group: TensorGroup) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.full((2,), float(group.rank))
        return x, group.sum(x)

    for rank, (x, total) in enumerate(run_ranks(4, one)):
        assert x.tolist() == [rank, rank] and total.tolist() == [6, 6]


def test_columns_of_any_width_stand_in_rank_order() -> None:
    whole = torch.arange(14.0).view(2, 7)
    parts = whole.split((3, 3, 1), dim=1)
    gathered = run_ranks(3, lambda group: group.gather_columns(parts[group.rank], widths=(3, 3, 1)))
    assert all(torch.equal(x, whole) for x in gathered)


def test_different_calls_fail_on_every_rank() -> None:
    def one(group: TensorGroup) -> torch.Tensor:
        return group.sum(torch.zeros(2 + group.rank))

    with pytest.raises(AssertionError, match="different calls"):
        run_ranks(2, one)


def test_a_rank_that_does_not_come_is_no_hang() -> None:
    def one(group: TensorGroup) -> None:
        if group.rank == 0:
            group.sum(torch.zeros(2))

    began = time.monotonic()
    with pytest.raises(BrokenBarrierError):
        run_ranks(2, one, timeout_s=0.2)
    assert time.monotonic() - began < 5


def test_an_error_of_one_rank_is_the_error() -> None:
    def one(group: TensorGroup) -> None:
        if group.rank == 1:
            raise ValueError("of rank 1")
        group.sum(torch.zeros(2))

    with pytest.raises(ValueError, match="of rank 1"):
        run_ranks(2, one)


def test_without_peers_nothing_is_summed() -> None:
    group = Unconnected(rank=1, size=2)
    with pytest.raises(AssertionError, match="rank 1 of 2"):
        group.sum(torch.zeros(2))
