"""`FakeWorker`: executes plans as a device would, on the host, with a hash for a model.

"Keys and values" of a token are (token, position), written to the pool through the slot's own page
table. The next token is a hash of every entry read back through that table, so a stale, foreign,
missing or remapped page changes the answer. Slot state and page tables are kept as a device keeps
them: nothing is cleared when a slot changes hands. All rows of a step store before any row reads.

What a step samples comes back late, as in a pipeline: its *return* (token, length, done) is applied
to the slot at the head of the first step `num_cohorts` or more later, and whoever has the slot then
gets it. A row that is planned sooner runs the token before once more; a sequence that is admitted
sooner ends when its predecessor did.

With `num_snapshots` the model is a hybrid one: each slot has a state, which is the list of all
entries that its rows ran, and which no page table can mend. A row whose state is not that of its
pages gives another answer.

`expected` says what a request gives when nothing goes wrong, without any of this machinery.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from draftmark.cache.spec import PAGE_TOKENS, STATE_TOKENS
from draftmark.core.request import FinishReason, Request
from draftmark.core.step import (
    Admit,
    PageDelta,
    PrefillRow,
    PromptLogprobs,
    ResultRow,
    RowSampling,
    StepPlan,
    StepResult,
    TokenLogprobs,
    VerifyRow,
)

VOCAB_SIZE = 61
_POISON = -1
_NOT_FINITE = -2
_BAD_LAYER = 3
_NEVER = -1000


class DeviceCrash(AssertionError):
    """A plan that no device could run: wrong generation, missing slot, page out of the pool."""


@dataclass(frozen=True, slots=True)
class _Return:
    """What step `step` sampled for a slot, not applied to it yet."""

    step: int
    row: VerifyRow | PrefillRow
    token: int
    length: int
    is_done: bool


@dataclass(slots=True)
class _Slot:
    pages: list[int]
    generation: int = 0
    request: int = -1
    num_pages: int = 0
    length: int = 0
    pending: int = 0
    is_done: bool = True
    end: int = 0
    min_end: int = 0
    stop_ids: frozenset[int] = frozenset()
    sampling: RowSampling | None = None
    prompt_counts: Counter[int] = field(default_factory=Counter)
    output_counts: Counter[int] = field(default_factory=Counter)
    last_step: int = _NEVER
    state: array[int] = field(default_factory=lambda: array("q"))


class FakeWorker:
    """`execute` gives a plan's result at once; `submit` and `receive` give it when asked.

    `bad` maps a request id to the position whose values are not finite. With `poison`, a page that
    is handed out anew loses what it held. With `strict`, a plan that breaks the protocol crashes
    even where the answer would not show it. Step ids rise, and may have gaps.
    """

    def __init__(
        self,
        *,
        num_pages: int,
        num_slots: int,
        max_context: int = 1 << 14,
        vocab_size: int = VOCAB_SIZE,
        bad: Mapping[int, int] | None = None,
        poison: bool = True,
        strict: bool = True,
        num_cohorts: int = 1,
        num_snapshots: int | None = None,
    ) -> None:
        width = -(-max_context // PAGE_TOKENS)
        self.pool = array("q", [_POISON]) * (num_pages * PAGE_TOKENS)
        self.slots = [_Slot(pages=[0] * width) for _ in range(num_slots)]
        self.num_pages = num_pages
        self.vocab_size = vocab_size
        self.bad = dict(bad or {})
        self.poison = poison
        self.strict = strict
        self.num_cohorts = num_cohorts
        self.last_step = -1
        self.delivered = -1
        self.returns: deque[_Return] = deque()
        self.results: deque[StepResult] = deque()
        self.rows_of: Counter[int] = Counter()  # request id -> rows run for it, inert ones too
        self.has_state = num_snapshots is not None
        never = array("q", [_POISON])
        self.snapshots = [never for _ in range(num_snapshots or 0)]
        self._holder: dict[int, tuple[int, int]] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        self.submit(plan)
        result = self.receive()
        assert result is not None
        return result

    def submit(self, plan: StepPlan) -> None:
        """Run a plan; its result waits for `receive`."""
        self.results.append(self._run(plan))

    def receive(self) -> StepResult | None:
        """The oldest result that was not asked for yet."""
        if not self.results:
            return None
        result = self.results.popleft()
        self.delivered = result.step
        return result

    def _run(self, plan: StepPlan) -> StepResult:
        if plan.step <= self.last_step or plan.cohort != plan.step % self.num_cohorts:
            raise DeviceCrash(
                f"plan {plan.step} of cohort {plan.cohort} came after step {self.last_step}"
            )
        self.last_step = plan.step
        self._begin(plan)
        for delta in plan.pages:
            self._append_pages(delta)
        self._note_rows(plan)
        for row in plan.prefill:
            self._store_prefill(row)
        for verify in plan.verify:
            slot = self.slots[verify.slot]
            self._store(slot, slot.length, slot.pending)
        rows: list[ResultRow] = []
        prompt_logprobs: list[PromptLogprobs] = []
        bad_prefill: list[tuple[int, int, int]] = []
        for row in plan.prefill:
            stop = row.start + len(row.ids)
            if row.prompt_logprobs >= 0:
                prompt_logprobs.append(self._prompt_logprobs(row))
            if row.is_last and row.samples:
                rows.append(self._sample(row, plan.step, length=stop, fold=0))
            elif self._sees_bad(self.slots[row.slot], stop):
                bad_prefill.append((row.slot, row.generation, _BAD_LAYER))
        rows += [self._sample_verify(verify, plan.step) for verify in plan.verify]
        return StepResult(
            plan.step, plan.cohort, rows, prompt_logprobs, bad_prefill, run_us=100 + len(rows)
        )

    def _begin(self, plan: StepPlan) -> None:
        """The head of a step. Returns come first: one may be of a slot that is admitted anew."""
        self._apply_returns(upto=plan.step - self.num_cohorts)
        for admit in plan.admits:
            self._admit(admit, plan.step)

    def _apply_returns(self, *, upto: int) -> None:
        """Those of steps up to `upto`, in the order of their steps."""
        while self.returns and self.returns[0].step <= upto:
            late = self.returns.popleft()
            slot = self._slot(late.row) if self.strict else self.slots[late.row.slot]
            slot.pending, slot.length, slot.is_done = late.token, late.length, late.is_done

    def _note_rows(self, plan: StepPlan) -> None:
        rows: list[PrefillRow | VerifyRow] = [*plan.prefill, *plan.verify]
        if len({row.slot for row in rows}) != len(rows):
            raise DeviceCrash(f"a slot has two rows in step {plan.step}")
        for row in rows:
            slot = self._slot(row)
            is_soon = slot.last_step > plan.step - self.num_cohorts
            if self.strict and is_soon and isinstance(row, VerifyRow):
                raise DeviceCrash(f"slot {row.slot} is in step {plan.step} before its return")
            slot.last_step = plan.step
            self.rows_of[slot.request] += 1

    def _slot(self, row: PrefillRow | VerifyRow | PageDelta) -> _Slot:
        slot = self.slots[row.slot]
        if row.slot == 0 or slot.generation != row.generation:
            raise DeviceCrash(
                f"slot {row.slot} has generation {slot.generation}, the plan says {row.generation}"
            )
        return slot

    def _admit(self, admit: Admit, step: int) -> None:
        slot = self.slots[admit.slot]
        if admit.slot == 0 or admit.generation <= slot.generation:
            raise DeviceCrash(f"slot {admit.slot} was admitted under an old generation")
        if self.strict:
            if slot.last_step > self.delivered:
                raise DeviceCrash(f"slot {admit.slot} is reused before its last result")
            if step <= slot.last_step + self.num_cohorts:
                raise DeviceCrash(f"slot {admit.slot} is reused in step {step} without a rest")
            if admit.generation != slot.generation + 1:
                raise DeviceCrash(f"slot {admit.slot} skipped a generation")
        slot.generation = admit.generation
        slot.request = admit.request
        slot.num_pages = 0
        slot.length = admit.cached
        slot.pending = 0
        slot.state = self._restored(admit)
        slot.is_done = False
        slot.end, slot.min_end = admit.end, admit.min_end
        slot.stop_ids = frozenset(admit.stop_ids)
        slot.sampling = admit.sampling
        slot.prompt_counts = Counter(admit.prompt_ids)
        slot.output_counts = Counter(admit.output_ids)

    def _append_pages(self, delta: PageDelta) -> None:
        slot = self._slot(delta)
        if self.strict and delta.first != slot.num_pages:
            raise DeviceCrash(f"slot {delta.slot} has {slot.num_pages} pages, not {delta.first}")
        cached = slot.length // PAGE_TOKENS if delta.first == 0 else 0
        for index, page in enumerate(delta.pages, start=delta.first):
            if not 0 < page < self.num_pages:
                raise DeviceCrash(f"page {page} is not of the pool")
            slot.pages[index] = page
            if index >= cached:
                self._take_fresh(page, delta)
        slot.num_pages = delta.first + len(delta.pages)

    def _take_fresh(self, page: int, delta: PageDelta) -> None:
        """The page is not a cached one: nobody may need what it holds."""
        if self.strict and page in self._holder:
            index, generation = self._holder[page]
            holder = self.slots[index]
            if holder.generation == generation and holder.last_step > self.delivered:
                raise DeviceCrash(f"page {page} is reused before the last result of slot {index}")
        self._holder[page] = (delta.slot, delta.generation)
        if self.poison:
            start = page * PAGE_TOKENS
            self.pool[start : start + PAGE_TOKENS] = array("q", [_POISON]) * PAGE_TOKENS

    def _restored(self, admit: Admit) -> array[int]:
        """The state that a slot begins with."""
        state = self.snapshots[admit.restore][:] if admit.restore >= 0 else array("q")
        if self.strict and self.has_state and len(state) != admit.cached:
            raise DeviceCrash(
                f"slot {admit.slot} has {admit.cached} cached tokens, snapshot {admit.restore} is "
                f"of {len(state)}"
            )
        return state

    def _store(self, slot: _Slot, position: int, token: int) -> None:
        """To the dump page beyond the slot's end, and of a slot that is done."""
        is_inert = slot.is_done or position >= slot.end
        page = 0 if is_inert else slot.pages[position // PAGE_TOKENS]
        is_bad = self.bad.get(slot.request) == position
        entry = _NOT_FINITE if is_bad else _entry(token, position)
        self.pool[page * PAGE_TOKENS + position % PAGE_TOKENS] = entry
        if self.has_state and not is_inert:
            slot.state.append(entry)

    def _store_prefill(self, row: PrefillRow) -> None:
        slot = self.slots[row.slot]
        if self.strict and row.start != slot.length:
            raise DeviceCrash(f"slot {row.slot} has {slot.length} tokens, a chunk starts elsewhere")
        for i, token in enumerate(row.ids):
            self._store(slot, row.start + i, token)
        slot.length = row.start + len(row.ids)
        if row.snapshot >= 0:
            if slot.length % STATE_TOKENS:
                raise DeviceCrash(f"slot {row.slot}: state is saved after {slot.length} tokens")
            self.snapshots[row.snapshot] = slot.state[:]

    def _sees_bad(self, slot: _Slot, length: int) -> bool:
        """Whether a value that is not finite reaches the last of `length` tokens."""
        if not self.bad:
            return False
        return _NOT_FINITE in array("q", self._read(slot, length))

    def _read(self, slot: _Slot, count: int) -> bytes:
        """Every entry below `count`, through the slot's page table."""
        size = PAGE_TOKENS
        full, rest = divmod(count, size)
        parts = [self.pool[p * size : (p + 1) * size] for p in slot.pages[:full]]
        if rest:
            start = slot.pages[full] * size
            parts.append(self.pool[start : start + rest])
        return b"".join(part.tobytes() for part in parts)

    def _known(self, slot: _Slot, length: int) -> bytes:
        """What the token after the first `length` ones depends on: the entries of pages, and the
        state where it says anything else."""
        entries = self._read(slot, length)
        state = slot.state.tobytes()
        if not self.has_state or state == entries:
            return entries
        if self.strict:
            raise DeviceCrash(
                f"request {slot.request}: the state is not that of its {length} tokens"
            )
        return entries + state

    def _sample_verify(self, row: VerifyRow, step: int) -> ResultRow:
        slot = self.slots[row.slot]
        if slot.is_done:
            return ResultRow(row.slot, row.generation, [], slot.length, 0, True)
        return self._sample(row, step, length=slot.length + 1, fold=1)

    def _sample(
        self, row: PrefillRow | VerifyRow, step: int, *, length: int, fold: int
    ) -> ResultRow:
        """The token after the slot's first `length` ones, which is also the return of the row."""
        slot = self.slots[row.slot]
        assert slot.sampling is not None
        token, logprobs = _choose(
            self._known(slot, length),
            slot.sampling,
            index=length,
            banned=slot.stop_ids if length < slot.min_end else frozenset(),
            penalties=_penalty_state(slot.sampling, slot.prompt_counts, slot.output_counts),
            vocab_size=self.vocab_size,
        )
        slot.output_counts[token] += 1
        is_done = token in slot.stop_ids or length + 1 >= slot.end
        self.returns.append(_Return(step, row, token, length, is_done))
        bad_layer = _BAD_LAYER if self._sees_bad(slot, length) else -1
        return ResultRow(
            row.slot, row.generation, [token], length, fold, is_done, bad_layer, logprobs
        )

    def _prompt_logprobs(self, row: PrefillRow) -> PromptLogprobs:
        slot = self.slots[row.slot]
        following = row.ids[1:] if row.is_last else [*row.ids[1:], row.lookahead]
        entries = self._read(slot, row.start + len(following))
        scores = _score(entries, following, start=row.start, wanted=row.prompt_logprobs)
        return PromptLogprobs(row.slot, row.generation, row.start, scores)


@dataclass(frozen=True, slots=True)
class Expected:
    tokens: list[int]
    finish: FinishReason
    logprobs: list[TokenLogprobs] | None
    prompt_logprobs: list[TokenLogprobs] | None


def expected(
    request: Request,
    *,
    max_context: int = 1 << 14,
    vocab_size: int = VOCAB_SIZE,
    most: int | None = None,
) -> Expected:
    """What the request gives when it runs alone and nothing goes wrong; at most `most` tokens."""
    sampling = request.sampling
    prompt = request.prompt_ids
    row = RowSampling(
        request.seed,
        sampling.temperature,
        sampling.top_p,
        sampling.top_k,
        sampling.min_p,
        sampling.presence_penalty,
        sampling.frequency_penalty,
        sampling.repetition_penalty,
        -1 if sampling.logprobs is None else sampling.logprobs,
    )
    assert sampling.max_tokens is not None
    end = min(len(prompt) + sampling.max_tokens, max_context)
    if most is not None:
        end = min(end, len(prompt) + most)
    tokens = list(prompt)
    logprobs: list[TokenLogprobs] = []
    finish = FinishReason.LENGTH
    while len(tokens) < end and finish is FinishReason.LENGTH:
        below_min = len(tokens) < len(prompt) + sampling.min_tokens
        token, chosen = _choose(
            _entries(tokens),
            row,
            index=len(tokens),
            banned=frozenset(request.stop_ids) if below_min else frozenset(),
            penalties=_penalty_state(row, Counter(prompt), Counter(tokens[len(prompt) :])),
            vocab_size=vocab_size,
        )
        tokens.append(token)
        logprobs += chosen or []
        if token in request.stop_ids:
            finish = FinishReason.STOP
    wanted = sampling.prompt_logprobs
    scores = None
    if wanted is not None:
        scores = _score(_entries(prompt[:-1]), prompt[1:], start=0, wanted=wanted)
    return Expected(
        tokens[len(prompt) :], finish, None if sampling.logprobs is None else logprobs, scores
    )


def _entry(token: int, position: int) -> int:
    return token << 32 | position


def _entries(tokens: Iterable[int]) -> bytes:
    return array("q", [_entry(token, i) for i, token in enumerate(tokens)]).tobytes()


def _penalty_state(
    sampling: RowSampling, prompt: Counter[int], output: Counter[int]
) -> bytes | None:
    """What penalties see: the counts, where there are any penalties."""
    if sampling.presence_penalty or sampling.frequency_penalty:
        return repr((sorted(prompt), sorted(output.items()))).encode()
    return None


def _choose(
    entries: bytes,
    sampling: RowSampling,
    *,
    index: int,
    banned: frozenset[int],
    penalties: bytes | None,
    vocab_size: int,
) -> tuple[int, list[TokenLogprobs] | None]:
    """The token at `index`, and its log-probability if wanted."""
    state = hashlib.blake2b(entries, digest_size=8, salt=index.to_bytes(8, "little"))
    state.update(repr((sampling.seed, penalties)).encode())
    value = int.from_bytes(state.digest(), "little")
    token = value % vocab_size
    while token in banned:
        token = (token + 1) % vocab_size
    if sampling.logprobs < 0:
        return token, None
    return token, [_logprob(value, token, sampling.logprobs)]


def _score(entries: bytes, following: list[int], *, start: int, wanted: int) -> list[TokenLogprobs]:
    """Entry j is of following[j], the token at index start + 1 + j, given all before it."""
    state = hashlib.blake2b(entries[: start * 8], digest_size=8)
    scores = []
    for j, token in enumerate(following):
        state.update(entries[(start + j) * 8 : (start + j + 1) * 8])
        given = state.copy()
        given.update(token.to_bytes(8, "little"))
        scores.append(_logprob(int.from_bytes(given.digest(), "little"), token, wanted))
    return scores


def _logprob(value: int, token: int, wanted: int) -> TokenLogprobs:
    top = [(value % (7 + i), -float(value % (3 + i))) for i in range(wanted)]
    return TokenLogprobs(token, -(value % 1000) / 100, 1 + value % 5, top)
