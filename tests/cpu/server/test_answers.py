"""Streamed and whole answers: equal at every split and ended once (C01, C03, C05, D09)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.core.request import FinishReason, Request
from tests.fakes import tokenizer as fakes
from tests.fakes.api import CHAT, TEXT, Api, chat_body, events, joined, open_api
from tests.fakes.engine import EOS, FakeEngine

TOKENIZER = fakes.wrap(fakes.byte_level())
SAMPLE = "日本語🧑‍🚀é"


def says(text: str) -> FakeEngine:
    """An engine whose every answer is `text` and then the end token."""
    ids = [*TOKENIZER.encode(text), EOS]
    return FakeEngine(answer=lambda request: ids)


async def ask(api: Api, path: str, **fields: Any) -> tuple[dict[str, Any], list[Any]]:
    """The same request whole and streamed."""
    body = {**(chat_body() if path == CHAT else {"prompt": "hi"}), "seed": 1, **fields}
    whole = await api.client.post(path, json=body)
    assert whole.status_code == 200, whole.text
    streamed = await api.client.post(path, json={**body, "stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    return whole.json(), events(streamed.text)


def text_of(choice: dict[str, Any]) -> str:
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


def logprobs_of(chunks: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The lists of all chunks, joined."""
    whole: dict[str, list[Any]] = defaultdict(list)
    for chunk in chunks:
        for name, values in chunk.items():
            whole[name] += values
    return dict(whole)


def check_equal(whole: dict[str, Any], stream: list[Any]) -> None:
    """What C01, C07 and the design promise of any stream and its whole twin."""
    assert stream[-1] == "[DONE]"
    assert stream.count("[DONE]") == 1
    choices = joined(stream)
    assert sorted(choices) == [choice["index"] for choice in whole["choices"]]
    for choice in whole["choices"]:
        streamed = choices[choice["index"]]
        assert streamed["text"] == text_of(choice)
        assert streamed["reasons"] == [choice["finish_reason"]]
        assert logprobs_of(streamed["logprobs"]) == (choice["logprobs"] or {})
        assert streamed["ids"] == choice.get("token_ids", [])
        assert streamed["roles"] == (["assistant"] if "message" in choice else [])
    identity = {(event["id"], event["created"], event["model"]) for event in stream[:-1]}
    assert len(identity) == 1


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": True}])
async def test_the_usage_chunk(api: Api, path: str, options: dict[str, bool] | None) -> None:
    body = {**(chat_body() if path == CHAT else {"prompt": "hi"}), "seed": 1}
    whole = (await api.client.post(path, json=body)).json()["usage"]
    body |= {"stream": True, "stream_options": options}
    *chunks, done = events((await api.client.post(path, json=body)).text)
    assert done == "[DONE]"
    if options and options.get("include_usage"):
        last = chunks.pop()
        assert last["choices"] == []
        assert last["usage"] == whole
        assert all(chunk["usage"] is None for chunk in chunks)
    else:
        assert all("usage" not in chunk for chunk in chunks)
    assert all(chunk["choices"] for chunk in chunks)
    assert whole["total_tokens"] == whole["prompt_tokens"] + whole["completion_tokens"]


