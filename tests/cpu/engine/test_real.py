"""The whole engine with the real model: an answer, and what kills it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from draftmark import Engine
from draftmark.core.errors import DraftmarkError, EngineFailure, ModelError
from draftmark.engine.source import resolve_source
from tests.cpu.engine.conftest import assert_gone

pytestmark = [pytest.mark.model, pytest.mark.slow]

# float32: in bfloat16 the two likeliest first tokens of the answer below tie exactly.
SMALL = {
    "dtype": "float32",
    "max_running": 4,
    "kv_pool_tokens": 2048,
    "max_context": 1024,
    "prefill_tokens": 128,
}


@pytest.fixture(scope="module")
def smollm2() -> Path:
    """The converted model."""
    return resolve_source("smollm2", progress=lambda phase: None).directory


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("smollm2", **SMALL) as started:
        pids = _pids(started)
        yield started
    assert_gone(pids)


def _pids(engine: Engine) -> list[int]:
    workers = msgspec.convert(engine.ready["worker_pids"], list[int])
    return [*workers, msgspec.convert(engine.ready["engine_pid"], int)]


def test_a_chat_answer(engine: Engine) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    answer = engine.chat(messages, temperature=0.0, max_tokens=24)
    assert "Paris" in answer.text
    assert answer.finish_reason == "stop"
    streamed = list(engine.stream_chat(messages, temperature=0.0, max_tokens=24))
    assert "".join(delta.text for delta in streamed) == answer.text


def test_our_own_defaults_are_shown_with_their_source(engine: Engine) -> None:
    record = engine.defaults.record()
    assert record["temperature"] == {"value": 0.2, "source": "built-in model smollm2"}
    assert record["top_p"] == {"value": 0.9, "source": "built-in model smollm2"}


def test_the_ready_record_says_what_a_start_cost(engine: Engine) -> None:
    ready = engine.ready
    seconds = msgspec.convert(ready["seconds"], dict[str, float])
    assert {"hello", "import", "weights", "worker"} <= set(seconds)
    assert ready["model_type"] == "llama"
    assert ready["pool_tokens"] == SMALL["kv_pool_tokens"]
    assert msgspec.convert(ready["load_gb_per_s"], float) > 0


def test_a_killed_worker_ends_the_answer_with_a_reason(socket_root: Path) -> None:
    with Engine("smollm2", **SMALL) as engine:
        pids = _pids(engine)
        stream = engine.stream("Once upon a time", max_tokens=800, ignore_eos=True)
        next(stream)
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(EngineFailure, match="SIGKILL"):
            list(stream)
    assert_gone(pids)


@pytest.mark.parametrize(
    ("file", "size"),
    [("model.safetensors", 1_000_000), ("model.safetensors", 5), ("config.json", 10)],
)
def test_a_truncated_checkpoint_is_one_line(
    smollm2: Path, tmp_path: Path, socket_root: Path, file: str, size: int
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(smollm2, broken)
    os.truncate(broken / file, size)
    with pytest.raises(DraftmarkError) as caught:
        Engine(str(broken), **SMALL)
    assert isinstance(caught.value, ModelError)
    assert file in caught.value.message
    assert "\n" not in caught.value.message


def test_a_missing_tokenizer_is_one_line(smollm2: Path, tmp_path: Path, socket_root: Path) -> None:
    broken = tmp_path / "mute"
    shutil.copytree(smollm2, broken)
    (broken / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        Engine(str(broken), **SMALL)
