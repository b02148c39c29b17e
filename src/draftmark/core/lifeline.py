"""The line between the engine and a worker on another machine: a TCP connection, held open.

Its end is the death of the other side, kill -9 and a lost machine included (keep-alive probes).
What a local worker shows in shared files is asked for here, a byte a question:

    engine                     worker
                               ◄── its number (4 bytes)
    ── TRACE ──►               ◄── its clock in ns (8 bytes), its trace file
    ── STACKS ──►              ◄── length (4 bytes), the stacks of all its threads

A stopped process answers nothing, which says so too.
"""

from __future__ import annotations

import socket
import struct

TRACE, STACKS = b"t", b"s"
LENGTH, CLOCK = struct.Struct("!I"), struct.Struct("!q")

# A machine that is gone is noticed after about so long.
_IDLE_S, _INTERVAL_S, _PROBES = 10, 5, 3


def keep_alive(line: socket.socket) -> socket.socket:
    """Have the system probe the other side while nothing is said."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_S)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    return line


def receive_exactly(line: socket.socket, count: int) -> bytes | None:
    """So many bytes, or None when the line ends before. Raises `TimeoutError` by its time limit."""
    data = b""
    while len(data) < count:
        part = line.recv(count - len(data))
        if not part:
            return None
        data += part
    return data
