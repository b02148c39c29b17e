"""Sampling parameters and penalty counts of every slot, on the last stage only."""

from __future__ import annotations

import torch
from torch import Tensor

from draftmark.core.request import MAX_LOGIT_BIAS, MAX_STOP_IDS
from draftmark.kernels.sample import IN_PROMPT, NUM_FLOATS, NUM_INTS, SampleTables
from draftmark.runtime.inputs import AdmitInputs, ToldIds


def make_sample_tables(*, num_slots: int, vocab_size: int, device: torch.device) -> SampleTables:
    """All zero; an admission writes what its slot needs."""

    def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros((num_slots, *shape), dtype=dtype, device=device)

    return SampleTables(
        floats=zeros(NUM_FLOATS, dtype=torch.float64),
        ints=zeros(NUM_INTS, dtype=torch.int64),
        stop_ids=zeros(MAX_STOP_IDS, dtype=torch.int64),
        bias_ids=zeros(MAX_LOGIT_BIAS, dtype=torch.int64),
        bias_values=zeros(MAX_LOGIT_BIAS, dtype=torch.float64),
        counts=zeros(vocab_size, dtype=torch.int32),
    )


def admit(tables: SampleTables, admits: AdmitInputs) -> None:
    """Enter the parameters of the sequences that take a slot."""
    slots = admits.slots
    tables.floats.index_copy_(0, slots, admits.floats)
    tables.ints.index_copy_(0, slots, admits.ints)
    tables.stop_ids.index_copy_(0, slots, admits.stop_ids)
    if admits.bias is not None:
        tables.bias_ids.index_copy_(0, admits.bias.slots, admits.bias.ids)
        tables.bias_values.index_copy_(0, admits.bias.slots, admits.bias.values)
    for told in admits.told:
        if told.has_penalties:
            _count(tables, told)


def _count(tables: SampleTables, told: ToldIds) -> None:
    """Rebuild the penalty counts of a slot from its ids."""
    row = tables.counts[told.slot]
    row.zero_().index_fill_(0, told.prompt_ids, IN_PROMPT)
    row.index_add_(0, told.output_ids, torch.ones_like(told.output_ids).to(row.dtype))


def sample_bytes(*, vocab_size: int) -> int:
    """Device bytes one slot costs here."""
    words = NUM_FLOATS + NUM_INTS + MAX_STOP_IDS + 2 * MAX_LOGIT_BIAS
    return 8 * words + 4 * vocab_size
