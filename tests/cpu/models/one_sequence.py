"""One sequence through a stage by hand: prompt chunks and verify rows, in pages in random order.

The stage runs with the fast backends, so that what is looked at is what serves.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from draftmark.cache.spec import PAGE_TOKENS, pages_of
from draftmark.kernels.backends import choose
from draftmark.layers.batch import Batch, PrefillSpan
from draftmark.models import checkpoint
from draftmark.models.config import describe
from draftmark.models.stage import Stage, build
from draftmark.runtime.memory import RunLimits, allocate_caches

CPU = torch.device("cpu")


class Runner:
    """One sequence through a stage: whole or in chunks, then token by token."""

    def __init__(
        self, model_dir: Path, *, dtype: torch.dtype, context: int, with_mtp: bool = False
    ) -> None:
        self.stage = load_stage(model_dir, dtype=dtype, context=context, with_mtp=with_mtp)
        num_pages = pages_of(context)
        generator = torch.Generator().manual_seed(1)
        self._table = (torch.randperm(num_pages, generator=generator) + 1).to(torch.int32)
        self._caches = allocate_caches(
            self.stage.cache_specs(dtype),
            limits=RunLimits(
                num_pages=num_pages + 1,
                num_slots=2,
                max_context=context,
                max_running=1,
                prefill_tokens=context,
            ),
            dtype=dtype,
            kv_dtype=dtype,
            device=CPU,
        )
        self._caches.fill(torch.nan)
        self._length = self._fold = 0

    def feed(self, ids: list[int]) -> Tensor:
        """As a prompt's next chunk: logits [len(ids), vocab] after each token."""
        span = PrefillSpan(offset=0, count=len(ids), start=self._length, pages=self._table, slot=1)
        return self._run(ids, prefill=(span,), verify=[], fold=0)

    def decode(self, token: int) -> Tensor:
        """As a verify row: logits [1, vocab]."""
        return self._run([token], prefill=(), verify=[self._length], fold=1)

    @torch.inference_mode()
    def draft(self, ids: list[int], hidden: Tensor) -> Tensor:
        """The MTP head on tokens and what the model gave before each: [len(ids), hidden]. Writes
        to the pages of the first attention layer."""
        stage = self.stage
        assert stage.mtp is not None and stage.embedding is not None
        span = PrefillSpan(offset=0, count=len(ids), start=0, pages=self._table, slot=1)
        batch = self._batch(len(ids), prefill=(span,), verify=[])
        cache = next(cache for cache in self._caches.layers if isinstance(cache, Tensor))
        embedded = stage.embedding(torch.tensor(ids))
        return stage.mtp(embedded, hidden, stage._step(batch), cache, [])

    @torch.inference_mode()
    def _run(
        self, ids: list[int], *, prefill: tuple[PrefillSpan, ...], verify: list[int], fold: int
    ) -> Tensor:
        """`verify` has the length of the verify row, if it is one; `fold` is what this step leaves
        to be folded."""
        batch = self._batch(len(ids), prefill=prefill, verify=verify)
        self._length, self._fold = self._length + len(ids), fold
        out = self.stage.forward(torch.tensor(ids), batch, self._caches.layers)
        assert (out.bad_layer == -1).all()
        return self.stage.logits(out.hidden)

    def _batch(self, count: int, *, prefill: tuple[PrefillSpan, ...], verify: list[int]) -> Batch:
        positions = torch.arange(self._length, self._length + count)
        pages, rows = self._table.long()[positions // PAGE_TOKENS], len(verify)
        return Batch(
            positions=positions,
            store=pages * PAGE_TOKENS + positions % PAGE_TOKENS,
            prefill=prefill,
            verify_offset=count if prefill else 0,
            verify_width=1,
            verify_pages=self._table[None, :].expand(rows, -1),
            verify_lengths=torch.tensor(verify, dtype=torch.int64),
            verify_slots=torch.ones(rows, dtype=torch.int64),
            verify_folds=torch.full((rows,), self._fold),
        )


def load_stage(
    model_dir: Path, *, dtype: torch.dtype, context: int, with_mtp: bool = False
) -> Stage:
    description = describe(model_dir)
    backends = choose(CPU, dtype=dtype)
    with torch.inference_mode():
        stage = build(
            description,
            dtype=dtype,
            device=CPU,
            max_context=context,
            backends=backends,
            with_mtp=with_mtp,
        )
        checkpoint.load(
            stage, model_dir, description=description, progress=lambda done, total: None
        )
        stage.finish()
    return stage
