"""`StepPlan` and `StepResult`: the only data that crosses between deciding and computing.

A plan is blind: no field depends on a token the host has not received. A *verify row* names a
slot; its length, tokens and positions live on the device. A *prefill row* carries ids. What the
host adds about a sequence (sampling parameters, page-table deltas) is said once, at admission or
when pages are appended, never repeated.

Words: `length` of a slot is the number of tokens whose keys and values are written. The token
at index `length` (sampled, not yet run) is the slot's *pending* token. The token sampled from the
logits of index i has index i + 1, and its noise is drawn from (seed, i + 1).

Steps take turns: step n is of cohort n mod M. What it gave (its *return*: token, length, done) is
applied to the slots at the head of the first step from n + M on, before that step's admits.

Structs are encoded as arrays (`array_like`): field order is the wire format, append only.
"""

from __future__ import annotations

import msgspec


class RowSampling(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Sampling parameters of a slot, as the sampler needs them (floats validated on admission).

    `logprobs` is -1 for none. `bias` holds (token id, added logit) pairs.
    """

    seed: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logprobs: int
    bias: tuple[tuple[int, float], ...] = ()


class Admit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sequence takes a slot under a new generation. Sent in the plan of its first prefill row.

    `end` is the total token count (prompt + emitted) at which the slot is done with reason
    length: min(prompt + max_tokens, context). Stores at positions >= `end` go to the dump page.
    While the total is below `min_end`, ids in `stop_ids` cannot be sampled. `request` labels
    faults. `cached` is the number of leading tokens whose pages come from the prefix cache.
    `prompt_ids` and `output_ids` are what the device must be told of the ids so far: all of them
    with penalties, which count them; the `cached` ones, which no prefill row brings, where drafts
    are made from ids; else none.
    `restore` is the snapshot, saved after exactly those `cached` tokens, that is copied into the
    slot before any row of the step runs; -1: the slot's recurrent state begins at zero.
    `max_drafts` is the most drafts a step makes for it. `drafted_from` is the index before which a
    head that drafts has no entries; those of cached tokens from there on are in their pages, and
    above `cached` the hidden state before the first token to run is gone too.
    """

    slot: int
    generation: int
    request: int
    cached: int
    end: int
    min_end: int
    stop_ids: tuple[int, ...]
    sampling: RowSampling
    prompt_ids: list[int] = []
    output_ids: list[int] = []
    restore: int = -1
    max_drafts: int = 0
    drafted_from: int = 1


class PageDelta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Append `pages` to the slot's page table, beginning at table index `first`."""

    slot: int
    generation: int
    first: int
    pages: list[int]


class PrefillRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Run `ids` at positions start .. start + len(ids) - 1.

    `lookahead` is the id after the chunk, or -1 when this is the last chunk: then the row samples
    the next token and the slot becomes a verify row's. `prompt_logprobs` is -1 for none; else
    the result carries log-probabilities of the tokens after each position of the chunk.
    `samples` is False for a last chunk that must not emit (max_tokens 0).

    `snapshot` is the place in the snapshot pool where the slot's recurrent state at the end of the
    chunk, which is then at a multiple of 16, is saved; -1 for none. Whatever was there is
    overwritten in plan order: after the restores of this step.
    """

    slot: int
    generation: int
    start: int
    ids: list[int]
    lookahead: int
    samples: bool
    prompt_logprobs: int = -1
    snapshot: int = -1

    @property
    def is_last(self) -> bool:
        return self.lookahead < 0


class VerifyRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Run the slot's pending token and its drafts. Plain decoding is a verify row with no draft.

    In step n, the last step before it with a row of the slot is n - M or earlier, so that its
    return is applied.
    """

    slot: int
    generation: int


class StepPlan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One step, the same bytes for every rank: the turn of `cohort`, whose rows `verify` has.

    Applied in order: admits, page deltas, prefill rows, verify rows. `prefill` has chunks of any
    sequences: chunks of one prompt may be in consecutive steps. A verify row runs its pending token
    and `verify_k` places for drafts, of which it may have fewer; rows that sample get up to
    `draft_k` drafts for their next step. Step ids rise over the life of an engine, with gaps: a
    turn in which nothing runs has no step, and when no step was in flight, the next id is more than
    M above the last.
    """

    step: int
    cohort: int
    verify_k: int
    draft_k: int
    admits: list[Admit]
    pages: list[PageDelta]
    prefill: list[PrefillRow]
    verify: list[VerifyRow]

    @property
    def sampling(self) -> list[PrefillRow | VerifyRow]:
        """The rows that sample, in the order of the result."""
        return [*(row for row in self.prefill if row.samples), *self.verify]

    @property
    def num_tokens(self) -> int:
        return sum(len(row.ids) for row in self.prefill) + len(self.verify) * (self.verify_k + 1)


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Log-probability of one token under the model's own distribution (before any processing).

    `rank` is 1 for the most likely token. `top` holds (id, logprob), most likely first.
    """

    token: int
    logprob: float
    rank: int
    top: list[tuple[int, float]] = []


class ResultRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one sampling row gave: for each verify row, and each last prefill row that samples.

    `emitted` is empty for a row that was already done. `length` is the slot's length after the
    step and `fold` the accepted count its next fold must apply (0 after prefill); they are
    separate words on purpose. `done` is set when the device ended the row (stop id or `end`).
    `bad_layer` is the first layer with a non-finite value, -1 for none. `drafted` is how many
    drafts stood in its window.
    """

    slot: int
    generation: int
    emitted: list[int]
    length: int
    fold: int
    done: bool
    bad_layer: int = -1
    logprobs: list[TokenLogprobs] | None = None
    drafted: int = 0


class PromptLogprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Entry j is the token at index start + 1 + j given everything before it."""

    slot: int
    generation: int
    start: int
    entries: list[TokenLogprobs]


class StepResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Outcome of one plan, in the plan's row order: sampling prefill rows, then verify rows.

    `bad_prefill` names (slot, generation, layer) of non-sampling prefill rows with a non-finite
    value. `run_us` is how long the last stage computed, of which `draft_us` went into drafts.
    """

    step: int
    cohort: int
    rows: list[ResultRow]
    prompt_logprobs: list[PromptLogprobs] = []
    bad_prefill: list[tuple[int, int, int]] = []
    run_us: int = 0
    draft_us: int = 0
