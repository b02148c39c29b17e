"""Random histories: what may happen to a scheduler, as data that hypothesis can shrink, and `play`.

A history is a small world and a list of events; a played one ends when nothing is left to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

from hypothesis import strategies as st

from draftmark.cache.manager import CacheManager
from draftmark.core.request import FinishReason, Request
from draftmark.core.start import CostPoint
from tests.cpu.scheduler.simulation import Simulation, make_request, prompt_of
from tests.fakes.worker import FakeWorker, step_ms

MAX_CONTEXT = 160


class Costs(Enum):
    """What is known at the start of how long steps take: where anything is, drafts are adapted."""

    NONE = auto()
    TRUE = auto()
    WRONG = auto()


@dataclass(frozen=True, slots=True)
class World:
    pages: int
    slots: int
    max_running: int
    prefill_tokens: int
    num_cohorts: int
    max_in_flight: int
    min_shared_tokens: int
    max_prefix_waits: int
    snapshots: int | None = None
    max_drafts: int = 0
    costs: Costs = Costs.NONE
    drafts_from_ids: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: `shared` tokens of family `family`, then `own` tokens of its own. One that follows
    has instead the prompt and what is there of the answer of an earlier request, as the next turn
    of a chat has."""

    follows: bool
    family: int
    shared: int
    own: int
    max_tokens: int
    num_stop_ids: int
    min_tokens: int
    priority: int
    prompt_logprobs: bool
    logprobs: bool
    penalties: bool
    seed: int
    bad_at: int  # position of a non-finite value, -1 for none
    draft_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` and a number whose meaning depends on it."""

    kind: str
    number: int = 0
    ask: Ask | None = None


# One cohort or several, with plans in flight from one to more than fill all turns.
_depths = st.sampled_from([(m, depth) for m in range(1, 5) for depth in range(1, m + 3)])

worlds = st.builds(
    lambda turns, **facts: World(num_cohorts=turns[0], max_in_flight=turns[1], **facts),
    turns=_depths,
    pages=st.integers(7, 24),
    slots=st.integers(1, 6).map(lambda n: 7 - n),
    max_running=st.integers(1, 6).map(lambda n: 7 - n),
    prefill_tokens=st.sampled_from([1, 5, 16, 33, 64]),
    min_shared_tokens=st.sampled_from([16, 32, 64]),
    max_prefix_waits=st.sampled_from([0, 2, 50]),
    snapshots=st.sampled_from([None, None, 0, 1, 2, 3, 5]),
    max_drafts=st.sampled_from([0, 0, 1, 2, 3, 4]),
    costs=st.sampled_from(Costs),
    drafts_from_ids=st.booleans(),
)

# One token, less than a page, whole pages and one more or less: the sizes where rules change.
_lengths = st.sampled_from([0, 1, 2, 15, 16, 17, 31, 32, 33, 48, 70])

asks = st.builds(
    Ask,
    follows=st.sampled_from([False, False, True]),
    family=st.integers(0, 2),
    shared=_lengths,
    own=_lengths,
    max_tokens=st.sampled_from([33, 60, 16, 0, 1, 2, 3, 7]),
    num_stop_ids=st.sampled_from([0, 0, 1, 6]),
    min_tokens=st.sampled_from([0, 0, 1, 5]),
    priority=st.sampled_from([0, 0, 0, -1, 2]),
    prompt_logprobs=st.sampled_from([False, False, False, True]),
    logprobs=st.booleans(),
    penalties=st.sampled_from([False, False, True]),
    seed=st.integers(0, 3),
    bad_at=st.sampled_from([-1] * 20 + [0, 17, 40]),
    draft_tokens=st.sampled_from([None, None, 0, 1, 3, 4]),
)

events = st.one_of(
    st.builds(Event, kind=st.just("add"), ask=asks),
    st.builds(Event, kind=st.just("add"), ask=asks),
    st.builds(Event, kind=st.just("plan")),
    st.builds(Event, kind=st.just("receive")),
    st.builds(Event, kind=st.just("steps"), number=st.integers(1, 6)),
    st.builds(Event, kind=st.just("steps"), number=st.integers(1, 6)),
    st.builds(Event, kind=st.just("steps"), number=st.integers(1, 20)),
    st.builds(Event, kind=st.just("abort"), number=st.integers(0, 9)),
    st.builds(Event, kind=st.just("finish"), number=st.integers(0, 99)),
    st.builds(Event, kind=st.just("reset")),
)

# A crowd first, so that there is something to share and to fight for; then whatever happens.
_crowds = st.lists(st.builds(Event, kind=st.just("add"), ask=asks), min_size=2, max_size=8)
histories = st.builds(list.__add__, _crowds, st.lists(events, min_size=4, max_size=40))


def random_history(seed: int) -> tuple[World, list[Event]]:
    """A long, crowded history from a seed: small pools, many requests, most of them alike."""
    draw = random.Random(seed)
    num_cohorts = draw.randint(1, 4)
    world = World(
        pages=draw.choice([8, 10, 12, 16, 30]),
        slots=draw.randint(3, 9),
        max_running=draw.randint(2, 8),
        prefill_tokens=draw.choice([1, 7, 16, 50, 64, 200]),
        num_cohorts=num_cohorts,
        max_in_flight=draw.randint(1, num_cohorts + 2),
        min_shared_tokens=draw.choice([16, 32, 64]),
        max_prefix_waits=draw.choice([0, 2, 50]),
    )
    longest = draw.choice([20, 60])
    history = []
    for _ in range(draw.randint(20, 120)):
        kind = draw.choice(["add"] * 6 + ["plan", "receive"] + ["steps"] * 6 + ["rare"])
        if kind == "rare":
            kind = draw.choice(["abort", "abort", "finish", "finish", "reset"])
        ask = _random_ask(draw, longest=longest) if kind == "add" else None
        history.append(Event(kind, draw.randint(1, 12 if kind == "steps" else 99), ask))
    return world, history


def hybrid_history(seed: int) -> tuple[World, list[Event]]:
    """The same for a model with recurrent layers: a hit needs one of a few snapshots."""
    world, history = random_history(seed)
    return replace(world, snapshots=random.Random(~seed).choice([1, 2, 2, 3, 4, 8])), history


def drafting_history(seed: int) -> tuple[World, list[Event]]:
    """The same with drafts, of either kind of model."""
    world, history = (hybrid_history if seed % 3 == 2 else random_history)(seed)
    draw = random.Random(seed)
    world = replace(
        world,
        max_drafts=1 + seed % 4,
        costs=draw.choice([Costs.NONE, Costs.TRUE, Costs.TRUE, Costs.WRONG]),
        drafts_from_ids=draw.random() < 0.5,
    )
    asked = [None, None, None, None, *range(world.max_drafts + 1)]
    drafting = [
        event
        if event.ask is None
        else replace(event, ask=replace(event.ask, draft_tokens=draw.choice(asked)))
        for event in history
    ]
    return world, drafting


def _random_ask(draw: random.Random, *, longest: int) -> Ask:
    return Ask(
        follows=draw.random() < 0.3,
        family=draw.randint(0, 1),
        shared=draw.choice([0, 1, 16, 17, 33, 64]),
        own=draw.choice([0, 0, 1, 5, 16, 20]),
        max_tokens=draw.choice([0, 1, 5, 16, longest, longest, longest]),
        num_stop_ids=draw.choice([0, 0, 1, 3]),
        min_tokens=draw.choice([0, 0, 4]),
        priority=draw.choice([0, 0, 0, -1, 1]),
        prompt_logprobs=draw.random() < 0.15,
        logprobs=draw.random() < 0.3,
        penalties=draw.random() < 0.2,
        seed=draw.randint(0, 2),
        bad_at=draw.choice([0, 20, 40]) if draw.random() < 0.02 else -1,
    )


MakeSimulation = Callable[[World, dict[int, int]], Simulation]


def make_simulation(
    world: World,
    bad: dict[int, int],
    *,
    strict: bool = True,
    manager: CacheManager | None = None,
    make_worker: type[FakeWorker] = FakeWorker,
) -> Simulation:
    return Simulation(
        num_pages=world.pages + 1,
        num_slots=world.slots + 1,
        max_context=MAX_CONTEXT,
        max_running=world.max_running,
        prefill_tokens=world.prefill_tokens,
        max_in_flight=world.max_in_flight,
        num_cohorts=world.num_cohorts,
        min_shared_tokens=world.min_shared_tokens,
        max_prefix_waits=world.max_prefix_waits,
        num_snapshots=world.snapshots,
        snapshot_grain=16,
        snapshot_stride=48,
        max_drafts=world.max_drafts,
        adapts_drafts=world.costs is not Costs.NONE,
        drafts_from_ids=world.drafts_from_ids,
        cost_table=_cost_table(world),
        bad=bad,
        strict=strict,
        manager=manager,
        make_worker=make_worker,
    )


def _cost_table(world: World) -> list[CostPoint]:
    """That of the fake device, or one where drafts are for nothing."""
    if world.costs is Costs.NONE:
        return []
    is_true = world.costs is Costs.TRUE
    return [
        CostPoint(rows, 0, 50, step_ms(rows, drafts if is_true else 0), drafts)
        for rows in (1, 2, 4, 8)
        for drafts in range(world.max_drafts + 1)
    ]


def request_of(request_id: int, ask: Ask, simulation: Simulation) -> Request:
    prompt = prompt_of(70, salt=ask.family)[: ask.shared]
    earlier = sorted(simulation.requests)
    if ask.follows and earlier:
        before = earlier[-1 - (ask.family * 3 + ask.shared) % len(earlier)]
        prompt = simulation.requests[before].prompt_ids + simulation.tokens(before)
        prompt = prompt[: MAX_CONTEXT - 50]
    own = random.Random(1000 * request_id)
    prompt = prompt + [own.randrange(61) for _ in range(ask.own)]
    return make_request(
        request_id,
        prompt=prompt or [ask.family],
        max_tokens=ask.max_tokens,
        stop_ids=range(ask.num_stop_ids),
        priority=ask.priority,
        seed=ask.seed,
        min_tokens=min(ask.min_tokens, ask.max_tokens),
        prompt_logprobs=2 if ask.prompt_logprobs else None,
        logprobs=1 if ask.logprobs else None,
        presence_penalty=0.5 if ask.penalties else 0.0,
        history_tokens=max(0, len(prompt) - 5) if ask.seed % 2 else None,
        draft_tokens=ask.draft_tokens,
    )


def play(
    world: World, history: list[Event], *, make: MakeSimulation = make_simulation
) -> Simulation:
    """Live through `history`, then until nothing is left to do, checking all along."""
    bad = {
        index: event.ask.bad_at
        for index, event in enumerate(history)
        if event.ask is not None and event.ask.bad_at >= 0
    }
    simulation = make(world, bad)
    for index, event in enumerate(history):
        _happen(simulation, index, event)
    simulation.run()
    simulation.check_answers()
    simulation.check_drafts()
    simulation.check_idle()
    return simulation


def _happen(simulation: Simulation, index: int, event: Event) -> None:
    ids = sorted(simulation.requests)
    if event.kind == "add":
        assert event.ask is not None
        simulation.add(request_of(index, event.ask, simulation))
    elif event.kind == "plan":
        simulation.plan()
    elif event.kind == "receive":
        simulation.receive()
    elif event.kind == "steps":
        for _ in range(event.number):
            simulation.step()
    elif event.kind == "reset":
        simulation.scheduler.reset_cache()
    elif event.kind == "abort" and ids:
        simulation.abort(ids[-1 - event.number % len(ids)])
    elif event.kind == "finish" and ids:
        request_id = ids[-1 - event.number % len(ids)]
        ahead = event.number // 10 - 5  # up to 5 tokens back or 4 ahead of what is known
        known = len(simulation.answers[request_id].tokens)
        simulation.finish(request_id, max(0, known + ahead), FinishReason.STOP)


def bad_requests(history: list[Event]) -> set[int]:
    return {i for i, event in enumerate(history) if event.ask is not None and event.ask.bad_at >= 0}
