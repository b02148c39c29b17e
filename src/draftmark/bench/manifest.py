"""What a run was made with: files by their hashes, code, packages, machine, command.

Taken before and after: a run whose files changed under it measured nobody knows what. No host name
and no secret goes in.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions, version
from pathlib import Path

import msgspec

from draftmark.bench.masking import MASKED, is_secret, masked_command

# What may change a measurement, and nothing else of somebody's environment.
_TOLD = (
    "CUDA_",
    "NCCL_",
    "GLOO_",
    "OMP_",
    "MKL_",
    "KMP_",
    "NUMBA_",
    "HF_",
    "TORCH",
    "VLLM_",
    "SGLANG_",
)
_TOLD_NAMES = ("PYTHONHASHSEED", "PYTHONPATH", "LD_PRELOAD", "TOKENIZERS_PARALLELISM")


class ManifestFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`role` is what the file is to the run: profile, trace, corpus, declared."""

    role: str
    path: str
    sha256: str
    md5: str
    bytes: int


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the client ran: not always where the server did."""

    system: str
    architecture: str
    cpu: str | None
    cpus: int | None
    memory_bytes: int | None


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    taken: str
    version: str
    # Of the checkout that the program runs from; None: it was installed. `code` is the package's
    # folder in that commit, `uncommitted_sha256` what differs from it there.
    commit: str | None
    code: str | None
    uncommitted_sha256: str | None
    files: list[ManifestFile]
    command: list[str]
    environment: dict[str, str]
    python: str
    packages: dict[str, str]
    machine: Machine


class Manifests(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`manifest.json`: at the start and the end of a run, and what changed between."""

    start: Manifest
    end: Manifest
    changed: list[str]


def take_manifest(files: Mapping[str, Path], command: Sequence[str]) -> Manifest:
    """`files` are named by their role. Raises `OSError` when one of them cannot be read."""
    commit, code, uncommitted = _checkout(Path(__file__).parents[1])
    return Manifest(
        taken=datetime.now(UTC).isoformat(timespec="seconds"),
        version=version("draftmark"),
        commit=commit,
        code=code,
        uncommitted_sha256=uncommitted,
        files=[_file(role, path) for role, path in sorted(files.items())],
        command=masked_command(command),
        environment=_environment(os.environ),
        python=platform.python_version(),
        packages={found.name: found.version for found in distributions()},
        machine=_machine(),
    )


def changes(start: Manifest, end: Manifest) -> list[str]:
    """What is no longer as it was, one phrase each. A commit that touches no code of the package is
    no change."""
    found = [
        f"{name} changed"
        for name in ("version", "code", "uncommitted_sha256", "python", "packages", "environment")
        if getattr(start, name) != getattr(end, name)
    ]
    before = {file.path: file.sha256 for file in start.files}
    after = {file.path: file.sha256 for file in end.files}
    return found + [
        f"{path} changed"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    told = {
        name: value
        for name, value in variables.items()
        if name.startswith(_TOLD) or name in _TOLD_NAMES
    }
    return {name: MASKED if is_secret(name) else told[name] for name in sorted(told)}


def _file(role: str, path: Path) -> ManifestFile:
    sha256, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            sha256.update(chunk)
            md5.update(chunk)
            size += len(chunk)
    return ManifestFile(
        role=role, path=str(path), sha256=sha256.hexdigest(), md5=md5.hexdigest(), bytes=size
    )


def _checkout(package: Path) -> tuple[str | None, str | None, str | None]:
    """Commit, the package's tree in it, and the hash of what differs; None each where there is
    none."""
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None, None, None
    commit, code = _git(package, "rev-parse", "HEAD"), _git(package, "rev-parse", "HEAD:./")
    differs = (_git(package, "diff", "HEAD", "--", ".") or "") + (
        _git(package, "ls-files", "--others", "--exclude-standard", ".") or ""
    )
    uncommitted = hashlib.sha256(differs.encode()).hexdigest() if differs else None
    return commit and commit.strip(), code and code.strip(), uncommitted


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, None where there is no git, or no checkout."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=30, check=False
        )
    except FileNotFoundError:
        return None  # no git on this machine: the commit is unknown, and None says so
    return done.stdout if done.returncode == 0 else None


def _machine() -> Machine:
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        cpu=_cpu(),
        cpus=os.cpu_count(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def _cpu() -> str | None:
    told = Path("/proc/cpuinfo")
    if told.exists():
        for line in told.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None
