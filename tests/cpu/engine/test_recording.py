"""`--record-plans`: what crossed to the worker and back, whole and in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmark.core.errors import ConfigError
from draftmark.core.recording import open_recording
from draftmark.core.step import StepPlan, StepResult
from tests.cpu.engine.conftest import Harness, read, submit
from tests.fakes.worker import FakeWorker
from tests.fakes.worker_process import VOCAB_SIZE


async def test_a_recording_gives_the_same_results_again(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "plans.jsonl"
    client = await harness.start(record_plans=str(path))
    streams = submit(client, [[1, 2, 3], [4] * 40], max_tokens=20)
    tokens = [(await read(stream))[0] for stream in streams]
    await client.close()
    recording = open_recording(path)
    pools = recording.header.pools
    assert recording.header.init.model_dir == str(harness.model_dir)
    worker = FakeWorker(
        num_pages=pools.num_pages,
        num_slots=pools.num_slots,
        max_context=pools.max_context,
        vocab_size=VOCAB_SIZE,
    )
    again: list[StepResult] = []
    emitted: list[int] = []
    for step in recording.steps:
        if isinstance(step, StepPlan):
            again.append(worker.execute(step))
        else:
            ours = again.pop(0)
            assert (ours.step, ours.rows) == (step.step, step.rows)
            emitted += [token for row in step.rows for token in row.emitted]
    assert not again
    assert sorted(emitted) == sorted(tokens[0] + tokens[1])


async def test_a_recording_that_cannot_be_written_ends_the_start(harness: Harness) -> None:
    with pytest.raises(ConfigError, match="--record-plans: cannot write /nowhere/plans"):
        await harness.start(record_plans="/nowhere/plans")
