"""Models whose head drafts as well as a trained one, histories over them, and what came of both.

In a *fluent* model the next token hangs mostly on the last one: the embedding runs through the
residual stream, and layers change little of it. Its head is given the embedding as it is, so that
it is right about as often as a trained head, for whatever text stands there. So acceptance stays
what it is when a fault changes the text, as it did where such faults were met, and the layers still
decide a good part of all tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec
import torch

from draftmark.cache.spec import PAGE_TOKENS
from draftmark.core.request import FinishReason, Request
from draftmark.core.step import ResultRow, TokenLogprobs
from draftmark.kernels.backends import Backends
from draftmark.layers.weight import Placement, Weight
from draftmark.models.stage import Stage
from draftmark.parallel.collectives import Alone, TensorGroup
from draftmark.parallel.mesh import Mesh
from draftmark.runtime.mtp import MTPDrafter
from draftmark.runtime.pipeline import Placing, make_worker_run
from tests.cpu.runtime.harness import (
    CPU,
    MAX_CONTEXT,
    VOCAB,
    Loop,
    _fill,
    make_limits,
    make_request,
    make_run,
    make_topology,
    no_wire,
    random_request,
)
from tests.fakes.tiny_models import make_config

# What layers add to the residual stream, of what random ones would.
INFLUENCE = 0.012


def make_fluent_stages(
    layers: Sequence[int],
    family: str,
    *,
    dtype: torch.dtype = torch.float64,
    backends: Backends = Backends(),  # noqa: B008 - a frozen value
    group: TensorGroup | None = None,
    influence: float = INFLUENCE,
    seed: int = 0,
    max_context: int = MAX_CONTEXT,
) -> list[Stage]:
    """`harness.make_stages` with a head, fluent."""
    config = make_config(family, num_layers=sum(layers), max_context=max_context, with_mtp=True)
    group = group or Alone()
    mesh = Mesh(tp_rank=group.rank, tp_size=group.size)
    placement = Placement(dtype=dtype, device=CPU, backends=backends, mesh=mesh, group=group)
    stages, first = [], 0
    for count in layers:
        stage = Stage(
            config,
            layers=range(first, first + count),
            max_context=max_context,
            placement=placement,
            with_mtp=True,
        )
        first += count
        _fill(stage, seed=seed)
        _make_fluent(stage, influence)
        stage.finish()
        stages.append(stage)
    return stages


def _make_fluent(stage: Stage, influence: float) -> None:
    views = {
        (name, block): target.view
        for name, weight in stage.named_parameters()
        if isinstance(weight, Weight)
        for block, target in weight.targets()
    }
    for (name, _), view in views.items():
        if name.endswith(("out.weight", "down", "down.weight")):
            # Attention takes a mean over many tokens, which of random values is small.
            view.mul_(influence * (2.0 if "mixer" in name else 0.5))
        if name.endswith("log_decay"):
            # Trained heads remember for tens of tokens and more; random ones for two or three.
            view.mul_(4.0).sub_(3.0)
    if stage.mtp is None:
        return
    fc = views["mtp.fc.weight", ""]
    fc.zero_()
    fc[:, : len(fc)].fill_diagonal_(1.0)
    views["mtp.embedding_norm.weight", ""].fill_(0.0 if stage.config.norm.zero_centred else 1.0)
    views["mtp.norm.weight", ""].copy_(views["norm.weight", ""])


# -- histories ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A model cut into `layers`, and a history over it that hangs on `seed` alone."""

    family: str = "hybrid"
    layers: tuple[int, ...] = (1, 2)
    cohorts: int = 2
    lanes: str = "local"
    k: int = 3
    seed: int = 0
    influence: float = INFLUENCE
    num_requests: int = 24
    num_pages: int = 24
    num_slots: int = 5
    prefill_tokens: int = 24

    @property
    def sizes(self) -> dict[str, Any]:
        return {
            "num_pages": self.num_pages,
            "num_slots": self.num_slots,
            "prefill_tokens": self.prefill_tokens,
            "cohorts": self.cohorts,
        }

    @property
    def num_snapshots(self) -> int | None:
        return 4 if self.family in ("hybrid", "delta") else None

    def requests(self) -> list[Request]:
        """Every parameter, shared beginnings, prompts of one token and of a window; some end where
        a page does."""
        rng = random.Random(self.seed)
        prefixes = [[rng.randrange(VOCAB) for _ in range(n)] for n in (16, 33, 70)]
        requests = []
        for number in range(self.num_requests):
            if number % 3 == 1:
                count = (1, self.k + 1)[number // 3 % 2]
                request = make_request(
                    number,
                    prompt=[rng.randrange(VOCAB) for _ in range(count)],
                    max_tokens=40,
                    temperature=rng.choice([0.0, 0.8]),
                    seed=rng.randrange(2**63),
                )
            else:
                request = random_request(number, rng, prefixes=prefixes, is_hungry=True)
            if number % 3 == 2:
                request = _until_a_page_ends(request)
            requests.append(request)
        return requests


def _until_a_page_ends(request: Request) -> Request:
    most = request.sampling.max_tokens
    assert most is not None
    most -= (len(request.prompt_ids) + most) % PAGE_TOKENS
    sampling = msgspec.structs.replace(request.sampling, max_tokens=most, min_tokens=0)
    return msgspec.structs.replace(request, sampling=sampling, stop_ids=())


def plain_tokens(scene: Scene) -> dict[int, list[int]]:
    """What each request gives one token at a time, with all pages and slots it wants."""
    whole = replace(scene, layers=(sum(scene.layers),), cohorts=1, lanes="local")
    return _plain_tokens(whole)


@cache
def _plain_tokens(scene: Scene) -> dict[int, list[int]]:
    sizes = {"num_pages": 161, "num_slots": 17}
    run = make_run(*_stages(scene.family, scene.layers, scene.influence), **sizes)
    # No snapshot: every prompt is run whole.
    loop = Loop(run, **sizes, num_snapshots=0)
    loop.add(*scene.requests())
    loop.finish()
    return {number: answer.tokens for number, answer in loop.answers.items()}


@cache
def _stages(family: str, layers: tuple[int, ...], influence: float) -> list[Stage]:
    return make_fluent_stages(layers, family, influence=influence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """`wrong` are requests with other tokens than plain decoding, or with another end; `crash` is
    what stopped the history, empty where nothing did. `rounds` are verify rows that emitted, with
    `emitted` tokens."""

    scene: Scene
    loop: Loop
    wrong: tuple[int, ...]
    crash: str
    rounds: int
    emitted: int

    @property
    def length(self) -> float:
        """Tokens a round."""
        return self.emitted / max(self.rounds, 1)

    @property
    def is_equal(self) -> bool:
        return not self.wrong and not self.crash


def play(
    scene: Scene,
    *,
    poison: bool = False,
    on_loop: Callable[[Loop], None] = lambda loop: None,
    make_drafter: Callable[..., Any] = MTPDrafter,
) -> Played:
    """The history of `scene`, to its end or until something fails. Without `poison` pools begin as
    zeros, so that what is stale or of nobody looks like anything else."""
    run = make_run(
        *_stages(scene.family, scene.layers, scene.influence),
        **scene.sizes,
        lanes=scene.lanes,
        num_snapshots=scene.num_snapshots or 0,
        max_drafts=scene.k,
        make_drafter=make_drafter,
        poison=poison,
    )
    if not poison:
        for stage_run in run.runs:
            stage_run._caches.fill(0.0)
    loop = Loop(
        run,
        **scene.sizes,
        depth=scene.cohorts + 1,
        num_snapshots=scene.num_snapshots,
        max_drafts=scene.k,
    )
    on_loop(loop)
    requests, crash = scene.requests(), ""
    try:
        _drive(loop, requests, random.Random(scene.seed))
    except (AssertionError, IndexError, RuntimeError) as error:
        crash = f"{type(error).__name__}: {error}".strip()
    finally:
        run.close()
    rows = verify_rows(loop)
    return Played(
        scene=scene,
        loop=loop,
        wrong=() if crash else tuple(wrong_requests(loop, requests, plain_tokens(scene))),
        crash=crash,
        rounds=len(rows),
        emitted=sum(len(row.emitted) for row in rows),
    )


def _drive(loop: Loop, requests: list[Request], rng: random.Random) -> None:
    waiting = list(requests)
    while waiting or loop.scheduler.has_work:
        while waiting and rng.random() < 0.4:
            loop.add(waiting.pop(0))
        if rng.random() < 0.01:
            loop.abort(rng.randrange(len(requests)))
        loop.step()


def verify_rows(loop: Loop) -> list[ResultRow]:
    """Those that emitted something."""
    return [
        row
        for plan, result in zip(loop.plans, loop.results, strict=False)
        for row in result.rows[sum(row.samples for row in plan.prefill) :]
        if row.emitted
    ]


def wrong_requests(loop: Loop, requests: list[Request], plain: dict[int, list[int]]) -> list[int]:
    """Whose tokens or end are not those of plain decoding, up to where it was aborted."""
    wrong = []
    for request in requests:
        answer, tokens = loop.answers[request.id], plain[request.id]
        assert answer.end is not None, f"request {request.id} has no end"
        finish = answer.end.finish
        if finish is FinishReason.ABORT:
            tokens = tokens[: len(answer.tokens)]
        is_stop = bool(tokens) and tokens[-1] in request.stop_ids
        ends = (FinishReason.ABORT, FinishReason.STOP if is_stop else FinishReason.LENGTH)
        if answer.tokens != tokens or finish not in ends:
            wrong.append(request.id)
    return wrong


# -- narrow formats -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Where an answer with drafts first differs from the plain one: token number `index`, whose two
    best logits are `gap` apart in the plain run."""

    request: int
    index: int
    gap: float


def narrow_splits(
    family: str,
    *,
    dtype: torch.dtype,
    k: int,
    seed: int,
    num_requests: int,
    backends: Backends = Backends(),  # noqa: B008 - a frozen value
) -> tuple[list[Split], int]:
    """Greedy requests of a fluent model in `dtype`, with drafts of its head and without: first
    differences, and how many tokens were compared."""
    stages = make_fluent_stages((3,), family, dtype=dtype, backends=backends, seed=seed)
    rng = random.Random(seed)
    requests = [
        make_request(
            number,
            prompt=[rng.randrange(VOCAB) for _ in range(rng.choice([1, 4, 20, 70]))],
            max_tokens=60,
            logprobs=2,
        )
        for number in range(num_requests)
    ]
    plain = _narrow_run(stages, requests, k=0)
    drafted = _narrow_run(stages, requests, k=k)
    splits, compared = [], 0
    for request in requests:
        ours, theirs = drafted[request.id], plain[request.id]
        assert len(ours) == len(theirs)
        same = [a.token == b.token for a, b in zip(ours, theirs, strict=True)]
        index = len(same) if all(same) else same.index(False)
        compared += index
        if index < len(same):
            (_, best), (_, second) = theirs[index].top
            splits.append(Split(request=request.id, index=index, gap=best - second))
    return splits, compared


def _narrow_run(
    stages: list[Stage], requests: list[Request], *, k: int
) -> dict[int, list[TokenLogprobs]]:
    sizes = {"num_pages": 121, "num_slots": 9}
    limits = make_limits(**sizes, max_drafts=k)
    run = make_worker_run(
        stages,
        placing=Placing(
            topology=make_topology([len(stage.blocks) for stage in stages]),
            worker=0,
            connect=no_wire,
            note=lambda *said: None,
            poison=True,
            make_drafter=MTPDrafter if k else None,
        ),
        limits=limits,
        kv_dtype=stages[0].placement.dtype,
        device=CPU,
    )
    loop = Loop(run, **sizes, num_snapshots=0, max_drafts=k)
    loop.add(*requests)
    loop.finish()
    logprobs: dict[int, list[TokenLogprobs]] = {request.id: [] for request in requests}
    request_of: dict[tuple[int, int], int] = {}
    for plan, result in zip(loop.plans, loop.results, strict=True):
        request_of |= {(admit.slot, admit.generation): admit.request for admit in plan.admits}
        for row in result.rows:
            logprobs[request_of[row.slot, row.generation]] += row.logprobs or []
    return logprobs
