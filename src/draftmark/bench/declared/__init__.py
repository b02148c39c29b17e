"""What was declared for a server against what it runs with, key by key."""

from __future__ import annotations

from draftmark.bench.declared.drift import Difference, differences, drift
from draftmark.bench.declared.files import Declared, read_declared

__all__ = ["Declared", "Difference", "differences", "drift", "read_declared"]
