"""Device memory behind pages and slots, and what a rank's memory is spent on, as pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import Tensor

from draftmark.cache.spec import (
    PAGE_TOKENS,
    AttentionSpec,
    CacheSpec,
    HiddenSpec,
    RecurrentSpec,
    slot_bytes,
    snapshot_bytes,
    token_bytes,
)
from draftmark.core.errors import BudgetError
from draftmark.kernels import sample
from draftmark.layers.recurrent import LayerCache, RecurrentCache
from draftmark.models.stage import Stage
from draftmark.runtime.relay import RowLayout, forward_words
from draftmark.runtime.sampler import PROMPT_SLICE
from draftmark.runtime.staging import WORD_BYTES, StepShape, staging_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Sizes of one rank. `num_pages` and `num_slots` include the dump ones. `ring_depth` is the
    number of steps whose inputs or results may be in use at once."""

    num_pages: int
    num_slots: int
    max_context: int
    max_running: int
    prefill_tokens: int
    cohorts: int = 1
    num_snapshots: int = 0
    max_drafts: int = 0

    @property
    def layout(self) -> RowLayout:
        return RowLayout(self.max_drafts)

    @property
    def ring_depth(self) -> int:
        return ring_depth(self.cohorts)

    @property
    def step_shape(self) -> StepShape:
        return StepShape(
            max_rows=self.max_running,
            max_prefill_tokens=self.prefill_tokens,
            layout=self.layout,
        )


def ring_depth(cohorts: int) -> int:
    """One step of each cohort, one planned ahead, and one whose result is on its way."""
    return cohorts + 2


@dataclass(frozen=True, slots=True)
class Caches:
    """What the layers of a stage keep, in layer order, and what plans do to it as a whole."""

    layers: tuple[LayerCache, ...]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors())

    def save(self, slot: int, snapshot: int) -> None:
        """The recurrent states of a slot as they are now."""
        for cache in self._recurrent():
            cache.save(slot, snapshot)

    def restore(self, slot: int, snapshot: int) -> None:
        for cache in self._recurrent():
            cache.restore(slot, snapshot)

    def zero(self, num_pages: int) -> None:
        """The first pages, and the states of all slots, so that they can be claimed as cached.
        Snapshots are left untouched: nobody claims them, and a CPU has yet to hand them out."""
        for cache in self.layers:
            if isinstance(cache, Tensor):
                cache[:num_pages].zero_()
        for cache in self._recurrent():
            for tensor in cache.of_slots():
                tensor.zero_()

    def fill(self, value: float) -> None:
        for tensor in self._tensors():
            tensor.fill_(value)

    def _recurrent(self) -> Iterator[RecurrentCache]:
        return (cache for cache in self.layers if isinstance(cache, RecurrentCache))

    def _tensors(self) -> Iterator[Tensor]:
        for cache in self.layers:
            yield from (cache,) if isinstance(cache, Tensor) else cache.tensors()


def allocate_caches(
    specs: Sequence[CacheSpec],
    *,
    limits: RunLimits,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    device: torch.device,
) -> Caches:
    """One cache a spec, in order: pages [num_pages, PAGE_TOKENS, 2 * kv_heads, head_dim], the
    states of all slots, or hidden states [num_pages, hidden]. `dtype` is the model's.

    Left as they come: kernels mask what was not stored, and a CPU then hands out memory as pages
    are written (zeroing 10 GB takes 5 s at start, and holds it). Raises `BudgetError` when the
    device does not have the memory.
    """
    wanted = limits.num_pages * PAGE_TOKENS * token_bytes(specs)
    wanted += limits.num_slots * slot_bytes(specs) + limits.num_snapshots * snapshot_bytes(specs)
    free = free_bytes(device)
    if wanted > free:
        raise BudgetError(
            f"a KV pool of {limits.num_pages} pages and the states of {limits.num_slots} slots "
            f"take {wanted} bytes, {free} are free",
            param="kv_pool_tokens",
        )
    try:
        return Caches(
            tuple(
                _cache(spec, limits, dtype=dtype, kv_dtype=kv_dtype, device=device)
                for spec in specs
            )
        )
    except (RuntimeError, MemoryError) as error:  # torch raises RuntimeError on a CPU
        raise BudgetError(
            f"the KV pool of {limits.num_pages} pages and the states of {limits.num_slots} slots, "
            f"{wanted} bytes, cannot be allocated: {error}",
            param="kv_pool_tokens",
        ) from error


def _cache(
    spec: CacheSpec,
    limits: RunLimits,
    *,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    device: torch.device,
) -> LayerCache:
    match spec:
        case AttentionSpec():
            shape = (limits.num_pages, PAGE_TOKENS, 2 * spec.kv_heads, spec.head_dim)
            return torch.empty(shape, dtype=kv_dtype, device=device)
        case HiddenSpec():
            behind = (limits.num_pages, spec.hidden_size)
            return torch.empty(behind, dtype=dtype, device=device)
        case RecurrentSpec():
            return RecurrentCache.allocate(
                spec,
                num_slots=limits.num_slots,
                num_snapshots=limits.num_snapshots,
                dtype=dtype,
                device=device,
            )


def workspace_bytes(
    stage: Stage,
    *,
    max_context: int,
    max_running: int,
    prefill_tokens: int,
    cohorts: int,
    lane_ends: int,
    max_drafts: int = 0,
) -> int:
    """Upper bound of what a step of a stage needs beside weights, pools and slots. `lane_ends` is
    the number of forward lanes that end in it."""
    layout = RowLayout(max_drafts)
    shape = StepShape(max_rows=max_running, max_prefill_tokens=prefill_tokens, layout=layout)
    tokens = prefill_tokens + shape.max_sampled
    rows = max(shape.max_sampled, PROMPT_SLICE)
    needed = stage.workspace_bytes(tokens=tokens, logits_rows=rows, context=max_context)
    if stage.head is not None:
        needed += sample.workspace_bytes(rows=rows, vocab_size=stage.config.vocab_size)
    message = tokens * stage.config.hidden_size * stage.placement.dtype.itemsize
    words = forward_words(max_running, max_running + prefill_tokens, layout=layout)
    message += WORD_BYTES * words
    needed += lane_ends * (cohorts + 1) * message
    return needed + ring_depth(cohorts) * staging_bytes(shape)


def free_bytes(device: torch.device) -> int:
    """Bytes that can be had now: of the GPU, or of the machine and the group this process is in."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    available = int(psutil.virtual_memory().available)
    room = _group_room(Path("/sys/fs/cgroup"))
    return available if room is None else min(available, room)


def total_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    return int(psutil.virtual_memory().total)


def _group_room(group: Path) -> int | None:
    """Limit minus use of a Linux control group (version 2); None where there is no limit.

    What it uses counts the page cache, which is given back on demand.
    """
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        stat = (group / "memory.stat").read_text().splitlines()
    except OSError:
        # Not Linux, no version 2 groups, or the root group: there is no limit to keep to.
        return None
    if limit == "max":
        return None
    entries = dict(line.split() for line in stat)
    return max(0, int(limit) - used + int(entries.get("inactive_file", "0")))
