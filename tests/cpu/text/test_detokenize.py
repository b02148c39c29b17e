"""C03: joined deltas equal the whole text for every grouping and cut; bytes are never lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.text.detokenize import Detokenizer, decode
from draftmark.text.tokenizer import Tokenizer
from tests.fakes import tokenizer as fakes

SAMPLE = "日本語🧑‍🚀é"
BYTE_LEVEL = fakes.wrap(fakes.byte_level())
BYTE_FALLBACK = fakes.wrap(fakes.byte_fallback())
BOTH = pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, BYTE_FALLBACK], ids=["level", "fallback"])


def _stream(tokenizer: Tokenizer, groups: list[list[int]]) -> list[str]:
    detokenizer = Detokenizer(tokenizer, after_prompt=False)
    return [*(detokenizer.feed(group) for group in groups), detokenizer.flush()]


@BOTH
@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_every_cut_of_every_grouping(tokenizer: Tokenizer, width: int) -> None:
    ids = tokenizer.encode(SAMPLE)
    for end in range(len(ids) + 1):
        groups = [ids[at : min(at + width, end)] for at in range(0, end, width)]
        deltas = _stream(tokenizer, groups)
        assert "".join(deltas) == decode(tokenizer, ids[:end])
        assert not any("\ufffd" in delta for delta in deltas[:-1])
        assert SAMPLE.startswith("".join(deltas[:-1]))
    assert decode(tokenizer, ids) == SAMPLE


@BOTH
def test_a_character_comes_with_its_last_byte(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("é日", add_special_tokens=False)[-5:]
    detokenizer = Detokenizer(tokenizer)
    assert [detokenizer.feed([token]) for token in ids] == ["", "é", "", "", "日"]
    assert detokenizer.flush() == ""


@BOTH
def test_an_unfinished_character_is_flushed_as_one_replacement(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("🚀")
    deltas = _stream(tokenizer, [[token] for token in ids[:-1]])
    assert "".join(deltas) == deltas[-1] == "\ufffd"


@given(st.lists(st.integers(0, BYTE_LEVEL.vocab_size - 1), max_size=40), st.data())
def test_any_bytes_in_any_grouping_equal_the_library(ids: list[int], data: st.DataObject) -> None:
    """Invalid UTF-8 included: byte-level decoding is one rule on bytes, ours and the library's."""
    groups = _cut(ids, data)
    expected = fakes.byte_level().decode(ids, skip_special_tokens=True)
    assert "".join(_stream(BYTE_LEVEL, groups)) == expected == decode(BYTE_LEVEL, ids)


@given(st.text(max_size=20), st.data())
def test_any_text_through_byte_fallback_equals_the_library(text: str, data: st.DataObject) -> None:
    ids = BYTE_FALLBACK.encode(text)
    expected = fakes.byte_fallback().decode(ids, skip_special_tokens=True)
    assert "".join(_stream(BYTE_FALLBACK, _cut(ids, data))) == expected


def test_a_broken_fallback_run_keeps_its_valid_characters() -> None:
    ids = [BYTE_FALLBACK.token_id(f"<0x{byte:02X}>") for byte in (0xE6, 0x97, 0xA5, 0xFF, 0xC3)]
    assert decode(BYTE_FALLBACK, [token for token in ids if token is not None]) == "日\ufffd\ufffd"


def test_an_answer_keeps_the_blank_in_front_of_its_first_word() -> None:
    ids = BYTE_FALLBACK.encode("Paris")
    assert decode(BYTE_FALLBACK, ids) == "Paris"
    assert decode(BYTE_FALLBACK, ids, after_prompt=True) == " Paris"


def test_special_tokens_are_skipped_unless_asked_for() -> None:
    end = BYTE_LEVEL.token_id("<|im_end|>")
    assert end is not None
    ids = [*BYTE_LEVEL.encode("hi"), end]
    assert decode(BYTE_LEVEL, ids) == "hi"
    assert decode(BYTE_LEVEL, ids, skip_special_tokens=False) == "hi<|im_end|>"


def test_ids_beyond_the_vocabulary_add_nothing() -> None:
    """An embedding is often padded to a round number of rows."""
    assert decode(BYTE_LEVEL, [BYTE_LEVEL.vocab_size + 3]) == ""


def _cut(ids: list[int], data: st.DataObject) -> list[list[int]]:
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=10).map(sorted))
    edges = [0, *cuts, len(ids)]
    return [ids[start:end] for start, end in pairwise(edges)]
