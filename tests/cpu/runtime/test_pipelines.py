"""However the model is cut into stages and tensor ranks, every request gives what it gives alone.

float64, no tolerance. A history depends on its seed and the number of cohorts alone, so that every
cut is given the very plans of one stage: without a tensor axis every field of every result is the
same, with one every token is (sums are taken in another order).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _pytest.mark import ParameterSet

from draftmark.cache.spec import PAGE_TOKENS
from draftmark.core.config import Config
from draftmark.core.recording import PlanRecorder, RecordingHeader, open_recording
from draftmark.core.request import FinishReason, Request
from draftmark.core.resolve import to_dict
from draftmark.core.start import AllocatePools, LoadWeights, WorkerInit
from draftmark.core.step import StepPlan, StepResult
from draftmark.core.topology import Topology
from draftmark.models.stage import Stage
from draftmark.runtime.rank import Rank
from draftmark.runtime.rerun import rerun
from tests.cpu.runtime.harness import MAX_CONTEXT, VOCAB, make_request
from tests.cpu.runtime.model_dir import write_tiny_llama
from tests.cpu.runtime.pipeline_harness import (
    NUM_LAYERS,
    Cut,
    History,
    PipelineLoop,
    Played,
    Sizes,
    check_same,
    judge,
    one_stage,
    play,
    running,
)

# Histories in which much happens, by number of cohorts.
SEEDS = {
    "llama": {1: 10, 2: 4, 3: 18, 4: 16},
    "qwen3": {2: 22, 3: 34},
    "hybrid": {2: 23, 3: 15, 4: 0},
}
EVENTS = (
    "preemptions",
    "cached tokens",
    "aborts under way",
    "stops",
    "lengths",
    "inert rows",
    "chunks",
    "prompts of one token",
    "logprobs",
    "prompt logprobs",
    "penalties",
    "slots used again",
    "moves",
)

CUTS = [
    ("llama", Cut(stages=(2, 2), cohorts=2)),
    ("llama", Cut(stages=(1, 3), cohorts=1)),
    ("llama", Cut(stages=(2, 1, 1), cohorts=4)),
    ("llama", Cut(stages=(1, 1, 1, 1), cohorts=2, stages_per_worker=2)),
    ("llama", Cut(tp=2)),
    ("qwen3", Cut(stages=(3, 1), cohorts=3)),
    ("qwen3", Cut(stages=(1, 1, 1, 1), cohorts=3)),
    ("qwen3", Cut(stages=(1, 3), cohorts=2, tp=2)),
    ("qwen3", Cut(stages=(1, 2, 1), cohorts=2, lanes="test")),
    ("hybrid", Cut(stages=(1, 3), cohorts=2)),
    ("hybrid", Cut(stages=(2, 1, 1), cohorts=3)),
    ("hybrid", Cut(stages=(1, 1, 1, 1), cohorts=4, lanes="test")),
    ("hybrid", Cut(tp=2, cohorts=2)),
]
# Up to eight ranks on few cores: fewer requests.
WIDE_CUTS = [
    ("llama", Cut(stages=(2, 2), tp=2, cohorts=2)),
    ("llama", Cut(tp=4, cohorts=2)),
    ("llama", Cut(stages=(2, 2), tp=4, cohorts=2)),
    ("hybrid", Cut(tp=4, cohorts=2)),
    ("hybrid", Cut(stages=(2, 2), tp=2, cohorts=2)),
]
WIDE_SEED, WIDE_REQUESTS = 5, 6


def name(case: tuple[str, Cut]) -> str:
    return f"{case[0]} {case[1]}"


def check_equal(
    cut: Cut, *, family: str = "llama", seed: int, num_requests: int = 8, **options: object
) -> Played:
    """The equality test."""
    base = one_stage(family, seed, cut.cohorts, num_requests)
    played = play(cut, family=family, seed=seed, num_requests=num_requests, **options)
    check_same(played, base, bitwise=cut.tp == 1)
    return played


def fast_and_slow(
    cases: list[tuple[str, Cut]], *, fast: tuple[int, ...]
) -> list[tuple[str, Cut] | ParameterSet]:
    return [
        case if index in fast else pytest.param(case, marks=pytest.mark.slow)
        for index, case in enumerate(cases)
    ]


@pytest.mark.parametrize("case", fast_and_slow(CUTS, fast=(0, 9)), ids=name)
def test_any_cut_is_one_stage(case: tuple[str, Cut]) -> None:
    family, cut = case
    check_equal(cut, family=family, seed=SEEDS[family][cut.cohorts])


@pytest.mark.parametrize("case", fast_and_slow(WIDE_CUTS, fast=(0,)), ids=name)
def test_any_cut_with_a_tensor_axis_is_one_rank(case: tuple[str, Cut]) -> None:
    """Four ranks share two KV heads."""
    family, cut = case
    check_equal(cut, family=family, seed=WIDE_SEED, num_requests=WIDE_REQUESTS)


@pytest.mark.slow
@pytest.mark.parametrize("family", SEEDS)
def test_one_stage_gives_what_each_request_gives_alone(family: str) -> None:
    """The histories above, and that they are worth the name."""
    events: Counter[str] = Counter()
    for cohorts, seed in SEEDS[family].items():
        played = one_stage(family, seed, cohorts)
        played.check_alone(family)
        events.update(played.events())
        if cohorts > 1:
            assert not {k for k in EVENTS if not played.events()[k]} - {"moves"}
    assert all(events[event] for event in EVENTS), events
    one_stage(family, WIDE_SEED, 2, WIDE_REQUESTS).check_alone(family)


def every_cut() -> list[Cut]:
    splits = [(4,), (2, 2), (1, 3), (3, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 1, 1, 1)]
    cuts = [Cut(stages=stages, cohorts=m) for stages in splits[1:] for m in (1, 2, 3, 4)]
    cuts += [Cut(stages=s, cohorts=m, tp=2) for s in splits[:4] for m in (1, 2, 4)]
    cuts += [Cut(stages=s, cohorts=2, tp=4) for s in ((4,), (2, 2), (1, 3))]
    cuts += [Cut(stages=s, cohorts=2, lanes=lanes) for s in splits for lanes in ("local", "test")]
    return [*cuts, Cut(stages=(1, 1, 1, 1), cohorts=3, stages_per_worker=2, tp=2)]


# Families in turn, every eighth of so many cuts: all of them, twice, take six minutes.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "cut"),
    [(list(SEEDS)[index % 2], cut) for index, cut in enumerate(every_cut()[::8])],
    ids=str,
)
def test_many_more_cuts_and_histories(family: str, cut: Cut) -> None:
    seed = 200 if family == "llama" else 201
    num_requests = 6 if cut.tp == 4 else 12
    check_equal(cut, family=family, seed=seed, num_requests=num_requests)
    check_base_alone(family, seed, cut.cohorts, num_requests)


@cache
def check_base_alone(*history: Any) -> None:
    """Once for all cuts that were compared with it."""
    one_stage(*history).check_alone(history[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300, 302))
def test_slow_ranks_and_slow_lanes(seed: int) -> None:
    """Delays of many steps: whoever is ahead waits, and nothing is overwritten."""
    for cut in (Cut(stages=(2, 1, 1), cohorts=3), Cut(stages=(2, 2), cohorts=4, tp=2)):
        check_equal(cut, seed=seed, num_requests=6, delay_s=0.06, wire_delay_s=0.01)


@pytest.mark.slow
def test_a_late_result_thread_of_a_first_stage_is_waited_for() -> None:
    """Who tells no result may be behind with its staging: nothing of the scheduler's waits for
    it."""
    cut = Cut(stages=(2, 2), cohorts=2)
    check_equal(cut, seed=18, num_requests=6, on_run=lambda run: run.ranks[0].delay_results(0.04))


# -- non-finite values ----------------------------------------------------------------------------

BAD_POSITION = 40


def spoil(layer: int) -> Callable[[Stage, int], None]:
    """Layer `layer` gives NaN for the token at `BAD_POSITION` of any sequence."""

    def prepare(stage: Stage, number: int) -> None:
        if str(layer) not in stage.layers:
            return
        index = list(stage.layers).index(str(layer))
        block, forward = stage.blocks[index], stage.forward
        positions = None

        def noting(inputs, batch, pools):
            nonlocal positions
            positions = batch.positions
            return forward(inputs, batch, pools)

        def spoiled(*args):
            return block(*args).masked_fill((positions == BAD_POSITION)[:, None], float("nan"))

        spoiled.mixer = block.mixer  # type: ignore[attr-defined]
        stage.forward = noting  # type: ignore[method-assign]
        stage.blocks = (*stage.blocks[:index], spoiled, *stage.blocks[index + 1 :])

    return prepare


def check_blame(cut: Cut, *, layer: int) -> list[object]:
    """Two requests reach the position, one in a middle chunk of its prompt, one by decoding; the
    others run beside them and after them on their pages."""
    rng = random.Random(3)

    def request(request_id: int, length: int, max_tokens: int) -> Request:
        prompt = [rng.randrange(VOCAB) for _ in range(length)]
        return make_request(request_id, prompt=prompt, max_tokens=max_tokens)

    lengths = [(50, 5), (30, 25), (12, 20), (1, 15), (20, 18), (5, 30)]
    requests = [request(i, *sizes) for i, sizes in enumerate(lengths)]
    sizes = Sizes(num_pages=12, num_slots=5, prefill_tokens=16)
    with running("llama", cut=cut, sizes=sizes, prepare=spoil(layer)) as run:
        loop = PipelineLoop(run, sizes=sizes, depth=cut.cohorts + 1, cohorts=cut.cohorts)
        loop.add(*requests)
        loop.finish()
    run.check_ranks(loop.plans)
    for failed in (0, 1):
        end = loop.answers[failed].end
        assert end is not None and end.finish is FinishReason.ERROR, f"request {failed} goes on"
        assert f"in layer {layer} at" in str(end.error), end.error
    assert loop.answers[0].tokens == []
    assert 30 + len(loop.answers[1].tokens) == BAD_POSITION + 1
    blamed = [row.bad_layer for result in loop.results for row in result.rows]
    blamed += [bad[2] for result in loop.results for bad in result.bad_prefill]
    assert set(blamed) == {-1, layer}, f"blamed {set(blamed)}"
    loop.check_answers(judge("llama"), requests[2:])
    return [(result.rows, result.bad_prefill) for result in loop.results]


@pytest.mark.slow
@pytest.mark.parametrize(
    "layer", [pytest.param(n, marks=[] if n == 1 else pytest.mark.slow) for n in range(NUM_LAYERS)]
)
def test_a_bad_layer_is_blamed_by_its_number_and_fails_its_requests_only(layer: int) -> None:
    """Also the last layer of a stage, which the next stage finds, and a stage in the middle."""
    cuts = [Cut(stages=(2, 2), cohorts=2), Cut(stages=(1, 2, 1), cohorts=2, lanes="local")]
    whole = check_blame(Cut(cohorts=2, lanes="local"), layer=layer)
    for cut in cuts:
        assert check_blame(cut, layer=layer) == whole
    check_blame(Cut(stages=(1, 3), cohorts=2, tp=2), layer=layer)


# -- one recorded plan file -----------------------------------------------------------------------

PARTS = [((1, 3), "test"), ((2, 1, 1), "local")]


def start_rank(header: RecordingHeader, stages: tuple[int, ...], lanes: str) -> Rank:
    """All stages in this process; the number of cohorts is the recording's."""
    topology = msgspec.structs.replace(
        header.load.topology, stages=stages, lanes=lanes, stages_per_worker=len(stages)
    )
    rank = Rank()
    rank.hello(header.init)
    rank.load(msgspec.structs.replace(header.load, topology=topology))
    rank.allocate(header.pools)
    return rank


