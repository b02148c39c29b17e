"""What a step gave: copied into its staging entry on the device's side, read on the host's.

`collect` runs on the thread that enqueues and reads nothing; `StepPending.result` waits for the
entry's event, on whichever thread wants the result, and frees the entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from draftmark.core.step import (
    PromptLogprobs,
    ResultRow,
    StepPlan,
    StepResult,
    TokenLogprobs,
)
from draftmark.kernels.sample import Logprobs
from draftmark.runtime.relay import (
    PACKED_BAD_LAYER,
    PACKED_DONE,
    PACKED_DRAFTED,
    PACKED_EMITTED,
    PACKED_FOLD,
    PACKED_LENGTH,
)
from draftmark.runtime.sampler import SampledRows
from draftmark.runtime.staging import StepStaging

# A row of log-probabilities: that of the chosen token, its rank, then ids, then their values.
_FIRST_ID = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPart:
    """Log-probabilities of prefill row `row` lie in `count` rows of the staging from `offset`,
    with `stored` alternatives each."""

    row: int
    offset: int
    count: int
    stored: int


class StepPending:
    """A step that one stage enqueued. `result` must be called once, in the order of the steps."""

    def __init__(self, plan: StepPlan, staging: StepStaging) -> None:
        self._plan = plan
        self._staging = staging
        self._rows: SampledRows | None = None
        self._prompt_parts: list[PromptPart] = []
        self._has_result = False
        self._has_drafted = False
        self.busy_us = 0

    def collect_rows(self, rows: SampledRows) -> None:
        staging = self._staging
        staging.packed[: len(rows.packed)].copy_(rows.packed, non_blocking=True)
        self._rows = rows
        if rows.logprobs is not None:
            _store(rows.logprobs, staging.logprobs)

    def collect_faults(self, faults: Tensor) -> None:
        """`faults` [1] int64: protocol faults so far. Who collects them has a result to tell."""
        self._staging.faults.copy_(faults, non_blocking=True)
        self._has_result = True

    def collect_bad_prefill(self, bad_layers: Tensor) -> None:
        """`bad_layers` [R] int64, -1 for a clean row."""
        self._staging.bad_prefill[: len(bad_layers)].copy_(bad_layers, non_blocking=True)

    def collect_prompt(self, row: int, *, offset: int, parts: Iterable[Logprobs]) -> None:
        """Log-probabilities of prefill row `row`, whose first token has index `offset`."""
        end, stored = offset, 0
        for part in parts:
            _store(part, self._staging.prompt_logprobs[end:])
            end += len(part.chosen)
            stored = part.top_ids.shape[1]
        self._prompt_parts.append(
            PromptPart(row=row, offset=offset, count=end - offset, stored=stored)
        )

    def computing(self) -> None:
        """What the step waited for is here: its work begins."""
        self._staging.clock.begin()

    def drafting(self) -> None:
        """The drafter's work begins."""
        self._staging.draft_clock.begin()

    def drafted(self) -> None:
        self._staging.draft_clock.end()
        self._has_drafted = True

    def enqueued(self) -> None:
        """Nothing more belongs to this step."""
        self._staging.clock.end()
        self._staging.event.record()

    def result(self) -> StepResult | None:
        """Wait for the step and read it; afterwards the staging entry is free, and `busy_us` says
        how long the stage computed. None from who has no result to tell."""
        staging = self._staging
        staging.event.wait()
        self.busy_us = staging.clock.busy_us()
        result = self._read() if self._has_result else None
        staging.release()
        return result

    def _read(self) -> StepResult:
        plan = self._plan
        faults = int(self._staging.faults[0])
        if faults:
            raise AssertionError(
                f"step {plan.step}: {faults} return rows came for a generation that is not there"
            )
        return StepResult(
            plan.step,
            plan.cohort,
            self._result_rows(),
            [self._prompt(part) for part in self._prompt_parts],
            self._bad_prefill(),
            self.busy_us,
            self._staging.draft_clock.busy_us() if self._has_drafted else 0,
        )

    def _result_rows(self) -> list[ResultRow]:
        rows = self._rows
        if rows is None:
            return []
        planned = self._plan.sampling
        packed = self._staging.packed[: len(planned)].tolist()
        first = self._staging.layout.packed_emitted
        return [
            ResultRow(
                row.slot,
                row.generation,
                words[first : first + words[PACKED_EMITTED]],
                words[PACKED_LENGTH],
                words[PACKED_FOLD],
                bool(words[PACKED_DONE]),
                words[PACKED_BAD_LAYER],
                logprobs,
                words[PACKED_DRAFTED],
            )
            for row, words, logprobs in zip(planned, packed, self._logprobs(packed), strict=True)
        ]

    def _logprobs(self, packed: list[list[int]]) -> list[list[TokenLogprobs] | None]:
        """Of each row: None where none are wanted."""
        rows = self._rows
        assert rows is not None
        entries: list[list[TokenLogprobs] | None] = [None] * len(packed)
        if rows.logprobs is None:
            return entries
        stored, first = rows.logprobs.top_ids.shape[1], self._staging.layout.packed_emitted
        values = iter(self._staging.logprobs[: len(rows.logprobs.chosen)].tolist())
        for row, (top, words) in enumerate(zip(rows.logprobs_wanted, packed, strict=True)):
            if top < 0:
                continue
            own = [next(values) for _ in range(rows.width_of(row))][: words[PACKED_EMITTED]]
            tokens = words[first : first + len(own)]
            entries[row] = [
                _entry(token, value, top=top, stored=stored)
                for token, value in zip(tokens, own, strict=True)
            ]
        return entries

    def _prompt(self, part: PromptPart) -> PromptLogprobs:
        row = self._plan.prefill[part.row]
        values = self._staging.prompt_logprobs[part.offset : part.offset + part.count].tolist()
        tokens = [*row.ids[1:], row.lookahead][: part.count]
        entries = [
            _entry(token, words, top=row.prompt_logprobs, stored=part.stored)
            for token, words in zip(tokens, values, strict=True)
        ]
        return PromptLogprobs(row.slot, row.generation, row.start, entries)

    def _bad_prefill(self) -> list[tuple[int, int, int]]:
        layers = self._staging.bad_prefill[: len(self._plan.prefill)].tolist()
        return [
            (row.slot, row.generation, layer)
            for row, layer in zip(self._plan.prefill, layers, strict=True)
            if layer >= 0 and not row.samples
        ]


def _store(logprobs: Logprobs, into: Tensor) -> None:
    """Copy to the first rows and columns of `into`: chosen, rank, ids, values of the ids."""
    columns = (logprobs.chosen[:, None], logprobs.rank[:, None], logprobs.top_ids)
    packed = torch.cat([*(c.to(torch.float64) for c in columns), logprobs.top_values], dim=1)
    count, width = packed.shape
    into[:count, :width].copy_(packed, non_blocking=True)


def _entry(token: int, words: list[float], *, top: int, stored: int) -> TokenLogprobs:
    """The first `top` alternatives of the `stored` ones."""
    ids = [int(word) for word in words[_FIRST_ID : _FIRST_ID + min(top, stored)]]
    values = words[_FIRST_ID + stored :]
    chosen, rank = words[:_FIRST_ID]
    return TokenLogprobs(token, chosen, int(rank), list(zip(ids, values, strict=False)))
