"""What commands say of drafts: `generate --json`, and the line under an answer of `chat`."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Any

import pytest

from draftmark.cli.generate import answer_record
from draftmark.cli.local import LocalTalker
from draftmark.cli.remote import read_piece
from draftmark.cli.talk import Piece
from draftmark.core.messages import DraftUse
from draftmark.core.request import FinishReason
from draftmark.engine.results import Completion, Speculation, Timings, Usage
from draftmark.engine.textstream import TextDelta
from tests.cpu.cli.test_talk import Scripted, talk

USE = DraftUse(4, 12, 5)


def completion(use: DraftUse | None) -> Completion:
    return Completion(
        text="ab",
        token_ids=[1, 2],
        finish_reason="length",
        stop=None,
        logprobs=None,
        prompt_logprobs=None,
        usage=Usage(
            prompt_tokens=3,
            completion_tokens=9,
            cached_tokens=0,
            speculation=Speculation.of([use]),
        ),
        timings=Timings(first_token_s=0.1, total_s=0.2),
    )


def test_generate_shows_drafts_where_there_were_any() -> None:
    plain = {"prompt_tokens": 3, "completion_tokens": 9, "cached_tokens": 0, "total_tokens": 12}
    assert answer_record(completion(None), start_s=1.0)["usage"] == plain
    shown = json.loads(json.dumps(answer_record(completion(USE), start_s=1.0)))["usage"]
    assert shown == plain | {
        "speculation": {
            "windows": 4,
            "draft_tokens": 12,
            "accepted_tokens": 5,
            "acceptance_length": 2.25,
        }
    }


def test_chat_says_the_acceptance_length_under_the_answer() -> None:
    pieces = [
        Piece(text="a", num_tokens=1),
        Piece(text="b", num_tokens=9, acceptance_length=2.25, finish="stop"),
    ]
    assert "9 tokens" in (notes := talk(Scripted(pieces), "hi\n")[2])
    assert "acceptance length 2.25]" in notes
    assert "acceptance" not in talk(Scripted(pieces[:1]), "hi\n")[2]


def test_an_engine_of_our_own_tells_it_at_the_end() -> None:
    def stream_chat(*_: object, **__: object) -> Iterator[TextDelta]:
        yield TextDelta(text="a", token_ids=[1])
        yield TextDelta(token_ids=[2, 3], finish=FinishReason.LENGTH, drafts=USE)

    engine: Any = types.SimpleNamespace(stream_chat=stream_chat, ready={})
    pieces = list(LocalTalker(engine, model="m", sampling={}).answer([], max_tokens=3))
    assert [piece.acceptance_length for piece in pieces] == [None, 2.25]
    assert [piece.num_tokens for piece in pieces] == [1, 3]


@pytest.mark.parametrize(
    ("speculation", "length"),
    [
        (None, None),
        ({"acceptance_length": 2.25}, 2.25),
        ({"acceptance_length": None}, None),
        (["another server's"], None),
        ({}, None),
    ],
)
def test_a_server_tells_it_in_usage(speculation: Any, length: float | None) -> None:
    event = {"choices": [], "usage": {"completion_tokens": 2, "speculation": speculation}}
    assert read_piece(event) == Piece(num_tokens=2, acceptance_length=length)
