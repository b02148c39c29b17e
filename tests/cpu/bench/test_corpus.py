"""Texts become one row of tokens, the same whoever cuts them; prompts come out of it exactly."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest

from draftmark.bench.ledger.audit import audit
from draftmark.bench.ledger.corpus import read_corpus
from draftmark.bench.ledger.ledger import Ledger
from draftmark.bench.profile import Profile, PromptSource
from draftmark.bench.prompts.gather import Sources, check_sources, gather_prompts
from draftmark.core.errors import ConfigError
from tests.fakes.bench_tokens import file_tokenizer, numbered

PROFILE = Profile(name="p", n_requests=3, isl=40, osl=1, concurrency=1, source=PromptSource.LEDGER)


def story(words: int) -> str:
    return "\n".join(f"line {n} of the thing, {n * n}" for n in range(words))


@pytest.fixture
def books(tmp_path: Path) -> Path:
    folder = tmp_path / "books"
    folder.mkdir()
    (folder / "b.txt").write_text(story(20000), encoding="utf-8")
    (folder / "a.txt").write_text("吾輩は猫である\n" * 3, encoding="utf-8")
    (folder / "notes.md").write_text("not a book")
    return folder


def test_a_folder_is_read_in_the_order_of_names(books: Path, tmp_path: Path) -> None:
    tokenizer = file_tokenizer(tmp_path)
    corpus = read_corpus([books], name="books", tokenizer=tokenizer)
    first, second = corpus.documents
    assert (first.name, second.name) == ("a.txt", "b.txt")
    assert (first.start, first.end, second.end) == (0, second.start, len(corpus.ids))
    assert corpus.ids.dtype == np.uint32
    text = tokenizer.decode(corpus.ids[second.start : second.end].tolist())
    assert text == story(20000)


def test_ids_may_be_given_instead_of_text(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(50))
    tokenizer = file_tokenizer(tmp_path)
    corpus = read_corpus([tmp_path / "ids.npy"], name="ids", tokenizer=tokenizer)
    assert corpus.ids.tolist() == list(range(50))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.array([[1]]), "one row"),
        (np.array([0.5]), "one row"),
        (np.array([-1]), "one row"),
        (np.array([2**32]), "one row"),
    ],
)
def test_an_array_that_is_no_ids_is_refused(
    tmp_path: Path, content: np.ndarray, message: str
) -> None:
    np.save(tmp_path / "ids.npy", content)
    with pytest.raises(ConfigError, match=message):
        read_corpus([tmp_path / "ids.npy"], name="i", tokenizer=file_tokenizer(tmp_path))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no array"])
def test_a_file_that_is_no_array_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ids.npy").write_bytes(content)
    with pytest.raises(ConfigError, match=r"ids\.npy: no array of numpy"):
        read_corpus([tmp_path / "ids.npy"], name="i", tokenizer=file_tokenizer(tmp_path))


def test_what_cannot_be_a_corpus_is_named(books: Path, tmp_path: Path) -> None:
    tokenizer = file_tokenizer(tmp_path)
    for paths, message in (
        ([tmp_path / "none.txt"], "cannot be read"),
        ([books, books / "a.txt"], "the same text comes twice"),
        ([tmp_path / "no_books"], "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_corpus(paths, name="books", tokenizer=tokenizer)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no text for a corpus"):
        read_corpus([tmp_path / "empty"], name="books", tokenizer=tokenizer)
    (books / "c.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_corpus([books], name="books", tokenizer=tokenizer)


def test_prompts_of_runs_are_exact_and_share_no_beginning(books: Path, tmp_path: Path) -> None:
    """Two cells with the same settings on one server: no prompt begins as another did (H05)."""
    tokenizer = file_tokenizer(tmp_path, bos=True)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(read_corpus([books], name="books", tokenizer=tokenizer))
    sources = Sources(tokenizer=tokenizer, ledger=ledger)
    runs = [gather_prompts(PROFILE, sources, run_id=f"r{n}") for n in range(5)]
    prompts = [prompt for run in runs for prompt in run.prompts]
    assert all(len(prompt.ids or []) == 40 for prompt in prompts)
    assert all((prompt.ids or [])[0] == 261 for prompt in prompts)
    assert len({tuple((prompt.ids or [])[:17]) for prompt in prompts}) == 15
    windows = sorted(prompt.window for prompt in prompts if prompt.window)
    assert all(end - start == 39 for start, end in windows)
    assert all(one[1] <= other[0] for one, other in pairwise(windows))
    for run in runs:
        assert run.reservation is not None
        ledger.commit(run.reservation.line_sha)
    assert audit(ledger) == []


def test_a_corpus_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(numbered(1000))
    sources = Sources(tokenizer=file_tokenizer(tmp_path), ledger=ledger)
    with pytest.raises(ConfigError, match="was cut by another tokenizer"):
        gather_prompts(PROFILE, sources, run_id="r")
    assert ledger.state().corpus("books").num_left == 1000


def test_a_prompt_that_is_all_lead_takes_nothing_of_a_corpus(books: Path, tmp_path: Path) -> None:
    tokenizer = file_tokenizer(tmp_path, bos=True)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(read_corpus([books], name="books", tokenizer=tokenizer))
    sources = Sources(tokenizer=tokenizer, ledger=ledger)
    short = msgspec.structs.replace(PROFILE, isl=1)
    with pytest.raises(ConfigError, match="a prompt of 1 tokens is all taken by the 1"):
        check_sources(short, sources, runs=1)
    with pytest.raises(ConfigError, match="a prompt of 1 tokens is all taken by the 1"):
        gather_prompts(short, sources, run_id="r")


def test_what_a_source_needs_is_named(tmp_path: Path) -> None:
    tokenizer = file_tokenizer(tmp_path)
    with pytest.raises(ConfigError, match="--tokenizer FOLDER"):
        gather_prompts(PROFILE, Sources(), run_id="r")
    with pytest.raises(ConfigError, match="--ledger FILE"):
        gather_prompts(PROFILE, Sources(tokenizer=tokenizer), run_id="r")
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(numbered(1000))
    ledger.add(numbered(1000, name="other"))
    with pytest.raises(ConfigError, match="The ledger has books, other: --corpus"):
        gather_prompts(PROFILE, Sources(tokenizer=tokenizer, ledger=ledger), run_id="r")


def test_random_ids_and_files_are_gathered_too(tmp_path: Path) -> None:
    tokenizer = file_tokenizer(tmp_path)
    random_ids = msgspec.structs.replace(PROFILE, source=PromptSource.RANDOM_IDS)
    one, other = (
        gather_prompts(random_ids, Sources(tokenizer=tokenizer), run_id=run_id)
        for run_id in ("one", "other")
    )
    assert {p.sha256 for p in one.prompts}.isdisjoint(p.sha256 for p in other.prompts)
    assert one.reservation is None
    (tmp_path / "q.jsonl").write_text('{"question": "a"}\n{"question": "b"}\n{"question": "c"}')
    file = msgspec.structs.replace(PROFILE, source=PromptSource.FILE, file="q.jsonl")
    gathered = gather_prompts(file, Sources(data=tmp_path), run_id="r")
    assert sorted(prompt.text or "" for prompt in gathered.prompts) == ["a", "b", "c"]
