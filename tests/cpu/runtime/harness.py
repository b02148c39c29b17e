"""Random tiny models in float64, the real scheduler and the real runtime in one process.

`check_alone` says what a request gives by one whole prefill, with the reference kernels and nothing
of the runtime: no pages shared, no slots, no plan.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

import msgspec
import torch
from torch import Tensor

from draftmark.cache.manager import CacheManager
from draftmark.cache.spec import PAGE_TOKENS, pages_of
from draftmark.core.messages import RequestOutput
from draftmark.core.request import FinishReason, Request, SamplingParams
from draftmark.core.step import StepPlan, StepResult
from draftmark.core.topology import LaneName, Topology
from draftmark.kernels import sample as op
from draftmark.kernels.backends import REFERENCE, Backends
from draftmark.kernels.sample.tables import SampleTables
from draftmark.layers.batch import Batch, PrefillSpan
from draftmark.layers.weight import Placement, Weight
from draftmark.models.stage import Stage
from draftmark.parallel.collectives import Alone, TensorGroup
from draftmark.parallel.lanes import Wire
from draftmark.parallel.mesh import Mesh
from draftmark.runtime.drafting import Drafter, Seat
from draftmark.runtime.memory import RunLimits, allocate_caches
from draftmark.runtime.pipeline import Placing, WorkerPending, WorkerRun, make_worker_run
from draftmark.scheduler.policy import Limits
from draftmark.scheduler.scheduler import Scheduler
from tests.fakes.tiny_models import VOCAB, make_config

MAX_CONTEXT = 160
CPU = torch.device("cpu")

_encode = msgspec.msgpack.Encoder().encode
_decode_plan = msgspec.msgpack.Decoder(StepPlan).decode
_decode_result = msgspec.msgpack.Decoder(StepResult).decode


def make_stage(
    family: str = "llama",
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    backends: Backends = REFERENCE,
    device: torch.device = CPU,
    num_layers: int = 2,
    max_context: int = MAX_CONTEXT,
) -> Stage:
    """Of `fakes.tiny_models.make_config`, with random weights."""
    (stage,) = make_stages(
        (num_layers,),
        family,
        seed=seed,
        dtype=dtype,
        backends=backends,
        device=device,
        max_context=max_context,
    )
    return stage


def make_stages(
    layers: Sequence[int],
    family: str = "llama",
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    backends: Backends = REFERENCE,
    device: torch.device = CPU,
    group: TensorGroup | None = None,
    kv_heads: int = 2,
    max_context: int = MAX_CONTEXT,
    with_mtp: bool = False,
) -> list[Stage]:
    """The same model however it is cut: `layers` of each stage, and the part of a tensor rank."""
    config = make_config(
        family,
        num_layers=sum(layers),
        max_context=max_context,
        kv_heads=kv_heads,
        with_mtp=with_mtp,
    )
    group = group or Alone()
    mesh = Mesh(tp_rank=group.rank, tp_size=group.size)
    placement = Placement(dtype=dtype, device=device, backends=backends, mesh=mesh, group=group)
    stages, first = [], 0
    for count in layers:
        stage = Stage(
            config,
            layers=range(first, first + count),
            max_context=max_context,
            placement=placement,
            with_mtp=with_mtp,
        )
        first += count
        _fill(stage, seed=seed)
        stage.finish()
        stages.append(stage)
    return stages


def _fill(stage: Stage, *, seed: int) -> None:
    """Random values that depend on a tensor's name alone."""
    for name, weight in stage.named_parameters():
        assert isinstance(weight, Weight)
        for block, target in weight.targets():
            generator = torch.Generator().manual_seed(crc32(f"{name} {block} {seed}".encode()))
            values = torch.randn(target.shape, generator=generator, dtype=torch.float64)
            is_centred = "norm" in name and not _is_zero_centred(stage, name)
            values = 1 + 0.1 * values if is_centred else values * 0.35
            target.view.copy_(values[target.part])


