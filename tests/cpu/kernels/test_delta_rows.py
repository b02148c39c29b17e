"""delta_rows: its backends against the reference, over several steps with rejected tokens."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from draftmark.kernels import delta_rows
from draftmark.kernels.backends import available
from draftmark.kernels.delta_rows import DeltaWeights
from draftmark.kernels.gated_delta import FOLD_TOKENS, DeltaCache
from draftmark.kernels.norm import GateActivation

KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, TAPS = 2, 6, 20, 12, 4
CHANNELS = 2 * KEY_HEADS * KEY_DIM + VALUE_HEADS * VALUE_DIM
WIDTH_IN = CHANNELS + VALUE_HEADS * VALUE_DIM + 2 * VALUE_HEADS
STEPS = 40


def usable(backend: str, dtype: torch.dtype) -> None:
    if backend not in available("delta_rows", device=torch.device("cpu"), dtype=dtype):
        pytest.skip(f"there is no {backend} backend for {dtype}")


def make_weights(dtype: torch.dtype, activation: GateActivation = "silu") -> DeltaWeights:
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    wide = torch.promote_types(dtype, torch.float32)
    return DeltaWeights(
        taps=normal(TAPS, CHANNELS).to(wide).t(),
        decay=normal(VALUE_HEADS).exp().to(wide),
        dt_bias=normal(VALUE_HEADS).to(wide),
        norm=normal(VALUE_DIM).to(dtype),
        eps=1e-6,
        activation=activation,
    )


def make_state(dtype: torch.dtype, *, slots: int, width: int) -> tuple[Tensor, DeltaCache]:
    """Nothing stored yet: NaN, but for states, which rows that start from nothing read."""
    wide, records = torch.promote_types(dtype, torch.float32), FOLD_TOKENS - 1 + 2 * width
    shapes = ((records, KEY_HEADS, KEY_DIM), (records, VALUE_HEADS, VALUE_DIM))
    keys, deltas = (torch.full((slots, *shape), torch.nan, dtype=wide) for shape in shapes)
    ring = torch.full((slots, TAPS - 1 + width, CHANNELS), torch.nan, dtype=dtype)
    return ring, DeltaCache(
        state=torch.zeros(slots, VALUE_HEADS, KEY_DIM, VALUE_DIM, dtype=wide),
        keys=keys,
        deltas=deltas,
        gates=torch.full((slots, records, VALUE_HEADS), torch.nan, dtype=wide),
    )


def run(
    backend: str, weights: DeltaWeights, *, width: int, given: torch.dtype, dtype: torch.dtype
) -> tuple[Tensor, Tensor, DeltaCache]:
    """Three sequences of which each step accepts some tokens, and a padding row of NaN: outputs
    of accepted tokens [n, Hv Dv], and what is kept in the end. Inputs are rounded to `given`."""
    rng = random.Random(width)
    generator = torch.Generator().manual_seed(width)
    ring, cache = make_state(dtype, slots=4, width=width)
    lengths, folds = [0, 0, 0, 0], [0, 0, 0, 0]
    outs = []
    for _ in range(STEPS):
        x = torch.randn(4 * width, WIDTH_IN + 3, generator=generator).to(given).to(dtype)
        x[:width] = torch.nan
        y = delta_rows.verify(
            x[:, :WIDTH_IN],
            weights=weights,
            ring=ring,
            cache=cache,
            slots=torch.arange(4),
            lengths=torch.tensor(lengths),
            folds=torch.tensor(folds),
            width=width,
            backend=backend,
        )
        assert y.dtype == dtype and y.is_contiguous()
        assert y.shape == (4 * width, VALUE_HEADS * VALUE_DIM)
        for row in range(1, 4):
            folds[row] = rng.randint(1, width)
            lengths[row] += folds[row]
            outs.append(y[row * width : row * width + folds[row]])
    return torch.cat(outs), ring, cache


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize(
    ("backend", "dtype", "close"),
    [
        ("torch", torch.float64, 1e-11),
        ("torch", torch.float32, 2e-4),
        ("numba", torch.float32, 2e-4),
        ("torch", torch.bfloat16, 5e-2),
        ("numba", torch.bfloat16, 5e-2),
    ],
)
def test_backends_give_what_the_reference_does(
    backend: str, dtype: torch.dtype, close: float, width: int, activation: GateActivation
) -> None:
    """The judge is in float64, on the same inputs and weights. `close` is to the largest value: a
    small o is normed, so that what it was rounded by grows."""
    usable(backend, dtype)
    own = make_weights(dtype, activation)
    wide = replace(
        own,
        taps=own.taps.double(),
        decay=own.decay.double(),
        dt_bias=own.dt_bias.double(),
        norm=own.norm.double(),
    )
    want, want_ring, _ = run("reference", wide, width=width, given=dtype, dtype=torch.float64)
    found, ring, cache = run(backend, own, width=width, given=dtype, dtype=dtype)
    assert found.isfinite().all()
    assert (found.double() - want).abs().max() <= close * want.abs().max()
    assert torch.equal(ring[1:].double().nan_to_num(7.0), want_ring[1:].nan_to_num(7.0))
    assert cache.state[1:].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_does_not_matter_who_takes_an_item(dtype: torch.dtype) -> None:
    usable("numba", dtype)
    weights, threads, found = make_weights(dtype), torch.get_num_threads(), []
    for number in (1, 2):
        torch.set_num_threads(number)
        found.append(run("numba", weights, width=3, given=dtype, dtype=dtype)[0])
    torch.set_num_threads(threads)
    assert torch.equal(*found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_it_is_its_parts(dtype: torch.dtype) -> None:
    """Rounded at the same places as the parts one by one."""
    usable("numba", dtype)
    weights = make_weights(dtype)
    whole, parts = (
        run(backend, weights, width=2, given=dtype, dtype=dtype)[0]
        for backend in ("numba", "torch")
    )
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(whole, parts, rtol=8 * step, atol=32 * step)
