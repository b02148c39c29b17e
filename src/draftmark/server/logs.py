"""Logs as `key=value` lines, and the record of one HTTP request that becomes such a line.

Prompts and answers are left out unless `--log-prompts` asks for them.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

_BARE = re.compile(r"[\w.:/@+*,\-\[\]]+\Z", re.ASCII)


class KeyValueFormatter(logging.Formatter):
    """time=... level=... logger=... msg="..." and the record's own fields; a traceback follows."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        fields |= record.__dict__.get("fields") or {}
        line = key_values(fields)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def key_values(fields: Mapping[str, object]) -> str:
    """Values with blanks or quotes in them are JSON strings; None is left out."""
    return " ".join(
        f"{name}={_shown(value)}" for name, value in fields.items() if value is not None
    )


def configure_logging(level: int = logging.INFO) -> None:
    """Send everything to stderr in this form. Called once, by the command."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValueFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)


@dataclass(slots=True)
class RequestLog:
    """What is known of a request when it is over. `fields` is filled on the way."""

    request_id: str
    method: str
    path: str
    arrived: float
    status: int = 0
    fields: dict[str, object] = field(default_factory=dict)

    def write(self, logger: logging.Logger, *, now: float) -> None:
        quiet = self.method in ("GET", "HEAD") and self.status < 500
        fields = {
            "request_id": self.request_id,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "ms": round((now - self.arrived) * 1000, 1),
            **self.fields,
        }
        level = logging.DEBUG if quiet else logging.INFO
        logger.log(level, "request", extra={"fields": fields})


def _shown(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if _BARE.match(text) else json.dumps(text, ensure_ascii=False)
