"""One step on one stage, eagerly: plan in, everything enqueued, nothing read back.

Prefill and verify rows run in one forward. Only rows that sample get logits, and prompt tokens
whose log-probabilities are wanted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from draftmark.core.step import StepPlan
from draftmark.models.stage import Stage
from draftmark.runtime.directory import SlotDirectory
from draftmark.runtime.inputs import PrefillInputs, stage_plan
from draftmark.runtime.memory import RING_DEPTH, RunLimits, allocate_pools
from draftmark.runtime.results import StepPending
from draftmark.runtime.sampler import Override, Sampler, first_bad_of_rows
from draftmark.runtime.slots import Slots
from draftmark.runtime.staging import StagingRing

Pools = Sequence[Tensor]


class StageRun:
    """Owns the state of the slots; the pools are written by the forward only."""

    def __init__(
        self,
        stage: Stage,
        *,
        pools: Pools,
        slots: Slots,
        sampler: Sampler,
        directory: SlotDirectory,
        ring: StagingRing,
    ) -> None:
        self.slots = slots
        self._stage = stage
        self._pools = pools
        self._sampler = sampler
        self._directory = directory
        self._ring = ring

    @property
    def pool_bytes(self) -> int:
        return sum(pool.nbytes for pool in self._pools)

    @torch.inference_mode()
    def launch(self, plan: StepPlan, *, override: Override | None = None) -> StepPending:
        """Enqueue `plan`. Raises `AssertionError` for a plan that contradicts those before it."""
        began_ns = time.perf_counter_ns()
        self._directory.accept(plan)
        staging = self._ring.take()
        pending = StepPending(plan, staging, began_ns=began_ns)
        inputs = stage_plan(plan, staging, self._directory)
        self.slots.apply(inputs)
        step = self.slots.begin(plan, inputs)
        out = self._stage.forward(step.ids, step.batch, self._pools)
        bad_layer = out.bad_layer.to(torch.int64)
        hidden = out.hidden
        if inputs.prefill is not None:
            bad_rows = first_bad_of_rows(
                bad_layer[: step.batch.verify_offset],
                inputs.prefill.rows,
                num_rows=len(plan.prefill),
            )
            self._prompt_logprobs(plan, inputs.prefill, hidden, bad_rows, pending)
            pending.collect_bad_prefill(bad_rows)
            verify = step.batch.verify_offset
            bad_layer = torch.cat((bad_rows[inputs.prefill.sampling_rows], bad_layer[verify:]))
            hidden = torch.cat((hidden[inputs.prefill.last_tokens], hidden[verify:]))
        if len(inputs.sampling_slots):
            rows = self._sampler.run(
                plan,
                inputs,
                step,
                hidden=hidden,
                bad_layer=bad_layer,
                directory=self._directory,
                override=override,
            )
            pending.collect_rows(rows)
        pending.enqueued()
        return pending

    @torch.inference_mode()
    def zero_pages(self, count: int) -> None:
        """Make the first `count` pages hold zeros, so that they can be claimed as cached."""
        for pool in self._pools:
            pool[:count].zero_()

    def reset(self) -> None:
        """Forget every slot and step. Nothing may be in flight; pages keep what they hold."""
        self.slots.reset()
        self._directory.reset()

    def _prompt_logprobs(
        self,
        plan: StepPlan,
        prefill: PrefillInputs,
        hidden: Tensor,
        bad_rows: Tensor,
        pending: StepPending,
    ) -> None:
        offset = 0
        for index, row in enumerate(plan.prefill):
            count = len(row.ids) - row.is_last  # what follows the last token is not known yet
            if row.prompt_logprobs >= 0:
                parts = self._sampler.prompt_logprobs(
                    hidden[offset : offset + count],
                    chosen=prefill.next_ids[offset : offset + count],
                    top=row.prompt_logprobs,
                    bad_layer=bad_rows[index : index + 1],
                )
                pending.collect_prompt(index, offset=offset, parts=parts)
            offset += len(row.ids)


def make_stage_run(
    stage: Stage,
    *,
    limits: RunLimits,
    kv_dtype: torch.dtype,
    device: torch.device = torch.device("cpu"),  # noqa: B008 - a frozen value
    poison: bool = False,
) -> StageRun:
    """Allocate pools, slots and staging, and put a stage on top. Raises `BudgetError`.

    With `poison`, pools begin as NaN and staging is overwritten when it is released: for tests.
    """
    config = stage.config
    slots = Slots(
        num_slots=limits.num_slots,
        max_context=limits.max_context,
        vocab_size=config.vocab_size,
        device=device,
    )
    return StageRun(
        stage,
        pools=allocate_pools(
            stage.cache_specs(kv_dtype),
            num_pages=limits.num_pages,
            dtype=kv_dtype,
            device=device,
            fill=torch.nan if poison else None,
        ),
        slots=slots,
        sampler=Sampler(slots, head=stage.logits, head_layer=config.num_layers, backend="torch"),
        directory=SlotDirectory(
            num_slots=limits.num_slots, num_pages=limits.num_pages, max_pages=slots.max_pages
        ),
        ring=StagingRing(RING_DEPTH, shape=limits.step_shape, device=device, poison=poison),
    )
