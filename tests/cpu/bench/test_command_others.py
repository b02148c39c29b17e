"""`draftmark bench config` and `calibrate`, pages of help, and what a command ends with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftmark.bench import calibrate as calibration
from draftmark.bench.ask import Asker
from draftmark.bench.report.compare import NotComparable
from draftmark.bench.result import Gate, GateKind, GateState
from draftmark.bench.session import NotAsDeclared
from draftmark.bench.store import StoreError
from draftmark.cli.bench import COMMANDS
from draftmark.cli.bench.status import Status, of_answers, of_error, of_gates
from draftmark.cli.bench_doc import current
from draftmark.cli.main import main
from draftmark.core.errors import ConfigError, DraftmarkError, ModelNotFound, Unavailable
from tests.fakes.bench_commands import Bench

DOC = Path(__file__).resolve().parents[3] / "docs" / "bench.md"


def test_declared_settings_and_effective_ones(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = bench.folder / "declared.yaml"
    command = ["bench", "config", "--url", bench.truth.url, "--adapter", "vllm"]
    for length, status in ((131072, 0), (1024, 2)):
        declared.write_text(f"max-model-len: {length}\n")
        assert main([*command, "--declared", str(declared), "--json"]) == status
        out, err = capsys.readouterr()
        assert err.startswith(f"declared: {declared}") and "sha256" in err
        rows = {row["key"]: row for row in json.loads(out)}
        assert rows["max_model_len"]["declared"] == length
    assert main([*command, "--declared", str(declared)]) == 2
    assert "| max_model_len | differs | 1024 " in capsys.readouterr().out
    assert main(command) == 5
    assert main([*command, "--declared", "x", "--other", bench.truth.url]) == 5
    assert main([*command, "--declared", str(bench.folder / "nowhere.yaml")]) == 5
    assert bench.asked == []


def test_two_servers(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "config", "--adapter", "vllm", "--url", bench.truth.url, "--other"]
    assert main([*command, bench.truth.url]) == 0
    assert "tell no difference" in capsys.readouterr().out
    assert main([*command, "http://127.0.0.1:9"]) == 1


def test_the_client_is_calibrated(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibration, "_MAX_STREAMS", 2)
    monkeypatch.setattr(calibration, "lag_limit_ms", lambda tpot_ms: 1e9)
    path = bench.folder / "calibration.json"
    command = ["bench", "calibrate", "--streams", "2", "--rate", "50", "--seconds", "0.2"]
    assert main([*command, "--out", str(path)]) == 0
    assert "one process carries" in capsys.readouterr().out
    assert main([*command, "--out", str(path)]) == 5
    assert "results are not written over" in capsys.readouterr().err
    assert calibration.read_calibration(path).rate is not None
    flags = ["--calibration", path, "--run-id", "c"]
    assert bench("run", "--profile", bench.profile(), *flags) == 2  # one_start is unknown
    assert bench.runs()["c"].client.shards >= 1
    assert main(["bench", "calibrate", "--streams", "0"]) == 5
    # No rate that is carried is no result.
    monkeypatch.setattr(calibration, "lag_limit_ms", lambda tpot_ms: 0.0)
    assert main([*command[:3], "1", *command[4:]]) == 2


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "ledger"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["bench", command, "--help"])
    assert leaving.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: draftmark bench {command} ")
    assert max(len(line) for line in shown.splitlines()) <= 100


def test_the_page_of_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS) and "prefill_8x16k" in shown
    assert main(["bench"]) == 5
    assert main(["bench", "rum"]) == 5
    assert "did you mean run?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("no"), Status.USAGE),
        (ModelNotFound("no"), Status.USAGE),
        (Unavailable("no"), Status.FAIL),
        (NotAsDeclared("no"), Status.INVALID),
        (NotComparable("no"), Status.INVALID),
        (StoreError("no"), Status.INVALID),
    ],
)
def test_errors_become_exit_codes(error: DraftmarkError, status: Status) -> None:
    assert of_error(error) is status


def _gate(kind: GateKind, state: GateState) -> Gate:
    return Gate(id="g", kind=kind, observed="", limit="", state=state, evidence="", advice="")


def test_gates_become_exit_codes() -> None:
    method, stability = GateKind.METHOD, GateKind.STABILITY
    fail, unknown = GateState.FAIL, GateState.UNKNOWN
    waived = _gate(method, GateState.WAIVED)
    assert of_gates([_gate(method, GateState.OK), waived]) is Status.PASS
    assert of_gates([waived, _gate(stability, fail)]) is Status.FAIL
    # What was measured wrongly, or not at all, outranks what failed.
    assert of_gates([_gate(stability, fail), _gate(method, fail)]) is Status.INVALID
    assert of_gates([_gate(stability, fail), _gate(stability, unknown)]) is Status.INVALID


def test_answers_become_exit_codes() -> None:
    asker = Asker("http://127.0.0.1:9", model="m")
    assert of_answers(asker, holds=True) is Status.PASS
    assert of_answers(asker, holds=False) is Status.FAIL
    asker.stopped = "the last 3 requests failed"
    assert of_answers(asker, holds=True) is Status.FAIL
    asker.was_interrupted = True
    assert of_answers(asker, holds=True) is Status.INVALID


def test_the_document_is_current() -> None:
    text = DOC.read_text()
    assert current(text) == text, "run python -m draftmark.cli.bench_doc docs/bench.md"
    assert "`ttft_ms`" in text and "`cache_hit_zero`" in text and "`prefill_8x16k`" in text
    with pytest.raises(ConfigError, match="no place for the table"):
        current("")
