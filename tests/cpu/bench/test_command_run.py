"""`draftmark bench run` and `compare`, from the command line to the folder and the exit status."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from draftmark.bench import store
from draftmark.bench.ledger.ledger import Ledger
from draftmark.bench.planner import plan_requests
from draftmark.bench.prompts.prompt import HEAD_TOKENS as HEAD
from draftmark.bench.request import PlannedRequest
from draftmark.bench.result import Role, RunState
from draftmark.bench.session import keeping, planning
from draftmark.bench.session.session import Session
from draftmark.bench.store import load_records
from draftmark.bench.truth.process import truth_process
from draftmark.bench.truth.script import Kind
from draftmark.cli.main import main
from tests.fakes.bench_commands import QUICK, WAIVED, Bench
from tests.fakes.bench_tokens import file_tokenizer, numbered

FILES = {
    "run.json", "requests.jsonl.gz", "samples.jsonl.gz", "server_before.json", "server_after.json",
    "manifest.json", "report.html", "report.md",
}  # fmt: skip


def test_warm_and_measured_runs_are_kept_and_compared(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = bench.profile(warm_runs=1, runs=2)
    assert bench("run", "--profile", profile, "--run-id", "a", *WAIVED) == 0
    out = capsys.readouterr().out
    assert "## a-1" in out and "a-2 / a-1" in out and "every gate holds" in out
    runs = bench.runs()
    assert {name: run.role for name, run in runs.items()} == {
        "a-warm1": Role.WARM,
        "a-1": Role.MEASURE,
        "a-2": Role.MEASURE,
    }
    assert {path.name for path in (bench.out / "a-1").iterdir()} == FILES
    # No two runs sent a prompt that begins alike, the warm one included (H05).
    shas = [record.prompt_sha for name in runs for record in load_records(bench.out / name)]
    assert len(set(shas)) == len(shas) == len(bench.asked) == 18
    assert all(exchange.prompt_tokens == 32 for exchange in bench.asked)

    page = bench.folder / "both.html"
    folders = [bench.out / "a-1", bench.out / "a-2"]
    assert main(["bench", "compare", *map(str, folders), "--html", str(page)]) == 0
    assert "| a-2 / a-1 |" in capsys.readouterr().out
    assert "Tokens per second over time" in page.read_text()
    assert main(["bench", "compare", str(folders[0])]) == 5
    assert main(["bench", "compare", str(folders[0]), str(bench.folder)]) == 5
    nowhere = bench.folder / "no" / "page.html"
    assert main(["bench", "compare", *map(str, folders), "--html", str(nowhere)]) == 2


def test_the_same_command_twice_shares_no_beginning(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one server that stays up, warm runs included: by what was sent, in blocks of 16 (H05)."""
    heads: list[tuple[int, ...]] = []

    def note(*given: Any, **named: Any) -> list[PlannedRequest]:
        plans = plan_requests(*given, **named)
        heads.extend(tuple(msgspec.json.decode(plan.body)["prompt"][:HEAD]) for plan in plans)
        return plans

    monkeypatch.setattr(planning, "plan_requests", note)
    profile = bench.profile(warm_runs=1)
    for _ in range(2):
        while bench("run", "--profile", profile, *WAIVED) == 5:
            time.sleep(0.1)  # names of runs have the second in them
    assert len(bench.runs()) == 4 and len(set(heads)) == len(heads) >= 24


def test_flags_in_place_of_the_profiles_fields(bench: Bench) -> None:
    flags = ["--concurrency", 1, "--n-requests", 2, "--seed", 9, "--runs", 1, "--warm", 0]
    assert bench("run", "--profile", "smoke", "--run-id", "b", *flags, *WAIVED) == 0
    profile = bench.runs()["b"].profile
    assert (profile.concurrency, profile.n_requests, profile.seed) == (1, 2, 9)
    assert bench("run", "--profile", "smoke", "--n-requests", 0) == 5


def test_a_server_that_dies_fails_and_leaves_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with truth_process() as truth:
        bench = Bench(truth, tmp_path)
        death = msgspec.structs.replace(QUICK, breaks_after=1, breaks_by=Kind.DIE)
        bench.play(*[QUICK] * 3, death)
        status = bench("run", "--profile", bench.profile(runs=2), "--run-id", "d", *WAIVED)
        assert status == 1
        # It is not there for a second command either.
        assert bench("run", "--profile", bench.profile()) == 1
    [run] = bench.runs().values()
    assert run.state is RunState.PARTIAL and len(run.counts.incidents) == 1
    assert (run.metrics, run.figures) == ({}, {})
    out, err = capsys.readouterr()
    assert "**PARTIAL**" in out and "error: " in err
    folder = str(bench.out / "d-1")
    assert main(["bench", "compare", folder, folder]) == 2
    assert "it has no figures" in capsys.readouterr().err


