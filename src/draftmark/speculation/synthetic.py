"""Synthetic acceptance: a coin says whether a draft is accepted, whatever the model says.

For benchmarks with weights of no meaning, whose drafts would all be wrong: the steps are those of
a model whose drafts are accepted at given rates. Where the coin says yes, the draft takes the place
of the sampled token; where it says no and the sampled token is the draft, another id does.
Everything behind that goes on as ever, with tokens that mean nothing.

The coin of a position depends on the row's seed and the position alone, as the noise of sampling
does: it is the same at any number of stages, tensor ranks, rows and drafts. It is drawn for an id
that no token has, and so is independent of that noise.

Legend: B rows, q tokens of a window: the pending one and its drafts.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from draftmark.kernels.sample import noise

_NO_TOKEN = -1


class SyntheticAcceptance:
    """`rates` are those of the places of a window, given that all before were accepted; a single
    one is of every place."""

    def __init__(self, rates: Sequence[float], *, max_drafts: int, device: torch.device) -> None:
        each = tuple(rates) * max_drafts if len(rates) == 1 else tuple(rates)
        if len(each) != max_drafts:
            raise AssertionError(f"{len(each)} rates for {max_drafts} drafts")
        self._rates = torch.tensor(each, dtype=torch.float64, device=device)

    def replace(
        self,
        sampled: Tensor,
        drafted: Tensor,
        *,
        num_drafts: Tensor,
        seeds: Tensor,
        position: Tensor,
        vocab_size: int,
    ) -> Tensor:
        """`sampled` [B, q] with the tokens that the coins say, at the places of the first
        `num_drafts` [B] of `drafted` [B, q - 1]. `position` [B, q] is the index that each token
        gets, `seeds` [B] are the rows'."""
        width = drafted.shape[1]
        own, behind = sampled[:, :width], sampled[:, width:]
        place = torch.arange(width, device=drafted.device)
        says_yes = coins(seeds, position[:, :width]) < self._rates[:width]
        other = torch.where(own == drafted, (drafted + 1) % vocab_size, own)
        wanted = torch.where(says_yes, drafted, other)
        return torch.cat((torch.where(place < num_drafts[:, None], wanted, own), behind), dim=1)


def coins(seeds: Tensor, position: Tensor) -> Tensor:
    """`seeds` [B], `position` [B, n] -> [B, n] float64, uniform in (0, 1)."""
    keys = noise.row_keys(seeds.repeat_interleave(position.shape[1]), position.flatten())
    no_token = torch.full((1, 1), _NO_TOKEN, dtype=torch.int64, device=position.device)
    return noise.uniform(keys, no_token).view(position.shape)
