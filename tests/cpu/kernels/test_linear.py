"""The products of the linear op against exact ones."""

from __future__ import annotations

import pytest
import torch

from draftmark.kernels import linear
from draftmark.kernels.backends import available


@pytest.mark.parametrize("backend", ["reference", "torch", "onednn"])
def test_the_heads_product_is_not_rounded_to_bf16(backend: str) -> None:
    usable = available("linear", device=torch.device("cpu"), dtype=torch.bfloat16)
    if backend not in usable:
        pytest.skip(f"this CPU has no {backend} backend for bfloat16")
    torch.manual_seed(0)
    x = torch.randn(3, 96).bfloat16()
    weight = torch.randn(501, 96).bfloat16()
    exact = x.double() @ weight.double().T
    wide = linear.wide_linear(x, linear.prepare(weight, backend=backend), backend=backend)
    assert wide.dtype == torch.float32
    largest = exact.abs().max()
    assert (wide - exact).abs().max() < 2**-15 * largest
    assert (exact.bfloat16() - exact).abs().max() > 2**-10 * largest  # what rounding would do
