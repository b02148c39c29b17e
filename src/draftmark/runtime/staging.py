"""The ring of host buffers that a step's inputs go through, and its results.

One entry a step in flight. Its buffers are made once and used again only after the step's event:
until then the device may still read the inputs, or write the results. On a CPU the device tensor
of a section is the host memory itself. With `poison`, released buffers are overwritten, so that a
use after release cannot pass a test.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from draftmark.core.request import MAX_LOGPROBS
from draftmark.parallel.lanes import LABEL_WORDS
from draftmark.runtime.relay import RowLayout

POISON = -(2**62)
WORD_BYTES = 8

# A rank that tells no results may be behind in freeing entries, by as much as its result thread is
# late or its device hangs: whom to blame, the engine's watchdog knows, which strikes first.
PATIENCE_S = 600.0

# Of a row of log-probabilities: chosen, rank, ids, values.
LOGPROB_COLUMNS = 2 + 2 * MAX_LOGPROBS


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """Bounds of one step: what the buffers are made for."""

    max_rows: int
    max_prefill_tokens: int
    layout: RowLayout = RowLayout()  # noqa: RUF009 - a frozen value

    @property
    def max_sampled(self) -> int:
        """Tokens sampled in one step."""
        return self.max_rows * (self.layout.max_drafts + 1)


class StepEvent:
    """Set when everything enqueued for a step is done."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = torch.cuda.Event(blocking=True) if device.type == "cuda" else None
        self._host = threading.Event()

    def record(self) -> None:
        if self._cuda is not None:
            self._cuda.record()
        self._host.set()

    def wait(self) -> None:
        """Sleep until the step is done, from any thread."""
        self._host.wait()
        if self._cuda is not None:
            self._cuda.synchronize()

    def clear(self) -> None:
        self._host.clear()


class StepClock:
    """How long a stage computed, between two moments of a step."""

    def __init__(self, device: torch.device) -> None:
        self._events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
        if device.type == "cuda":
            self._events = (_timing_event(), _timing_event())
        self._began_ns = self._ended_ns = 0

    def begin(self) -> None:
        if self._events is not None:
            self._events[0].record()
        else:
            self._began_ns = time.perf_counter_ns()

    def end(self) -> None:
        if self._events is not None:
            self._events[1].record()
        else:
            self._ended_ns = time.perf_counter_ns()

    def busy_us(self) -> int:
        """Once the step is done."""
        if self._events is not None:
            began, ended = self._events
            return int(began.elapsed_time(ended) * 1000)
        return (self._ended_ns - self._began_ns) // 1000


def _timing_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


class StepStaging:
    """Buffers of one step. Sections of `words` are handed out in order by `ints` and `floats`."""

    def __init__(self, shape: StepShape, *, device: torch.device, poison: bool) -> None:
        self._device = device
        self._poison = poison
        self.layout = shape.layout
        self._used = 0
        self.event = StepEvent(device)
        self.clock = StepClock(device)
        self.draft_clock = StepClock(device)
        self.freed = threading.Event()
        self.freed.set()
        pinned = device.type == "cuda"
        self._make_words(words_of(shape))
        self.packed = torch.empty(
            (shape.max_rows, shape.layout.packed_columns), dtype=torch.int64, pin_memory=pinned
        )
        self.faults = torch.empty(1, dtype=torch.int64, pin_memory=pinned)
        self.bad_prefill = torch.empty(
            shape.max_prefill_tokens, dtype=torch.int64, pin_memory=pinned
        )
        self.logprobs = torch.empty(
            (shape.max_sampled, LOGPROB_COLUMNS), dtype=torch.float64, pin_memory=pinned
        )
        self.prompt_logprobs = torch.empty(
            (shape.max_prefill_tokens, LOGPROB_COLUMNS), dtype=torch.float64, pin_memory=pinned
        )

    def reserve(self, words: int) -> None:
        """Make room for a step's inputs. Only a plan whose admissions tell ids, which are
        of any number, can need more than the buffers were made for."""
        if words > len(self._host):
            self._make_words(2 * words)

    def ints(self, values: Sequence[int] | numpy.ndarray) -> Tensor:
        """The device section [len(values)] int64 that holds `values` after `upload`."""
        start = self._used
        self._used = stop = start + len(values)
        self._int_view[start:stop] = values
        return self._on_device[start:stop]

    def floats(self, values: Sequence[float] | numpy.ndarray) -> Tensor:
        """Likewise float64."""
        start = self._used
        self._used = stop = start + len(values)
        self._float_view[start:stop] = values
        return self._on_device[start:stop].view(torch.float64)

    def upload(self) -> None:
        """Enqueue the copy of all sections to the device."""
        if self._device.type != "cpu":
            self._on_device[: self._used].copy_(self._host[: self._used], non_blocking=True)

    @torch.inference_mode()
    def release(self) -> None:
        """The step is done and its result was read."""
        if self._poison:
            self._host.fill_(POISON)
            self.packed.fill_(POISON)
            self.faults.fill_(POISON)
            self.bad_prefill.fill_(POISON)
            self.logprobs.fill_(torch.nan)
            self.prompt_logprobs.fill_(torch.nan)
        self._used = 0
        self.event.clear()
        self.freed.set()

    def _make_words(self, count: int) -> None:
        self._host = torch.empty(count, dtype=torch.int64, pin_memory=self._device.type == "cuda")
        self._on_device = self._host.to(self._device)
        self._int_view = self._host.numpy()
        self._float_view = self._int_view.view(numpy.float64)
        self._used = 0


class StagingRing:
    """Entries in turn. One more than plans may be in flight: a result may still be on its way."""

    def __init__(
        self, depth: int, *, shape: StepShape, device: torch.device, poison: bool = False
    ) -> None:
        self._entries = [StepStaging(shape, device=device, poison=poison) for _ in range(depth)]
        self._next = 0

    def take(self) -> StepStaging:
        """The next entry, once its step's result was read. Raises when nobody reads it: too many
        are in flight."""
        entry = self._entries[self._next]
        if not entry.freed.wait(PATIENCE_S):
            raise AssertionError(f"more than {len(self._entries)} steps are in flight")
        self._next = (self._next + 1) % len(self._entries)
        entry.freed.clear()
        return entry


def words_of(shape: StepShape) -> int:
    """Words of a step's inputs but for penalty ids and biases: a row of verify and its share of
    page deltas, six words a prefill token, an admission a row."""
    from_rows = shape.max_rows * (8 + ADMIT_WORDS)
    return LABEL_WORDS + from_rows + 6 * shape.max_prefill_tokens


# Slot, state, sampling parameters, stop ids; the pages of an admission are counted when it comes.
ADMIT_WORDS = 128


def staging_bytes(shape: StepShape) -> int:
    """Host bytes of one entry."""
    results = shape.max_rows * shape.layout.packed_columns + shape.max_sampled * LOGPROB_COLUMNS
    prompt = shape.max_prefill_tokens * (1 + LOGPROB_COLUMNS)
    return WORD_BYTES * (words_of(shape) + results + 1 + prompt)
