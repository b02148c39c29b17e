"""A trace's rows become prompts: made to fit a smaller server, then filled with ids.

The ids of a block follow from the salt, the block's id and its depth alone, so every process makes
the same, and two prompts share exactly the beginning that the trace says they share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from draftmark.bench.prompts.prompt import Prompt
from draftmark.bench.prompts.random_ids import Ids, draw_ids
from draftmark.bench.traces import TraceRow
from draftmark.core.errors import ConfigError


class Over(StrEnum):
    """What becomes of prompts above the limit: cut to it, left out, or all made shorter by one
    factor, so that the longest fits."""

    CAP = "cap"
    DROP = "drop"
    SCALE = "scale"


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """Rows as they are sent, and what was done to the trace, for the report."""

    rows: list[TraceRow]
    capped: int = 0
    dropped: int = 0
    scale: float = 1.0

    @property
    def told(self) -> str | None:
        """One sentence, None when nothing was changed."""
        if self.capped:
            return f"{self.capped} of {len(self.rows)} prompts were cut to --max-isl"
        if self.dropped:
            return f"{self.dropped} prompts above --max-isl were left out, {len(self.rows)} sent"
        if self.scale < 1:
            return f"all prompts are {self.scale:.4g} of the trace's length"
        return None


def fit_rows(rows: Sequence[TraceRow], *, max_isl: int | None, over: Over | None) -> Fitted:
    """Rows of at most `max_isl` tokens of prompt. Answers keep their length. Raises `ConfigError`
    when rows are longer and nothing says what to do with them, or bring a text of their own."""
    if max_isl is None:
        return Fitted(rows=list(rows))
    texts = [row.line for row in rows if row.isl is None]
    if texts:
        raise ConfigError(
            f"line {texts[0]} of the trace has its own prompt: --max-isl is for rows of lengths",
            param="max_isl",
        )
    sizes = [row.isl or 0 for row in rows]
    longer = sum(size > max_isl for size in sizes)
    if not longer:
        return Fitted(rows=list(rows))
    match over:
        case None:
            raise ConfigError(
                f"{longer} of {len(rows)} prompts are above {max_isl} tokens (the longest has "
                f"{max(sizes)}): --over cap, drop or scale says what becomes of them",
                param="over",
            )
        case Over.CAP:
            return Fitted(rows=[_capped(row, max_isl) for row in rows], capped=longer)
        case Over.DROP:
            kept = [row for row in rows if (row.isl or 0) <= max_isl]
            if not kept:
                raise ConfigError(
                    f"all {len(rows)} prompts are above {max_isl} tokens", param="max_isl"
                )
            return Fitted(rows=kept, dropped=longer)
        case Over.SCALE:
            scale = max_isl / max(sizes)
            return Fitted(rows=[_scaled(row, scale) for row in rows], scale=scale)


def trace_prompts(
    rows: Sequence[TraceRow], allowed: Ids | None, *, salt: str, lead: Sequence[int] = ()
) -> list[Prompt]:
    """One prompt a row, of exactly its length, beginning with `lead` (what the tokenizer puts
    before every text, counted as part of the first block). `allowed` [n] uint32 are ids to draw
    from; a trace that brings its own texts needs none."""
    return [_prompt(row, allowed, salt=salt, lead=list(lead)) for row in rows]


def _prompt(row: TraceRow, allowed: Ids | None, *, salt: str, lead: list[int]) -> Prompt:
    if row.isl is None:
        return Prompt(text=row.text, messages=row.messages, osl=row.osl)
    assert allowed is not None, "a trace of lengths needs ids to draw from"
    if row.isl <= len(lead):
        raise ConfigError(
            f"line {row.line} of the trace: {row.isl} tokens are no more than the {len(lead)} that "
            "begin every text",
            param="trace",
        )
    ids: list[int] = []
    for key, start, end in _blocks(row):
        ids += draw_ids(allowed, end - start, key=f"{salt}/{key}").tolist()
    return Prompt(ids=[*lead, *ids[len(lead) :]], num_lead=len(lead), osl=row.osl)


def _blocks(row: TraceRow) -> Iterator[tuple[str, int, int]]:
    """Key, start and end of each block. A row without block ids shares nothing with any other.

    The ends of scaled blocks are rounded by their depth alone, so they are the same in every row.
    """
    assert row.isl is not None, "checked before"
    if not row.block_ids:
        yield f"line {row.line}", 0, row.isl
        return
    for depth, block_id in enumerate(row.block_ids):
        start = min(math.floor(depth * row.block_tokens), row.isl)
        is_last = depth + 1 == len(row.block_ids)
        end = row.isl if is_last else min(math.floor((depth + 1) * row.block_tokens), row.isl)
        yield f"block {block_id} at {depth}", start, end


def _capped(row: TraceRow, max_isl: int) -> TraceRow:
    if row.isl is None or row.isl <= max_isl:
        return row
    kept = math.ceil(max_isl / row.block_tokens)
    return msgspec.structs.replace(row, isl=max_isl, block_ids=row.block_ids[:kept])


def _scaled(row: TraceRow, scale: float) -> TraceRow:
    assert row.isl is not None, "checked before"
    return msgspec.structs.replace(
        row,
        isl=max(1, math.floor(row.isl * scale)),
        block_tokens=row.block_tokens * scale,
    )