async def test_continuous_usage_counts_up(api: Api) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    _, [*chunks, _done] = await ask_stream(api, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == [*range(1, len(counts)), counts[-2]]
    assert chunks[-1]["choices"] == []


async def ask_stream(api: Api, **fields: Any) -> tuple[dict[str, str], list[Any]]:
    response = await api.chat(stream=True, seed=1, **fields)
    return dict(response.headers), events(response.text)


async def test_one_event_a_step_and_the_role_in_the_first() -> None:
    async with open_api(FakeEngine(tokens_a_step=3)) as api:
        whole = (await api.chat(seed=1)).json()
        _, [*chunks, _] = await ask_stream(api)
        assert len(chunks) == -(-whole["usage"]["completion_tokens"] // 3)
        assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
        assert all("role" not in chunk["choices"][0]["delta"] for chunk in chunks[1:])
        assert chunks[0]["object"] == "chat.completion.chunk"


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("tokens_a_step", [1, 2, 7])
async def test_characters_are_never_split(path: str, tokens_a_step: int) -> None:
    """C03, cut by max_tokens after each prefix."""
    engine = says(SAMPLE)
    engine.tokens_a_step = tokens_a_step
    total = len(TOKENIZER.encode(SAMPLE))
    async with open_api(engine) as api:
        for limit in range(1, total + 2):
            whole, stream = await ask(api, path, max_tokens=limit)
            check_equal(whole, stream)
            data = SAMPLE.encode()[:limit]
            assert text_of(whole["choices"][0]) == data.decode("utf-8", "replace")
            reason = "length" if limit <= total else "stop"
            assert whole["choices"][0]["finish_reason"] == reason


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("tokens_a_step", [1, 2, 3, 50])
@pytest.mark.parametrize(
    ("said", "stop", "text", "reason"),
    [
        ("ok\nHuman: hi", ["\nHuman:", "END"], "ok", "\nHuman:"),
        ("it is ENTRY", ["\nHuman:", "END"], "it is ENTRY", None),
        ("the EN", ["END"], "the EN", None),
        ("END", "END", "", "END"),
        ("日本語です", ["語"], "日本", "語"),
    ],
)
async def test_stop_strings(
    path: str, tokens_a_step: int, said: str, stop: Any, text: str, reason: str | None
) -> None:
    """C05: the same for chat and completions, streamed and whole, however tokens come."""
    engine = says(said)
    engine.tokens_a_step = tokens_a_step
    async with open_api(engine) as api:
        whole, stream = await ask(api, path, stop=stop, return_token_ids=True)
        check_equal(whole, stream)
        [choice] = whole["choices"]
        assert (text_of(choice), choice["finish_reason"]) == (text, "stop")
        assert choice.get("stop_reason") == reason
        if reason is not None:
            # The token that completes a stop counts; later ones appear nowhere.
            ids = TOKENIZER.encode(said)
            count = len(choice["token_ids"])
            assert choice["token_ids"] == ids[:count]
            assert (text + reason) in bytes_text(ids[:count])
            assert (text + reason) not in bytes_text(ids[: count - 1])
            assert whole["usage"]["completion_tokens"] == count
            if tokens_a_step == 1:  # else the engine may have ended by itself in the same step
                assert (1, count, FinishReason.STOP) in engine.finish_calls
        assert engine.abort_calls == []


def bytes_text(ids: list[int]) -> str:
    return b"".join(map(TOKENIZER.token_bytes, ids)).decode("utf-8", "ignore")


class TestChoices:
    """D09: several answers to one prompt."""

    @pytest.mark.parametrize("capacity", [1, 4])
    async def test_four_choices_with_their_own_ends(self, capacity: int) -> None:
        async with open_api(FakeEngine(capacity=capacity)) as api:
            whole, stream = await ask(api, CHAT, n=4, seed=11, temperature=1)
            again, _ = await ask(api, CHAT, n=4, seed=11, temperature=1)
            check_equal(whole, stream)
            texts = [text_of(choice) for choice in whole["choices"]]
            assert texts == [text_of(choice) for choice in again["choices"]]
            assert len(set(texts)) == 4
            assert len({len(text) for text in texts}) > 1
            assert [request.seed for request in api.engine.submitted[:4]] == [11, 12, 13, 14]
            assert api.engine.abort_calls == []

    async def test_choice_i_is_the_answer_to_seed_plus_i(self, api: Api) -> None:
        whole, _ = await ask(api, TEXT, n=3, seed=2**63 - 1)
        for index, seed in enumerate((2**63 - 1, -(2**63), -(2**63) + 1)):
            alone, _ = await ask(api, TEXT, seed=seed)
            assert text_of(alone["choices"][0]) == text_of(whole["choices"][index])

    async def test_lists_of_prompts_are_in_order(self, api: Api) -> None:
        prompts = ["one", "two", "three"]
        whole, stream = await ask(api, TEXT, prompt=prompts, n=2)
        check_equal(whole, stream)
        for index, prompt in enumerate(prompts):
            alone, _ = await ask(api, TEXT, prompt=prompt, n=2)
            pair = whole["choices"][2 * index : 2 * index + 2]
            assert [text_of(c) for c in alone["choices"]] == [text_of(c) for c in pair]
        # A prompt counts once however many answers it has.
        assert whole["usage"]["prompt_tokens"] == sum(map(len, map(TOKENIZER.encode, prompts)))

    async def test_prompts_of_ids_equal_prompts_of_text(self, api: Api) -> None:
        ids = [TOKENIZER.encode("one"), TOKENIZER.encode("two")]
        by_text, _ = await ask(api, TEXT, prompt=["one", "two"])
        by_ids, _ = await ask(api, TEXT, prompt=ids)
        single, _ = await ask(api, TEXT, prompt=ids[0])
        assert by_text["choices"] == by_ids["choices"]
        assert single["choices"][0] == by_ids["choices"][0]

    async def test_seeds_drawn_here_repeat_with_the_server_seed(self) -> None:
        drawn = []
        for _ in range(2):
            async with open_api() as api:
                await api.complete("a", n=2)
                await api.complete("b")
                drawn.append([request.seed for request in api.engine.submitted])
        assert drawn[0] == drawn[1]
        assert drawn[0][1] == drawn[0][0] + 1
        assert drawn[0][2] not in drawn[0][:2]


class TestLogprobs:
    async def test_chat(self, api: Api) -> None:
        whole, stream = await ask(api, CHAT, logprobs=True, top_logprobs=2)
        check_equal(whole, stream)
        [choice] = whole["choices"]
        content = choice["logprobs"]["content"]
        # Visible content only: the end token counts in usage and is not shown.
        assert "".join(entry["token"] for entry in content) == text_of(choice)
        assert whole["usage"]["completion_tokens"] == len(content) + 1
        assert [len(entry["top_logprobs"]) for entry in content] == [2] * len(content)
        assert all(bytes(entry["bytes"]).decode() == entry["token"] for entry in content)

    async def test_chat_without_alternatives(self, api: Api) -> None:
        whole, _ = await ask(api, CHAT, logprobs=True)
        assert whole["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []

    async def test_half_characters_have_exact_bytes(self) -> None:
        async with open_api(says("é")) as api:
            chat, _ = await ask(api, CHAT, logprobs=True, top_logprobs=0)
            content = chat["choices"][0]["logprobs"]["content"]
            assert [entry["bytes"] for entry in content] == [[0xC3], [0xA9]]
            text, _ = await ask(api, TEXT, logprobs=0)
            assert text["choices"][0]["logprobs"]["tokens"] == ["bytes:\\xc3", "bytes:\\xa9"]

    async def test_completions(self, api: Api) -> None:
        whole, stream = await ask(api, TEXT, logprobs=3)
        check_equal(whole, stream)
        [choice] = whole["choices"]
        shown = choice["logprobs"]
        assert "".join(shown["tokens"]) == choice["text"]
        assert shown["text_offset"] == list(range(len(choice["text"])))
        for token, logprob, top in zip(
            shown["tokens"], shown["token_logprobs"], shown["top_logprobs"], strict=True
        ):
            assert token in top
            assert logprob == top[token] or token in "ABC"
            assert 3 <= len(top) <= 4

    async def test_tokens_as_ids(self, api: Api) -> None:
        whole, _ = await ask(
            api, TEXT, logprobs=1, return_tokens_as_token_ids=True, return_token_ids=True
        )
        [choice] = whole["choices"]
        named = [f"token_id:{token}" for token in choice["token_ids"][:-1]]
        assert choice["logprobs"]["tokens"] == named

    @pytest.mark.parametrize("max_tokens", [0, 1, 4])
    async def test_echo(self, api: Api, max_tokens: int) -> None:
        prompt = "the 日"
        whole, stream = await ask(
            api, TEXT, prompt=prompt, echo=True, logprobs=1, max_tokens=max_tokens
        )
        check_equal(whole, stream)
        [choice] = whole["choices"]
        ids = TOKENIZER.encode(prompt)
        shown = choice["logprobs"]
        assert choice["text"].startswith(prompt)
        assert len(choice["text"]) == len(prompt) + max_tokens
        assert len(shown["tokens"]) == len(ids) + max_tokens
        assert shown["token_logprobs"][0] is shown["top_logprobs"][0] is None
        assert None not in shown["token_logprobs"][1:]
        assert shown["text_offset"][len(ids) :] == list(range(len(prompt), len(choice["text"])))
        assert choice["finish_reason"] == "length"
        assert whole["usage"]["completion_tokens"] == max_tokens

    async def test_echo_of_ids_is_their_text(self, api: Api) -> None:
        whole, _ = await ask(api, TEXT, prompt=TOKENIZER.encode("the 日"), echo=True, max_tokens=0)
        assert whole["choices"][0]["text"] == "the 日"

    @pytest.mark.parametrize("path", [CHAT, TEXT])
    async def test_prompt_logprobs(self, api: Api, path: str) -> None:
        whole, stream = await ask(api, path, prompt_logprobs=1, return_token_ids=True)
        check_equal(whole, stream)
        for answer in (whole, stream[0]):
            holder = answer if path == CHAT else answer["choices"][0]
            ids = holder["prompt_token_ids"]
            entries = holder["prompt_logprobs"]
            assert entries[0] is None
            assert len(entries) == len(ids)
            for token, entry in zip(ids[1:], entries[1:], strict=True):
                assert entry[str(token)]["rank"] == 2
                assert len(entry) == 2 or token == 32
        assert api.engine.submitted[0].sampling.prompt_logprobs == 1


async def test_cached_tokens_are_in_the_usage() -> None:
    async with open_api(FakeEngine(cached_tokens=16)) as api:
        whole, _ = await ask(api, TEXT, prompt="x" * 20, n=2)
        assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}
        assert whole["usage"]["prompt_tokens"] == 20


async def test_the_engine_is_told_where_a_chats_history_ends(api: Api) -> None:
    await ask(api, CHAT)
    request = api.engine.submitted[0]
    assert request.history_tokens is not None
    tail = request.prompt_ids[request.history_tokens :]
    assert tail == TOKENIZER.encode("<|im_start|>assistant\n")
    await ask(api, CHAT, add_generation_prompt=False)
    await ask(api, TEXT)
    assert [request.history_tokens for request in api.engine.submitted[2:]] == [None] * 4


async def test_a_stop_token_of_the_request_is_named_and_not_shown(api: Api) -> None:
    plain, _ = await ask(api, TEXT)
    text = text_of(plain["choices"][0])
    token = TOKENIZER.token_id(text[2])
    whole, stream = await ask(api, TEXT, stop_token_ids=[token], ignore_eos=True)
    check_equal(whole, stream)
    [choice] = whole["choices"]
    assert (choice["text"], choice["stop_reason"]) == (text[: text.index(text[2])], token)


async def test_special_tokens_are_shown_on_request(api: Api) -> None:
    whole, _ = await ask(api, TEXT, ignore_eos=True, skip_special_tokens=False, max_tokens=60)
    assert "<|im_end|>" in whole["choices"][0]["text"]


async def test_every_parameter_reaches_the_engine(api: Api) -> None:
    fields = {
        "temperature": 0.5,
        "top_p": 0.6,
        "top_k": 7,
        "min_p": 0.1,
        "seed": 8,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.4,
        "ignore_eos": True,
        "min_tokens": 2,
        "max_tokens": 9,
    }
    await api.complete(
        "hi", **fields, priority=-3, stop="q", stop_token_ids=[5], logit_bias={"6": 1.5}, logprobs=4
    )
    [request] = api.engine.submitted
    assert {name: getattr(request.sampling, name) for name in fields} == fields
    assert (request.priority, request.seed, request.stop_ids) == (-3, 8, (5,))
    assert (request.sampling.stop, request.sampling.logit_bias) == (("q",), {6: 1.5})
    assert request.sampling.logprobs == 4


async def test_defaults_of_the_model_fill_what_is_left_out(api: Api) -> None:
    model = api.service.model
    defaults = dataclasses.replace(
        model.defaults, sampling={**model.defaults.sampling, "temperature": 0.2, "top_k": 5}
    )
    api.service.begin(dataclasses.replace(model, defaults=defaults))
    await api.complete("hi", top_k=0)
    await api.complete("hi", temperature=0)
    first, second = (request.sampling for request in api.engine.submitted)
    assert (first.temperature, first.top_k) == (0.2, 0)
    assert (second.temperature, second.top_k) == (0.0, 5)


async def test_a_continued_message_gets_no_generation_prompt(api: Api) -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "The answer"},
    ]
    await api.client.post(CHAT, json={"messages": messages, "continue_final_message": True})
    [request] = api.engine.submitted
    text = bytes_text(request.prompt_ids)
    assert text.endswith("<|im_start|>assistant\nThe answer")


