"""The conversation itself, with a talker that is a list."""

from __future__ import annotations

import io
from collections.abc import Generator

from draftmark.cli.talk import Conversation, Message, Piece
from draftmark.core.errors import ContextOverflow


class Scripted:
    """Gives the same pieces to every question; counts the generators that were closed."""

    name = "scripted"

    def __init__(self, pieces: list[Piece], *, interrupt: bool = False) -> None:
        self.pieces = pieces
        self.interrupt = interrupt
        self.asked: list[list[Message]] = []
        self.closed = 0
        self.room = 100

    def answer(
        self, messages: list[Message], *, max_tokens: int | None
    ) -> Generator[Piece, None, None]:
        if max_tokens is not None and max_tokens > self.room:
            raise ContextOverflow("too much", param="max_tokens")
        self.asked.append(messages)
        try:
            yield from self.pieces
            if self.interrupt:
                raise KeyboardInterrupt
        finally:
            self.closed += 1


def talk(talker: Scripted, lines: str) -> tuple[int, str, str]:
    sink, notes = io.StringIO(), io.StringIO()
    status = Conversation(talker, source=io.StringIO(lines), sink=sink, notes=notes).run()
    return status, sink.getvalue(), notes.getvalue()


def test_a_model_cannot_steer_the_terminal() -> None:
    talker = Scripted([Piece(text="a\x1b[2Jb\x07\r\n\tc\u202e")])
    assert talk(talker, "hi\n")[1] == "a[2Jb\n\tc\n"


def test_a_stopped_answer_is_remembered_and_its_request_closed() -> None:
    talker = Scripted([Piece(text="par"), Piece(text="t")], interrupt=True)
    _, shown, notes = talk(talker, "one\ntwo\n")
    assert "stopped]" in notes and shown == "part\npart\n"
    assert [m["content"] for m in talker.asked[1]] == ["one", "part", "two"]
    assert talker.closed == 2


def test_an_answer_cut_at_the_limit_says_so() -> None:
    talker = Scripted([Piece(text="x", num_tokens=1), Piece(num_tokens=2, finish="length")])
    assert "2 tokens" in talk(talker, "a")[2]
    assert "cut at the token limit" in talk(talker, "a")[2]


def test_an_empty_answer_leaves_no_trace() -> None:
    talker = Scripted([Piece(finish="stop")])
    talk(talker, "one\n\n  \ntwo\n")
    assert [m["content"] for m in talker.asked[1]] == ["two"]


def test_near_the_end_of_the_context_the_limit_is_what_is_left() -> None:
    talker = Scripted([Piece(text="x", num_tokens=1, finish="length")])
    sink, notes = io.StringIO(), io.StringIO()
    conversation = Conversation(
        talker, max_tokens=101, source=io.StringIO("hi\n"), sink=sink, notes=notes
    )
    assert conversation.run() == 0
    assert sink.getvalue() == "x\n"
