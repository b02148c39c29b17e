"""`draftmark bench suite`, `quality` and `conc`, from the command line to files and exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from draftmark.bench import ask
from draftmark.bench.truth.process import truth_process
from draftmark.bench.truth.script import Kind, Reply, Script, Step
from draftmark.cli.main import main
from tests.fakes.answers import chat_answer
from tests.fakes.bench_commands import WAIVED, Bench
from tests.fakes.scripted_http import Status, scripted_http

AT_ONCE = Reply(ttft_ms=0, gap_ms=0, cached_tokens=0)


def cases(folder: Path) -> Path:
    """Two that the truth server passes, of which the second wants the first one's answer."""
    folder.mkdir()
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
    expect: dict[str, Any] = {"finish": ["length"], "content": {"contains": ["w2"]}}
    first = {"id": "d01", "title": "whole", "body": body, "expect": expect}
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    second = {"id": "d02", "title": "streamed", "body": streamed, "expect": {"same_as": "d01"}}
    for case in (first, second):
        (folder / f"{case['id']}.yaml").write_text(yaml.safe_dump(case))
    return folder


def test_the_suite_and_its_baseline(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.play(AT_ONCE)
    own = ["--from", cases(bench.folder / "cases")]
    assert bench("suite", *own) == 0
    assert "2 passed, 0 failed" in capsys.readouterr().out
    kept = bench.kept("*suite.json")
    assert [row["tokens"] for row in kept["rows"]] == [3, 3] and kept["passed"] == 2
    [path] = bench.out.glob("*suite.json")
    baseline = path.rename(bench.folder / "suite.json")
    assert bench("suite", *own, "--baseline", baseline) == 0
    assert "2 cases compared" in capsys.readouterr().out
    for path in bench.out.glob("*suite.json"):
        path.unlink()
    bench.play(AT_ONCE, msgspec.structs.replace(AT_ONCE, status=500), AT_ONCE)
    assert bench("suite", *own, "--cases", "d01", "--baseline", baseline) == 2
    bench.play(msgspec.structs.replace(AT_ONCE, status=500))
    for path in bench.out.glob("*suite.json"):
        path.unlink()
    assert bench("suite", *own, "--baseline", baseline) == 1
    assert "broken: d01" in capsys.readouterr().err
    assert bench("suite", "--cases", "d99") == 5
    assert bench("suite", "--baseline", "nowhere.json") == 5


def test_shipped_cases_fail_a_server_that_says_words(bench: Bench) -> None:
    bench.play(AT_ONCE)
    assert bench("suite", "--cases", "d01-d03") == 1
    assert [row["id"] for row in bench.kept("*suite.json")["rows"]] == ["d01", "d02", "d03"]


def test_ctrl_c_keeps_what_was_answered_and_says_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.play(AT_ONCE)
    once, count = ask.ask_once, iter(range(9))

    async def interrupted(*given: Any, **named: Any) -> ask.Reply:
        if next(count):
            raise KeyboardInterrupt
        return await once(*given, **named)

    monkeypatch.setattr(ask, "ask_once", interrupted)
    assert bench("suite", "--from", cases(bench.folder / "cases")) == 2
    rows = bench.kept("*suite.json")["rows"]
    assert [row["passed"] for row in rows] == [True, False]
    assert "not sent: interrupted" in str(rows[1]["faults"])
    assert bench.kept("*suite.json")["stopped"] == "interrupted"


@pytest.mark.parametrize("when", [0, 1])
def test_a_server_that_dies_leaves_a_partial_suite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], when: int
) -> None:
    """At the first question, or at the last, where nothing is left to be refused."""
    replies = [AT_ONCE] * when + [Reply(steps=[Step(at_ms=0, kind=Kind.DIE)])]
    own = ["--from", str(cases(tmp_path / "cases")), "--out", str(tmp_path / "out")]
    with truth_process(Script(replies=replies)) as truth:
        assert main(["bench", "suite", "--url", truth.url, *own]) == 1
    told = capsys.readouterr().out
    assert "PARTIAL, the server is gone: GET http" in told and "HTTP None" not in told
    [path] = (tmp_path / "out").glob("*suite.json")
    with truth_process(Script(replies=[AT_ONCE])) as truth:
        assert main(["bench", "suite", "--url", truth.url, *own, "--baseline", str(path)]) == 5
    assert "is partial (the server is gone" in capsys.readouterr().err


def test_a_server_that_dies_refused_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with truth_process(Script(replies=[Reply(steps=[Step(at_ms=0, kind=Kind.DIE)])])) as truth:
        assert main(["bench", "conc", "--url", truth.url, "--out", str(tmp_path)]) == 1
    [path] = tmp_path.glob("*conc.json")
    kept = json.loads(path.read_text())
    assert kept["left_out"] == [] and kept["stopped"].startswith("the server is gone")
    assert "PARTIAL" in capsys.readouterr().out


