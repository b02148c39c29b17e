"""attention_rows by its parts in plain torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from draftmark.kernels.attention import torch as attention
from draftmark.kernels.attention_rows import composed
from draftmark.kernels.attention_rows.layout import RowsLayout
from draftmark.kernels.kv_write import torch as kv_write
from draftmark.kernels.norm import torch as norm
from draftmark.kernels.rope import torch as rope


def plan(layout: RowsLayout, dtype: torch.dtype) -> composed.Plan:
    return composed.plan(attention, layout, dtype)


def verify(*inputs: Any) -> Tensor:
    return composed.verify((norm, rope, kv_write), *inputs)
