"""Drafts in float32: answers part from plain ones only where two tokens are as good as equal."""

from __future__ import annotations

import pytest
import torch

from tests.cpu.runtime.speculation_harness import narrow_splits

# Of the two best logits in float32: a window is summed in another order than a token alone.
LARGEST_GAP = 1e-4


@pytest.mark.parametrize(
    ("family", "k"),
    [("hybrid", 3), ("llama", 1), pytest.param("hybrid", 5, marks=pytest.mark.slow)],
)
def test_a_first_difference_is_a_tie(family: str, k: int) -> None:
    splits, compared = narrow_splits(family, dtype=torch.float32, k=k, seed=k, num_requests=12)
    print(
        f"{family}, k={k}: {len(splits)} of 12 answers part, {compared} tokens compared: {splits}"
    )
    assert compared > 500
    assert all(split.gap < LARGEST_GAP for split in splits), splits
