"""The sampler in batched torch, exact and without a full sort.

Truncation works on the few candidates whose weight reaches a threshold. The threshold is right by
construction for top_k and min_p; for top_p it is a guess that is checked (the candidates' mass must
reach top_p) and lowered for the rows that fail. Rows go in chunks, so that temporaries stay in the
cache and the workspace is bounded. Sums over the vocabulary go block by block: torch splits a
plain sum differently for one row and for many, and a token must not depend on its batch.

Legend: R rows, V vocabulary, C candidates (padded to the longest row).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from draftmark.kernels.sample import noise
from draftmark.kernels.sample.tables import (
    FREQUENCY,
    MIN_END,
    MIN_P,
    OUTPUT_COUNT,
    PRESENCE,
    PROCESSED,
    REPETITION,
    SEED,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    Logprobs,
    RowFlag,
    SampleTables,
)

# Elements of one [R, V] temporary: 4 MiB in float64.
CHUNK_ELEMENTS = 1 << 19
# Guesses for top_p, as shares of 1 - top_p: a candidate's weight relative to the likeliest one's.
# The last one takes every token.
TOP_P_GUESSES = (0.1, 1e-4, 1e-7, 0.0)
# Mass must reach top_p by more than float64 sums can err, or the row takes the next guess.
MASS_MARGIN = 1.0 + 1e-9
# Keeps 1 / T finite. Any T this small leaves only the largest logit.
MIN_TEMPERATURE = 1e-100


def argmax(logits: Tensor) -> Tensor:
    """Index of the largest of each row [R, V], the lowest among equals. NaN counts as largest.

    torch's own argmax is not vectorised; finding the block first is 4x faster on a CPU.
    """
    num_rows, vocab = logits.shape
    width = math.gcd(vocab, 256)
    if width < 16:
        return logits.argmax(-1)
    blocks = logits.view(num_rows, vocab // width, width)
    first = blocks.amax(-1).argmax(-1)
    block = blocks.gather(1, first[:, None, None].expand(-1, 1, width))[:, 0]
    return first * width + block.argmax(-1)


def is_finite(logits: Tensor) -> Tensor:
    """[R, V] -> [R] bool: every logit of the row is finite."""
    return (logits.amax(-1) - logits.amin(-1)).isfinite()


def sample(
    logits: Tensor,
    *,
    slots: Tensor,
    position: Tensor,
    tables: SampleTables,
    flags: tuple[RowFlag, ...],
) -> Tensor:
    """See `kernels.sample.sample`."""
    tokens = argmax(logits)
    todo = [index for index, flag in enumerate(flags) if flag]
    step = max(1, CHUNK_ELEMENTS // logits.shape[1])
    for begin in range(0, len(todo), step):
        part = todo[begin : begin + step]
        rows = torch.tensor(part, device=logits.device)
        tokens[rows] = _sample_chunk(
            logits[rows].to(torch.promote_types(logits.dtype, torch.float32)),
            slots=slots[rows],
            position=position[rows],
            tables=tables,
            flags=[flags[index] for index in part],
        )
    return tokens


def _sample_chunk(
    x: Tensor, *, slots: Tensor, position: Tensor, tables: SampleTables, flags: list[RowFlag]
) -> Tensor:
    """`x` [R, V] is this call's own copy and is changed in place."""
    if any(flag & PROCESSED for flag in flags):
        process_(x, slots=slots, position=position, tables=tables, flags=flags)
    tokens = argmax(x) if not all(flag & RowFlag.RANDOM for flag in flags) else slots.clone()
    for truncated in (False, True):
        group = [
            index
            for index, flag in enumerate(flags)
            if flag & RowFlag.RANDOM and bool(flag & RowFlag.TRUNCATED) == truncated
        ]
        if not group:
            continue
        rows = torch.tensor(group, device=x.device)
        drawn = _Draw.of(
            x if len(group) == len(flags) else x[rows],
            floats=tables.floats[slots[rows]],
            ints=tables.ints[slots[rows]],
            position=position[rows],
        )
        tokens[rows] = drawn.truncated() if truncated else drawn.whole()
    return tokens


