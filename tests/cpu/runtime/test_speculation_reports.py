"""Public reports about speculation elsewhere, as cases for this one: scheduler, runtime and text in
one process, float64.

F01 acceptance that hangs on the batch; F03 stages that are not told of rejections; F04 ends inside
accepted runs; F09 drafts and cached prefixes together; and with drafts G01 what fills the pool, G03
preemption under pressure, G05 shared beginnings, G07 what a resumed request loses. (F08 is in
`cpu/speculation`, F10 and the rest of F01 are about graphs and time.)
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from draftmark.core.messages import RequestOutput
from draftmark.core.request import FinishReason
from draftmark.core.step import StepPlan
from draftmark.engine.textstream import TextAssembler
from draftmark.layers.batch import Batch
from draftmark.models.stage import Stage
from draftmark.runtime.drafting import Drafting
from draftmark.runtime.mtp import MTPDrafter
from draftmark.runtime.pipeline import WorkerPending, WorkerRun
from draftmark.runtime.relay import PACKED_LENGTH
from draftmark.scheduler.queue import State
from tests.cpu.runtime.harness import VOCAB, Loop, make_request, make_run, make_stages
from tests.cpu.runtime.speculation_harness import make_fluent_stages, verify_rows
from tests.fakes.tokenizer import byte_level, wrap

TOKENIZER = wrap(byte_level())
MAX_CONTEXT = 352


@pytest.fixture(scope="module")
def hybrid() -> list[Stage]:
    return make_fluent_stages((3,), "hybrid", max_context=MAX_CONTEXT)


def make_loop(stages: list[Stage], *, k: int, num_snapshots: int = 0, **sizes: int) -> Loop:
    """With `k` drafts of the head a round; 0 for none. Without snapshots nothing is cached."""
    sizes = {"max_context": MAX_CONTEXT, **sizes}
    depth = sizes.pop("depth", 2)
    run = make_run(
        *stages,
        **sizes,
        num_snapshots=num_snapshots,
        max_drafts=k,
        make_drafter=MTPDrafter if k else None,
    )
    return Loop(run, **sizes, depth=depth, num_snapshots=num_snapshots, max_drafts=k)


def tokens_of(loop: Loop) -> dict[int, list[int]]:
    return {number: answer.tokens for number, answer in loop.answers.items()}


def ids(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(VOCAB) for _ in range(count)]


# -- F04 ------------------------------------------------------------------------------------------

A, B, C, D, E, STOP = (ord(letter) - 33 for letter in "ABCDE.")
FIRST = ord("X") - 33  # what the prompt itself gives


class ScriptDrafter:
    """Drafts the script."""

    def __init__(self, script: Sequence[int], *, num_prompt: int) -> None:
        self._script, self._num_prompt = script, num_prompt

    def draft(self, step: Drafting) -> None:
        if step.packed is None:
            return
        k = step.plan.draft_k
        first = int(step.packed[0, PACKED_LENGTH]) - self._num_prompt + 1
        step.enter(torch.tensor([self._script[first : first + k]]), torch.tensor([k]))


class Scripted:
    """A run whose model gives a script, whatever it computes: of one request."""

    def __init__(self, run: WorkerRun, script: Sequence[int]) -> None:
        self.known = 0
        self._run, self._script = run, script

    def launch(self, plan: StepPlan) -> WorkerPending:
        def override(logits: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
            return torch.tensor(self._script[self.known : self.known + len(token)])

        return self._run.launch(plan, override=override)


class ScriptLoop(Loop):
    """Assembles text, and ends the request where a stop string does, as the API process does."""

    def __init__(self, run: Any, *, stop: tuple[str, ...], min_tokens: int, k: int) -> None:
        super().__init__(run, depth=1, max_drafts=k)
        self.text = ""
        self.logprobs: list[Any] = []
        self.reason: FinishReason | None = None
        self.assembler = TextAssembler(TOKENIZER, stop=stop, min_tokens=min_tokens)

    def _take(self, outputs: list[RequestOutput]) -> None:
        super()._take(outputs)
        for output in outputs:
            self.run.known += len(output.token_ids)
            if self.reason is not None:
                continue
            delta = self.assembler.feed(output)
            self.text += delta.text
            self.logprobs += delta.logprobs or []
            self.reason = delta.finish
            if delta.matched is not None and output.finish is None:
                super()._take(
                    self.scheduler.finish(output.id, self.assembler.num_tokens, FinishReason.STOP)
                )


@dataclass(frozen=True)
class Told:
    """What a client is told."""

    tokens: list[int]
    text: str
    finish: FinishReason | None
    usage: int
    logprobs: list[tuple[int, float, int]]


def play_script(
    stage: Stage,
    run: Sequence[int],
    *,
    k: int,
    room: int,
    stop: tuple[str, ...] = (),
    min_tokens: int = 0,
) -> Told:
    """`run` follows the first token, and `room` tokens may."""
    script = [FIRST, *run] + [A] * 16
    prompt = [1, 2, 3]
    made = make_run(
        stage,
        max_drafts=k,
        make_drafter=lambda seat: ScriptDrafter(script, num_prompt=len(prompt)),
    )
    loop = ScriptLoop(Scripted(made, script), stop=stop, min_tokens=min_tokens, k=k)
    request = make_request(
        0,
        prompt=prompt,
        max_tokens=1 + room,
        stop_ids=[STOP],
        logprobs=2,
        min_tokens=min_tokens,
        stop=list(stop),
    )
    loop.add(request)
    loop.finish()
    if k:
        widest = max(len(row.emitted) for result in loop.results for row in result.rows)
        assert widest > 1 or len(loop.answers[0].tokens) < 3, "nothing was accepted"
    num_tokens = loop.assembler.num_tokens
    assert loop.scheduler.stats().output_tokens == num_tokens
    logprobs = [(p.token, round(p.logprob, 9), p.rank) for p in loop.logprobs]
    return Told(loop.answers[0].tokens[:num_tokens], loop.text, loop.reason, num_tokens, logprobs)


@pytest.fixture(scope="module")
def dense() -> Stage:
    (stage,) = make_stages((1,), "llama")
    return stage


@pytest.mark.parametrize(
    ("run", "room", "options", "tokens", "finish"),
    [
        pytest.param(
            [A, B, STOP, C, D, E], 5, {}, [A, B, STOP], FinishReason.STOP, id="stop before room"
        ),
        pytest.param(
            [A, B, C, D, STOP], 3, {}, [A, B, C], FinishReason.LENGTH, id="room before stop"
        ),
        pytest.param([A, B, STOP, C], 3, {}, [A, B, STOP], FinishReason.STOP, id="both at once"),
        pytest.param([STOP, A, B], 9, {}, [STOP], FinishReason.STOP, id="first"),
        pytest.param(
            [A, B, C, D, E, STOP], 9, {}, [A, B, C, D, E, STOP], FinishReason.STOP, id="bonus"
        ),
        pytest.param(
            [A, STOP, B, STOP, C, STOP],
            9,
            {"min_tokens": 4},
            [A, STOP, B, STOP],
            FinishReason.STOP,
            id="min_tokens beyond a stop id",
        ),
        pytest.param(
            [A, STOP, B, C],
            4,
            {"min_tokens": 5},
            [A, STOP, B, C],
            FinishReason.LENGTH,
            id="no stop",
        ),
        pytest.param(
            [A, B, C, D, E], 9, {"stop": ("BC",)}, [A, B, C], FinishReason.STOP, id="stop string"
        ),
        pytest.param(
            [A, B, STOP, C, D],
            9,
            {"stop": ("CD",)},
            [A, B, STOP],
            FinishReason.STOP,
            id="stop id before a stop string",
        ),
        pytest.param(
            [A, B, C, D, E],
            2,
            {"stop": ("BC",)},
            [A, B],
            FinishReason.LENGTH,
            id="room before string",
        ),
        pytest.param(
            [A, B, A, B, C],
            9,
            {"stop": ("AB",), "min_tokens": 4},
            [A, B, A, B],
            FinishReason.STOP,
            id="min_tokens beyond a stop string",
        ),
    ],
)
def test_f04_an_end_inside_an_accepted_run(
    dense: Stage,
    run: list[int],
    room: int,
    options: dict[str, Any],
    tokens: list[int],
    finish: FinishReason,
) -> None:
    """The same tokens, text, finish reason, usage and log-probabilities as one token at a time."""
    plain = play_script(dense, run, k=0, room=room, **options)
    assert (plain.tokens, plain.finish) == ([FIRST, *tokens], finish)
    assert plain.usage == len(plain.logprobs) == 1 + len(tokens)
    for k in (1, 2, 3, 5):
        assert play_script(dense, run, k=k, room=room, **options) == plain


# -- F09, G05 -------------------------------------------------------------------------------------


def talk(stages: list[Stage], *, k: int, cached: bool) -> tuple[list[list[int]], int]:
    """Answers of every prompt, one after the other, and how many tokens came from the cache."""
    rng = random.Random(9)
    a, b, c = ids(rng, 80), ids(rng, 110), ids(rng, 20)
    loop = make_loop(stages, k=k, num_snapshots=16 if cached else 0, num_pages=200)
    answers: list[list[int]] = []

    def ask(prompt: list[int]) -> list[int]:
        number = len(answers)
        loop.add(make_request(number, prompt=prompt, max_tokens=24))
        loop.finish()
        answers.append(loop.answers[number].tokens)
        return answers[-1]

    for prompt in (a, a + b, a, a + c):
        ask(prompt)
    chain = ids(rng, 70)
    for _ in range(6):
        chain = chain + ask(chain) + ids(rng, 17)
    stats = loop.scheduler.stats()
    assert (loop.run.runs[0]._drafter is not None) == bool(k)
    return answers, stats.cached_tokens


def test_f09_drafts_and_cached_prefixes_of_a_hybrid(hybrid: list[Stage]) -> None:
    """A, A with a long B, A, A with C, and a conversation of six turns: the same tokens with and
    without drafts, from the cache and not."""
    cells = {
        (k, cached): talk(hybrid, k=k, cached=cached) for k in (0, 3) for cached in (False, True)
    }
    answers, _ = cells[0, False]
    assert all(cell[0] == answers for cell in cells.values())
    hits = {key: cell[1] for key, cell in cells.items()}
    assert hits[0, False] == hits[3, False] == 0
    assert hits[3, True] == hits[0, True] > 400


@pytest.mark.parametrize("shared", [320, 300])
def test_g05_shared_beginnings_are_found_with_drafts(hybrid: list[Stage], shared: int) -> None:
    rng = random.Random(shared)
    beginning, loops = ids(rng, shared), []
    # Less of its own than in the report: a context of 352 tokens.
    prompts = [beginning + ids(rng, 20) for _ in range(6)]
    prompts += [prompts[-1], prompts[-1] + ids(rng, 5)]
    for k, num_snapshots in ((0, 0), (3, 16)):
        loop = make_loop(hybrid, k=k, num_snapshots=num_snapshots, num_pages=300)
        for number, prompt in enumerate(prompts):
            loop.add(make_request(number, prompt=prompt, max_tokens=6))
            loop.finish()
        loops.append(loop)
    assert tokens_of(loops[0]) == tokens_of(loops[1])
    admits = [admit for plan in loops[1].plans for admit in plan.admits]
    cached = [admit.cached for admit in admits]
    assert all(count >= shared // 64 * 64 for count in cached[2:]), cached


# -- F03 ------------------------------------------------------------------------------------------


def watch_batches(run: WorkerRun, seen: list[list[Batch]]) -> None:
    """What each stage is given of each step."""

    def watch(stage: Stage, given: list[Batch]) -> None:
        forward = stage.forward

        def noting(inputs: torch.Tensor, batch: Batch, caches: Any) -> Any:
            given.append(batch)
            return forward(inputs, batch, caches)

        stage.forward = noting  # type: ignore[method-assign]

    for stage_run in run.runs:
        seen.append([])
        watch(stage_run._stage, seen[-1])


@pytest.mark.parametrize("layers", [(1, 2), (1, 1, 1)])
def test_f03_every_stage_is_told_of_every_rejection(layers: tuple[int, ...]) -> None:
    """A head of random weights is nearly always wrong. After every step lengths, folds, positions
    and slots are the same on all stages, and lengths those that the host knows."""
    stages = make_stages(layers, "hybrid", with_mtp=True)
    sizes = {"cohorts": len(layers), "num_slots": 5}
    run = make_run(*stages, **sizes, max_drafts=3, make_drafter=MTPDrafter)
    loop = Loop(run, **sizes, depth=1, num_snapshots=0, max_drafts=3)
    seen: list[list[Batch]] = []
    watch_batches(run, seen)
    rng = random.Random(3)
    requests = [make_request(i, prompt=ids(rng, 5 + 9 * i), max_tokens=64) for i in range(4)]
    loop.add(*requests)
    known: dict[int, int] = {}
    while loop.scheduler.has_work:
        loop.step()
        first, *later = [given[-1] for given in seen]
        for batch in later:
            for name in ("positions", "store", "verify_lengths", "verify_folds", "verify_slots"):
                assert torch.equal(getattr(first, name), getattr(batch, name)), name
        result, plan = loop.results[-1], loop.plans[-1]
        rows = result.rows[sum(row.samples for row in plan.prefill) :]
        for row, length, fold in zip(
            rows, first.verify_lengths.tolist(), first.verify_folds.tolist(), strict=True
        ):
            if row.emitted:
                assert length == known[row.slot] and row.length == length + len(row.emitted)
                assert row.fold == len(row.emitted) and fold <= 4
        known |= {row.slot: row.length for row in result.rows}
    rounds = verify_rows(loop)
    num_rejecting = sum(len(row.emitted) <= row.drafted for row in rounds)
    assert num_rejecting > 0.8 * len(rounds) > 100
    (whole,) = make_stages((3,), "hybrid")
    loop.check_answers(whole, requests)


# -- F01 ------------------------------------------------------------------------------------------


def accepted_by_place(loop: Loop, k: int) -> Counter[int]:
    """How many windows accepted at least so many drafts."""
    rows = verify_rows(loop)
    return Counter(place for row in rows for place in range(k + 1) if len(row.emitted) > place)


def test_f01_acceptance_does_not_hang_on_the_batch(hybrid: list[Stage]) -> None:
    """Eight prompts, greedy, at 1, 2, 3 and 5 at a time: the same tokens, and as many drafts
    accepted at each place."""
    rng = random.Random(1)
    prompts = [ids(rng, 12) for _ in range(8)]
    seen = []
    for batch in (1, 2, 3, 5):
        loop = make_loop(hybrid, k=3, num_slots=batch + 1)
        loop.add(*(make_request(i, prompt=p, max_tokens=40) for i, p in enumerate(prompts)))
        loop.finish()
        seen.append((tokens_of(loop), accepted_by_place(loop, 3)))
    plain = make_loop(hybrid, k=0, num_slots=4)
    plain.add(*(make_request(i, prompt=p, max_tokens=40) for i, p in enumerate(prompts)))
    plain.finish()
    assert all(tokens == tokens_of(plain) for tokens, _ in seen)
    places = seen[0][1]
    assert all(counts == places for _, counts in seen)
    assert sum(places.values()) / places[0] > 1.2


# -- G01, G03, G07 --------------------------------------------------------------------------------


def test_g01_who_just_fits_the_pool_ends_and_who_does_not_is_refused(hybrid: list[Stage]) -> None:
    """Pages that drafts would need beyond the end are not asked for."""
    rng = random.Random(2)
    loop = make_loop(hybrid, k=5, num_pages=9)
    fits = make_request(0, prompt=ids(rng, 60), max_tokens=8 * 16 - 60)
    loop.add(fits)
    loop.add(make_request(1, prompt=ids(rng, 200)))
    loop.add(*(make_request(i, prompt=ids(rng, 40)) for i in range(2, 7)))
    loop.finish()
    end = loop.answers[1].end
    assert end is not None and end.error_status == 400
    others = [answer.end for number, answer in loop.answers.items() if number != 1]
    assert all(end is not None and end.finish is FinishReason.LENGTH for end in others)
    assert len(loop.answers[0].tokens) == 68


def test_g03_preemption_under_pressure_with_drafts(hybrid: list[Stage]) -> None:
    """A pool for two and a half requests, eight of them, three times over."""
    rng = random.Random(4)
    prompt, output = 50, 100
    pages = int(2.5 * (prompt + output) / 16)
    loop = make_loop(hybrid, k=3, num_pages=pages + 1)
    plain = make_loop(hybrid, k=0)
    steps = []
    for turn in range(3):
        before = loop.scheduler.stats().steps
        requests = [
            make_request(10 * turn + i, prompt=ids(rng, prompt), max_tokens=output)
            for i in range(8)
        ]
        loop.add(*requests)
        loop.finish()
        plain.add(*requests)
        plain.finish()
        steps.append(loop.scheduler.stats().steps - before)
        stats = loop.scheduler.stats()
        assert stats.pages_free + stats.pages_cached == pages
    assert tokens_of(loop) == tokens_of(plain)
    stats = loop.scheduler.stats()
    assert stats.output_tokens == 24 * output and 0 < stats.preemptions <= 2 * 24
    assert max(steps) <= 1.5 * min(steps)


def preempt(loop: Loop, request_id: int) -> None:
    """As if pages had run out, with this sequence last in order; it must have some to lose."""
    sequence = loop.scheduler._roster.live[request_id]
    while sequence.state not in (State.PREFILLING, State.RUNNING):
        loop.step()
    loop.scheduler._exits.preempt(sequence)
    loop.scheduler.check()


@pytest.mark.parametrize("outputs", [0, 1, 50])
@pytest.mark.parametrize("times", [1, 2])
def test_g07_a_resumed_request_loses_nothing(hybrid: list[Stage], outputs: int, times: int) -> None:
    """Greedy, and with a seed and a presence penalty."""
    rng = random.Random(7)
    requests = [
        make_request(1, prompt=ids(rng, 37), max_tokens=70, logprobs=1),
        make_request(
            2,
            prompt=ids(rng, 37),
            max_tokens=70,
            temperature=0.9,
            presence_penalty=1.0,
            min_tokens=60,
            stop_ids=[3],
        ),
    ]
    plain = make_loop(hybrid, k=0)
    plain.add(*requests)
    plain.finish()
    loop = make_loop(hybrid, k=3, prefill_tokens=16, depth=2)
    loop.add(*requests)
    for turn in range(times):
        for request_id in (1, 2):
            while len(loop.answers[request_id].tokens) < outputs + turn:
                loop.step()
            preempt(loop, request_id)
    loop.finish()
    assert tokens_of(loop) == tokens_of(plain)
    stats = loop.scheduler.stats()
    assert stats.preemptions == 2 * times
    counted = (stats.prompt_tokens, stats.output_tokens)
    assert counted == (74, sum(len(answer.tokens) for answer in plain.answers.values()))
    assert any(len(row.emitted) > 1 for row in verify_rows(loop))
