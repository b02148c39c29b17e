"""A scheduler and a fake worker on one clock that the test turns by hand.

Plans and results pass through their wire format; the answers of every request are kept, and what
each must be at the end is checked against the request run alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from draftmark.cache.manager import CacheManager
from draftmark.cache.spec import PAGE_TOKENS
from draftmark.core.messages import DraftUse, RequestOutput
from draftmark.core.request import FinishReason, Request, SamplingParams
from draftmark.core.start import CostPoint
from draftmark.core.step import StepPlan, StepResult, TokenLogprobs
from draftmark.scheduler.policy import Limits
from draftmark.scheduler.scheduler import Scheduler
from tests.fakes.worker import VOCAB_SIZE, FakeWorker, Window, expected

_encode = msgspec.msgpack.Encoder().encode
_decode_plan = msgspec.msgpack.Decoder(StepPlan).decode
_decode_result = msgspec.msgpack.Decoder(StepResult).decode


def make_request(
    request_id: int,
    *,
    prompt: Sequence[int],
    max_tokens: int | None = 8,
    stop_ids: Iterable[int] = (),
    priority: int = 0,
    seed: int = 7,
    history_tokens: int | None = None,
    **sampling: object,
) -> Request:
    return Request(
        id=request_id,
        prompt_ids=list(prompt),
        sampling=msgspec.convert({"max_tokens": max_tokens, **sampling}, SamplingParams),
        seed=seed,
        stop_ids=tuple(stop_ids),
        priority=priority,
        history_tokens=history_tokens,
    )


def prompt_of(length: int, *, salt: int = 0) -> list[int]:
    """A prompt; two with one salt share their beginning."""
    draw = random.Random(salt)
    return [draw.randrange(VOCAB_SIZE) for _ in range(length)]


@dataclass(slots=True)
class Answer:
    """What came out for one request."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] | None = None
    cached_tokens: int = -1
    end: RequestOutput | None = None
    end_at: int | None = None  # a host end cuts here
    outputs: int = 0
    uses: list[DraftUse | None] = field(default_factory=list)


