"""What became of drafts, in usage and in `/metrics`, and the field that limits them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from draftmark.core.messages import DraftStats, EngineState, EngineStats
from draftmark.server.metrics import Metrics
from tests.fakes.api import CHAT, TEXT, Api, chat_body, events, open_api
from tests.fakes.engine import EOS, LETTERS, FakeEngine

MOST = 3
# 8 letters and the end: one token, then windows that emit 3, 3 and 2.
ANSWER = [*list(LETTERS)[:8], EOS]


@pytest.fixture
async def drafting() -> AsyncIterator[Api]:
    """Drafts 3 tokens, of which 2 are accepted where that many are left."""
    engine = FakeEngine(answer=lambda request: ANSWER, tokens_a_step=3, draft_tokens=MOST)
    async with open_api(engine) as opened:
        yield opened


def body_of(path: str, **fields: Any) -> dict[str, Any]:
    return {**(chat_body() if path == CHAT else {"prompt": "hi"}), "seed": 1, **fields}


async def usage_of(api: Api, path: str, **fields: Any) -> dict[str, Any]:
    """As a whole answer tells it, and the last chunk of its stream."""
    whole = await api.client.post(path, json=body_of(path, **fields))
    assert whole.status_code == 200, whole.text
    options = {"stream": True, "stream_options": {"include_usage": True}}
    streamed = await api.client.post(path, json=body_of(path, **fields, **options))
    *_, last, done = events(streamed.text)
    assert done == "[DONE]"
    assert last["usage"] == whole.json()["usage"]
    usage: dict[str, Any] = last["usage"]
    return usage


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_usage_tells_what_became_of_drafts(drafting: Api, path: str) -> None:
    usage = await usage_of(drafting, path)
    assert usage["completion_tokens"] == len(ANSWER)
    assert usage["speculation"] == {
        "windows": 2,
        "draft_tokens": 6,
        "accepted_tokens": 4,
        "acceptance_length": 3.0,
    }


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_answers_of_one_call_are_added_up(drafting: Api, path: str) -> None:
    usage = await usage_of(drafting, path, n=3, max_tokens=5)
    assert usage["completion_tokens"] == 15
    assert usage["speculation"] == {
        "windows": 3,
        "draft_tokens": 9,
        "accepted_tokens": 3,
        "acceptance_length": 2.0,
    }


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_without_drafts_usage_says_nothing_of_them(
    api: Api, drafting: Api, path: str
) -> None:
    for usage in (
        await usage_of(api, path),
        await usage_of(drafting, path, draft_tokens=0),
        await usage_of(drafting, path, max_tokens=1),  # no window was needed
    ):
        assert set(usage) == {
            "prompt_tokens",
            "completion_tokens",
            "total_tokens",
            "prompt_tokens_details",
        }


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_a_stop_string_inside_a_window(drafting: Api, path: str) -> None:
    """The tokens behind it are not counted; the window is, though its end is seen only here."""
    text = (await drafting.client.post(path, json=body_of(path))).json()["choices"][0]
    shown = text["message"]["content"] if path == CHAT else text["text"]
    usage = await usage_of(drafting, path, stop=shown[4])
    assert usage["completion_tokens"] == 5
    assert usage["speculation"]["windows"] == 1
    assert usage["speculation"]["accepted_tokens"] == 2


async def test_usage_so_far_has_the_drafts_so_far(drafting: Api) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = body_of(CHAT, stop="none of this", stream=True, stream_options=options)
    *chunks, _ = events((await drafting.client.post(CHAT, json=body)).text)
    told = [chunk["usage"].get("speculation", {}).get("windows", 0) for chunk in chunks]
    assert told == [0, 1, 2, 2]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("wanted", [None, 0, 1, MOST])
async def test_a_request_may_want_fewer(drafting: Api, path: str, wanted: int | None) -> None:
    answer = await drafting.client.post(path, json=body_of(path, n=2, draft_tokens=wanted))
    assert answer.status_code == 200
    assert [one.sampling.draft_tokens for one in drafting.engine.submitted] == [wanted] * 2
    drafted = answer.json()["usage"].get("speculation", {}).get("draft_tokens", 0)
    assert drafted == 2 * 2 * (MOST if wanted is None else wanted)


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (4, ["draft_tokens is 4", "at most 3", "--draft-tokens"]),
        (9, ["draft_tokens", "between 0 and 8", "got 9"]),
        (-1, ["draft_tokens", "between 0 and 8", "got -1"]),
        (1.5, ["draft_tokens", "int"]),
        (True, ["draft_tokens", "int"]),
        ("2", ["draft_tokens", "int"]),
    ],
)
async def test_what_cannot_be_wanted_is_refused_by_name(
    drafting: Api, path: str, value: Any, words: list[str]
) -> None:
    response = await drafting.client.post(path, json=body_of(path, draft_tokens=value))
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "draft_tokens"
    assert all(word in error["message"] for word in words), error["message"]
    assert not drafting.engine.submitted


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_a_server_without_drafts_says_so(api: Api, path: str) -> None:
    response = await api.client.post(path, json=body_of(path, draft_tokens=1))
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "draft_tokens"
    assert "this server makes no drafts" in error["message"]
    for value in (0, None):
        response = await api.client.post(path, json=body_of(path, draft_tokens=value))
        assert response.status_code == 200


TOTALS = DraftStats(
    windows=10,
    drafted=30,
    accepted=16,
    judged_at=[10, 8, 5],
    accepted_at=[9, 5, 2],
    turns=[4, 0, 1, 7],
    gaps=2,
    verify_us=1_500_000,
    draft_us=250_000,
    break_even=[1.25, 1.5, 1.75],
    low_length=1.2,
    num_low=3,
)


def scraped(drafts: DraftStats | None) -> dict[str, list[tuple[str, float]]]:
    """Name -> (position or number of drafts, value), of what tells of drafts."""
    stats = EngineStats(drafts=drafts)
    metrics = Metrics(model="m", state=lambda: EngineState("ready"), stats=lambda: stats)
    found: dict[str, list[tuple[str, float]]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            if "draft_" in sample.name or "spec_decode" in sample.name:
                assert sample.labels["model_name"] == "m"
                assert sample.name.endswith("_total") == (family.type == "counter")
                label = sample.labels.get("position") or sample.labels.get("drafts", "")
                found.setdefault(sample.name, []).append((label, sample.value))
    return found


def test_every_figure_of_drafts_is_there_under_our_names_and_vllms() -> None:
    accepted = [("0", 9), ("1", 5), ("2", 2)]
    assert scraped(TOTALS) == {
        "draftmark_draft_windows_total": [("", 10)],
        "draftmark_draft_tokens_total": [("", 30)],
        "draftmark_draft_accepted_tokens_total": [("", 16)],
        "draftmark_draft_judged_per_position_total": [("0", 10), ("1", 8), ("2", 5)],
        "draftmark_draft_accepted_per_position_total": accepted,
        "draftmark_draft_turns_total": [("0", 4), ("1", 0), ("2", 1), ("3", 7)],
        "draftmark_draft_gaps_total": [("", 2)],
        "draftmark_draft_verify_seconds_total": [("", 1.5)],
        "draftmark_draft_seconds_total": [("", 0.25)],
        "draftmark_draft_low_acceptance_alarms_total": [("", 3)],
        "draftmark_draft_low_acceptance": [("", 1)],
        "draftmark_draft_acceptance_length": [("", 2.6)],
        "draftmark_draft_break_even_length": [("1", 1.25), ("2", 1.5), ("3", 1.75)],
        "vllm:spec_decode_num_drafts_total": [("", 10)],
        "vllm:spec_decode_num_draft_tokens_total": [("", 30)],
        "vllm:spec_decode_num_accepted_tokens_total": [("", 16)],
        "vllm:spec_decode_num_accepted_tokens_per_pos_total": accepted,
    }


def test_counters_begin_at_zero_and_what_is_no_number_yet_is_left_out() -> None:
    none = [0] * 3
    fresh = DraftStats(
        windows=0,
        drafted=0,
        accepted=0,
        judged_at=none,
        accepted_at=none,
        turns=[0, *none],
        gaps=0,
        verify_us=0,
        draft_us=0,
        break_even=[],
        low_length=None,
        num_low=0,
    )
    found = scraped(fresh)
    left_out = {"draftmark_draft_acceptance_length", "draftmark_draft_break_even_length"}
    assert set(found) == set(scraped(TOTALS)) - left_out
    assert all(value == 0 for samples in found.values() for _, value in samples)


def test_where_no_drafts_are_made_nothing_is_said_of_them() -> None:
    assert scraped(None) == {}
