"""One rank from the start conversation to a recorded run, and that run again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from draftmark.cache.spec import decode_specs, token_bytes
from draftmark.core.config import Config
from draftmark.core.errors import BudgetError, CheckpointError, ConfigError, ModelError
from draftmark.core.recording import PlanRecorder, RecordingHeader, open_recording
from draftmark.core.resolve import to_dict
from draftmark.core.start import (
    AllocatePools,
    CostPoint,
    LoadWeights,
    MeasureLayers,
    PrepareWarmUp,
    WorkerInit,
)
from draftmark.core.step import Admit, PageDelta, PrefillRow, RowSampling, StepPlan, VerifyRow
from draftmark.core.topology import Topology
from draftmark.core.warmup import WarmUpLimits, measure_costs
from draftmark.runtime.rank import Rank
from draftmark.runtime.rerun import rerun
from tests.cpu.runtime.model_dir import MAX_CONTEXT, VOCAB, write_tiny_llama

LOAD = LoadWeights(
    dtype="float64",
    kv_dtype="float64",
    threads=1,
    max_context=MAX_CONTEXT,
    max_running=4,
    prefill_tokens=32,
    topology=Topology(stages=(2,)),
)
POOLS = AllocatePools(num_pages=17, page_tokens=16, num_slots=6, max_context=MAX_CONTEXT)
SAMPLING = RowSampling(5, 0.9, 0.95, 0, 0.0, 0.3, 0.0, 1.0, -1)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny"))


def make_init(model_dir: Path, **parallel: object) -> WorkerInit:
    config = to_dict(Config())
    config["parallel"] |= {"device": "cpu", "threads": 1, **parallel}
    return WorkerInit(model_dir=str(model_dir), config=dict(config))


def start(model_dir: Path) -> Rank:
    rank = Rank()
    rank.hello(make_init(model_dir))
    rank.load(LOAD)
    rank.allocate(POOLS)
    return rank


def plans(steps: int) -> list[StepPlan]:
    """Two requests, the second one a step later."""
    prompts = {1: [4, 8, 15, 16], 2: [23, 42]}
    result = []
    for step in range(steps):
        new = [slot for slot in prompts if slot == step + 1]
        result.append(
            StepPlan(
                step,
                0,
                0,
                0,
                [Admit(slot, 1, slot, 0, 90, 0, (), SAMPLING, prompts[slot]) for slot in new],
                [PageDelta(slot, 1, 0, list(range(8 * slot - 7, 8 * slot))) for slot in new],
                [PrefillRow(slot, 1, 0, prompts[slot], -1, True) for slot in new],
                [VerifyRow(slot, 1) for slot in prompts if slot <= step],
            )
        )
    return result


def test_the_start_conversation(model_dir: Path) -> None:
    rank = Rank()
    hello = rank.hello(make_init(model_dir))
    assert (hello.model.model_type, hello.model.vocab_size) == ("llama", VOCAB)
    assert hello.model.eos_ids == (2,)
    assert hello.device.kind == "cpu" and hello.device.threads == 1
    assert set(hello.device.probe_ms) == {"bfloat16", "float32"}
    described = rank.describe(LOAD)
    loaded = rank.load(LOAD)
    assert described.weight_bytes >= 8 * hello.model.num_parameters
    assert loaded.weight_bytes == pytest.approx(described.weight_bytes, rel=0.01)
    assert loaded.workspace_bytes == described.workspace_bytes > 0
    assert decode_specs(loaded.cache_specs) == decode_specs(described.cache_specs)
    assert {"config", "probe", "build", "weights", "pack"} <= set(loaded.seconds)
    ready = rank.allocate(POOLS)
    page_bytes = 16 * token_bytes(decode_specs(loaded.cache_specs))
    assert ready.pool_bytes == POOLS.num_pages * page_bytes
    assert set(ready.seconds) == {"pools"}


def warm(rank: Rank, *, each_s: float = 2.5) -> list[CostPoint]:
    """As the engine does it."""
    limits = WarmUpLimits(
        num_pages=POOLS.num_pages,
        page_tokens=POOLS.page_tokens,
        max_context=POOLS.max_context,
        max_running=LOAD.max_running,
        prefill_tokens=LOAD.prefill_tokens,
    )

    def run(plan: StepPlan) -> float:
        before = sum(rank.report_busy().busy_us)
        rank.execute(plan)
        return (sum(rank.report_busy().busy_us) - before) / 1e3

    rank.prepare_warm_up(PrepareWarmUp(limits.pages_to_zero))
    points = measure_costs(run, limits, each_s=each_s)
    rank.end_warm_up()
    return points


def test_the_cost_table(model_dir: Path) -> None:
    points = warm(start(model_dir))
    shapes = [(point.verify_rows, point.prefill_tokens) for point in points]
    assert shapes == [(1, 0), (4, 0), (0, 16), (0, 32)]
    assert all(point.ms > 0 for point in points)


def test_warm_up_leaves_no_trace(model_dir: Path) -> None:
    cold, warmed = start(model_dir), start(model_dir)
    warm(warmed)
    for plan in plans(6):
        assert warmed.execute(plan).rows == cold.execute(plan).rows


def test_warm_up_keeps_to_its_time_but_measures_each_kind(model_dir: Path) -> None:
    points = warm(start(model_dir), each_s=1e-9)
    assert [(point.verify_rows, point.prefill_tokens) for point in points] == [(1, 0), (0, 16)]


@pytest.mark.parametrize("tp", [1, 2])
def test_what_a_layer_costs(model_dir: Path, tp: int) -> None:
    """One tensor rank's part is measured without the others."""
    rank = Rank()
    rank.hello(make_init(model_dir))
    topology = Topology(stages=(2,), tp=tp)
    costs = rank.measure(MeasureLayers(msgspec.structs.replace(LOAD, topology=topology))).costs
    assert [point.verify_rows for point in costs] == [1, 4]
    assert all(
        point.embedding_ms > 0 and sum(point.layer_ms) + point.head_ms > 0 for point in costs
    )


