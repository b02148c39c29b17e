"""The official client against the server: what it parses is what was meant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes.api import Api, listening, open_api
from tests.fakes.engine import FakeEngine

openai = pytest.importorskip("openai", reason="clients: package openai is not installed")

pytestmark = pytest.mark.clients


@asynccontextmanager
async def connected(engine: FakeEngine | None = None) -> AsyncIterator[tuple[Api, Any]]:
    async with (
        open_api(engine, keys=("secret",)) as api,
        listening(api) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0) as client,
    ):
        yield api, client


ASK = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "seed": 4}


async def test_chat_whole_and_streamed() -> None:
    async with connected() as (_, client):
        whole = await client.chat.completions.create(**ASK)
        assert whole.choices[0].finish_reason == "stop"
        assert whole.choices[0].message.role == "assistant"
        assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
        assert whole.usage.prompt_tokens_details.cached_tokens == 0
        text, usage, reasons = "", None, []
        stream = await client.chat.completions.create(
            **ASK, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reasons += [choice.finish_reason] if choice.finish_reason else []
            usage = chunk.usage or usage
        assert text == whole.choices[0].message.content
        assert usage == whole.usage
        assert reasons == ["stop"]


@pytest.mark.parametrize("n", [1, 2])
async def test_the_clients_own_stream_helper(n: int) -> None:
    async with connected() as (_, client):
        fields = {**ASK, "n": n, "logprobs": True, "top_logprobs": 2}
        whole = await client.chat.completions.create(**fields)
        async with client.chat.completions.stream(**fields) as stream:
            final = await stream.get_final_completion()
        assert len(whole.choices) == n
        for one, two in zip(whole.choices, final.choices, strict=True):
            assert one.message.content == two.message.content
        # The helper counts the first entry of a later choice twice, so only the first is compared.
        assert whole.choices[0].logprobs.content == final.choices[0].logprobs.content


async def test_completions_with_logprobs() -> None:
    async with connected() as (_, client):
        answer = await client.completions.create(
            model="fake", prompt=["a", "b"], logprobs=2, echo=True, max_tokens=4, seed=1
        )
        assert [choice.index for choice in answer.choices] == [0, 1]
        for choice, prompt in zip(answer.choices, "ab", strict=True):
            assert choice.text.startswith(prompt)
            assert choice.logprobs.tokens[0] == prompt
            assert choice.logprobs.token_logprobs[0] is None
        extra = await client.completions.create(
            model="fake", prompt=[40, 41], extra_body={"top_k": 3, "return_token_ids": True}
        )
        assert extra.choices[0].prompt_token_ids == [40, 41]


async def test_models() -> None:
    async with connected() as (_, client):
        assert [model.id async for model in client.models.list()] == ["fake", "alias"]
        assert (await client.models.retrieve("alias")).max_model_len == 512


async def test_errors_have_their_classes() -> None:
    async with connected(FakeEngine(fail_after=2)) as (api, client):
        with pytest.raises(openai.BadRequestError) as bad:
            await client.chat.completions.create(**ASK, temperature=-1)
        assert (bad.value.param, bad.value.code) == ("temperature", "invalid_value")
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(**{**ASK, "model": "gpt-9"})
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="wrong").models.list()
        with pytest.raises(openai.BadRequestError, match="tools"):
            tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
            await client.chat.completions.create(**ASK, tools=[tool])
        stream = await client.chat.completions.create(**ASK, stream=True)
        with pytest.raises(openai.APIError, match="injected fault"):
            async for _ in stream:
                pass
        api.engine.most_in_flight = 0
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(**ASK)


async def test_closing_the_stream_early_aborts() -> None:
    async with connected(FakeEngine(step_s=0.001)) as (api, client):
        stream = await client.chat.completions.create(
            **ASK, stream=True, max_tokens=400, extra_body={"ignore_eos": True}
        )
        async for _ in stream:
            break
        await stream.close()
        await api.engine.wait_idle()
        assert api.engine.abort_calls == [1]
