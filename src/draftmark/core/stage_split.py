"""How many layers each pipeline stage gets, so that the slowest stage is as fast as can be.

The first stage is charged for the embedding, the last one for norm, head and sampling. An even
split makes the last stage the slowest, and every other one waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeVar

from draftmark.core.start import LayerCosts


def split_layers(
    layer_ms: Sequence[float], *, first_ms: float, last_ms: float, num_stages: int
) -> tuple[int, ...]:
    """Layers of each stage, at least one. `layer_ms` has one entry a layer; `first_ms` and
    `last_ms` are charged to the ends. Of equal splits the most even one, the later stages smaller.
    """
    num_layers = len(layer_ms)
    if not 1 <= num_stages <= num_layers:
        raise ValueError(f"{num_layers} layers make no {num_stages} stages")
    before = [0.0, *accumulate(layer_ms)]

    def cost(stage: int, start: int, stop: int) -> float:
        ends = first_ms * (stage == 0) + last_ms * (stage == num_stages - 1)
        return before[stop] - before[start] + ends

    # First how fast the slowest stage can be, then the most even of the splits that reach it.
    def slower(slowest: float, stage: int, start: int, stop: int) -> float:
        return max(slowest, cost(stage, start, stop))

    limit = _least(0.0, slower, num_layers=num_layers, num_stages=num_stages)

    def evener(split: _Split, stage: int, start: int, stop: int) -> _Split | None:
        ms = cost(stage, start, stop)
        squares, counts = split
        return None if ms > limit else (squares + ms * ms, (*counts, start - stop))

    empty: _Split = (0.0, ())
    _, counts = _least(empty, evener, num_layers=num_layers, num_stages=num_stages)
    return tuple(-count for count in counts)


# (sum of squares of the stages' times, layers of each stage as negative numbers: of equal sums the
# one with more layers in front is the least)
_Split = tuple[float, tuple[int, ...]]
_State = TypeVar("_State", float, _Split)


def _least(
    empty: _State,
    extend: Callable[[_State, int, int, int], _State | None],
    *,
    num_layers: int,
    num_stages: int,
) -> _State:
    """The least state of all splits. `extend(state, stage, start, stop)` is that of a split with
    one more stage, None for one that is out of the question."""
    best = {0: empty}
    for stage in range(num_stages):
        left = num_stages - stage - 1
        found: dict[int, _State] = {}
        for start, state in best.items():
            for stop in range(start + 1, num_layers - left + 1):
                candidate = extend(state, stage, start, stop)
                if candidate is not None and (stop not in found or candidate < found[stop]):
                    found[stop] = candidate
        best = found
    return best[num_layers]


def costs_at(costs: Sequence[LayerCosts], *, rows: int) -> LayerCosts:
    """The measured point nearest to a step of `rows` decoding rows."""
    return min(costs, key=lambda point: abs(point.verify_rows - rows))


def choose_stages(
    costs: Sequence[LayerCosts], *, layer_kinds: Sequence[int], num_stages: int, rows: int
) -> tuple[int, ...]:
    """The split for steps of about `rows` decoding rows a cohort; a kind for each layer."""
    point = costs_at(costs, rows=rows)
    return split_layers(
        [point.layer_ms[kind] for kind in layer_kinds],
        first_ms=point.embedding_ms,
        last_ms=point.head_ms,
        num_stages=num_stages,
    )
