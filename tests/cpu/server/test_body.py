"""Reading and encoding what is large: memory and the interpreter lock are not held for it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from starlette.requests import Request

from draftmark.core.errors import BodyTooLarge
from draftmark.server.body import read_body
from draftmark.server.prompts import encode
from tests.fakes import tokenizer as fakes

PIECE = 2**16


class Piece(bytes):
    """A chunk of a body that knows how many of it are alive."""

    alive = 0
    most = 0

    def __init__(self, data: bytes) -> None:
        Piece.alive += 1
        Piece.most = max(Piece.most, Piece.alive)

    def __del__(self) -> None:
        Piece.alive -= 1


def sending(count: int) -> tuple[Request, list[int]]:
    """A request whose body is `count` pieces, and how many were read of it."""
    read = [0]

    async def receive() -> dict[str, Any]:
        read[0] += 1
        body = Piece(b"x" * PIECE)
        return {"type": "http.request", "body": body, "more_body": read[0] < count}

    return Request({"type": "http", "headers": []}, receive), read


async def test_a_body_within_the_limit_is_whole() -> None:
    request, _ = sending(4)
    assert await read_body(request, limit=4 * PIECE) == b"x" * (4 * PIECE)


@pytest.mark.parametrize("count", [5, 40])
async def test_a_body_beyond_the_limit_is_read_to_its_end_and_not_kept(count: int) -> None:
    Piece.most = Piece.alive
    start = Piece.alive
    request, read = sending(count)
    with pytest.raises(BodyTooLarge):
        await read_body(request, limit=4 * PIECE)
    assert read[0] == count  # so that the client reads the answer
    assert Piece.most - start <= 4 + 2


async def test_a_body_without_end_is_not_read_for_ever() -> None:
    request, read = sending(2**62)
    with pytest.raises(BodyTooLarge):
        await read_body(request, limit=PIECE)
    assert read[0] * PIECE <= 130 * 2**20


def test_encoding_a_long_text_lets_other_threads_run() -> None:
    """`Tokenizer.encode` would hold the interpreter lock throughout: a handful of ticks."""
    tokenizer = fakes.wrap(fakes.byte_level())
    text = "hello world " * 60_000
    encoding = threading.Thread(
        target=encode, args=(text, tokenizer), kwargs={"add_special_tokens": True}
    )
    encoding.start()
    ticks = 0
    while encoding.is_alive():
        time.sleep(0.001)
        ticks += 1
    assert ticks >= 20
