"""Acceptance against a loop over one row at a time."""

from __future__ import annotations

import itertools

import torch

from draftmark.speculation.acceptance import count_emitted


def one_row(
    sampled: list[int], drafted: list[int], num_drafts: int, is_end: list[bool]
) -> tuple[int, bool]:
    for index, token in enumerate(sampled):
        if is_end[index]:
            return index + 1, True
        if index >= min(num_drafts, len(drafted)) or drafted[index] != token:
            return index + 1, False
    raise AssertionError("a window has one draft fewer than tokens")


def test_every_window_of_three() -> None:
    rows = [
        (list(sampled), list(drafted), count, list(is_end))
        for sampled in itertools.product((4, 5), repeat=3)
        for drafted in itertools.product((4, 5), repeat=2)
        for count in range(3)
        for is_end in itertools.product((False, True), repeat=3)
    ]
    emitted, ended = count_emitted(
        torch.tensor([row[0] for row in rows]),
        torch.tensor([row[1] for row in rows]),
        num_drafts=torch.tensor([row[2] for row in rows]),
        is_end=torch.tensor([row[3] for row in rows]),
    )
    assert list(zip(emitted.tolist(), ended.tolist(), strict=True)) == [
        one_row(*row) for row in rows
    ]


def test_without_drafts_one_token_is_emitted() -> None:
    emitted, ended = count_emitted(
        torch.tensor([[7], [7]]),
        torch.zeros((2, 0), dtype=torch.int64),
        num_drafts=torch.zeros(2, dtype=torch.int64),
        is_end=torch.tensor([[False], [True]]),
    )
    assert emitted.tolist() == [1, 1] and ended.tolist() == [False, True]
