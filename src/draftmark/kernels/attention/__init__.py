"""attention: softmax(q k^T scale) v over paged keys and values, causal, grouped heads.

    out[n, h] = sum_s softmax_s(scale q[n, h] . k[s, h // group]) v[s, h // group]

over the keys s of the token's own sequence up to and including itself. This step's keys and values
must already be in the pool. q [N, H, D], heads contiguous; pool
[num_pages, page_tokens, 2 * kv_heads, D], keys before values, in any float dtype; out [N, H * D]
in q's dtype, contiguous.

The pool may hold anything, NaN included, where a sequence has stored nothing: loads are masked, not
weights. Tokens of rows with nothing stored (inactive: length 0, store in page 0) give an undefined
row. `plan` does what all layers share (indices, masks) once a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor
from torch import dtype as DType

from draftmark.kernels.attention import reference
from draftmark.kernels.attention import torch as plain
from draftmark.kernels.attention.layout import AttentionShape, PrefillLayout, VerifyLayout

__all__ = [
    "AttentionShape",
    "Plan",
    "PrefillLayout",
    "VerifyLayout",
    "attend",
    "plan",
    "workspace_bytes",
]

Plan = reference.Plan | plain.Plan

_PLAN: Mapping[str, Callable[..., Plan]] = {"reference": reference.plan, "torch": plain.plan}


def plan(
    shape: AttentionShape,
    *,
    prefill: Sequence[PrefillLayout],
    verify: VerifyLayout | None,
    dtype: DType,
    backend: str,
) -> Plan:
    """`dtype` is q's. Prefill tokens come first in the batch, then the verify rows'."""
    return _PLAN[backend](shape, prefill, verify, dtype)


def attend(q: Tensor, *, pool: Tensor, plan: Plan) -> Tensor:
    return plan.attend(q, pool)


def workspace_bytes(shape: AttentionShape, *, rows: int, context: int, itemsize: int) -> int:
    """Upper bound of what the torch backend gathers for `rows` rows of `context` tokens."""
    return plain.workspace_bytes(shape, rows=rows, context=context, itemsize=itemsize)
