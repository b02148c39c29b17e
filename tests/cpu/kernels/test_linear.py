"""The products of the linear op against exact ones."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from draftmark.kernels import linear
from draftmark.kernels.backends import available

CPU = torch.device("cpu")
BACKENDS = ("reference", "torch", "onednn", "numba")


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


def most_head_rows() -> int:
    """That the compiled kernels take of a head."""
    from draftmark.kernels.linear import numba

    return numba.most_head_rows()


DTYPES = [torch.float64, torch.float32, torch.bfloat16]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 17])
def test_linear_with_and_without_bias_and_residual(
    backend: str, dtype: torch.dtype, rows: int
) -> None:
    usable(backend, dtype)
    torch.manual_seed(1)
    wide = torch.randn(rows, 80).to(dtype)
    x = wide[:, :48]  # a row slice, as the norm hands it over
    weight, bias = torch.randn(40, 48).to(dtype), torch.randn(40).to(dtype)
    residual = torch.randn(rows, 40).to(dtype)
    prepared = linear.prepare(weight, backend=backend)
    product = x.double() @ weight.double().T
    close = {"rtol": 2 * torch.finfo(dtype).eps, "atol": 64 * torch.finfo(dtype).eps}
    before = residual.clone()
    for b in (None, bias):
        for r in (None, residual):
            y = linear.linear(x, prepared, b, residual=r, backend=backend)
            want = product + (0 if b is None else b.double()) + (0 if r is None else r.double())
            assert y.dtype == dtype and y.is_contiguous()
            torch.testing.assert_close(y.double(), want, **close)
    assert torch.equal(residual, before)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_bias", [False, True])
def test_gated_linear(backend: str, dtype: torch.dtype, has_bias: bool) -> None:
    usable(backend, dtype)
    torch.manual_seed(2)
    x = torch.randn(5, 48).to(dtype)
    weight = (0.3 * torch.randn(64, 48)).to(dtype)
    bias = torch.randn(64).to(dtype) if has_bias else None
    y = linear.gated_linear(x, linear.prepare_gated(weight, bias, backend=backend), backend=backend)
    both = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    gate, up = both.chunk(2, dim=1)
    want = gate * gate.sigmoid() * up
    assert y.dtype == dtype and y.is_contiguous()
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(y.double(), want, rtol=4 * step, atol=64 * step)


def test_a_prepared_weight_says_what_it_holds() -> None:
    weight = torch.randn(64, 32).bfloat16()
    for backend in BACKENDS:
        usable(backend, torch.bfloat16)
        prepared = linear.prepare(weight, backend=backend)
        assert linear.stored_bytes(prepared) == weight.nbytes
        assert (prepared is weight) != linear.is_packing(backend)


ROWS = (0, 1, 2, 3, 4, 5, 16, 17, 32, 40, 64, 65)


@pytest.mark.parametrize(("num_out", "num_in"), [(128, 96), (88, 72)])
@pytest.mark.parametrize("rows", ROWS)
def test_strips_give_what_the_weight_does(rows: int, num_out: int, num_in: int) -> None:
    """Rows below and above what each kernel takes, of a row slice, through every ending; of whole
    strips, and of strips that are filled up."""
    usable("numba", torch.bfloat16)
    torch.manual_seed(rows)
    x = torch.randn(rows, num_in + 8).bfloat16()[:, :num_in]
    weight, bias = torch.randn(num_out, num_in).bfloat16() / 8, torch.randn(num_out).bfloat16()
    residual = torch.randn(rows, num_out + 8).bfloat16()[:, :num_out]
    prepared = linear.prepare(weight, backend="numba")
    assert prepared.address != 0
    product = x.double() @ weight.double().T
    step = torch.finfo(torch.bfloat16).eps
    for b in (None, bias):
        added = product if b is None else product + b.double()
        for r in (None, residual):
            y = linear.linear(x, prepared, b, residual=r, backend="numba")
            want = added if r is None else added + r.double()
            torch.testing.assert_close(y.double(), want, rtol=step, atol=step)
        halves = linear.prepare_gated(weight, b, backend="numba")
        gate, up = added.chunk(2, dim=1)
        y = linear.gated_linear(x, halves, backend="numba")
        want = gate * gate.sigmoid() * up
        torch.testing.assert_close(y.double(), want, rtol=2 * step, atol=2 * step)
    kept = linear.prepare_wide(weight, is_kept=True, backend="numba")
    y = linear.wide_linear(x, kept, backend="numba")
    assert y.dtype == torch.float32
    if 0 < rows <= most_head_rows():
        torch.testing.assert_close(y.double(), product, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("num_out", "num_in"), [(2, 72), (255, 72), (513, 64), (32, 64)])
@pytest.mark.parametrize("rows", ROWS)
def test_a_heads_plain_weight_is_read_as_it_is(rows: int, num_out: int, num_in: int) -> None:
    """Blocks of outputs with every ending; of more rows than a kernel takes only the largest logits
    are exact."""
    usable("numba", torch.bfloat16)
    torch.manual_seed(rows)
    x = torch.randn(rows, num_in + 8).bfloat16()[:, :num_in]
    weight = torch.randn(num_out, num_in).bfloat16() / 8
    plain = linear.prepare_wide(weight, is_kept=False, backend="numba")
    y = linear.wide_linear(x, plain, backend="numba")
    assert y.dtype == torch.float32 and y.shape == (rows, num_out)
    product = x.double() @ weight.double().T
    most = most_head_rows() if num_out >= 32 and num_in % 32 == 0 else 4
    error = 1e-5 if rows <= most else 2**-7
    torch.testing.assert_close(y.double(), product, rtol=error, atol=error)


@pytest.mark.parametrize("others", [0, 15, 35])
def test_what_is_not_finite_comes_through_strips_in_its_row(others: int) -> None:
    usable("numba", torch.bfloat16)
    weight = torch.ones(64, 32).bfloat16()
    weight[40, 3] = math.inf
    prepared = linear.prepare(weight, backend="numba")
    x = torch.ones(3 + others, 32).bfloat16()
    x[1, 5], x[2, 3] = math.nan, 0.0
    y = linear.linear(x, prepared, backend="numba")
    assert y[0, 40] == math.inf and (y[0, :40] == 32).all()
    assert y[1].isnan().all()
    assert y[2, 40].isnan() and (y[2, :40] == 31).all()
    assert (y[3:, 40] == math.inf).all() and (y[3:, :40] == 32).all()


def test_a_weight_without_strips_is_onednns() -> None:
    usable("numba", torch.bfloat16)
    weight = torch.randn(48, 40).bfloat16()
    prepared = replace(linear.prepare(weight, backend="numba"), address=0)
    x = torch.randn(2, 40).bfloat16()
    packed = linear.prepare(weight, backend="onednn")
    want = linear.linear(x, packed, backend="onednn")
    assert torch.equal(linear.linear(x, prepared, backend="numba"), want)
