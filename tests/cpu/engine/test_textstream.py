"""A stream and a whole answer are the same text, ids and log-probabilities at every split."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.core.messages import DraftUse, RequestOutput
from draftmark.core.request import FinishReason
from draftmark.core.step import TokenLogprobs
from draftmark.engine.stream import OutputStream
from draftmark.engine.textstream import TextAssembler, TextDelta, TextStream
from tests.fakes.tokenizer import byte_level, wrap

TOKENIZER = wrap(byte_level())


def _logprob(token: int) -> TokenLogprobs:
    return TokenLogprobs(token, -0.5, 1)


def _outputs(
    ids: list[int], cuts: list[int], *, finish: FinishReason = FinishReason.LENGTH
) -> list[RequestOutput]:
    """`ids` cut at `cuts`; the last output has `finish`."""
    bounds = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    pieces = [ids[low:high] for low, high in itertools.pairwise(bounds)]
    return [
        RequestOutput(
            7,
            piece,
            finish if index == len(pieces) - 1 else None,
            [_logprob(token) for token in piece],
            cached_tokens=3 if index == 0 else -1,
        )
        for index, piece in enumerate(pieces)
    ]


def _assemble(
    outputs: list[RequestOutput], *, stop: tuple[str, ...] = (), min_tokens: int = 0
) -> TextDelta:
    """All deltas up to the end, joined by hand."""
    assembler = TextAssembler(TOKENIZER, stop=stop, min_tokens=min_tokens)
    whole = TextDelta(logprobs=[])
    for output in outputs:
        delta = assembler.feed(output)
        whole.text += delta.text
        whole.token_ids = whole.token_ids + delta.token_ids
        whole.logprobs = (whole.logprobs or []) + (delta.logprobs or [])
        whole.finish, whole.matched = delta.finish, delta.matched
        if delta.finish is not None:
            break
    assert assembler.num_tokens == len(whole.token_ids)
    return whole


# Bytes of several alphabets, broken characters included, with words that stop strings hit.
ids_strategy = st.lists(st.integers(0, TOKENIZER.vocab_size - 1), max_size=40) | st.text(
    alphabet="the ing\n\u00e9\u4eac\U0001f600", max_size=30
).map(TOKENIZER.encode)
stops_strategy = st.lists(
    st.text(alphabet="thein\u00e9\u4eac\ufffd", min_size=1, max_size=4), max_size=3
).map(tuple)


@given(ids_strategy, st.lists(st.integers(0, 50), max_size=6), stops_strategy, st.integers(0, 12))
def test_every_split_gives_the_whole_answer(
    ids: list[int], cuts: list[int], stop: tuple[str, ...], min_tokens: int
) -> None:
    whole = _assemble(_outputs(ids, []), stop=stop, min_tokens=min_tokens)
    split = _assemble(_outputs(ids, cuts), stop=stop, min_tokens=min_tokens)
    single = _assemble(_outputs(ids, list(range(50))), stop=stop, min_tokens=min_tokens)
    assert whole == split == single
    assert whole.finish is not None
    assert [entry.token for entry in whole.logprobs or []] == whole.token_ids


@given(ids_strategy, stops_strategy)
def test_no_stop_string_is_ever_shown(ids: list[int], stop: tuple[str, ...]) -> None:
    whole = _assemble(_outputs(ids, []), stop=stop)
    if whole.matched is None:
        assert whole.token_ids == ids
    assert not any(text in whole.text for text in stop)


@given(ids_strategy, stops_strategy)
def test_at_most_the_longest_stop_less_one_is_held_back(
    ids: list[int], stop: tuple[str, ...]
) -> None:
    plain = TextAssembler(TOKENIZER)
    held = TextAssembler(TOKENIZER, stop=stop)
    shown = seen = 0
    for token in ids:
        seen += len(plain.feed(RequestOutput(1, [token])).text)
        delta = held.feed(RequestOutput(1, [token]))
        shown += len(delta.text)
        if delta.finish is not None:
            break
        assert seen - shown <= max((len(text) for text in stop), default=1) - 1


def test_the_token_that_completes_a_stop_is_the_last_one_that_counts() -> None:
    ids = TOKENIZER.encode("ab") + TOKENIZER.encode("STOP") + TOKENIZER.encode("cd")
    whole = _assemble(_outputs(ids, [3]), stop=("OP",))
    assert (whole.text, whole.finish, whole.matched) == ("abST", FinishReason.STOP, "OP")
    assert whole.token_ids == ids[:6]


def test_a_stop_string_before_min_tokens_does_not_count() -> None:
    ids = TOKENIZER.encode("a.b.c.d")
    assert len(ids) == 7
    whole = _assemble(_outputs(ids, []), stop=(".",), min_tokens=3)
    assert (whole.text, len(whole.token_ids)) == ("a.b", 4)


def test_an_unfinished_character_is_flushed() -> None:
    ids = TOKENIZER.encode("x\U0001f600")[:-1]
    whole = _assemble(_outputs(ids, [1, 2, 3]))
    assert whole.text == "x\ufffd"


def test_a_stop_string_at_the_last_token_is_a_stop() -> None:
    whole = _assemble(_outputs(TOKENIZER.encode("ab"), []), stop=("b",))
    assert (whole.text, whole.finish) == ("a", FinishReason.STOP)


class _Ender:
    """Remembers how requests were ended."""

    def __init__(self) -> None:
        self.finished: list[tuple[int, int, FinishReason]] = []
        self.aborted: list[int] = []

    def finish(self, request_id: int, num_tokens: int, reason: FinishReason) -> None:
        self.finished.append((request_id, num_tokens, reason))

    def abort(self, ids: list[int]) -> None:
        self.aborted += ids


def _stream(
    outputs: list[RequestOutput], ender: _Ender, *, stop: tuple[str, ...] = ()
) -> TextStream:
    stream = OutputStream(7)
    for output in outputs:
        stream.push(output)
    return TextStream(stream, assembler=TextAssembler(TOKENIZER, stop=stop), engine=ender)


async def test_a_late_reader_gets_one_delta() -> None:
    ender = _Ender()
    ids = TOKENIZER.encode("hello there")
    deltas = [delta async for delta in _stream(_outputs(ids, [2, 4]), ender)]
    assert [delta.text for delta in deltas] == ["hello there"]
    assert deltas[0].token_ids == ids
    assert deltas[0].cached_tokens == 3
    assert [entry.token for entry in deltas[0].logprobs or []] == ids
    assert not ender.finished


async def test_a_stop_string_ends_the_request_in_the_engine() -> None:
    ender = _Ender()
    outputs = _outputs(TOKENIZER.encode("abcdef"), [1, 2, 3, 4])[:-1]
    stream = _stream(outputs, ender, stop=("c",))
    deltas = [delta async for delta in stream]
    assert "".join(delta.text for delta in deltas) == "ab"
    assert stream.num_tokens == 3
    assert ender.finished == [(7, 3, FinishReason.STOP)]
    stream.abandon()
    assert not ender.aborted


async def test_drafts_are_those_up_to_the_output_with_the_stop_string() -> None:
    outputs = [
        msgspec.structs.replace(output, drafts=DraftUse(count, 3 * count, count) if count else None)
        for count, output in enumerate(_outputs(TOKENIZER.encode("abcdef"), [1, 2, 3, 4]))
    ]
    assembler = TextAssembler(TOKENIZER, stop=("c",))
    one_by_one = [assembler.feed(output) for output in outputs[:3]]
    [joined] = [delta async for delta in _stream(outputs, _Ender(), stop=("c",))]
    for last in (one_by_one[-1], joined):
        assert (last.finish, last.drafts) == (FinishReason.STOP, DraftUse(2, 6, 2))


async def test_an_end_without_a_word_on_drafts_keeps_what_was_said() -> None:
    said = RequestOutput(7, TOKENIZER.encode("a"), drafts=DraftUse(1, 3, 0))
    lost = RequestOutput(7, [], FinishReason.ERROR, error="gone")
    [delta] = [delta async for delta in _stream([said, lost], _Ender())]
    assert delta.drafts == said.drafts


async def test_an_abandoned_stream_aborts_once() -> None:
    ender = _Ender()
    stream = _stream(_outputs(TOKENIZER.encode("abc"), [1])[:1], ender)
    await anext(stream)
    stream.abandon()
    stream.abandon()
    assert ender.aborted == [7]
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


def test_the_token_that_ends_an_answer_counts_and_is_no_text() -> None:
    """A stop id may be an ordinary word; OpenAI and vLLM show neither it nor an end token."""
    ids = TOKENIZER.encode("abc")
    for stop in ((), ("zz",)):
        whole = _assemble(_outputs(ids, [1, 2], finish=FinishReason.STOP), stop=stop)
        assert (whole.text, whole.token_ids, whole.finish) == ("ab", ids, FinishReason.STOP)
