"""Applies a step's result: tokens to sequences, pages to the cache, ends to requests.

Results come in plan order, one or more plans late. A row whose sequence has left meanwhile counts
as overrun and changes nothing else. What contradicts the plan is a fault of ours and raises.
"""

from __future__ import annotations

from draftmark.cache.manager import CacheManager
from draftmark.cache.spec import PAGE_TOKENS
from draftmark.core.messages import DraftUse, RequestOutput
from draftmark.core.request import FinishReason
from draftmark.core.step import PromptLogprobs, ResultRow, StepResult, TokenLogprobs
from draftmark.core.topology import Topology
from draftmark.scheduler.acceptance import Acceptance
from draftmark.scheduler.draft_count import DraftCount
from draftmark.scheduler.exits import Exits, Totals
from draftmark.scheduler.planner import Chunk, InFlight
from draftmark.scheduler.queue import Sequence, State
from draftmark.scheduler.roster import Roster


class Committer:
    def __init__(
        self,
        *,
        manager: CacheManager,
        roster: Roster,
        exits: Exits,
        totals: Totals,
        acceptance: Acceptance,
        draft_count: DraftCount,
        topology: Topology,
    ) -> None:
        """`topology` says where a layer is that a fault is found in."""
        self._topology = topology
        self._acceptance = acceptance
        self._draft_count = draft_count
        self._manager = manager
        self._roster = roster
        self._exits = exits
        self._totals = totals

    def commit(self, step: InFlight, result: StepResult) -> list[RequestOutput]:
        """`step` is the plan whose result this is; returns what its requests got."""
        _check_same(step, result)
        outputs: list[RequestOutput] = []
        rows = result.rows
        if step.chunks:
            sampled = sum(chunk.samples for chunk in step.chunks)
            self._commit_chunks(step, result, outputs)
            rows = rows[sampled:]
        width = step.width
        if not step.drafts and self._draft_count.max_drafts:
            _leave_undrafted(rows, step.verify)
        if width > 1:
            self._count_drafts(rows, step.verify)
            self._totals.verify_us += result.run_us - result.draft_us
        # This loop is most of a step's cost on the host: the ordinary row is handled in it.
        for row, sequence in zip(rows, step.verify, strict=True):
            if row.generation != sequence.generation or row.slot != sequence.slot:
                raise AssertionError(_stranger(row, sequence, step.step))
            sequence.ahead -= width
            if row.done or row.length >= sequence.notice or row.bad_layer >= 0:
                self._commit_row(row, sequence, step, outputs)
                continue
            tokens, emitted = sequence.tokens, row.emitted
            tokens += emitted
            if len(tokens) != row.length + 1:
                raise AssertionError(_miscount(row, sequence, step.step))
            sequence.length = row.length
            if len(emitted) < width:
                self._lower_bound(sequence)
            drafts = _drafts_so_far(sequence) if width > 1 else None
            outputs.append(RequestOutput(sequence.id, emitted, None, row.logprobs, drafts=drafts))
        if step.verify and width == step.drafts + 1 and not step.chunks:
            self._draft_count.observe(
                step.drafts, rows=len(rows), context=step.context, ms=result.run_us / 1e3
            )
        self._exits.settle(step.step)
        self._totals.steps += 1
        self._totals.rows += len(result.rows) + sum(not chunk.samples for chunk in step.chunks)
        self._totals.worker_us += result.run_us
        self._totals.draft_us += result.draft_us
        return outputs

    def _count_drafts(self, rows: list[ResultRow], sequences: list[Sequence]) -> None:
        self._acceptance.observe(rows)
        for row, sequence in zip(rows, sequences, strict=True):
            if row.drafted and row.emitted and not _has_left(sequence):
                sequence.windows += 1
                sequence.drafted += row.drafted
                sequence.accepted += len(row.emitted) - 1

    def _commit_chunks(
        self, step: InFlight, result: StepResult, outputs: list[RequestOutput]
    ) -> None:
        rows = iter(result.rows)
        bad = {(slot, generation): layer for slot, generation, layer in result.bad_prefill}
        logprobs = {(part.slot, part.generation): part for part in result.prompt_logprobs}
        for chunk in step.chunks:
            sequence = chunk.sequence
            sequence.ahead -= chunk.stop - chunk.start
            key = (sequence.slot, sequence.generation)
            row = next(rows) if chunk.samples else None
            layer = bad.pop(key, -1)
            part = logprobs.pop(key, None)
            if row is not None:
                if (row.slot, row.generation) != key:
                    raise AssertionError(_stranger(row, sequence, step.step))
                layer = max(layer, row.bad_layer)
            if layer >= 0:
                self._fail_bad(sequence, layer=layer, step=step, outputs=outputs)
            elif _has_left(sequence):
                self._totals.overrun_tokens += len(row.emitted) if row is not None else 0
            else:
                if part is not None or sequence.wants_prompt_logprobs:
                    _gather(sequence, chunk, part)
                self._manager.commit(sequence.holding, chunk.stop)
                sequence.length = chunk.stop
                if row is not None:
                    self._commit_row(row, sequence, step, outputs)
                elif chunk.is_last:
                    outputs.append(_output(sequence, [], FinishReason.LENGTH, logprobs=None))
                    self._exits.end(sequence, num_output=0)
        if bad or logprobs:
            raise AssertionError(f"step {step.step} returned rows that are not in its plan")

    def _commit_row(
        self, row: ResultRow, sequence: Sequence, step: InFlight, outputs: list[RequestOutput]
    ) -> None:
        """Any row, whatever became of its sequence."""
        if row.bad_layer >= 0:
            self._fail_bad(sequence, layer=row.bad_layer, step=step, outputs=outputs)
            return
        if _has_left(sequence):
            self._totals.overrun_tokens += len(row.emitted)
            return
        tokens, emitted = sequence.tokens, row.emitted
        tokens += emitted
        if not emitted or len(tokens) != row.length + 1:
            raise AssertionError(_miscount(row, sequence, step.step))
        sequence.length = row.length
        self._lower_bound(sequence)
        self._manager.commit(sequence.holding, row.length)
        reason = _device_reason(sequence) if row.done else None
        if reason is None and len(tokens) >= sequence.end:
            raise AssertionError(f"slot {row.slot} ran past its end at step {step.step}")
        beyond, reason = _host_end(sequence, reason)
        kept = len(emitted) - beyond
        output = _output(
            sequence,
            emitted[:kept],
            reason,
            logprobs=None if row.logprobs is None else row.logprobs[:kept],
        )
        outputs.append(output)
        if reason is None:
            _watch_for(sequence)
        else:
            self._totals.overrun_tokens += beyond
            self._exits.end(sequence, num_output=sequence.num_output - beyond)

    def _lower_bound(self, sequence: Sequence) -> None:
        """Drafts of it were rejected, or may have been: it is known better now how long it is."""
        bound = min(sequence.length + sequence.ahead, sequence.most)
        if sequence.state is State.RUNNING:
            self._roster.cohorts.all[sequence.cohort].tokens += bound - sequence.bound
        sequence.bound = bound

    def _fail_bad(
        self, sequence: Sequence, *, layer: int, step: InFlight, outputs: list[RequestOutput]
    ) -> None:
        """A non-finite value: the request ends, and none of the step's pages becomes matchable."""
        totals = self._totals
        totals.bad_rows += 1
        if totals.first_bad_layer < 0 or layer < totals.first_bad_layer:
            totals.first_bad_layer = layer
        if _has_left(sequence):
            return
        message = (
            f"a non-finite value appeared in {self._topology.place_of(layer)} at step "
            f"{step.step}, row {_row_index(step, sequence)} (slot {sequence.slot})"
        )
        self._exits.end(sequence, num_output=sequence.num_output)
        use = sequence.draft_use
        outputs.append(
            RequestOutput(sequence.id, [], FinishReason.ERROR, error=message, drafts=use)
        )


