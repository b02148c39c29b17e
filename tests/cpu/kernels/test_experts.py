"""route and experts: every backend and both ways against the formula in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from draftmark.kernels import experts
from draftmark.kernels.backends import available
from draftmark.kernels.experts import Mixture, Shared, grouped, onednn
from draftmark.kernels.experts import torch as plain

CPU = torch.device("cpu")
E, TOP_K, SIZE, HIDDEN = 12, 3, 32, 64

Call = Callable[[Tensor, Tensor, Tensor], Tensor]


def usable(backend: str, dtype: torch.dtype) -> None:
    if backend not in available("experts", device=CPU, dtype=dtype):
        pytest.skip(f"this CPU has no {backend} backend for {dtype}")


def by_hand(x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """In float64, an expert at a time over all tokens, the others' answers left out."""
    x, weights, total = x.double(), weights.double(), torch.zeros(x.shape, dtype=torch.float64)
    for number in range(gate_up.shape[0]):
        gate, up = (gate_up[number].double() @ x.T).chunk(2)
        answer = (down[number].double() @ (gate / (1 + torch.exp(-gate)) * up)).T
        for place in range(ids.shape[1]):
            is_chosen = ids[:, place] == number
            total[is_chosen] += weights[is_chosen, place, None] * answer[is_chosen]
    return total


def make_weights(dtype: torch.dtype, *, num_experts: int = E) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    gate_up = torch.randn(num_experts, 2 * SIZE, HIDDEN, generator=generator) * 0.3
    down = torch.randn(num_experts, HIDDEN, SIZE, generator=generator) * 0.3
    return gate_up.to(dtype), down.to(dtype)


