"""`draftmark stacks` of a live server: the real processes over fake workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmark.cli.main import main
from tests.fakes import command_line
from tests.fakes.chat_server import chat_server
from tests.fakes.server_process import ENGINE, ServerProcess, serving

KEY = "secret"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\n")
    return file


@pytest.fixture
def server(model_dir: Path, key_file: Path) -> Iterator[ServerProcess]:
    """Two stages, reachable with a key."""
    flags = ("--port", "0", "--pp", "2", "--stages", "1,1", "--api-key-file", str(key_file))
    with serving(command_line.command("serve", str(model_dir), *flags)) as started:
        yield started


@pytest.mark.slow
def test_everything_of_a_live_server_is_shown(
    server: ServerProcess, key_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["stacks", "--url", server.wait_url()]
    assert main(argv) == 1
    assert "an API key is needed" in capsys.readouterr().err
    assert main([*argv, "--api-key-file", str(key_file)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("asked for while running\n\nStages\nworker 0 (stage 0)")
    headings = [
        "Lanes\nforward lane 0>1\n  source: worker 0 (stage 0)",
        "return lane 1>0\n  source: worker 1 (stage 1)",
        "Stacks of the engine process",
        "Stacks of worker 0",
        "worker_process.py",
        "Stacks of worker 1",
        "worker_process.py",
        "Stacks of the API process",
        "server/app.py",
    ]
    place = 0
    for heading in headings:
        place = shown.index(heading, place) + 1


@pytest.mark.slow
def test_an_engine_that_hangs_leaves_the_servers_own(
    server: ServerProcess, key_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = server.wait_url()
    server.child(ENGINE).suspend()
    assert main(["stacks", "--url", f"{url}/v1", "--api-key-file", str(key_file)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("the engine did not answer within 3 s\n\nStacks of the API process\n")
    assert "server/app.py" in shown
    assert server.end(15) == 1  # it gives up by itself


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--url", "http://127.0.0.1:9"], "error: no answer from http://127.0.0.1:9: "),
        (["--url", "127.0.0.1:8000"], "error: --url must begin with http:// or https://"),
        (["--url", "http://x", "--api-key-file", "/none"], "error: --api-key-file /none: cannot"),
        (["smollm2"], "error: unexpected argument smollm2"),
        (["--pp", "2"], "error: unknown flag --pp"),
    ],
)
def test_wrong_command_lines(
    argv: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stacks", *argv]) in (1, 2)
    shown = capsys.readouterr().err
    assert shown.startswith(line) and shown.count("\n") == 1


def test_a_server_of_another_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with chat_server() as other:
        assert main(["stacks", "--url", other.url]) == 1
    assert capsys.readouterr().err == "error: the server answered 200\n"
