"""`FakeWorker`: executes plans as a device would, on the host, with a hash for a model.

"Keys and values" of a token are (token, position), written to the pool through the slot's own page
table. The next token is a hash of every entry read back through that table, so a stale, foreign,
missing or remapped page changes the answer. Slot state and page tables are kept as a device keeps
them: nothing is cleared when a slot changes hands. All rows of a step store before any row reads.

What a step samples comes back late, as in a pipeline: its *return* (token, length, fold, done and
the next drafts) is applied to the slot at the head of the first step `num_cohorts` or more later,
and whoever has the slot then gets it. A row that is planned sooner runs the token before once more;
a sequence that is admitted sooner ends when its predecessor did.

With `max_drafts` a verify row runs the drafts that its slot has, behind its pending token. Some are
right and some are wrong, by a hash: a wrong one leaves its entry in the pages until the next window
overwrites it. The drafts come from a *head* with a pool of its own under the same page tables. Its
entry of a token stands at the token's index and is made of the hidden state before it, so that the
step that runs the token before writes it; behind each page it keeps the hidden state of its last
token. A step that drafts nothing runs the head for its prompts only.

With `num_snapshots` the model is a hybrid one: each slot has a state, which is the list of all
entries that its rows ran, and which no page table can mend. A row whose state is not that of its
pages gives another answer. What a verify row runs is recorded, and as many records as the return
says are taken into the state by the next one.

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
# Of 256 drafts, so many are right.
_RIGHT_DRAFTS = 154
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
    fold: int
    drafts: list[int]


@dataclass(frozen=True, slots=True)
class Window:
    """What became of one that had drafts: these, how many of them were compared with what was
    sampled, and how many were right."""

    request: int
    drafted: int
    judged: int
    accepted: int


@dataclass(slots=True)
class _Slot:
    pages: list[int]
    generation: int = 0
    request: int = -1
    num_pages: int = 0
    length: int = 0
    pending: int = 0
    drafts: list[int] = field(default_factory=list)
    fold: int = 0
    is_done: bool = True
    window: list[int] = field(default_factory=list)
    cached: int = 0
    end: int = 0
    min_end: int = 0
    max_drafts: int = 0
    first_of_head: int = 1
    stop_ids: frozenset[int] = frozenset()
    sampling: RowSampling | None = None
    prompt_counts: Counter[int] = field(default_factory=Counter)
    output_counts: Counter[int] = field(default_factory=Counter)
    last_step: int = _NEVER
    state: array[int] = field(default_factory=lambda: array("q"))
    records: array[int] = field(default_factory=lambda: array("q"))


class FakeWorker:
    """`execute` gives a plan's result at once; `submit` and `receive` give it when asked.

    `bad` maps a request id to the position whose values are not finite. With `poison`, a page that
    is handed out anew loses what it held. With `strict`, a plan that breaks the protocol crashes
    even where the answer would not show it. Step ids rise, and may have gaps. `windows` has those
    of each step, until somebody takes them. With `drafts_from_ids` admissions must tell what is
    cached.
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
        max_drafts: int = 0,
        drafts_from_ids: bool = False,
    ) -> None:
        width = -(-max_context // PAGE_TOKENS)
        self.pool = array("q", [_POISON]) * (num_pages * PAGE_TOKENS)
        self.head = self.pool[:]
        self.behind = array("q", [_POISON]) * num_pages
        self.slots = [_Slot(pages=[0] * width) for _ in range(num_slots)]
        self.num_pages = num_pages
        self.vocab_size = vocab_size
        self.bad = dict(bad or {})
        self.poison = poison
        self.strict = strict
        self.num_cohorts = num_cohorts
        self.max_drafts = max_drafts
        self.drafts_from_ids = drafts_from_ids
        self.windows: dict[int, list[Window]] = {}
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
        if max(plan.verify_k, plan.draft_k) > self.max_drafts:
            raise DeviceCrash(f"plan {plan.step} has more than {self.max_drafts} drafts a row")
        self.last_step = plan.step
        self._begin(plan)
        for delta in plan.pages:
            self._append_pages(delta)
        for admit in plan.admits:
            self._check_told(admit)
        self._note_rows(plan)
        for row in plan.prefill:
            self._store_prefill(row)
        for verify in plan.verify:
            self._store_window(verify, plan)
        rows: list[ResultRow] = []
        prompt_logprobs: list[PromptLogprobs] = []
        bad_prefill: list[tuple[int, int, int]] = []
        for row in plan.prefill:
            stop = row.start + len(row.ids)
            if row.prompt_logprobs >= 0:
                prompt_logprobs.append(self._prompt_logprobs(row))
            if row.is_last and row.samples:
                rows.append(self._sample(row, plan, start=stop - 1, window=row.ids[-1:]))
            else:
                if self._sees_bad(self.slots[row.slot], stop):
                    bad_prefill.append((row.slot, row.generation, _BAD_LAYER))
                following = [] if row.is_last else [row.lookahead]
                self._run_head(plan, row, [*row.ids[1:], *following], start=row.start)
        rows += [self._sample_verify(verify, plan) for verify in plan.verify]
        run_us, draft_us = _time_of(plan)
        return StepResult(
            plan.step,
            plan.cohort,
            rows,
            prompt_logprobs,
            bad_prefill,
            run_us=run_us,
            draft_us=draft_us,
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
            slot.fold, slot.drafts = late.fold, late.drafts

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
        slot.length = slot.cached = admit.cached
        slot.pending = slot.fold = 0
        slot.drafts, slot.records = [], array("q")
        slot.max_drafts, slot.first_of_head = admit.max_drafts, admit.drafted_from
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
            for pool in (self.pool, self.head):
                pool[start : start + PAGE_TOKENS] = array("q", [_POISON]) * PAGE_TOKENS
            self.behind[page] = _POISON

    def _restored(self, admit: Admit) -> array[int]:
        """The state that a slot begins with."""
        state = self.snapshots[admit.restore][:] if admit.restore >= 0 else array("q")
        if self.strict and self.has_state and len(state) != admit.cached:
            raise DeviceCrash(
                f"slot {admit.slot} has {admit.cached} cached tokens, snapshot {admit.restore} is "
                f"of {len(state)}"
            )
        return state

    def _check_told(self, admit: Admit) -> None:
        """Whoever drafts from ids is told those of cached tokens, which no row brings."""
        if self.strict and self.drafts_from_ids:
            told = [*admit.prompt_ids, *admit.output_ids][: admit.cached]
            if _entries(told) != self._read(self.slots[admit.slot], admit.cached):
                raise DeviceCrash(f"slot {admit.slot} is not told its cached ids")

    def _page_of(self, slot: _Slot, position: int) -> int:
        if self.strict and position // PAGE_TOKENS >= slot.num_pages:
            raise DeviceCrash(
                f"request {slot.request}: position {position} is outside its {slot.num_pages} pages"
            )
        return slot.pages[position // PAGE_TOKENS]

    def _store(self, slot: _Slot, position: int, token: int) -> int:
        """To the dump page beyond the slot's end, and of a slot that is done. Returns the entry."""
        is_inert = slot.is_done or position >= slot.end
        page = 0 if is_inert else self._page_of(slot, position)
        is_bad = self.bad.get(slot.request) == position
        entry = _NOT_FINITE if is_bad else _entry(token, position)
        self.pool[page * PAGE_TOKENS + position % PAGE_TOKENS] = entry
        return entry

    def _store_prefill(self, row: PrefillRow) -> None:
        slot = self.slots[row.slot]
        if self.strict and row.start != slot.length:
            raise DeviceCrash(f"slot {row.slot} has {slot.length} tokens, a chunk starts elsewhere")
        entries = [self._store(slot, row.start + i, token) for i, token in enumerate(row.ids)]
        if self.has_state:
            slot.state.extend(entries)
        slot.length = row.start + len(row.ids)
        if row.snapshot >= 0:
            if slot.length % STATE_TOKENS:
                raise DeviceCrash(f"slot {row.slot}: state is saved after {slot.length} tokens")
            self.snapshots[row.snapshot] = slot.state[:]

    def _store_window(self, row: VerifyRow, plan: StepPlan) -> None:
        """The pending token and the drafts behind it, as far as they are below the end."""
        slot = self.slots[row.slot]
        if slot.is_done:
            return
        if self.strict and len(slot.drafts) > plan.verify_k:
            raise DeviceCrash(
                f"slot {row.slot} has {len(slot.drafts)} drafts, step {plan.step} runs "
                f"{plan.verify_k}"
            )
        slot.window = [slot.pending, *slot.drafts[: plan.verify_k]]
        del slot.window[max(slot.end - slot.length, 1) :]
        entries = [self._store(slot, slot.length + i, token) for i, token in enumerate(slot.window)]
        if self.has_state:
            slot.state += slot.records[: slot.fold]
            slot.records = array("q", entries)

    def _sees_bad(self, slot: _Slot, length: int) -> bool:
        """Whether a value that is not finite reaches the last of `length` tokens."""
        if not self.bad:
            return False
        return _NOT_FINITE in array("q", self._read(slot, length))

    def _read(self, slot: _Slot, count: int, *, pool: array[int] | None = None) -> bytes:
        """Every entry below `count`, through the slot's page table."""
        pool, size = self.pool if pool is None else pool, PAGE_TOKENS
        full, rest = divmod(count, size)
        parts = [pool[p * size : (p + 1) * size] for p in slot.pages[:full]]
        if rest:
            start = slot.pages[full] * size
            parts.append(pool[start : start + rest])
        return b"".join(part.tobytes() for part in parts)

    def _known(self, slot: _Slot, length: int) -> tuple[bytes, bytes]:
        """What the token after the first `length` ones depends on: the entries of pages, and the
        state where it says anything else."""
        entries = self._read(slot, length)
        if not self.has_state:
            return entries, b""
        state = (slot.state + slot.records).tobytes()
        if state == entries:
            return entries, b""
        if self.strict:
            raise DeviceCrash(
                f"request {slot.request}: the state is not that of its {length} tokens"
            )
        return entries, state

    def _sample_verify(self, row: VerifyRow, plan: StepPlan) -> ResultRow:
        slot = self.slots[row.slot]
        if slot.is_done:
            return ResultRow(row.slot, row.generation, [], slot.length, 0, True)
        return self._sample(row, plan, start=slot.length, window=slot.window)

    def _sample(
        self, row: PrefillRow | VerifyRow, plan: StepPlan, *, start: int, window: list[int]
    ) -> ResultRow:
        """What the tokens of `window`, run from position `start`, emit; it is also the return of
        the row."""
        slot = self.slots[row.slot]
        assert slot.sampling is not None
        is_verify = isinstance(row, VerifyRow)
        drafted = min(len(slot.drafts), plan.verify_k) if is_verify else 0
        if self._sees_bad(slot, start + len(window)):
            self.returns.append(_Return(plan.step, row, 0, start + 1, True, 0, []))
            return ResultRow(
                row.slot, row.generation, [], start + 1, 0, True, _BAD_LAYER, None, drafted
            )
        entries, state = self._known(slot, start + len(window))
        emitted: list[int] = []
        logprobs: list[TokenLogprobs] = []
        judged = 0
        is_done = False
        for place in range(len(window)):
            index = start + place + 1
            behind = 8 * (len(window) - 1 - place)
            token, chosen = self._choose(
                slot,
                entries[: len(entries) - behind] + state[: max(len(state) - behind, 0)],
                index=index,
                output=slot.output_counts,
            )
            slot.output_counts[token] += 1
            emitted.append(token)
            logprobs += chosen or []
            is_done = token in slot.stop_ids or index + 1 >= slot.end
            if is_done or place + 1 == len(window):
                break
            judged += 1
            if window[place + 1] != token:
                break
        length = start + len(emitted)
        if drafted:
            accepted = len(emitted) - 1
            seen = Window(slot.request, drafted, judged, accepted)
            self.windows.setdefault(plan.step, []).append(seen)
        ran = row.ids[1:] if isinstance(row, PrefillRow) else []
        first = row.start if isinstance(row, PrefillRow) else start
        self._run_head(plan, row, [*ran, *emitted], start=first)
        drafts: list[int] = []
        if plan.draft_k and not is_done:
            drafts = self._draft(slot, length, emitted[-1], most=plan.draft_k)
        fold = len(emitted) if is_verify else 0
        self.returns.append(_Return(plan.step, row, emitted[-1], length, is_done, fold, drafts))
        scores = None if slot.sampling.logprobs < 0 else logprobs
        return ResultRow(
            row.slot, row.generation, emitted, length, fold, is_done, -1, scores, drafted
        )

    def _choose(
        self, slot: _Slot, known: bytes, *, index: int, output: Counter[int]
    ) -> tuple[int, list[TokenLogprobs] | None]:
        assert slot.sampling is not None
        return _choose(
            known,
            slot.sampling,
            index=index,
            banned=slot.stop_ids if index < slot.min_end else frozenset(),
            penalties=_penalty_state(slot.sampling, slot.prompt_counts, output),
            vocab_size=self.vocab_size,
        )

    def _run_head(
        self, plan: StepPlan, row: PrefillRow | VerifyRow, following: list[int], *, start: int
    ) -> None:
        """The head's entries of the tokens `following` those that were run, and kept, from `start`
        on."""
        if not self.max_drafts:
            return
        slot = self.slots[row.slot]
        stop = start + (len(row.ids) if isinstance(row, PrefillRow) else len(following))
        if plan.draft_k == 0 and isinstance(row, VerifyRow):
            slot.first_of_head = stop + 1
            return
        if 0 < start == slot.cached and slot.first_of_head <= start:
            self._go_on_with_head(slot, start)
        for index, token in enumerate(following, start=start + 1):
            self._store_in_head(slot, index, token)
        for full in range(start // PAGE_TOKENS, stop // PAGE_TOKENS):
            page = slot.pages[full]
            self.behind[page] = self.pool[page * PAGE_TOKENS + PAGE_TOKENS - 1]

    def _go_on_with_head(self, slot: _Slot, start: int) -> None:
        """Behind a cached prefix the hidden state before the first token that runs is the page's.
        Strict: it must be there."""
        page = slot.pages[start // PAGE_TOKENS - 1]
        if self.strict and self.behind[page] != self.pool[page * PAGE_TOKENS + PAGE_TOKENS - 1]:
            raise DeviceCrash(f"request {slot.request}: no hidden state behind page {page}")
        first = self._page_of(slot, start) * PAGE_TOKENS
        self.head[first] = self.pool[first]

    def _store_in_head(self, slot: _Slot, index: int, token: int) -> None:
        if index < slot.end:
            page = self._page_of(slot, index)
            self.head[page * PAGE_TOKENS + index % PAGE_TOKENS] = _entry(token, index)

    def _draft(self, slot: _Slot, length: int, token: int, *, most: int) -> list[int]:
        """Drafts behind `token`, which is at index `length`: each is what plain decoding gives
        there or not, whatever the one before is. The head runs for `most`, however few there are
        in the end."""
        if self.strict:
            self._check_head(slot, length)
        luck = hashlib.blake2b(repr((slot.request, length)).encode(), digest_size=16).digest()
        entries = self._read(slot, length) + _entries([token], start=length)
        output = slot.output_counts.copy()
        drafts = []
        for number in range(1, most + 1):
            right, _ = self._choose(slot, entries, index=length + number, output=output)
            is_right = luck[number] < _RIGHT_DRAFTS
            draft = right if is_right else (right + 1 + luck[-number] % 5) % self.vocab_size
            drafts.append(draft)
            if number < most:
                self._store_in_head(slot, length + number, draft)
            entries += _entries([right], start=length + number)
            output[right] += 1
        has = (0, 1, most - 1)[luck[0] % 8] if luck[0] % 8 < 3 else most
        return drafts[: min(has, slot.max_drafts)]

    def _check_head(self, slot: _Slot, length: int) -> None:
        """What the head reads is of the tokens that are there."""
        first = 8 * slot.first_of_head
        if self._read(slot, length, pool=self.head)[first:] != self._read(slot, length)[first:]:
            raise DeviceCrash(
                f"request {slot.request}: the head lacks entries from {slot.first_of_head} on"
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


def _entries(tokens: Iterable[int], *, start: int = 0) -> bytes:
    return array("q", [_entry(token, i) for i, token in enumerate(tokens, start=start)]).tobytes()


def step_ms(rows: int, drafts: int) -> float:
    """What a step of so many verify rows takes, each with so many drafts and making as many: one
    row has drafts almost for nothing, and with many rows each token costs."""
    return 1 + 0.02 * drafts + 0.3 * max(0, rows * (drafts + 1) - 6)


def _time_of(plan: StepPlan) -> tuple[int, int]:
    """Microseconds of a step, and of its drafts; one in ten is disturbed."""
    ms = step_ms(len(plan.verify), max(plan.verify_k, plan.draft_k))
    run_us = round(1000 * ms) + 10 * sum(len(row.ids) for row in plan.prefill)
    return run_us * (3 if plan.step % 10 == 7 else 1), 20 * plan.draft_k


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
