"""Attention token by token, in at least fp32: the judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftmark.kernels.attention.layout import AttentionShape, PrefillLayout, VerifyLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    shape: AttentionShape
    prefill: tuple[PrefillLayout, ...]
    verify: VerifyLayout | None

    def attend(self, q: Tensor, pool: Tensor) -> Tensor:
        wide = torch.promote_types(q.dtype, torch.float32)
        out = q.new_zeros(q.shape)
        for token, places in self._visible():
            stored = pool.flatten(0, 1)[places].to(wide)
            keys, values = stored.repeat_interleave(self.shape.group, dim=1).chunk(2, dim=1)
            scores = torch.einsum("hd,shd->hs", q[token].to(wide), keys) * self.shape.scale
            weights = torch.softmax(scores, dim=-1)
            out[token] = torch.einsum("hs,shd->hd", weights, values).to(q.dtype)
        return out.flatten(1)

    def _visible(self) -> Iterator[tuple[int, Tensor]]:
        """Each token with the flat pool places of the keys it sees. Inactive rows are left out."""
        for row in self.prefill:
            for j in range(row.count):
                yield row.offset + j, self._places(row.pages, row.start + j + 1)[row.first :]
        if self.verify is None:
            return
        width, first = self.verify.width, self.verify.first
        for b, length in enumerate(self.verify.lengths.tolist()):
            begin = 0 if first is None else int(first[b])
            for j in range(width):
                if self.verify.store[b * width + j] < self.shape.page_tokens:
                    continue
                token = self.verify.offset + b * width + j
                yield token, self._places(self.verify.pages[b], length + j + 1)[begin:]

    def _places(self, pages: Tensor, num_keys: int) -> Tensor:
        position = torch.arange(num_keys, device=pages.device)
        page = pages.long()[position // self.shape.page_tokens]
        return page * self.shape.page_tokens + position % self.shape.page_tokens


def plan(
    shape: AttentionShape,
    prefill: Sequence[PrefillLayout],
    verify: VerifyLayout | None,
    dtype: torch.dtype,
) -> Plan:
    return Plan(shape=shape, prefill=tuple(prefill), verify=verify)
