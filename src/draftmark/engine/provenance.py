"""Which code runs: the commit and a hash of what differs from it, or the package's version."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

# The engine says nothing while it asks git, and silence is taken for a failure after seconds.
_GIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Provenance:
    """`commit` is a git commit, or `draftmark X.Y.Z` outside a checkout. `dirty_diff_sha` is the
    SHA-256 of the difference to it (new files by name), empty when there is none and `unknown`
    when git does not say.
    """

    commit: str
    dirty_diff_sha: str = ""


def find_provenance() -> Provenance:
    package = Path(__file__).resolve().parents[1]
    commit = _git(package, "rev-parse", "HEAD")
    # A checkout that merely surrounds an installed package says nothing about it.
    if commit is None or _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return Provenance(f"draftmark {metadata.version('draftmark')}")
    changed = _git(package, "diff", "HEAD", "--", ".")
    new = _git(package, "ls-files", "--others", "--exclude-standard", "--", ".")
    if changed is None or new is None:
        return Provenance(commit.decode().strip(), "unknown")
    sha = hashlib.sha256(changed + new).hexdigest() if changed + new else ""
    return Provenance(commit.decode().strip(), sha)


def _git(directory: Path, *arguments: str) -> bytes | None:
    """What git prints, or None where it cannot say."""
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):  # no git, or no answer: None says so
        return None
    return done.stdout if done.returncode == 0 else None
