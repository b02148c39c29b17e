"""causal_conv against its formula, over rings full of NaN."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from draftmark.kernels import causal_conv
from draftmark.kernels.backends import has_numba
from draftmark.kernels.causal_conv import Span

CHANNELS = 5
DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))


@pytest.fixture(params=("reference", "torch"))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def formula(x: Tensor, weight: Tensor) -> Tensor:
    """A whole sequence [N, C] in float64, by torch's own convolution."""
    taps = weight.shape[1]
    padded = torch.nn.functional.pad(x.double().t()[None], (taps - 1, 0))
    mixed = torch.nn.functional.conv1d(padded, weight.double()[:, None], groups=x.shape[1])
    return torch.nn.functional.silu(mixed[0].t())


def make(num_tokens: int, *, taps: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(num_tokens, CHANNELS, generator=random, dtype=torch.float64)
    weight = torch.randn(CHANNELS, taps, generator=random, dtype=torch.float64)
    return x, weight


def make_ring(slots: int, *, depth: int, like: Tensor) -> Tensor:
    return torch.full((slots, depth, CHANNELS), torch.nan, dtype=like.dtype, device=like.device)


def prefill(x: Tensor, weight: Tensor, ring: Tensor, backend: str, *spans: Span) -> Tensor:
    whole = Span(offset=0, count=len(x), start=0, slot=1)
    return causal_conv.prefill(
        x, weight=weight, ring=ring, spans=spans or (whole,), backend=backend
    )


@pytest.fixture
def compiled() -> str:
    """Float32 only: held to what float32 gives."""
    if not has_numba(torch.device("cpu"), torch.float32):
        pytest.skip("numba is not installed")
    return "numba"


def same(found: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 4, 5, 70])
@pytest.mark.parametrize("taps", [1, 2, 4])
def test_prefill_is_the_formula(backend: str, num_tokens: int, taps: int) -> None:
    x, weight = make(num_tokens, taps=taps)
    ring = make_ring(3, depth=taps, like=x)
    same(prefill(x, weight, ring, backend), formula(x, weight))
    assert ring[0].isnan().all() and ring[2].isnan().all()


def test_a_prompt_may_be_cut_anywhere(backend: str) -> None:
    """Shallow and deep rings, parts shorter than the taps."""
    x, weight = make(70)
    want = formula(x, weight)
    for depth in (4, 7):
        for cut in range(1, 70, 1 if backend == "torch" else 5):
            ring = make_ring(2, depth=depth, like=x)
            parts = [(0, cut), (cut, min(cut + 2, 69)), (min(cut + 2, 69), 70)]
            outs = [
                prefill(
                    x[first:last],
                    weight,
                    ring,
                    backend,
                    Span(offset=0, count=last - first, start=first, slot=1),
                )
                for first, last in parts
                if last > first
            ]
            same(torch.cat(outs), want)