def _answer_of(text: str) -> Any:
    ids = TOKENIZER.encode(text)

    def answer(request: Request) -> list[int]:
        return [*ids, EOS]

    return answer


@settings(max_examples=60)
@given(
    said=st.text(alphabet="thein \n\u00e9\u4eac\U0001f600", min_size=1, max_size=25),
    stop=st.lists(st.text(alphabet="thein\u00e9\u4eac", min_size=1, max_size=3), max_size=3),
    tokens_a_step=st.integers(1, 9),
    limit=st.integers(1, 40),
    path=st.sampled_from([CHAT, TEXT]),
    wants=st.booleans(),
)
def test_a_stream_equals_its_whole_twin_at_every_split(
    said: str, stop: list[str], tokens_a_step: int, limit: int, path: str, wants: bool
) -> None:
    async def compare() -> None:
        engine = FakeEngine(answer=_answer_of(said), tokens_a_step=tokens_a_step)
        fields: dict[str, Any] = {"stop": stop, "max_tokens": limit, "return_token_ids": wants}
        if wants:
            fields |= {"logprobs": True, "top_logprobs": 1} if path == CHAT else {"logprobs": 1}
        async with open_api(engine) as api:
            whole, stream = await ask(api, path, **fields)
            check_equal(whole, stream)
            text = text_of(whole["choices"][0])
            assert not any(word in text for word in stop)

    asyncio.run(compare())
