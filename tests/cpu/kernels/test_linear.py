"""The products of the linear op against exact ones."""

from __future__ import annotations

import pytest
import torch

from draftmark.kernels import linear
from draftmark.kernels.backends import available

CPU = torch.device("cpu")
BACKENDS = ("reference", "torch", "onednn")


def usable(backend: str, dtype: torch.dtype) -> str:
    if backend not in available("linear", device=CPU, dtype=dtype):
        pytest.skip(f"this CPU has no {backend} backend for {dtype}")
    return backend


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_heads_product_is_not_rounded_to_bf16(backend: str, is_kept: bool) -> None:
    usable(backend, torch.bfloat16)
    torch.manual_seed(0)
    x = torch.randn(3, 96).bfloat16()
    weight = torch.randn(501, 96).bfloat16()
    exact = x.double() @ weight.double().T
    prepared = linear.prepare_wide(weight, is_kept=is_kept, backend=backend)
    wide = linear.wide_linear(x, prepared, backend=backend)
    assert wide.dtype == torch.float32
    largest = exact.abs().max()
    best = exact.topk(linear.WIDE_CANDIDATES // 2).indices
    difference = (wide - exact).abs()
    assert difference.gather(1, best).max() < 2**-15 * largest
    rounding = (exact.bfloat16() - exact).abs().max()
    assert rounding > 2**-10 * largest
    assert difference.max() <= rounding * 1.01


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_bf16_logits_are_told_apart(backend: str) -> None:
    """Two tokens that differ by less than a bf16 step: the better one has the higher id."""
    usable(backend, torch.bfloat16)
    x = torch.full((1, 64), 0.5).bfloat16()
    weight = torch.zeros(40, 64).bfloat16()
    weight[7] = weight[31] = 0.75
    weight[31, 0] += 2**-7
    assert (x.double() @ weight.double().T).bfloat16()[0, [7, 31]].unique().numel() == 1
    prepared = linear.prepare_wide(weight, is_kept=True, backend=backend)
    assert linear.wide_linear(x, prepared, backend=backend).argmax() == 31
