"""Memory that a server of this machine holds: its processes', and theirs of GPUs.

The server is the process that listens at its address, or the one that was named, with all its
descendants. Nothing is known of a server elsewhere, of one whose processes belong to somebody else,
and of one behind a forwarder.
"""

from __future__ import annotations

import ipaddress
import shutil
import socket
import subprocess

import psutil

from draftmark.bench.client.transport import parse_url
from draftmark.bench.result import Memory
from draftmark.core.errors import ConfigError

# They listen in a server's place, and their memory is none of it.
_FORWARDERS = frozenset(
    {"docker-proxy", "rootlessport", "slirp4netns", "ssh", "sshd", "kubectl", "socat"}
    | {"nginx", "haproxy", "envoy", "caddy", "traefik"}
)
_GPU_QUERY = ("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
_GPU_TIMEOUT_S = 20
_MIB = 1 << 20


def memory_of_server(url: str, *, pid: int | None = None) -> Memory | None:
    """None where nothing is known. Raises `ConfigError` for a `pid` that is no process."""
    try:
        roots = _listeners(url) if pid is None else [psutil.Process(pid)]
    except psutil.NoSuchProcess as error:
        raise ConfigError(f"--pid {pid}: No such process", param="pid") from error
    if not roots:
        return None
    resident: dict[int, int] = {}
    try:
        for root in roots:
            for process in (root, *root.children(recursive=True)):
                if (held := _resident_bytes(process)) is not None:
                    resident[process.pid] = held
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return None  # a part of a server's memory is no figure of it
    return Memory(resident_bytes=sum(resident.values()), gpu_bytes=_gpu_bytes(set(resident)))


def _resident_bytes(process: psutil.Process) -> int | None:
    """None of a process that has just ended."""
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:  # it holds nothing any more
        return None


def _listeners(url: str) -> list[psutil.Process]:
    """Processes of this machine that listen at `url`; none where any of them is not to be seen."""
    target = parse_url(url)
    addresses = _addresses(target.host)
    if not addresses:
        return []
    try:
        sockets = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:  # some systems ask for rights even to list them
        return []
    pids = {
        one.pid
        for one in sockets
        if one.status == psutil.CONN_LISTEN
        and one.laddr
        and one.laddr.port == target.port
        and (one.laddr.ip in addresses or ipaddress.ip_address(one.laddr.ip).is_unspecified)
    }
    found = [psutil.Process(pid) for pid in pids if pid is not None and psutil.pid_exists(pid)]
    is_known = len(found) == len(pids) and not any(p.name() in _FORWARDERS for p in found)
    return found if is_known else []


def _addresses(host: str) -> set[str]:
    """Those of `host`, if they are all of this machine."""
    try:
        found = {
            str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        }
    except OSError:  # the server itself will say that there is no such host
        return set()
    own = {one.address for each in psutil.net_if_addrs().values() for one in each}
    is_here = all(ipaddress.ip_address(one).is_loopback or one in own for one in found)
    return found if is_here else set()


def _gpu_bytes(pids: set[int]) -> int | None:
    """By NVIDIA's own tool. None without it, and where it lists none of `pids`: in a container it
    may know them by other numbers."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *_GPU_QUERY],
            capture_output=True,
            text=True,
            timeout=_GPU_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):  # a tool that does not work tells nothing
        return None
    rows = [line.split(",") for line in done.stdout.splitlines()] if done.returncode == 0 else []
    held = [
        int(row[1]) * _MIB
        for row in rows
        if len(row) == 2 and row[0].strip().isdigit() and row[1].strip().isdigit()
        and int(row[0]) in pids
    ]  # fmt: skip
    return sum(held) if held else None
