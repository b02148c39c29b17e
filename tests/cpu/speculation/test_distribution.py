"""F08: what is sampled with drafts has the distribution of what is sampled without, and the test
that says so sees a planted bias.

A chain of six tokens: what follows hangs on the last one. Each draw is a row with a seed of its own
and gives two tokens, by windows of two drafts: through the real sampler and acceptance, with
temperature and top_p. The drafts come from other logits, as those of a head do.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from draftmark.kernels import sample as op
from draftmark.speculation.acceptance import count_emitted

VOCAB, DRAWS, K = 6, 200_000, 2
TEMPERATURE, TOP_P = 0.7, 0.9
# Index of the pending token, which is token 0 in every row.
POSITION = 10
FLAGS = int(op.RowFlag.RANDOM | op.RowFlag.TRUNCATED)

_rng = torch.Generator().manual_seed(3)
LOGITS = 1.5 * torch.randn(VOCAB, VOCAB, generator=_rng, dtype=torch.float64)
DRAFT_LOGITS = LOGITS + 0.5 * torch.randn(VOCAB, VOCAB, generator=_rng, dtype=torch.float64)


def tables_of(seed: int, *, top_p: float = TOP_P) -> op.SampleTables:
    floats = torch.zeros(DRAWS, op.NUM_FLOATS, dtype=torch.float64)
    floats[:, op.TEMPERATURE], floats[:, op.TOP_P], floats[:, op.REPETITION] = TEMPERATURE, top_p, 1
    ints = torch.zeros(DRAWS, op.NUM_INTS, dtype=torch.int64)
    ints[:, op.SEED] = torch.arange(DRAWS) + seed * DRAWS
    none = torch.full((DRAWS, 1), -1)
    return op.SampleTables(
        floats=floats,
        ints=ints,
        stop_ids=none,
        bias_ids=none,
        bias_values=torch.zeros(DRAWS, 1, dtype=torch.float64),
        counts=torch.zeros(DRAWS, VOCAB, dtype=torch.int32),
    )


def draw(before: Tensor, *, index: int, tables: op.SampleTables, logits: Tensor = LOGITS) -> Tensor:
    """The token at `index` of each row, `before` [DRAWS] standing ahead of it."""
    return op.sample(
        logits[before],
        slots=torch.arange(DRAWS),
        position=torch.full((DRAWS,), index),
        tables=tables,
        flags=(FLAGS,) * DRAWS,
    )


def draw_plain(tables: op.SampleTables) -> Tensor:
    """[DRAWS, 2]."""
    first = draw(torch.zeros(DRAWS, dtype=torch.int64), index=POSITION + 1, tables=tables)
    return torch.stack((first, draw(first, index=POSITION + 2, tables=tables)), dim=1)


def draft(tables: op.SampleTables) -> Tensor:
    """[DRAWS, K]."""
    drafts, last = [], torch.zeros(DRAWS, dtype=torch.int64)
    for number in range(K):
        last = draw(last, index=POSITION + 1 + number, tables=tables, logits=DRAFT_LOGITS)
        drafts.append(last)
    return torch.stack(drafts, dim=1)


def draw_with_drafts(drafts: Tensor, tables: op.SampleTables) -> tuple[Tensor, float]:
    """[DRAWS, 2] as windows give them, and tokens a window."""
    window = torch.cat((torch.zeros(DRAWS, 1, dtype=torch.int64), drafts), dim=1)
    # Row by row, as a step has them: the tokens of a window one behind the other.
    sampled = op.sample(
        LOGITS[window.flatten()],
        slots=torch.arange(DRAWS).repeat_interleave(K + 1),
        position=(POSITION + 1 + torch.arange(K + 1)).repeat(DRAWS),
        tables=tables,
        flags=(FLAGS,) * (DRAWS * (K + 1)),
    ).view(DRAWS, K + 1)
    emitted, _ = count_emitted(
        sampled,
        drafts,
        num_drafts=torch.full((DRAWS,), K),
        is_end=torch.zeros_like(sampled, dtype=torch.bool),
    )
    # Who emitted one token only gives the second in its next window.
    next_one = draw(sampled[:, 0], index=POSITION + 2, tables=tables)
    second = torch.where(emitted > 1, sampled[:, 1], next_one)
    return torch.stack((sampled[:, 0], second), dim=1), float(emitted.double().mean())


def probabilities(logits: Tensor = LOGITS, *, top_p: float = TOP_P) -> Tensor:
    """[VOCAB, VOCAB] of each token after each, by the definition of top_p."""
    whole = (logits / TEMPERATURE).softmax(-1)
    ordered, ids = whole.sort(dim=-1, descending=True)
    kept = ordered * (ordered.cumsum(-1) - ordered < top_p)
    cut = torch.zeros_like(whole).scatter_(1, ids, kept)
    return cut / cut.sum(-1, keepdim=True)


def p_value(tokens: Tensor) -> float:
    """Of the hypothesis that pairs of tokens [n, 2] are what the chain gives from token 0."""
    chain = probabilities()
    expected = (chain[0][:, None] * chain).flatten() * len(tokens)
    found = torch.bincount(tokens[:, 0] * VOCAB + tokens[:, 1], minlength=VOCAB * VOCAB).double()
    possible = expected > 0
    if found[~possible].any():
        return 0.0
    found, expected = found[possible], expected[possible]
    return chi_square_tail(float(((found - expected) ** 2 / expected).sum()), len(found) - 1)


def chi_square_tail(statistic: float, freedom: int) -> float:
    """P(X >= statistic): the regularised upper incomplete gamma function."""
    a, x = freedom / 2, statistic / 2
    if x == 0.0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:  # 1 - the series of the lower one
        term = total = 1 / a
        for n in range(1, 1000):
            term *= x / (a + n)
            total += term
        return 1.0 - front * total
    fraction = 0.0  # the continued fraction, from far behind
    for n in range(200, 0, -1):
        fraction = n * (n - a) / (x + 2 * n + 1 - a - fraction)
    return front / (x + 1 - a - fraction)


@pytest.mark.parametrize(
    ("statistic", "freedom", "tail"),
    # From tables of the distribution.
    [
        (3.841, 1, 0.05),
        (18.307, 10, 0.05),
        (23.209, 10, 0.01),
        (49.802, 35, 0.05),
        (4.0, 2, 0.1353),
    ],
)
def test_the_tail_is_that_of_the_tables(statistic: float, freedom: int, tail: float) -> None:
    assert chi_square_tail(statistic, freedom) == pytest.approx(tail, rel=3e-3)


def test_f08_drafts_leave_the_distribution_as_it_is() -> None:
    tables = tables_of(1)
    tokens, length = draw_with_drafts(draft(tables), tables)
    assert 1.3 < length < 2.9, "nothing was accepted, or nothing rejected"
    assert p_value(tokens) > 0.01
    plain = draw_plain(tables)
    assert p_value(plain) > 0.01
    # By the same seeds not only the distribution is the same.
    assert torch.equal(tokens, plain)


def test_f08_a_seed_gives_the_same_again_and_another_one_something_else() -> None:
    first, again, other = (
        draw_with_drafts(draft(tables), tables)[0] for tables in map(tables_of, (1, 1, 2))
    )
    assert torch.equal(first, again)
    assert 0.2 < (first != other).any(1).double().mean() < 1.0
    assert p_value(other) > 0.01


def test_f08_drafts_of_any_other_noise_are_as_good() -> None:
    """They are only accepted where plain sampling gives them."""
    tables = tables_of(1)
    tokens, length = draw_with_drafts(draft(tables_of(9)), tables)
    assert length < draw_with_drafts(draft(tables), tables)[1]
    assert torch.equal(tokens, draw_plain(tables))


# -- biases that must be seen ---------------------------------------------------------------------


def by_probability_alone() -> Tensor:
    """Drafts of another noise, accepted with min(1, p / q); who is rejected gets a token of the
    whole distribution instead of what is left of it."""
    tables, foreign = tables_of(1), tables_of(9)
    drafts, plain = draft(foreign), draw_plain(tables)
    target, drafted = probabilities(), probabilities(DRAFT_LOGITS)
    before, tokens = torch.zeros(DRAWS, dtype=torch.int64), []
    alive = torch.ones(DRAWS, dtype=torch.bool)
    chance = torch.rand(DRAWS, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for column in range(2):
        own = drafts[:, column]
        ratio = target[before, own] / drafted[before, own]
        alive = alive & (chance[:, column] < ratio)
        token = plain[:, 0] if column == 0 else draw(before, index=POSITION + 2, tables=tables)
        before = torch.where(alive, own, token)
        tokens.append(before)
    return torch.stack(tokens, dim=1)


def without_top_p() -> Tensor:
    """Whether a draft is right is asked of the whole distribution."""
    tables = tables_of(1)
    drafts = draft(tables)
    first = draw_plain(tables_of(1, top_p=1.0))[:, 0]
    plain = draw_plain(tables)
    accepted = first == drafts[:, 0]
    token = torch.where(accepted, drafts[:, 0], plain[:, 0])
    second = draw(token, index=POSITION + 2, tables=tables)
    return torch.stack((token, torch.where(accepted, drafts[:, 1], second)), dim=1)


def with_one_noise_for_both_places() -> Tensor:
    tables = tables_of(1)
    first = draw(torch.zeros(DRAWS, dtype=torch.int64), index=POSITION + 1, tables=tables)
    return torch.stack((first, draw(first, index=POSITION + 1, tables=tables)), dim=1)


@pytest.mark.parametrize(
    "biased", [by_probability_alone, without_top_p, with_one_noise_for_both_places]
)
def test_f08_a_planted_bias_is_seen(biased: Callable[[], Tensor]) -> None:
    assert p_value(biased()) < 1e-6
