"""Loading, special tokens, encoding with and without the post-processor, and the length bound."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.core.errors import ModelError
from draftmark.text.tokenizer import Tokenizer
from tests.fakes import tokenizer as fakes


def test_special_tokens_come_from_the_settings(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(fakes.write_model_dir(tmp_path))
    assert tokenizer.special_tokens == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert tokenizer.eos_id == tokenizer.token_id("<|im_end|>")
    assert tokenizer.special_ids == {tokenizer.token_id(text) for text in fakes.SPECIALS}
    assert tokenizer.vocab_size == max(tokenizer.special_ids) + 1


def test_the_post_processor_decides_about_bos() -> None:
    plain, with_bos = fakes.wrap(fakes.byte_level()), fakes.wrap(fakes.byte_level(bos=True))
    bos = with_bos.token_id("<|endoftext|>")
    assert with_bos.encode("ab") == [bos, *plain.encode("ab")]
    assert with_bos.encode("ab", add_special_tokens=False) == plain.encode("ab")
    assert with_bos.encode_long("ab") == with_bos.encode("ab")


def test_truncation_and_padding_of_the_file_are_ignored() -> None:
    backend = fakes.byte_level()
    backend.enable_truncation(3)
    backend.enable_padding(length=8)
    assert len(fakes.wrap(backend).encode("abcde")) == 5
    assert len(fakes.wrap(backend).encode("a")) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *itertools.product(["tokenizer.json", "tokenizer_config.json"], ["", "{", "[1]"]),
        ("tokenizer.json", '{"model": {"type": "Nonsense"}, "decoder": {"type": "ByteLevel"}}'),
    ],
)
def test_a_corrupt_file_is_one_line(tmp_path: Path, name: str, text: str) -> None:
    fakes.write_model_dir(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(ModelError) as caught:
        Tokenizer.load(tmp_path)
    assert name in caught.value.message
    assert "\n" not in caught.value.message


def test_a_missing_tokenizer_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer\.json in "):
        Tokenizer.load(tmp_path)


def test_an_unknown_decoder_is_refused(tmp_path: Path) -> None:
    fakes.write_model_dir(tmp_path)
    spec = json.loads((tmp_path / "tokenizer.json").read_text())
    spec["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(ModelError, match="WordPiece"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("make", [fakes.byte_level, fakes.byte_fallback])
@given(text=st.text(max_size=60) | st.sampled_from([" " * 70, "the thing " * 9, "\u0390" * 20]))
def test_the_length_bound_holds(make: object, text: str) -> None:
    tokenizer = _cached(make)
    assert tokenizer.fewest_tokens(text) <= len(tokenizer.encode(text))


def test_the_length_bound_is_useful_and_absent_where_unprovable() -> None:
    tokenizer = fakes.wrap(fakes.byte_level())
    assert tokenizer.fewest_tokens("x" * 1300) == 100  # the longest entry is <|endoftext|>, 13
    backend = fakes.byte_level()
    spec = json.loads(backend.to_str())
    for change in (
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"model": {**spec["model"], "type": "WordLevel"}},
    ):
        assert Tokenizer(backend, spec={**spec, **change}).fewest_tokens("x" * 1300) == 0


def test_text_does_not_import_torch() -> None:
    code = (
        "import sys, draftmark.text.prompt, draftmark.text.detokenize, draftmark.text.stop\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'torch']"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


_TOKENIZERS: dict[object, Tokenizer] = {}


def _cached(make: object) -> Tokenizer:
    if make not in _TOKENIZERS:
        _TOKENIZERS[make] = fakes.wrap(make())  # type: ignore[operator]
    return _TOKENIZERS[make]
