"""Batches of packed rows: each depends on the seed and its own number alone, whoever makes it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.utils.data import Dataset

from training.tiny.batch import Batch
from training.tiny.conversation import Conversation, Split
from training.tiny.data.arithmetic import arithmetic_conversation, drill_conversation
from training.tiny.data.extraction import extraction_conversation
from training.tiny.data.prose import draw_prose, read_books
from training.tiny.data.small_talk import small_talk_conversation
from training.tiny.data.tools import tool_conversation, tool_session
from training.tiny.rendering import Document, encode

Draw = Callable[..., Conversation]
# Kinds of conversations and how often each is drawn. Half of all are without thinking.
MIXTURE: tuple[tuple[Draw, float], ...] = (
    (arithmetic_conversation, 0.31),
    (drill_conversation, 0.03),
    (tool_conversation, 0.31),
    (tool_session, 0.14),
    (extraction_conversation, 0.13),
    (small_talk_conversation, 0.08),
)
THINKING_SHARE = 0.5
# Rows of nothing but prose; all others end with a piece of it where no conversation fits any more.
PROSE_ROWS = 0.1
_FEWEST_PROSE_TOKENS = 24
_NUM_WAITING = 24
# What a token of a prompt counts in the loss: names and numbers there cannot be foreseen.
PROMPT_WEIGHT = 0.15


def draw_conversation(draw: random.Random) -> Conversation:
    """One of the mixture, of the training split."""
    makers, weights = zip(*MIXTURE, strict=True)
    (make,) = draw.choices(makers, weights)
    return make(draw, Split.TRAIN, thinking=draw.random() < THINKING_SHARE)


@dataclass(slots=True)
class _Row:
    """A row being filled."""

    size: int
    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    @property
    def room(self) -> int:
        return self.size - len(self.ids)

    def add(self, ids: list[int], weights: list[float]) -> None:
        self.ids += ids
        self.positions += range(len(ids))
        self.weights += [0.0, *weights[1:]]


class PackedRows(Dataset[Batch]):
    """`num_batches` batches of `num_rows` rows of `row_tokens` tokens."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        books: Path,
        *,
        seed: int,
        num_batches: int,
        num_rows: int,
        row_tokens: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._books = read_books(books, Split.TRAIN)
        self._seed, self._num_batches = seed, num_batches
        self._num_rows, self._row_tokens = num_rows, row_tokens

    def __len__(self) -> int:
        return self._num_batches

    def __getitem__(self, index: int) -> Batch:
        if index >= self._num_batches:
            raise IndexError(index)
        draw = random.Random(f"{self._seed}/{index}")
        rows = self._rows(draw)
        return Batch(
            torch.from_numpy(np.array([row.ids for row in rows], dtype=np.int64)),
            torch.from_numpy(np.array([row.positions for row in rows], dtype=np.int64)),
            torch.from_numpy(np.array([row.weights for row in rows], dtype=np.float32)),
        )

    def _rows(self, draw: random.Random) -> list[_Row]:
        rows = [_Row(self._row_tokens) for _ in range(self._num_rows)]
        num_prose = sum(draw.random() < PROSE_ROWS for _ in rows)
        # The longest that fits of a few: what is left of a row is short.
        waiting = [self._conversation(draw) for _ in range(_NUM_WAITING)]
        for row in rows[num_prose:]:
            while fitting := [i for i, doc in enumerate(waiting) if len(doc.ids) <= row.room]:
                # The first ones of a row as they come, or the short ones would never begin one.
                taken = fitting[0]
                if row.room < self._row_tokens // 2:
                    taken = max(fitting, key=lambda i: len(waiting[i].ids))
                document = waiting[taken]
                waiting[taken] = self._conversation(draw)
                row.add(document.ids, [1.0 if a else PROMPT_WEIGHT for a in document.is_answer])
        for row in rows:
            self._fill_with_prose(row, draw)
        draw.shuffle(rows)
        return rows

    def _conversation(self, draw: random.Random) -> Document:
        """The next one that fits a row: a long session may not, and another is drawn."""
        while True:
            document = encode(draw_conversation(draw), self._tokenizer, with_past=True)
            if len(document.ids) <= self._row_tokens:
                return document

    def _fill_with_prose(self, row: _Row, draw: random.Random) -> None:
        while row.room:
            text = draw_prose(draw, self._books, 8 * row.room)
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids[: row.room]
            is_short = len(ids) < _FEWEST_PROSE_TOKENS
            row.add(ids, [0.0 if is_short else 1.0] * len(ids))