def _leave_undrafted(rows: list[ResultRow], sequences: list[Sequence]) -> None:
    """A step without drafts runs the head for prompts only: it has no entries of the tokens that
    verify rows gave, nor will it be able to make that of the next one."""
    for row, sequence in zip(rows, sequences, strict=True):
        sequence.holding.drafted_from = row.length + 1


def _watch_for(sequence: Sequence) -> None:
    """Set the length from which a result needs a closer look: a page is full, or the end."""
    if sequence.state is State.RUNNING and sequence.finish_at is None:
        full = (len(sequence.holding.nodes) + 1) * PAGE_TOKENS
        sequence.notice = min(full, sequence.end - 1)
    else:
        sequence.notice = 0


def _has_left(sequence: Sequence) -> bool:
    """Its request has had its end; a preempted sequence has not."""
    return sequence.state is State.DRAINING and not sequence.resumes


def _device_reason(sequence: Sequence) -> FinishReason:
    """Why the device ended the row: a stop id wins over the length at the same token."""
    if sequence.tokens[-1] in sequence.request.stop_ids:
        return FinishReason.STOP
    assert len(sequence.tokens) == sequence.end, f"slot {sequence.slot} ended for no reason"
    return FinishReason.LENGTH


def _host_end(sequence: Sequence, reason: FinishReason | None) -> tuple[int, FinishReason | None]:
    """(tokens beyond the end, reason) when the host named an index ahead of what was known: the
    smaller index wins, the device's at a tie."""
    if sequence.finish_at is None:
        return 0, reason
    index, host_reason = sequence.finish_at
    beyond = sequence.num_output - index
    if beyond > 0 or (beyond == 0 and reason is None):
        return beyond, host_reason
    return 0, reason


