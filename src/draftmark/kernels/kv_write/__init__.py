"""kv_write: store this step's keys and values in the page pool.

    pool[page, slot] = kv[n]   with store[n] = page * page_tokens + slot

pool [num_pages, page_tokens, 2 * kv_heads, head_dim] contiguous, any float dtype, written in place:
the heads of the keys, then those of the values. kv [N, 2 * kv_heads, head_dim] likewise, any
strides, converted to the pool's dtype; store [N] int64. Tokens that must not be stored aim at page
0; which of several writers to one place wins is not defined. An index outside the pool is our bug:
the CPU raises IndexError.
"""

from __future__ import annotations

from torch import Tensor

from draftmark.kernels.kv_write import reference
from draftmark.kernels.kv_write import torch as plain

_BACKENDS = {"reference": reference.kv_write, "torch": plain.kv_write}


def kv_write(pool: Tensor, *, kv: Tensor, store: Tensor, backend: str) -> None:
    _BACKENDS[backend](pool, kv, store)
