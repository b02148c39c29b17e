"""What training minimises, and the counts by which a draft head is judged."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from training.tiny.batch import Batch
from training.tiny.model import Rows, Tiny

DRAFT_STEPS = 3
# Drafts are taught on one row in four: they need less than the model itself, and cost half as much.
DRAFT_ROWS = 4
DRAFT_WEIGHT = 0.3
BALANCE_WEIGHT = 0.01


@dataclass(frozen=True, slots=True)
class Losses:
    """`total` with a graph; the others are means without: nats a token, drafts one a step."""

    total: Tensor
    text: Tensor
    drafts: Tensor
    balance: Tensor

    def detached(self) -> Losses:
        return Losses(self.total.detach(), self.text, self.drafts, self.balance)


def training_losses(model: Tiny, batch: Batch) -> Losses:
    """The next token of the text, and drafts that are to agree with the model's own distribution:
    a draft is accepted when it says what the model says, right or wrong."""
    rows = Rows(batch.positions, model.shape)
    hidden, balance = model(batch.ids, rows)
    logits = model.logits(hidden)
    targets, weights = batch.ids[:, 1:], batch.weights[:, 1:]
    text = F.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), targets.flatten(), reduction="none"
    ).view_as(weights)
    text = (text * weights).sum() / weights.sum()

    few = max(batch.ids.shape[0] // DRAFT_ROWS, 1)
    part = Batch(batch.ids[:few], batch.positions[:few], batch.weights[:few])
    taught = logits[:few].detach().float().softmax(-1)
    states, draft_balance = model.drafts(
        part.ids, hidden[:few], Rows(part.positions, model.shape), DRAFT_STEPS
    )
    drafts = torch.stack(
        [
            _draft_loss(model.logits(state), taught, part, ahead)
            for ahead, state in enumerate(states, start=1)
        ]
    )
    total = text + DRAFT_WEIGHT * drafts.mean() + BALANCE_WEIGHT * (balance + draft_balance)
    return Losses(total, text.detach(), drafts.detach(), balance.detach())


def _draft_loss(logits: Tensor, taught: Tensor, batch: Batch, ahead: int) -> Tensor:
    """Cross entropy of the draft at place i with the model's distribution at i + ahead."""
    weights = draft_weights(batch, ahead)
    nats = -(taught[:, ahead:] * logits[:, :-ahead].float().log_softmax(-1)).sum(-1)
    return (nats * weights).sum() / weights.sum()


def draft_weights(batch: Batch, ahead: int) -> Tensor:
    """[B, T - ahead]: the weight of the token that the draft at place i foresees, i + ahead + 1
    (with 0 ahead, what the model itself foresees), 0 beyond the row or in another document."""
    num_places = batch.ids.shape[1] - ahead
    weights = F.pad(batch.weights, (0, 1))[:, ahead + 1 :][:, :num_places]
    positions = F.pad(batch.positions, (0, 1))[:, ahead + 1 :][:, :num_places]
    here = batch.positions[:, :num_places]
    return weights * (positions == here + ahead + 1)


@torch.no_grad()
def draft_agreement(model: Tiny, batch: Batch) -> tuple[Tensor, Tensor]:
    """Counts [DRAFT_STEPS] of rounds whose first s + 1 drafts all are the model's own choices after
    the text so far, and the number of rounds: places whose drafted tokens all are answers.

    Teacher-forced: the text goes on as it is written, also where the model would differ.
    """
    rows = Rows(batch.positions, model.shape)
    hidden, _ = model(batch.ids, rows)
    choices = model.logits(hidden).argmax(-1)
    states, _ = model.drafts(batch.ids, hidden, rows, DRAFT_STEPS)
    num_places = batch.ids.shape[1] - DRAFT_STEPS
    counted = torch.ones(batch.ids.shape[0], num_places, dtype=torch.bool, device=batch.ids.device)
    for ahead in range(DRAFT_STEPS + 1):
        counted &= draft_weights(batch, ahead)[:, :num_places] == 1
    accepted, counts = counted, []
    for ahead, state in enumerate(states, start=1):
        drafts = model.logits(state).argmax(-1)[:, :num_places]
        accepted = accepted & (drafts == choices[:, ahead : ahead + num_places])
        counts.append(accepted.sum())
    return torch.stack(counts), counted.sum()
