"""Attention over pages against its reference, with NaN wherever nothing was stored."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from draftmark.kernels import attention
from draftmark.kernels.attention import AttentionShape, PrefillLayout, VerifyLayout
from draftmark.kernels.attention import torch as plain

PAGE = 4
NUM_PAGES = 64


@dataclass(frozen=True)
class Work:
    """Some tokens of a step: q, the pool as it stands, and who reads what."""

    q: Tensor
    pool: Tensor
    prefill: list[PrefillLayout]
    verify: VerifyLayout | None
    active: list[int]  # tokens whose row is defined


def make_work(
    seed: int,
    shape: AttentionShape,
    *,
    width: int = 1,
    dtype: torch.dtype = torch.float64,
    pool_dtype: torch.dtype | None = None,
    begins_late: bool = False,
) -> Work:
    """Random rows over shuffled pages. Unwritten places of the pool are NaN, and so are those of
    keys that rows which begin late do not have."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    free = rng.sample(range(1, NUM_PAGES), NUM_PAGES - 1)
    kv_shape = (PAGE, 2 * shape.kv_heads, shape.head_dim)
    pool = torch.full((NUM_PAGES, *kv_shape), torch.nan, dtype=pool_dtype or dtype)

    def stored_row(num_keys: int) -> Tensor:
        pages = torch.tensor([free.pop() for _ in range(-(-num_keys // PAGE))], dtype=torch.int32)
        for key in range(num_keys):
            pool[pages[key // PAGE], key % PAGE] = torch.randn(kv_shape[1:]).to(pool.dtype)
        return torch.nn.functional.pad(pages, (0, 8 - len(pages)))

    def begun(pages: Tensor, most: int) -> int:
        first = rng.randrange(most + 1) if begins_late else 0
        for key in range(first):
            pool[pages[key // PAGE], key % PAGE] = torch.nan
        return first

    prefill, offset = [], 0
    for _ in range(rng.randrange(3)):
        start, count = rng.choice([0, 0, 1, 5, 8]), rng.randrange(1, 9)
        pages = stored_row(start + count)
        first = begun(pages, start)
        prefill.append(
            PrefillLayout(offset=offset, count=count, start=start, pages=pages, first=first)
        )
        offset += count
    active = list(range(offset))
    rows = rng.randrange(0 if prefill else 1, 7)
    verify = None
    if rows:
        tables, lengths, store, firsts = [], [], [], []
        for row in range(rows):
            is_active = rng.random() < 0.8
            length = rng.randrange(1, 20) if is_active else 0
            # A row near its end stores fewer than `width` tokens; the others aim at page 0.
            kept = rng.randrange(1, width + 1) if is_active else 0
            tables.append(stored_row(length + kept))
            lengths.append(length)
            firsts.append(begun(tables[-1], length) if is_active else 9)
            for j in range(width):
                place = length + j
                page = int(tables[-1][place // PAGE]) if j < kept else 0
                store.append(page * PAGE + place % PAGE)
                if j < kept:
                    active.append(offset + row * width + j)
        verify = VerifyLayout(
            offset=offset,
            width=width,
            pages=torch.stack(tables),
            lengths=torch.tensor(lengths),
            store=torch.tensor(store),
            first=torch.tensor(firsts) if begins_late else None,
        )
    pool[0] = torch.nan if rng.random() < 0.5 else 0.0
    # As the layer hands it over: the first heads of a wider tensor.
    wide = torch.randn(offset + rows * width, shape.num_heads + 3, shape.head_dim, dtype=dtype)
    return Work(wide[:, : shape.num_heads], pool, prefill, verify, active)


def attend(work: Work, shape: AttentionShape, backend: str) -> Tensor:
    plan = attention.plan(
        shape, prefill=work.prefill, verify=work.verify, dtype=work.q.dtype, backend=backend
    )
    out = attention.attend(work.q, pool=work.pool, plan=plan)
    assert out.shape == (len(work.q), shape.num_heads * shape.head_dim)
    assert out.dtype == work.q.dtype and out.is_contiguous()
    return out[work.active]


def make_shape(heads: int, kv_heads: int, head_dim: int = 8) -> AttentionShape:
    return AttentionShape(
        num_heads=heads, kv_heads=kv_heads, head_dim=head_dim, page_tokens=PAGE, scale=0.3
    )


@pytest.mark.parametrize("heads, kv_heads", [(1, 1), (4, 4), (6, 2), (9, 3), (8, 1)])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_torch_equals_the_reference(heads: int, kv_heads: int, width: int) -> None:
    shape = make_shape(heads, kv_heads)
    for seed in range(12):
        work = make_work(seed, shape, width=width)
        want = attend(work, shape, "reference")
        assert want.isfinite().all()
        torch.testing.assert_close(attend(work, shape, "torch"), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("width", [1, 4])
def test_keys_before_the_first_are_never_loaded(width: int) -> None:
    shape = make_shape(6, 2)
    for seed in range(20):
        work = make_work(seed, shape, width=width, begins_late=True)
        want = attend(work, shape, "reference")
        assert want.isfinite().all()
        torch.testing.assert_close(attend(work, shape, "torch"), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("width", [1, 3])
def test_rows_cut_into_groups_give_the_same(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of a few rows, sorted by length, against one group."""
    shape = make_shape(6, 2)
    for seed in range(20):
        work = make_work(seed, shape, width=width, begins_late=seed % 2 == 0)
        whole = attend(work, shape, "torch")
        with monkeypatch.context() as patch:
            patch.setattr(plain, "GROUP_BYTES", 40 * 2 * 2 * 8 * 8)
            cut = attention.plan(
                shape, prefill=[], verify=work.verify, dtype=work.q.dtype, backend="torch"
            )
            torch.testing.assert_close(attend(work, shape, "torch"), whole, rtol=1e-12, atol=1e-12)
        if work.verify is not None and len(work.verify.lengths) > 5:
            assert isinstance(cut, plain.Plan) and len(cut.verify) > 1


@pytest.mark.parametrize(
    "counts, sizes",
    [
        ([540], [1]),
        ([500] * 7 + [540], [8]),
        ([1, 2, 3, 500], [3, 1]),  # 497 keys of padding a row
        ([20] * 8 + [4000], [8, 1]),
        ([100, 110, 120, 130, 4000, 4100], [4, 2]),
        ([3000] * 20, [10, 10]),  # 30,000 tokens of a KiB fit
    ],
)
def test_rows_share_a_group_while_padding_is_cheap(counts: list[int], sizes: list[int]) -> None:
    groups = plain._groups(counts, 1024)
    assert [group.stop - group.start for group in groups] == sizes
    assert [group.start for group in groups] == [sum(sizes[:i]) for i in range(len(sizes))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_narrower_pool_is_widened(dtype: torch.dtype) -> None:
    shape = make_shape(6, 2)
    for seed in range(6):
        work = make_work(seed, shape, dtype=torch.float64, pool_dtype=dtype)
        want = attend(work, shape, "reference")
        torch.testing.assert_close(attend(work, shape, "torch"), want, rtol=1e-12, atol=1e-12)


def test_the_reference_is_attention_as_written_down() -> None:
    """One token over three keys, by hand."""
    shape = make_shape(2, 1, head_dim=2)
    pool = torch.full((2, PAGE, 2, 2), torch.nan, dtype=torch.float64)
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    values = torch.tensor([[2.0, 0.0], [0.0, 4.0], [1.0, 1.0]], dtype=torch.float64)
    pool[1, :3, 0], pool[1, :3, 1] = keys, values
    q = torch.tensor([[[1.0, 2.0], [-1.0, 0.5]]], dtype=torch.float64)
    verify = VerifyLayout(
        offset=0,
        width=1,
        pages=torch.tensor([[1]], dtype=torch.int32),
        lengths=torch.tensor([2]),
        store=torch.tensor([PAGE + 2]),
    )
    plan = attention.plan(
        shape, prefill=[], verify=verify, dtype=torch.float64, backend="reference"
    )
    out = attention.attend(q, pool=pool, plan=plan)
    for head in range(2):
        weights = torch.softmax(0.3 * keys @ q[0, head], dim=0)
        torch.testing.assert_close(out[0, 2 * head : 2 * head + 2], weights @ values)


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_no_row_sees_another_ones_keys(backend: str) -> None:
    """Changing all other pages changes nothing, bit for bit."""
    shape = make_shape(4, 2)
    for seed in range(6):
        work = make_work(seed, shape, width=2)
        if work.verify is None or work.verify.lengths[0] == 0:
            continue
        own = set(work.verify.pages[0].tolist())
        token = work.verify.offset
        row = work.active.index(token)
        before = attend(work, shape, backend)[row]
        for page in range(NUM_PAGES):
            if page not in own or page == 0:
                work.pool[page] = torch.where(work.pool[page].isnan(), torch.nan, 7.0)
        after = attend(work, shape, backend)[row]
        assert torch.equal(before, after)
