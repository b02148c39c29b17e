"""kv_write, token by token."""

from __future__ import annotations

from torch import Tensor


def kv_write(pool: Tensor, kv: Tensor, store: Tensor) -> None:
    page_tokens = pool.shape[1]
    for n, place in enumerate(store.tolist()):
        page, slot = divmod(place, page_tokens)
        pool[page, slot] = kv[n].to(pool.dtype)
