"""The real server and engine processes over a worker without torch, as one command.

    python tests/fakes/serve.py MODEL_DIR [--set field=value] [--worker name=value]

Prints one line when ready: the URL. Ends with the exit status that `draftmark serve` would have.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from draftmark.core.errors import DraftmarkError  # noqa: E402
from draftmark.core.resolve import load_config  # noqa: E402
from draftmark.server.lifecycle import run_server  # noqa: E402
from draftmark.server.logs import configure_logging  # noqa: E402
from draftmark.server.model import ServedModel  # noqa: E402
from tests.fakes import worker_process  # noqa: E402


def announce(url: str, model: ServedModel, ready: Mapping[str, object]) -> None:
    print(url, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model_dir")
    parser.add_argument("--set", action="append", default=[], help="a field of the configuration")
    parser.add_argument("--worker", action="append", default=[], help="a fault of the worker")
    arguments = parser.parse_args()
    configure_logging()
    given = {"model": arguments.model_dir, "port": "0", "device": "cpu"}
    given |= dict(item.split("=", 1) for item in arguments.set)
    faults = dict(item.split("=", 1) for item in arguments.worker)
    try:
        return run_server(
            load_config(given),
            announce=announce,
            worker=worker_process.command(eos_id=263, **faults),
        )
    except DraftmarkError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
