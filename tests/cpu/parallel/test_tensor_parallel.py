"""A stage over several tensor ranks gives what one rank gives, and every rank the same bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from draftmark.core.errors import ConfigError
from draftmark.kernels.backends import REFERENCE, Backends, choose
from draftmark.layers.decoder import DecoderConfig
from draftmark.layers.embedding import Embedding
from draftmark.layers.weight import Placement
from draftmark.models.stage import Stage
from draftmark.parallel.collectives import TensorGroup, Unconnected
from draftmark.parallel.mesh import Mesh
from tests.cpu.parallel.ranked_stage import CPU, Output, Runner, fill, make_config, make_stage
from tests.fakes.thread_group import run_ranks

IDS = torch.randint(0, 101, (21,), generator=torch.Generator().manual_seed(3))
STEPS = (IDS, torch.tensor([100]), torch.tensor([0, 26, 52, 78]))

# Family, and KV heads where there are 4 query heads: some shared by ranks, some not.
MODELS = [("llama", 4), ("llama", 2), ("qwen3", 2), ("qwen3", 1)]


def run_all(
    size: int,
    config: DecoderConfig,
    *,
    dtype: torch.dtype = torch.float64,
    backends: Backends = REFERENCE,
    spoil: Callable[[Stage], None] = lambda stage: None,
) -> list[list[Output]]:
    """What each rank gives for a prefill, a decode step and a verify row of 4 tokens."""

    def one(group: TensorGroup) -> list[Output]:
        with torch.inference_mode():
            stage = fill(make_stage(config, group, dtype=dtype, backends=backends))
            spoil(stage)
            runner = Runner(stage)
            return [runner.feed(ids) for ids in STEPS]

    return run_ranks(size, one)


def assert_same_bits(ranks: list[list[Output]]) -> None:
    for outputs in ranks[1:]:
        for ours, first in zip(outputs, ranks[0], strict=True):
            for name in ("hidden", "logits", "bad_layer"):
                assert same_bits(getattr(ours, name), getattr(first, name)), name


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Unlike `torch.equal`: NaN equals itself, and a negative zero no positive one."""
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("family", "kv_heads"), MODELS)
def test_ranks_give_what_one_gives(family: str, kv_heads: int, size: int, backend: str) -> None:
    config = make_config(family, kv_heads=kv_heads)
    backends = REFERENCE if backend == "reference" else choose(CPU, dtype=torch.float64)
    (alone,) = run_all(1, config, backends=backends)
    ranks = run_all(size, config, backends=backends)
    assert_same_bits(ranks)
    for ours, theirs in zip(ranks[0], alone, strict=True):
        torch.testing.assert_close(ours.hidden, theirs.hidden, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-12, atol=1e-12)
        assert torch.equal(ours.logits.argmax(1), theirs.logits.argmax(1))
        assert (ours.bad_layer == -1).all()


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_narrow_ranks_agree_to_the_bit(family: str, size: int) -> None:
    """With what serves on this CPU; close to one rank as far as bfloat16 can be."""
    config, backends = make_config(family), choose(CPU, dtype=torch.bfloat16)
    (alone,) = run_all(1, config, dtype=torch.bfloat16, backends=backends)
    ranks = run_all(size, config, dtype=torch.bfloat16, backends=backends)
    assert_same_bits(ranks)
    for ours, theirs in zip(ranks[0], alone, strict=True):
        assert ours.logits.dtype == torch.float32
        gap = (ours.logits - theirs.logits).abs().max() / theirs.logits.abs().max()
        assert gap < 0.05


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("vocab_size", "size"), [(101, 2), (101, 4), (5, 3)])
def test_an_embedding_is_the_table_to_the_bit(
    vocab_size: int, size: int, dtype: torch.dtype
) -> None:
    table = torch.randn(vocab_size, 8, generator=torch.Generator().manual_seed(1)).to(dtype)
    table[1::2, 0], table[::2, 0] = -0.0, 0.0
    table[:, 1], table[3, 2], table[4, 3] = torch.finfo(dtype).tiny / 4, torch.inf, torch.nan
    ids = torch.arange(vocab_size).repeat(2)

    def one(group: TensorGroup) -> Tensor:
        mesh = Mesh(tp_rank=group.rank, tp_size=group.size)
        placement = Placement(dtype=dtype, device=CPU, backends=REFERENCE, mesh=mesh, group=group)
        embedding = Embedding(vocab_size, 8, placement=placement)
        for _, target in embedding.weight.targets():
            target.view.copy_(table[target.part])
        embedding.finish()
        return embedding(ids)

    want = table[ids]
    for rows in run_ranks(size, one):
        assert torch.equal(rows.isnan(), want.isnan())
        # Which of its NaNs a CPU gives is its own affair.
        assert same_bits(rows[~want.isnan()], want[~want.isnan()])