def make_tokens(count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """x, ids and weights, with different experts for each token."""
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(count, HIDDEN, generator=generator).to(dtype)
    logits = torch.randn(count, E, generator=generator)
    logits = logits.to(torch.promote_types(dtype, torch.float32))
    return x, *experts.route(logits, top_k=TOP_K, renormalise=True, backend="reference")


@pytest.fixture(params=["reference", "torch", "looped", "whole", "onednn", "packed", "numba"])
def way(request: pytest.FixtureRequest) -> str:
    """A backend, or one of a backend's ways by force."""
    return str(request.param)


def make_call(way: str, gate_up: Tensor, down: Tensor, monkeypatch: pytest.MonkeyPatch) -> Call:
    if way in ("looped", "whole"):
        forced = getattr(plain, way)
        return lambda x, ids, weights: forced(x, ids, weights, gate_up, down)
    backend = "onednn" if way == "packed" else way
    usable(backend, gate_up.dtype)
    if way == "packed":
        monkeypatch.setattr(onednn, "PACKED_BYTES", 0)
    prepared = experts.prepare(gate_up, down, backend=backend)
    assert prepared[0].is_mkldnn == (way == "packed")
    assert experts.stored_bytes(prepared) == gate_up.nbytes + down.nbytes
    return lambda x, ids, weights: experts.experts(
        x, ids=ids, weights=weights, prepared=prepared, backend=backend
    )


def assert_close(y: Tensor, want: Tensor) -> None:
    """To some steps at the largest: narrow, products, acts and answers are rounded one by one;
    wide, sums differ in their order."""
    steps = 1.5 if y.dtype == torch.bfloat16 else 8
    assert y.shape == want.shape
    if y.numel() > 0:
        error = (y.double() - want).abs().max()
        assert error <= steps * torch.finfo(y.dtype).eps * want.abs().max()


# -- experts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [0, 1, 3, 65])
def test_every_way_gives_the_formula(
    way: str, dtype: torch.dtype, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate_up, down = make_weights(dtype)
    call = make_call(way, gate_up, down, monkeypatch)
    x, ids, weights = make_tokens(count, dtype)
    padded = torch.full((count, HIDDEN + 8), torch.nan, dtype=dtype)
    padded[:, :HIDDEN] = x
    y = call(padded[:, :HIDDEN], ids, weights)  # a row slice, as the norm hands it over
    assert y.dtype == dtype and y.shape == x.shape and y.is_contiguous()
    assert_close(y, by_hand(x, ids, weights, gate_up, down))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_all_tokens_to_the_same_experts(
    way: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows of one expert than a group holds, and most experts without a row."""
    monkeypatch.setattr(grouped, "GROUP_ROWS", 16)
    gate_up, down = make_weights(dtype)
    x, _, weights = make_tokens(40, dtype)
    ids = torch.tensor([11, 0, 4]).expand(40, 3)
    y = make_call(way, gate_up, down, monkeypatch)(x, ids, weights)
    assert_close(y, by_hand(x, ids, weights, gate_up, down))


@pytest.mark.parametrize("count", [3, 65])
def test_a_row_alone_is_as_in_a_batch(
    way: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouped, "GROUP_ROWS", 16)
    monkeypatch.setattr(plain, "SLICE_BYTES", 240_000)  # eleven tokens
    call = make_call(way, *make_weights(torch.float64), monkeypatch)
    x, ids, weights = make_tokens(count, torch.float64)
    rows = (slice(row, row + 1) for row in range(count))
    alone = torch.cat([call(x[row], ids[row], weights[row]) for row in rows])
    torch.testing.assert_close(call(x, ids, weights), alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_row_disturbs_no_other(
    way: str, dtype: torch.dtype, bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = make_call(way, *make_weights(dtype), monkeypatch)
    x, ids, weights = make_tokens(9, dtype)
    clean = call(x, ids, weights)
    x[[2, 8]] = bad
    weights[2] = math.nan
    y = call(x, ids, weights)
    others = [0, 1, 3, 4, 5, 6, 7]
    assert torch.equal(y[others], clean[others])
    assert not y[[2, 8]].isfinite().any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_an_expert_that_overflows_matters_to_its_own_rows_alone(
    way: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An infinite answer of an expert that a token did not choose is not multiplied by zero."""
    gate_up, down = make_weights(dtype)
    x, ids, weights = make_tokens(20, dtype)
    clean = make_call(way, gate_up, down, monkeypatch)(x, ids, weights)
    gate_up[5] = torch.finfo(dtype).max
    y = make_call(way, gate_up, down, monkeypatch)(x, ids, weights)
    has_chosen = (ids == 5).any(dim=1)
    assert 0 < has_chosen.sum() < 20
    assert torch.equal(y[~has_chosen], clean[~has_chosen])
    assert not y[has_chosen].isfinite().all(dim=1).any()


def make_mixture(
    dtype: torch.dtype, *, backend: str, shared_size: int = 45, renormalise: bool = True
) -> Mixture:
    """The shared expert is larger than the others, or there is none of no features. Tiles take
    multiples of 16 from 32 on."""
    generator = torch.Generator().manual_seed(9)

    def normal(*shape: int) -> Tensor:
        return 0.3 * torch.randn(shape, generator=generator)

    wide = torch.promote_types(dtype, torch.float32)
    shared = Shared(
        gate=normal(1, HIDDEN).to(wide),
        gate_up=normal(2 * shared_size, HIDDEN).to(dtype),
        down=normal(HIDDEN, shared_size).to(dtype),
    )
    return Mixture(
        router=normal(E, HIDDEN).to(wide),
        prepared=experts.prepare(*make_weights(dtype), backend=backend),
        shared=shared if shared_size > 0 else None,
        top_k=TOP_K,
        renormalise=renormalise,
    )


def mixture_by_hand(x: Tensor, own: Mixture, residual: Tensor | None) -> Tensor:
    """In float64, by the choice that float32 makes."""
    logits = x.double() @ own.router.double().T
    ids, weights = experts.route(
        logits, top_k=TOP_K, renormalise=own.renormalise, backend="reference"
    )
    total = by_hand(x, ids, weights, *make_weights(x.dtype))
    if own.shared is not None:
        one = torch.zeros(len(x), 1, dtype=torch.int64)
        opening = torch.sigmoid(x.double() @ own.shared.gate.double().T)
        total += by_hand(x, one, opening, own.shared.gate_up[None], own.shared.down[None])
    return total if residual is None else total + residual.double()


@pytest.mark.parametrize("backend", ["reference", "torch", "onednn", "numba"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [0, 1, 7, 65, 300])
def test_a_mixture_is_the_formula(backend: str, dtype: torch.dtype, count: int) -> None:
    usable(backend, dtype)
    x, residual = torch.randn(2, count, HIDDEN + 8, generator=torch.Generator().manual_seed(count))
    x, residual = (given.to(dtype)[:, :HIDDEN] for given in (x, residual))
    for shared_size in (45, 48, 96, 0):
        for added in (residual, None):
            own = make_mixture(
                dtype, backend=backend, shared_size=shared_size, renormalise=added is None
            )
            y = experts.mixture(x, own, residual=added, backend=backend)
            assert y.dtype == dtype and y.is_contiguous()
            assert_close(y, mixture_by_hand(x, own, added))


@pytest.mark.parametrize("shared_size", [45, 48, 96])
@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bad_row_of_a_mixture_disturbs_no_other(
    backend: str, dtype: torch.dtype, shared_size: int
) -> None:
    usable(backend, dtype)
    own = make_mixture(dtype, backend=backend, shared_size=shared_size)
    x = torch.randn(7, HIDDEN, generator=torch.Generator().manual_seed(2)).to(dtype)
    clean = experts.mixture(x, own, backend=backend)
    x[2], x[5, 3] = math.nan, math.inf
    y = experts.mixture(x, own, backend=backend)
    others = [0, 1, 3, 4, 6]
    assert_close(y[others], clean[others].double())
    assert not y[[2, 5]].isfinite().any()


@pytest.mark.parametrize("shared_size", [45, 48, 96])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_compiled_mixture_does_not_depend_on_its_threads(
    dtype: torch.dtype, shared_size: int
) -> None:
    usable("numba", dtype)
    own = make_mixture(dtype, backend="numba", shared_size=shared_size)
    threads = torch.get_num_threads()
    x = torch.randn(9, HIDDEN, generator=torch.Generator().manual_seed(4)).to(dtype)
    answers = []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        for _ in range(50):
            answers.append(experts.mixture(x, own, residual=x, backend="numba"))
    torch.set_num_threads(threads)
    assert all(torch.equal(answers[0], answer) for answer in answers)


def test_tokens_of_a_mixture_are_taken_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tiles, whose answers are kept for all of a slice; the same in any."""
    usable("numba", torch.bfloat16)
    from draftmark.kernels import tiles
    from draftmark.kernels.experts import tiled

    if not tiles.has_tiles():
        pytest.skip("this CPU has no AMX")
    own = make_mixture(torch.bfloat16, backend="numba", shared_size=96)
    x, residual = torch.randn(2, 100, HIDDEN, generator=torch.Generator().manual_seed(6)).bfloat16()
    assert tiled.can_run(x, own)
    for added in (residual, None):
        whole = experts.mixture(x, own, residual=added, backend="numba")
        with monkeypatch.context() as patched:
            patched.setattr(plain, "SLICE_BYTES", 40_000)
            assert torch.equal(experts.mixture(x, own, residual=added, backend="numba"), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [2, 5, 23])
def test_compiled_ones_of_odd_sizes(dtype: torch.dtype, count: int) -> None:
    """No size a multiple of anything, on one thread and on more, the same to the bit."""
    usable("numba", dtype)
    generator = torch.Generator().manual_seed(count)
    gate_up = (torch.randn(5, 2 * 37, 83, generator=generator) * 0.2).to(dtype)
    down = (torch.randn(5, 83, 37, generator=generator) * 0.2).to(dtype)
    x = torch.randn(count, 83, generator=generator).to(dtype)
    logits = torch.randn(count, 5, generator=generator)
    ids, weights = experts.route(logits, top_k=3, renormalise=False, backend="numba")
    threads, answers = torch.get_num_threads(), []
    for number in (1, 2):
        torch.set_num_threads(number)
        call = {"ids": ids, "weights": weights, "prepared": (gate_up, down), "backend": "numba"}
        answers.append(experts.experts(x, **call))
    torch.set_num_threads(threads)
    assert_close(answers[0], by_hand(x, ids, weights, gate_up, down))
    assert torch.equal(*answers)


def test_one_row_touches_only_the_experts_it_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[int] = []

    def expert(rows: Tensor, number: int) -> Tensor:
        touched.append(number)
        return rows

    x, ids, weights = make_tokens(1, torch.float64)
    y = grouped.experts(x, ids, weights, expert)
    assert sorted(touched) == sorted(ids[0].tolist())
    torch.testing.assert_close(y, x)  # the weights' sum is one
    touched.clear()
    grouped.experts(x.expand(5, -1), ids.expand(5, -1), weights.expand(5, -1), expert)
    assert touched == sorted(ids[0].tolist())


def test_the_way_is_chosen_by_shapes() -> None:
    """Small narrow experts whole, but for one row of many experts and for many rows."""
    small = torch.empty(64, 256, 512, dtype=torch.bfloat16, device="meta")
    large = torch.empty(256, 1024, 2048, dtype=torch.bfloat16, device="meta")
    chosen = [plain.is_whole_faster(small, num_tokens=n, top_k=8) for n in (1, 4, 64, 512)]
    assert chosen == [False, True, True, False]
    assert not any(plain.is_whole_faster(large, num_tokens=n, top_k=8) for n in (1, 64, 512))
    assert not plain.is_whole_faster(small.float(), num_tokens=4, top_k=8)


# -- route ----------------------------------------------------------------------------------------

ROUTERS = ("reference", "torch", "onednn", "numba")


@pytest.mark.parametrize("backend", ROUTERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("renormalise", [True, False])
@pytest.mark.parametrize("count", [0, 1, 3, 65])
def test_route(backend: str, dtype: torch.dtype, renormalise: bool, count: int) -> None:
    usable(backend, dtype)
    logits = (4 * torch.randn(count, E, generator=torch.Generator().manual_seed(3))).to(dtype)
    ids, weights = experts.route(logits, top_k=4, renormalise=renormalise, backend=backend)
    assert ids.dtype == torch.int64 and weights.dtype == dtype
    assert ids.shape == weights.shape == (count, 4)
    shares = torch.exp(logits.double())
    shares = shares / shares.sum(dim=1, keepdim=True)
    best = shares.topk(4, dim=1)
    assert torch.equal(ids, best.indices)
    want = best.values / best.values.sum(dim=1, keepdim=True) if renormalise else best.values
    torch.testing.assert_close(weights.double(), want, rtol=8 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("backend", ROUTERS)
def test_the_lowest_id_wins_ties(backend: str) -> None:
    usable(backend, torch.float32)
    logits = torch.zeros(3, 300)
    logits[1, [7, 250, 99, 31]] = 1.0
    logits[2, 299] = logits[2, 17] = -0.0
    ids, weights = experts.route(logits, top_k=3, renormalise=True, backend=backend)
    assert ids.tolist() == [[0, 1, 2], [7, 31, 99], [0, 1, 2]]
    torch.testing.assert_close(weights, torch.full((3, 3), 1 / 3))


@pytest.mark.parametrize("backend", ROUTERS)
def test_ids_of_a_bad_row_are_experts_that_exist(backend: str) -> None:
    usable(backend, torch.float32)
    logits = torch.randn(4, E, generator=torch.Generator().manual_seed(5))
    clean = experts.route(logits, top_k=TOP_K, renormalise=True, backend=backend)
    logits[1], logits[3, 4] = math.nan, math.inf
    ids, weights = experts.route(logits, top_k=TOP_K, renormalise=True, backend=backend)
    assert all(len({*row}) == TOP_K and {*row} <= {*range(E)} for row in ids.tolist())
    assert torch.equal(ids[[0, 2]], clean[0][[0, 2]])
    assert torch.equal(weights[[0, 2]], clean[1][[0, 2]])
    assert weights[[1, 3]].isnan().any(dim=1).all()


# -- memory ---------------------------------------------------------------------------------------


def test_the_work_space_is_bounded_however_long_a_prompt_is() -> None:
    def of(rows: int) -> int:
        return experts.workspace_bytes(
            rows=rows,
            top_k=8,
            num_experts=256,
            hidden_size=2048,
            intermediate_size=512,
            itemsize=2,
        )

    assert of(2) - of(1) == of(1) - of(0)
    assert of(8192) < 8192 * 8 * 2048 * 2  # of the answers alone, all at once
