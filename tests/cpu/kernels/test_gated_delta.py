"""gated_delta against the recurrence in float64, over caches full of NaN, and its equivalences."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from draftmark.kernels import gated_delta
from draftmark.kernels.backends import has_numba
from draftmark.kernels.gated_delta import FOLD_TOKENS, DeltaCache, Span
from draftmark.kernels.gated_delta import torch as plain
from tests.cpu.kernels.gated_delta_cases import (
    KEYS,
    LENGTHS,
    VALUE_DIM,
    VALUE_HEADS,
    Inputs,
    error,
    joined,
    judge,
    make_cache,
    make_inputs,
    run_prefill,
    state_of,
)

BACKENDS = ("reference", "torch")
DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def compiled() -> str:
    """Float32 only: held to what float32 gives."""
    if not has_numba(torch.device("cpu"), torch.float32):
        pytest.skip("numba is not installed")
    return "numba"


def same(found: Tensor, want: Tensor) -> None:
    atol = 1e-12 * max(1.0, want.abs().max().item()) if want.numel() else 0.0
    torch.testing.assert_close(found, want, rtol=1e-12, atol=atol)


# -- the judge ------------------------------------------------------------------------------------


def check_against_judge(
    inputs: Inputs, *, device: str = "cpu", o_error: float = 1e-5, backend: str = "torch"
) -> None:
    want, want_state = judge(inputs)
    cache = make_cache(2, dtype=torch.float32, device=device)
    out = run_prefill(inputs.to(device), cache, backend=backend)
    assert out.dtype == inputs.v.dtype and out.shape == inputs.v.shape
    assert error(out.cpu(), want, head_dim=1) < o_error
    assert error(state_of(cache, 1, len(inputs)).cpu(), want_state, head_dim=0) < 1e-5


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("num_tokens", LENGTHS)
@pytest.mark.parametrize("device", DEVICES)
def test_float32_prefill_is_the_recurrence(num_tokens: int, keys: str, device: str) -> None:
    check_against_judge(make_inputs(num_tokens, keys=keys, dtype=torch.float32), device=device)


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("num_tokens", LENGTHS)
def test_compiled_prefill_is_the_recurrence(num_tokens: int, keys: str, compiled: str) -> None:
    check_against_judge(make_inputs(num_tokens, keys=keys, dtype=torch.float32), backend=compiled)


@pytest.mark.slow
@pytest.mark.parametrize("keys", KEYS)
def test_float32_prefill_of_a_long_prompt(keys: str) -> None:
    check_against_judge(make_inputs(4096, keys=keys, dtype=torch.float32))


def test_half_precision_inputs_are_widened_first() -> None:
    """Squares of 30 x 11 overflow float16, sums of gates in it are off by whole numbers."""
    inputs = make_inputs(300, keys="long").to(torch.float16)
    large = Inputs(30.0 * inputs.q, 30.0 * inputs.k, *inputs.all[2:])
    check_against_judge(large, o_error=1e-3)


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("device", DEVICES)
def test_float32_decoding_is_the_recurrence(keys: str, device: str) -> None:
    check_decoding(keys, device=device, backend="torch")


@pytest.mark.parametrize("keys", KEYS)
def test_compiled_decoding_is_the_recurrence(keys: str, compiled: str) -> None:
    check_decoding(keys, device="cpu", backend=compiled)


def check_decoding(keys: str, *, device: str, backend: str) -> None:
    inputs = make_inputs(150, keys=keys, dtype=torch.float32)
    want, want_state = judge(inputs)
    cache = make_cache(2, dtype=torch.float32, device=device)
    out = decode(inputs.to(device), cache, first=21, backend=backend)
    assert error(out.cpu(), want, head_dim=1) < 1e-5
    assert error(state_of(cache, 1, len(inputs)).cpu(), want_state, head_dim=0) < 1e-5


def test_the_reference_is_the_recurrence() -> None:
    for keys in KEYS:
        inputs = make_inputs(35, keys=keys)
        want, want_state = judge(inputs)
        cache = make_cache(2)
        same(run_prefill(inputs, cache, backend="reference"), want)
        same(state_of(cache, 1, 35), want_state)


# -- equivalences, in float64 ---------------------------------------------------------------------


def decode(inputs: Inputs, cache: DeltaCache, *, first: int, backend: str) -> Tensor:
    """`first` tokens as a prompt, the others one by one."""
    outs = [run_prefill(inputs[:first], cache, backend=backend)]
    device = inputs.q.device
    for length in range(first, len(inputs)):
        outs.append(
            gated_delta.verify(
                *inputs[length : length + 1].all,
                cache=cache,
                slots=torch.tensor([1], device=device),
                lengths=torch.tensor([length], device=device),
                folds=torch.tensor([int(length > first)], device=device),
                width=1,
                backend=backend,
            )
        )
    return torch.cat(outs)


@pytest.mark.parametrize("backend, num_tokens", [("torch", 130), ("torch", 70), ("reference", 70)])
def test_a_prompt_may_be_cut_anywhere(backend: str, num_tokens: int) -> None:
    inputs = make_inputs(num_tokens, seed=num_tokens)
    want, want_state = judge(inputs)
    for cut in range(1, num_tokens, 1 if backend == "torch" else 7):
        cache = make_cache(2)
        head = run_prefill(inputs[:cut], cache, backend=backend)
        if cut % 23 == 0:
            same(state_of(cache, 1, cut), judge(inputs[:cut])[1])
        tail = run_prefill(inputs[cut:], cache, backend=backend, start=cut)
        same(torch.cat((head, tail)), want)
        same(state_of(cache, 1, num_tokens), want_state)


def test_a_compiled_prompt_may_be_cut_anywhere(compiled: str) -> None:
    """In a ring that has room for no record more than it must: new ones take the old ones' places
    while those are read."""
    inputs = make_inputs(130, seed=3, dtype=torch.float32)
    want, want_state = judge(inputs)
    torch.set_num_threads(2)
    for cut in range(1, 130):
        cache = make_cache(2, dtype=torch.float32)
        end = min(130, cut + 16)
        parts = [(0, cut), (cut, end), (end, 130)]
        outs = [
            run_prefill(inputs[first:last], cache, backend=compiled, start=first)
            for first, last in parts
            if last > first
        ]
        assert error(torch.cat(outs), want, head_dim=1) < 1e-5
        assert error(state_of(cache, 1, 130), want_state, head_dim=0) < 1e-5


@pytest.mark.parametrize("first", [1, 15, 16, 17, 64, 75])
def test_decoding_equals_a_prompt(backend: str, first: int) -> None:
    inputs = make_inputs(90, seed=first)
    cache = make_cache(2)
    same(decode(inputs, cache, first=first, backend=backend), judge(inputs)[0])


def verify_rows(
    sequences: list[Inputs],
    *,
    width: int,
    seed: int,
    backend: str,
    device: str = "cpu",
    num_tokens: int = 90,
    dtype: torch.dtype = torch.float64,
) -> tuple[list[Tensor], DeltaCache, list[int]]:
    """Drafted decoding of several sequences at once, and two padding rows full of NaN.

    Row i's slot is i + 1. Each step offers up to `width` tokens of a row, wrong ones after a random
    number of right ones, which alone are accepted. Returns outputs, the cache, lengths.
    """
    rng = random.Random(seed)
    cache = make_cache(len(sequences) + 2, width=width, device=device, dtype=dtype)
    lengths, outs = [], []
    for i, inputs in enumerate(sequences):
        lengths.append(rng.randrange(1, 40))
        prompt = inputs[: lengths[i]].to(device)
        outs.append([run_prefill(prompt, cache, slot=i + 1, backend=backend)])
    folds = [0] * len(sequences)
    blank = Inputs(*(torch.full_like(x[:width], torch.nan) for x in sequences[0].all))
    while min(lengths) < num_tokens - width:
        accepted = [rng.randint(1, width) for _ in sequences]
        rows = []
        for inputs, length, count in zip(sequences, lengths, accepted, strict=True):
            wrong = make_inputs(width - count, seed=rng.randrange(1000)).to(inputs.q.dtype)
            rows.append(joined([inputs[length : length + count], wrong]))
        out = gated_delta.verify(
            *joined([blank, *rows, blank]).to(device).all,
            cache=cache,
            slots=torch.tensor([0, *range(1, len(sequences) + 1), 0], device=device),
            lengths=torch.tensor([0, *lengths, 5], device=device),
            folds=torch.tensor([0, *folds, 1], device=device),
            width=width,
            backend=backend,
        ).view(-1, width, VALUE_HEADS, VALUE_DIM)
        for i, count in enumerate(accepted):
            outs[i].append(out[i + 1, :count])
            lengths[i] += count
        folds = accepted
    return [torch.cat(o).cpu() for o in outs], cache, lengths


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("device", DEVICES)
def test_rejected_tokens_leave_no_trace(backend: str, width: int, device: str) -> None:
    sequences = [make_inputs(300, seed=seed) for seed in range(3)]
    num_tokens = 90 if backend == "torch" else 60
    outs, cache, lengths = verify_rows(
        sequences, width=width, seed=width, backend=backend, device=device, num_tokens=num_tokens
    )
    for inputs, out, length in zip(sequences, outs, lengths, strict=True):
        same(out, judge(inputs[:length])[0])
    assert cache.state[len(sequences) + 1].isnan().all()


@pytest.mark.parametrize("width", [1, 2, 4, 20])
def test_rejected_tokens_leave_no_trace_in_compiled_rows(compiled: str, width: int) -> None:
    sequences = [make_inputs(300, seed=seed, dtype=torch.float32) for seed in range(3)]
    outs, cache, lengths = verify_rows(
        sequences, width=width, seed=width, backend=compiled, dtype=torch.float32
    )
    for i, (inputs, out, length) in enumerate(zip(sequences, outs, lengths, strict=True)):
        assert error(out, judge(inputs[:length])[0], head_dim=1) < 1e-5
        want = judge(inputs[:length])[1]
        if length % FOLD_TOKENS >= width:  # else the checkpoint waits for the next call
            assert error(state_of(cache, i + 1, length), want, head_dim=0) < 1e-5
    assert cache.state[len(sequences) + 1].isnan().all()


@pytest.mark.gpu
@pytest.mark.parametrize("width", [1, 3])
def test_a_gpu_is_not_waited_for(width: int) -> None:
    inputs, cache = make_inputs(40).to("cuda"), make_cache(3, width=width, device="cuda")
    lengths, folds = (torch.tensor(x, device="cuda") for x in ([17, 8], [width, 0]))
    slots = torch.tensor([1, 2], device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    run_prefill(inputs[:17], cache, slot=1, backend="torch")
    run_prefill(inputs[:8], cache, slot=2, backend="torch")
    gated_delta.verify(
        *inputs[: 2 * width].all,
        cache=cache,
        slots=slots,
        lengths=lengths,
        folds=folds,
        width=width,
        backend="torch",
    )
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("width", [1, 4, 20])
def test_gathered_rows_equal_listed_rows(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU does, on a CPU; rows of 20 tokens fold two blocks at once."""
    sequences = [make_inputs(300, seed=seed) for seed in range(3)]
    listed, listed_cache, _ = verify_rows(sequences, width=width, seed=7, backend="torch")
    monkeypatch.setattr(plain, "ListedRows", plain.GatheredRows)
    gathered, gathered_cache, _ = verify_rows(sequences, width=width, seed=7, backend="torch")
    for one, other, inputs in zip(listed, gathered, sequences, strict=True):
        same(one, judge(inputs[: len(one)])[0])
        same(other, one)
    same(gathered_cache.state[1:4], listed_cache.state[1:4])


