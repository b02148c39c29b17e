"""The truth server does what its script says, in time, and tells what it did."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from draftmark.bench import ask
from draftmark.bench.client.health import why_dead
from draftmark.bench.client.stream import ToolCall
from draftmark.bench.request import Failure
from draftmark.bench.truth.process import TruthProcess, truth_process
from draftmark.bench.truth.script import Kind, Reply, Script, Step
from draftmark.bench.truth.timeline import asked, steps_of

COMPLETION = {"prompt": [1, 2], "max_tokens": 4, "stream": True}
CHAT = {"messages": [{"role": "user", "content": "a b"}], "max_tokens": 4, "stream": True}


@pytest.fixture(scope="module")
def truth() -> Iterator[TruthProcess]:
    with truth_process() as process:
        yield process


def get(truth: TruthProcess, path: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(truth.url + path, timeout=10) as answer:
        content: bytes = answer.read()
    return content


def answers(truth: TruthProcess, *bodies: dict[str, Any]) -> list[ask.Reply]:
    """One after the other, each by somebody who knows nothing of the others."""
    asks = [
        ask.Ask(path=ask.CHAT if "messages" in body else ask.COMPLETIONS, body=body)
        for body in bodies
    ]
    return [ask.Asker(truth.url, model="truth", timeout_s=10).ask([one])[0] for one in asks]


def kinds(
    reply: Reply, body: dict[str, Any], path: str = "/v1/completions"
) -> list[tuple[float, str]]:
    return [(step.at_ms, str(step.kind)) for step in steps_of(reply, asked(path, body))]


def test_a_reply_becomes_steps() -> None:
    reply = Reply(ttft_ms=10, gaps_ms=[1, 2], tokens_per_event=2, first_tokens=1)
    want = [(10, "text"), (11, "text"), (13, "text"), (13, "done"), (13, "end")]
    assert kinds(reply, COMPLETION) == want
    steps = steps_of(reply, asked("/v1/completions", COMPLETION))
    assert [step.tokens for step in steps] == [1, 2, 1, 0, 0]
    assert [step.finish for step in steps] == [None, None, "length", None, None]


def test_a_chat_has_a_role_and_channels() -> None:
    reply = Reply(ttft_ms=10, gap_ms=1, reasoning_tokens=1, comments=True, empty_events=[2])
    body = {**CHAT, "max_tokens": 3, "stream_options": {"include_usage": True}}
    want = ["role", "comment", "reasoning", "comment", "text", "comment", "empty", "usage"]
    seen = [kind for _, kind in kinds(reply, body, "/v1/chat/completions")]
    assert seen == [*want, "done", "end"]
    broken = Reply(breaks_after=1, breaks_by=Kind.RESET)
    assert [kind for _, kind in kinds(broken, COMPLETION)] == ["text", "reset"]


def test_by_turns_and_by_the_request_itself(truth: TruthProcess) -> None:
    truth.play(Script(replies=[Reply(tokens=1), Reply(tokens=2)]))
    own = {**COMPLETION, "truth": {"tokens": 3}}
    texts = [reply.record.text for reply in answers(truth, COMPLETION, own, *[COMPLETION] * 2)]
    assert texts == [" w0", " w0 w1 w2", " w0 w1", " w0 w1"]


def test_every_channel(truth: TruthProcess) -> None:
    truth.play(Script())
    reply = {"reasoning_tokens": 1, "as_tool_call": True, "reasoning_field": "both"}
    [tools] = answers(truth, {**CHAT, "truth": reply})
    assert (tools.reasoning, tools.content) == (" w0", "")
    assert tools.tools == [ToolCall("truth", " w1 w2 w3")]
    [whole] = answers(truth, {**CHAT, "stream": False, "truth": {"reasoning_tokens": 2}})
    assert (whole.reasoning, whole.content) == (" w0 w1", " w2 w3")


def test_it_notes_what_it_did(truth: TruthProcess) -> None:
    truth.play(Script(replies=[Reply(ttft_ms=20, gap_ms=10)]))
    answers(truth, {**COMPLETION, "temperature": 0.5})
    [exchange] = truth.log()
    assert exchange.fields == {"max_tokens": 4, "stream": True, "temperature": 0.5}
    assert exchange.path == "/v1/completions" and exchange.prompt_tokens == 2
    assert exchange.t_first_byte <= exchange.t_read
    assert [step.kind for step in exchange.written] == [*["text"] * 4, "done", "end"]
    # Never early; late as the machine has it.
    after = [(time - exchange.t_read) / 1e6 for time in exchange.token_times]
    assert all(at >= due - 0.01 for at, due in zip(after, [20, 30, 40, 50], strict=True))


def test_figures_under_both_names(truth: TruthProcess) -> None:
    truth.play(
        Script(replies=[Reply(tokens=7, tokens_per_event=3, first_tokens=1, cached_tokens=1)])
    )
    answers(truth, COMPLETION)
    lines = get(truth, "/metrics").decode().splitlines()
    for line in (
        'draftmark_prompt_tokens_total{model_name="truth"} 2.0',
        'vllm:prefix_cache_hits_total{model_name="truth"} 1.0',
        'draftmark_output_tokens_total{model_name="truth"} 7.0',
        'vllm:num_requests_running{model_name="truth"} 0.0',
        'vllm:spec_decode_num_drafts_total{model_name="truth"} 2.0',
        'vllm:spec_decode_num_accepted_tokens_total{model_name="truth"} 4.0',
        'vllm:request_success_total{finished_reason="length",model_name="truth"} 1.0',
        'draftmark_http_requests_total{path="/v1/completions",status="200"} 1.0',
    ):
        assert line in lines


def test_what_else_a_server_tells(truth: TruthProcess) -> None:
    truth.play(Script(model="m", max_model_len=64, metrics=("vllm",)))
    [card] = json.loads(get(truth, "/v1/models"))["data"]
    assert (card["id"], card["max_model_len"]) == ("m", 64)
    assert b"draftmark_" not in get(truth, "/metrics")
    truth.play(Script(metrics=()))
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(truth, "/metrics")


def test_death_is_refusal_and_the_log_outlives_it() -> None:
    die = Reply(steps=[Step(at_ms=1, kind=Kind.DIE)])
    with truth_process(Script(replies=[Reply(), die])) as mortal:
        assert why_dead(mortal.url) is None
        replies = answers(mortal, *[COMPLETION] * 4)
        failures = [reply.record.failure for reply in replies]
        assert failures == [None, Failure.RESET, Failure.REFUSED, Failure.REFUSED]
        reason = why_dead(mortal.url)
        assert reason is not None and f"GET {mortal.url}/health" in reason
        assert len(mortal.close()) == 2


def test_health_is_any_answer_but_a_5xx(truth: TruthProcess) -> None:
    truth.play(Script(health=200))
    assert why_dead(truth.url) is None
    # A server without the path says so, and lives.
    assert why_dead(f"{truth.url}/elsewhere") is None
    truth.play(Script(health=503))
    assert why_dead(truth.url) == "GET /health: HTTP 503"


def test_its_command_takes_a_script(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_bytes(msgspec.json.encode(Script(model="from a file")))
    command = [sys.executable, "-m", "draftmark.bench.truth", "--script", str(path), "--log-at-end"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert b"from a file" in get(TruthProcess(process, url), "/v1/models")  # type: ignore[arg-type]
        process.terminate()
        assert process.stdout.read() == "[]\n"
    assert process.returncode == 0