def _is_zero_centred(stage: Stage, name: str) -> bool:
    """Of all norms that of a delta net is not."""
    return stage.config.norm.zero_centred and not name.endswith("mixer.norm.weight")


def make_topology(
    stages: Sequence[int], *, tp: int = 1, cohorts: int = 1, lanes: str = "local"
) -> Topology:
    """All stages of a tensor rank in one worker."""
    return Topology(
        stages=tuple(stages), tp=tp, cohorts=cohorts, lanes=lanes, stages_per_worker=len(stages)
    )


def no_wire(name: LaneName) -> Wire:
    raise AssertionError(f"{name} has both ends here")


def make_limits(
    *,
    num_pages: int = 65,
    num_slots: int = 9,
    max_context: int = MAX_CONTEXT,
    prefill_tokens: int = 64,
    cohorts: int = 1,
    num_snapshots: int = 0,
    max_drafts: int = 0,
) -> RunLimits:
    """As many running sequences as slots."""
    return RunLimits(
        num_pages=num_pages,
        num_slots=num_slots,
        max_context=max_context,
        max_running=num_slots - 1,
        prefill_tokens=prefill_tokens,
        cohorts=cohorts,
        num_snapshots=num_snapshots,
        max_drafts=max_drafts,
    )


def make_run(
    *stages: Stage,
    num_pages: int = 65,
    num_slots: int = 9,
    prefill_tokens: int = 64,
    poison: bool = True,
    max_context: int = MAX_CONTEXT,
    device: torch.device = CPU,
    cohorts: int = 1,
    lanes: str = "local",
    num_snapshots: int = 0,
    max_drafts: int = 0,
    make_drafter: Callable[[Seat], Drafter] | None = None,
    synthetic_acceptance: tuple[float, ...] = (),
) -> WorkerRun:
    """With poisoned pools and staging: what is read and was not written is NaN."""
    layers = [len(stage.blocks) for stage in stages]
    mesh = stages[0].placement.mesh
    return make_worker_run(
        stages,
        placing=Placing(
            topology=make_topology(layers, tp=mesh.tp_size, cohorts=cohorts, lanes=lanes),
            worker=mesh.tp_rank,
            connect=no_wire,
            note=lambda *said: None,
            poison=poison,
            make_drafter=make_drafter,
            synthetic_acceptance=synthetic_acceptance,
        ),
        limits=make_limits(
            num_pages=num_pages,
            num_slots=num_slots,
            max_context=max_context,
            prefill_tokens=prefill_tokens,
            cohorts=cohorts,
            num_snapshots=num_snapshots,
            max_drafts=max_drafts,
        ),
        kv_dtype=torch.float64,
        device=device,
    )


# -- one request alone ----------------------------------------------------------------------------


def forward_whole(stage: Stage, tokens: list[int]) -> Tensor:
    """Logits [len(tokens), V] by one prefill from nothing."""
    pages = torch.arange(1, 1 + pages_of(len(tokens)), dtype=torch.int32)
    position, none = torch.arange(len(tokens)), torch.zeros(0, dtype=torch.int64)
    batch = Batch(
        positions=position,
        store=PAGE_TOKENS + position,
        prefill=(PrefillSpan(offset=0, count=len(tokens), start=0, pages=pages, slot=1),),
        verify_offset=len(tokens),
        verify_width=1,
        verify_pages=torch.zeros((0, 0), dtype=torch.int32),
        verify_lengths=none,
        verify_slots=none,
        verify_folds=none,
    )
    caches = allocate_caches(
        stage.cache_specs(torch.float64),
        limits=make_limits(num_pages=len(pages) + 1, num_slots=2),
        dtype=torch.float64,
        kv_dtype=torch.float64,
        device=CPU,
    )
    with torch.inference_mode():
        return stage.logits(stage.forward(torch.tensor(tokens), batch, caches.layers).hidden)