def test_an_id_of_nobody_is_an_error() -> None:
    config = make_config()

    def one(group: TensorGroup) -> None:
        stage = fill(make_stage(config, group))
        Runner(stage).feed(torch.tensor([3, 101]))

    with pytest.raises(IndexError):
        run_ranks(2, one)


# -- the sentinel ---------------------------------------------------------------------------------


def _in_values(stage: Stage) -> None:
    stage.blocks[1].mixer.qkv.prepared[-1, 0] = torch.nan


def _in_mlp(stage: Stage) -> None:
    stage.blocks[0].mlp.down.prepared[5, 3] = torch.inf


def _in_token(stage: Stage) -> None:
    """26 of rank 0 or 52 of rank 1, which begins with 51."""
    assert stage.embedding is not None
    stage.embedding.table[26 if stage.placement.mesh.tp_rank == 0 else 1, 2] = torch.nan


@pytest.mark.parametrize(("plant", "layer"), [(_in_values, 1), (_in_mlp, 0), (_in_token, 0)])
@pytest.mark.parametrize("bad_rank", [0, 1])
def test_a_fault_of_one_rank_is_seen_by_all(
    plant: Callable[[Stage], None], layer: int, bad_rank: int
) -> None:
    def spoil(stage: Stage) -> None:
        if stage.placement.mesh.tp_rank == bad_rank:
            plant(stage)

    ranks = run_all(2, make_config(), spoil=spoil)
    assert_same_bits(ranks)
    found = torch.cat([out.bad_layer for out in ranks[0]])
    logits = torch.cat([out.logits for out in ranks[0]])
    assert found.max() == layer
    # Where no sentinel cries the logits are sound, and no others are.
    assert torch.equal(found == -1, logits.isfinite().all(dim=1))


def test_a_bad_head_row_is_in_the_logits_of_all() -> None:
    def spoil(stage: Stage) -> None:
        assert stage.head is not None
        if stage.placement.mesh.tp_rank == 1:
            stage.head.prepared[0][2] = torch.nan

    ranks = run_all(2, make_config(), spoil=spoil)
    assert_same_bits(ranks)
    for out in ranks[0]:
        assert out.logits[:, 51 + 2].isnan().all() and out.logits.isnan().sum() == len(out.logits)


# -- plans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "size", "message"),
    [
        ({}, 3, "--tp 3: 4 heads do not divide over 3 ranks"),
        ({"kv_heads": 3, "num_heads": 6}, 2, "--tp 2: 3 KV heads do not divide over 2 ranks"),
        ({"kv_heads": 1, "num_heads": 2}, 4, "--tp 4: 2 heads do not divide over 4 ranks"),
        (
            {"intermediate_size": 50},
            4,
            "--tp 4: 50 intermediate features do not divide over 4 ranks",
        ),
        ({"vocab_size": 5}, 4, "--tp 4: 5 token ids leave one of 4 ranks none"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_does_not_divide_is_refused_by_name(
    changes: dict[str, int], size: int, message: str, device: str
) -> None:
    config = make_config(**changes)
    for rank in range(size):
        group = Unconnected(rank=rank, size=size)
        with pytest.raises(ConfigError) as caught:
            make_stage(config, group, device=torch.device(device))
        assert caught.value.message == message
        assert caught.value.param == "tp"


@pytest.mark.parametrize(("kv_heads", "size", "own"), [(4, 2, 2), (2, 4, 1), (1, 4, 1), (2, 2, 1)])
def test_a_rank_caches_its_own_kv_heads(kv_heads: int, size: int, own: int) -> None:
    for rank in range(size):
        group = Unconnected(rank=rank, size=size)
        stage = make_stage(make_config(kv_heads=kv_heads), group, device=torch.device("meta"))
        specs = stage.cache_specs(torch.bfloat16)
        assert [(spec.layer, spec.kv_heads) for spec in specs] == [(0, own), (1, own)]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_rank_holds_its_share(family: str) -> None:
    """As planned without memory; a quarter of all but norms, the rotary table and odd ids."""
    config = make_config(family)

    def held(group: TensorGroup) -> tuple[int, int]:
        on_paper = Unconnected(rank=group.rank, size=group.size)
        planned = make_stage(config, on_paper, device=torch.device("meta")).planned_bytes()
        return planned, fill(make_stage(config, group)).weight_bytes()

    ((_, whole),) = run_ranks(1, held)
    for planned, stored in run_ranks(4, held):
        assert planned == stored
        assert 0.25 * whole < stored < 0.25 * whole + 8 * 8 * 32 * 12


def test_a_rank_needs_less_work_space() -> None:
    """At widths where what is exchanged is less than what is split."""
    sizes = {"tokens": 64, "logits_rows": 0, "context": 16}
    config = make_config(intermediate_size=4096)
    alone, pair = (
        make_stage(config, Unconnected(rank=0, size=size)).workspace_bytes(**sizes)
        for size in (1, 2)
    )
    assert pair < 0.6 * alone
