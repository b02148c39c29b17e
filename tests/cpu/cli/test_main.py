"""Finding a command, and errors as exit codes."""

from __future__ import annotations

import pytest

from draftmark.cli import main as cli
from draftmark.core.errors import ConfigError, DraftmarkError, ModelError, NotBuilt, RequestError


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    for name in [*cli.COMMANDS, *cli.PLANNED]:
        assert f"  {name} " in out


def test_no_command_shows_the_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "commands:" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    name, _, number = capsys.readouterr().out.partition(" ")
    assert name == "draftmark" and number[0].isdigit()


@pytest.mark.parametrize("command", list(cli.PLANNED))
def test_planned_commands_are_refused_by_name(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command, "run", "--anything"]) == 2
    assert capsys.readouterr().err == f"error: draftmark {command} is not built yet\n"


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["sevre"], "error: unknown command sevre (did you mean serve?)\n"),
        (["rerun"], "error: the following arguments are required: FILE\n"),
        (["rerun", "x", "--free"], "error: unknown flag --free (did you mean --forced?)\n"),
        (["--port", "1"], "error: unknown flag before the command --port\n"),
    ],
)
def test_an_unknown_command(argv: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 2
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("no"), 2),
        (NotBuilt("no"), 2),
        (RequestError("no"), 2),
        (ModelError("no"), 1),
        (DraftmarkError("no"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_become_exit_codes(
    error: BaseException,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert cli.main(["x"]) == status
    shown = capsys.readouterr().err
    assert shown == ("error: no\n" if isinstance(error, DraftmarkError) else "")


def test_our_own_fault_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(arguments: list[str]) -> int:
        raise AssertionError("ours")

    monkeypatch.setattr(cli, "_dispatch", crash)
    with pytest.raises(AssertionError):
        cli.main(["x"])
