"""Logits to tokens and log-probabilities.

The token at index p of a sequence is argmax(processed logits / T + Gumbel(seed, p)); temperature 0
is the plain argmax with ties to the lowest id, and draws no noise. Order of processing: logit_bias,
min_tokens, penalties, temperature, top_k, top_p, min_p. Candidates are ranked by logit, then by the
lowest id; top_p keeps a candidate while the mass before it is below top_p of the mass that top_k
left, and the first one always.

Backends: `reference` (one row at a time, the judge), `torch`, and `numba` (greedy rows compiled).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from draftmark.kernels.deferred import Deferred
from draftmark.kernels.sample import reference
from draftmark.kernels.sample import torch as plain
from draftmark.kernels.sample.tables import (
    FREQUENCY,
    IN_PROMPT,
    MIN_END,
    MIN_P,
    NUM_FLOATS,
    NUM_INTS,
    PRESENCE,
    REPETITION,
    SEED,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    Logprobs,
    RowFlag,
    SampleTables,
)

__all__ = [
    "FREQUENCY",
    "IN_PROMPT",
    "MIN_END",
    "MIN_P",
    "NUM_FLOATS",
    "NUM_INTS",
    "PRESENCE",
    "REPETITION",
    "SEED",
    "TEMPERATURE",
    "TOP_K",
    "TOP_P",
    "Logprobs",
    "RowFlag",
    "SampleTables",
    "is_finite",
    "logprobs",
    "sample",
    "workspace_bytes",
]

_NUMBA = "draftmark.kernels.sample.numba"
_SAMPLE: Mapping[str, Callable[..., Tensor]] = {
    "numba": Deferred(_NUMBA, "sample"),
    "reference": reference.sample,
    "torch": plain.sample,
}
_LOGPROBS: Mapping[str, Callable[..., Logprobs]] = {
    "numba": plain.logprobs,
    "reference": reference.logprobs,
    "torch": plain.logprobs,
}
_IS_FINITE: Mapping[str, Callable[..., Tensor]] = {
    "numba": Deferred(_NUMBA, "is_finite"),
    "reference": plain.is_finite,
    "torch": plain.is_finite,
}


def sample(
    logits: Tensor,
    *,
    slots: Tensor,
    position: Tensor,
    tables: SampleTables,
    flags: tuple[int, ...],
    window: Tensor | None = None,
    backend: str = "torch",
) -> Tensor:
    """`logits` [R, V] float32, float64 (or narrower, widened here; unchanged) -> tokens [R] int64.

    `slots` [R] int64 are rows of `tables`; `position` [R] int64 is the index of the sampled token,
    which is the number of tokens before it. `flags` say on the host what each row may need:
    `RANDOM` exactly when T > 0, the others at least when their parameter is not neutral. A row
    with non-finite logits gets some token of the vocabulary: ask `is_finite`. `window` [R, w] int64
    are tokens that penalties count as output beside those of `tables`, -1 for none.
    """
    return _SAMPLE[backend](
        logits, slots=slots, position=position, tables=tables, flags=flags, window=window
    )


def logprobs(logits: Tensor, *, chosen: Tensor, top: int, backend: str = "torch") -> Logprobs:
    """Log-probabilities of `chosen` [R] int64 and of the `top` likeliest, from raw `logits` [R, V].

    `top` <= V. float64 whatever the logits are.
    """
    return _LOGPROBS[backend](logits, chosen=chosen, top=top)


def is_finite(logits: Tensor, *, backend: str = "torch") -> Tensor:
    """[R, V] -> [R] bool: every logit of the row is finite."""
    return _IS_FINITE[backend](logits)


def workspace_bytes(*, rows: int, vocab_size: int) -> int:
    """Upper bound of the temporaries of one call for `rows` rows."""
    return plain.workspace_bytes(rows=rows, vocab_size=vocab_size)
