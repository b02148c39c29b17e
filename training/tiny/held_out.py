"""Held-out documents scored while training, by the text as it is written: no generation.

An answer counts as exact when each of its tokens is the model's first choice after those before
it: then greedy generation would have written just this answer. It is a lower bound of what
`evaluate.py` measures through the server, where another way to the right answer counts too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from training.tiny.batch import Batch
from training.tiny.conversation import Conversation, Split
from training.tiny.data.arithmetic import arithmetic_conversation
from training.tiny.data.prose import draw_prose, read_books
from training.tiny.data.tools import tool_conversation
from training.tiny.losses import DRAFT_STEPS, draft_agreement
from training.tiny.model import Rows, Tiny
from training.tiny.rendering import Document, encode

_ROWS = 32
KINDS: dict[str, Callable[..., Conversation]] = {
    "arithmetic": partial(arithmetic_conversation, thinking=True),
    "arithmetic, no thinking": partial(arithmetic_conversation, thinking=False),
    "call": partial(tool_conversation, thinking=True, kind="call"),
    "call, no thinking": partial(tool_conversation, thinking=False, kind="call"),
    "no fit": partial(tool_conversation, thinking=True, kind="no_fit"),
    "result": partial(tool_conversation, thinking=True, kind="result"),
}


class HeldOut:
    """The documents, made once: `num_documents` of each kind, and as many pieces of prose."""

    def __init__(
        self, tokenizer: Tokenizer, books: Path, *, num_documents: int, row_tokens: int, seed: int
    ) -> None:
        self._row_tokens = row_tokens
        self._documents: dict[str, list[Document]] = {}
        for kind, make in KINDS.items():
            draw = random.Random(f"held-out/{seed}/{kind}")
            self._documents[kind] = [
                encode(make(draw, Split.HELD_OUT), tokenizer) for _ in range(num_documents)
            ]
        draw = random.Random(f"held-out/{seed}/prose")
        texts = read_books(books, Split.HELD_OUT)
        pieces = (draw_prose(draw, texts, 8 * row_tokens) for _ in range(-(-num_documents // 4)))
        ids = [tokenizer.encode(piece).ids[:row_tokens] for piece in pieces]
        self._prose = [Document(piece, [True] * len(piece)) for piece in ids]

    @torch.no_grad()
    def scores(self, model: Tiny, device: torch.device) -> dict[str, float]:
        """Shares of exact answers by kind, accepted length of drafts (1 + accepted of DRAFT_STEPS)
        in chat and in prose, and nats a token of prose."""
        scores = {}
        accepted = torch.zeros(DRAFT_STEPS)
        rounds = torch.zeros(())
        for kind, documents in self._documents.items():
            exact = 0
            for batch in self._batches(documents, device):
                exact += int(_is_exact(model, batch).sum())
                counts, num_rounds = draft_agreement(model, batch)
                accepted, rounds = accepted + counts.cpu(), rounds + num_rounds.cpu()
            scores[kind] = exact / len(documents)
        scores["accepted length, chat"] = float(1 + accepted.sum() / rounds)
        nats, accepted, rounds = [], torch.zeros(DRAFT_STEPS), torch.zeros(())
        for batch in self._batches(self._prose, device):
            nats.append(_nats(model, batch))
            counts, num_rounds = draft_agreement(model, batch)
            accepted, rounds = accepted + counts.cpu(), rounds + num_rounds.cpu()
        scores["accepted length, prose"] = float(1 + accepted.sum() / rounds)
        scores["prose, nats a token"] = float(torch.stack(nats).mean())
        return scores

    def _batches(self, documents: list[Document], device: torch.device) -> list[Batch]:
        """One document a row, the shortest together."""
        ordered = sorted(documents, key=lambda document: len(document.ids))
        groups = [ordered[i : i + _ROWS] for i in range(0, len(ordered), _ROWS)]
        return [padded(group).to(device) for group in groups]


def padded(documents: list[Document]) -> Batch:
    """One document a row; what stands beyond its end and what is no answer weighs nothing."""
    longest = max(len(document.ids) for document in documents)
    size = -(-longest // 64) * 64
    ids = torch.zeros(len(documents), size, dtype=torch.long)
    weights = torch.zeros(len(documents), size)
    for row, document in enumerate(documents):
        ids[row, : len(document.ids)] = torch.tensor(document.ids)
        answers = torch.tensor(document.is_answer, dtype=torch.float32)
        answers[0] = 0
        weights[row, : len(document.ids)] = answers
    positions = torch.arange(size).expand(len(documents), -1)
    return Batch(ids, positions, weights)


def _is_exact(model: Tiny, batch: Batch) -> Tensor:
    """[B]"""
    hidden, _ = model(batch.ids, Rows(batch.positions, model.shape))
    choices = model.logits(hidden).argmax(-1)[:, :-1]
    return ((choices == batch.ids[:, 1:]) | (batch.weights[:, 1:] == 0)).all(-1)


def _nats(model: Tiny, batch: Batch) -> Tensor:
    hidden, _ = model(batch.ids, Rows(batch.positions, model.shape))
    logits = model.logits(hidden)[:, :-1].flatten(0, 1).float()
    weights = batch.weights[:, 1:].flatten()
    nats = F.cross_entropy(logits, batch.ids[:, 1:].flatten(), reduction="none")
    return (nats * weights).sum() / weights.sum()
