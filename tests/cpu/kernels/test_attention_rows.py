"""attention_rows: its backends against the reference, over steps with rejected tokens."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from draftmark.kernels import attention_rows, norm
from draftmark.kernels.attention import AttentionShape
from draftmark.kernels.attention_rows import RowsLayout, RowWeights
from draftmark.kernels.backends import available
from draftmark.kernels.rope import RopeScaling, RopeTable, build_table

PAGE, CONTEXT, ROWS = 16, 160, 5
COLUMNS = CONTEXT // PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    heads: int
    kv_heads: int
    size: int
    rotary: int
    has_norm: bool = True
    has_gate: bool = True

    @property
    def shape(self) -> AttentionShape:
        return AttentionShape(
            num_heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.size,
            page_tokens=PAGE,
            scale=self.size**-0.5,
        )

    @property
    def num_inputs(self) -> int:
        heads = self.heads + 2 * self.kv_heads + (self.heads if self.has_gate else 0)
        return heads * self.size


CASES = [
    Case(heads=2, kv_heads=1, size=64, rotary=16),
    Case(heads=6, kv_heads=2, size=20, rotary=20, has_norm=False),
    Case(heads=3, kv_heads=3, size=32, rotary=32, has_gate=False),
    Case(heads=9, kv_heads=1, size=12, rotary=4, has_norm=False, has_gate=False),
]


def usable(backend: str, dtype: torch.dtype) -> None:
    if backend not in available("attention_rows", device=torch.device("cpu"), dtype=dtype):
        pytest.skip(f"there is no {backend} backend for {dtype}")


def make_weights(case: Case, backend: str, given: torch.dtype, dtype: torch.dtype) -> RowWeights:
    generator = torch.Generator().manual_seed(3)

    def weight() -> Tensor | None:
        values = 1 + 0.3 * torch.randn(case.size, generator=generator)
        return norm.prepare(values.to(given).to(dtype), backend=backend) if case.has_norm else None

    return RowWeights(q_norm=weight(), k_norm=weight(), eps=1e-6, has_gate=case.has_gate)


def make_table(case: Case, dtype: torch.dtype) -> RopeTable:
    return build_table(
        CONTEXT,
        dim=case.rotary,
        theta=100.0,
        scaling=RopeScaling(),
        dtype=torch.promote_types(dtype, torch.float32),
        device=torch.device("cpu"),
    )


def run(
    case: Case,
    backend: str,
    *,
    width: int,
    given: torch.dtype,
    dtype: torch.dtype,
    pool_dtype: torch.dtype | None = None,
    begins_late: bool = False,
    shift: int = 0,
) -> tuple[Tensor, Tensor]:
    """Rows of which each step accepts some tokens, up to their ends, and an inactive one: what the
    stored tokens gave [n, H D], and the pool. Inputs are rounded to `given`; positions are `shift`
    less than the places in the pages."""
    rng, generator = random.Random(width), torch.Generator().manual_seed(width)
    pool = torch.full(
        (ROWS * COLUMNS + 1, PAGE, 2 * case.kv_heads, case.size),
        torch.nan,
        dtype=pool_dtype or dtype,
    )
    pages = 1 + torch.randperm(ROWS * COLUMNS, generator=generator).view(ROWS, COLUMNS)
    weights, table = make_weights(case, backend, given, dtype), make_table(case, dtype)
    lengths, ends = [0, 0, 0, 0, 0], [0, 7, 40, 100, CONTEXT - 1]
    firsts, outs = [9, 0, 3, 33, 70], []
    while any(length < end for length, end in zip(lengths, ends, strict=True)):
        inputs = torch.randn(ROWS * width, case.num_inputs, generator=generator)
        kept = [min(width, end - length) for length, end in zip(lengths, ends, strict=True)]
        is_live = [count > 0 for count in kept]
        now = torch.tensor([n if live else 0 for n, live in zip(lengths, is_live, strict=True)])
        index = now[:, None] + torch.arange(width)
        is_stored = torch.arange(width) < torch.tensor(kept)[:, None]
        index *= is_stored
        places = pages.gather(1, index // PAGE) * is_stored * PAGE + index % PAGE
        first = torch.tensor(firsts).minimum(now) if begins_late else None
        layout = RowsLayout(
            shape=case.shape,
            table=table,
            width=width,
            pages=pages.to(torch.int32),
            lengths=now,
            store=places.flatten(),
            positions=(index - shift).clamp_min(0).flatten(),
            first=first,
        )
        y = attention_rows.verify(
            inputs.to(given).to(dtype),
            weights=weights,
            pool=pool,
            plan=attention_rows.plan(layout, dtype=dtype, backend=backend),
            backend=backend,
        )
        assert y.dtype == dtype and y.is_contiguous()
        assert y.shape == (ROWS * width, case.heads * case.size)
        outs.append(y[is_stored.flatten()])
        for row, count in enumerate(kept):
            if is_live[row]:
                lengths[row] += rng.randint(1, count)
    return torch.cat(outs), pool


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize(
    ("backend", "dtype", "close"),
    [
        ("torch", torch.float64, 1e-11),
        ("torch", torch.float32, 1e-4),
        ("numba", torch.float32, 1e-4),
        ("torch", torch.bfloat16, 4e-2),
        ("numba", torch.bfloat16, 4e-2),
    ],
)
def test_backends_give_what_the_reference_does(
    backend: str, dtype: torch.dtype, close: float, width: int, case: Case
) -> None:
    """The judge is in float64, on the same inputs and weights."""
    usable(backend, dtype)
    want, _ = run(case, "reference", width=width, given=dtype, dtype=torch.float64)
    found, _ = run(case, backend, width=width, given=dtype, dtype=dtype)
    assert found.isfinite().all()
    assert (found.double() - want).abs().max() <= close * want.abs().max()


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("width", [1, 4])
def test_keys_before_the_first_are_not_seen(backend: str, width: int) -> None:
    """And positions need not be places."""
    usable(backend, torch.float32)
    options = {"width": width, "given": torch.float32, "begins_late": True, "shift": 1}
    want, _ = run(CASES[0], "reference", dtype=torch.float64, **options)  # type: ignore[arg-type]
    all_seen, _ = run(CASES[0], "reference", dtype=torch.float64, width=width, given=torch.float32)
    found, _ = run(CASES[0], backend, dtype=torch.float32, **options)  # type: ignore[arg-type]
    assert (found.double() - want).abs().max() <= 1e-4 * want.abs().max()
    assert (all_seen - want).abs().max() > 0.1


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_stored_is_what_the_parts_store(dtype: torch.dtype, case: Case) -> None:
    """To a step of rounding, and nothing where nothing is to be stored."""
    usable("numba", dtype)
    (_, want), (_, found) = (
        run(case, backend, width=3, given=dtype, dtype=dtype) for backend in ("torch", "numba")
    )
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(found[1:], want[1:], rtol=4 * step, atol=8 * step, equal_nan=True)
    assert found[0].isnan().all()


def test_a_pool_of_another_format() -> None:
    usable("numba", torch.bfloat16)
    for pool_dtype in (torch.float16, torch.float32):
        options = {"width": 2, "given": torch.bfloat16, "dtype": torch.bfloat16}
        want, found = (
            run(CASES[2], backend, pool_dtype=pool_dtype, **options)[0]  # type: ignore[arg-type]
            for backend in ("torch", "numba")
        )
        assert (found.double() - want.double()).abs().max() <= 4e-2 * want.double().abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_does_not_matter_who_takes_an_item(dtype: torch.dtype) -> None:
    usable("numba", dtype)
    threads, found = torch.get_num_threads(), []
    for number in (1, 2):
        torch.set_num_threads(number)
        found.append(run(CASES[1], "numba", width=3, given=dtype, dtype=dtype)[0])
    torch.set_num_threads(threads)
    assert torch.equal(*found)


def test_a_value_that_is_not_finite_comes_through() -> None:
    """In its own row alone."""
    usable("numba", torch.float32)
    case = CASES[0]
    layout = RowsLayout(
        shape=case.shape,
        table=make_table(case, torch.float32),
        width=1,
        pages=torch.tensor([[1], [2]], dtype=torch.int32),
        lengths=torch.tensor([0, 0]),
        store=torch.tensor([PAGE, 2 * PAGE]),
        positions=torch.tensor([0, 0]),
        first=None,
    )
    for place in (0, case.heads * case.size, (case.heads + case.kv_heads) * case.size):
        x = torch.ones(2, case.num_inputs)
        x[0, place] = torch.nan
        y = attention_rows.verify(
            x,
            weights=make_weights(case, "numba", torch.float32, torch.float32),
            pool=torch.zeros(3, PAGE, 2 * case.kv_heads, case.size),
            plan=attention_rows.plan(layout, dtype=torch.float32, backend="numba"),
            backend="numba",
        )
        assert y[0].isnan().any() and y[1].isfinite().all()


def test_backends_refuse_norms_of_another_form() -> None:
    usable("numba", torch.float32)
    case = CASES[0]
    weights = make_weights(case, "torch", torch.float32, torch.float32)
    layout = RowsLayout(
        shape=case.shape,
        table=make_table(case, torch.float32),
        width=1,
        pages=torch.tensor([[1]], dtype=torch.int32),
        lengths=torch.tensor([0]),
        store=torch.tensor([PAGE]),
        positions=torch.tensor([0]),
        first=None,
    )
    with pytest.raises(AssertionError):
        attention_rows.verify(
            torch.ones(1, case.num_inputs),
            weights=replace(weights, has_gate=True),
            pool=torch.zeros(2, PAGE, 2 * case.kv_heads, case.size),
            plan=attention_rows.plan(layout, dtype=torch.float32, backend="numba"),
            backend="numba",
        )
