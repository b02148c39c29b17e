"""Rows sorted by their expert, and a loop over the experts that were hit.

The weights of an expert that no token chose are not touched, and none are ever copied: what is
gathered and added back is rows, `GROUP_ROWS` at a time, which bounds the temporaries however long a
prompt is. The ids are read on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

# A multiple of what a product needs to be efficient; small enough to stay in a cache.
GROUP_ROWS = 1024


def experts(
    x: Tensor, ids: Tensor, weights: Tensor, expert: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """`expert(rows [R, h], number)` -> [R, h] is one expert's answer to R > 0 rows."""
    num_tokens, top_k = ids.shape
    if num_tokens == 1:
        answers = torch.cat([expert(x, number) for number in ids[0].tolist()])
        return (weights @ answers.to(weights.dtype)).to(x.dtype)
    chosen = ids.flatten()
    order = chosen.argsort(stable=True)
    tokens, shares = order // top_k, weights.flatten()[order, None]
    y = torch.zeros(x.shape, dtype=weights.dtype, device=x.device)
    first = 0
    for pieces in _groups(torch.bincount(chosen).tolist()):
        numbers, counts = zip(*pieces, strict=True)
        last = first + sum(counts)
        index = tokens[first:last]
        rows = x.index_select(0, index).split(counts)
        answers = torch.cat([expert(*piece) for piece in zip(rows, numbers, strict=True)])
        # Each token's answers are added in the order of the experts, whatever others chose.
        y.index_add_(0, index, answers.to(y.dtype) * shares[first:last])
        first = last
    return y.to(x.dtype)


def workspace_bytes(hidden_size: int, intermediate_size: int, itemsize: int) -> int:
    """Of one group: rows, answers (one by one and together), widened, weighted; and between."""
    row = hidden_size * (3 * itemsize + 2 * max(itemsize, 4)) + 3 * intermediate_size * itemsize
    return GROUP_ROWS * row


def _groups(counts: list[int]) -> Iterator[list[tuple[int, int]]]:
    """`counts` [E] rows of each expert, cut into groups of (expert, rows > 0) in their order."""
    group: list[tuple[int, int]] = []
    room = GROUP_ROWS
    for number, count in enumerate(counts):
        while count > 0:
            taken = min(count, room)
            group.append((number, taken))
            count, room = count - taken, room - taken
            if room == 0:
                yield group
                group, room = [], GROUP_ROWS
    if group:
        yield group
