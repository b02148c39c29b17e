"""The memory budget: it fits, it uses what it may, and what it proposes fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.cache.budget import Budget, BudgetInputs, compute_budget, proposals
from draftmark.cache.spec import PAGE_TOKENS, AttentionSpec
from draftmark.core.errors import BudgetError

MIB = 1 << 20
GIB = 1 << 30

SMALL = BudgetInputs(
    memory_fraction=0.5,
    base_bytes=8 * GIB,
    free_bytes=7 * GIB,
    weight_bytes=300 * MIB,
    workspace_bytes=200 * MIB,
    fixed_bytes_per_slot=4096,
    specs=tuple(AttentionSpec(layer=i, kv_heads=3, head_dim=64, dtype_bytes=2) for i in range(30)),
    model_context=8192,
    max_running=64,
)


def test_an_ordinary_machine() -> None:
    budget = compute_budget(SMALL)
    assert budget.num_slots == 64 + 16 + 1
    assert budget.pool_tokens == (budget.num_pages - 1) * PAGE_TOKENS
    assert budget.max_context == 8192
    assert budget.total_bytes <= 4 * GIB < budget.total_bytes + SMALL.page_bytes


def test_the_context_shrinks_to_the_pool_when_it_is_auto() -> None:
    assert compute_budget(replace(SMALL, kv_pool_tokens=1000)).max_context == 1008
    assert compute_budget(replace(SMALL, kv_pool_tokens=1000)).num_pages == 64


def test_what_is_free_binds_too() -> None:
    budget = compute_budget(replace(SMALL, free_bytes=GIB))
    assert budget.total_bytes - budget.weight_bytes <= GIB


def test_the_explanation_names_the_parts() -> None:
    text = compute_budget(SMALL).explain()
    for word in ("weights", "300.0 MiB", "KV pool", "23,040 bytes a token", "8,192 tokens"):
        assert word in text, text


@pytest.mark.parametrize(
    ("wanted", "param", "advice"),
    [
        (replace(SMALL, max_context=10**6), "max_context", "--max-context"),
        (replace(SMALL, kv_pool_tokens=10**6), "kv_pool_tokens", "--kv-pool-tokens"),
        (replace(SMALL, base_bytes=600 * MIB), "memory_fraction", "--memory-fraction"),
        (replace(SMALL, fixed_bytes_per_slot=200 * MIB), "memory_fraction", "--max-running"),
        (replace(SMALL, state_slots=10, max_running=20), "state_slots", "--max-running 10"),
    ],
)
def test_an_impossible_budget_says_what_would_fit(
    wanted: BudgetInputs, param: str, advice: str
) -> None:
    with pytest.raises(BudgetError) as caught:
        compute_budget(wanted)
    assert caught.value.param == param
    assert advice in caught.value.message


def test_nothing_fits_a_model_that_is_too_big() -> None:
    with pytest.raises(BudgetError, match="No choice of flags"):
        compute_budget(replace(SMALL, weight_bytes=9 * GIB, free_bytes=0))


def test_the_largest_context_is_proposed() -> None:
    wanted = replace(SMALL, max_context=10**6)
    (first, *_) = proposals(wanted)
    ((name, value),) = first.values
    assert name == "max_context"
    compute_budget(first.applied_to(wanted))
    with pytest.raises(BudgetError):
        compute_budget(replace(wanted, max_context=value + 1))


sizes = st.builds(
    BudgetInputs,
    memory_fraction=st.floats(0.01, 1.0),
    base_bytes=st.integers(0, 64 * GIB),
    free_bytes=st.integers(0, 64 * GIB),
    weight_bytes=st.integers(0, 40 * GIB),
    workspace_bytes=st.integers(0, 4 * GIB),
    fixed_bytes_per_slot=st.integers(0, 64 * MIB),
    specs=st.lists(
        st.builds(
            AttentionSpec,
            layer=st.integers(0, 80),
            kv_heads=st.integers(1, 16),
            head_dim=st.sampled_from([16, 64, 128]),
            dtype_bytes=st.sampled_from([2, 4, 8]),
        ),
        min_size=1,
        max_size=8,
    ).map(tuple),
    model_context=st.integers(16, 1 << 20),
    max_running=st.integers(1, 600),
    max_context=st.none() | st.integers(1, 1 << 20),
    state_slots=st.none() | st.integers(1, 600),
    kv_pool_tokens=st.none() | st.integers(1, 1 << 22),
)


@settings(max_examples=300)
@given(sizes)
def test_a_budget_fits_or_what_is_proposed_does(wanted: BudgetInputs) -> None:
    try:
        check_fits(wanted, compute_budget(wanted))
    except BudgetError as error:
        found = proposals(wanted)
        for proposal in found:
            changed = proposal.applied_to(wanted)
            check_fits(changed, compute_budget(changed))
            assert str(proposal) in error.message
        assert bool(found) != ("No choice of flags" in error.message)


def check_fits(wanted: BudgetInputs, budget: Budget) -> None:
    """Recomputed from the parts, not from the budget's own sums."""
    token = sum(2 * s.kv_heads * s.head_dim * s.dtype_bytes for s in wanted.specs)
    pools = budget.num_pages * PAGE_TOKENS * token
    pools += budget.num_slots * wanted.fixed_bytes_per_slot + wanted.workspace_bytes
    assert pools <= wanted.free_bytes
    assert pools + wanted.weight_bytes <= wanted.memory_fraction * wanted.base_bytes
    assert budget.num_pages >= 2 and budget.num_slots > wanted.max_running
    assert budget.pool_tokens >= budget.max_context >= 1
    assert budget.pool_tokens >= (wanted.kv_pool_tokens or 0)
    assert wanted.max_context in (None, budget.max_context)
    assert budget.explain()
