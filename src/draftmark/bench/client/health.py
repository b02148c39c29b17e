"""Is the server there? Asked when a connection failed, to tell one broken request from a death."""

from __future__ import annotations

import http.client
import time

from draftmark.bench.client.transport import parse_url

_TRIES = 3
_PAUSE_S = 0.3
_ANSWER_S = 3.0


def why_dead(url: str, *, api_key: str | None = None) -> str | None:
    """None when anything but a 5xx answers `GET /health`; otherwise what was met in three tries.

    A server without that path says 404, and lives.
    """
    reason: str | None = None
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE_S)
        reason = _probe(url, api_key)
        if reason is None:
            return None
    return reason


def _probe(url: str, api_key: str | None) -> str | None:
    target = parse_url(url)
    connection = http.client.HTTPConnection(target.host, target.port, timeout=_ANSWER_S)
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        connection.request("GET", f"{target.prefix}/health", headers=headers)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"GET /health: {error or type(error).__name__}"
    finally:
        connection.close()
    return f"GET /health: HTTP {status}" if status >= 500 else None
