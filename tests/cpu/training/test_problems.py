"""The arithmetic problems of the bench: readable there, different, the same at every call."""

from __future__ import annotations

from pathlib import Path

from draftmark.bench.quality import read_problems
from training.tiny.problems import problems, write_problems


def test_the_bench_reads_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "arithmetic.jsonl.gz"
    write_problems(path, 40)
    written = path.read_bytes()
    write_problems(path, 40)
    assert path.read_bytes() == written
    read = read_problems(path)
    assert [problem.answer for problem in read] == [row["answer"] for row in problems(40)]
    assert len({problem.messages[0]["content"] for problem in read}) == 40
    thinking = [problem.fields["chat_template_kwargs"]["enable_thinking"] for problem in read]
    assert thinking == [True, False] * 20


def test_no_problem_holds_its_answer() -> None:
    assert all(len(row["messages"]) == 1 for row in problems(20))
