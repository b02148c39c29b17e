"""Drafts looked up in the sequence itself, through whole engines: the tokens are those of plain
decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.workers.conftest import client_of, open_engine, tokens_of_history

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"draft_tokens": 4, "pp": 2},
        pytest.param({"draft_tokens": 2, "tp": 2}, marks=pytest.mark.slow),
    ],
    ids=lambda flags: ",".join(f"{name}={value}" for name, value in flags.items()) or "auto",
)
def test_tokens_are_those_of_plain_decoding(
    model: Path, socket_root: Path, expected_tokens: list[list[int]], flags: dict[str, Any]
) -> None:
    with open_engine(model, draft="ngram", **flags) as engine:
        assert tokens_of_history(engine) == expected_tokens
        drafts = client_of(engine).stats.drafts
        assert drafts is not None
        # A number that is fixed is drafted however little is accepted.
        assert drafts.drafted > 0 or not flags
