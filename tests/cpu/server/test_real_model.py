"""The command, the processes, the real model and the official client, all together."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

openai = pytest.importorskip("openai", reason="clients: package openai is not installed")

pytestmark = [
    pytest.mark.model,
    pytest.mark.clients,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # a conversion and a start, on a machine that may be busy
]

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of smollm2 on a free port, started as a user would."""
    flags = ["--port", "0", "--kv-pool-tokens", "2048", "--max-running", "4"]
    process = subprocess.Popen(
        [sys.executable, "-m", "draftmark.cli.main", "serve", "smollm2", *flags],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        found = None
        while found is None:
            line = process.stdout.readline()
            assert line, f"the server ended with status {process.wait()}"
            found = re.search(r"at (http://\S+)/v1", line)
        yield found[1]
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", timeout=600) as client:
        yield client


def test_a_streamed_chat_answer_knows_the_capital_of_france(client: openai.OpenAI) -> None:
    text, reasons, usage = "", [], None
    for chunk in client.chat.completions.create(
        model="smollm2",
        messages=QUESTION,
        temperature=0,
        max_tokens=32,
        stream=True,
        stream_options={"include_usage": True},
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert "Paris" in text
    assert len(reasons) == 1
    whole = client.chat.completions.create(
        model="smollm2", messages=QUESTION, temperature=0, max_tokens=32
    )
    assert whole.choices[0].message.content == text
    assert whole.choices[0].finish_reason == reasons[0]
    assert whole.usage.completion_tokens == usage.completion_tokens
    assert whole.usage.prompt_tokens_details.cached_tokens > 0  # the second time


def test_the_likeliest_next_word(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="smollm2",
        prompt="The capital of France is",
        temperature=0,
        max_tokens=1,
        logprobs=2,
        echo=True,
    )
    [choice] = answer.choices
    assert choice.text == "The capital of France is Paris"
    assert choice.logprobs.tokens[-1] == " Paris"
    assert choice.logprobs.token_logprobs[-1] == max(choice.logprobs.top_logprobs[-1].values())


def test_the_models_own_defaults_are_shown_with_their_source(
    client: openai.OpenAI, url: str
) -> None:
    import httpx

    shown = httpx.get(f"{url}/v1/engine/config").json()["sampling"]["temperature"]
    assert shown["value"] == 0.2
    assert "smollm2" in shown["source"] or "built-in" in shown["source"]
    assert [model.id for model in client.models.list()] == ["smollm2"]
