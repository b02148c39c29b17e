"""What memory is counted, and what is said when there is not enough."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from draftmark.cache.spec import AttentionSpec, CacheSpec, RecurrentSpec
from draftmark.core.errors import BudgetError, ConfigError
from draftmark.kernels.backends import Backends
from draftmark.layers.recurrent import RecurrentCache
from draftmark.runtime import memory
from draftmark.runtime.device import dtype_of, find_device, name_of
from draftmark.runtime.memory import (
    Caches,
    RunLimits,
    allocate_caches,
    free_bytes,
    total_bytes,
    workspace_bytes,
)
from draftmark.runtime.relay import RowLayout
from draftmark.runtime.sample_state import make_sample_tables, sample_bytes
from draftmark.runtime.slots import SlotState, SlotTables, slot_bytes
from draftmark.runtime.staging import StagingRing, StepShape, staging_bytes
from tests.cpu.runtime.harness import CPU, MAX_CONTEXT, VOCAB, make_stage

SPECS = [AttentionSpec(layer=i, kv_heads=2, head_dim=8, dtype_bytes=4) for i in range(3)]


def allocate(
    num_pages: int, *, specs: Sequence[CacheSpec] = SPECS, num_snapshots: int = 0
) -> Caches:
    return allocate_caches(
        specs,
        limits=RunLimits(
            num_pages=num_pages,
            num_slots=7,
            max_context=MAX_CONTEXT,
            max_running=6,
            prefill_tokens=16,
            num_snapshots=num_snapshots,
        ),
        dtype=torch.float32,
        kv_dtype=torch.float32,
        device=CPU,
    )


def test_there_is_a_pool_a_layer_and_it_begins_as_told() -> None:
    caches = allocate(5)
    caches.fill(torch.nan)
    assert len(caches.layers) == 3
    for pool in caches.layers:
        assert isinstance(pool, torch.Tensor)
        assert pool.shape == (5, 16, 4, 8) and pool.isnan().all()
    assert caches.nbytes == 5 * 16 * sum(spec.token_bytes for spec in SPECS)


def test_states_take_what_their_spec_says() -> None:
    spec = RecurrentSpec(
        layer=0,
        key_heads=2,
        value_heads=4,
        key_dim=3,
        value_dim=5,
        conv_taps=4,
        conv_depth=4,
        records=17,
        dtype_bytes=4,
        state_bytes_each=4,
    )
    caches = allocate(5, specs=[spec], num_snapshots=3)
    assert caches.nbytes == 7 * spec.slot_bytes + 3 * spec.snapshot_bytes
    [cache] = caches.layers
    assert isinstance(cache, RecurrentCache)
    caches.fill(1.0)
    cache.delta.state[2].fill_(5.0)
    cache.conv[2].fill_(6.0)
    caches.save(2, 1)
    caches.zero(0)
    assert all((tensor == 0).all() for tensor in cache.of_slots())
    assert (cache.saved_state[0] == 1).all() and (cache.saved_conv[2] == 1).all()
    caches.restore(4, 1)
    assert (cache.delta.state[4] == 5).all() and (cache.conv[4] == 6).all()
    assert (cache.delta.state[3] == 0).all()


def test_more_pages_than_memory_is_a_budget_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10_000)
    with pytest.raises(BudgetError, match="10000 are free") as caught:
        allocate(50)
    assert caught.value.param == "kv_pool_tokens"


def test_an_allocation_that_fails_is_a_budget_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*shape: object, **options: object) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(BudgetError, match="cannot be allocated"):
        allocate(5)


def test_slot_bytes_are_what_the_tables_take() -> None:
    state = SlotState(num_slots=7, layout=RowLayout(), device=CPU).state
    slots = SlotTables(num_slots=7, max_context=MAX_CONTEXT, device=CPU)
    held = [state, slots.pages, slots.ends, slots.max_drafts]
    assert 7 * slot_bytes(max_context=MAX_CONTEXT, layout=RowLayout()) == sum(
        t.nbytes for t in held
    )
    tables = make_sample_tables(num_slots=7, vocab_size=VOCAB, device=CPU)
    held = [tables.floats, tables.ints, tables.stop_ids]
    held += [tables.bias_ids, tables.bias_values, tables.counts]
    assert 7 * sample_bytes(vocab_size=VOCAB) == sum(t.nbytes for t in held)


def test_staging_bytes_are_what_an_entry_takes() -> None:
    shape = StepShape(max_rows=5, max_prefill_tokens=40)
    entry = StagingRing(1, shape=shape, device=CPU).take()
    held = [
        entry._host,
        entry.packed,
        entry.faults,
        entry.bad_prefill,
        entry.logprobs,
        entry.prompt_logprobs,
    ]
    assert staging_bytes(shape) == sum(tensor.nbytes for tensor in held)


def test_workspace_grows_with_what_a_step_may_hold() -> None:
    stage = make_stage(backends=Backends())
    sizes = {"max_context": 64, "max_running": 4, "prefill_tokens": 32, "cohorts": 1}
    sizes["lane_ends"] = 1
    least = workspace_bytes(stage, **sizes)
    for name in ("max_context", "prefill_tokens", "cohorts", "lane_ends"):
        assert workspace_bytes(stage, **{**sizes, name: 2 * sizes[name]}) > least
    assert workspace_bytes(stage, **{**sizes, "max_running": 200}) > least


def test_a_control_group_limits_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page cache inside the limit counts as free: it is given back on demand."""
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 600000\ninactive_file 300000\n")
    assert memory._group_room(tmp_path) == 400_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._group_room(tmp_path) is None
    assert memory._group_room(tmp_path / "none") is None
    monkeypatch.setattr(memory, "_group_room", lambda group: 5)
    assert free_bytes(CPU) == 5
    assert total_bytes(CPU) > 5


def test_formats_and_devices_by_name() -> None:
    assert dtype_of("bfloat16") is torch.bfloat16 and name_of(torch.float64) == "float64"
    for name in ("int8", "bool", "nn", "nothing"):
        with pytest.raises(ConfigError, match="--dtype"):
            dtype_of(name)
    assert find_device("cpu") == CPU
    if not torch.cuda.is_available():
        assert find_device(None) == CPU
        with pytest.raises(ConfigError, match="--device cuda"):
            find_device("cuda")
