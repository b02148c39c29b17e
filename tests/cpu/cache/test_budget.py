"""The memory budget: it fits, it uses what it may, and what it proposes fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.cache.budget import (
    Budget,
    BudgetInputs,
    common_budget,
    compute_budget,
    proposals,
)
from draftmark.cache.spec import PAGE_TOKENS, AttentionSpec, CacheSpec, RecurrentSpec
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


def recurrent(layer: int, *, heads: int = 16, dim: int = 128) -> RecurrentSpec:
    return RecurrentSpec(
        layer=layer,
        key_heads=heads,
        value_heads=heads,
        key_dim=dim,
        value_dim=dim,
        conv_taps=4,
        conv_depth=4,
        records=2,
        dtype_bytes=2,
        state_bytes_each=4,
    )


STATE = tuple(recurrent(i) for i in range(30, 39))
EACH = sum(spec.snapshot_bytes for spec in STATE)
HYBRID = replace(SMALL, specs=SMALL.specs + STATE, base_bytes=16 * GIB, free_bytes=15 * GIB)


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


def test_snapshots_take_a_quarter_of_the_room() -> None:
    budget = compute_budget(HYBRID)
    assert budget.num_snapshots == budget.room_bytes // 4 // EACH
    assert budget.total_bytes <= 8 * GIB < budget.total_bytes + HYBRID.page_bytes
    assert f"{budget.num_snapshots} of 9.4 MiB each" in budget.explain()
    assert "snapshots" not in compute_budget(SMALL).explain()
    assert compute_budget(SMALL).num_snapshots is None


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({"snapshots": 5}, 5),
        ({"snapshots": 0}, 0),
        ({"max_running": 4}, 4 * 5),  # four a slot
        ({"memory_fraction": 0.08}, 1),
        ({"memory_fraction": 0.0787}, 0),
        ({"kv_pool_tokens": 260_000}, 126),  # what the pool that was asked for leaves
        ({"max_context": 260_000}, 126),
    ],
)
def test_as_many_snapshots_as_asked_for_or_as_there_is_room_for(
    changed: dict[str, float], count: int
) -> None:
    assert compute_budget(replace(HYBRID, **changed)).num_snapshots == count


def test_too_many_snapshots_are_refused_and_fewer_proposed() -> None:
    with pytest.raises(BudgetError, match="--snapshots") as caught:
        compute_budget(replace(HYBRID, snapshots=10_000))
    assert caught.value.param == "snapshots"
    assert "10000 snapshots (" in caught.value.message


def test_pages_cost_nothing_where_every_layer_is_recurrent() -> None:
    budget = compute_budget(replace(HYBRID, specs=STATE, max_running=3))
    assert budget.pool_bytes == budget.bytes_per_token == 0
    assert budget.pool_tokens == 3 * 8192
    assert compute_budget(replace(HYBRID, specs=STATE, max_context=100)).pool_tokens == 64 * 112
    assert compute_budget(replace(HYBRID, specs=STATE, kv_pool_tokens=999)).pool_tokens == 1008
    assert budget.explain()


def test_memories_share_the_numbers_of_pages_and_snapshots() -> None:
    small, large = replace(HYBRID, memory_fraction=0.3), replace(HYBRID, memory_fraction=0.6)
    alone = compute_budget(small)
    assert common_budget([large, small]) == alone
    # A stage whose layers are all recurrent does not limit pages, one without any no snapshots.
    state = replace(small, specs=STATE, max_running=4)
    pages = replace(large, specs=SMALL.specs, max_running=4)
    together = common_budget([state, pages])
    assert together.num_snapshots == compute_budget(state).num_snapshots
    assert together.num_pages == compute_budget(pages).num_pages > compute_budget(state).num_pages
    assert common_budget([pages, pages]).num_snapshots is None
    assert common_budget([state, state]).bytes_per_token == 0


def test_a_memory_with_few_snapshots_leaves_the_others_room_for_pages() -> None:
    few = replace(HYBRID, specs=STATE, memory_fraction=0.12)
    together = common_budget([HYBRID, few])
    assert together.num_snapshots == compute_budget(few).num_snapshots
    assert together.num_pages > compute_budget(HYBRID).num_pages


def test_snapshots_of_a_model_that_has_no_state_are_refused() -> None:
    with pytest.raises(BudgetError, match="no layer of this model is recurrent"):
        common_budget([replace(SMALL, snapshots=3)])


any_spec: st.SearchStrategy[CacheSpec] = st.builds(
    AttentionSpec,
    layer=st.integers(0, 80),
    kv_heads=st.integers(1, 16),
    head_dim=st.sampled_from([16, 64, 128]),
    dtype_bytes=st.sampled_from([2, 4, 8]),
) | st.builds(
    recurrent, st.integers(0, 80), heads=st.integers(1, 32), dim=st.sampled_from([16, 128])
)
sizes = st.builds(
    BudgetInputs,
    memory_fraction=st.floats(0.01, 1.0),
    base_bytes=st.integers(0, 64 * GIB),
    free_bytes=st.integers(0, 64 * GIB),
    weight_bytes=st.integers(0, 40 * GIB),
    workspace_bytes=st.integers(0, 4 * GIB),
    fixed_bytes_per_slot=st.integers(0, 64 * MIB),
    specs=st.lists(any_spec, min_size=1, max_size=8).map(tuple),
    model_context=st.integers(16, 1 << 20),
    max_running=st.integers(1, 600),
    max_context=st.none() | st.integers(1, 1 << 20),
    state_slots=st.none() | st.integers(1, 600),
    kv_pool_tokens=st.none() | st.integers(1, 1 << 22),
    snapshots=st.none() | st.integers(0, 2000),
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
    token = sum(spec.token_bytes for spec in wanted.specs)
    pools = budget.num_pages * PAGE_TOKENS * token
    slot = wanted.fixed_bytes_per_slot + sum(spec.slot_bytes for spec in wanted.specs)
    pools += budget.num_slots * slot + wanted.workspace_bytes
    pools += (budget.num_snapshots or 0) * sum(spec.snapshot_bytes for spec in wanted.specs)
    has_state = any(isinstance(spec, RecurrentSpec) for spec in wanted.specs)
    if wanted.snapshots is None:
        assert (budget.num_snapshots is None) != has_state
    else:
        assert budget.num_snapshots == wanted.snapshots
    assert pools <= wanted.free_bytes
    assert pools + wanted.weight_bytes <= wanted.memory_fraction * wanted.base_bytes
    assert budget.num_pages >= 2 and budget.num_slots > wanted.max_running
    assert budget.pool_tokens >= budget.max_context >= 1
    assert budget.pool_tokens >= (wanted.kv_pool_tokens or 0)
    assert wanted.max_context in (None, budget.max_context)
    assert budget.explain()