def tables_of(request: Request, output: list[int]) -> SampleTables:
    """The sampling tables of this one request in slot 0."""
    sampling = request.sampling
    floats = torch.zeros(1, op.NUM_FLOATS, dtype=torch.float64)
    floats[0, op.TEMPERATURE] = sampling.temperature
    floats[0, op.TOP_P] = sampling.top_p
    floats[0, op.MIN_P] = sampling.min_p
    floats[0, op.PRESENCE] = sampling.presence_penalty
    floats[0, op.FREQUENCY] = sampling.frequency_penalty
    floats[0, op.REPETITION] = sampling.repetition_penalty
    ints = torch.zeros(1, op.NUM_INTS, dtype=torch.int64)
    ints[0, op.SEED] = request.seed
    ints[0, op.TOP_K] = max(sampling.top_k, 0)
    ints[0, op.MIN_END] = len(request.prompt_ids) + sampling.min_tokens
    counts = torch.zeros(1, VOCAB, dtype=torch.int32)
    for token in set(request.prompt_ids):
        counts[0, token] = op.IN_PROMPT
    for token in output:
        counts[0, token] += 1
    return SampleTables(
        floats=floats,
        ints=ints,
        stop_ids=torch.tensor([[*request.stop_ids, -1]]),
        bias_ids=torch.tensor([[*sampling.logit_bias, -1]]),
        bias_values=torch.tensor([[*sampling.logit_bias.values(), 0.0]], dtype=torch.float64),
        counts=counts,
    )


def check_alone(
    stage: Stage,
    request: Request,
    tokens: list[int],
    finish: FinishReason | None,
    *,
    max_context: int = MAX_CONTEXT,
) -> None:
    """`tokens` and `finish` are what the request gives alone; with `finish` None, how it begins.

    One prefill over prompt and answer gives every step's logits: what is after a token cannot
    change them. So by induction the answer is that of recomputing everything for each token.
    """
    sampling, prompt = request.sampling, request.prompt_ids
    assert sampling.max_tokens is not None
    limit = min(sampling.max_tokens, max_context - len(prompt))
    logits = forward_whole(stage, prompt + tokens[:-1])[len(prompt) - 1 :]
    for index, token in enumerate(tokens):
        drawn = op.sample(
            logits[index : index + 1],
            slots=torch.tensor([0]),
            position=torch.tensor([len(prompt) + index]),
            tables=tables_of(request, tokens[:index]),
            flags=(op.RowFlag.RANDOM,),
            backend="reference",
        )
        assert token == drawn.item(), f"request {request.id}: other token {index}"
    ends = [index for index, token in enumerate(tokens) if token in request.stop_ids]
    if finish is None:
        assert not ends and len(tokens) <= limit
    elif finish is FinishReason.STOP:
        assert ends == [len(tokens) - 1] and len(tokens) <= limit
    else:
        assert finish is FinishReason.LENGTH and not ends and len(tokens) == limit


# -- requests -------------------------------------------------------------------------------------


def make_request(
    request_id: int,
    *,
    prompt: Iterable[int],
    max_tokens: int = 8,
    stop_ids: Iterable[int] = (),
    seed: int = 7,
    temperature: float = 0.0,
    **sampling: object,
) -> Request:
    return Request(
        id=request_id,
        prompt_ids=list(prompt),
        sampling=msgspec.convert(
            {"max_tokens": max_tokens, "temperature": temperature, **sampling}, SamplingParams
        ),
        seed=seed,
        stop_ids=tuple(stop_ids),
    )


