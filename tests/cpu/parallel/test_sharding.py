"""Who has which part of a tensor, and what is refused."""

from __future__ import annotations

import pytest
import torch

from draftmark.core.errors import ConfigError
from draftmark.parallel.mesh import Mesh
from draftmark.parallel.sharding import (
    Columns,
    Heads,
    KVHeads,
    Replicated,
    Rows,
    Sharding,
    Vocab,
    vocab_widths,
)


def meshes(size: int) -> list[Mesh]:
    return [Mesh(tp_rank=rank, tp_size=size) for rank in range(size)]


def counts(sharding: Sharding, shape: tuple[int, ...], size: int) -> torch.Tensor:
    """How many ranks have each element."""
    found = torch.zeros(shape)
    for mesh in meshes(size):
        found[sharding.part(shape, mesh)] += 1
    return found


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize(
    ("sharding", "shape"),
    [
        (Columns(), (12, 5)),
        (Columns(), (12,)),
        (Rows(), (5, 12)),
        (Heads(4), (24, 5)),
        (Heads(4), (24,)),
        (KVHeads(4), (24, 5)),
        (Vocab(), (13, 3)),
        (Vocab(), (7,)),
    ],
)
def test_every_element_has_one_rank(sharding: Sharding, shape: tuple[int, ...], size: int) -> None:
    assert (counts(sharding, shape, size) == 1).all()


def test_replicated_is_everywhere() -> None:
    assert (counts(Replicated(), (3, 2), 4) == 4).all()
    assert (counts(Rows(), (3,), 4) == 4).all()


@pytest.mark.parametrize(("num_heads", "firsts"), [(1, [0, 0, 0, 0]), (2, [0, 0, 6, 6])])
def test_neighbours_share_a_kv_head(num_heads: int, firsts: list[int]) -> None:
    shape = (num_heads * 6, 5)
    parts = [KVHeads(num_heads).part(shape, mesh)[0] for mesh in meshes(4)]
    assert parts == [slice(first, first + 6) for first in firsts]


@pytest.mark.parametrize(
    ("sharding", "shape", "size", "message"),
    [
        (Heads(4), (24, 5), 3, "--tp 3: 4 heads do not divide over 3 ranks"),
        (Heads(2), (24, 5), 4, "--tp 4: 2 heads do not divide over 4 ranks"),
        (KVHeads(3), (24, 5), 2, "--tp 2: 3 KV heads do not divide over 2 ranks"),
        (KVHeads(2), (24, 5), 3, "--tp 3: 2 KV heads do not divide over 3 ranks"),
        (Columns("features"), (9, 5), 2, "--tp 2: 9 features do not divide over 2 ranks"),
        (Rows(), (5, 9), 2, "--tp 2: 9 input features do not divide over 2 ranks"),
        (Vocab(), (9, 5), 8, "--tp 8: 9 token ids leave one of 8 ranks none"),
    ],
)
def test_an_uneven_split_is_refused_on_every_rank(
    sharding: Sharding, shape: tuple[int, ...], size: int, message: str
) -> None:
    for mesh in meshes(size):
        with pytest.raises(ConfigError) as caught:
            sharding.part(shape, mesh)
        assert caught.value.message == message
        assert caught.value.param == "tp"


def test_the_last_share_of_token_ids_may_be_smaller() -> None:
    assert vocab_widths(101, 4) == (26, 26, 26, 23)
    assert vocab_widths(100, 4) == (25, 25, 25, 25)
    assert vocab_widths(101, 1) == (101,)


def test_a_mesh_has_no_place_outside() -> None:
    for place in ({"tp_rank": 2, "tp_size": 2}, {"stage": 1}, {"tp_rank": -1}):
        with pytest.raises(AssertionError):
            Mesh(**place)
