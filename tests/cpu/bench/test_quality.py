"""Grading, pairing and the quick prompts, against known values and answers good and bad."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from draftmark.bench.ask import Asker
from draftmark.bench.quality import (
    Problem,
    QualityResult,
    compare_paired,
    compare_quality,
    read_arithmetic,
    read_gsm8k,
    read_problems,
    read_quality,
    run_quality,
    run_quick,
)
from draftmark.bench.quality.degenerate import degenerate, digit_noise, repetition, words_of
from draftmark.bench.quality.paired import mcnemar_exact, score_interval, wilson_interval
from draftmark.bench.quality.problems import is_right, number_in
from draftmark.bench.truth.process import truth_process
from draftmark.bench.truth.script import Reply, Script
from draftmark.core.errors import ConfigError
from tests.fakes.answers import chat_answer, tool_answer
from tests.fakes.scripted_http import Status, scripted_http

CHAT = "POST /v1/chat/completions"
SENTENCES = [
    "The river runs past the old mill, and on market days the whole valley comes to trade.",
    "First, 12 * 3 = 36. Then 36 + 4 = 40, so she has 40 apples. #### 40",
    "ha ha ha, said the man, and then he went home to his dinner and slept until the morning.",
    "水是由氢和氧组成的化合物, 在常温下是液体, 没有颜色, 也没有气味, 是生命所必需的。",
    "def f(x):\n    return x\n\n\ndef g(x):\n    return x\n\n\ndef h(x):\n    return x\n",
    "pi is 3.14159265358979323846264338327950288",
]


def test_published_values_of_paired_shares() -> None:
    """Airway hyper-responsiveness before and after a transplantation (Fagerland, Lydersen and
    Laake, 2014): of 21 children 1 got better and 7 worse."""
    paired = compare_paired(n=21, gained=1, lost=7)
    assert paired.difference == pytest.approx(-6 / 21)
    assert paired.p == pytest.approx(0.0703, abs=5e-5)
    assert (paired.low, paired.high) == pytest.approx((-0.517, -0.026), abs=5e-4)
    assert not paired.is_non_inferior(0.1)


def test_no_difference_has_a_closed_form() -> None:
    z2 = 1.959963984540054**2
    for n in (1, 30, 1319):
        low, high = score_interval(n=n, gained=0, lost=0)
        assert (-low, high) == pytest.approx((z2 / (n + z2),) * 2, abs=1e-9)
    assert mcnemar_exact(0, 0) == 1
    assert mcnemar_exact(5, 5) == 1
    assert mcnemar_exact(0, 10) == pytest.approx(2 / 1024)


def test_intervals_are_sound() -> None:
    low, high = score_interval(n=200, gained=9, lost=4)
    assert low < 5 / 200 < high
    assert score_interval(n=200, gained=4, lost=9) == pytest.approx((-high, -low), abs=1e-9)
    assert score_interval(n=5, gained=5, lost=0)[1] == pytest.approx(1)
    assert compare_paired(n=1319, gained=20, lost=22).is_non_inferior(0.02)
    assert wilson_interval(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert wilson_interval(81, 263)[0] == pytest.approx(0.2553, abs=1e-4)  # Newcombe 1998


@pytest.mark.parametrize("text", SENTENCES)
def test_sound_text_is_not_degenerate(text: str) -> None:
    assert degenerate(text) == []


def test_noise_and_loops_are_found() -> None:
    noise = "The answer is " + "0 1 0 2, 11. 3 " * 20
    assert digit_noise(noise) is not None
    assert digit_noise("x" + "9" * 60 + "x") is None
    loop = "I think that the answer is four. " * 12
    assert repetition("He paused for a while. " + loop) is not None
    assert repetition("我认为答案是四" * 12) is not None
    assert repetition("no no no no") is None  # too short to judge
    assert repetition("No tool fits: clou" + "docolo" * 20) is not None
    assert repetition("a line\n" + "-" * 100 + "\n" + "=" * 100) is None
    assert words_of("two words 水的") == ["two", "words", "水", "的"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so 3 and 4 make 7.", "7"),
        ("#### 1,234", "1234"),
        ("#### 12 and then 13", "12"),
        ("#### $5.00", "5.00"),
        ("first #### 1\nthen #### -2", "-2"),
        ("1,23 is a list", "23"),
        ("it is 12-5", "5"),
        ("(12)-5 or x-5", "5"),
        ("it is $-5", "-5"),
        ("none", None),
    ],
)
def test_the_number_of_an_answer(text: str, number: str | None) -> None:
    found = number_in(text)
    assert (None if found is None else str(found)) == number


def test_right_is_a_matter_of_value() -> None:
    assert is_right("#### 5.00", "5")
    assert not is_right("no idea", "5")


def _rows(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_gsm8k_is_read_with_its_shots(tmp_path: Path) -> None:
    rows = [{"question": f"q{i}", "answer": f"so\n#### 1,00{i}"} for i in range(6)]
    _rows(tmp_path / "gsm8k" / "test.jsonl", rows[:3])
    shots = _rows(tmp_path / "gsm8k" / "train_first200.jsonl", rows)
    problems = read_gsm8k(tmp_path, n=2, shots=5)
    assert [problem.answer for problem in problems] == ["1000", "1001"]
    roles = [message["role"] for message in problems[0].messages]
    assert roles == ["system", *["user", "assistant"] * 5, "user"]
    assert problems[0].messages[-1]["content"] == "q0"
    assert "1000" not in problems[0].messages[-1]["content"]
    with pytest.raises(ConfigError, match="holds 3 rows, 4 are wanted"):
        read_gsm8k(tmp_path, n=4)
    shots.write_text('{"question": 1}\n')
    with pytest.raises(ConfigError, match="line 1"):
        read_gsm8k(tmp_path, n=1)
    with pytest.raises(ConfigError, match="No such file"):
        read_gsm8k(tmp_path / "elsewhere")


def test_the_real_gsm8k(shared_data: Path) -> None:
    problems = read_gsm8k(shared_data)
    assert len(problems) == 1319
    assert problems[0].answer == "18"


def test_files_of_problems_are_checked(tmp_path: Path) -> None:
    row = {"id": "a", "messages": [{"role": "user", "content": "q"}], "answer": "7"}
    path = _rows(tmp_path / "x" / "set.jsonl.gz", [row, {**row, "id": "b"}])
    assert [problem.id for problem in read_problems(path)] == ["a", "b"]
    for rows, fault in (
        ([row, row], "share an id"),
        ([{**row, "answer": "seven"}], "no number"),
        ([{**row, "other": 1}], "line 1"),
    ):
        with pytest.raises(ConfigError, match=fault):
            read_problems(_rows(tmp_path / "x" / "bad.jsonl", rows))
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        read_problems(path)


def test_the_arithmetic_that_ships() -> None:
    problems = read_arithmetic()
    assert len(problems) == 400
    assert read_arithmetic(n=3) == problems[:3]
    assert {problem.fields["chat_template_kwargs"]["enable_thinking"] for problem in problems} == {
        True,
        False,
    }


PROBLEMS = [
    Problem(id=f"p{i}", messages=[{"role": "user", "content": f"{i}"}], answer=f"{i}")
    for i in range(6)
]


def _answers(answer: Any, problems: list[Problem] = PROBLEMS, **more: Any) -> QualityResult:
    with scripted_http({CHAT: answer}) as server:
        asker = Asker(server.url, model="m", timeout_s=30)
        return run_quality(asker, problems, task="t", start_id="s", **more)


def _echo(wrong: set[str]) -> Any:
    def answer(body: Any) -> Any:
        asked = body["messages"][-1]["content"]
        return chat_answer("so it is #### " + ("99" if asked in wrong else asked))

    return answer


def test_a_run_is_scored_and_compared_pair_by_pair(tmp_path: Path) -> None:
    result = _answers(_echo({"1", "2"}))
    assert (result.n, result.correct, result.failed, result.marked) == (6, 4, 0, 6)
    assert result.share == pytest.approx(4 / 6)
    path = tmp_path / "quality.json"
    path.write_bytes(msgspec.json.encode(result))
    reference = _answers(_echo({"2", "3", "4"}))
    paired = compare_quality(read_quality(path), reference)
    assert (paired.n, paired.gained, paired.lost) == (6, 2, 1)
    path.write_text("{}")
    with pytest.raises(ConfigError, match="quality"):
        read_quality(path)


def test_other_problems_are_not_paired() -> None:
    result = _answers(_echo(set()))
    with pytest.raises(ConfigError, match="not the same"):
        compare_quality(result, _answers(_echo(set()), PROBLEMS[:5]))
    moved = [
        *PROBLEMS[:5],
        Problem(id="p5", messages=[{"role": "user", "content": "5?"}], answer="5"),
    ]
    with pytest.raises(ConfigError, match="not the same"):
        compare_quality(result, _answers(_echo(set()), moved))


def test_a_broken_run_has_no_share() -> None:
    def answer(body: Any) -> Any:
        asked = body["messages"][-1]["content"]
        return Status(503, "dying") if asked == "3" else chat_answer(asked)

    result = _answers(answer)
    assert (result.share, result.low, result.failed) == (None, None, 1)
    assert result.items[3].correct is None
    assert result.items[3].failure == "http_5xx: HTTP 503: dying"
    with pytest.raises(ConfigError, match="lacks 1 of 6"):
        compare_quality(result, _answers(_echo(set())))


def test_what_the_model_does_badly_is_wrong_and_not_broken() -> None:
    def answer(body: Any) -> Any:
        asked = body["messages"][-1]["content"]
        if asked == "0":
            return chat_answer(None, reasoning_content="I think and think")
        if asked == "1":
            return chat_answer("0 1 0 2 " * 40, finish="length")
        return chat_answer(asked)

    result = _answers(answer)
    assert (result.correct, result.failed, result.degenerate) == (4, 0, 1)
    assert result.items[0].failure is not None
    assert result.items[0].failure.startswith("reasoning_only")


GOOD = {
    "17 * 23": chat_answer("391"),
    "capital of France": chat_answer("Paris."),
    "JSON": chat_answer('```json\n{"name": "Ada", "age": 36}\n```'),
    "weather": tool_answer("get_weather", '{"city": "Paris"}'),
    "add_even": chat_answer(
        "def add_even(numbers):\n    return sum(n for n in numbers if n % 2 == 0)"
    ),
    "水": chat_answer("水的化学式是 H₂O。"),
    "blue box": chat_answer("48213"),
}


def _by_prompt(answers: dict[str, Any]) -> Any:
    def answer(body: Any) -> Any:
        asked = body["messages"][-1]["content"]
        return next(reply for part, reply in answers.items() if part in asked)

    return answer


def test_seven_good_answers() -> None:
    with scripted_http({CHAT: _by_prompt(GOOD)}) as server:
        result = run_quick(Asker(server.url, model="m"), needle_tokens=100, top_p=1.0)
        assert all(asked[3]["top_p"] == 1.0 for asked in server.asked)
    assert (result.passed, result.of) == (7, 7)
    assert [row.name for row in result.rows][:2] == ["arithmetic", "fact"]


BAD = {
    "17 * 23": chat_answer("390"),
    "capital of France": chat_answer("Paris " * 40),
    "JSON": chat_answer('{"name": "Ada"}'),
    "weather": Status(400, {"error": {"message": "tools is not supported"}}),
    "add_even": chat_answer("def add_even(numbers): pass"),
    "水": chat_answer("H2O"),
    "blue box": chat_answer("4 8 2 1 3 " * 30 + "48213"),
}


def test_seven_bad_answers() -> None:
    with scripted_http({CHAT: _by_prompt(BAD)}) as server:
        result = run_quick(Asker(server.url, model="m"), needle_tokens=100)
    assert result.passed == 0
    faults = {row.name: " ".join(row.faults) for row in result.rows}
    assert "repeats itself" in faults["fact"]
    assert "tools is not supported" in faults["tool"]
    assert "without a letter" in faults["needle"]
    assert "no Chinese" in faults["chinese"]


def test_digit_noise_of_a_server_is_seen_and_nothing_else() -> None:
    noise = Script(replies=[Reply(digit_noise=True, tokens=200, gap_ms=0.1)])
    with truth_process(noise) as truth:
        asker = Asker(truth.url, model="truth", timeout_s=30)
        noisy = run_quality(asker, PROBLEMS, task="t")
        truth.play(Script(replies=[Reply(tokens=200, gap_ms=0.1)]))
        plain = run_quality(asker, PROBLEMS, task="t")
    assert (noisy.degenerate, noisy.failed) == (6, 0)
    assert (plain.degenerate, plain.failed) == (0, 0)