def test_faults_of_the_user_have_their_class(model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        Rank().hello(make_init(tmp_path))
    broken = write_tiny_llama(tmp_path / "broken")
    rank = Rank()
    rank.hello(make_init(broken))
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="truncated"):
        rank.load(LOAD)
    rank = Rank()
    rank.hello(make_init(model_dir))
    rank.load(LOAD)
    with pytest.raises(BudgetError, match="slots take"):
        rank.allocate(msgspec.structs.replace(POOLS, num_pages=10**9))
    with pytest.raises(ConfigError, match="--dtype"):
        rank.load(msgspec.structs.replace(LOAD, dtype="int8"))


# -- rerun ----------------------------------------------------------------------------------------


@pytest.fixture
def recorded(model_dir: Path, tmp_path: Path) -> Path:
    """A run of 12 steps, recorded as the engine does it: results come one plan late."""
    path = tmp_path / "run.jsonl"
    header = RecordingHeader(init=make_init(model_dir), load=LOAD, pools=POOLS)
    rank = start(model_dir)
    with PlanRecorder(path, header) as recorder:
        late = None
        for plan in plans(12):
            recorder.plan(plan)
            if late is not None:
                recorder.result(late)
            late = rank.execute(plan)
        recorder.result(late)
    return path


def tamper(path: Path, *, step: int, token: int) -> None:
    """Make the recording say that the last row of `step` gave `token`."""
    recording = open_recording(path)
    lines = list(recording.steps)
    with PlanRecorder(path, recording.header) as recorder:
        for line in lines:
            if isinstance(line, StepPlan):
                recorder.plan(line)
                continue
            if line.step == step:
                row = msgspec.structs.replace(line.rows[-1], emitted=[token])
                line = msgspec.structs.replace(line, rows=[*line.rows[:-1], row])
            recorder.result(line)


def emitted(path: Path, step: int) -> int:
    for line in open_recording(path).steps:
        if not isinstance(line, StepPlan) and line.step == step:
            return line.rows[-1].emitted[0]
    raise AssertionError(step)


def test_a_recorded_run_runs_again(recorded: Path) -> None:
    for forced in (False, True):
        report = rerun(recorded, forced=forced)
        assert (report.steps, report.tokens, report.unanswered) == (12, 23, 0)
        assert report.divergence is None and report.gaps == []


@pytest.mark.parametrize("lanes", ["local", "test"])
def test_a_recorded_run_runs_again_in_other_stages(recorded: Path, lanes: str) -> None:
    for forced in (False, True):
        report = rerun(recorded, forced=forced, stages=[1, 1], lanes=lanes)
        assert (report.steps, report.divergence, report.gaps) == (12, None, [])
    with pytest.raises(ConfigError, match="add up to 3 layers"):
        rerun(recorded, forced=False, stages=[1, 2])


def test_free_rerun_names_the_first_divergence(recorded: Path) -> None:
    token = emitted(recorded, 7)
    tamper(recorded, step=7, token=(token + 1) % VOCAB)
    report = rerun(recorded, forced=False)
    assert report.divergence is not None
    assert (report.divergence.step, report.divergence.slot) == (7, 2)
    assert (report.divergence.what, report.divergence.got) == ("emitted", str([token]))
    assert "step 7, slot 2" in str(report.divergence)
    assert report.steps < 12


def test_forced_rerun_takes_the_recorded_token_and_tells_the_gap(recorded: Path) -> None:
    tamper(recorded, step=11, token=(emitted(recorded, 11) + 1) % VOCAB)
    report = rerun(recorded, forced=True)
    assert report.divergence is None and report.steps == 12
    assert [(gap.step, gap.slot, gap.rows) for gap in report.gaps] == [(11, 2, 1)]
    assert report.largest_gap > 0


def test_forced_rerun_goes_on_from_the_recorded_tokens(recorded: Path) -> None:
    """A changed token changes what follows; forced, every later step is still compared."""
    tamper(recorded, step=4, token=(emitted(recorded, 4) + 1) % VOCAB)
    report = rerun(recorded, forced=True)
    assert report.divergence is None and report.steps == 12
    assert report.gaps[0].step == 4
    assert len(report.gaps) > 1


def test_plans_without_result_are_executed_freely_only(recorded: Path) -> None:
    lines = recorded.read_bytes().splitlines(keepends=True)
    recorded.write_bytes(b"".join(lines[:-1]))
    free, forced = rerun(recorded, forced=False), rerun(recorded, forced=True)
    assert (free.steps, free.unanswered) == (12, 1)
    assert (forced.steps, forced.unanswered) == (11, 1)