def record(directory: Path, history: History, *, dtype: str) -> tuple[Path, list[StepResult]]:
    """Play `history` on one stage; the file of its plans and results, in the order they crossed."""
    model_dir = write_tiny_llama(directory / "model", layers=NUM_LAYERS)
    config = to_dict(Config())
    config["parallel"] |= {"device": "cpu", "threads": 1}
    header = RecordingHeader(
        init=WorkerInit(model_dir=str(model_dir), config=dict(config)),
        load=LoadWeights(
            dtype=dtype,
            kv_dtype=dtype,
            threads=1,
            max_context=MAX_CONTEXT,
            max_running=history.sizes.num_slots - 1,
            prefill_tokens=history.sizes.prefill_tokens,
            topology=Topology(stages=(NUM_LAYERS,), cohorts=history.cohorts),
        ),
        pools=AllocatePools(
            num_pages=history.sizes.num_pages,
            page_tokens=PAGE_TOKENS,
            num_slots=history.sizes.num_slots,
            max_context=MAX_CONTEXT,
        ),
    )
    rank = start_rank(header, (NUM_LAYERS,), "local")
    played = history.play(rank)
    rank.close()
    rare = {"moves", "stops", "inert rows", "preemptions"}
    assert not {e for e in EVENTS if not played.events()[e]} - rare
    path, late = directory / "run.jsonl", history.depth
    plans, results = played.loop.plans, played.loop.results
    with PlanRecorder(path, header) as recorder:
        for index, plan in enumerate(plans):
            recorder.plan(plan)
            if index + 1 >= late:
                recorder.result(results[index + 1 - late])
        for result in results[len(plans) + 1 - late :]:
            recorder.result(result)
    return path, played.results


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    ["bfloat16", *(pytest.param(d, marks=pytest.mark.slow) for d in ("float32", "float64"))],
)
@pytest.mark.parametrize(("cohorts", "seed"), [(2, 4), pytest.param(3, 18, marks=pytest.mark.slow)])
def test_one_recorded_file_gives_the_same_bits_in_any_stages(
    tmp_path: Path, dtype: str, cohorts: int, seed: int
) -> None:
    """Rows, log-probabilities, everything but times: the kernels and their shapes are the same."""
    path, want = record(tmp_path, History(seed, cohorts=cohorts), dtype=dtype)
    for stages, lanes in PARTS:
        recording = open_recording(path)
        rank = start_rank(recording.header, stages, lanes)
        found = []
        for line in recording.steps:
            if isinstance(line, StepPlan):
                result = rank.execute(line)
                assert result is not None
                found.append(msgspec.structs.replace(result, run_us=0))
        rank.close()
        assert found == want, f"{stages} {lanes}"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_rerun_finds_no_difference_in_any_stages(tmp_path: Path, dtype: str) -> None:
    path, want = record(tmp_path, History(4, cohorts=2), dtype=dtype)
    for forced in (False, True):
        for stages, lanes in PARTS:
            report = rerun(path, forced=forced, stages=stages, lanes=lanes)
            assert (report.steps, report.unanswered) == (len(want), 0)
            assert report.divergence is None and report.gaps == []