def process_(
    x: Tensor, *, slots: Tensor, position: Tensor, tables: SampleTables, flags: list[RowFlag]
) -> None:
    """Add logit_bias, mask stop ids below min_tokens, apply penalties to `x` [R, V] in place."""

    def rows_with(wanted: RowFlag) -> Tensor | None:
        rows = [index for index, flag in enumerate(flags) if flag & wanted]
        return torch.tensor(rows, device=x.device) if rows else None

    if (rows := rows_with(RowFlag.BIAS)) is not None:
        ids = tables.bias_ids[slots[rows]].clamp_min(0)  # padding adds 0 to token 0
        values = tables.bias_values[slots[rows]].to(x.dtype)
        x.index_put_((rows[:, None], ids), values, accumulate=True)
    if (rows := rows_with(RowFlag.MIN_TOKENS)) is not None:
        ids = tables.stop_ids[slots[rows]]
        too_early = position[rows] < tables.ints[slots[rows], MIN_END]
        masked = (ids >= 0) & too_early[:, None]
        values = torch.zeros(ids.shape, dtype=x.dtype, device=x.device)
        values.masked_fill_(masked, -math.inf)
        x.index_put_((rows[:, None], ids.clamp_min(0)), values, accumulate=True)
    if (rows := rows_with(RowFlag.PENALTIES)) is not None:
        x[rows] = _penalised(
            x[rows], counts=tables.counts[slots[rows]], floats=tables.floats[slots[rows]]
        )


def _penalised(x: Tensor, *, counts: Tensor, floats: Tensor) -> Tensor:
    """Repetition over prompt and output, then frequency and presence over output (as vLLM)."""
    presence, frequency, repetition = (
        floats[:, [PRESENCE, FREQUENCY, REPETITION]].to(x.dtype).T[:, :, None]
    )
    outputs = (counts & OUTPUT_COUNT).to(x.dtype)
    repeated = torch.where(x > 0, x / repetition, x * repetition)
    x = torch.where(counts != 0, repeated, x)
    return x - outputs * frequency - (outputs > 0) * presence


