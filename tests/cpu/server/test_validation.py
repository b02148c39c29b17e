"""Whatever is wrong with a request is a 4xx that names the field, and harms nobody (D01, D03, D06).

Every refusal goes through `_refused`, which also checks that the engine never heard of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import httpx
import pytest

from tests.fakes.api import CHAT, TEXT, Api, chat_body, open_api
from tests.fakes.engine import CONTEXT, VOCAB

HUGE = 10**40


def _refused(
    api: Api, response: httpx.Response, param: str | None, *, status: int = 400
) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert error["message"]
    assert not api.engine.submitted
    return dict(error)


BAD_FIELDS: list[tuple[str, Any]] = [
    ("temperature", -1),
    ("temperature", 1e99),
    ("temperature", HUGE),
    ("temperature", "hot"),
    ("temperature", True),
    ("temperature", [0.5]),
    ("top_p", 0),
    ("top_p", 2),
    ("top_p", -0.1),
    ("top_k", -2),
    ("top_k", HUGE),
    ("top_k", 1.5),
    ("min_p", 1.01),
    ("seed", HUGE),
    ("seed", "7"),
    ("presence_penalty", 3),
    ("frequency_penalty", -2.5),
    ("repetition_penalty", 0),
    ("repetition_penalty", -1),
    ("logit_bias", {str(VOCAB + 5): 1}),
    ("logit_bias", {"abc": 1}),
    ("logit_bias", {"": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"1.0": 1}),
    ("logit_bias", {"1": 101}),
    ("logit_bias", {"1": None}),
    ("logit_bias", {"1": "x"}),
    ("logit_bias", {"9" * 5000: 1}),
    ("logit_bias", [1]),
    ("stop", [""]),
    ("stop", ""),
    ("stop", [str(number) for number in range(17)]),
    ("stop", "x" * 2000),
    ("stop", 5),
    ("stop_token_ids", [VOCAB]),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", list(range(100))),
    ("stop_token_ids", 3),
    ("min_tokens", -1),
    ("min_tokens", HUGE),
    ("max_tokens", 0),
    ("max_tokens", -3),
    ("max_tokens", HUGE),
    ("max_tokens", "16"),
    ("max_tokens", 1.5),
    ("n", 0),
    ("n", -1),
    ("n", 129),
    ("n", HUGE),
    ("n", "2"),
    ("prompt_logprobs", -1),
    ("prompt_logprobs", 21),
    ("priority", HUGE),
    ("stream", "yes"),
    ("stream", 1),
    ("ignore_eos", "no"),
    ("stream_options", {"include_usage": True}),
    ("model", 5),
]


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_a_bad_field_is_named(api: Api, path: str) -> None:
    body = chat_body() if path == CHAT else {"prompt": "hi"}
    for field, value in BAD_FIELDS:
        response = await api.client.post(path, json={**body, field: value})
        assert response.status_code == 400, (field, value)
        error = _refused(api, response, response.json()["error"]["param"])
        assert error["param"].split("[")[0].split(".")[0] == field
        assert field in error["message"]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"logprobs": 5}, "logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        (CHAT, {"top_logprobs": 2}, "top_logprobs"),
        (CHAT, {"max_completion_tokens": 0}, "max_completion_tokens"),
        (CHAT, {"max_completion_tokens": 5, "max_tokens": 6}, "max_completion_tokens"),
        (CHAT, {"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
        (CHAT, {"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        (CHAT, {"chat_template_kwargs": 5}, "chat_template_kwargs"),
        (CHAT, {"stream": True, "stream_options": {"include_usage": 1}}, None),
        (TEXT, {"logprobs": True}, "logprobs"),
        (TEXT, {"logprobs": 21}, "logprobs"),
        (TEXT, {"logprobs": -1}, "logprobs"),
        (TEXT, {"max_tokens": 0}, "max_tokens"),
        (TEXT, {"best_of": 3, "n": 2}, "best_of"),
        (TEXT, {"max_completion_tokens": 5}, "max_completion_tokens"),
    ],
)
async def test_rules_between_fields(
    api: Api, path: str, fields: dict[str, Any], param: str | None
) -> None:
    body = chat_body() if path == CHAT else {"prompt": "hi"}
    response = await api.client.post(path, json={**body, **fields})
    _refused(api, response, param or "stream_options.include_usage")


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ("", "prompt"),
        ([], "prompt"),
        ([""], "prompt[0]"),
        ([[]], "prompt[0]"),
        ([[1], []], "prompt[1]"),
        ([1, "a"], "prompt"),
        (["a", 1], "prompt[1]"),
        ([[1], "a"], "prompt[1]"),
        ([[1, "a"]], "prompt[0][1]"),
        ([1.5], "prompt[0]"),
        ([True], "prompt[0]"),
        ([VOCAB], "prompt"),
        ([-1], "prompt"),
        ([[1], [VOCAB]], "prompt[1]"),
        ([HUGE], "prompt"),
        ({"text": "a"}, "prompt"),
        (None, "prompt"),
        (["x"] * 70, "prompt"),
        ([1] * CONTEXT, "prompt"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_prompts_that_cannot_be_run(api: Api, prompt: Any, param: str) -> None:
    _refused(api, await api.complete(prompt), param)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (None, "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "nobody", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0]"),
    ],
)
async def test_messages_that_cannot_be_rendered(api: Api, messages: Any, param: str) -> None:
    _refused(api, await api.client.post(CHAT, json={"messages": messages}), param)


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_a_missing_prompt_and_an_unknown_model(api: Api, path: str) -> None:
    field = "messages" if path == CHAT else "prompt"
    assert "is required" in _refused(api, await api.client.post(path, json={}), field)["message"]
    body = {**chat_body(), "prompt": "hi", "model": "gpt-9"}
    del body["messages" if path == TEXT else "prompt"]
    error = _refused(api, await api.client.post(path, json=body), "model", status=404)
    assert error["code"] == "model_not_found"
    assert "gpt-9" in error["message"]


@pytest.mark.parametrize("path", [CHAT, TEXT, "/tokenize", "/detokenize"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"{",
        b"[1]",
        b"null",
        b'"x"',
        b"5",
        b'{"prompt": }',
        b"\xff\xfe",
        b'{"prompt": "a"} trailing',
        b'{"a":' * 5000,
        b"[" * 100_000,
        b'{"prompt": "\xff"}',
        b'{"temperature": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: body[:12].decode("latin-1"),
)
async def test_a_body_that_is_no_json_object(api: Api, path: str, body: bytes) -> None:
    response = await api.client.post(path, content=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (rb'{"messages": [{"role": "user", "content": "a\ud83d"}]}', "messages[0].content"),
        (rb'{"messages": [{"role": "user", "content": "\udc00"}]}', "messages[0].content"),
        (
            rb'{"messages": [], "tools": [{"function": {"description": "\ud800x"}}]}',
            "tools[0].function.description",
        ),
        (rb'{"messages": [], "\ud800": 1}', "?"),
        (rb'{"messages": [], "temperature": NaN}', "temperature"),
        (rb'{"messages": [], "top_p": -Infinity}', "top_p"),
        (rb'{"messages": [], "min_p": 1e999}', "min_p"),
        (rb'{"messages": [], "logit_bias": {"1": NaN}}', "logit_bias.1"),
    ],
)
async def test_values_that_are_not_json_name_their_field(api: Api, body: bytes, param: str) -> None:
    error = _refused(api, await api.client.post(CHAT, content=body), param)
    assert "surrogate" in error["message"] or "finite" in error["message"]


async def test_a_lone_surrogate_in_a_prompt_and_a_whole_pair(api: Api) -> None:
    _refused(api, await api.client.post(TEXT, content=rb'{"prompt": "\udc00 low"}'), "prompt")
    whole = await api.client.post(TEXT, content=rb'{"prompt": "\ud83d\ude00", "echo": true}')
    assert whole.status_code == 200
    assert whole.json()["choices"][0]["text"].startswith("\U0001f600")


async def test_null_content_is_empty(api: Api) -> None:
    assert (await api.chat(None)).status_code == 200


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_over_long_requests(api: Api, path: str) -> None:
    """D03: the rule is prompt < context, and prompt + max_tokens <= context."""
    overhead = 0
    if path == CHAT:
        empty = await api.client.post("/tokenize", json=chat_body(""))
        overhead = empty.json()["count"]

    async def ask(tokens: int, **fields: Any) -> httpx.Response:
        text = "x" * (tokens - overhead)
        body = chat_body(text) if path == CHAT else {"prompt": text}
        return await api.client.post(path, json={**body, **fields})

    field = "messages" if path == CHAT else "prompt"
    for tokens in (600, CONTEXT):
        error = _refused(api, await ask(tokens), field)
        assert error["code"] == "context_length_exceeded"
        assert str(tokens) in error["message"]
        assert str(CONTEXT) in error["message"]
        assert "-" not in error["message"]
    error = _refused(api, await ask(100, max_tokens=10_000), "max_tokens")
    for number in ("100", "10000", str(CONTEXT)):
        assert number in error["message"]
    last = await ask(CONTEXT - 1, ignore_eos=True)
    assert last.json()["usage"]["completion_tokens"] == 1
    assert last.json()["choices"][0]["finish_reason"] == "length"
    whole = await ask(CONTEXT - 50, max_tokens=50, ignore_eos=True)
    assert whole.json()["usage"]["total_tokens"] == CONTEXT


async def test_without_a_limit_the_rest_of_the_context_is_used(api: Api) -> None:
    answer = await api.complete("x" * 500, ignore_eos=True)
    assert answer.json()["usage"]["total_tokens"] == CONTEXT


async def test_a_chat_without_a_template_is_a_clear_400() -> None:
    async with open_api() as api:
        api.service.begin(dataclasses.replace(api.service.model, template=None))
        error = _refused(api, await api.chat(), "messages")
        assert "chat template" in error["message"]
        assert (await api.complete("hi")).status_code == 200


async def test_bad_requests_do_not_touch_good_ones(api: Api) -> None:
    """D01: four good requests run while every bad field is tried, and all end as if alone."""
    prompts = [f"good {index}" for index in range(4)]
    alone = [(await api.complete(prompt, seed=5)).json()["choices"] for prompt in prompts]
    api.engine.pause()
    good = [asyncio.create_task(api.complete(prompt, seed=5)) for prompt in prompts]
    while len(api.engine.submitted) < 8:
        await asyncio.sleep(0.001)
    for field, value in BAD_FIELDS:
        assert (await api.complete("hi", **{field: value})).status_code == 400
    assert len(api.engine.submitted) == 8
    api.engine.resume()
    assert [(await task).json()["choices"] for task in good] == alone
    assert (await api.complete("next")).status_code == 200


async def test_strict_json_numbers_are_taken(api: Api) -> None:
    body = json.dumps({"prompt": "hi", "temperature": 1, "top_p": 1, "logit_bias": {"5": -100}})
    assert (await api.client.post(TEXT, content=body.encode())).status_code == 200
