"""kv_write, token by token."""

from __future__ import annotations

from torch import Tensor


def kv_write(k_pool: Tensor, v_pool: Tensor, k: Tensor, v: Tensor, store: Tensor) -> None:
    page_tokens = k_pool.shape[1]
    for n, place in enumerate(store.tolist()):
        page, slot = divmod(place, page_tokens)
        k_pool[page, slot] = k[n].to(k_pool.dtype)
        v_pool[page, slot] = v[n].to(v_pool.dtype)
