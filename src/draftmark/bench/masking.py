"""Secrets in what a server tells of itself, by their names: they are never kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASKED = "***"
_SECRET = re.compile(r"(^|[-_])(key|secret|password|passwd|token|credentials?)$", re.IGNORECASE)


def masked(tree: Any) -> Any:
    """`tree` with every text masked whose name is that of a secret, at any depth."""
    if isinstance(tree, Mapping):
        return {
            name: MASKED
            if isinstance(value, str) and value and _SECRET.search(str(name))
            else masked(value)
            for name, value in tree.items()
        }
    return [masked(value) for value in tree] if isinstance(tree, list) else tree
