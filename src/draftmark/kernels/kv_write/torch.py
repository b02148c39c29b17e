"""kv_write as one indexed copy."""

from __future__ import annotations

from torch import Tensor


def kv_write(pool: Tensor, kv: Tensor, store: Tensor) -> None:
    pool.view(-1, *pool.shape[2:]).index_copy_(0, store, kv.to(pool.dtype))