def test_a_gate_that_fails_and_one_that_nobody_waived(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = bench.profile()
    assert bench("run", "--profile", profile, "--run-id", "unknown") == 2
    assert "one_start not known" in capsys.readouterr().out
    # H05: what a cache knew already makes a run that was to be cold say nothing.
    bench.play(msgspec.structs.replace(QUICK, cached_tokens=16))
    assert bench("run", "--profile", profile, "--run-id", "hit", *WAIVED) == 2
    assert "cache_hit_zero did not hold" in capsys.readouterr().out
    assert bench.runs()["hit"].tokens.cached == 6 * 16


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--profile", "smok"], "did you mean smoke?"),
        (["--profile", "smoke", "--model", "other"], "does not serve other; it has truth"),
        (["--profile", "smoke", "--waive", "cache_hits"], "no gate is called cache_hits"),
        (["--profile", "smoke", "--allow", "("], "allowed log line"),
        (["--profile", "smoke", "--adapter", "tgi"], "--adapter must be auto"),
        (["--profile", "smoke", "--api-key-file", "nowhere"], "--api-key-file nowhere"),
        (["--profile", "smoke", "--calibration", "nowhere"], "nowhere"),
        (["--profile", "smoke", "--run-id", "../x"], "cannot be the name"),
        (["--profile", "i8k_o1k_c16"], "--ledger FILE"),
        (["--profile", "chat_short"], "data folder"),
        (["--profile", "smoke", "--shards", "0"], "at least 1, not 0"),
        (["--profile", "smoke", "--shards", "two"], "two is no number"),
        ([], "--profile"),
    ],
)
def test_what_is_wrong_with_the_command_line(
    bench: Bench, flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("run", *flags) == 5
    assert told in capsys.readouterr().err
    assert bench.asked == [] and not list(bench.out.glob("*"))


def test_an_unreachable_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "run", "--url", "http://127.0.0.1:9", "--profile", "smoke"]
    assert main([*command, "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: GET http://127.0.0.1:9/metrics")


def test_a_server_that_runs_otherwise_than_declared_is_sent_nothing(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = bench.folder / "declared.yaml"
    declared.write_text(yaml.safe_dump({"max-model-len": 1024}))
    flags = ["--adapter", "vllm", "--declared", declared, *WAIVED]
    assert bench("run", "--profile", bench.profile(), *flags) == 2
    assert "1024 declared, 131072 there" in capsys.readouterr().err
    assert bench.asked == [] and not list(bench.out.glob("*"))
    declared.write_text(yaml.safe_dump({"max-model-len": 131072}))
    assert bench("run", "--profile", bench.profile(), "--run-id", "same", *flags) == 0
    gates = {gate.id: gate.state for gate in bench.runs()["same"].gates}
    assert gates["drift_none"] == "ok"


def test_events_are_lines_of_json(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--run-id", "j", "--ui", "json", *WAIVED]
    assert bench("run", "--profile", bench.profile(), *flags) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[0] == {"event": "stage", "step": 1, "steps": 1, "name": "j"}
    assert events[-1]["event"] == "result" and events[-1]["run"]["state"] == "complete"


def _full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_keeps_what_is_there_and_is_no_result(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = bench.profile()
    with monkeypatch.context() as full:
        full.setattr(store.os, "fsync", _full)
        assert bench("run", "--profile", profile, "--run-id", "f", *WAIVED) == 2
    assert "No space left" in capsys.readouterr().err
    assert (bench.out / "f.part").is_dir() and not (bench.out / "f").exists()
    with monkeypatch.context() as full:
        full.setattr(keeping.Path, "write_text", _full)
        assert bench("run", "--profile", profile, "--run-id", "g", *WAIVED) == 2
    assert f"kept in {bench.out / 'g'}, but not its reports" in capsys.readouterr().err
    assert set(bench.runs()) == {"g"}


def test_a_log_that_is_rotated_costs_its_gate_and_not_the_run(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = bench.folder / "server.log"
    log.write_text("before\n")
    send = Session._send

    def rotate(*given: object) -> object:
        log.unlink()
        log.write_text("")
        return send(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "_send", rotate)
    flags = ["--run-id", "r", "--log", log, *WAIVED]
    assert bench("run", "--profile", bench.profile(), *flags) == 2
    assert "was rotated or cut" in capsys.readouterr().err
    gates = {gate.id: gate.state for gate in bench.runs()["r"].gates}
    assert gates["log_clean"] == "unknown"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_from_outside_keeps_a_partial_run_and_burns_its_window(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C as a terminal sends it, to the command and to its shards; another end to the command
    alone."""
    with truth_process() as truth:
        bench = Bench(truth, tmp_path)
        bench.play(msgspec.structs.replace(QUICK, ttft_ms=100))
        ledger = Ledger(tmp_path / "ledger.jsonl")
        ledger.add(numbered(4096, tokenizer=file_tokenizer(bench.tokenizer).sha256))
        profile = bench.profile(n_requests=100, source="ledger")
        flags = ["--profile", profile, "--run-id", "i", "--ledger", ledger.path]
        command = [*bench.flags("run"), *map(str, flags)]
        with subprocess.Popen(
            [sys.executable, "-m", "draftmark.cli.main", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            while len(truth.log()) < 4 and process.poll() is None:
                time.sleep(0.02)
            end = os.killpg if number is signal.SIGINT else os.kill
            end(process.pid, number)
            out, _ = process.communicate(timeout=60)
        assert process.returncode == 2
    [run] = bench.runs().values()
    assert (run.state, run.why_partial) == (RunState.PARTIAL, "interrupted")
    assert 0 < run.counts.ok < 100 and run.figures == {}
    assert "**PARTIAL**: interrupted" in out
    [window] = ledger.state().corpus("books").windows
    assert window.status.value == "committed" and run.ledger is not None
    assert run.ledger.line_sha == window.line_sha


def test_ctrl_c_before_anything_is_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "_plan", interrupt)
    assert bench("run", "--profile", "smoke", "--run-id", "k") == 130
    assert not list(bench.out.glob("*"))
