"""Plans that time a few steps: the cost table, and every lazy start paid for.

The steps are ordinary plans. Page tables share the same few pages, and the context of a decoding
row is claimed as cached, so nothing has to be prefilled for it. What they leave behind goes with
the reset of the slots, but for finite numbers in pages that nobody owns yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from draftmark.core.start import CostPoint
from draftmark.core.step import Admit, PageDelta, PrefillRow, RowSampling, StepPlan, VerifyRow

VERIFY_ROWS = (1, 4, 16, 64)
PREFILL_TOKENS = (16, 128, 512)
CONTEXT_TOKENS = 256
REPEATS = 3

_GREEDY = RowSampling(0, 0.0, 1.0, 0, 0.0, 0.0, 0.0, 1.0, -1)

# Runs a step to its end; the milliseconds it took.
Run = Callable[[StepPlan], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpLimits:
    """What the plans keep to. `num_pages` includes page 0; `drafts` are the numbers of drafts a row
    that steps may make, beside none."""

    num_pages: int
    page_tokens: int
    max_context: int
    max_running: int
    prefill_tokens: int
    cohorts: int = 1
    drafts: tuple[int, ...] = ()

    @property
    def context(self) -> int:
        """Of a decoding row."""
        return max(1, min(CONTEXT_TOKENS, self.max_context // 2))

    @property
    def pages_to_zero(self) -> int:
        """Pages that must hold finite numbers, because they are claimed as cached."""
        return 1 + self.pages_of(self.context)

    def pages_of(self, tokens: int) -> int:
        return -(-tokens // self.page_tokens)


def measure_costs(run: Run, limits: WarmUpLimits, *, each_s: float) -> list[CostPoint]:
    """Measured points, smallest first. Each number of drafts, and prefill, have `each_s`, prefill
    also what is left: points that would take longer are left out, but never the smallest of a kind.
    Pages must be zeroed before, slots reset after."""
    warm_up = WarmUp(run, limits)
    deadline = time.perf_counter()
    points: list[CostPoint] = []
    for sizes, kinds, measure in (
        (_up_to(VERIFY_ROWS, limits.max_running), 1 + len(limits.drafts), warm_up.verify),
        (_up_to(PREFILL_TOKENS, limits.prefill_tokens), 1, warm_up.prefill),
    ):
        deadline += kinds * each_s
        seconds_each = 0.0
        for size in sizes:
            # Taken as linear in the last one: too long rather than too short.
            if seconds_each and time.perf_counter() + 2 * size * seconds_each > deadline:
                break
            found = measure(size, deadline)
            points += found
            seconds_each = sum(point.ms for point in found) / 1e3 / size
    return points


class WarmUp:
    """Numbers its plans so far apart that what one returns is known to the next."""

    def __init__(self, run: Run, limits: WarmUpLimits) -> None:
        self._run = run
        self._limits = limits
        self._context = limits.context
        self._steps = 0
        self._admitted = 0
        self._generation = 1

    def verify(self, rows: int, deadline: float) -> list[CostPoint]:
        """A decode step of `rows` rows, for each number of drafts that they run and make."""
        fresh = range(self._admitted + 1, rows + 1)
        if fresh:
            self._prefill(fresh, start=self._context - 1, count=1)
            self._admitted = rows
        plan_rows = [VerifyRow(slot, 1) for slot in range(1, rows + 1)]
        counts = (0, *self._limits.drafts)
        steps = [partial(self._launch, verify=plan_rows, drafts=drafts) for drafts in counts]
        times = _best(steps, deadline)
        return [
            CostPoint(rows, 0, self._context, ms, drafts)
            for drafts, ms in zip(counts, times, strict=True)
        ]

    def prefill(self, tokens: int, deadline: float) -> list[CostPoint]:
        """A prompt of `tokens` tokens, or as many as the context allows."""
        count = min(tokens, self._limits.max_context - 1)

        def run() -> float:
            self._generation += 1
            return self._prefill(range(1, 2), start=0, count=count)

        [ms] = _best([run], deadline)
        return [CostPoint(0, count, 0, ms)]

    def _prefill(self, slots: range, *, start: int, count: int) -> float:
        limits, generation = self._limits, self._generation
        pages = [1 + i % (limits.num_pages - 1) for i in range(limits.pages_of(limits.max_context))]
        return self._launch(
            admits=[
                Admit(
                    slot,
                    generation,
                    0,
                    start,
                    limits.max_context,
                    0,
                    (),
                    _GREEDY,
                    max_drafts=max(limits.drafts, default=0),
                    drafted_from=start + 1,
                )
                for slot in slots
            ],
            pages=[PageDelta(slot, generation, 0, pages) for slot in slots],
            prefill=[
                PrefillRow(slot, generation, start, [0] * count, -1, samples=True) for slot in slots
            ],
        )

    def _launch(
        self,
        *,
        admits: Sequence[Admit] = (),
        pages: Sequence[PageDelta] = (),
        prefill: Sequence[PrefillRow] = (),
        verify: Sequence[VerifyRow] = (),
        drafts: int = 0,
    ) -> float:
        """Run one step; the milliseconds it took."""
        step, cohorts = self._steps, self._limits.cohorts
        plan = StepPlan(
            step,
            step % cohorts,
            drafts,
            drafts,
            list(admits),
            list(pages),
            list(prefill),
            list(verify),
        )
        self._steps += cohorts + 1
        return self._run(plan)


def _best(steps: Sequence[Callable[[], float]], deadline: float) -> list[float]:
    """Milliseconds of each step, the best of a few rounds, so that a neighbour who is busy for a
    while slows all of them; the first round, which may start things, counts only if alone."""
    rounds = [[step() for step in steps]]
    while len(rounds) <= REPEATS and time.perf_counter() + sum(rounds[-1]) / 1e3 < deadline:
        rounds.append([step() for step in steps])
    return [round(min(times), 3) for times in zip(*(rounds[1:] or rounds), strict=True)]


def _up_to(sizes: tuple[int, ...], most: int) -> list[int]:
    """Those below `most`, and `most` itself."""
    return sorted({*(size for size in sizes if size < most), most})