class Simulation:
    def __init__(
        self,
        *,
        num_pages: int = 65,
        num_slots: int = 9,
        max_context: int = 512,
        max_running: int = 8,
        prefill_tokens: int = 32,
        max_in_flight: int | None = None,
        num_cohorts: int = 1,
        min_shared_tokens: int = 16,
        max_prefix_waits: int = 16,
        max_turn_ms: float | None = None,
        num_snapshots: int | None = None,
        snapshot_grain: int = 64,
        snapshot_stride: int = 8192,
        max_drafts: int = 0,
        adapts_drafts: bool = False,
        drafts_from_ids: bool = False,
        cost_table: Iterable[CostPoint] = (),
        bad: Mapping[int, int] | None = None,
        strict: bool = True,
        manager: CacheManager | None = None,
        make_worker: type[FakeWorker] = FakeWorker,
    ) -> None:
        self.limits = Limits(
            max_context=max_context,
            max_running=max_running,
            prefill_tokens=prefill_tokens,
            max_turn_ms=max_turn_ms,
            max_in_flight=max_in_flight,
            num_cohorts=num_cohorts,
            min_shared_tokens=min_shared_tokens,
            max_prefix_waits=max_prefix_waits,
            snapshot_grain=snapshot_grain,
            snapshot_stride=snapshot_stride,
            max_drafts=max_drafts,
            adapts_drafts=adapts_drafts,
            drafts_from_ids=drafts_from_ids,
        )
        self.manager = manager or CacheManager(
            num_pages=num_pages,
            num_slots=num_slots,
            num_cohorts=num_cohorts,
            num_snapshots=num_snapshots,
        )
        self.scheduler = Scheduler(self.limits, self.manager, cost_table=cost_table)
        self.worker = make_worker(
            num_pages=num_pages,
            num_slots=num_slots,
            max_context=max_context,
            bad=bad,
            strict=strict,
            num_cohorts=num_cohorts,
            num_snapshots=num_snapshots,
            max_drafts=max_drafts,
            drafts_from_ids=drafts_from_ids,
        )
        self.requests: dict[int, Request] = {}
        self.answers: dict[int, Answer] = {}
        self.plans: list[StepPlan] = []
        self.results: list[StepResult] = []
        # Windows with drafts whose results came, and those of each request before its end.
        self.windows: list[Window] = []
        self.windows_of: dict[int, list[Window]] = {}
        self.checks = True
        self.tamper: Callable[[StepPlan], StepPlan] = lambda plan: plan

    def add(self, *requests: Request) -> None:
        for request in requests:
            self.requests[request.id] = request
            self.answers[request.id] = Answer()
        self._take(self.scheduler.add(requests))

    def abort(self, *ids: int) -> None:
        self._take(self.scheduler.abort(ids))

    def finish(self, request_id: int, num_tokens: int, reason: FinishReason) -> None:
        """As the host does, which has the request's tokens so far."""
        answer = self.answers[request_id]
        if answer.end is None:
            known = num_tokens if answer.end_at is None else min(answer.end_at, num_tokens)
            answer.end_at = known
        self._take(self.scheduler.finish(request_id, num_tokens, reason))

    def plan(self) -> StepPlan | None:
        """One more plan, submitted, if there can be one."""
        plan = self.scheduler.plan()
        if plan is None:
            return None
        sent = self.tamper(_decode_plan(_encode(plan)))
        self.plans.append(sent)
        self.worker.submit(sent)
        self._check()
        return sent

    def receive(self) -> bool:
        """Commit the oldest result; False when there is none."""
        result = self.worker.receive()
        if result is None:
            return False
        self.results.append(result)
        for window in self.worker.windows.pop(result.step, ()):
            self.windows.append(window)
            if self.answers[window.request].end is None:
                self.windows_of.setdefault(window.request, []).append(window)
        self._take(self.scheduler.commit(_decode_result(_encode(result))))
        self._check()
        return True

    def step(self) -> None:
        """Plan as far ahead as may be, then one result."""
        while self.plan() is not None:
            pass
        self.receive()

    def run(self, *, most_steps: int = 20_000) -> None:
        """Until nothing is left to do."""
        for _ in range(most_steps):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError(f"no end after {most_steps} steps: {self.scheduler.describe()}")

    def tokens(self, request_id: int) -> list[int]:
        """The tokens of a request up to its end."""
        answer = self.answers[request_id]
        return answer.tokens[: answer.end_at] if answer.end_at is not None else answer.tokens

    def finish_of(self, request_id: int) -> FinishReason | None:
        end = self.answers[request_id].end
        return end.finish if end is not None else None

    def check_answers(self) -> None:
        """Every request has had its end, and what it gave is what it gives alone."""
        for request_id in self.requests:
            self.check_answer(request_id)

    def check_answer(self, request_id: int) -> None:
        request, answer = self.requests[request_id], self.answers[request_id]
        assert answer.end is not None, f"request {request_id} has no end"
        finish = answer.end.finish
        if answer.end.error_status == 400:
            assert finish is FinishReason.ERROR and not answer.tokens
            return
        given = self.tokens(request_id)
        is_cut = finish in (FinishReason.ABORT, FinishReason.ERROR)
        alone = expected(
            request,
            max_context=self.limits.max_context,
            most=len(given) if is_cut else None,
        )
        assert given == alone.tokens[: len(given)], f"request {request_id} gave other tokens"
        if alone.logprobs is not None:
            assert answer.logprobs[: len(given)] == alone.logprobs[: len(given)]
        if answer.cached_tokens >= 0:
            assert answer.prompt_logprobs == alone.prompt_logprobs
        if is_cut:
            return
        if answer.end_at is not None and answer.end_at < len(alone.tokens):
            assert len(given) == answer.end_at
        else:
            assert given == alone.tokens, f"request {request_id} gave {len(given)} tokens"
            assert answer.end_at is not None or finish is alone.finish

    def check_drafts(self) -> None:
        """What is told of drafts, for each request and in all, is what the device made of them."""
        for request_id, answer in self.answers.items():
            assert answer.end is not None
            seen = self.windows_of.get(request_id, [])
            assert answer.end.drafts == (_use_of(seen) if seen else None), f"request {request_id}"
            asked = self.requests[request_id].sampling.draft_tokens
            assert asked is None or all(window.drafted <= asked for window in seen), (
                f"request {request_id} had more drafts than the {asked} it asked for"
            )
        stats, most = self.scheduler.stats().drafts, self.limits.max_drafts
        assert (stats is None) == (most == 0)
        if stats is None:
            return
        told = DraftUse(stats.windows, stats.drafted, stats.accepted)
        assert told == _use_of(self.windows)
        positions = range(most)
        judged = [sum(window.judged > j for window in self.windows) for j in positions]
        accepted = [sum(window.accepted > j for window in self.windows) for j in positions]
        assert (stats.judged_at, stats.accepted_at) == (judged, accepted)
        widths = {plan.step: plan.verify_k + 1 for plan in self.plans}
        times = [(result.run_us, result.draft_us, widths[result.step]) for result in self.results]
        assert stats.draft_us == sum(draft_us for _, draft_us, _ in times)
        assert stats.verify_us == sum(run - drafts for run, drafts, width in times if width > 1)
        turns = Counter(plan.draft_k for plan in self.plans if plan.verify)
        assert stats.turns == [turns[count] for count in range(most + 1)]

    def check_idle(self) -> None:
        """Nothing is held: pages and slots are what they were at the start."""
        self.scheduler.check()
        stats = self.scheduler.stats()
        assert (stats.waiting, stats.running, stats.draining) == (0, 0, 0)
        assert self.manager.num_owned == self.manager.num_draining == 0
        assert stats.slots_free == stats.slots_total
        assert stats.pages_free + stats.pages_cached == stats.pages_total
        assert self.scheduler.reset_cache() == stats.pages_cached
        emptied = self.scheduler.stats()
        assert emptied.pages_free == stats.pages_total
        assert emptied.snapshots_used == 0
        self.scheduler.check()

    def _check(self) -> None:
        if self.checks:
            self.scheduler.check()

    def _take(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            answer = self.answers[output.id]
            assert answer.end is None, f"request {output.id} got something after its end"
            assert output.token_ids or output.finish is not None, "an empty output"
            answer.outputs += 1
            answer.uses.append(output.drafts)
            answer.tokens += output.token_ids
            if output.logprobs is not None:
                assert len(output.logprobs) == len(output.token_ids)
                answer.logprobs += output.logprobs
            if output.cached_tokens >= 0:
                assert answer.cached_tokens < 0, "said twice"
                assert output.cached_tokens % PAGE_TOKENS == 0
                answer.cached_tokens = output.cached_tokens
                answer.prompt_logprobs = output.prompt_logprobs
            answer.end = output if output.finish is not None else None
        self._check()


def _use_of(windows: list[Window]) -> DraftUse:
    drafted = sum(window.drafted for window in windows)
    return DraftUse(len(windows), drafted, sum(window.accepted for window in windows))
