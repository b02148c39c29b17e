"""Which build of torch to install, decided by asking pip what it would take.

Without a GPU a CPU build is wanted (200 MB instead of 3 GB): a local wheel that pip's own
configuration finds, else PyTorch's CPU index where it answers, else whatever pip takes by default.
Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import json
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CPU_INDEX_OPTIONS = ("--index-url", CPU_INDEX, "--timeout", "5", "--retries", "0")
OLDEST = (2, 11)
LARGE_BYTES = 500_000_000

# Runs pip with these arguments and returns what it printed, "" when it failed.
AskPip = Callable[[list[str]], str]


@dataclass(frozen=True)
class Build:
    """What to hand to `pip install`. `source` tells the user where it comes from.

    `size_bytes` is the whole download (torch and what it needs), None when nobody says; `is_local`
    means that nothing large is downloaded at all.
    """

    requirement: str
    options: tuple[str, ...]
    source: str
    size_bytes: int | None = None
    is_local: bool = False


def has_gpu() -> bool:
    """An NVIDIA GPU, by its driver's traces; nothing is imported or started."""
    return bool(shutil.which("nvidia-smi") or list(Path("/dev").glob("nvidia[0-9]*")))


def is_recent(version: str) -> bool:
    """True for a torch that may stay: 2.11 or later, whatever its local suffix."""
    numbers = version.partition("+")[0].split(".")[:2]
    return all(number.isdigit() for number in numbers) and tuple(map(int, numbers)) >= OLDEST


def offered_versions(ask: AskPip, options: tuple[str, ...]) -> list[str]:
    """Versions of torch for this Python and platform that pip finds under these options."""
    printed = ask(["index", "versions", "torch", *options])
    for line in printed.splitlines():
        if line.startswith("Available versions:"):
            return [version.strip() for version in line.partition(":")[2].split(",")]
    return []


def cpu_build(version: str, *, ask: AskPip) -> Build | None:
    """The CPU wheel of this version, local before remote; None when neither answers."""
    wanted = f"{version}+cpu"
    if wanted in offered_versions(ask, ("--no-index",)):
        local = ("--no-index", "--no-deps")
        return Build(f"torch=={wanted}", local, "a local CPU wheel", is_local=True)
    # Off Linux the default index already has CPU builds only.
    if sys.platform == "linux" and wanted in offered_versions(ask, CPU_INDEX_OPTIONS):
        remote = (*CPU_INDEX_OPTIONS, "--no-deps")
        return Build(f"torch=={wanted}", remote, "PyTorch's CPU index (about 200 MB)")
    return None


def default_build(version: str, *, ask: AskPip, size_of: Callable[[str], int | None]) -> Build:
    """What pip takes without our say, with its download size; a CUDA build on most Linux machines.

    pip must be recent enough to answer from metadata alone (`--dry-run` of older ones downloads
    everything first).
    """
    requirement = f"torch=={version}"
    command = ["install", "--dry-run", "--ignore-installed", "--use-feature=fast-deps"]
    printed = ask([*command, "--quiet", "--report", "-", requirement])
    if not printed:
        return Build(requirement, (), "the default index (pip did not say what it would take)")
    items = json.loads(printed)["install"]
    names = [item["metadata"]["name"].lower() for item in items]
    sizes = [size_of(item["download_info"]["url"]) for item in items]
    known = [size for size in sizes if size is not None]
    is_cuda = any(name.startswith(("nvidia-", "cuda-")) for name in names)
    return Build(
        requirement,
        (),
        "the default index, a CUDA build" if is_cuda else "the default index",
        size_bytes=sum(known) if len(known) == len(sizes) else None,
    )


def remote_size(url: str) -> int | None:
    """Bytes behind a URL as its server states them, None when it does not."""
    if url.startswith("file:"):
        return 0
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            length = answer.headers["Content-Length"]
    except (urllib.error.URLError, TimeoutError):
        return None  # the size is for information; pip itself reports a dead index
    return int(length) if length else None


def announcement(build: Build) -> str:
    """What to tell the user before the download, "" when there is nothing to warn of."""
    if build.is_local:
        return ""
    if build.size_bytes is None:
        return "" if "CPU" in build.source else "download size unknown; a CUDA build is about 3 GB"
    if build.size_bytes < LARGE_BYTES:
        return ""
    return f"this downloads {build.size_bytes / 1e9:.1f} GB"
