"""Whatever the stages and tensor ranks, tokens are those of one worker; what cannot be split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftmark.core.errors import ConfigError
from tests.workers.conftest import open_engine, tokens_of_history

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    "flags",
    [
        {"pp": 2, "stages": "3,1", "lanes": "local"},
        {"pp": 4, "stages": "1,1,1,1", "stages_per_worker": 2},
        pytest.param({"tp": 2}, marks=pytest.mark.slow),
        pytest.param({"pp": 3, "stages": "1,2,1", "cohorts": 2}, marks=pytest.mark.slow),
    ],
    ids=lambda flags: ",".join(f"{name}={value}" for name, value in flags.items()),
)
def test_tokens_are_those_of_one_worker(
    model: Path, socket_root: Path, expected_tokens: list[list[int]], flags: dict[str, Any]
) -> None:
    with open_engine(model, **flags) as engine:
        assert tokens_of_history(engine) == expected_tokens


def test_heads_that_cannot_be_shared_are_one_line(model: Path, socket_root: Path) -> None:
    with pytest.raises(ConfigError, match=r"\b3\b") as caught:
        open_engine(model, tp=3)
    assert "\n" not in caught.value.message
    assert "4" in caught.value.message and "tp" in caught.value.message.lower()
