"""Prompts from files: four kinds of rows, and what is wrong in one is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmark.bench.prompts.files import data_file, file_prompts, read_prompts
from draftmark.bench.prompts.prompt import Prompt
from draftmark.core.errors import ConfigError


def write(folder: Path, *lines: str, name: str = "p.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_each_kind_of_row_is_understood(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"question": "2 + 2?", "answer": "4 #### 4"}',
        '{"question_id": 81, "category": "writing", "turns": ["Write.", "Rewrite."]}',
        "",
        '{"prompt": "Once", "max_tokens": 7}',
        '{"prompt_ids": [5, 6]}',
        '{"messages": [{"role": "user", "content": "你好"}]}',
    )
    assert list(read_prompts(path)) == [
        Prompt(text="2 + 2?"),
        Prompt(text="Write."),
        Prompt(text="Once", osl=7),
        Prompt(ids=[5, 6]),
        Prompt(messages=[{"role": "user", "content": "你好"}]),
    ]


def test_a_text_file_has_one_prompt_a_line(tmp_path: Path) -> None:
    path = write(tmp_path, '{"prompt": 1}', "two", name="p.txt")
    assert list(read_prompts(path)) == [Prompt(text='{"prompt": 1}'), Prompt(text="two")]


def test_only_line_feeds_end_a_row(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes('{"prompt": "one\u2028more\x85"}\r\n{"prompt": "two"}\r\n'.encode())
    assert [prompt.text for prompt in read_prompts(path)] == ["one\u2028more\x85", "two"]


def test_the_seed_decides_which_prompts_and_in_which_order(tmp_path: Path) -> None:
    path = write(tmp_path, *(f'{{"prompt": "{n}"}}' for n in range(50)))
    first = [prompt.text for prompt in file_prompts(path, count=10, seed=1)]
    assert first == [prompt.text for prompt in file_prompts(path, count=10, seed=1)]
    assert first != [prompt.text for prompt in file_prompts(path, count=10, seed=2)]
    assert len(set(first)) == 10


def test_prompts_are_never_repeated_to_fill_a_run(tmp_path: Path) -> None:
    path = write(tmp_path, '{"prompt": "a"}', '{"prompt": "b"}')
    with pytest.raises(ConfigError, match="has 2 prompts, the profile asks for 3 requests"):
        file_prompts(path, count=3, seed=1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"p.jsonl:2: not a JSON object"),
        ("[1]", r"p.jsonl:2: not a JSON object"),
        ('{"text": "a"}', "this one has none"),
        ('{"prompt": "a", "question": "b"}', "this one has prompt and question"),
        ('{"prompt": 5}', "p.jsonl:2: prompt: Expected `str`"),
        ('{"prompt": ""}', "p.jsonl:2: prompt"),
        ('{"turns": []}', "p.jsonl:2: turns"),
        ('{"prompt_ids": [-1]}', "p.jsonl:2: prompt_ids"),
        ('{"prompt": "a", "max_tokens": 0}', "p.jsonl:2"),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path, '{"prompt": "fine"}', line)
    with pytest.raises(ConfigError, match=message):
        list(read_prompts(path))


def test_a_file_is_found_below_the_data_folder(tmp_path: Path) -> None:
    assert data_file(tmp_path, "chat/q.jsonl") == tmp_path / "chat" / "q.jsonl"
    assert data_file(None, str(tmp_path / "q.jsonl")) == tmp_path / "q.jsonl"
    with pytest.raises(ConfigError, match="--data DIR"):
        data_file(None, "chat/q.jsonl")
    with pytest.raises(ConfigError, match="cannot be read"):
        list(read_prompts(tmp_path / "none.jsonl"))
