"""The seam behind which drafts are made: at the tail of the last stage, once a step has sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from draftmark.core.step import StepPlan
from draftmark.layers.batch import Batch
from draftmark.models.stage import Stage
from draftmark.runtime.directory import SlotDirectory
from draftmark.runtime.inputs import PlanInputs
from draftmark.runtime.memory import Caches
from draftmark.runtime.relay import PACKED_DRAFTS, PACKED_TOKEN, RowLayout
from draftmark.runtime.sampler import Sampler
from draftmark.runtime.slots import SlotTables


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """What a step ran and gave. `packed` [M, packed_columns] are the rows as it left them, None
    where none sampled; `hidden` [N, H] is of all its tokens, after the final norm. `max_drafts` [S]
    is the most that each slot may have."""

    plan: StepPlan
    inputs: PlanInputs
    batch: Batch
    packed: Tensor | None
    hidden: Tensor
    layout: RowLayout
    max_drafts: Tensor

    def enter(self, drafts: Tensor, counts: Tensor) -> None:
        """`drafts` [M, k] for the next step of each row, k the plan's `draft_k`, and how many of
        them are meant, less where a slot may have fewer."""
        assert self.packed is not None, "no row sampled"
        width = drafts.shape[1]
        most = self.max_drafts.index_select(0, self.inputs.sampling_slots)
        self.packed[:, PACKED_DRAFTS] = torch.minimum(counts, most)
        self.packed[:, PACKED_TOKEN + 1 : PACKED_TOKEN + 1 + width] = drafts


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What a drafter may use of its stage, which is the last one."""

    stage: Stage
    caches: Caches
    tables: SlotTables
    sampler: Sampler
    directory: SlotDirectory


class Drafter(Protocol):
    """Keeps what it needs of every slot, and is told of every step. It enters drafts for those with
    rows that sampled and a `draft_k`. Wrong ones cost speed only; one outside the vocabulary is a
    fault."""

    def draft(self, step: Drafting) -> None: ...