@dataclass(frozen=True, slots=True)
class _Draw:
    """Random rows of one chunk. `weights` are relative to each row's likeliest token."""

    x: Tensor  # [R, V] processed logits
    top: Tensor  # [R, 1] float64, the largest of x
    inverse: Tensor  # [R, 1] float64, 1 / T
    top_p: Tensor  # [R] float64
    min_p: Tensor  # [R] float64
    top_k: Tensor  # [R] int64, V for none
    keys: Tensor  # [R] int64

    @classmethod
    def of(cls, x: Tensor, *, floats: Tensor, ints: Tensor, position: Tensor) -> _Draw:
        vocab = x.shape[1]
        top_k = ints[:, TOP_K]
        return cls(
            x=x,
            top=x.amax(-1, keepdim=True).double(),
            inverse=floats[:, TEMPERATURE, None].clamp_min(MIN_TEMPERATURE).reciprocal(),
            top_p=floats[:, TOP_P],
            min_p=floats[:, MIN_P],
            top_k=torch.where(top_k > 0, top_k, vocab).clamp_max(vocab),
            keys=noise.row_keys(ints[:, SEED], position),
        )

    def scaled(self, x: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        """(x - max) / T in float64, at most 0 however small T is."""
        return (x - self.top[rows]).mul_(self.inverse[rows])

    def whole(self) -> Tensor:
        """Tokens [R] when nothing truncates: every token is a candidate."""
        ids = torch.arange(self.x.shape[1], device=self.x.device)[None]
        return argmax(self.scaled(self.x).add_(noise.gumbel(self.keys, ids)))

    def truncated(self) -> Tensor:
        """Tokens [R] under top_k, top_p and min_p."""
        weights = self.scaled(self.x).exp_()
        floor, total = self._floors(weights)
        tokens = torch.zeros_like(self.keys)
        todo = torch.arange(len(tokens), device=tokens.device)
        for guess in TOP_P_GUESSES:
            level = (1.0 - self.top_p[todo]) * guess
            found, complete = self._among(
                weights if len(todo) == len(tokens) else weights[todo],
                rows=todo,
                threshold=torch.maximum(floor[todo], level),
                total=total[todo],
            )
            complete |= level <= floor[todo]
            tokens[todo[complete]] = found[complete]
            todo = todo[~complete]
            if len(todo) == 0:
                break
        return tokens

    def _floors(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(smallest weight that top_k and min_p let through, mass that top_p is a share of)."""
        total = sum_rows(weights)
        vocab = weights.shape[1]
        limited = self.top_k < vocab
        if not limited.any():
            return self.min_p, total
        widest = int(self.top_k.masked_fill(~limited, 1).max())
        order = self.x.topk(widest, dim=-1).indices
        best = weights.gather(1, order)
        last = self.top_k.clamp_max(widest)[:, None] - 1
        floor = torch.where(limited, best.gather(1, last)[:, 0], 0.0)
        total = torch.where(limited, best.cumsum(1).gather(1, last)[:, 0], total)
        return torch.maximum(floor, self.min_p), total

    def _among(
        self, weights: Tensor, *, rows: Tensor, threshold: Tensor, total: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Draw among the candidates whose weight reaches `threshold` [r]; -> (tokens, certain).

        `certain` rows hold all of top_p's mass: what was left out could not have been kept.
        """
        x = self.x if len(rows) == len(self.x) else self.x[rows]
        values, ids = _sorted_candidates(x, weights >= threshold[:, None])
        scaled = self.scaled(values, rows)
        weight = scaled.exp()
        mass = weight.cumsum(1)
        wanted = self.top_p[rows, None] * total[:, None]
        rank = torch.arange(ids.shape[1], device=ids.device)
        keep = (rank < self.top_k[rows, None]) & (weight >= self.min_p[rows, None])
        keep &= (mass - weight < wanted) | (self.top_p[rows, None] >= 1.0)
        keep[:, 0] = True
        scaled += noise.gumbel(self.keys[rows], ids)
        best = scaled.masked_fill_(~keep, -math.inf).argmax(-1, keepdim=True)
        certain = (mass[:, -1] >= wanted[:, 0] * MASS_MARGIN) & (self.top_p[rows] < 1.0)
        return ids.gather(1, best)[:, 0], certain


def sum_rows(x: Tensor) -> Tensor:
    """Row sums of [R, V], the same whatever R is."""
    width = math.gcd(x.shape[1], 256)
    if width < 16:
        return x.cumsum(-1)[:, -1]
    return x.view(len(x), -1, width).sum(-1).cumsum(-1)[:, -1]


def _sorted_candidates(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Values and ids [R, C] where `mask` is set: largest first, the lowest id among equals.

    Padding has value -inf and id 0. A row without candidates (NaN) is all padding.
    """
    rows, ids = mask.nonzero(as_tuple=True)
    counts = torch.bincount(rows, minlength=len(x))
    width = max(1, int(counts.max()))
    column = torch.arange(len(rows), device=x.device) - (counts.cumsum(0) - counts)[rows]
    values = torch.full((len(x), width), -math.inf, dtype=x.dtype, device=x.device)
    values[rows, column] = x[rows, ids]
    padded = torch.zeros((len(x), width), dtype=torch.int64, device=x.device)
    padded[rows, column] = ids
    values, order = values.sort(dim=-1, descending=True, stable=True)
    return values, padded.gather(1, order)


def logprobs(logits: Tensor, *, chosen: Tensor, top: int) -> Logprobs:
    """See `kernels.sample.logprobs`."""
    step = max(1, CHUNK_ELEMENTS // logits.shape[1])
    parts = [
        _logprobs_chunk(logits[begin : begin + step], chosen[begin : begin + step], top)
        for begin in range(0, len(logits), step)
    ]
    return Logprobs(
        chosen=torch.cat([part.chosen for part in parts]),
        rank=torch.cat([part.rank for part in parts]),
        top_ids=torch.cat([part.top_ids for part in parts]),
        top_values=torch.cat([part.top_values for part in parts]),
    )


def _logprobs_chunk(logits: Tensor, chosen: Tensor, top: int) -> Logprobs:
    x = logits.double()
    peak = x.amax(-1, keepdim=True)
    norm = sum_rows((x - peak).exp_()).log_()[:, None].add_(peak)
    picked = x.gather(1, chosen[:, None])
    if top == 0:
        values, ids = x[:, :0], chosen[:, None][:, :0]
    else:
        least = x.topk(top, dim=-1).values[:, -1:]
        values, ids = _sorted_candidates(x, x >= least)
    return Logprobs(
        chosen=(picked - norm)[:, 0],
        rank=(x > picked).sum(-1) + 1,
        top_ids=ids[:, :top],
        top_values=values[:, :top] - norm,
    )


def workspace_bytes(*, rows: int, vocab_size: int) -> int:
    """Ten float64 temporaries of a chunk live at once at most, and one comparison of all rows."""
    chunk = max(CHUNK_ELEMENTS, vocab_size)
    return 10 * 8 * chunk + rows * vocab_size
