"""Which tokens of a window are emitted: a draft is accepted when plain sampling gives it.

The token at position p is always the one that sampling gives there for the row's seed, whatever was
drafted; a draft only saves a step when it is that token. So one rule holds for greedy and sampled
rows, and the tokens are the same for every number of drafts.

Legend: B rows, q tokens of a window: the pending one and its drafts.
"""

from __future__ import annotations

import torch
from torch import Tensor


def count_emitted(
    sampled: Tensor, drafted: Tensor, *, num_drafts: Tensor, is_end: Tensor
) -> tuple[Tensor, Tensor]:
    """`sampled` [B, q] is what each token of a window gives, `drafted` [B, q - 1] what stands after
    it in the window, `num_drafts` [B] how much of that counts; `is_end` [B, q] bool are tokens that
    end their sequence. Returns (emitted [B] int64, ended [B] bool): the accepted tokens and one
    more, up to the first that ends."""
    width = sampled.shape[1]
    column = torch.arange(width, device=sampled.device)
    agrees = (sampled[:, :-1] == drafted) & (column[:-1] < num_drafts[:, None])
    accepted = agrees.to(torch.int64).cumprod(1).sum(1)
    # Where a window ends: at its first ending token, or nowhere.
    first_end = torch.where(is_end, column, width).amin(1)
    ended = first_end <= accepted
    return torch.minimum(accepted, first_end) + 1, ended
