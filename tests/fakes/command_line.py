"""`draftmark` with a fake worker, as a process of its own.

    python tests/fakes/command_line.py '{"step_ms": 5}' serve MODEL --port 0

The first argument holds the fake worker's faults; the rest is the command line.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from draftmark.cli import local  # noqa: E402
from draftmark.cli.main import main  # noqa: E402
from draftmark.engine import sync  # noqa: E402
from draftmark.server import lifecycle  # noqa: E402
from tests.fakes import worker_process  # noqa: E402


def command(*argv: str, **faults: object) -> list[str]:
    """What to run."""
    return [sys.executable, str(Path(__file__)), json.dumps(faults), *argv]


if __name__ == "__main__":
    worker = worker_process.command(**json.loads(sys.argv[1]))
    local.Engine = functools.partial(sync.Engine, worker=worker)  # type: ignore[assignment,misc]
    lifecycle.run_server = functools.partial(lifecycle.run_server, worker=worker)
    sys.exit(main(sys.argv[2:]))
