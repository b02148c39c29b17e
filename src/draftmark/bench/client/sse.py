"""Server-sent events out of bytes, however the network cut them.

Works on bytes to the end: a character cut in two by the network is never decoded in halves. Lines
end with LF, CRLF or CR; comments and unknown fields are skipped; several `data` lines of one event
are joined by a line feed. An event whose last blank line never came is given at the end: some
servers leave it out.
"""

from __future__ import annotations

from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"
# One event. A whole prompt of log probabilities fits; a stream without any line end is no stream.
_MAX_EVENT_BYTES = 64 << 20


class Event(NamedTuple):
    """One event with data; `kind` is its `event` field, empty for most."""

    data: bytes
    kind: bytes = b""


class EventTooLong(ValueError):
    """No end of an event in far more bytes than one has."""


class SseParser:
    """Feed it what arrived; it returns the events that were completed by it."""

    def __init__(self) -> None:
        self._rest = b""
        # The last byte was a CR: a line feed that follows belongs to it.
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> list[Event]:
        if not data:
            return []
        if self._after_cr or b"\r" in data:
            data = self._with_line_feeds(data)
        if self._rest:
            data = self._rest + data
        if self._at_start:
            data = self._without_bom(data)
        *blocks, self._rest = data.split(b"\n\n")
        if len(self._rest) > _MAX_EVENT_BYTES:
            raise EventTooLong(f"an event of more than {_MAX_EVENT_BYTES:,} bytes")
        return [event for block in blocks if (event := _read(block)) is not None]

    def close(self) -> list[Event]:
        """The stream has ended: what its last event holds, if that lacked its blank line."""
        event = _read(self._rest)
        self._rest = b""
        return [] if event is None else [event]

    def _with_line_feeds(self, data: bytes) -> bytes:
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
            if not data:
                return data
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _without_bom(self, data: bytes) -> bytes:
        """A mark of byte order may be cut, too: wait for three bytes while it still may be one."""
        self._at_start = len(data) < len(_BOM) and _BOM.startswith(data)
        return data.removeprefix(_BOM)


def _read(block: bytes) -> Event | None:
    """The event of the lines between two blank ones; None when there is no data in it."""
    if block.startswith(b"data: ") and b"\n" not in block:
        return Event(block[6:])
    data: list[bytes] = []
    kind = b""
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            kind = value
    return Event(b"\n".join(data), kind) if data else None
