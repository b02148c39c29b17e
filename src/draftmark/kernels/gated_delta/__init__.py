"""gated_delta: linear attention by the delta rule with decay, over a state that is folded lazily.

    S = e^g S,  d = beta (v - S^T k),  S = S + k d^T,  o = S^T q

for each value head, S [Dk, Dv]; q and k are normalised here: x (sum x^2 + 1e-6)^-1/2, q then times
Dk^-1/2. N tokens, S slots, B rows of w tokens, Hk key heads, Hv value heads; value head j uses key
head j // (Hv / Hk). W is the cache's dtype, float32 at least, and everything is computed in it.

q, k [N, Hk, Dk], v [N, Hv, Dv], g, beta [N, Hv], any float dtype and strides. g <= 0; below -100,
where e^g is 0 in effect, it counts as -100: sums of infinite gates would have no differences.
Returns o [N, Hv, Dv] in v's dtype.

`DeltaCache` says what a slot keeps. With L tokens run, c = L - L % FOLD_TOKENS of them folded, its
state is e^G S_c + sum_p e^(G - G_p) k_p d_p^T over the records p of c .. L - 1, G being running
sums of g from c. The cache may hold anything, NaN included, where nothing was stored. num_records
>= FOLD_TOKENS - 1 + 2 * the widest verify row. A copy of `state[slot]` is the whole state of the
slot whenever its length is a multiple of FOLD_TOKENS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from draftmark.kernels.deferred import Deferred
from draftmark.kernels.gated_delta import reference
from draftmark.kernels.gated_delta import torch as plain
from draftmark.kernels.gated_delta.cache import FOLD_TOKENS, DeltaCache
from draftmark.kernels.gated_delta.torch import CHUNK_TOKENS
from draftmark.kernels.spans import Span

__all__ = ["CHUNK_TOKENS", "FOLD_TOKENS", "DeltaCache", "Span", "gates", "prefill", "verify"]

_GATES: Mapping[str, Callable[..., Any]] = {
    "numba": Deferred("draftmark.kernels.gated_delta.numba", "gates"),
    "reference": reference.gates,
    "torch": plain.gates,
}
_PREFILL: Mapping[str, Callable[..., Any]] = {
    "numba": Deferred("draftmark.kernels.gated_delta.chunks", "prefill"),
    "reference": reference.prefill,
    "torch": plain.prefill,
}
_VERIFY: Mapping[str, Callable[..., Any]] = {
    "numba": Deferred("draftmark.kernels.gated_delta.numba", "verify"),
    "reference": reference.verify,
    "torch": plain.verify,
}


def gates(
    a: Tensor, b: Tensor, *, decay: Tensor, dt_bias: Tensor, backend: str
) -> tuple[Tensor, Tensor]:
    """a, b [N, Hv], decay, dt_bias [Hv] -> g = -decay softplus(a + dt_bias), beta = sigmoid(b),
    both [N, Hv] in promote(a.dtype, float32)."""
    return _GATES[backend](a, b, decay, dt_bias)


def prefill(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    cache: DeltaCache,
    spans: Sequence[Span],
    backend: str,
) -> Tensor:
    """Every token belongs to one span, the spans to different slots. A span that starts at 0 finds
    no state, whatever the cache holds; another one finds that of its slot at `start`. Afterwards
    checkpoint and records are those of the span's end."""
    return _PREFILL[backend](q, k, v, g, beta, cache, spans)


def verify(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    cache: DeltaCache,
    slots: Tensor,
    lengths: Tensor,
    folds: Tensor,
    width: int,
    backend: str,
) -> Tensor:
    """Token b * width + j sits at position lengths[b] + j of slots[b]; slots, lengths, folds int64
    [B]. First the tokens lengths[b] - folds[b] .. lengths[b] - 1, accepted since the last call and
    still records, are folded as far as they fill the checkpoint's steps. The new tokens only
    become records: a next call with a smaller length overwrites those that were rejected.

    folds are at most the widest verify row. Rows of slot 0, which may be several, give undefined
    output and may leave anything in slot 0.
    """
    return _VERIFY[backend](q, k, v, g, beta, cache, slots, lengths, folds, width)
