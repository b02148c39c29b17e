"""How many layers each pipeline stage gets, so that the slowest stage is as fast as can be.

The first stage is charged for the embedding, the last one for norm, head and sampling. An even
split makes the last stage the slowest, and every other one waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

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

    # best[k][n]: (slowest stage, sum of squares, layers of each) of the first n layers in k stages.
    best: dict[int, tuple[float, float, tuple[int, ...]]] = {0: (0.0, 0.0, ())}
    for stage in range(num_stages):
        left = num_stages - stage - 1
        found: dict[int, tuple[float, float, tuple[int, ...]]] = {}
        for start, (slowest, squares, counts) in best.items():
            for stop in range(start + 1, num_layers - left + 1):
                ms = cost(stage, start, stop)
                candidate = (max(slowest, ms), squares + ms * ms, (*counts, stop - start))
                if stop not in found or _key(candidate) < _key(found[stop]):
                    found[stop] = candidate
        best = found
    return best[num_layers][2]


def _key(candidate: tuple[float, float, tuple[int, ...]]) -> tuple[float, float, tuple[int, ...]]:
    slowest, squares, counts = candidate
    return slowest, squares, tuple(-count for count in counts)


def costs_at(costs: Sequence[LayerCosts], *, rows: int) -> LayerCosts:
    """The measured point nearest to a step of `rows` decoding rows."""
    return min(costs, key=lambda point: abs(point.verify_rows - rows))


def choose_stages(
    costs: Sequence[LayerCosts], *, num_layers: int, num_stages: int, rows: int
) -> tuple[int, ...]:
    """The split for steps of about `rows` decoding rows a cohort."""
    point = costs_at(costs, rows=rows)
    return split_layers(
        [point.layer_ms] * num_layers,
        first_ms=point.embedding_ms,
        last_ms=point.head_ms,
        num_stages=num_stages,
    )
