"""From memory to numbers of pages and slots: one pure function, and what it says about itself.

    room for pools = min(fraction x base - weights, free now) - work space - slots
    base           = the GPU's memory, or the memory available at start on a CPU

Snapshots of recurrent state, where there is any, and pages share that room.

An impossible budget is a `BudgetError` that proposes flags. Each proposal was tried: fed back, it
fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from draftmark.cache.spec import (
    PAGE_TOKENS,
    CacheSpec,
    pages_of,
    slot_bytes,
    snapshot_bytes,
    token_bytes,
)
from draftmark.core.errors import BudgetError

# Left to itself, the snapshot pool takes this share of the room, and no more than so many a slot.
_SNAPSHOT_SHARE = 4
_SNAPSHOTS_PER_SLOT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetInputs:
    """What there is and what is wanted. None is auto.

    `base_bytes` is what `memory_fraction` is a share of; `free_bytes` is what is free now, with
    the weights loaded. `model_context` is the model's own limit.
    """

    memory_fraction: float
    base_bytes: int
    free_bytes: int
    weight_bytes: int
    workspace_bytes: int
    fixed_bytes_per_slot: int
    specs: tuple[CacheSpec, ...]
    model_context: int
    max_running: int
    max_context: int | None = None
    state_slots: int | None = None
    kv_pool_tokens: int | None = None
    snapshots: int | None = None

    @property
    def page_bytes(self) -> int:
        return PAGE_TOKENS * token_bytes(self.specs)

    @property
    def bytes_per_slot(self) -> int:
        return self.fixed_bytes_per_slot + slot_bytes(self.specs)

    @property
    def slots(self) -> int:
        """Usable slots: as asked for, else the running sequences and a quarter more."""
        return self.state_slots or math.ceil(self.max_running * 1.25)

    @property
    def bytes_per_snapshot(self) -> int:
        return snapshot_bytes(self.specs)

    @property
    def room_bytes(self) -> int:
        """What pages and snapshots may take, beside everything else; may be negative."""
        allowed = min(
            int(self.memory_fraction * self.base_bytes) - self.weight_bytes, self.free_bytes
        )
        return allowed - self.workspace_bytes - (self.slots + 1) * self.bytes_per_slot

    @property
    def num_snapshots(self) -> int | None:
        """As many as asked for, else a share of the room, one at least; those that nobody asked for
        give way to the pages that somebody did. None where no layer is recurrent."""
        each = self.bytes_per_snapshot
        if self.snapshots is not None or each == 0:
            return self.snapshots
        share = max(self.room_bytes // _SNAPSHOT_SHARE // each, 1)
        least_pages = 1 + pages_of(max(self.kv_pool_tokens or 1, self.max_context or 1))
        most = (self.room_bytes - least_pages * self.page_bytes) // each
        return max(0, min(share, _SNAPSHOTS_PER_SLOT * self.slots, most))

    @property
    def page_room_bytes(self) -> int:
        """What snapshots leave of the room; may be negative."""
        return self.room_bytes - (self.num_snapshots or 0) * self.bytes_per_snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`num_pages` and `num_slots` include the reserved page 0 and slot 0; the tokens do not.
    `num_snapshots` is None where no layer is recurrent: then pages alone make a prefix usable."""

    num_pages: int
    num_slots: int
    pool_tokens: int
    max_context: int
    weight_bytes: int
    workspace_bytes: int
    pool_bytes: int
    slot_bytes: int
    room_bytes: int
    bytes_per_token: int
    num_snapshots: int | None = None
    bytes_per_snapshot: int = 0

    @property
    def snapshot_bytes(self) -> int:
        return (self.num_snapshots or 0) * self.bytes_per_snapshot

    @property
    def total_bytes(self) -> int:
        fixed = self.weight_bytes + self.workspace_bytes + self.slot_bytes
        return fixed + self.pool_bytes + self.snapshot_bytes

    def explain(self) -> str:
        """A few lines for the log and for `draftmark check`."""
        spare = self.room_bytes - self.pool_bytes - self.snapshot_bytes
        rows = [
            ("weights", _size(self.weight_bytes), ""),
            ("work space", _size(self.workspace_bytes), ""),
            ("slots", _size(self.slot_bytes), f"{self.num_slots - 1} sequences"),
            (
                "KV pool",
                _size(self.pool_bytes),
                f"{self.pool_tokens:,} tokens in pages of {PAGE_TOKENS}, "
                f"{self.bytes_per_token:,} bytes a token",
            ),
            *self._snapshot_row(),
            ("total", _size(self.total_bytes), f"{_size(spare)} more is allowed"),
            (
                "context",
                f"{self.max_context:,} tokens",
                f"{self.pool_tokens // self.max_context:,} such requests fit at once",
            ),
        ]
        return "\n".join(f"{name:<12}{size:>14}  {note}".rstrip() for name, size, note in rows)

    def _snapshot_row(self) -> list[tuple[str, str, str]]:
        if self.num_snapshots is None:
            return []
        note = f"{self.num_snapshots} of {_size(self.bytes_per_snapshot)} each"
        return [("snapshots", _size(self.snapshot_bytes), note)]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Flags that fit, as (field of `BudgetInputs`, value)."""

    values: tuple[tuple[str, Any], ...]

    def applied_to(self, wanted: BudgetInputs) -> BudgetInputs:
        return replace(wanted, **dict(self.values))

    def __str__(self) -> str:
        return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in self.values)


def compute_budget(wanted: BudgetInputs) -> Budget:
    """Sizes that fit. Raises `BudgetError` that says what is missing and proposes flags."""
    problem = _problem(wanted)
    if problem is None:
        return _budget(wanted)
    reason, param = problem
    found = proposals(wanted)
    hint = "; or ".join(str(proposal) for proposal in found)
    advice = f". This would fit: {hint}" if found else ". No choice of flags fits this model here"
    raise BudgetError(reason + advice, param=param)


def common_budget(wanted: Sequence[BudgetInputs]) -> Budget:
    """For several memories: pages and snapshots have one number everywhere, so the one with the
    least room decides. Raises `BudgetError`."""
    budgets = [compute_budget(one) for one in wanted]
    counts = [budget.num_snapshots or 0 for budget in budgets if budget.bytes_per_snapshot]
    if counts:
        # What one memory saves by having fewer snapshots than it could is room for its pages.
        budgets = [compute_budget(replace(one, snapshots=min(counts))) for one in wanted]
    elif wanted[0].snapshots is not None:
        raise BudgetError(
            f"--snapshots {wanted[0].snapshots}: no layer of this model is recurrent, pages alone "
            "make a prefix usable",
            param="snapshots",
        )
    # Where pages cost nothing there is no limit to them.
    with_pages = [budget for budget in budgets if budget.bytes_per_token]
    return min(with_pages or budgets, key=lambda budget: budget.num_pages)


def proposals(wanted: BudgetInputs) -> list[Proposal]:
    """Changes that make `wanted` fit, the nearest of each kind; each alone is enough. Only when
    none is, they come with one running sequence. Empty when nothing helps."""
    found = _nearest_of_each(wanted)
    if found:
        return found
    alone = Proposal((("max_running", 1), ("state_slots", 1)))
    return [
        Proposal(alone.values + more.values) for more in _nearest_of_each(alone.applied_to(wanted))
    ]


def _pages(wanted: BudgetInputs) -> int:
    """Pages without the dump page: as asked for, else what fits (may be below 1)."""
    if wanted.kv_pool_tokens is not None:
        return pages_of(wanted.kv_pool_tokens)
    if wanted.page_bytes == 0:
        return wanted.max_running * pages_of(wanted.max_context or wanted.model_context)
    return wanted.page_room_bytes // wanted.page_bytes - 1


def _problem(wanted: BudgetInputs) -> tuple[str, str] | None:
    """(sentence, field at fault), or None when everything fits."""
    if wanted.slots < wanted.max_running:
        return (
            f"--state-slots {wanted.slots} is below --max-running {wanted.max_running}",
            "state_slots",
        )
    pages, room = _pages(wanted), wanted.page_room_bytes
    pool_bytes = (max(pages, 1) + 1) * wanted.page_bytes
    context = wanted.max_context
    if pool_bytes > room:
        tokens = max(pages, 1) * PAGE_TOKENS
        return (
            f"{_fixed_parts(wanted)}; a KV pool of {tokens} tokens takes {_size(pool_bytes)}",
            _at_fault(wanted),
        )
    if context is not None and context > pages * PAGE_TOKENS:
        return (
            f"{_fixed_parts(wanted)}; the KV pool holds {pages * PAGE_TOKENS} tokens, a request of "
            f"--max-context {context} could never run",
            "max_context",
        )
    return None


def _at_fault(wanted: BudgetInputs) -> str:
    """The field to blame when the page pool does not fit."""
    if wanted.kv_pool_tokens is not None:
        return "kv_pool_tokens"
    return "snapshots" if wanted.snapshots and wanted.bytes_per_snapshot else "memory_fraction"


def _fixed_parts(wanted: BudgetInputs) -> str:
    """What everything but the pool takes, and what that leaves."""
    share = int(wanted.memory_fraction * wanted.base_bytes)
    free = wanted.free_bytes + wanted.weight_bytes
    allowed = f"{wanted.memory_fraction:g} of {_size(wanted.base_bytes)}"
    if free < share:
        allowed = f"the {_size(free)} that are free, weights included"
    slots = _size((wanted.slots + 1) * wanted.bytes_per_slot)
    parts = [
        f"weights ({_size(wanted.weight_bytes)})",
        f"work space ({_size(wanted.workspace_bytes)})",
        f"{wanted.slots} slots ({slots})",
    ]
    if snapshots := (wanted.num_snapshots or 0) * wanted.bytes_per_snapshot:
        parts.append(f"{wanted.num_snapshots} snapshots ({_size(snapshots)})")
    room = wanted.page_room_bytes
    left = f"leave {_size(room)}" if room >= 0 else f"lack {_size(-room)}"
    taken = f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"{taken} {left} of the memory allowed ({allowed})"


def _budget(wanted: BudgetInputs) -> Budget:
    pages = _pages(wanted)
    tokens = pages * PAGE_TOKENS
    context = wanted.max_context
    return Budget(
        num_pages=pages + 1,
        num_slots=wanted.slots + 1,
        pool_tokens=tokens,
        max_context=min(wanted.model_context, tokens) if context is None else context,
        weight_bytes=wanted.weight_bytes,
        workspace_bytes=wanted.workspace_bytes,
        pool_bytes=(pages + 1) * wanted.page_bytes,
        slot_bytes=(wanted.slots + 1) * wanted.bytes_per_slot,
        room_bytes=wanted.room_bytes,
        bytes_per_token=token_bytes(wanted.specs),
        num_snapshots=wanted.num_snapshots,
        bytes_per_snapshot=wanted.bytes_per_snapshot,
    )


# How many proposals there are to try, and the i-th one: a larger i asks for less memory.
_Candidates = tuple[int, Callable[[int], Proposal]]


def _nearest_of_each(wanted: BudgetInputs) -> list[Proposal]:
    kinds = (_contexts, _pools, _snapshots, _sequences, _fractions)
    return [found for kind in kinds if (found := _nearest(wanted, kind(wanted)))]


def _nearest(wanted: BudgetInputs, candidates: _Candidates) -> Proposal | None:
    """The first candidate that fits, by bisection; None when the last one does not."""
    count, proposal_at = candidates
    if count < 1 or _problem(proposal_at(count - 1).applied_to(wanted)) is not None:
        return None
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if _problem(proposal_at(middle).applied_to(wanted)) is None:
            high = middle
        else:
            low = middle + 1
    return proposal_at(low)


def _contexts(wanted: BudgetInputs) -> _Candidates:
    most = wanted.max_context or 0
    return most, lambda i: Proposal((("max_context", most - i),))


def _pools(wanted: BudgetInputs) -> _Candidates:
    if wanted.kv_pool_tokens is None:
        return 0, lambda i: Proposal(())
    least = pages_of(wanted.max_context or 1)
    most = max(pages_of(wanted.kv_pool_tokens), least)
    return most - least + 1, lambda i: Proposal((("kv_pool_tokens", (most - i) * PAGE_TOKENS),))


def _snapshots(wanted: BudgetInputs) -> _Candidates:
    count = wanted.snapshots if wanted.bytes_per_snapshot and wanted.snapshots else 0
    return count, lambda i: Proposal((("snapshots", count - 1 - i),))


def _sequences(wanted: BudgetInputs) -> _Candidates:
    running, slots = wanted.max_running, wanted.state_slots
    if slots is None:
        return running, lambda i: Proposal((("max_running", running - i),))

    def fewer(index: int) -> Proposal:
        left = slots - index
        return Proposal((("max_running", min(running, left)), ("state_slots", left)))

    return slots, fewer


def _fractions(wanted: BudgetInputs) -> _Candidates:
    first = math.floor(wanted.memory_fraction * 100) + 1
    return 101 - first, lambda i: Proposal((("memory_fraction", (first + i) / 100),))


def _size(count: float) -> str:
    """Bytes for people, in binary units."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
