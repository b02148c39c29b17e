"""What counts as a token event, when an answer begins and ends, and when it has failed; on a clock
of the test's own (H01, H02, H03, H07)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from draftmark.bench.client.answer import Answer, Problem
from draftmark.bench.request import Acceptance, CountSource, Failure, PlannedRequest, RequestRecord

MS = 1_000_000
ORIGIN = 5_000 * MS

Json = dict[str, Any]


def plan(*, max_tokens: int = 8, ignore_eos: bool = False) -> PlannedRequest:
    return PlannedRequest(
        index=3,
        at_s=None,
        path="/v1/chat/completions",
        body=b"{}",
        max_tokens=max_tokens,
        ignore_eos=ignore_eos,
        num_prompt_tokens=4,
        prompt_sha="sha",
    )


def sse(chunk: Json | str) -> bytes:
    text = chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def chat(delta: Json, *, finish: str | None = None, **more: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]}


def text(words: str, *, finish: str | None = None, **more: Any) -> Json:
    return {"choices": [{"index": 0, "text": words, "finish_reason": finish, **more}]}


def usage(tokens: int, *, prompt: int = 4, **more: Any) -> Json:
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": tokens, **more}}


ROLE = chat({"role": "assistant", "content": ""})
DONE = "[DONE]"


def answer(
    *events: tuple[float, Json | str | bytes],
    problem: Problem | None = None,
    planned: PlannedRequest | None = None,
    status: int = 200,
    content_type: bytes = b"text/event-stream; charset=utf-8",
) -> RequestRecord:
    """The record of a request sent at 0 ms whose events arrived at these milliseconds."""
    reader = Answer(planned or plan(), origin=ORIGIN, keep_text=True)
    reader.sent(ORIGIN)
    reader.begin(status, content_type)
    now = ORIGIN
    for at_ms, event in events:
        now = ORIGIN + round(at_ms * MS)
        reader.feed(now, event if isinstance(event, bytes) else sse(event))
    return reader.end(now, problem)


def test_h01_the_first_token_is_no_role_and_no_comment() -> None:
    record = answer(
        (5, ROLE),
        (10, b": keep-alive\n\n"),
        (300, chat({"content": "Hi"})),
        (400, chat({"content": " you"}, finish="stop")),
        (500, {"choices": [], **usage(2)}),
        (510, DONE),
    )
    assert record.ok
    assert record.t_first == record.t_first_content == record.t_first_output == 300 * MS
    # The end is the last token event: usage and the mark of the end bring none, and no gap.
    assert (record.t_last, record.t_done) == (400 * MS, 510 * MS)
    assert record.icl_us == [100_000] and record.events == 2
    assert (record.n_out, record.n_out_source) == (2, CountSource.USAGE)
    assert record.text == "Hi you"
    assert record.text_sha == hashlib.sha256(b"Hi you").hexdigest()


@pytest.mark.parametrize("fields", [("reasoning_content",), ("reasoning",), None])
def test_h02_reasoning_is_a_token_by_any_name(fields: tuple[str] | None) -> None:
    names = fields or ("reasoning_content", "reasoning")
    record = answer(
        (5, ROLE),
        (100, chat(dict.fromkeys(names, "hm"))),
        (500, chat(dict.fromkeys(names, "..."))),
        (900, chat({"content": "42"}, finish="stop")),
        (901, DONE),
    )
    assert record.ok and record.text == "hm...42"
    assert record.t_first == record.t_first_content == 100 * MS
    assert record.t_first_output == 900 * MS
    assert record.events == 3


def test_h02_tool_calls_alone() -> None:
    def call(name: str | None, arguments: str) -> Json:
        function = {"name": name, "arguments": arguments}
        return chat({"tool_calls": [{"index": 0, "function": function}]})

    record = answer(
        (5, ROLE),
        (100, call("add", "")),
        (150, call(None, '{"a":')),
        (200, call(None, "1}")),
        (201, chat({}, finish="tool_calls")),
        (202, {"choices": [], **usage(3)}),
        (203, DONE),
    )
    assert record.ok and record.t_first == record.t_first_output == 100 * MS
    assert record.text == 'add({"a":1})'
    assert (record.events, record.t_last) == (3, 200 * MS)


def test_h02_capped_within_reasoning_has_its_first_token() -> None:
    events = (
        (100.0, chat({"reasoning": "hm"})),
        (200.0, chat({"reasoning": "hm"}, finish="length")),
        (201.0, {"choices": [], **usage(2, completion_tokens_details={"reasoning_tokens": 2})}),
        (202.0, DONE),
    )
    record = answer(*events)
    assert record.failure is Failure.REASONING_ONLY
    assert record.t_first == 100 * MS and record.t_first_output is None
    assert record.n_reason == 2
    # Asked for a number of tokens, it has done what it was asked for.
    assert answer(*events, planned=plan(max_tokens=2, ignore_eos=True)).ok


def test_h03_three_tokens_a_chunk() -> None:
    chunks = [(60.0 * (i + 1), text(" a b c")) for i in range(10)]
    end: list[tuple[float, Json | str]] = [(600.0, text("", finish="length"))]
    record = answer(*chunks, *end, (601, {"choices": [], **usage(30)}), (602, DONE))
    assert (record.n_out, record.n_out_source) == (30, CountSource.USAGE)
    # Gaps are those of events, and how many tokens each brought is not known.
    assert record.icl_us[:9] == [60_000] * 9
    assert record.event_tokens is None and record.n_first is None
    without = answer(*chunks, *end, (602, DONE))
    assert (without.n_out, without.n_out_source) == (10, CountSource.CHUNKS)
    assert without.events == 10


def test_h03_a_first_chunk_of_four_tokens() -> None:
    def ids(*values: int, finish: str | None = None) -> Json:
        return text("", finish=finish, token_ids=list(values))

    record = answer(
        (250, ids(1, 2, 3, 4)), (300, ids(5)), (350, ids(6, 7, finish="length")), (351, DONE)
    )
    assert (record.n_out, record.n_out_source) == (7, CountSource.TOKEN_IDS)
    assert record.n_first == 4 and record.event_tokens == [4, 1, 2]
    assert (record.t_first, record.t_last) == (250 * MS, 350 * MS)


def test_usage_so_far_tells_the_tokens_of_each_event() -> None:
    record = answer(
        (5, {**ROLE, **usage(0)}),
        (50, {**chat({"content": ""}), **usage(1)}),
        (60, {**chat({"content": "汉"}), **usage(3)}),
        # Text that was held back: no token comes with it.
        (61, {**chat({"content": "!"}), **usage(3)}),
        (70, {**chat({"content": "字"}, finish="stop"), **usage(4)}),
        (71, {"choices": [], **usage(4, prompt_tokens_details={"cached_tokens": 0})}),
        (72, DONE),
    )
    assert record.event_tokens == [1, 2, 1] and record.n_first == 1
    assert (record.t_first, record.t_first_content) == (50 * MS, 60 * MS)
    assert record.icl_us == [10_000, 10_000]
    assert (record.n_out, record.n_cached, record.n_in_usage) == (4, 0, 4)


def test_a_usage_that_only_the_last_chunk_fills_is_no_count_of_events() -> None:
    record = answer(
        (10, {**chat({"content": "a"}), **usage(0)}),
        (20, {**chat({"content": "b"}), **usage(0)}),
        (30, {**chat({"content": "c"}, finish="stop"), **usage(3)}),
        (31, DONE),
    )
    assert record.event_tokens is None and record.n_first is None
    assert (record.t_first, record.events) == (10 * MS, 3)
    assert (record.n_out, record.n_out_source) == (3, CountSource.USAGE)


def test_all_in_one_chunk() -> None:
    record = answer((10, {**text("abc", finish="stop"), **usage(3)}), (11, DONE))
    assert (record.t_first, record.t_last, record.icl_us) == (10 * MS, 10 * MS, [])
    assert (record.n_out, record.n_first) == (3, 3)


def test_an_empty_delta_is_a_step_without_text() -> None:
    record = answer(
        (10, chat({"content": ""})),
        (20, chat({"content": "é"})),
        (30, chat({}, finish="stop")),
        (31, {"choices": [], **usage(3)}),
        (32, DONE),
    )
    assert (record.t_first, record.t_first_content) == (10 * MS, 20 * MS)
    # The third token ended the answer and has no text: the chunk of the reason is its step.
    assert (record.events, record.t_last) == (3, 30 * MS)


def test_gaps_of_a_long_answer_add_up() -> None:
    chunks = [(10 + 0.0004 * i, text("x")) for i in range(1000)]
    record = answer(*chunks, (11, text("y", finish="length")), (11, DONE))
    assert record.t_first is not None and record.t_last is not None
    assert abs(sum(record.icl_us) * 1000 - (record.t_last - record.t_first)) <= 500


def test_verify_steps_where_the_server_tells() -> None:
    meta = {"spec_verify_ct": 4, "spec_accept_token_num": 6}
    record = answer((1, text("a", finish="stop", meta_info=meta)), (2, DONE))
    assert record.accept == Acceptance(steps=4, accepted=6)
    assert answer((1, text("a", finish="stop", meta_info={})), (2, DONE)).accept is None


CUT = Problem(Failure.RESET, "the server ended the connection")
WORD = (10.0, chat({"content": "a"}))
LAST = (20.0, chat({"content": "b"}, finish="stop"))


@pytest.mark.parametrize(
    ("events", "problem", "failure", "words"),
    [
        ([WORD, LAST], None, Failure.TRUNCATED_STREAM, "without [DONE]"),
        ([WORD, (20.0, DONE)], None, Failure.TRUNCATED_STREAM, "without a finish_reason"),
        ([WORD], CUT, Failure.TRUNCATED_STREAM, "cut in the stream"),
        ([WORD], Problem(Failure.READ_TIMEOUT, "late"), Failure.READ_TIMEOUT, "late"),
        ([WORD, (20.0, {"error": {"message": "no"}}), (21.0, DONE)], None, "inband_error", "no"),
        ([WORD, (20.0, {"error": "bad"})], CUT, Failure.INBAND_ERROR, "bad"),
        ([(1.0, {"object": "error", "message": "old"})], None, Failure.INBAND_ERROR, "old"),
        ([(1.0, b'event: error\ndata: {"detail": "x"}\n\n')], None, "inband_error", "detail"),
        ([WORD, (20.0, "{broken"), LAST, (21.0, DONE)], None, Failure.BAD_SSE, "broken"),
        ([(1.0, b'data: {"choices": 5}\n\n')], None, Failure.BAD_SSE, "choices"),
        ([(1.0, b'data: {"choices":[{"text":"\xff"}]}\n\n')], None, Failure.BAD_SSE, "UTF-8"),
        ([(5.0, ROLE), (6.0, chat({}, finish="stop")), (7.0, DONE)], None, "empty_output", "no"),
        ([(6.0, {**text("", finish="stop"), **usage(0)}), (7.0, DONE)], None, "empty_output", ""),
    ],
)
def test_h07_failures_by_cause(
    events: list[tuple[float, Json | str | bytes]],
    problem: Problem | None,
    failure: str,
    words: str,
) -> None:
    record = answer(*events, problem=problem)
    assert record.failure == failure
    assert record.error is not None and words in record.error


def test_what_came_before_a_failure_is_kept() -> None:
    record = answer(WORD, (15, chat({"content": "b"})), problem=CUT)
    assert (record.t_first, record.t_last, record.events) == (10 * MS, 15 * MS, 2)
    assert record.text == "ab"


def test_a_connection_that_breaks_after_the_end_harms_nothing() -> None:
    assert answer(WORD, LAST, (21, DONE), problem=CUT).ok


def test_a_missing_last_blank_line_is_no_failure() -> None:
    assert answer(WORD, LAST, (21, b"data: [DONE]")).ok


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_events_cut_anywhere_give_one_text(cut: int) -> None:
    stream = b"".join(sse(chat({"content": word})) for word in (" 汉字", " a ", "🙂"))
    stream += sse(chat({}, finish="stop")) + sse(DONE)
    record = answer((10, stream[:cut]), (11, stream[cut:]))
    assert record.ok and record.text == " 汉字 a 🙂"


@pytest.mark.parametrize(("tokens", "is_ok"), [(8, True), (7, False)])
def test_short_output_counts_only_where_the_end_was_to_be_ignored(tokens: int, is_ok: bool) -> None:
    events = [WORD, LAST, (21.0, {"choices": [], **usage(tokens)}), (22.0, DONE)]
    asked = answer(*events, planned=plan(max_tokens=8, ignore_eos=True))
    assert asked.failure is (None if is_ok else Failure.SHORT_OUTPUT)
    assert answer(*events, planned=plan(max_tokens=8)).ok


@pytest.mark.parametrize(
    ("status", "body", "failure", "words"),
    [
        (503, b'{"error": {"message": "full"}}', Failure.HTTP_5XX, "HTTP 503: full"),
        (429, b'{"detail": "later"}', Failure.HTTP_4XX, "HTTP 429: later"),
        (500, b"<html>", Failure.HTTP_5XX, "HTTP 500: <html>"),
        (404, b'["x"]', Failure.HTTP_4XX, 'HTTP 404: ["x"]'),
        (307, b"", Failure.CLIENT_ERROR, "HTTP 307"),
        (200, b"<html>", Failure.BAD_SSE, "html"),
        (200, b'{"error": "no"}', Failure.INBAND_ERROR, "no"),
        (200, b'{"choices": []}', Failure.EMPTY_OUTPUT, "without choices"),
        (200, b'{"choices": [{"text": "a"}]}', Failure.TRUNCATED_STREAM, "finish_reason"),
    ],
)
def test_bodies_that_are_no_answer(status: int, body: bytes, failure: str, words: str) -> None:
    record = answer((5, body), status=status, content_type=b"application/json")
    assert (record.failure, record.http) == (failure, status)
    assert record.error is not None and words in record.error


def test_an_answer_in_one_piece() -> None:
    message = {"role": "assistant", "content": "b", "reasoning": "a", "tool_calls": None}
    whole = {"choices": [{"message": message, "finish_reason": "stop"}], **usage(2)}
    record = answer((50, json.dumps(whole).encode()), content_type=b"application/json")
    assert record.ok and record.text == "ab" and record.n_out == 2
    # Nobody can tell when its first token was made.
    assert record.t_first is None and (record.t_last, record.t_done) == (50 * MS, 50 * MS)


def test_a_piece_of_a_call_far_out_is_malformed() -> None:
    parts = [{"index": 10**9, "function": {"arguments": "x"}}]
    assert answer((1, chat({"tool_calls": parts}))).failure is Failure.BAD_SSE
