"""An engine in this process whose answers a test chooses: what `server.seam.ServedEngine` promises.

By default the next token is a function of the prompt and the seed, and answers end by themselves.
It takes steps in a task while there is something to do; `pause` stops it between steps.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftmark.core.errors import Overloaded, Unavailable
from draftmark.core.messages import DraftStats, DraftUse, EngineState, EngineStats, RequestOutput
from draftmark.core.request import FinishReason, Request
from draftmark.core.resolve import load_config, resolve
from draftmark.core.start import DeviceFacts, ModelFacts
from draftmark.core.step import TokenLogprobs
from draftmark.engine.stream import OutputStream

CONTEXT = 512
# A to Z of the byte-level test tokenizer, and its <|im_end|>.
LETTERS = range(32, 58)
EOS = 263
VOCAB = 264


def hashed_answer(request: Request) -> list[int]:
    """5 to 20 letters and the end token, as prompt (and seed, unless greedy) will have it."""
    seed = request.seed if request.sampling.temperature else 0
    digest = hashlib.sha256(f"{request.prompt_ids}{seed}".encode()).digest()
    letters = [LETTERS[byte % len(LETTERS)] for byte in digest[: 5 + digest[-1] % 16]]
    return [*letters, EOS]


@dataclass
class Live:
    """One request in the engine."""

    request: Request
    stream: OutputStream
    answer: list[int]
    prefill_left: int
    done: int = 0
    is_running: bool = False
    windows: int = 0
    drafted: int = 0
    accepted: int = 0

    @property
    def drafts(self) -> DraftUse | None:
        return DraftUse(self.windows, self.drafted, self.accepted) if self.windows else None


@dataclass
class FakeEngine:
    """`tokens_a_step`, `prefill_steps` and `capacity` shape the course of events; `fail_after` ends
    each request with an error after so many tokens; `refuse` ends it at once with status 400;
    `stacks_text` None is an engine that does not answer. With `draft_tokens` each step after a
    request's first is a window of so many drafts, or as many as the request wants: what it emits
    beyond one token was accepted. `drafts` are the totals that it tells.
    """

    answer: Callable[[Request], list[int]] = hashed_answer
    capacity: int = 4
    most_in_flight: int = 64
    tokens_a_step: int = 1
    prefill_steps: int = 1
    step_s: float = 0.0
    fail_after: int | None = None
    refuse: str = ""
    cached_tokens: int = 0
    draft_tokens: int = 0
    drafts: DraftStats | None = None
    stacks_text: str | None = "fake stacks\n"

    def __post_init__(self) -> None:
        self.state = EngineState("ready", "", self._record())
        self.abort_calls: list[int] = []
        self.finish_calls: list[tuple[int, int, FinishReason]] = []
        self.submitted: list[Request] = []
        self.ended: list[int] = []
        self.steps = 0
        self.cached_pages = 3
        self._live: dict[int, Live] = {}
        self._ids = itertools.count(1)
        self._go = asyncio.Event()
        self._go.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop: asyncio.Task[None] | None = None

    # -- the seam

    @property
    def ready(self) -> dict[str, object]:
        return self.state.ready or {}

    @property
    def stats(self) -> EngineStats:
        running = sum(live.is_running for live in self._live.values())
        return EngineStats(
            waiting=len(self._live) - running,
            running=running,
            pages_total=100,
            pages_free=100 - 10 * running,
            slots_total=self.capacity,
            slots_free=self.capacity - running,
            aborts=len(self.abort_calls),
            drafts=self.drafts,
        )

    def new_ids(self, count: int) -> list[int]:
        return list(itertools.islice(self._ids, count))

    def submit(self, requests: Sequence[Request]) -> list[OutputStream]:
        if self.state.state != "ready":
            raise Unavailable(f"the engine is {self.state.state}: {self.state.detail}")
        if len(self._live) + len(requests) > self.most_in_flight:
            raise Overloaded("the queue is full", retry_after_s=2)
        streams = [OutputStream(request.id) for request in requests]
        for request, stream in zip(requests, streams, strict=True):
            self.submitted.append(request)
            self._live[request.id] = Live(
                request, stream, self._clipped(request), self.prefill_steps
            )
        self._idle.clear()
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._run())
        return streams

    def abort(self, ids: Sequence[int]) -> None:
        """Remembers every call, also for requests that had ended."""
        for request_id in ids:
            self.abort_calls.append(request_id)
            if request_id in self._live:
                self._end(self._live[request_id], FinishReason.ABORT)

    def finish(self, request_id: int, num_tokens: int, reason: FinishReason) -> None:
        self.finish_calls.append((request_id, num_tokens, reason))
        if request_id in self._live:
            self._end(self._live[request_id], reason)

    async def reset_cache(self) -> int:
        dropped, self.cached_pages = self.cached_pages, 0
        return dropped

    async def stacks(self) -> str:
        if self.stacks_text is None:
            raise Unavailable("the engine did not answer within 3 s")
        return self.stacks_text

    # -- what a test does to it

    def pause(self) -> None:
        self._go.clear()

    def resume(self) -> None:
        self._go.set()

    def fail(self, reason: str) -> None:
        """As if the engine process had died."""
        self.state = EngineState("failed", reason, self.state.ready)
        for live in list(self._live.values()):
            self._end(live, FinishReason.ERROR, error=reason)

    async def wait_idle(self) -> None:
        """Return once nothing runs or waits."""
        await self._idle.wait()

    async def wait_steps(self, count: int) -> None:
        """Return after `count` more steps."""
        wanted = self.steps + count
        while self.steps < wanted:
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    # -- its inside

    async def _run(self) -> None:
        while self._live:
            await self._go.wait()
            self.step()
            await asyncio.sleep(self.step_s)

    def step(self) -> None:
        """Admit what fits by priority and arrival, then one step of each that runs."""
        self.steps += 1
        waiting = [live for live in self._live.values() if not live.is_running]
        free = self.capacity - (len(self._live) - len(waiting))
        for live in sorted(waiting, key=lambda item: item.request.priority)[: max(free, 0)]:
            live.is_running = True
        for live in list(self._live.values()):
            if live.is_running:
                self._advance(live)

    def _advance(self, live: Live) -> None:
        if self.refuse:
            self._end(live, FinishReason.ERROR, error=self.refuse, status=400)
            return
        if live.prefill_left > 1:
            live.prefill_left -= 1
            return
        fresh = live.answer[live.done : live.done + self.tokens_a_step]
        is_first = live.done == 0
        self._count_drafts(live, len(fresh))
        live.done += len(fresh)
        if self.fail_after is not None and live.done > self.fail_after:
            self._end(live, FinishReason.ERROR, error="injected fault")
            return
        finish = None
        if live.done == len(live.answer):
            ends = bool(live.answer) and live.answer[-1] in live.request.stop_ids
            finish = FinishReason.STOP if ends else FinishReason.LENGTH
        wants, prompt = live.request.sampling.logprobs, live.request.sampling.prompt_logprobs
        ids = live.request.prompt_ids
        output = RequestOutput(
            live.request.id,
            fresh,
            finish,
            None if wants is None else [fake_logprob(token, wants) for token in fresh],
            [fake_logprob(token, prompt) for token in ids[1:]]
            if prompt is not None and is_first
            else None,
            self.cached_tokens if is_first else -1,
            drafts=live.drafts if finish or live.request.sampling.stop else None,
        )
        live.stream.push(output)
        if finish is not None:
            self._forget(live)

    def _count_drafts(self, live: Live, emitted: int) -> None:
        wanted = live.request.sampling.draft_tokens
        drafts = self.draft_tokens if wanted is None else wanted
        if drafts and live.done:
            live.windows += 1
            live.drafted += drafts
            live.accepted += emitted - 1

    def _end(self, live: Live, reason: FinishReason, *, error: str = "", status: int = 500) -> None:
        output = RequestOutput(
            live.request.id, [], reason, error=error, error_status=status, drafts=live.drafts
        )
        live.stream.push(output)
        self._forget(live)

    def _forget(self, live: Live) -> None:
        del self._live[live.request.id]
        self.ended.append(live.request.id)
        if not self._live:
            self._idle.set()

    def _clipped(self, request: Request) -> list[int]:
        """The answer up to a stop id and max_tokens; without an end of its own it goes round."""
        sampling = request.sampling
        assert sampling.max_tokens is not None
        if sampling.max_tokens == 0:
            return []
        clipped: list[int] = []
        for token in itertools.cycle(self.answer(request)):
            clipped.append(token)
            is_end = token in request.stop_ids and len(clipped) > sampling.min_tokens
            if is_end or len(clipped) == sampling.max_tokens:
                break
        return clipped

    def _record(self) -> dict[str, object]:
        return {
            "start_id": "fake",
            "vocab_size": VOCAB,
            "max_context": CONTEXT,
            "eos_ids": [EOS],
            "max_running": self.capacity,
            "draft_tokens": self.draft_tokens,
            "resolved": _resolved(),
        }


@functools.cache
def _resolved() -> dict[str, object]:
    resolved = resolve(load_config({}), _model_facts(), _device_facts())
    return resolved.with_value("kv_pool_tokens", 4096).record()


def fake_logprob(token: int, num_top: int) -> TokenLogprobs:
    """-(token mod 7) / 10, and likelier letters as alternatives."""
    top = [(LETTERS[index], -0.01 * (index + 1)) for index in range(num_top)]
    return TokenLogprobs(token, -(token % 7) / 10, num_top + 1, top)


def _model_facts() -> ModelFacts:
    return ModelFacts(
        model_type="fake",
        architecture="FakeForCausalLM",
        num_layers=1,
        vocab_size=VOCAB,
        max_context=CONTEXT,
        dtype="float32",
        eos_ids=(EOS,),
        num_parameters=1,
        checkpoint_bytes=4,
    )


def _device_facts() -> DeviceFacts:
    return DeviceFacts(
        kind="cpu",
        name="fake",
        domain="fake",
        total_bytes=2**30,
        free_bytes=2**30,
        threads=1,
        probe_ms={"float32": 1.0, "bfloat16": 2.0},
    )
