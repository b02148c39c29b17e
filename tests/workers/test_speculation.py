"""Drafts of the model's own head through whole engines: the tokens are those of plain decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftmark.core.errors import ConfigError
from tests.workers.conftest import client_of, open_engine, tokens_of_history
from tests.workers.tiny_model import write_tiny_hybrid, write_tiny_model

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_hybrid(tmp_path_factory.mktemp("model") / "hybrid")


@pytest.fixture(scope="module")
def expected(hybrid: Path) -> list[list[int]]:
    with open_engine(hybrid) as engine:
        return tokens_of_history(engine)


@pytest.mark.parametrize(
    "flags",
    [
        {"draft_tokens": 3},
        {"draft_tokens": 2, "pp": 2, "stages": "1,3"},
        pytest.param({"draft_tokens": 5, "tp": 2}, marks=pytest.mark.slow),
        pytest.param(
            {"draft_tokens": 1, "pp": 4, "stages": "1,1,1,1", "stages_per_worker": 2},
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda flags: ",".join(f"{name}={value}" for name, value in flags.items()),
)
def test_tokens_are_those_of_plain_decoding(
    hybrid: Path, socket_root: Path, expected: list[list[int]], flags: dict[str, Any]
) -> None:
    with open_engine(hybrid, draft="mtp", **flags) as engine:
        assert tokens_of_history(engine) == expected
        stats = client_of(engine).stats
        num_tokens = sum(len(tokens) for tokens in expected)
        # Otherwise no draft was ever accepted, and this would prove little.
        assert stats.rows < num_tokens


def test_a_model_without_a_head_is_refused(tmp_path: Path, socket_root: Path) -> None:
    model = write_tiny_model(tmp_path / "llama")
    with pytest.raises(ConfigError, match="has no MTP head"), open_engine(model, draft="mtp"):
        pass