def random_request(
    request_id: int,
    rng: random.Random,
    *,
    prefixes: list[list[int]],
    is_hungry: bool = False,
    **fixed: object,
) -> Request:
    """Any parameters, a prompt of 1 to 63 tokens that may begin like others. A hungry one outgrows
    the pages it began with."""
    prompt = list(rng.choice(prefixes)) if rng.random() < 0.6 else []
    prompt += [rng.randrange(VOCAB) for _ in range(rng.choice([1, 2, 5, 15, 16, 17, 30]))]
    sampling: dict[str, object] = {}
    if rng.random() < 0.6:
        sampling |= {"temperature": rng.choice([0.3, 1.0, 1.7])}
        sampling |= rng.choice([{}, {"top_p": 0.8}, {"top_k": 5}, {"min_p": 0.1}, {"top_p": 0.9}])
    if rng.random() < 0.4:
        sampling |= {
            "presence_penalty": rng.choice([0.0, 1.5]),
            "frequency_penalty": rng.choice([0.7, -0.5]),
            "repetition_penalty": rng.choice([1.0, 1.4]),
        }
    if rng.random() < 0.3:
        sampling["logit_bias"] = {rng.randrange(VOCAB): rng.uniform(-8, 8) for _ in range(3)}
    max_tokens = rng.choice([45, 60] if is_hungry else [1, 2, 9, 20, 45])
    if rng.random() < 0.3:
        sampling["min_tokens"] = rng.randrange(max_tokens + 1)
    return make_request(
        request_id,
        prompt=prompt,
        max_tokens=max_tokens,
        stop_ids=rng.sample(range(VOCAB), rng.choice([0, 1, 6])),
        seed=rng.randrange(-(2**63), 2**63),
        **(sampling | fixed),
    )


# -- many requests --------------------------------------------------------------------------------


@dataclass(slots=True)
class Answer:
    tokens: list[int] = field(default_factory=list)
    end: RequestOutput | None = None


class Loop:
    """Scheduler and runtime, with up to `depth` steps in flight; every message crosses as bytes."""

    def __init__(
        self,
        run: WorkerRun,
        *,
        num_pages: int = 65,
        num_slots: int = 9,
        prefill_tokens: int = 64,
        depth: int = 2,
        max_context: int = MAX_CONTEXT,
        cohorts: int = 1,
        num_snapshots: int | None = None,
        max_drafts: int = 0,
        drafts_from_ids: bool = False,
    ) -> None:
        limits = Limits(
            max_context=max_context,
            max_running=num_slots - 1,
            prefill_tokens=prefill_tokens,
            max_in_flight=depth,
            num_cohorts=cohorts,
            min_shared_tokens=PAGE_TOKENS,
            max_drafts=max_drafts,
            drafts_from_ids=drafts_from_ids,
        )
        manager = CacheManager(
            num_pages=num_pages,
            num_slots=num_slots,
            num_cohorts=cohorts,
            num_snapshots=num_snapshots,
        )
        self.scheduler = Scheduler(limits, manager)
        self._max_context = max_context
        self.run = run
        self.answers: dict[int, Answer] = {}
        self.plans: list[StepPlan] = []
        self.results: list[StepResult] = []
        self._pending: deque[WorkerPending] = deque()

    def add(self, *requests: Request) -> None:
        for request in requests:
            self.answers[request.id] = Answer()
        self._take(self.scheduler.add(requests))

    def abort(self, *ids: int) -> None:
        self._take(self.scheduler.abort(ids))

    def step(self) -> None:
        while (plan := self.scheduler.plan()) is not None:
            plan = _decode_plan(_encode(plan))
            self.plans.append(plan)
            self._pending.append(self.run.launch(plan))
        if self._pending:
            given = self._pending.popleft().result()
            assert given is not None
            result = _decode_result(_encode(given))
            self.results.append(result)
            self._take(self.scheduler.commit(result))
            self.scheduler.check()

    def finish(self) -> None:
        while self.scheduler.has_work:
            self.step()

    def check_answers(self, stage: Stage, requests: Iterable[Request]) -> None:
        """Each request gave what it gives alone, up to its end."""
        for request in requests:
            answer = self.answers[request.id]
            assert answer.end is not None, f"request {request.id} has no end"
            finish = answer.end.finish
            assert finish is not FinishReason.ERROR, answer.end.error
            is_cut = finish is FinishReason.ABORT
            check_alone(
                stage,
                request,
                answer.tokens,
                None if is_cut else finish,
                max_context=self._max_context,
            )

    def _take(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            answer = self.answers[output.id]
            assert answer.end is None
            answer.tokens += output.token_ids
            answer.end = output if output.finish is not None else None
