"""The mixture of experts as a loader and a stage see it, alone and over tensor ranks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from draftmark.core.errors import ConfigError
from draftmark.kernels.backends import available, choose
from draftmark.layers.moe import MoE, MoEConfig
from draftmark.layers.weight import Layer, Placement, Weight
from draftmark.parallel.collectives import Alone, TensorGroup, Unconnected
from draftmark.parallel.mesh import Mesh
from tests.fakes.thread_group import run_ranks

CPU = torch.device("cpu")
CONFIG = MoEConfig(
    hidden_size=64,
    num_experts=10,
    top_k=3,
    intermediate_size=32,
    renormalise=True,
    shared_intermediate_size=64,
)
ROUTED = MoEConfig(hidden_size=64, num_experts=10, top_k=3, intermediate_size=32, renormalise=False)

Whole = dict[str, dict[str, Tensor]]


def make(
    config: MoEConfig,
    group: TensorGroup,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device = CPU,
    **named: str,
) -> MoE:
    """Not filled and not finished."""
    backends = choose(CPU, dtype=dtype, named=named)
    mesh = Mesh(tp_rank=group.rank, tp_size=group.size)
    placement = Placement(dtype=dtype, device=device, backends=backends, mesh=mesh, group=group)
    return MoE(config, placement=placement)


def make_whole(config: MoEConfig, dtype: torch.dtype = torch.float64) -> Whole:
    """What a checkpoint holds, by parameter and block, in steps of `dtype`."""
    generator = torch.Generator().manual_seed(11)
    return {
        name: {
            block: 0.2
            * torch.randn(target.shape, generator=generator, dtype=torch.float64).to(dtype)
            for block, target in weight.targets()
        }
        for name, weight in make(config, Alone()).named_parameters()
        if isinstance(weight, Weight)
    }


def fill(moe: MoE, whole: Whole) -> MoE:
    for name, weight in moe.named_parameters():
        assert isinstance(weight, Weight)
        for block, target in weight.targets():
            values = whole[name][block]
            assert target.shape == tuple(values.shape)
            target.view.copy_(values[target.part])
    for layer in moe.modules():
        if isinstance(layer, Layer):
            layer.finish()
    return moe


def stored_bytes(moe: MoE) -> int:
    return sum(layer.stored_bytes() for layer in moe.modules() if isinstance(layer, Layer))


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    wide = x @ gate.double().T
    return (wide / (1 + torch.exp(-wide)) * (x @ up.double().T)) @ down.double().T


def by_hand(config: MoEConfig, whole: Whole, x: Tensor, residual: Tensor) -> Tensor:
    """The formula in float64, a token at a time."""
    x, y = x.double(), residual.double().clone()
    shares = torch.softmax(x @ whole["router.weight"][""].double().T, dim=1)
    gate_up, down = whole["experts.gate_up"], whole["experts.down"]
    for row in range(x.shape[0]):
        best = shares[row].topk(config.top_k)
        total = best.values.sum() if config.renormalise else 1.0
        for share, e in zip(best.values, best.indices.tolist(), strict=True):
            answer = swiglu(x[row], gate_up[f"{e}.gate"], gate_up[f"{e}.up"], down[str(e)])
            y[row] += share / total * answer
    if config.shared_intermediate_size is not None:
        halves = whole["shared.gate_up.weight"]
        shared = swiglu(x, halves["gate"], halves["up"], whole["shared.down.weight"][""])
        y += torch.sigmoid(x @ whole["shared_gate.weight"][""].double().T) * shared
    return y


def make_rows(count: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    x, residual = torch.randn(2, count, CONFIG.hidden_size, generator=generator).to(dtype)
    return x, residual


@pytest.mark.parametrize("config", [CONFIG, ROUTED], ids=["shared", "routed"])
@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("count", [0, 1, 3, 65])
def test_it_is_the_formula(config: MoEConfig, backend: str, count: int) -> None:
    whole = make_whole(config)
    moe = fill(make(config, Alone(), experts=backend), whole)
    x, residual = make_rows(count)
    before = x.clone(), residual.clone()
    y = moe(x, residual)
    torch.testing.assert_close(y, by_hand(config, whole, x, residual), rtol=1e-12, atol=1e-12)
    assert torch.equal(x, before[0]) and torch.equal(residual, before[1])


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("config", [CONFIG, ROUTED], ids=["shared", "routed"])
def test_ranks_give_what_one_gives(config: MoEConfig, size: int) -> None:
    whole = make_whole(config)
    x, residual = make_rows(9)
    ranks = run_ranks(size, lambda group: fill(make(config, group), whole)(x, residual))
    assert all(torch.equal(y, ranks[0]) for y in ranks)
    want = by_hand(config, whole, x, residual)
    torch.testing.assert_close(ranks[0], want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("count", [1, 40])
def test_narrow_is_close_and_chooses_as_float32_does(count: int, size: int) -> None:
    whole = make_whole(CONFIG, torch.bfloat16)
    x, residual = make_rows(count, torch.bfloat16)

    def one(group: TensorGroup) -> Tensor:
        return fill(make(CONFIG, group, dtype=torch.bfloat16), whole)(x, residual)

    ranks = run_ranks(size, one)
    assert all(torch.equal(y, ranks[0]) for y in ranks)
    want = by_hand(CONFIG, whole, x, residual)
    assert ranks[0].dtype == torch.bfloat16
    error = (ranks[0].double() - want).abs().max()
    assert error <= 1.5 * torch.finfo(torch.bfloat16).eps * want.abs().max()


def test_a_bad_row_disturbs_no_other() -> None:
    moe = fill(make(CONFIG, Alone()), make_whole(CONFIG))
    x, residual = make_rows(6)
    clean = moe(x, residual)
    x[1], x[4] = math.nan, math.inf
    y = moe(x, residual)
    # Which experts a bad row joins is nobody's business, but sums may be taken in another order.
    others = [0, 2, 3, 5]
    torch.testing.assert_close(y[others], clean[others], rtol=1e-12, atol=1e-12)
    assert y[[1, 4]].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_it_holds_what_was_loaded(dtype: torch.dtype) -> None:
    """Also on the meta device, where nothing is loaded. The router's weight is never narrow."""
    meta = make(CONFIG, Alone(), dtype=dtype, device=torch.device("meta"))
    planned = sum(weight.nbytes for weight in meta.parameters())
    moe = make(CONFIG, Alone(), dtype=dtype)
    assert moe.router.weight.dtype == moe.shared_gate.weight.dtype != torch.bfloat16
    names = [block for block, _ in moe.experts.gate_up.targets()]
    assert names[:4] == ["0.gate", "0.up", "1.gate", "1.up"] and len(names) == 20
    fill(moe, make_whole(CONFIG))
    assert not list(moe.parameters())
    assert stored_bytes(moe) == planned


def test_the_backend_is_the_one_that_was_placed() -> None:
    for name in available("experts", device=CPU, dtype=torch.bfloat16):
        moe = make(CONFIG, Alone(), dtype=torch.bfloat16, experts=name)
        assert moe.backend == moe.experts.backend == name


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"intermediate_size": 34}, "34 expert features"),
        ({"shared_intermediate_size": 50}, "50 shared expert features"),
    ],
)
def test_features_that_do_not_divide_are_refused_by_name(change: dict[str, int], what: str) -> None:
    sizes = {name: getattr(CONFIG, name) for name in CONFIG.__slots__}
    with pytest.raises(ConfigError, match=f"{what} do not divide over 4 ranks"):
        make(MoEConfig(**{**sizes, **change}), Unconnected(rank=0, size=4))


def test_the_work_space_has_a_part_a_token_and_a_fixed_one() -> None:
    one = make(CONFIG, Alone())
    half = make(CONFIG, Unconnected(rank=1, size=2))
    assert 0 < half.token_bytes() < one.token_bytes()
    assert one.fixed_bytes() > 0
