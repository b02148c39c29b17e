"""Every field is served, harmless, refused by name, or named as ignored; none is dropped unseen."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from draftmark.server.fields import HARMLESS, IGNORED_HEADER, REFUSED
from draftmark.server.protocol import ChatRequest, CompletionRequest
from tests.fakes.api import CHAT, TEXT, Api, chat_body

# A value that means "on" for fields whose off values are all there is to their type.
ON: dict[str, Any] = {
    "tool_choice": "required",
    "response_format": {"type": "json_object"},
    "best_of": 2,
    "service_tier": "flex",
    "verbosity": "high",
    "modalities": ["text", "audio"],
}


def on_value(name: str) -> Any:
    """Something that no reader of the field could take for off."""
    if name in ON:
        return ON[name]
    off = REFUSED[name]
    if off and isinstance(off[0], bool):
        return not off[0]
    if off and isinstance(off[0], int | float):
        return off[0] + 1
    if off and isinstance(off[0], list):
        return [{"type": "function"}]
    return {"x": 1} if off and isinstance(off[0], dict) else "x"


def served_by(path: str) -> tuple[str, ...]:
    return (ChatRequest if path == CHAT else CompletionRequest).__struct_fields__


def body_for(path: str) -> dict[str, Any]:
    return chat_body() if path == CHAT else {"prompt": "hi"}


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_a_known_field_that_does_not_work_is_refused_by_name(api: Api, path: str) -> None:
    names = sorted(set(REFUSED) - set(served_by(path)))
    for name in names:
        response = await api.client.post(path, json={**body_for(path), name: on_value(name)})
        assert response.status_code == 400, name
        error = response.json()["error"]
        assert (error["param"], error["code"]) == (name, "unsupported_parameter")
        assert name in error["message"]
    assert not api.engine.submitted


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_its_off_values_are_taken(api: Api, path: str) -> None:
    for name in sorted(set(REFUSED) - set(served_by(path))):
        for off in (*REFUSED[name], None):
            response = await api.client.post(path, json={**body_for(path), name: off})
            assert response.status_code == 200, (name, off, response.text)
            assert IGNORED_HEADER not in response.headers


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_harmless_fields_change_nothing(api: Api, path: str) -> None:
    extra = dict.fromkeys(HARMLESS, "x")
    plain = await api.client.post(path, json={**body_for(path), "seed": 1})
    more = await api.client.post(path, json={**body_for(path), **extra, "seed": 1})
    assert more.json()["choices"] == plain.json()["choices"]
    assert IGNORED_HEADER not in more.headers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_unknown_fields_are_named_in_a_header(api: Api, path: str, stream: bool) -> None:
    extra = {"mirostat": 2, "naïve\r\nx-evil: 1": 1}
    response = await api.client.post(path, json={**body_for(path), **extra, "stream": stream})
    assert response.status_code == 200
    assert response.headers[IGNORED_HEADER] == "mirostat, na%C3%AFve%0D%0Ax-evil%3A%201"
    assert "x-evil" not in response.headers


async def test_unknown_fields_are_named_on_the_other_routes_and_inside(api: Api) -> None:
    response = await api.client.post("/tokenize", json={"prompt": "a", "foo": 1})
    assert response.headers[IGNORED_HEADER] == "foo"
    options = {"include_usage": True, "bar": 1, "include_obfuscation": True}
    response = await api.chat(stream=True, stream_options=options)
    assert response.headers[IGNORED_HEADER] == "stream_options.bar"
    many = {f"f{number}": 1 for number in range(500)}
    response = await api.chat(**many)
    assert response.headers[IGNORED_HEADER].endswith("f19, and 480 more")


def test_no_field_is_in_two_classes() -> None:
    both = set(ChatRequest.__struct_fields__) & set(CompletionRequest.__struct_fields__)
    assert not HARMLESS & set(REFUSED)
    assert not both & (set(REFUSED) | HARMLESS)


@pytest.mark.clients
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_every_field_of_the_official_client_is_known(path: str) -> None:
    if path == CHAT:
        from openai.types.chat import completion_create_params as params
    else:
        from openai.types import completion_create_params as params  # type: ignore[no-redef]
    names = set(get_type_hints(params.CompletionCreateParamsStreaming))
    assert len(names) > 10
    assert names - set(served_by(path)) - HARMLESS - set(REFUSED) == set()