def test_the_same_alone_and_in_a_crowd(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.play(AT_ONCE)
    flags = ["--in-flight", 4, "--rounds", 2, "--max-tokens", 6, "--long-tokens", 50]
    assert bench("conc", *flags) == 0
    assert "8 equal, 0 ties" in capsys.readouterr().out
    [path] = bench.out.glob("*conc.json")
    path.unlink()
    # Two questions what the server takes, four alone; then it answers otherwise.
    bench.play(*[AT_ONCE] * 6, msgspec.structs.replace(AT_ONCE, digit_noise=True))
    assert bench("conc", *flags) == 1
    assert "fail  crowd_equals_solo" in capsys.readouterr().err
    assert bench.kept("*conc.json")["differs"] == 8


def test_seven_quick_questions(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.play(msgspec.structs.replace(AT_ONCE, tokens=4))
    assert bench("quality", "--quick") == 1
    assert "0/7" in capsys.readouterr().out
    assert bench.kept("*quick.json")["of"] == 7


def test_the_arithmetic_that_ships(bench: Bench) -> None:
    """Answers in words without a number are wrong ones, and no failure of the server."""
    bench.play(msgspec.structs.replace(AT_ONCE, tokens=4))
    assert bench("quality", "--task", "arithmetic", "--n", 3) == 0
    kept = bench.kept("*quality.json")
    assert (kept["task"], kept["n"], kept["failed"]) == ("arithmetic", 3, 0)
    bench.play(msgspec.structs.replace(AT_ONCE, tokens=200, digit_noise=True))
    assert bench("quality", "--task", "arithmetic", "--n", 3, "--out", bench.folder / "x") == 1


def _problems(path: Path, answers: list[int]) -> Path:
    rows = [
        {"id": f"p{n}", "messages": [{"role": "user", "content": str(n)}], "answer": str(answer)}
        for n, answer in enumerate(answers)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_problems_of_ones_own_in_pairs(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = _problems(tmp_path / "p.jsonl", list(range(40)))
    wrong: set[str] = set()

    def answer(body: Any) -> Any:
        asked = body["messages"][-1]["content"]
        if "x" in wrong:
            return Status(500)
        return chat_answer("#### 99" if asked in wrong else f"#### {asked}")

    routes = {
        "GET /v1/models": {"data": [{"id": "m", "owned_by": "somebody"}]},
        "POST /v1/chat/completions": answer,
    }
    with scripted_http(routes) as server:
        command = ["bench", "quality", "--url", server.url, "--task", "file"]
        command += ["--problems", str(problems)]

        def ask_all(name: str, *more: object) -> int:
            return main([*command, "--out", str(tmp_path / name), *map(str, more)])

        assert ask_all("a") == 0
        [reference] = (tmp_path / "a").glob("*quality.json")
        assert "40 of 40 right" in capsys.readouterr().out
        assert ask_all("b", "--ref", reference, "--margin", 0.2) == 0
        assert "0 gained, 0 lost" in capsys.readouterr().out
        wrong |= {str(n) for n in range(30)}
        assert ask_all("c", "--ref", reference) == 1
        assert "0 gained, 30 lost" in capsys.readouterr().out
        # Another start than that of the speed run, or one that nobody tells.
        assert bench("run", "--profile", bench.profile(), "--run-id", "s", *WAIVED) == 0
        wrong.clear()
        assert ask_all("d", "--run", bench.out / "s") == 2
        assert "unknown  quality_same_start" in capsys.readouterr().err
        wrong.add("x")
        # What the server did not answer is its own fault, and not one of the command line.
        assert ask_all("e", "--ref", reference) == 2
        told = capsys.readouterr()
        assert "no share" in told.out and "unknown  quality_non_inferior" in told.err
        num_asked = len(server.asked)
        assert ask_all("g", "--ref", reference, "--n", 39) == 5
        assert "cannot be paired" in capsys.readouterr().err
        assert not [one for one in server.asked[num_asked:] if one[0] == "POST"]
        assert ask_all("f", "--n", 41) == 5


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--task", "arithmetic", "--quick"],
        ["--task", "gsm8k"],
        ["--task", "file"],
        ["--task", "gsm8k", "--data", "nowhere"],
        ["--task", "arithmetic", "--ref", "nowhere.json"],
    ],
)
def test_what_is_wrong_with_the_command_line(bench: Bench, flags: list[str]) -> None:
    assert bench("quality", *flags) == 5
    assert bench.asked == []
