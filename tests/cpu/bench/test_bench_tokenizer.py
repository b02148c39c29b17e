"""Tokenizers of the bench: a file's, the Hugging Face cache's, a server's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from draftmark.bench.control import Control
from draftmark.bench.tokenizer import (
    FileTokenizer,
    ServerTokenizer,
    find_tokenizer,
    sample_text,
)
from draftmark.core.errors import ConfigError, Unavailable
from tests.fakes.bench_tokens import file_tokenizer
from tests.fakes.scripted_http import Scripted, scripted_http


@contextmanager
def tokenize_server(tokenizer: FileTokenizer) -> Iterator[Scripted]:
    """Answers /tokenize and /detokenize with a tokenizer of a file."""

    def tokenize(body: dict[str, Any]) -> dict[str, Any]:
        lead = tokenizer.lead if body["add_special_tokens"] else []
        return {"tokens": [*lead, *tokenizer.encode(body["prompt"])]}

    def detokenize(body: dict[str, Any]) -> dict[str, Any]:
        return {"prompt": tokenizer.decode(body["tokens"])}

    with scripted_http({"POST /tokenize": tokenize, "POST /detokenize": detokenize}) as server:
        yield server


def test_a_file_cuts_and_joins(tmp_path: Path) -> None:
    tokenizer = file_tokenizer(tmp_path)
    text = "the thing, 你好\n  other"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.lead == []


def test_the_lead_is_what_stands_before_every_text(tmp_path: Path) -> None:
    tokenizer = file_tokenizer(tmp_path, bos=True)
    assert tokenizer.lead == [261]
    assert tokenizer.encode("a") != tokenizer.lead


def test_plain_ids_leave_out_added_tokens(tmp_path: Path) -> None:
    plain = file_tokenizer(tmp_path).plain_ids
    assert plain.tolist() == list(range(261))


def test_a_server_cuts_as_its_file_does(tmp_path: Path) -> None:
    tokenizer = file_tokenizer(tmp_path, bos=True)
    text = "the thing, 你好"
    with tokenize_server(tokenizer) as server:
        mine = ServerTokenizer(Control(server.url), model="m")
        assert mine.encode(text) == tokenizer.encode(text)
        assert mine.decode(mine.encode(text)) == text
        assert mine.lead == tokenizer.lead == [261]
        assert server.asked[0][3] == {"model": "m", "prompt": text, "add_special_tokens": False}


def test_ids_of_a_server_are_some_that_it_knows(tmp_path: Path) -> None:
    tokenizer = file_tokenizer(tmp_path)
    with tokenize_server(tokenizer) as server:
        mine = ServerTokenizer(Control(server.url), model="m")
        assert set(mine.plain_ids.tolist()) == set(tokenizer.encode(sample_text()))
        assert mine.sha256 and len(server.asked) == 1, "one question for both"
        assert mine.sha256 == ServerTokenizer(Control(server.url), model="m").sha256


def test_a_server_without_the_route_says_what_to_do() -> None:
    with (
        scripted_http({}) as server,
        pytest.raises(ConfigError, match="has no /tokenize: give a tokenizer"),
    ):
        ServerTokenizer(Control(server.url), model="m").encode("a")


@pytest.mark.parametrize("answer", [{"tokens": ["a"]}, [1], {"count": 3}])
def test_a_server_that_answers_something_else_is_named(answer: object) -> None:
    with (
        scripted_http({"POST /tokenize": answer}) as server,
        pytest.raises(ConfigError, match="/tokenize answers something else"),
    ):
        ServerTokenizer(Control(server.url), model="m").encode("a")


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        ServerTokenizer(Control("http://127.0.0.1:1"), model="m").encode("a")


def test_where_a_tokenizer_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, a file, a model of the cache by its name, and last the server itself."""
    control = Control("http://127.0.0.1:1")
    sha256 = file_tokenizer(tmp_path).sha256
    cached = tmp_path / "hub" / "models--org--name" / "snapshots" / ("a" * 40)
    cached.mkdir(parents=True)
    (cached / "tokenizer.json").write_bytes((tmp_path / "tokenizer.json").read_bytes())
    refs = tmp_path / "hub" / "models--org--name" / "refs"
    refs.mkdir()
    (refs / "main").write_text("a" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))

    def found(name: str | None, model: str = "smollm2", is_served: bool = True) -> object:
        return find_tokenizer(name, control=control, model=model, is_served=is_served)

    for name in (str(tmp_path), str(tmp_path / "tokenizer.json"), "org/name"):
        tokenizer = found(name)
        assert isinstance(tokenizer, FileTokenizer) and tokenizer.sha256 == sha256
    assert isinstance(found(None, model="org/name"), FileTokenizer)
    assert isinstance(found(None), ServerTokenizer)
    assert found(None, is_served=False) is None
    with pytest.raises(ConfigError, match="no folder, no file, and not in the Hugging Face cache"):
        found("org/other")
    with pytest.raises(ConfigError, match="cannot be read"):
        found(str(tmp_path / "hub"))


def test_what_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="is not a tokenizer"):
        FileTokenizer(tmp_path / "tokenizer.json")
