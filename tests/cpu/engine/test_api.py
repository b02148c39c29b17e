"""The Python API over the real engine process and a fake worker."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import draftmark
from draftmark import AsyncEngine, Engine, SamplingParams
from draftmark.core.errors import (
    ConfigError,
    ContextOverflow,
    EngineFailure,
    ModelError,
    RequestError,
    Unavailable,
)
from draftmark.core.request import FinishReason, Request
from draftmark.engine.client import EngineClient
from tests.cpu.engine.conftest import assert_gone
from tests.fakes import worker_process

ROOT = Path(__file__).resolve().parents[3]


def _options(**faults: object) -> dict[str, Any]:
    return {"worker": worker_process.command(**faults), "max_running": 8}


@pytest.fixture(scope="module")
def engine(model_dir: Path) -> Iterator[Engine]:
    """One for all tests that leave it as they found it."""
    with Engine(str(model_dir), **_options(step_ms=1)) as started:
        pids = _pids(started)
        yield started
    assert_gone(pids)


def _pids(engine: Engine | AsyncEngine) -> list[int]:
    workers = msgspec.convert(engine.ready["worker_pids"], list[int])
    return [*workers, msgspec.convert(engine.ready["engine_pid"], int)]


def test_generate_takes_text_ids_and_lists(engine: Engine) -> None:
    text = "in the"
    ids = engine.tokenizer.encode(text)
    sampling = SamplingParams(max_tokens=12, seed=3, logprobs=0, prompt_logprobs=1)
    answers = [
        engine.generate(prompts, sampling)[0] for prompts in (text, ids, [text], [ids, "other"])
    ]
    assert len({tuple(answer.token_ids) for answer in answers}) == 1
    first = answers[0]
    assert (first.finish_reason, first.stop) == ("length", None)
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (len(ids), 12)
    assert [entry.token for entry in first.logprobs or []] == first.token_ids
    assert [entry.token for entry in first.prompt_logprobs or []] == ids[1:]
    assert first.timings.first_token_s is not None
    assert 0 < first.timings.first_token_s <= first.timings.total_s


def test_many_prompts_keep_their_order_and_need_no_queue(engine: Engine) -> None:
    prompts = [[index % 50, index // 50] for index in range(1100)]
    answers = engine.generate(prompts, max_tokens=1, seed=1)
    assert len(answers) == len(prompts)
    for index in (0, 7, 1099):
        assert engine.generate(prompts[index], max_tokens=1, seed=1)[0].token_ids == (
            answers[index].token_ids
        )


def test_a_stream_is_the_whole_answer(engine: Engine) -> None:
    fields: dict[str, Any] = {"max_tokens": 40, "seed": 5}
    [whole] = engine.generate("the", **fields)
    deltas = list(engine.stream("the", **fields))
    assert "".join(delta.text for delta in deltas) == whole.text
    assert [token for delta in deltas for token in delta.token_ids] == whole.token_ids
    assert [delta.finish for delta in deltas if delta.finish] == [FinishReason.LENGTH]
    stop = whole.text[5:7]
    [cut] = engine.generate("the", stop=stop, **fields)
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert (cut.finish_reason, cut.stop) == ("stop", stop)
    assert cut.token_ids == whole.token_ids[: len(cut.token_ids)]


def test_chat_is_the_template_and_generate(engine: Engine) -> None:
    messages = [{"role": "user", "content": "hi"}]
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    fields: dict[str, Any] = {"max_tokens": 8, "seed": 5}
    answer = engine.chat(messages, **fields)
    assert answer.token_ids == engine.generate(prompt, **fields)[0].token_ids
    streamed = list(engine.stream_chat(messages, **fields))
    assert "".join(delta.text for delta in streamed) == answer.text


def test_a_chat_tells_where_its_history_ends(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[Request] = []
    submit = EngineClient.submit

    def note(self: EngineClient, requests: list[Request]) -> object:
        submitted.extend(requests)
        return submit(self, requests)

    monkeypatch.setattr(EngineClient, "submit", note)
    engine.chat([{"role": "user", "content": "hi"}], max_tokens=1)
    engine.generate("hi", max_tokens=1)
    chat, plain = submitted
    assert chat.history_tokens is not None and plain.history_tokens is None
    tail = engine.tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    assert chat.prompt_ids[chat.history_tokens :] == tail


def test_leaving_a_stream_aborts_the_request(engine: Engine) -> None:
    before = engine.stats.aborts
    stream = engine.stream("the", max_tokens=400)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + 10
    while engine.stats.aborts == before or engine.stats.slots_free != engine.stats.slots_total:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_models_defaults_fill_what_a_call_leaves_out(
    model_dir: Path, tmp_path: Path, socket_root: Path
) -> None:
    directory = tmp_path / "opinionated"
    directory.mkdir()
    for file in model_dir.iterdir():
        (directory / file.name).write_bytes(file.read_bytes())
    (directory / "generation_config.json").write_text('{"temperature": 0.25, "top_k": 7}')
    with Engine(str(directory), **_options()) as engine:
        serving = engine._engine._running
        assert engine.defaults.sources["temperature"] == "generation_config.json"
        chosen = serving.sampling(None, {"top_k": 3, "stop": ["a", "b"]})
        assert (chosen.temperature, chosen.top_k, chosen.top_p) == (0.25, 3, 1.0)
        assert chosen.stop == ("a", "b")
        whole = SamplingParams(top_p=0.5)
        assert serving.sampling(whole, {}) is whole


@pytest.mark.parametrize(
    ("prompt", "fields", "error", "param"),
    [
        ("a", {"temperature": "hot"}, RequestError, None),
        ("a", {"temprature": 1.0}, RequestError, "temprature"),
        ("a", {"temperature": float("nan")}, RequestError, "temperature"),
        ("a", {"max_tokens": 0}, RequestError, "max_tokens"),
        ("a", {"max_tokens": 10_000}, ContextOverflow, "max_tokens"),
        ("", {}, RequestError, "prompt"),
        ([1, "a"], {}, RequestError, "prompt"),
        ([10**6], {}, RequestError, "prompt"),
        ("a" * 10_000_000, {}, ContextOverflow, "prompt"),
    ],
)
def test_bad_requests_are_refused_by_name(
    engine: Engine, prompt: Any, fields: dict[str, Any], error: type[RequestError], param: str
) -> None:
    with pytest.raises(error) as caught:
        engine.generate(prompt, **fields)
    assert caught.value.param == param
    assert engine.generate("a", max_tokens=1)


def test_a_sampling_params_and_fields_together_are_refused(engine: Engine) -> None:
    with pytest.raises(RequestError, match="not both"):
        engine.generate("a", SamplingParams(), max_tokens=1)


def test_a_dead_engine_raises(model_dir: Path, socket_root: Path) -> None:
    with Engine(str(model_dir), **_options(step_ms=5)) as engine:
        stream = engine.stream("the", max_tokens=400)
        next(stream)
        os.kill(_pids(engine)[0], signal.SIGKILL)
        with pytest.raises(EngineFailure, match="SIGKILL"):
            list(stream)
        with pytest.raises(Unavailable):
            engine.generate("a")


def test_calls_in_other_threads_end_when_closed(model_dir: Path, socket_root: Path) -> None:
    engine = Engine(str(model_dir), **_options(step_ms=5))
    caught: list[BaseException] = []
    began = threading.Event()

    def run() -> None:
        try:
            for _ in engine.stream("a", max_tokens=400):
                began.set()
        except Unavailable as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(10)
    engine.close()
    engine.close()
    thread.join(10)
    assert len(caught) == 1
    with pytest.raises(Unavailable):
        engine.generate("a")


def test_a_forgotten_engine_is_closed_with_the_garbage(model_dir: Path, socket_root: Path) -> None:
    engine = Engine(str(model_dir), **_options())
    pids = _pids(engine)
    del engine
    gc.collect()
    assert_gone(pids)


def test_a_wrong_flag_or_model_is_refused(socket_root: Path) -> None:
    with pytest.raises(ConfigError, match="max_running"):
        Engine("smollm2", max_runing=3)
    with pytest.raises(ConfigError, match="--max-running"):
        Engine("smollm2", max_running="many")
    with pytest.raises(ModelError, match="no such directory"):
        Engine("./nowhere/at/all")


async def test_async_calls_run_together_and_cancel(model_dir: Path, socket_root: Path) -> None:
    async with AsyncEngine(str(model_dir), **_options(step_ms=2)) as engine:
        pids = _pids(engine)
        answers = await asyncio.gather(
            *(engine.generate([index], max_tokens=20, seed=1) for index in range(6))
        )
        assert all(len(answer[0].token_ids) == 20 for answer in answers)
        assert engine.stats.steps < 6 * 20
        task = asyncio.create_task(engine.generate("a", max_tokens=400))
        await asyncio.sleep(0)
        async for _ in engine.stream("b", max_tokens=400):
            break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(10):
            while engine.stats.aborts < 2 or engine.stats.running:
                await asyncio.sleep(0.01)
    assert_gone(pids)


INTERRUPTED = """
import os, signal, sys, threading
sys.path.insert(0, {root!r})
from draftmark import Engine
from tests.fakes import worker_process
with Engine({model!r}, worker=worker_process.command(step_ms=5)) as engine:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        engine.generate("a", max_tokens=400)
    except KeyboardInterrupt:
        print("interrupted")
    print(len(engine.generate("a", max_tokens=3)[0].token_ids))
"""


@pytest.mark.slow
def test_ctrl_c_aborts_the_call_and_leaves_the_engine(model_dir: Path, socket_root: Path) -> None:
    script = INTERRUPTED.format(root=str(ROOT), model=str(model_dir))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert done.stdout.decode().split() == ["interrupted", "3"], done.stderr.decode()
    assert done.returncode == 0


def test_the_surface_is_exactly_what_all_says() -> None:
    script = (
        "import sys, draftmark; assert dir(draftmark) == draftmark.__all__; "
        "assert not any(m.startswith('draftmark.engine') for m in sys.modules); "
        "[getattr(draftmark, name) for name in draftmark.__all__]; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert draftmark.__all__ == ["AsyncEngine", "Engine", "SamplingParams"]
    with pytest.raises(AttributeError, match="nothing"):
        _ = draftmark.nothing  # type: ignore[attr-defined]
