"""Layers as a loader and a stage see them: what is loaded where, and what is held afterwards."""

from __future__ import annotations

import pytest
import torch

from draftmark.kernels.backends import Backends, available, choose
from draftmark.layers.embedding import Embedding, Head
from draftmark.layers.linear import GatedLinear, Linear
from draftmark.layers.weight import Block, Placement, Weight
from draftmark.parallel.mesh import Mesh
from draftmark.parallel.sharding import Columns, Heads, KVHeads

CPU = torch.device("cpu")


def make_placement(dtype: torch.dtype = torch.float64, **named: str) -> Placement:
    backends = choose(CPU, dtype=dtype, named=named)
    return Placement(dtype=dtype, device=CPU, backends=backends, mesh=Mesh())


def fill(weight: Weight, parts: dict[str, torch.Tensor]) -> None:
    for name, target in weight.targets():
        assert target.shape == tuple(parts[name].shape)
        target.view.copy_(parts[name][target.part])


def test_blocks_are_stacked_in_their_order_and_loaded_by_name() -> None:
    sizes = {"q": 4, "k": 2, "v": 2}
    splits = {"q": Heads(4), "k": KVHeads(2), "v": KVHeads(2)}
    layer = Linear(
        [Block(name, (n * 8, 12), splits[name]) for name, n in sizes.items()],
        bias=True,
        placement=make_placement(),
    )
    weights = {name: torch.randn(n * 8, 12, dtype=torch.float64) for name, n in sizes.items()}
    biases = {name: torch.randn(n * 8, dtype=torch.float64) for name, n in sizes.items()}
    fill(layer.weight, weights)
    fill(layer.bias, biases)
    layer.finish()
    x, residual = torch.randn(3, 12), torch.randn(3, 64)
    x, residual = x.double(), residual.double()
    want = torch.cat([x @ weights[n].T + biases[n] for n in sizes], dim=1) + residual
    torch.testing.assert_close(layer(x, residual), want, rtol=1e-12, atol=1e-12)
    assert layer.stored_bytes() == 8 * (64 * 12 + 64)


def test_the_gate_comes_first() -> None:
    gate, up = torch.randn(2, 20, 12, dtype=torch.float64)
    layer = GatedLinear(
        Block("gate", (20, 12), Columns()),
        Block("up", (20, 12), Columns()),
        bias=False,
        placement=make_placement(),
    )
    fill(layer.weight, {"gate": gate, "up": up})
    layer.finish()
    x = torch.randn(3, 12, dtype=torch.float64)
    want = torch.nn.functional.silu(x @ gate.T) * (x @ up.T)
    torch.testing.assert_close(layer(x), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("linear", ["torch", "onednn", "numba"])
@pytest.mark.parametrize("is_tied", [True, False])
def test_a_head_holds_what_it_says(is_tied: bool, linear: str) -> None:
    """Tied: the table, and one copy where the backend has a layout of its own. Untied: one weight,
    never a second copy of it."""
    if linear not in available("linear", device=torch.device("cpu"), dtype=torch.bfloat16):
        pytest.skip(f"this CPU has no {linear} backend for bfloat16")
    placement = make_placement(torch.bfloat16, linear=linear)
    embedding = Embedding(96, 32, placement=placement)
    table = torch.randn(96, 32).bfloat16()
    fill(embedding.weight, {"": table})
    embedding.finish()
    head = Head(96, 32, tied_to=embedding if is_tied else None, placement=placement)
    planned = head.copied_bytes()
    own = torch.randn(96, 32).bfloat16()
    if not is_tied:
        fill(head.weight, {"": own})
    head.finish()
    hidden = torch.randn(2, 32).bfloat16()
    logits = head(hidden)
    want = hidden.double() @ (table if is_tied else own).double().T
    assert logits.dtype == torch.float32
    best = want.topk(8).indices
    torch.testing.assert_close(
        logits.double().gather(1, best), want.gather(1, best), rtol=1e-5, atol=1e-5
    )
    is_copied = is_tied and linear != "torch"
    assert planned == (table.nbytes if is_copied else 0)
    assert head.stored_bytes() == (table.nbytes if is_copied or not is_tied else 0)
    assert torch.equal(embedding(torch.tensor([3, 95])), table[[3, 95]])


def test_backends_are_reported_by_op() -> None:
    assert set(Backends().report()) >= {"attention", "linear", "norm", "rope", "kv_write"}