def _output(
    sequence: Sequence,
    tokens: list[int],
    finish: FinishReason | None,
    *,
    logprobs: list[TokenLogprobs] | None,
) -> RequestOutput:
    """An output; the first one also says what is said once."""
    drafts = sequence.draft_use if finish is not None else _drafts_so_far(sequence)
    if not sequence.is_first_output:
        return RequestOutput(sequence.id, tokens, finish, logprobs, drafts=drafts)
    wants_prompt = sequence.wants_prompt_logprobs
    sequence.is_first_output = False
    return RequestOutput(
        sequence.id,
        tokens,
        finish,
        logprobs,
        sequence.prompt_logprobs if wants_prompt else None,
        sequence.cached_tokens,
        drafts=drafts,
    )


def _drafts_so_far(sequence: Sequence) -> DraftUse | None:
    """What an output says that is not the last one."""
    return sequence.draft_use if sequence.request.sampling.stop else None


def _gather(sequence: Sequence, chunk: Chunk, part: PromptLogprobs | None) -> None:
    """Append a chunk's log-probabilities; entry j is of the token at index start + 1 + j."""
    entries = [] if part is None else part.entries
    expected = min(chunk.stop, sequence.num_prompt - 1) - chunk.start
    if len(entries) != expected or (part is not None and part.start != chunk.start):
        raise AssertionError(
            f"slot {sequence.slot}: prompt log-probabilities of {len(entries)} tokens came, "
            f"planned {expected} from {chunk.start}"
        )
    sequence.prompt_logprobs += entries


def _check_same(step: InFlight, result: StepResult) -> None:
    rows = sum(chunk.samples for chunk in step.chunks) + len(step.verify)
    if (result.step, result.cohort, len(result.rows)) != (step.step, step.cohort, rows):
        raise AssertionError(
            f"result of step {result.step}, cohort {result.cohort}, {len(result.rows)} rows came "
            f"for step {step.step}, cohort {step.cohort}, {rows} rows"
        )


def _stranger(row: ResultRow, sequence: Sequence, step: int) -> str:
    return (
        f"step {step} returned slot {row.slot} generation {row.generation} for slot "
        f"{sequence.slot} generation {sequence.generation}"
    )


def _miscount(row: ResultRow, sequence: Sequence, step: int) -> str:
    return (
        f"step {step}, slot {row.slot}: length {row.length} after {len(row.emitted)} emitted "
        f"tokens, the host knows {len(sequence.tokens)}"
    )


def _row_index(step: InFlight, sequence: Sequence) -> int:
    """Index of a sequence's row in its plan, prefill rows first."""
    rows = [chunk.sequence for chunk in step.chunks] + step.verify
    return rows.index(sequence)
