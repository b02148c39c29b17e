"""A conversation in a terminal: read a line, stream the answer, remember both.

Knows nothing about where answers come from (`Talker`). Ctrl-C during an answer stops it and keeps
what arrived; a second one, or one at an idle prompt followed by another, leaves.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from draftmark.core.errors import ContextOverflow, DraftmarkError

Message = dict[str, str]

_HELP = """\
/system TEXT   set what the model is told first (/system alone shows it)
/reset         forget the conversation
/exit          leave (also Ctrl-D, or Ctrl-C twice)
Ctrl-C         stop the answer"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some text of an answer. `num_tokens` counts the answer so far where the source tells it,
    `acceptance_length` is the tokens of a window of drafts where there were any. `mark` is what
    must stand before the answer, if anything."""

    text: str = ""
    num_tokens: int | None = None
    acceptance_length: float | None = None
    finish: str | None = None
    mark: str = ""


class Talker(Protocol):
    """Where answers come from. Closing the generator early aborts the request.

    Raises `ContextOverflow` naming `max_tokens` when the context has less left than that; None is
    all that is left.
    """

    @property
    def name(self) -> str: ...

    def answer(
        self, messages: list[Message], *, max_tokens: int | None
    ) -> Generator[Piece, None, None]: ...


@dataclass(slots=True)
class _Answer:
    """What arrived of one answer, and when (seconds of `time.perf_counter`)."""

    asked_at: float
    text: str = ""
    num_tokens: int | None = None
    acceptance_length: float | None = None
    finish: str | None = None
    first_at: float | None = None
    last_at: float = 0.0
    first_tokens: int = 0
    is_stopped: bool = False
    mark: str = ""

    def take(self, piece: Piece, *, now: float) -> None:
        self.text += piece.text
        self.mark = piece.mark or self.mark
        self.finish = piece.finish or self.finish
        if piece.num_tokens is not None:
            self.num_tokens = piece.num_tokens
        self.acceptance_length = piece.acceptance_length or self.acceptance_length
        if self.first_at is None and (piece.text or piece.num_tokens):
            self.first_at, self.first_tokens = now, piece.num_tokens or 1
        self.last_at = now

    def describe(self) -> str:
        parts = []
        if self.num_tokens is not None:
            parts.append(f"{self.num_tokens} tokens")
        if self.first_at is not None:
            later = (self.num_tokens or 0) - self.first_tokens
            if later > 0 and self.last_at > self.first_at:
                parts.append(f"{later / (self.last_at - self.first_at):.1f} tok/s")
            parts.append(f"first after {self.first_at - self.asked_at:.2f} s")
        if self.acceptance_length is not None:
            kind = "synthetic acceptance" if self.mark else "acceptance"
            parts.append(f"{kind} length {self.acceptance_length:.2f}")
        if self.is_stopped:
            parts.append("stopped")
        elif self.finish == "length":
            parts.append("cut at the token limit")
        return ", ".join(parts)


@dataclass(slots=True)
class Conversation:
    """`source` gives lines, answers go to `sink`, remarks to `notes`."""

    talker: Talker
    system: str = ""
    max_tokens: int | None = None
    source: TextIO = field(default_factory=lambda: sys.stdin)
    sink: TextIO = field(default_factory=lambda: sys.stdout)
    notes: TextIO = field(default_factory=lambda: sys.stderr)
    messages: list[Message] = field(default_factory=list)
    is_interrupted: bool = False
    has_failed: bool = False

    def run(self) -> int:
        """Until the user leaves; 1 when lines came from a file and one of them failed."""
        if self._is_terminal:
            with contextlib.suppress(ImportError):  # without readline, plain input
                import readline  # noqa: F401 (line editing and history for input())
            self._note(f"{self.talker.name}. /help explains, Ctrl-D leaves.")
        while (line := self._read_line()) is not None:
            if line.startswith("/"):
                if line == "/exit":
                    break
                self._command(line)
            elif line:
                self._turn(line)
        return int(self.has_failed and not self._is_terminal)

    @property
    def _is_terminal(self) -> bool:
        return self.source.isatty()

    def _read_line(self) -> str | None:
        """The next line without its ends, None to leave."""
        while True:
            try:
                line = self._next_line()
            except KeyboardInterrupt:
                self.sink.write("\n")
                if self.is_interrupted or not self._is_terminal:
                    return None
                self.is_interrupted = True
                self._note("Ctrl-C again leaves")
                continue
            self.is_interrupted = False
            return None if line is None else line.strip()

    def _next_line(self) -> str | None:
        if self._is_terminal and self.source is sys.stdin:
            try:
                return input("> ")
            except EOFError:
                self.sink.write("\n")
                return None
        return self.source.readline() or None

    def _command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        if name == "/reset":
            self.messages.clear()
            self._note("forgotten")
        elif name == "/system":
            if rest.strip():
                self.system = rest.strip()
            self._note(f"system: {self.system or '(nothing)'}")
        elif name == "/help":
            self._note(_HELP)
        else:
            self._note(f"unknown command {name}; there are /system, /reset, /help, /exit")

    def _turn(self, line: str) -> None:
        head = [{"role": "system", "content": self.system}] if self.system else []
        asked = [*self.messages, {"role": "user", "content": line}]
        answer = _Answer(time.perf_counter())
        try:
            self._stream(answer, [*head, *asked])
        except KeyboardInterrupt:
            answer.is_stopped = self.is_interrupted = True
        except DraftmarkError as error:
            self.has_failed = True
            self.sink.write("\n" if answer.text else "")
            self.sink.flush()
            hint = "; /reset forgets what was said" if isinstance(error, ContextOverflow) else ""
            self._note(f"error: {error.message}{hint}")
            return
        self.sink.write("\n")
        self.sink.flush()
        if answer.text:
            self.messages = [*asked, {"role": "assistant", "content": answer.text}]
        self._note(f"[{answer.describe()}]")

    def _stream(self, answer: _Answer, messages: list[Message]) -> None:
        with contextlib.closing(self._pieces(messages)) as pieces:
            for piece in pieces:
                if piece.mark and not answer.mark:
                    self.sink.write(f"{piece.mark}\n")
                answer.take(piece, now=time.perf_counter())
                self.sink.write(_shown(piece.text))
                self.sink.flush()

    def _pieces(self, messages: list[Message]) -> Generator[Piece, None, None]:
        """An answer of at most `max_tokens` tokens, or of what the context has left."""
        try:
            yield from self.talker.answer(messages, max_tokens=self.max_tokens)
        except ContextOverflow as error:
            if error.param != "max_tokens":
                raise
            yield from self.talker.answer(messages, max_tokens=None)

    def _note(self, text: str) -> None:
        is_dim = self.notes.isatty()
        self.notes.write(f"\x1b[2m{text}\x1b[0m\n" if is_dim else f"{text}\n")
        self.notes.flush()


def _shown(text: str) -> str:
    """Without control characters: a model must not steer the terminal."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")
