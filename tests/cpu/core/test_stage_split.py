"""Layers over stages: against all splits there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.core.stage_split import choose_stages, costs_at, split_layers
from draftmark.core.start import LayerCosts

# Whole milliseconds, so that sums are exact.
TIMES = st.integers(0, 12).map(float)


def all_splits(num_layers: int, num_stages: int) -> Iterator[tuple[int, ...]]:
    for cuts in combinations(range(1, num_layers), num_stages - 1):
        yield tuple(stop - start for start, stop in pairwise((0, *cuts, num_layers)))


def stage_ms(
    split: Sequence[int], layer_ms: Sequence[float], first_ms: float, last_ms: float
) -> list[float]:
    times, start = [], 0
    for count in split:
        times.append(sum(layer_ms[start : start + count]))
        start += count
    times[0] += first_ms
    times[-1] += last_ms
    return times


@given(st.data())
def test_no_split_is_better(data: st.DataObject) -> None:
    """The slowest stage is as fast as can be; of those the most even, then the front-heavy one."""
    layer_ms = data.draw(st.lists(TIMES, min_size=1, max_size=9))
    num_stages = data.draw(st.integers(1, len(layer_ms)))
    first_ms, last_ms = data.draw(TIMES), data.draw(TIMES)

    def key(split: tuple[int, ...]) -> tuple[float, float, tuple[int, ...]]:
        times = stage_ms(split, layer_ms, first_ms, last_ms)
        return max(times), sum(t * t for t in times), tuple(-count for count in split)

    found = split_layers(layer_ms, first_ms=first_ms, last_ms=last_ms, num_stages=num_stages)
    best = min(all_splits(len(layer_ms), num_stages), key=key)
    assert key(found) == key(best)


def test_the_slowest_stage_does_not_hide_an_uneven_front() -> None:
    """The last stage takes 19 whatever the others do; they are split evenly all the same."""
    layer_ms = [1.0, 8.0, 3.0, 2.0, 3.0, 5.0, 1.0, 3.0]
    assert split_layers(layer_ms, first_ms=3.0, last_ms=16.0, num_stages=4) == (2, 3, 2, 1)


@pytest.mark.parametrize(
    ("num_layers", "num_stages", "split"),
    [(4, 1, (4,)), (4, 2, (2, 2)), (5, 2, (3, 2)), (10, 3, (4, 3, 3)), (4, 4, (1, 1, 1, 1))],
)
def test_without_ends_the_split_is_even(
    num_layers: int, num_stages: int, split: tuple[int, ...]
) -> None:
    found = split_layers([1.0] * num_layers, first_ms=0.0, last_ms=0.0, num_stages=num_stages)
    assert found == split


def test_the_last_stage_pays_for_head_and_sampling() -> None:
    assert split_layers([1.0] * 40, first_ms=0.0, last_ms=4.0, num_stages=2) == (22, 18)
    assert split_layers([1.0] * 40, first_ms=1.0, last_ms=4.0, num_stages=4) == (11, 11, 11, 7)


def test_a_head_that_costs_more_than_all_layers_keeps_one() -> None:
    assert split_layers([1.0] * 6, first_ms=0.0, last_ms=100.0, num_stages=3) == (3, 2, 1)


def test_the_first_stage_pays_for_the_embedding() -> None:
    assert split_layers([1.0] * 8, first_ms=2.0, last_ms=0.0, num_stages=2) == (3, 5)


@pytest.mark.parametrize("num_stages", [0, 4])
def test_what_cannot_be_split(num_stages: int) -> None:
    with pytest.raises(ValueError, match=f"3 layers make no {num_stages} stages"):
        split_layers([1.0] * 3, first_ms=0.0, last_ms=0.0, num_stages=num_stages)


def costs(rows: int, *layer_ms: float, head_ms: float = 0.0) -> LayerCosts:
    return LayerCosts(
        verify_rows=rows,
        context_tokens=0,
        embedding_ms=0.0,
        layer_ms=list(layer_ms),
        head_ms=head_ms,
    )


def test_the_nearest_measured_step_decides() -> None:
    points = [costs(1, 1.0), costs(32, 1.0, head_ms=4.0)]
    assert costs_at(points, rows=5) is points[0] and costs_at(points, rows=30) is points[1]
    assert choose_stages(points, layer_kinds=[0] * 8, num_stages=2, rows=2) == (4, 4)
    assert choose_stages(points, layer_kinds=[0] * 8, num_stages=2, rows=32) == (6, 2)


def test_layers_of_different_kinds_are_charged_as_such() -> None:
    """Three delta nets take as long as one attention layer."""
    kinds = [0, 0, 0, 1, 0, 0, 0, 1]
    assert choose_stages([costs(1, 1.0, 3.0)], layer_kinds=kinds, num_stages=4, rows=1) == (
        3,
        1,
        3,
        1,
    )
