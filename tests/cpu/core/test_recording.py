"""A recorded run reads back as it was written, also when the writer was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmark.core.errors import ConfigError
from draftmark.core.recording import PlanRecorder, RecordingHeader, open_recording
from draftmark.core.start import AllocatePools, LoadWeights, WorkerInit
from draftmark.core.step import (
    Admit,
    PageDelta,
    PrefillRow,
    ResultRow,
    RowSampling,
    StepPlan,
    StepResult,
    TokenLogprobs,
    VerifyRow,
)
from draftmark.core.topology import Topology

HEADER = RecordingHeader(
    init=WorkerInit(model_dir="models/tiny", config={"model": {"dtype": None}}),
    load=LoadWeights(
        dtype="float32",
        kv_dtype="float32",
        threads=2,
        max_context=64,
        max_running=4,
        prefill_tokens=32,
        topology=Topology(stages=(1, 2), cohorts=2, stages_per_worker=2),
    ),
    pools=AllocatePools(num_pages=9, page_tokens=16, num_slots=5, max_context=64),
    about={"commit": "abc"},
)
SAMPLING = RowSampling(-(2**63), 0.3, 0.9, 0, 0.0, 0.0, 0.0, 1.0, 2, ((5, -1.5),))
PLAN = StepPlan(
    7,
    0,
    0,
    0,
    [Admit(1, 3, 44, 16, 60, 20, (2, 9), SAMPLING, [1, 2], [3])],
    [PageDelta(1, 3, 0, [4, 5])],
    [PrefillRow(1, 3, 16, [10, 11], -1, True, 3)],
    [VerifyRow(2, 1)],
)
RESULT = StepResult(
    7, 0, [ResultRow(1, 3, [12], 18, 0, False, -1, [TokenLogprobs(12, -0.1, 1, [(12, -0.1)])])]
)


def write(path: Path) -> None:
    with PlanRecorder(path, HEADER) as recorder:
        recorder.plan(PLAN)
        recorder.result(RESULT)


def test_reads_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path)
    recording = open_recording(path)
    assert recording.header == HEADER
    assert list(recording.steps) == [PLAN, RESULT]


def test_every_line_is_there_before_the_next_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder = PlanRecorder(path, HEADER)
    recorder.plan(PLAN)
    assert list(open_recording(path).steps) == [PLAN]
    recorder.close()


def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path)
    path.write_bytes(path.read_bytes()[:-5])
    assert list(open_recording(path).steps) == [PLAN]


def test_what_is_no_recording_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for text in ("", "hello\n", '{"format": 1}\n'):
        path.write_text(text)
        with pytest.raises(ConfigError, match="is no recording"):
            open_recording(path)
    with pytest.raises(ConfigError, match="is no recording"):
        open_recording(tmp_path / "missing")
    write(path)
    path.write_bytes(path.read_bytes() + b'{"plan": 3}\n')
    with pytest.raises(ConfigError, match="line 4"):
        list(open_recording(path).steps)
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))
    with pytest.raises(ConfigError, match="format 2"):
        open_recording(path)


def test_a_path_that_cannot_be_written_names_the_flag(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--record-plans"):
        PlanRecorder(tmp_path / "no" / "run.jsonl", HEADER)
