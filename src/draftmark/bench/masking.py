"""Secrets, known by their names, in what a server tells of itself, in command lines and in the
environment: they are never kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASKED = "***"
_SECRET = re.compile(r"(^|[-_])(key|secret|password|passwd|token|credentials?)$", re.IGNORECASE)


def is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def masked(tree: Any) -> Any:
    """`tree` with every text masked whose name is that of a secret, at any depth."""
    if isinstance(tree, Mapping):
        return {
            name: MASKED
            if isinstance(value, str) and value and is_secret(str(name))
            else masked(value)
            for name, value in tree.items()
        }
    return [masked(value) for value in tree] if isinstance(tree, list) else tree


def masked_command(command: Sequence[str]) -> list[str]:
    """The value of `--api-key` and the like, in both forms, is not told."""
    shown: list[str] = []
    hides_next = False
    for word in command:
        flag, equals, _ = word.partition("=")
        hides = flag.startswith("--") and is_secret(flag)
        shown.append(MASKED if hides_next else f"{flag}={MASKED}" if hides and equals else word)
        hides_next = hides and not equals
    return shown
