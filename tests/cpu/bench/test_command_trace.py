"""`draftmark bench trace` and `killer`, from the command line to files and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from draftmark.bench.profile import Mode
from draftmark.bench.result import Role
from draftmark.bench.store import load_records
from draftmark.cli.main import main
from tests.fakes.bench_commands import QUICK, WAIVED, Bench

MOONCAKE = [
    {"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]},
    {"timestamp": 100, "input_length": 520, "output_length": 2, "hash_ids": [1, 3]},
    {"timestamp": 100, "input_length": 20, "output_length": 4, "hash_ids": [4]},
]
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,20,3
2023-11-16 18:17:04.0319600,30,2
"""
OWN = [{"at_s": 0, "osl": 2, "isl": 9}, {"at_s": 0.1, "osl": 3, "isl": 12}]
CHATS = [
    {"at_s": 0, "osl": 2, "messages": [{"role": "user", "content": "one two"}]},
    {"at_s": 0.1, "osl": 3, "prompt": "three"},
]


def lines(path: Path, rows: list[dict[str, object]] | str) -> Path:
    text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("format", "rows", "lengths"),
    [
        ("mooncake", MOONCAKE, [(600, 3), (520, 2), (20, 4)]),
        ("azure", AZURE, [(20, 3), (30, 2)]),
        ("jsonl", OWN, [(9, 2), (12, 3)]),
    ],
)
def test_what_was_recorded_is_sent(
    bench: Bench, format: str, rows: list[dict[str, object]] | str, lengths: list[tuple[int, int]]
) -> None:
    trace = lines(bench.folder / "load.jsonl", rows)
    flags = ["--trace", trace, "--format", format, "--run-id", "t", *WAIVED]
    assert bench("trace", *flags) == 0
    run = bench.runs()["t"]
    assert run.profile.mode is Mode.TRACE and run.counts.ok == len(lengths)
    asked = [(one.prompt_tokens, one.fields["max_tokens"]) for one in bench.asked]
    assert sorted(asked) == sorted(lengths)
    due = [record.t_sched for record in load_records(bench.out / "t")]
    assert None not in due and due == sorted(due, key=lambda at: at or 0)
    assert "cache_hit_zero" not in {gate.id for gate in run.gates}


def test_a_trace_of_texts_and_chats(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a server that has nothing but the API: without a tokenizer nobody knows their lengths."""
    trace = lines(bench.folder / "load.jsonl", CHATS)
    flags = ["--url", bench.truth.url, "--out", str(bench.out), "--trace", str(trace)]
    flags += ["--adapter", "openai", "--format", "jsonl", "--run-id", "t", *WAIVED]
    command = ["bench", "trace", *flags, "--waive", "no_other_traffic"]
    assert main(command) == 5
    assert "ignore_eos" in capsys.readouterr().err
    assert main([*command, "--stop-at-eos"]) == 0
    assert [one.prompt_tokens for one in bench.asked] == [2, 1]
    # The tokenizer here counts bytes, that server words.
    assert bench("trace", "--trace", trace, "--format", "jsonl") == 5
    assert "it is not that of the model that is served" in capsys.readouterr().err


def test_a_trace_made_to_fit(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    trace = lines(bench.folder / "load.jsonl", MOONCAKE)
    flags = ["--trace", trace, "--format", "mooncake", "--max-isl", 64, *WAIVED]
    assert bench("trace", *flags) == 5
    more = ["--over", "cap", "--limit", 2, "--speed", 10, "--spread-ticks", "--run-id", "c"]
    assert bench("trace", *flags, *more) == 0
    assert "2 of 2 prompts were cut to --max-isl" in capsys.readouterr().err
    assert [one.prompt_tokens for one in bench.asked] == [64, 64]


@pytest.mark.parametrize(
    ("format", "rows", "told"),
    [
        ("mooncake", [MOONCAKE[0], {**MOONCAKE[1], "hash_ids": [1]}], ":2: 1 hash ids for 520"),
        ("mooncake", [MOONCAKE[1], MOONCAKE[0]], ":2: earlier than the row before it"),
        ("azure", AZURE + "yesterday,1,1\n", ":4: 'yesterday' is no time"),
        ("jsonl", '{"at_s": 0, "osl": 2, "isl": 9}\n\n{"at_s": 1\n', ":3: "),
        ("jsonl", "", "no rows"),
    ],
)
def test_a_broken_row_is_named_and_nothing_sent(
    bench: Bench,
    format: str,
    rows: list[dict[str, object]] | str,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = lines(bench.folder / "load.jsonl", rows)
    assert bench("trace", "--trace", trace, "--format", format) == 5
    assert told in capsys.readouterr().err
    assert bench.asked == [] and not list(bench.out.glob("*"))


def test_the_killer_over_two_seeds(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--profile", bench.profile(), "--seeds", "1,2", *WAIVED]
    assert bench("killer", *flags, "--run-id", "k", "--bound", 100) == 0
    assert "ok  wall_bound" in capsys.readouterr().err
    kept = bench.kept("k.json")
    assert [run["seed"] for run in kept["runs"]] == [1, 2] and kept["reproducibility"] is not None
    runs = bench.runs()
    assert {run.role for run in runs.values()} == {Role.KILLER}
    assert [record.prompt_sha for record in load_records(bench.out / "k-seed1")] != [
        record.prompt_sha for record in load_records(bench.out / "k-seed2")
    ]
    # No two runs take the same time to the nanosecond.
    assert bench("killer", *flags, "--run-id", "m", "--bound", 0) == 1
    assert "fail  wall_bound" in capsys.readouterr().err


def test_a_killer_that_says_nothing(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("killer", "--profile", bench.profile(), "--seeds", "1") == 5
    assert bench("killer", "--profile", bench.profile(), "--seeds", "1,x") == 5
    bench.play(*[QUICK] * 3, msgspec.structs.replace(QUICK, status=503), QUICK)
    flags = ["--profile", bench.profile(), "--run-id", "f", "--bound", 100, *WAIVED]
    assert bench("killer", *flags) == 2
    assert "fail_rate did not hold" in capsys.readouterr().out
