"""draftmark: an LLM serving engine that drafts, and the measurements that mark it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftmark.core.request import SamplingParams
    from draftmark.engine.api import AsyncEngine
    from draftmark.engine.sync import Engine

__all__ = ["AsyncEngine", "Engine", "SamplingParams"]

# Imported on first use: a worker needs none of the engine, and a command line starts quicker.
_HOMES = {
    "AsyncEngine": "draftmark.engine.api",
    "Engine": "draftmark.engine.sync",
    "SamplingParams": "draftmark.core.request",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
