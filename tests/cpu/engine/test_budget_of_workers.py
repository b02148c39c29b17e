"""From what workers say they hold to pools of one size everywhere, and to the settled tree."""

from __future__ import annotations

import msgspec
import pytest

from draftmark.cache.spec import AttentionSpec, CacheSpec, RecurrentSpec, encode_specs
from draftmark.core.errors import BudgetError
from draftmark.core.resolve import load_config, resolve, to_yaml
from draftmark.core.start import DeviceFacts, ModelFacts, WeightsLoaded, WorkerHello
from draftmark.engine.startup import _pools, find_budget, settle

MODEL = ModelFacts(
    model_type="hybrid",
    architecture="HybridForCausalLM",
    num_layers=4,
    vocab_size=512,
    max_context=8192,
    dtype="float32",
    eos_ids=(2,),
    num_parameters=1_000_000,
    checkpoint_bytes=4_000_000,
)
DEVICE = DeviceFacts(
    kind="cpu",
    name="a CPU",
    domain="here",
    total_bytes=16 << 30,
    free_bytes=8 << 30,
    threads=2,
)
PAGES = AttentionSpec(layer=3, kv_heads=2, head_dim=64, dtype_bytes=4)
STATE = RecurrentSpec(
    layer=0,
    key_heads=16,
    value_heads=16,
    key_dim=128,
    value_dim=128,
    conv_taps=4,
    conv_depth=4,
    records=2,
    dtype_bytes=4,
    state_bytes_each=4,
)


def loaded(*specs: CacheSpec) -> WeightsLoaded:
    return WeightsLoaded(
        cache_specs=encode_specs(specs),
        weight_bytes=4_000_000,
        free_bytes=7 << 30,
        fixed_bytes_per_slot=1000,
        workspace_bytes=1 << 20,
        seconds={},
    )


def started(
    *workers: WeightsLoaded, domains: int = 1, **given: object
) -> tuple[int | None, int, int | None, str]:
    """(snapshots of the budget, those of the pools, the settled flag, the file it shows)"""
    declared = load_config(given)
    resolved = resolve(declared, MODEL, DEVICE)
    hellos = [
        WorkerHello(MODEL, msgspec.structs.replace(DEVICE, domain=str(number % domains)))
        for number in range(len(workers))
    ]
    budget = find_budget(declared, resolved, hellos=hellos, loaded=workers)
    settled = settle(resolved, budget)
    shown = settled.config.memory.snapshots
    return budget.num_snapshots, _pools(budget).num_snapshots, shown, to_yaml(settled)


def test_a_model_of_pages_alone_has_no_snapshots() -> None:
    found, pools, shown, file = started(loaded(PAGES))
    assert (found, pools, shown) == (None, 0, None)
    assert "snapshots: auto" in file or "snapshots: null" in file


def test_a_hybrid_model_has_as_many_as_are_settled() -> None:
    found, pools, shown, file = started(loaded(STATE, PAGES))
    assert found == pools == shown == 4 * 80
    assert "snapshots: 320" in file
    assert started(loaded(STATE, PAGES), snapshots=7)[:3] == (7, 7, 7)
    assert started(loaded(STATE, PAGES), snapshots=0)[:3] == (0, 0, 0)


@pytest.mark.parametrize("domains", [1, 2])
def test_stages_of_other_kinds_have_pools_of_one_size(domains: int) -> None:
    found, pools, shown, _ = started(loaded(STATE), loaded(PAGES), domains=domains)
    assert found == pools == shown == 4 * 80


def test_snapshots_are_refused_where_there_is_no_state() -> None:
    with pytest.raises(BudgetError, match="--snapshots 4"):
        started(loaded(PAGES), snapshots=4)
