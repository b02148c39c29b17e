"""Answers of coins say so wherever they go, and answers of a model never do."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from draftmark.server.app import SYNTHETIC_HEADER
from tests.fakes.api import CHAT, TEXT, Api, chat_body, events, open_api
from tests.fakes.engine import FakeEngine

RATES = [0.9, 0.5]


def of_coins() -> FakeEngine:
    engine = FakeEngine()
    engine.ready["synthetic_acceptance"] = RATES
    return engine


def body_for(path: str) -> dict[str, Any]:
    return {**(chat_body() if path == CHAT else {"prompt": "hi"}), "seed": 1}


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_every_answer_and_every_event_of_a_stream(path: str) -> None:
    options = {"include_usage": True}
    async with open_api(of_coins()) as api:
        whole = await api.client.post(path, json=body_for(path))
        streamed = await api.client.post(
            path, json={**body_for(path), "stream": True, "stream_options": options}
        )
    for answer in (whole, streamed):
        assert answer.headers[SYNTHETIC_HEADER] == "0.9,0.5"
    assert whole.json()["synthetic_acceptance"] == RATES
    *chunks, done = events(streamed.text)
    assert done == "[DONE]" and len(chunks) > 2
    assert all(chunk["synthetic_acceptance"] == RATES for chunk in chunks)


async def test_the_model_its_configuration_and_its_figures() -> None:
    async with open_api(of_coins()) as api:
        listed = await api.client.get("/v1/models")
        assert listed.headers[SYNTHETIC_HEADER] == "0.9,0.5"
        [card, _] = listed.json()["data"]
        assert card["synthetic_acceptance"] == RATES
        assert (await api.client.get(f"/v1/models/{card['id']}")).json() == card
        config = (await api.client.get("/v1/engine/config")).json()
        assert config["ready"]["synthetic_acceptance"] == RATES
        text = (await api.client.get("/metrics")).text
    assert series(text) == [({"model_name": card["id"], "rates": "0.9,0.5"}, 1.0)]


async def test_a_real_model_says_nothing_of_it(api: Api) -> None:
    answers = [
        await api.client.post(CHAT, json=body_for(CHAT)),
        await api.client.post(TEXT, json={**body_for(TEXT), "stream": True}),
        await api.client.get("/v1/models"),
    ]
    for answer in answers:
        assert SYNTHETIC_HEADER not in answer.headers
        assert "synthetic" not in answer.text
    assert series((await api.client.get("/metrics")).text) == []


def series(text: str) -> list[tuple[dict[str, str], float]]:
    return [
        (dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "draftmark_synthetic_acceptance"
    ]
