"""sentinel: where did a token's row first become non-finite?

`scales` are the [N, 1] scales that `kernels.norm` gave along a stage, in the order they were
taken, M of them: two a layer (its input, its middle), the last of the output. Once a row of the
residual stream is non-finite it stays so, hence the first scale that is not above zero tells.
`layers[j]` is the layer to blame for scale j. Returns [N] int32, -1 for a clean row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from draftmark.kernels.deferred import Deferred
from draftmark.kernels.sentinel import reference
from draftmark.kernels.sentinel import torch as plain

_BACKENDS: Mapping[str, Callable[..., Tensor]] = {
    "numba": Deferred("draftmark.kernels.sentinel.numba", "first_bad_layer"),
    "reference": reference.first_bad_layer,
    "torch": plain.first_bad_layer,
}


def first_bad_layer(scales: Sequence[Tensor], *, layers: Tensor, backend: str) -> Tensor:
    """`layers` [M] int32 on the scales' device."""
    return _BACKENDS[backend](scales, layers)
