"""Is the server there? Asked when a connection failed, to tell one broken request from a death."""

from __future__ import annotations

import time

from draftmark.bench.control import Control
from draftmark.core.errors import Unavailable

_TRIES = 3
_PAUSE_S = 0.3
_ANSWER_S = 3.0


def why_dead(url: str, *, api_key: str | None = None) -> str | None:
    """None when anything but a 5xx answers `GET /health`; otherwise what was met in three tries.

    A server without that path says 404, and lives.
    """
    control = Control(url, api_key=api_key, timeout_s=_ANSWER_S)
    reason: str | None = None
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE_S)
        reason = _probe(control)
        if reason is None:
            return None
    return reason


def _probe(control: Control) -> str | None:
    try:
        status = control.request("GET", "/health").status
    except Unavailable as error:
        return error.message
    return f"GET /health: HTTP {status}" if status >= 500 else None
