"""`draftmark chat` against a fake server: through a pipe, and through a real terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from draftmark.cli.main import main
from tests.fakes.chat_server import FakeChatServer, chat_server

COMMAND = [sys.executable, "-m", "draftmark.cli.main", "chat"]
# Makes the terminal the controlling one, so that byte 3 is a real Ctrl-C.
LOGIN = "import os, sys; os.login_tty(os.open(os.ttyname(0), os.O_RDWR)); " + (
    "os.execv(sys.argv[1], sys.argv[1:])"
)
DEADLINE_S = 20.0


@pytest.fixture
def server() -> Iterator[FakeChatServer]:
    with chat_server() as running:
        yield running


def pipe(server: FakeChatServer, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "--url", server.url, *flags]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=DEADLINE_S)


def test_lines_from_a_pipe_are_a_conversation(server: FakeChatServer) -> None:
    done = pipe(server, "/system be kind\none two\nthree\n/reset\nfour\n/exit\nfive\n")
    assert (done.returncode, done.stdout) == (0, "one two \nthree \nfour \n")
    roles = [[m["role"] for m in body["messages"]] for body in server.bodies]
    assert roles == [
        ["system", "user"],
        ["system", "user", "assistant", "user"],
        ["system", "user"],
    ]
    assert server.bodies[1]["messages"][2]["content"] == "one two "
    assert "2 tokens" in done.stderr and "tok/s" in done.stderr


def test_what_is_asked_for_goes_into_the_request(server: FakeChatServer, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\nother\n")
    flags = ("--max-tokens", "7", "--temperature", "0", "--top-p", "0.5")
    done = pipe(server, "hi", *flags, "--api-key-file", str(keys))
    assert done.returncode == 0
    body = server.bodies[0]
    assert (body["model"], body["stream"]) == ("echo", True)
    assert (body["max_tokens"], body["temperature"], body["top_p"]) == (7, 0.0, 0.5)
    assert "top_k" not in body
    assert server.keys == ["Bearer secret"]


def test_a_turn_that_fails_is_said_and_forgotten(server: FakeChatServer) -> None:
    done = pipe(server, "refuse\nbreak\ncut it\nfine\n")
    assert done.returncode == 1
    assert "error: messages: refused" in done.stderr
    assert "error: rank 0 died" in done.stderr
    assert "error: the server ended the stream" in done.stderr
    assert done.stdout == "cut it \nfine \n"
    assert [m["content"] for m in server.bodies[-1]["messages"]] == ["fine"]


def test_the_default_limit_is_512_tokens(server: FakeChatServer) -> None:
    pipe(server, "hi")
    assert server.bodies[0]["max_tokens"] == 512


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--url", "http://127.0.0.1:9"], "error: no answer from http://127.0.0.1:9: "),
        (["--url", "127.0.0.1:8000"], "error: --url must begin with http:// or https://"),
        (["smollm2", "--url", "http://127.0.0.1:9"], "error: --url names a server"),
        (["--url", "http://x", "--api-key-file", "/none"], "error: --api-key-file /none: cannot"),
        (["--max-tokens", "x"], "error: --max-tokens: invalid int value: 'x'"),
    ],
)
def test_wrong_command_lines(
    argv: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", *argv]) in (1, 2)
    shown = capsys.readouterr().err
    assert shown.startswith(line) and shown.count("\n") == 1


class Terminal:
    """A process on a pseudo-terminal of its own."""

    def __init__(self, argv: list[str]) -> None:
        self._fd, theirs = pty.openpty()
        with os.fdopen(theirs, "rb", buffering=0) as side:
            self._process = subprocess.Popen(
                [sys.executable, "-c", LOGIN, *argv], stdin=side, stdout=side, stderr=side
            )
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, text: str) -> None:
        """Until `text` has been shown since the last call."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.seen:
            ready, _, _ = select.select([self._fd], [], [], deadline - time.monotonic())
            assert ready, f"no {text!r} in {self.seen[-500:]!r}"
            self.seen += os.read(self._fd, 1 << 16).decode(errors="replace")
        self.seen = self.seen.partition(text)[2]

    def wait_for_prompt(self) -> None:
        """Until it waits for input. Readline shows the prompt first, and what Python is told of a
        signal between the two it acts on only at the next key."""
        self.wait_for("> ")
        process = psutil.Process(self._process.pid)
        deadline = time.monotonic() + DEADLINE_S
        while process.status() != psutil.STATUS_SLEEPING:
            assert time.monotonic() < deadline, f"still {process.status()} after the prompt"
            time.sleep(0.001)

    def end(self) -> int:
        status = self._process.wait(DEADLINE_S)
        os.close(self._fd)
        return status

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def terminal(server: FakeChatServer) -> Iterator[Terminal]:
    started = Terminal([*COMMAND, "--url", server.url])
    yield started
    started.kill()


def test_ctrl_c_stops_the_answer_and_keeps_what_arrived(
    terminal: Terminal, server: FakeChatServer
) -> None:
    terminal.wait_for_prompt()
    terminal.type("endless words\n")
    terminal.wait_for("endless words endless words")
    terminal.type("\x03")
    terminal.wait_for("stopped]")
    assert server.has_left.wait(DEADLINE_S), "the request was not aborted"
    terminal.wait_for_prompt()
    terminal.type("more\n")
    terminal.wait_for("1 tokens")
    said = [message["content"] for message in server.bodies[1]["messages"]]
    assert said[0] == "endless words" and said[1].startswith("endless ") and said[2] == "more"
    terminal.wait_for_prompt()
    terminal.type("\x04")
    assert terminal.end() == 0


def test_two_ctrl_c_at_the_prompt_leave(terminal: Terminal) -> None:
    terminal.wait_for_prompt()
    terminal.type("\x03")
    terminal.wait_for("Ctrl-C again leaves")
    terminal.wait_for_prompt()
    terminal.type("\x03")
    assert terminal.end() == 0


def test_exit_leaves(terminal: Terminal) -> None:
    terminal.wait_for_prompt()
    terminal.type("/nonsense\n")
    terminal.wait_for("unknown command /nonsense")
    terminal.type("/exit\n")
    assert terminal.end() == 0