def test_spans_of_several_slots(backend: str) -> None:
    x, weight = make(40)
    other, _ = make(40, seed=1)
    ring = make_ring(4, depth=6, like=x)
    prefill(other[:9], weight, ring, backend, Span(offset=0, count=9, start=0, slot=3))
    spans = (
        Span(offset=0, count=12, start=0, slot=1),
        Span(offset=12, count=2, start=9, slot=3),
        Span(offset=14, count=1, start=0, slot=2),
    )
    out = prefill(torch.cat((x[:12], other[9:11], x[:1])), weight, ring, backend, *spans)
    same(out[:12], formula(x, weight)[:12])
    same(out[12:14], formula(other, weight)[9:11])
    same(out[14:], formula(x, weight)[:1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_channels", [5, 513])
def test_compiled_spans_are_those_of_the_reference(
    compiled: str, num_channels: int, dtype: torch.dtype
) -> None:
    """Of all lengths, new ones and ones that go on; what is not finite stays in its span."""
    torch.manual_seed(0)
    spans, offset = [], 0
    for slot, (start, count) in enumerate(
        [(0, 1), (0, 2), (0, 70), (9, 1), (3, 4), (1, 9), (2, 3)]
    ):
        spans.append(Span(offset=offset, count=count, start=start, slot=slot))
        offset += count
    x = torch.randn(offset, num_channels + 1).to(dtype)[:, 1:]
    x[20, 2] = torch.nan
    weight, ring = torch.randn(num_channels, 4), torch.randn(8, 5, num_channels).to(dtype)
    rings = [ring.clone(), ring.clone()]
    want = prefill(x, weight, rings[0], "reference", *spans)
    found = prefill(x, weight, rings[1], compiled, *spans)
    assert found.dtype == dtype and want.isnan().any()
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(found, want, rtol=step + 2e-6, atol=5e-6, equal_nan=True)
    for span in spans:  # places that no later token reads may differ
        places = torch.arange(max(span.end - 3, 0), span.end) % 5
        torch.testing.assert_close(
            rings[1][span.slot, places], rings[0][span.slot, places], rtol=0, atol=0, equal_nan=True
        )
    assert torch.equal(rings[1][7], ring[7])


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("first", [1, 2, 20])
@pytest.mark.parametrize("device", DEVICES)
def test_rejected_tokens_leave_no_trace(backend: str, width: int, first: int, device: str) -> None:
    for out, want in drafted(backend, width, first, device, torch.float64):
        same(out, want)


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("first", [1, 2, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rejected_tokens_leave_no_trace_in_compiled_rows(
    compiled: str, width: int, first: int, dtype: torch.dtype
) -> None:
    for out, want in drafted(compiled, width, first, "cpu", dtype):
        step = torch.finfo(dtype).eps
        torch.testing.assert_close(out.double(), want, rtol=step + 2e-6, atol=5e-6)


def drafted(
    backend: str, width: int, first: int, device: str, dtype: torch.dtype
) -> list[tuple[Tensor, Tensor]]:
    """Two sequences and two padding rows full of NaN, in the smallest ring that does."""
    rng = random.Random(width)
    sequences = [make(60, seed=seed)[0].to(dtype) for seed in range(2)]
    weight = make(1)[1].to(dtype)
    ring = make_ring(4, depth=3 + width, like=sequences[0].to(device))
    lengths = [first, first + 3]
    outs = []
    for i, (x, length) in enumerate(zip(sequences, lengths, strict=True)):
        span = Span(offset=0, count=length, start=0, slot=i + 1)
        outs.append([prefill(x[:length].to(device), weight.to(device), ring, backend, span)])
    blank = torch.full((width, CHANNELS), torch.nan, dtype=dtype)
    while max(lengths) + width <= 60:
        accepted = [rng.randint(1, width) for _ in sequences]
        rows = [blank]
        for x, length, count in zip(sequences, lengths, accepted, strict=True):
            rows += [x[length : length + count], 100 + x[: width - count]]
        out = causal_conv.verify(
            torch.cat((*rows, blank)).to(device),
            weight=weight.to(device),
            ring=ring,
            slots=torch.tensor([0, 1, 2, 0], device=device),
            lengths=torch.tensor([0, *lengths, 1], device=device),
            width=width,
            backend=backend,
        ).view(4, width, CHANNELS)
        for i, count in enumerate(accepted):
            outs[i].append(out[i + 1, :count])
            lengths[i] += count
    assert ring[3].isnan().all()
    return [
        (torch.cat(parts).cpu(), formula(x[:length], weight))
        for x, parts, length in zip(sequences, outs, lengths, strict=True)
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_wide_and_rounded_once(backend: str, dtype: torch.dtype) -> None:
    """Weights wider than the inputs and laid out by tap; x a slice of a merged product."""
    x, weight = make(30)
    merged = torch.cat((x, x), dim=1).to(dtype)
    part = merged[:, CHANNELS:]
    by_tap = weight.float().t().contiguous().t()
    out = prefill(part, by_tap, make_ring(2, depth=4, like=part), backend)
    want = formula(part, by_tap)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), want, rtol=torch.finfo(dtype).eps + 2e-6, atol=2e-6)
    ring = make_ring(2, depth=4, like=part)
    prefill(part[:8], by_tap, ring, backend)
    step = causal_conv.verify(
        part[8:9],
        weight=by_tap,
        ring=ring,
        slots=torch.tensor([1]),
        lengths=torch.tensor([8]),
        width=1,
        backend=backend,
    )
    assert torch.equal(step, out[8:9]) and step.dtype == dtype


@pytest.mark.parametrize("num_channels", [1, 511, 513, 1100])
@pytest.mark.parametrize("by_tap", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_rows_of_any_width(
    compiled: str, num_channels: int, by_tap: bool, dtype: torch.dtype
) -> None:
    """Against the reference: rows that begin, that wrap, and what is not finite only where it is,
    inputs and weights being slices."""
    torch.manual_seed(num_channels)
    x, ring = torch.randn(9, num_channels + 1), torch.randn(4, 6, num_channels)
    weight = torch.randn(num_channels, 3)
    x[4, 0], ring[2, 4, -1] = torch.nan, torch.inf
    x, ring = x.to(dtype)[:, :-1], ring.to(dtype)
    weight = weight.t().contiguous().t() if by_tap else weight.to(dtype)
    found = []
    for backend in ("reference", compiled):
        kept = ring.clone()
        y = causal_conv.verify(
            x,
            weight=weight,
            ring=kept,
            slots=torch.tensor([1, 3, 2]),
            lengths=torch.tensor([0, 1, 17]),
            width=3,
            backend=backend,
        )
        assert y.dtype == dtype
        found.append((y, kept))
    (want, want_ring), (got, got_ring) = found
    rtol = 2 * torch.finfo(dtype).eps + 2e-6
    torch.testing.assert_close(got, want, rtol=rtol, atol=2e-6, equal_nan=True)
    torch.testing.assert_close(got_ring, want_ring, rtol=0, atol=0, equal_nan=True)


def test_large_inputs_of_compiled_rows_saturate(compiled: str) -> None:
    """silu where e^-x overflows, and where it is nothing."""
    x = torch.tensor([[-1000.0, -90.0, 0.0, 90.0, 1000.0]])
    y = causal_conv.verify(
        x,
        weight=torch.ones(5, 1),
        ring=make_ring(2, depth=1, like=x),
        slots=torch.tensor([1]),
        lengths=torch.tensor([7]),
        width=1,
        backend=compiled,
    )
    torch.testing.assert_close(y, torch.nn.functional.silu(x), rtol=1e-6, atol=1e-30)
