"""What the benchmarks of the engine share: the machine in words, an engine over a fake worker."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from draftmark.core.resolve import load_config  # noqa: E402
from draftmark.engine.client import EngineClient  # noqa: E402
from draftmark.engine.provenance import find_provenance  # noqa: E402
from tests.fakes import worker_process  # noqa: E402
from tests.fakes.tokenizer import write_model_dir  # noqa: E402


def describe_machine() -> dict[str, object]:
    """Machine, load before the run, and the code: beside every figure."""
    code = find_provenance()
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "commit": code.commit,
        "dirty_diff_sha": code.dirty_diff_sha[:12],
    }


def _cpu_name() -> str:
    with contextlib.suppress(OSError):  # not on Linux
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@contextlib.contextmanager
def fake_model() -> Iterator[str]:
    """A model directory for the fake worker."""
    with tempfile.TemporaryDirectory() as name:
        directory = write_model_dir(Path(name) / "fake")
        (directory / "config.json").write_text("{}")
        yield str(directory)


@contextlib.asynccontextmanager
async def fake_engine(*, faults: dict[str, object], **flags: object) -> AsyncIterator[EngineClient]:
    with fake_model() as model:
        client = await EngineClient.start(
            load_config({"model": model, **flags}), worker=worker_process.command(**faults)
        )
        try:
            yield client
        finally:
            await client.close()


@contextlib.asynccontextmanager
async def real_engine(model: str, **flags: object) -> AsyncIterator[EngineClient]:
    client = await EngineClient.start(load_config({"model": model, **flags}))
    try:
        yield client
    finally:
        await client.close()


def children() -> set[int]:
    """Processes below this one."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def print_result(rows: list[dict[str, object]], **about: object) -> None:
    """A table for people, then one line of JSON."""
    names = list(rows[0])
    cells = [[_shown(row[name]) for name in names] for row in rows]
    widths = [max(len(line[i]) for line in [names, *cells]) for i in range(len(names))]
    for line in [names, *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    print(json.dumps({"rows": rows, **about, "machine": describe_machine()}))


def _shown(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
