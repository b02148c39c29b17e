"""Lines a child process writes, carried into its parent's log without losing their level."""

from __future__ import annotations

import logging
import sys

_LEVELS = {
    name: logging.getLevelName(name) for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
}


class _LinePerLine(logging.Formatter):
    """Begins every line of a message with its level, so that each can be carried on alone."""

    def format(self, record: logging.LogRecord) -> str:
        head = f"{record.levelname} {record.name}: "
        return "\n".join(head + line for line in super().format(record).splitlines())


def log_as_child() -> None:
    """Log to stderr in the form `relay` understands. Called once at the start of a process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LinePerLine())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def relay(line: str, *, logger: logging.Logger) -> None:
    """Log a child's line at its own level; a bare line (a traceback, a print) is a warning."""
    head, _, rest = line.partition(" ")
    level = _LEVELS.get(head)
    if level is None:
        logger.warning("%s", line)
    else:
        logger.log(level, "%s", rest)
