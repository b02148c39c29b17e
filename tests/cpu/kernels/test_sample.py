"""The sampler against its reference, against exact distributions, and alone against in a batch."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from draftmark.kernels import sample as op
from draftmark.kernels.backends import has_numba
from draftmark.kernels.sample import RowFlag, noise, reference
from draftmark.kernels.sample import torch as plain
from draftmark.kernels.sample.tables import SampleTables

ALL_FLAGS = RowFlag.BIAS | RowFlag.MIN_TOKENS | RowFlag.PENALTIES | RowFlag.TRUNCATED


def make_tables(num_slots: int, vocab: int, rng: random.Random | None = None) -> SampleTables:
    """Neutral parameters, or random ones: each parameter neutral in about half of the slots."""
    floats = torch.zeros(num_slots, op.NUM_FLOATS, dtype=torch.float64)
    floats[:, op.TEMPERATURE] = 1.0
    floats[:, op.TOP_P] = 1.0
    floats[:, op.REPETITION] = 1.0
    tables = SampleTables(
        floats=floats,
        ints=torch.zeros(num_slots, op.NUM_INTS, dtype=torch.int64),
        stop_ids=torch.full((num_slots, 4), -1),
        bias_ids=torch.full((num_slots, 8), -1),
        bias_values=torch.zeros(num_slots, 8, dtype=torch.float64),
        counts=torch.zeros(num_slots, vocab, dtype=torch.int32),
    )
    if rng is None:
        return tables
    for slot in range(num_slots):
        row = floats[slot]
        row[op.TEMPERATURE] = rng.choice([0.0, 0.2, 0.7, 1.0, 1.5, 1e-9, 50.0])
        row[op.TOP_P] = rng.choice([1.0, 1.0, 0.5, 0.9, 0.99, 1e-6, 0.9999])
        row[op.MIN_P] = rng.choice([0.0, 0.0, 0.1, 0.7, 1.0])
        row[op.PRESENCE] = rng.choice([0.0, 1.3, -0.5])
        row[op.FREQUENCY] = rng.choice([0.0, 0.4, -0.2])
        row[op.REPETITION] = rng.choice([1.0, 1.2, 0.8])
        tables.ints[slot, op.SEED] = rng.randrange(-(2**63), 2**63)
        tables.ints[slot, op.TOP_K] = rng.choice([0, 0, 1, 2, 7, 50, vocab, 10 * vocab])
        tables.ints[slot, op.MIN_END] = rng.choice([0, 1000])
        for column in range(rng.randrange(5)):
            tables.stop_ids[slot, column] = rng.randrange(vocab)
        ids = rng.sample(range(vocab), rng.randrange(7))
        tables.bias_ids[slot, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
        tables.bias_values[slot, : len(ids)] = torch.tensor(
            [rng.uniform(-5, 5) for _ in ids], dtype=torch.float64
        )
        for token in rng.sample(range(vocab), 6):
            tables.counts[slot, token] = rng.choice([op.IN_PROMPT, 1, 3, op.IN_PROMPT + 2])
    return tables


def row_flags(tables: SampleTables, slots: Tensor, *, others: RowFlag = ALL_FLAGS) -> tuple:
    hot = tables.floats[slots, op.TEMPERATURE] > 0
    return tuple(others | (RowFlag.RANDOM if h else RowFlag.PLAIN) for h in hot.tolist())


def make_logits(rows: int, vocab: int, rng: random.Random, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    logits = torch.randn(rows, vocab, generator=generator) * rng.choice([0.1, 1.0, 4.0, 20.0])
    if rng.random() < 0.5:  # many ties, as bf16 heads give
        logits = (logits * 2).round() / 2
    if rng.random() < 0.1:
        logits = torch.zeros(rows, vocab)
    return logits.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("vocab", [7, 61, 512, 1000])
def test_equals_the_full_sort_reference(vocab: int, dtype: torch.dtype) -> None:
    rng = random.Random(f"{vocab}{dtype}")
    for _ in range(12):
        tables = make_tables(9, vocab, rng)
        slots = torch.tensor(rng.sample(range(9), 7))
        position = torch.tensor([rng.choice([3, 999, 1000, 5000]) for _ in range(7)])
        logits = make_logits(7, vocab, rng, dtype)
        before = logits.clone()
        flags = row_flags(tables, slots)
        arguments = {"slots": slots, "position": position, "tables": tables, "flags": flags}
        got = op.sample(logits, **arguments)
        assert got.tolist() == op.sample(logits, **arguments, backend="reference").tolist()
        assert torch.equal(logits, before)


def test_equals_the_reference_at_the_vocabulary_of_a_model() -> None:
    """Peaked and flat rows, so that every guess of the top_p threshold is taken."""
    rng = random.Random(5)
    tables = make_tables(12, 49152, rng)
    tables.floats[:4, op.TOP_P] = 0.95
    tables.floats[:4, op.TEMPERATURE] = 1.0
    tables.ints[:4, op.TOP_K] = 0
    slots = torch.arange(12)
    generator = torch.Generator().manual_seed(3)
    spread = torch.tensor([0.01, 0.5, 3.0, 9.0, 0.0, 0.1, 1, 1, 2, 2, 4, 4])[:, None]
    logits = torch.randn(12, 49152, generator=generator) * spread
    flags = row_flags(tables, slots)
    arguments = {"slots": slots, "position": slots + 40, "tables": tables, "flags": flags}
    want = op.sample(logits, **arguments, backend="reference")
    assert op.sample(logits, **arguments).tolist() == want.tolist()


@pytest.mark.parametrize("tail_weight", [3e-2, 1e-3, 1e-5, 1e-9])
def test_top_p_reaches_into_a_heavy_tail(tail_weight: float) -> None:
    """One peak over a tail so wide that it holds most of the mass: the first guesses of the
    threshold find only the peak, whose own mass is not enough."""
    vocab, rows = 4096, 24
    tables = make_tables(rows, vocab)
    tables.floats[:, op.TOP_P] = 0.97
    tables.ints[:, op.SEED] = torch.arange(rows)
    logits = torch.full((rows, vocab), math.log(tail_weight), dtype=torch.float64)
    logits += torch.arange(vocab) * 1e-6
    logits[:, 77] = 0.0 if tail_weight > 1e-6 else -5.0  # the last is an ordinary flat row
    slots = torch.arange(rows)
    arguments = {
        "slots": slots,
        "position": slots,
        "tables": tables,
        "flags": row_flags(tables, slots),
    }
    want = op.sample(logits, **arguments, backend="reference").tolist()
    assert op.sample(logits, **arguments).tolist() == want
    if tail_weight in (3e-2, 1e-3):
        assert len(set(want)) > 2


def test_does_not_depend_on_batch_row_or_slot() -> None:
    rng = random.Random(11)
    vocab = 49152
    tables = make_tables(24, vocab, rng)
    slots = torch.arange(24)
    logits = make_logits(24, vocab, rng, torch.float32)
    position = slots * 3 + 7
    flags = row_flags(tables, slots)
    together = op.sample(logits, slots=slots, position=position, tables=tables, flags=flags)
    order = torch.tensor(rng.sample(range(24), 24))
    shuffled = op.sample(
        logits[order],
        slots=slots[order],
        position=position[order],
        tables=tables,
        flags=tuple(flags[row] for row in order.tolist()),
    )
    assert shuffled.tolist() == together[order].tolist()
    for row in range(24):
        alone = op.sample(
            logits[row : row + 1],
            slots=slots[row : row + 1],
            position=position[row : row + 1],
            tables=tables,
            flags=flags[row : row + 1],
        )
        assert alone.item() == together[row].item()


def test_row_sums_are_bitwise_the_same_alone_and_in_a_batch() -> None:
    x = torch.rand(64, 49152, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    sums = plain.sum_rows(x)
    alone = torch.cat([plain.sum_rows(x[row : row + 1]) for row in range(64)])
    assert torch.equal(sums, alone)
    odd = x[:, :999].contiguous()
    alone = torch.cat([plain.sum_rows(odd[row : row + 1]) for row in range(64)])
    assert torch.equal(plain.sum_rows(odd), alone)


def test_flags_only_save_work() -> None:
    rng = random.Random(2)
    tables = make_tables(8, 300)
    tables.floats[:, op.TEMPERATURE] = torch.tensor([0.0, 1.0] * 4, dtype=torch.float64)
    slots = torch.arange(8)
    logits = make_logits(8, 300, rng, torch.float32)
    results = [
        op.sample(
            logits,
            slots=slots,
            position=slots,
            tables=tables,
            flags=row_flags(tables, slots, others=others),
        ).tolist()
        for others in (RowFlag.PLAIN, RowFlag.BIAS, RowFlag.TRUNCATED, ALL_FLAGS)
    ]
    assert results[0] == results[1] == results[2] == results[3]


def test_greedy_takes_the_lowest_id_among_equals_and_no_noise() -> None:
    logits = torch.zeros(2, 1024)
    logits[0, [700, 300, 900]] = 5.0
    tables = make_tables(2, 1024)
    tables.floats[:, op.TEMPERATURE] = 0.0
    slots = torch.arange(2)
    for seed in range(5):
        tables.ints[:, op.SEED] = seed
        flags = (RowFlag.PLAIN, ALL_FLAGS)
        got = op.sample(logits, slots=slots, position=slots, tables=tables, flags=flags)
        assert got.tolist() == [300, 0]


def test_top_p_on_ties_keeps_the_lowest_ids() -> None:
    """Ten equal tokens, top_p 0.3: exactly the first three can ever be drawn."""
    logits = torch.zeros(400, 10, dtype=torch.float64)
    tables = make_tables(400, 10)
    tables.floats[:, op.TOP_P] = 0.3
    slots = torch.arange(400)
    drawn = op.sample(
        logits, slots=slots, position=slots, tables=tables, flags=row_flags(tables, slots)
    )
    assert set(drawn.tolist()) == {0, 1, 2}
    tables.floats[:, op.TOP_P] = 1.0
    tables.ints[:, op.TOP_K] = 4
    drawn = op.sample(
        logits, slots=slots, position=slots, tables=tables, flags=row_flags(tables, slots)
    )
    assert set(drawn.tolist()) == {0, 1, 2, 3}


# -- distribution ---------------------------------------------------------------------------------

DRAWS = 12_000
LOGITS = [2.0, 1.0, 0.5, 0.0, -1.0, 1.5, -0.5]
# 99.99th percentile of chi-square with 6 degrees of freedom (seven tokens).
CHI_SQUARE_LIMIT = 27.86


def chi_square(drawn: Tensor, exact: Tensor) -> float:
    observed = torch.bincount(drawn, minlength=len(exact)).double()
    expected = exact * len(drawn)
    assert observed[exact == 0].sum() == 0, "a truncated token was drawn"
    kept = exact > 0
    return float(((observed - expected)[kept] ** 2 / expected[kept]).sum())


def draw_many(tables: SampleTables, *, seeds: Tensor, positions: Tensor) -> Tensor:
    tables = replace(tables, ints=tables.ints.expand(len(seeds), -1).clone())
    tables = replace(tables, floats=tables.floats.expand(len(seeds), -1))
    tables.ints[:, op.SEED] = seeds
    slots = torch.arange(len(seeds))
    logits = torch.tensor([LOGITS]).expand(len(seeds), -1).contiguous()
    flags = (RowFlag.RANDOM | RowFlag.TRUNCATED,) * len(seeds)
    return op.sample(logits, slots=slots, position=positions, tables=tables, flags=flags)


@pytest.mark.parametrize("axis", ["seeds", "positions"])
@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_distribution_is_exact(temperature: float, axis: str) -> None:
    tables = make_tables(1, 7)
    tables.floats[:, op.TEMPERATURE] = temperature
    counter = torch.arange(DRAWS)
    fixed = torch.full((DRAWS,), 77)
    seeds, positions = (counter, fixed) if axis == "seeds" else (fixed, counter)
    exact = (torch.tensor(LOGITS, dtype=torch.float64) / temperature).softmax(0)
    assert chi_square(draw_many(tables, seeds=seeds, positions=positions), exact) < CHI_SQUARE_LIMIT


def test_truncated_distribution_is_exact() -> None:
    tables = make_tables(1, 7)
    tables.ints[:, op.TOP_K] = 5
    tables.floats[:, op.TOP_P] = 0.8
    tables.floats[:, op.MIN_P] = 0.05
    exact = torch.tensor(LOGITS, dtype=torch.float64).softmax(0)
    exact[[4, 6]] = 0  # top_k keeps 0 5 1 2 3
    exact /= exact.sum()
    exact[[2, 3]] = 0  # 0, 5 and 1 reach 0.8
    exact /= exact.sum()
    counter = torch.arange(DRAWS)
    drawn = draw_many(tables, seeds=counter, positions=counter)
    assert chi_square(drawn, exact) < CHI_SQUARE_LIMIT


def test_the_distribution_test_sees_a_small_bias() -> None:
    """A seventh of a nat on one token is caught, so a wrong noise formula would be."""
    tables = make_tables(1, 7)
    biased = torch.tensor(LOGITS, dtype=torch.float64)
    biased[1] += 0.15
    drawn = draw_many(tables, seeds=torch.arange(DRAWS), positions=torch.full((DRAWS,), 5))
    assert chi_square(drawn, biased.softmax(0)) > CHI_SQUARE_LIMIT


def test_tokens_of_neighbouring_positions_and_seeds_are_independent() -> None:
    tables = make_tables(1, 7)
    exact = torch.tensor(LOGITS, dtype=torch.float64).softmax(0)
    pairs = (exact[:, None] * exact[None]).flatten()
    counter = torch.arange(DRAWS)
    fixed = torch.full((DRAWS,), 3)
    for seeds, positions in ((counter, fixed), (fixed, counter)):
        drawn = draw_many(tables, seeds=seeds, positions=positions)
        joint = drawn[0::2] * 7 + drawn[1::2]
        assert chi_square(joint, pairs) < 100  # 48 degrees of freedom, 99.99th percentile 94


def test_noise_equals_integer_arithmetic_in_python() -> None:
    rng = random.Random(9)
    seeds = [rng.randrange(-(2**63), 2**63) for _ in range(20)] + [0, -1, 2**63 - 1]
    positions = [rng.randrange(2**20) for _ in seeds]
    ids = torch.tensor([[rng.randrange(200_000) for _ in range(9)] for _ in seeds])
    keys = noise.row_keys(torch.tensor(seeds), torch.tensor(positions))
    got = noise.gumbel(keys, ids)
    for row, (seed, position) in enumerate(zip(seeds, positions, strict=True)):
        for column, token in enumerate(ids[row].tolist()):
            want = reference.noise(seed, position, token)
            assert math.isclose(got[row, column].item(), want, rel_tol=1e-12, abs_tol=1e-12)


# -- processing -----------------------------------------------------------------------------------


def naive_penalties(
    logits: list[float], prompt: list[int], output: list[int], r: float, p: float, f: float
) -> list[float]:
    result = list(logits)
    for token in set(prompt) | set(output):
        result[token] = result[token] / r if result[token] > 0 else result[token] * r
    for token in set(output):
        result[token] -= f * output.count(token) + p
    return result


def test_penalties_equal_a_naive_reference() -> None:
    rng = random.Random(4)
    for _ in range(20):
        prompt = [rng.randrange(30) for _ in range(rng.randrange(12))]
        output = [rng.randrange(30) for _ in range(rng.randrange(12))]
        r, p, f = rng.uniform(0.5, 2), rng.uniform(-2, 2), rng.uniform(-2, 2)
        tables = make_tables(1, 30)
        tables.floats[0, [op.REPETITION, op.PRESENCE, op.FREQUENCY]] = torch.tensor(
            [r, p, f], dtype=torch.float64
        )
        for token in set(prompt):
            tables.counts[0, token] |= op.IN_PROMPT
        for token in output:
            tables.counts[0, token] += 1
        row = torch.randn(1, 30, dtype=torch.float64)
        want = naive_penalties(row[0].tolist(), prompt, output, r, p, f)
        plain.process_(
            row,
            slots=torch.tensor([0]),
            position=torch.tensor([99]),
            tables=tables,
            flags=[RowFlag.PENALTIES],
        )
        assert row[0].tolist() == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_tokens_of_a_window_count_as_output(backend: str) -> None:
    """As if they stood in the table, of their own row only."""
    rng = random.Random(5)
    tables = make_tables(4, 60, rng)
    logits = torch.randn(4, 60, dtype=torch.float64)
    slots, position = torch.arange(4), torch.tensor([5, 6, 7, 8])
    window = torch.tensor([[3, 3, 9], [-1, -1, -1], [0, -1, -1], [7, 8, -1]])
    flags = row_flags(tables, slots)
    given = op.sample(
        logits,
        slots=slots,
        position=position,
        tables=tables,
        flags=flags,
        window=window,
        backend=backend,
    )
    for row, tokens in enumerate(window.tolist()):
        for token in tokens:
            if token >= 0:
                tables.counts[row, token] += 1
    counted = op.sample(
        logits, slots=slots, position=position, tables=tables, flags=flags, backend=backend
    )
    assert given.tolist() == counted.tolist()


def test_min_tokens_masks_stop_ids_until_the_position() -> None:
    tables = make_tables(1, 40)
    tables.floats[:, op.TEMPERATURE] = 0.0
    tables.stop_ids[0, :2] = torch.tensor([3, 8])
    tables.ints[0, op.MIN_END] = 10
    logits = torch.zeros(1, 40)
    logits[0, [3, 8, 20]] = torch.tensor([9.0, 8.0, 1.0])
    for position, want in ((9, 20), (10, 3)):
        got = op.sample(
            logits,
            slots=torch.tensor([0]),
            position=torch.tensor([position]),
            tables=tables,
            flags=(RowFlag.MIN_TOKENS,),
        )
        assert got.item() == want


# -- logprobs and faults --------------------------------------------------------------------------


@pytest.mark.parametrize("vocab", [61, 1000, 49152])
def test_logprobs_equal_the_reference(vocab: int) -> None:
    rng = random.Random(vocab)
    num_rows = 13 if vocab < 2000 else 3
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        logits = make_logits(num_rows, vocab, rng, dtype)
        logits[1] = 0.0
        chosen = torch.tensor([rng.randrange(vocab) for _ in range(num_rows)])
        for top in (0, 1, 20):
            got = op.logprobs(logits, chosen=chosen, top=top)
            want = op.logprobs(logits, chosen=chosen, top=top, backend="reference")
            torch.testing.assert_close(got.chosen, want.chosen, rtol=0, atol=1e-9)
            torch.testing.assert_close(got.top_values, want.top_values, rtol=0, atol=1e-9)
            assert got.rank.tolist() == want.rank.tolist()
            assert got.top_ids.tolist() == want.top_ids.tolist()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("vocab", [61, 512])
def test_non_finite_logits_are_flagged_and_do_not_disturb_other_rows(
    vocab: int, bad: float
) -> None:
    rng = random.Random(1)
    tables = make_tables(6, vocab, rng)
    slots = torch.arange(6)
    logits = torch.randn(6, vocab, generator=torch.Generator().manual_seed(0))
    flags = row_flags(tables, slots)
    arguments = {"slots": slots, "position": slots + 5, "tables": tables, "flags": flags}
    clean = op.sample(logits, **arguments).tolist()
    assert op.is_finite(logits).tolist() == [True] * 6
    for row in range(6):
        poisoned = logits.clone()
        poisoned[row, rng.randrange(vocab)] = bad
        assert op.is_finite(poisoned).tolist() == [other != row for other in range(6)]
        got = op.sample(poisoned, **arguments).tolist()
        assert got[:row] + got[row + 1 :] == clean[:row] + clean[row + 1 :]
        assert 0 <= got[row] < vocab


@pytest.fixture
def compiled() -> str:
    if not has_numba(torch.device("cpu"), torch.float32):
        pytest.skip("numba is not installed")
    return "numba"


@pytest.mark.parametrize("vocab", [1, 16, 61, 512, 4099])
def test_compiled_greedy_rows(vocab: int, compiled: str) -> None:
    """Few different values: many are equal, the zeros of both signs among them."""
    generator = torch.Generator().manual_seed(vocab)
    tables = make_tables(9, vocab)
    tables.floats[:, op.TEMPERATURE] = 0.0
    arguments = {"slots": torch.arange(9), "position": torch.arange(9), "tables": tables}
    for scale in (0.6, 3.0, 1e30):
        logits = (torch.randn(9, vocab, generator=generator) * scale).round()
        logits[4] = -logits[4].abs()  # the largest is a zero
        for given in (logits, logits.double(), logits.t().contiguous().t()):
            got = op.sample(given, flags=(0,) * 9, backend=compiled, **arguments)
            want = op.sample(given, flags=(0,) * 9, backend="reference", **arguments)
            assert got.tolist() == want.tolist()
        assert op.is_finite(logits, backend=compiled).all()


def test_compiled_rows_that_are_not_all_greedy(compiled: str) -> None:
    rng = random.Random(3)
    tables, slots = make_tables(8, 300, rng), torch.arange(8)
    logits = torch.randn(8, 300, generator=torch.Generator().manual_seed(3))
    arguments = {"slots": slots, "position": slots + 2, "tables": tables}
    flags = row_flags(tables, slots)
    got, want = (
        op.sample(logits, flags=flags, backend=name, **arguments) for name in (compiled, "torch")
    )
    assert any(flags) and got.tolist() == want.tolist()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("vocab", [1, 61, 512])
def test_compiled_non_finite_logits_are_flagged(vocab: int, bad: float, compiled: str) -> None:
    tables, slots = make_tables(5, vocab), torch.arange(5)
    for place in {0, vocab // 2, vocab - 1}:
        logits = torch.randn(5, vocab, generator=torch.Generator().manual_seed(1))
        logits[3, place] = bad
        assert op.is_finite(logits, backend=compiled).tolist() == [True, True, True, False, True]
        got = op.sample(
            logits, slots=slots, position=slots, tables=tables, flags=(0,) * 5, backend=compiled
        )
        assert 0 <= int(got[3]) < vocab
