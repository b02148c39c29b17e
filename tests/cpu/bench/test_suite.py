"""The suite's rules catch what they are for, its cases are sound, and times are split exactly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from draftmark.bench.ask import Asker
from draftmark.bench.suite import (
    Case,
    SuiteResult,
    SuiteRow,
    choose_cases,
    compare_suites,
    read_cases,
    read_suite,
    run_suite,
    shipped_cases,
)
from draftmark.bench.suite.case import Expect
from draftmark.core.errors import ConfigError
from tests.fakes.answers import chat_answer, chat_events, tool_answer, usage
from tests.fakes.scripted_http import Events, Status, scripted_http

CHAT = "POST /v1/chat/completions"
TEXT = "POST /v1/completions"


def _tool_events(arguments: str) -> Events:
    call = {"index": 0, "id": "c", "function": {"name": "get_weather", "arguments": ""}}
    parts = [call, {"index": 0, "function": {"arguments": arguments}}]
    chunks = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [part]}, "finish_reason": None}]}
        for part in parts
    ]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    return Events([*chunks, end, {"choices": [], "usage": usage(9)}, "data: [DONE]\n\n"])


def _sound(body: Any) -> Any:
    """What a sound server and model answer to the shipped cases."""
    asked = body["messages"][-1]["content"]
    if body["temperature"] == "hot":
        return Status(400, {"error": {"message": "temperature must be a number"}})
    if "weather" in asked:
        arguments = '{"city": "Paris"}'
        streamed = body.get("stream")
        return _tool_events(arguments) if streamed else tool_answer("get_weather", arguments)
    if "lighthouse" in asked:
        return chat_answer("word " * 16, finish="length")
    if "Count" in asked:
        return chat_events(["1, 2, 3,", " 4, 5, "])
    if "sister" in asked:
        return chat_answer("Ada.")
    if "Repeat" in asked:
        return chat_events(["你好世界", " 🌍"])
    return chat_events(["Par", "is."]) if body.get("stream") else chat_answer("Paris.")


def _continued(body: Any) -> Any:
    chunks = [
        {"choices": [{"index": 0, "text": text, "finish_reason": finish}]}
        for text, finish in ((" 6,", None), (" 8", "length"))
    ]
    return Events([*chunks, {"choices": [], "usage": usage(2)}, "data: [DONE]\n\n"])


def _run(cases: list[Case], chat: Any) -> SuiteResult:
    with scripted_http({CHAT: chat, TEXT: _continued}) as server:
        return run_suite(Asker(server.url, model="m", timeout_s=30), cases, start_id="s")


def test_a_sound_server_passes_the_shipped_cases(tmp_path: Path) -> None:
    cases = shipped_cases()
    assert [case.id for case in cases[:10]] == [f"d{i:02}" for i in range(1, 11)]
    seen: list[Case] = []
    with scripted_http({CHAT: _sound, TEXT: _continued}) as server:
        asker = Asker(server.url, model="m", timeout_s=30)
        result = run_suite(asker, cases, on_case=seen.append)
    assert {row.id: row.faults for row in result.rows if row.faults} == {}
    assert (result.passed, result.failed, seen) == (len(cases), 0, cases)
    rows = {row.id: row for row in result.rows}
    assert (rows["d02"].content, rows["d02"].tokens, rows["d02"].finish) == (6, 2, "stop")
    assert (rows["d02"].chunks or 0) >= 2
    assert rows["d01"].chunks is None
    assert rows["d07"].tools == ["get_weather"]
    assert all((row.seconds or 0) > 0 for row in result.rows)
    path = tmp_path / "suite.json"
    path.write_bytes(msgspec.json.encode(result))
    assert read_suite(path) == result
    path.write_text("[]")
    with pytest.raises(ConfigError, match="suite"):
        read_suite(path)


def test_a_broken_server_fails_each_by_its_rule() -> None:
    def broken(body: Any) -> Any:
        asked = body["messages"][-1]["content"]
        if "France" in asked:
            return chat_events(["Lon", "don."]) if body.get("stream") else chat_answer("Paris.")
        if "weather" in asked:
            return chat_answer("<tool_call> get_weather")
        if "lighthouse" in asked:
            return chat_answer("It was.")
        if "Count" in asked:
            return chat_events(["1, 2, 3, 4, 5, 6, 7"])
        if "Repeat" in asked:
            return chat_events(["你好世\ufffd", " 🌍"])
        return Status(500, "boom") if "sister" in asked else chat_answer("fine")

    rows = {row.id: " | ".join(row.faults) for row in _run(shipped_cases(), broken).rows}
    assert rows["d01"] == rows["d03"] == ""
    for one, part in {
        "d02": "another than that of d01",
        "d04": "finish_reason stop instead of length",
        "d05": "content holds '6'",
        "d06": "calls of [] instead of ['get_weather']",
        "d08": "HTTP 500 instead of 200 (http_5xx: HTTP 500: boom)",
        "d09": "content holds '\ufffd'",
        "d10": "HTTP 200 instead of 400 or 422",
    }.items():
        assert part in rows[one]


def _case(**fields: Any) -> Case:
    case = {"id": "x01", "title": "t", "body": {"messages": [{"role": "user", "content": "q"}]}}
    return msgspec.convert({**case, **fields}, Case)


@pytest.mark.parametrize(
    ("expect", "answer", "fault"),
    [
        ({"content": {"min": 9}}, chat_answer("short"), "5 characters of content, at least 9"),
        ({"content": {"json": True}}, chat_answer("{no"), "no JSON"),
        ({"content": {"json": True}}, chat_answer('{"a": 1}'), None),
        ({"reasoning": {"min": 1}}, chat_answer("a"), "characters of reasoning"),
        ({"reasoning": {"max": 0}}, chat_answer("a", reasoning_content="b"), "at most 0"),
        ({"tokens": {"max": 1}}, chat_answer("a b"), "2 tokens, at most 1"),
        ({"prompt_tokens": {"min": 10}}, chat_answer("a"), "9 tokens of the prompt"),
        ({}, tool_answer("f", "{}"), r"calls of \['f'\] instead of \[\]"),
        (
            {"tools": [{"name": "f", "arguments": {"a": 1}}]},
            tool_answer("f", '{"a": 2}'),
            "f has a=2 instead of 1",
        ),
        ({"tools": [{"name": "f"}]}, tool_answer("f", "{"), "arguments of f: no JSON"),
        ({}, chat_answer("1 2 3 4 " * 40), "digits without a letter"),
        ({}, {**chat_answer("a"), "usage": None}, None),
        (
            {"tokens": {"min": 1}},
            {**chat_answer("a"), "usage": None},
            "the number of tokens is not known",
        ),
        ({"http": [404]}, Status(404, {"error": {"message": "no model"}}), None),
        ({"http": [404], "error": {"contains": ["y"]}}, Status(404, "no"), "lacks 'y'"),
    ],
)
def test_rules(expect: Any, answer: Any, fault: str | None) -> None:
    (row,) = _run([_case(expect=expect)], answer).rows
    if fault is None:
        assert row.faults == []
    else:
        assert re.search(fault, " | ".join(row.faults))


def test_cases_are_chosen_by_id_range_and_tag() -> None:
    cases = shipped_cases()

    def ids(wanted: str) -> list[str]:
        return [case.id for case in choose_cases(cases, wanted)]

    assert ids("d03-d05") == ["d03", "d04", "d05"]
    assert ids("tools,d10") == ["d06", "d07", "d10"]
    assert ids("d02") == ["d01", "d02"]  # the one it must equal comes along
    assert len(ids("all")) == len(cases)
    with pytest.raises(ConfigError, match="d99"):
        ids("d01,d99")


def test_all_that_a_chosen_case_rests_on_comes_along() -> None:
    def case(name: str, same_as: str | None) -> Case:
        return Case(id=name, title=name, body={}, expect=Expect(same_as=same_as))

    chain = [case("d01", None), case("d02", "d01"), case("d03", "d02"), case("d04", None)]
    assert [one.id for one in choose_cases(chain, "d03")] == ["d01", "d02", "d03"]


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        ({"id": "a", "title": "t", "body": {}, "expect": {"finsh": ["stop"]}}, "finsh"),
        ({"id": "a", "title": "t", "body": {}, "expect": {"content": {"matches": "("}}}, "a.yaml"),
        ({"id": "a", "title": "t", "body": {}, "expect": {"same_as": "b"}}, "no earlier case"),
        ({"id": "b", "title": "t", "body": {}, "expect": {}}, "share an id"),
        ("text", "a.yaml"),
    ],
)
def test_bad_cases_are_refused(tmp_path: Path, case: Any, fault: str) -> None:
    good = {"id": "b", "title": "t", "body": {}, "expect": {}}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(case))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(good))
    with pytest.raises(ConfigError, match=fault):
        read_cases(tmp_path)


def test_a_case_that_says_a_thing_twice_is_refused(tmp_path: Path) -> None:
    text = "id: a\ntitle: t\nbody: {max_tokens: 8, stop: x, max_tokens: 16}\nexpect: {}\n"
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"a\.yaml: key max_tokens comes twice, line 3"):
        read_cases(tmp_path)


def test_no_folder_of_cases(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        read_cases(tmp_path / "none")


def _result(*rows: tuple[str, bool, float | None, int | None]) -> SuiteResult:
    made = [
        SuiteRow(
            id=one,
            title="",
            passed=passed,
            seconds=seconds,
            http=200,
            content=0,
            reasoning=0,
            tools=[],
            finish="stop",
            tokens=tokens,
            chunks=0,
            faults=[],
            excerpt="",
        )
        for one, passed, seconds, tokens in rows
    ]
    return SuiteResult(model="m", start_id=None, passed=0, failed=0, rows=made)


def test_differences_in_time_are_split_into_tokens_and_speed() -> None:
    then = _result(
        ("a", True, 1.0, 100), ("b", True, 2.0, 100), ("c", True, 1.0, 10), ("d", True, 1.0, None)
    )
    now = _result(
        ("a", True, 2.0, 200), ("b", True, 3.0, 100), ("c", False, 9.0, 10), ("e", True, 1.0, 1)
    )
    compared = compare_suites(now, then)
    rows = {row.id: row for row in compared.rows}
    assert [str(row.change) for row in compared.rows] == ["same", "same", "broken", "gone", "new"]
    assert (rows["a"].by_tokens, rows["a"].by_speed) == pytest.approx((1.0, 0.0))
    assert (rows["b"].by_tokens, rows["b"].by_speed) == pytest.approx((0.0, 1.0))
    assert compared.broken == ["c"]
    assert compared.compared == 2
    assert compared.seconds == pytest.approx(compared.by_tokens + compared.by_speed)
    assert compare_suites(then, now).mended == ["c"]
    both = compare_suites(_result(("a", True, 1.0, None)), then).rows[0]
    assert (both.seconds, both.by_tokens, both.by_speed) == (0.0, None, None)


def test_parts_add_up_when_both_change() -> None:
    row = compare_suites(_result(("a", True, 7.0, 130)), _result(("a", True, 3.0, 90))).rows[0]
    assert row.by_tokens is not None and row.by_speed is not None
    assert row.by_tokens + row.by_speed == pytest.approx(4.0)
