"""norm, sentinel, kv_write and silu_mul: each backend against the formula."""

from __future__ import annotations

import math

import pytest
import torch

from draftmark.kernels import kv_write, norm, sentinel, silu_mul
from draftmark.kernels.backends import has_numba

BACKENDS = ("reference", "torch")
DTYPES = (torch.float64, torch.float32, torch.bfloat16)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- norm -----------------------------------------------------------------------------------------


@pytest.fixture(params=[*BACKENDS, "numba"])
def op_backend(request: pytest.FixtureRequest) -> str:
    """With one that takes float32 and bfloat16 on a CPU."""
    given = request.node.callspec.params
    dtypes = [x for x in given.values() if isinstance(x, torch.dtype)]
    is_able = all(
        has_numba(torch.device(given.get("device", "cpu")), dtype)
        for dtype in (*dtypes, torch.float32)
    )
    if request.param == "numba" and not is_able:
        pytest.skip(f"no compiled kernel for {dtypes} here")
    return str(request.param)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 16), (5, 2, 24), (1, 576)])
def test_rms_norm(op_backend: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = (torch.randn(shape) * torch.logspace(-3, 3, shape[0]).view(-1, *[1] * (len(shape) - 1))).to(
        dtype
    )
    weight = torch.randn(shape[-1]).to(dtype)
    prepared = norm.prepare(weight, backend=op_backend)
    y, scale = norm.rms_norm(x, prepared, eps=1e-5, backend=op_backend)
    exact = (x.double().square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    assert y.shape == x.shape and y.dtype == dtype
    assert scale.shape == (*shape[:-1], 1) and scale.dtype in (torch.float32, dtype)
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(
        y.double(), x.double() * exact * weight.double(), rtol=2 * step, atol=1e-9
    )
    torch.testing.assert_close(
        scale.double(), exact, rtol=2 * torch.finfo(scale.dtype).eps + 1e-6, atol=0
    )


def test_rms_norm_of_a_part_of_a_wider_tensor(op_backend: str) -> None:
    """As q and k are normed: heads of a merged product."""
    torch.manual_seed(1)
    qkv = torch.randn(4, 9, 16)
    prepared = norm.prepare(torch.ones(16), backend=op_backend)
    part, _ = norm.rms_norm(qkv[:, 2:5], prepared, eps=1e-6, backend=op_backend)
    copied, _ = norm.rms_norm(qkv[:, 2:5].contiguous(), prepared, eps=1e-6, backend=op_backend)
    assert torch.equal(part, copied)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_scale_is_above_zero_exactly_for_finite_rows(op_backend: str, bad: float) -> None:
    x = torch.ones(4, 8)
    x[2, 5] = bad
    prepared = norm.prepare(torch.ones(8), backend=op_backend)
    _, scale = norm.rms_norm(x, prepared, eps=1e-5, backend=op_backend)
    assert (scale[:, 0] > 0).tolist() == [True, True, False, True]


def test_a_row_whose_squares_overflow_counts_as_bad(op_backend: str) -> None:
    x = torch.tensor([[1e30, 1.0], [1e10, 1.0]])
    prepared = norm.prepare(torch.ones(2), backend=op_backend)
    _, scale = norm.rms_norm(x, prepared, eps=1e-5, backend=op_backend)
    assert (scale[:, 0] > 0).tolist() == [False, True]


DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weight_dtype", [torch.float32, None], ids=["wide", "same"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_wider_weight_is_not_rounded(
    op_backend: str, dtype: torch.dtype, weight_dtype: torch.dtype | None, device: str
) -> None:
    """1 + w of a small w, as a zero-centred norm has it: y is rounded once, at the end."""
    torch.manual_seed(7)
    x = torch.randn(40, 3, 48).to(dtype).to(device)
    weight = (1 + 0.003 * torch.randn(48)).to(weight_dtype or dtype).to(device)
    prepared = norm.prepare(weight, backend=op_backend)
    y, scale = norm.rms_norm(x[:, :2], prepared, eps=1e-6, backend=op_backend)
    exact = x[:, :2].double() * (x[:, :2].double().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    exact = exact * weight.double()
    assert y.dtype == dtype and scale.shape == (40, 2, 1)
    # Half a step, and what float32 sums add to it.
    rtol = 0.5 * torch.finfo(dtype).eps + 1e-6
    torch.testing.assert_close(y.double(), exact, rtol=rtol, atol=1e-7)
    x[3, 1, 5] = torch.nan
    _, scale = norm.rms_norm(x[:, :2], prepared, eps=1e-6, backend=op_backend)
    assert (scale[..., 0] > 0).sum() == 79 and not scale[3, 1] > 0


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
@pytest.mark.parametrize("gate_dtype", DTYPES)
@pytest.mark.parametrize("device", DEVICES)
def test_gated_rms_norm(
    op_backend: str, activation: norm.GateActivation, gate_dtype: torch.dtype, device: str
) -> None:
    """The norm first, rounded to the gate's dtype, then the gate in the wide one."""
    torch.manual_seed(8)
    x = torch.randn(6, 4, 24, dtype=torch.promote_types(gate_dtype, torch.float32), device=device)
    x *= 1e-3  # so that eps counts
    gate = (3 * torch.randn(6, 4, 24, device=device)).to(gate_dtype)
    weight = torch.randn(24, device=device)
    y = norm.gated_rms_norm(x, gate, weight, eps=1e-6, activation=activation, backend=op_backend)
    wide = x.double()
    normed = wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.double()
    opening = torch.sigmoid(gate.double())
    if activation == "silu":
        opening = opening * gate.double()
    step, wide_step = torch.finfo(gate_dtype).eps, torch.finfo(x.dtype).eps
    assert y.dtype == gate_dtype and y.shape == x.shape
    rtol = 1.1 * step + 10 * wide_step
    torch.testing.assert_close(y.double(), normed * opening, rtol=rtol, atol=wide_step)
    if gate_dtype == torch.bfloat16:
        rounded = (normed.to(torch.bfloat16).double() * opening).to(torch.bfloat16)
        assert (y == rounded).float().mean() > 0.98


# -- sentinel -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_bad_scale_names_the_layer(op_backend: str, dtype: torch.dtype) -> None:
    """Rows: clean, bad from the second scale on, bad throughout, bad at the end, zero."""
    scales = [
        torch.tensor([[1.0], [0.5], [math.nan], [1.0], [1.0]]),
        torch.tensor([[2.0], [math.nan], [math.nan], [3.0], [0.0]]),
        torch.tensor([[0.1], [math.nan], [math.nan], [math.nan], [1.0]]),
    ]
    layers = torch.tensor([4, 4, 9], dtype=torch.int32)
    scales = [scale.to(dtype) for scale in scales]
    found = sentinel.first_bad_layer(scales, layers=layers, backend=op_backend)
    assert found.dtype == torch.int32
    assert found.tolist() == [-1, 4, 4, 9, 4]


# -- kv_write -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool_dtype", [torch.float64, torch.bfloat16])
def test_each_token_goes_to_its_place_and_nowhere_else(
    backend: str, pool_dtype: torch.dtype
) -> None:
    torch.manual_seed(3)
    pool = torch.full((5, 4, 6, 8), torch.nan, dtype=pool_dtype)
    qkv = torch.randn(3, 10, 8, dtype=torch.float64)
    store = torch.tensor([4 * 4 + 3, 1 * 4 + 0, 2 * 4 + 2])
    kv_write.kv_write(pool, kv=qkv[:, 4:], store=store, backend=backend)
    for n, (page, slot) in enumerate([(4, 3), (1, 0), (2, 2)]):
        assert torch.equal(pool[page, slot], qkv[n, 4:].to(pool_dtype))
        pool[page, slot] = torch.nan
    assert pool.isnan().all()


def test_a_place_outside_the_pool_is_an_error(backend: str) -> None:
    pool, kv = torch.zeros(2, 4, 2, 8), torch.zeros(1, 2, 8)
    with pytest.raises(IndexError):
        kv_write.kv_write(pool, kv=kv, store=torch.tensor([8]), backend=backend)


# -- silu_mul -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_mul(backend: str, dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    x = (4 * torch.randn(5, 24)).to(dtype)
    before = x.clone()
    y = silu_mul.silu_mul(x, backend=backend)
    gate, up = x.double().chunk(2, dim=-1)
    step = torch.finfo(dtype).eps
    want = gate * gate.sigmoid() * up
    torch.testing.assert_close(y.double(), want, rtol=2 * step, atol=1e-12)
    assert y.dtype == dtype and torch.equal(x, before)
