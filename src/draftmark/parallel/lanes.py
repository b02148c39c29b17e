"""Lanes: typed, fixed-shape, buffered channels from one stage to another.

A message is one run of bytes: a header, int64 words, then hidden states. No shape and no metadata
ever travels: both ends derive the shape of step n from plan n. Both ends come from one call of
`make_lane` with one `LaneFormat`, so that a lane cannot be changed at one end only.

    parcel = outlet.open(shape)         the next buffer, free to be written
    outlet.send()                       what was written goes out, in order
    parcel = inlet.receive(shape, label)  the next message; checked to be that of `label`
    inlet.release()                     it was consumed

Buffers are made once; a lane holds `depth` messages. On a GPU nothing here waits on the host: what
waits is the current stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from draftmark.core.errors import EngineFailure
from draftmark.core.topology import LaneName

WORD_BYTES = 8
# Step, cohort, generation of the rows, and the lane's own number.
HEADER_WORDS = 4
LABEL_WORDS = 3
POISON_WORD = -(2**62)


class LaneFault(AssertionError):
    """The two ends of a lane disagree: a fault of ours."""


class LaneBroken(EngineFailure):
    """The other end of a lane is gone, or did not come in time."""

    code = "lane_broken"


class Label(NamedTuple):
    """What a message is of. `generation` is a checksum over slot and generation of its rows."""

    step: int
    cohort: int
    generation: int


class Shape(NamedTuple):
    """Of one message: int64 words, and tokens with a hidden state each."""

    words: int
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFormat:
    """One description for both ends. `number` is the lane's index in the topology."""

    name: LaneName
    number: int
    depth: int
    max_words: int
    max_tokens: int = 0
    hidden_size: int = 0
    dtype: torch.dtype = torch.float32

    def num_bytes(self, shape: Shape) -> int:
        words = HEADER_WORDS + shape.words
        return WORD_BYTES * words + shape.tokens * self.hidden_size * self.dtype.itemsize

    @property
    def max_bytes(self) -> int:
        return self.num_bytes(Shape(self.max_words, self.max_tokens))


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message in its buffer. `payload` [bytes] uint8 is all of it; `label` are the first words
    of its header."""

    payload: Tensor
    header: Tensor  # [HEADER_WORDS] int64
    words: Tensor  # [words] int64
    hidden: Tensor  # [tokens, hidden_size]

    @property
    def label(self) -> Tensor:
        return self.header[:LABEL_WORDS]

    def poison(self) -> None:
        """Make what is here unfit for any use. The header last: whoever writes here at the same
        time, by mistake, must not have a good one before words that are poisoned after it."""
        self.words.fill_(POISON_WORD)
        self.hidden.fill_(torch.nan)
        self.header.fill_(POISON_WORD)


class Ticket(Protocol):
    """A transfer under way."""

    def wait(self) -> object:
        """Host (CPU) or current stream (GPU) goes on when the transfer is done."""


class Wire(Protocol):
    """Moves parcels in order between the ends of one lane."""

    def buffers(self, count: int, num_bytes: int, device: torch.device) -> Sequence[Tensor]:
        """This end's `count` buffers [num_bytes] uint8, in the order in which they are used, over
        and over. Called once, before all else."""

    def send(self, parcel: Parcel) -> Ticket: ...

    def receive(self, parcel: Parcel) -> Ticket: ...

    def released(self, parcel: Parcel) -> None:
        """The consumer is done with a parcel that came."""

    def close(self) -> None: ...


class _Buffer:
    """Place for one message, and the transfer that uses it."""

    def __init__(self, format: LaneFormat, place: Tensor) -> None:
        """`place` [format.max_bytes] uint8 is where it lies."""
        self._format = format
        self.bytes = place
        self.header = place[: WORD_BYTES * HEADER_WORDS].view(torch.int64)
        self.ticket: Ticket | None = None

    def parcel(self, shape: Shape) -> Parcel:
        format = self._format
        if shape.words > format.max_words or shape.tokens > format.max_tokens:
            raise LaneFault(f"{format.name}: {shape} is more than the lane was made for")
        stop = WORD_BYTES * (HEADER_WORDS + shape.words)
        payload = self.bytes[: format.num_bytes(shape)]
        hidden = payload[stop:].view(format.dtype)
        return Parcel(
            payload=payload,
            header=self.header,
            words=payload[WORD_BYTES * HEADER_WORDS : stop].view(torch.int64),
            hidden=hidden.view(shape.tokens, format.hidden_size),
        )

    def stamp(self) -> None:
        self.header[LABEL_WORDS].fill_(self._format.number)

    def sent_label(self) -> Label | None:
        """Of the message that is here, for the report of a fault; not read from a GPU."""
        return Label(*self.header[:LABEL_WORDS].tolist()) if self.header.is_cpu else None

    def check(self, label: Label) -> None:
        """Raise `LaneFault` unless the header says `label`. Reads the header on the host."""
        found = tuple(self.header.tolist())
        if found != (*label, self._format.number):
            raise LaneFault(_disagreement(self._format, found, label))


def _disagreement(format: LaneFormat, found: tuple[int, ...], label: Label) -> str:
    name = format.name
    step, cohort, generation, number = found
    return (
        f"{name}: stage {name.source} sent step {step}, cohort {cohort}, generation "
        f"{generation:#x}, lane {number}; stage {name.target} expected step {label.step}, cohort "
        f"{label.cohort}, generation {label.generation:#x}, lane {format.number}"
    )


class Outlet(Protocol):
    """The end of a lane that sends."""

    format: LaneFormat

    def open(self, shape: Shape) -> Parcel: ...

    def send(self) -> None: ...


class Inlet(Protocol):
    """The end of a lane that receives."""

    format: LaneFormat

    def receive(self, shape: Shape, label: Label) -> Parcel: ...

    def release(self) -> None: ...


class LocalLane:
    """Both ends in one thread: what is written is what is read, nothing is copied."""

    def __init__(self, format: LaneFormat, *, device: torch.device, checks: bool) -> None:
        self.format = format
        self._checks = checks
        places = plain_buffers(format.depth, format.max_bytes, device)
        self._free = deque(_Buffer(format, place) for place in places)
        self._sent: deque[tuple[_Buffer, Shape]] = deque()
        self._open: tuple[_Buffer, Shape] | None = None
        self._held: _Buffer | None = None
        for buffer in self._free:
            buffer.stamp()

    def open(self, shape: Shape) -> Parcel:
        if not self._free:
            raise LaneFault(f"{self.format.name} is full: {self.format.depth} messages wait")
        buffer = self._free.popleft()
        self._open = buffer, shape
        return buffer.parcel(shape)

    def send(self) -> None:
        assert self._open is not None, "open comes first"
        self._sent.append(self._open)
        self._open = None

    def receive(self, shape: Shape, label: Label) -> Parcel:
        if not self._sent:
            raise LaneFault(f"{self.format.name}: nothing was sent, step {label.step} is expected")
        buffer, sent = self._sent.popleft()
        if self._checks:
            buffer.check(label)
        if sent != shape:
            raise LaneFault(f"{self.format.name}: {sent} was sent, {shape} is expected")
        self._held = buffer
        return buffer.parcel(shape)

    def release(self) -> None:
        assert self._held is not None, "receive comes first"
        self._free.append(self._held)
        self._held = None


class WiredOutlet:
    """The sending end of a lane whose other end has buffers of its own."""

    def __init__(self, format: LaneFormat, wire: Wire, *, device: torch.device) -> None:
        self.format = format
        self._wire = wire
        self._ring = _make_ring(format, wire, device)
        self._open: Parcel | None = None

    def open(self, shape: Shape) -> Parcel:
        buffer = self._ring[0]
        if buffer.ticket is not None:
            with _naming(self.format, buffer.sent_label):
                buffer.ticket.wait()
            buffer.ticket = None
        buffer.stamp()
        self._open = buffer.parcel(shape)
        return self._open

    def send(self) -> None:
        assert self._open is not None, "open comes first"
        buffer = self._ring[0]
        with _naming(self.format, buffer.sent_label):
            buffer.ticket = self._wire.send(self._open)
        self._ring.rotate(-1)
        self._open = None


class WiredInlet:
    """The receiving end. A receive is posted when the message is wanted, never earlier: an idle
    engine waits for nothing, so no time limit can strike it."""

    def __init__(
        self, format: LaneFormat, wire: Wire, *, device: torch.device, checks: bool
    ) -> None:
        self.format = format
        self._wire = wire
        self._checks = checks
        self._ring = _make_ring(format, wire, device)
        self._held: tuple[Parcel, Label] | None = None

    def receive(self, shape: Shape, label: Label) -> Parcel:
        buffer = self._ring[0]
        parcel = buffer.parcel(shape)
        with _naming(self.format, lambda: label):
            self._wire.receive(parcel).wait()
        if self._checks:
            buffer.check(label)
        self._held = parcel, label
        return parcel

    def release(self) -> None:
        assert self._held is not None, "receive comes first"
        parcel, label = self._held
        with _naming(self.format, lambda: label):
            self._wire.released(parcel)
        self._held = None
        self._ring.rotate(-1)


def plain_buffers(count: int, num_bytes: int, device: torch.device) -> list[Tensor]:
    """`count` times [num_bytes] uint8, each a storage of its own."""
    return [torch.empty(num_bytes, dtype=torch.uint8, device=device) for _ in range(count)]


def _make_ring(format: LaneFormat, wire: Wire, device: torch.device) -> deque[_Buffer]:
    places = wire.buffers(format.depth, format.max_bytes, device)
    return deque(_Buffer(format, place) for place in places)


@contextmanager
def _naming(format: LaneFormat, label: Callable[[], Label | None]) -> Iterator[None]:
    """What torch raises for a lost or late peer becomes a `LaneBroken` that names the message, and
    what a wire says of it is said with its name."""
    try:
        yield
    except (LaneFault, RuntimeError) as error:
        of = label()
        where = "" if of is None else f" at step {of.step}, cohort {of.cohort}"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if isinstance(error, LaneFault):
            raise LaneFault(f"{format.name}{where}: {reason}") from error
        raise LaneBroken(f"{format.name} broke{where}: {reason}") from error


@dataclass(frozen=True, slots=True)
class Lane:
    """The ends of a lane that are in this process."""

    format: LaneFormat
    outlet: Outlet | None
    inlet: Inlet | None


def make_lane(
    format: LaneFormat,
    *,
    device: torch.device,
    has_source: bool,
    has_target: bool,
    wire: Wire | None,
    checks: bool,
) -> Lane:
    """The one constructor of both ends. Without a `wire` both ends are here, and are one thing.

    With `checks` a message whose header is not what is expected is a `LaneFault`. On a GPU that
    reads from the device: for debugging.
    """
    if wire is None:
        assert has_source and has_target, f"{format.name} needs a wire"
        local = LocalLane(format, device=device, checks=checks)
        return Lane(format, local, local)
    outlet = WiredOutlet(format, wire, device=device) if has_source else None
    inlet = WiredInlet(format, wire, device=device, checks=checks) if has_target else None
    return Lane(format, outlet, inlet)
