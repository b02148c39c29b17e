"""The first bad layer compiled: a row at a time, up to the scale that tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from draftmark.kernels import jit

_SCALES = 5  # the word where they begin
_WORDS_EACH = 4


def first_bad_layer(scales: Sequence[Tensor], layers: Tensor) -> Tensor:
    assert layers.dtype == torch.int32 and layers.is_contiguous() and len(layers) == len(scales)
    num_rows = len(scales[0])
    found = torch.empty(num_rows, dtype=torch.int32)
    _find(
        *(num_rows, len(scales), layers.data_ptr(), found.data_ptr()),
        *(word for scale in scales for word in jit.words_of(scale)),
        is_shared=False,
    )
    return found


@jit.Kernel
def _find(words: Any) -> None:
    """An item is a row."""
    layers, found = jit.int32s_at(words[3]), jit.int32s_at(words[4])
    row = jit.take(words)
    while row < words[1]:
        found[row] = -1
        for number in range(words[2]):
            scale = jit.read(jit.rows(words, _SCALES + _WORDS_EACH * number), row, 0)
            if not scale > 0:  # NaN is not
                found[row] = layers[number]
                break
        row = jit.take(words)
