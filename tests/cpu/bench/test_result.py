"""The types of a result: what they refuse, and that they read back what was written."""

import msgspec
import pytest

from draftmark.bench.profile import PromptSource
from draftmark.bench.result import Counters, LedgerUse, PromptKind, Quantiles, prompt_kind


def test_a_quantile_is_a_figure_or_infinite_or_unknown():
    written = msgspec.json.encode(Quantiles(n=20, p50=1.5, p90="inf", p95=None, p99=None))
    assert written == b'{"n":20,"p50":1.5,"p90":"inf","p95":null,"p99":null}'
    assert msgspec.json.decode(written, type=Quantiles).p90 == "inf"
    with pytest.raises(msgspec.ValidationError, match="p50"):
        msgspec.json.decode(written.replace(b"1.5", b'"slow"'), type=Quantiles)


def test_what_is_unknown_is_no_zero():
    assert msgspec.to_builtins(Counters())["cached_tokens"] is None


def test_names_of_the_file_are_those_of_the_specification():
    use = LedgerUse(corpus="books", window=(0, 16), klass="fresh", line_sha="0" * 64)
    assert b'"class":"fresh"' in msgspec.json.encode(use)


def test_unknown_fields_are_refused():
    with pytest.raises(msgspec.ValidationError, match="hits"):
        msgspec.json.decode(b'{"hits":1}', type=Counters)


def test_random_ids_are_no_text():
    kinds = [prompt_kind(source) for source in PromptSource]
    assert kinds == [PromptKind.TEXT, PromptKind.RANDOM_IDS, PromptKind.TEXT]