def test_rows_together_equal_rows_alone() -> None:
    both, alone = together_and_alone("torch", torch.float64)
    same(both, alone)


def test_compiled_rows_together_equal_rows_alone(compiled: str) -> None:
    torch.set_num_threads(2)  # whoever takes a head
    assert torch.equal(*together_and_alone(compiled, torch.float32))


def together_and_alone(backend: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    sequences = [make_inputs(200, seed=seed, dtype=dtype) for seed in range(4)]
    cache = make_cache(6, width=2, dtype=dtype)
    starts = [5, 16, 31, 100]
    for i, start in enumerate(starts):
        run_prefill(sequences[i][:start], cache, slot=i + 1, backend=backend)

    def step(rows: list[int], cache: DeltaCache) -> Tensor:
        parts = [sequences[i][starts[i] : starts[i] + 2] for i in rows]
        return gated_delta.verify(
            *joined(parts).all,
            cache=cache,
            slots=torch.tensor([i + 1 for i in rows]),
            lengths=torch.tensor([starts[i] for i in rows]),
            folds=torch.zeros(len(rows), dtype=torch.int64),
            width=2,
            backend=backend,
        )

    alone = torch.cat([step([i], cache) for i in range(4)])
    both = step([3, 1, 0, 2], cache).view(4, 2, VALUE_HEADS, -1)[[2, 1, 3, 0]].flatten(0, 1)
    return both, alone


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (1, 3, 7, 5), (4, 8, 128, 128), (2, 2, 33, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_rows_of_any_size(
    compiled: str, sizes: tuple[int, int, int, int], dtype: torch.dtype
) -> None:
    """Against the reference, a block folded on the way: outputs, states, records, and what is not
    finite only where it comes from."""
    key_heads, num_heads, key_dim, value_dim = sizes
    random = torch.Generator().manual_seed(num_heads)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    rings = (3, 19)
    cache = DeltaCache(
        state=normal(3, num_heads, key_dim, value_dim),
        keys=normal(*rings, key_heads, key_dim) * key_dim**-0.5,
        deltas=normal(*rings, num_heads, value_dim),
        gates=-normal(*rings, num_heads).abs(),
    )
    cache.state[2, -1, -1, -1] = torch.inf
    tokens = (
        normal(4, key_heads, key_dim).to(dtype),
        normal(4, key_heads, key_dim).to(dtype),
        normal(4, num_heads, value_dim).to(dtype),
        -normal(4, num_heads).abs(),
        torch.rand(4, num_heads, generator=random),
    )
    tokens[2][1, 0, 0] = torch.nan
    found = []
    for backend in ("reference", compiled):
        own = DeltaCache(**{x: getattr(cache, x).clone() for x in DeltaCache.__slots__})
        out = gated_delta.verify(
            *tokens,
            cache=own,
            slots=torch.tensor([1, 2]),
            lengths=torch.tensor([33, 12]),
            folds=torch.tensor([2, 0]),
            width=2,
            backend=backend,
        )
        assert out.dtype == dtype and out.shape == tokens[2].shape
        found.append((out.float(), own.state, own.keys, own.deltas, own.gates))
    step = torch.finfo(dtype).eps
    assert not found[0][0].isfinite().all()
    for want, got in zip(*found, strict=True):
        is_known = want.isfinite()
        assert torch.equal(got.isfinite(), is_known)
        torch.testing.assert_close(got[is_known], want[is_known], rtol=1e-4 + step, atol=3e-5)


def test_compiled_rows_take_float32_states_only(compiled: str) -> None:
    inputs = make_inputs(2, dtype=torch.float32)
    with pytest.raises(TypeError, match="float32"):
        decode(inputs, make_cache(2), first=1, backend=compiled)


def test_spans_together_equal_spans_alone(backend: str) -> None:
    outs, caches, sequences = spans_together_and_alone(backend, torch.float64)
    same(outs[0], outs[1])
    for i, (start, count) in enumerate(CUTS):
        same(state_of(caches[0], i + 1, start + count), state_of(caches[1], i + 1, start + count))
        same(state_of(caches[0], i + 1, start + count), judge(sequences[i][: start + count])[1])


def test_compiled_spans_together_equal_spans_alone(compiled: str) -> None:
    """To the bit, whichever thread takes which, also after one that is not finite."""
    torch.set_num_threads(2)
    outs, caches, sequences = spans_together_and_alone(compiled, torch.float32)
    assert torch.equal(*outs)
    for i, (start, count) in enumerate(CUTS):
        want = judge(sequences[i][: start + count])[1]
        assert error(state_of(caches[0], i + 1, start + count), want, head_dim=0) < 1e-5


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (1, 3, 7, 5), (4, 8, 128, 128), (2, 2, 33, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_spans_of_any_size(
    compiled: str, sizes: tuple[int, int, int, int], dtype: torch.dtype
) -> None:
    """Against the reference, on one thread, so that what a bad span leaves in its room meets the
    next one."""
    key_heads, num_heads, key_dim, value_dim = sizes
    random = torch.Generator().manual_seed(num_heads)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    rings, count = (4, 17), 150
    cache = DeltaCache(
        state=normal(4, num_heads, key_dim, value_dim),
        keys=normal(*rings, key_heads, key_dim) * key_dim**-0.5,
        deltas=normal(*rings, num_heads, value_dim),
        gates=-normal(*rings, num_heads).abs(),
    )
    tokens = (
        normal(count, key_heads, key_dim).to(dtype),
        normal(count, key_heads, key_dim).to(dtype),
        normal(count, num_heads, value_dim).to(dtype),
        -normal(count, num_heads).abs(),
        torch.rand(count, num_heads, generator=random),
    )
    tokens[1][3] = torch.nan
    spans = [
        Span(offset=0, count=20, start=0, slot=2),
        Span(offset=20, count=90, start=0, slot=1),
        Span(offset=110, count=40, start=30, slot=3),
    ]
    found = []
    for backend in ("reference", compiled):
        own = DeltaCache(**{x: getattr(cache, x).clone() for x in DeltaCache.__slots__})
        out = gated_delta.prefill(*tokens, cache=own, spans=spans, backend=backend)
        assert out.dtype == dtype and out.shape == tokens[2].shape
        states = [state_of(own, span.slot, span.end) for span in spans[1:]]
        found.append((out[20:].float(), *states))
        assert out[3:20].isnan().all() and own.state[2].isnan().all()
    step = torch.finfo(dtype).eps
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4 + step, atol=3e-5)


CUTS = [(0, 1), (0, 70), (16, 40), (23, 5)]  # start and count of slots 1, 2, 3, 4


def spans_together_and_alone(
    backend: str, dtype: torch.dtype
) -> tuple[list[Tensor], list[DeltaCache], list[Inputs]]:
    sequences = [make_inputs(80, seed=seed, dtype=dtype) for seed in range(4)]
    caches, outs = [], []
    for is_together in (True, False):
        cache = make_cache(5, dtype=dtype)
        spans, parts = [], []
        for i, (start, count) in enumerate(CUTS):
            if start:
                run_prefill(sequences[i][:start], cache, slot=i + 1, backend=backend)
            offset = sum(len(part) for part in parts)
            spans.append(Span(offset=offset, count=count, start=start, slot=i + 1))
            parts.append(sequences[i][start : start + count])
        if is_together:
            tokens = joined(parts).all
            out = gated_delta.prefill(*tokens, cache=cache, spans=spans, backend=backend)
        else:
            out = torch.cat(
                [
                    run_prefill(part, cache, slot=span.slot, start=span.start, backend=backend)
                    for part, span in zip(parts, spans, strict=True)
                ]
            )
        caches.append(cache)
        outs.append(out)
    return outs, caches, sequences


# -- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("num_tokens", [1, 16, 17, 64, 79, 130])
def test_checkpoint_and_records_are_those_of_the_length(backend: str, num_tokens: int) -> None:
    """The checkpoint is exactly the state at the last multiple, and only places of the span's own
    slot are written."""
    inputs = make_inputs(num_tokens)
    cache = make_cache(3)
    run_prefill(inputs, cache, backend=backend)
    first = num_tokens - num_tokens % FOLD_TOKENS
    same(cache.state[1], judge(inputs[:first])[1])
    for x in (cache.state, cache.keys, cache.deltas, cache.gates):
        assert x[0].isnan().all() and x[2].isnan().all()
    places = torch.arange(first, num_tokens) % cache.num_records
    same(cache.gates[1, places], inputs.g[first:].clamp(min=-100.0))
    norms = cache.keys[1, places].norm(dim=-1)
    torch.testing.assert_close(norms, torch.ones_like(norms), rtol=1e-6, atol=0)


def test_a_new_sequence_sees_nothing_of_the_slots_last_one(backend: str) -> None:
    cache = make_cache(2)
    decode(make_inputs(60, seed=1), cache, first=50, backend=backend)
    inputs = make_inputs(40, seed=2)
    same(decode(inputs, cache, first=9, backend=backend), judge(inputs)[0])


def test_a_copied_checkpoint_continues_the_sequence(backend: str) -> None:
    inputs = make_inputs(100)
    cache = make_cache(3)
    run_prefill(inputs[:48], cache, backend=backend)
    cache.state[2] = cache.state[1]
    rest = run_prefill(inputs[48:], cache, slot=2, start=48, backend=backend)
    same(rest, judge(inputs)[0][48:])


@pytest.mark.parametrize("named", [*BACKENDS, "numba"])
def test_strided_and_narrow_inputs(named: str, request: pytest.FixtureRequest) -> None:
    """q, k and v as slices of one merged product, outputs in its dtype."""
    backend = request.getfixturevalue("compiled") if named == "numba" else named
    inputs = make_inputs(20).to(torch.bfloat16)
    flat = torch.cat([x.flatten(1) for x in inputs.all[:3]], dim=1)
    sizes = [x[0].numel() for x in inputs.all[:3]]
    q, k, v = (
        part.unflatten(1, x.shape[1:])
        for part, x in zip(flat.split(sizes, dim=1), inputs.all[:3], strict=True)
    )
    strided = Inputs(q, k, v, inputs.g.float(), inputs.beta.float())
    whole = decode(strided, make_cache(2, dtype=torch.float32), first=11, backend=backend)
    assert whole.dtype == torch.bfloat16
    assert error(whole, judge(strided)[0], head_dim=1) < 2**-8


# -- gates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_gates(backend: str, dtype: torch.dtype) -> None:
    check_gates(backend, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_gates(compiled: str, dtype: torch.dtype) -> None:
    check_gates(compiled, dtype)
    a = torch.tensor([[torch.nan, 1.0], [torch.inf, -torch.inf]]).to(dtype)
    ones = torch.ones(2)
    g, beta = gated_delta.gates(a, a, decay=ones, dt_bias=ones, backend=compiled)
    want = gated_delta.gates(a, a, decay=ones, dt_bias=ones, backend="torch")
    torch.testing.assert_close((g, beta), want, equal_nan=True)


def check_gates(backend: str, dtype: torch.dtype) -> None:
    """Where exp overflows the input's dtype and float32 as well."""
    a = torch.tensor([[-100.0, -3.0], [0.0, 5.0], [12.0, 30.0], [95.0, 1000.0]]).to(dtype)
    decay, dt_bias = torch.tensor([0.5, 3.0]), torch.tensor([0.25, -0.5])
    g, beta = gated_delta.gates(a, -a, decay=decay, dt_bias=dt_bias, backend=backend)
    wide = torch.promote_types(dtype, torch.float32)
    assert g.dtype == beta.dtype == wide
    x = a.double() + dt_bias
    want = -decay * torch.logaddexp(x, torch.zeros_like(x))
    torch.testing.assert_close(g.double(), want, rtol=1e-6, atol=1e-30)
    torch.testing.assert_close(beta.double(), torch.sigmoid(-a.double()), rtol=1e-6, atol=1e-30)
