"""A hybrid model through whole engines: stages and ranks, warm caches, a layer that gives NaN."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from draftmark.core.errors import ConfigError
from tests.workers.conftest import (
    assert_ended,
    client_of,
    failure_of,
    open_engine,
    tokens_of_history,
)
from tests.workers.tiny_model import write_tiny_hybrid

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_hybrid(tmp_path_factory.mktemp("model") / "hybrid")


@pytest.fixture(scope="module")
def expected(hybrid: Path) -> list[list[int]]:
    with open_engine(hybrid) as engine:
        tokens = tokens_of_history(engine)
        stats = client_of(engine).stats
        assert stats.snapshot_saves and stats.snapshot_restores
        assert 0 < stats.cached_tokens <= stats.matched_tokens
    return tokens


@pytest.mark.parametrize(
    "flags",
    [
        {"pp": 2, "stages": "1,3"},
        {"pp": 4, "stages": "1,1,1,1", "stages_per_worker": 2},
        pytest.param({"tp": 2}, marks=pytest.mark.slow),
        pytest.param({"snapshots": 1}, marks=pytest.mark.slow),
    ],
    ids=lambda flags: ",".join(f"{name}={value}" for name, value in flags.items()),
)
def test_tokens_are_those_of_one_worker(
    hybrid: Path, socket_root: Path, expected: list[list[int]], flags: dict[str, Any]
) -> None:
    with open_engine(hybrid, **flags) as engine:
        assert tokens_of_history(engine) == expected


@pytest.mark.parametrize(
    ("layer", "flags", "where"),
    [
        (2, {}, "stage 0 (rank 0)"),
        (3, {"pp": 2, "stages": "1,3"}, "stage 1 (rank 1)"),
        pytest.param(1, {"tp": 2}, "stage 0 (ranks 0 to 1)", marks=pytest.mark.slow),
    ],
    ids=["one worker", "two stages", "two tensor ranks"],
)
def test_a_poisoned_layer_is_named_with_rank_step_and_row(
    hybrid: Path, socket_root: Path, layer: int, flags: dict[str, Any], where: str
) -> None:
    with open_engine(hybrid, inject=f"nan={layer}:4", **flags) as engine:
        message = failure_of(engine.stream([1, 2, 3], max_tokens=60))
        place = re.escape(f"layer {layer} of {where}")
        wanted = rf"{place} at step \d+, row 0 \(slot \d+\)"
        assert re.search(wanted, message), message
        assert "layer" in failure_of(engine.stream([5], max_tokens=3))
        client, deadline = client_of(engine), time.monotonic() + 5
        while client.stats.bad_rows < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert client.stats.rows > client.stats.bad_rows >= 2
        assert client.stats.first_bad_layer == layer


def test_on_nan_stop_ends_the_server(hybrid: Path, socket_root: Path) -> None:
    with open_engine(hybrid, inject="nan=1:4", on_nan="stop") as engine:
        assert "layer 1" in failure_of(engine.stream([1, 2, 3], max_tokens=60))
        assert_ended(engine)


def test_heads_that_do_not_divide_are_refused_by_name(hybrid: Path, socket_root: Path) -> None:
    with pytest.raises(ConfigError, match=r"--tp 3: 4 .*heads do not divide over 3 ranks"):
        open_engine(hybrid, tp=3)
