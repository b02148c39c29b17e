"""Kernels of the gated delta net done wrong, as they have been done wrong, put in place of ours.

Most are the right kernel on other gates: a rule for the running sums of gates within a chunk is a
rule for the gates themselves, their differences. Chunks lie between multiples of `CHUNK_TOKENS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from draftmark.kernels import delta_rows, gated_delta
from draftmark.kernels.backends import Backends
from draftmark.kernels.gated_delta import CHUNK_TOKENS, DeltaCache, Span
from tests.cpu.kernels.test_gated_delta_specimens import clamped

# Gates of a chunk [c, Hv], from where it begins or goes on, to other gates; c <= CHUNK_TOKENS.
Gates = Callable[[Tensor], Tensor]
RESET = -100.0


@dataclass(slots=True)
class Bound:
    """How often the clamp changed a running sum: positions of every head and layer."""

    bound: int = 0
    positions: int = 0

    @property
    def share(self) -> float:
        return self.bound / self.positions

    def gates(self, g: Tensor) -> Tensor:
        """The specimen's clamp of the sums, as differences."""
        sums = clamped(g[None])[0]
        self.bound += int((g.double().cumsum(0) != sums).sum())
        self.positions += g.numel()
        return sums.diff(dim=0, prepend=torch.zeros_like(sums[:1])).to(g.dtype)


def emptied(g: Tensor) -> Tensor:
    """The state is not carried from chunk to chunk."""
    return torch.cat((torch.full_like(g[:1], RESET), g[1:]))


def turned(g: Tensor) -> Tensor:
    """Growth in place of decay."""
    return -g


def undecayed(g: Tensor) -> Tensor:
    return torch.zeros_like(g)


def with_gates(change: Gates, backends: Backends) -> AbstractContextManager[Any]:
    """Prompts run with other gates."""
    prefill = gated_delta._PREFILL[backends.gated_delta]

    def faulty(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        cache: DeltaCache,
        spans: list[Span],
    ) -> Tensor:
        g = g.clone()
        for span in spans:
            own, first = g[span.tokens], 0
            while first < span.count:
                size = CHUNK_TOKENS - (span.start + first) % CHUNK_TOKENS
                own[first : first + size] = change(own[first : first + size])
                first += size
        return prefill(q, k, v, g, beta, cache, spans)

    return _replaced(gated_delta._PREFILL, backends.gated_delta, faulty)


def without_records(backends: Backends) -> AbstractContextManager[Any]:
    """What a prompt leaves behind is its checkpoint alone, without the tokens since."""
    prefill = gated_delta._PREFILL[backends.gated_delta]

    def faulty(*given: Any) -> Tensor:
        out = prefill(*given)
        cache, spans = given[-2:]
        cache.deltas[[span.slot for span in spans]] = 0.0
        return out

    return _replaced(gated_delta._PREFILL, backends.gated_delta, faulty)


def with_stale_window(backends: Backends) -> AbstractContextManager[Any]:
    """The convolution's window stays at the prompt's last input while tokens are decoded."""
    verify = delta_rows._VERIFY[backends.delta_rows]

    def faulty(
        x: Tensor,
        weights: Any,
        ring: Tensor,
        cache: DeltaCache,
        slots: Tensor,
        lengths: Tensor,
        *more: Any,
    ) -> Tensor:
        out = verify(x, weights, ring, cache, slots, lengths, *more)
        depth = ring.shape[1]
        ring[slots, lengths % depth] = ring[slots, (lengths - 1) % depth]
        return out

    return _replaced(delta_rows._VERIFY, backends.delta_rows, faulty)


@contextmanager
def _replaced(table: Any, backend: str, faulty: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(table, backend, faulty)
        yield
