"""kv_write as two indexed copies."""

from __future__ import annotations

from torch import Tensor


def kv_write(k_pool: Tensor, v_pool: Tensor, k: Tensor, v: Tensor, store: Tensor) -> None:
    if k.dtype != k_pool.dtype:
        k, v = k.to(k_pool.dtype), v.to(v_pool.dtype)
    k_pool.view(-1, *k_pool.shape[2:]).index_copy_(0, store, k)
    v_pool.view(-1, *v_pool.shape[2:]).index_copy_(0, store, v)
