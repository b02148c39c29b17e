"""kv_write: store this step's keys and values in the page pools.

    k_pool[page, slot] = k[n], v_pool[page, slot] = v[n]   with store[n] = page * page_tokens + slot

k_pool, v_pool [num_pages, page_tokens, kv_heads, head_dim] contiguous, any float dtype, written in
place; k, v [N, kv_heads, head_dim] any strides, converted to the pool's dtype; store [N] int64.
Tokens that must not be stored aim at page 0; which of several writers to one place wins is not
defined. An index outside the pool is our bug: the CPU raises IndexError.
"""

from __future__ import annotations

from torch import Tensor

from draftmark.kernels.kv_write import reference
from draftmark.kernels.kv_write import torch as plain

_BACKENDS = {"reference": reference.kv_write, "torch": plain.kv_write}


def kv_write(
    k_pool: Tensor, v_pool: Tensor, *, k: Tensor, v: Tensor, store: Tensor, backend: str
) -> None:
    _BACKENDS[backend](k_pool, v_pool, k, v, store)
