"""From memory to numbers of pages and slots: one pure function, and what it says about itself.

    room for pools = min(fraction x base - weights, free now) - work space - slots
    base           = the GPU's memory, or the memory available at start on a CPU

An impossible budget is a `BudgetError` that proposes flags. Each proposal was tried: fed back, it
fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from draftmark.cache.spec import PAGE_TOKENS, CacheSpec, pages_of, slot_bytes, token_bytes
from draftmark.core.errors import BudgetError


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
    def room_bytes(self) -> int:
        """What the page pool may take, beside everything else; may be negative."""
        allowed = min(
            int(self.memory_fraction * self.base_bytes) - self.weight_bytes, self.free_bytes
        )
        return allowed - self.workspace_bytes - (self.slots + 1) * self.bytes_per_slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`num_pages` and `num_slots` include the reserved page 0 and slot 0; the tokens do not."""

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

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.workspace_bytes + self.pool_bytes + self.slot_bytes

    def explain(self) -> str:
        """A few lines for the log and for `draftmark check`."""
        spare = self.room_bytes - self.pool_bytes
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
            ("total", _size(self.total_bytes), f"{_size(spare)} more is allowed"),
            (
                "context",
                f"{self.max_context:,} tokens",
                f"{self.pool_tokens // self.max_context:,} such requests fit at once",
            ),
        ]
        return "\n".join(f"{name:<12}{size:>14}  {note}".rstrip() for name, size, note in rows)


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
    return wanted.room_bytes // wanted.page_bytes - 1


def _problem(wanted: BudgetInputs) -> tuple[str, str] | None:
    """(sentence, field at fault), or None when everything fits."""
    if wanted.slots < wanted.max_running:
        return (
            f"--state-slots {wanted.slots} is below --max-running {wanted.max_running}",
            "state_slots",
        )
    pages, room = _pages(wanted), wanted.room_bytes
    pool_bytes = (max(pages, 1) + 1) * wanted.page_bytes
    context = wanted.max_context
    if pool_bytes > room:
        tokens = max(pages, 1) * PAGE_TOKENS
        return (
            f"{_fixed_parts(wanted)}; a KV pool of {tokens} tokens takes {_size(pool_bytes)}",
            "kv_pool_tokens" if wanted.kv_pool_tokens is not None else "memory_fraction",
        )
    if context is not None and context > pages * PAGE_TOKENS:
        return (
            f"{_fixed_parts(wanted)}; the KV pool holds {pages * PAGE_TOKENS} tokens, a request of "
            f"--max-context {context} could never run",
            "max_context",
        )
    return None


def _fixed_parts(wanted: BudgetInputs) -> str:
    """What everything but the pool takes, and what that leaves."""
    share = int(wanted.memory_fraction * wanted.base_bytes)
    free = wanted.free_bytes + wanted.weight_bytes
    allowed = f"{wanted.memory_fraction:g} of {_size(wanted.base_bytes)}"
    if free < share:
        allowed = f"the {_size(free)} that are free, weights included"
    slots = _size((wanted.slots + 1) * wanted.bytes_per_slot)
    room = wanted.room_bytes
    left = f"leave {_size(room)}" if room >= 0 else f"lack {_size(-room)}"
    return (
        f"weights ({_size(wanted.weight_bytes)}), work space ({_size(wanted.workspace_bytes)}) and "
        f"{wanted.slots} slots ({slots}) {left} of the memory allowed ({allowed})"
    )


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
    )


# How many proposals there are to try, and the i-th one: a larger i asks for less memory.
_Candidates = tuple[int, Callable[[int], Proposal]]


def _nearest_of_each(wanted: BudgetInputs) -> list[Proposal]:
    kinds = (_contexts, _pools, _sequences, _fractions)
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
