"""Results of runs that never were, for the tests of what is written and shown of them."""

from __future__ import annotations

from typing import Any

import msgspec

from draftmark.bench.assemble import Occasion, assemble
from draftmark.bench.result import RunResult
from tests.fakes.bench_run import evidence


def result(
    *, run_id: str = "run-1", config_id: str = "tiny", wall_s: float | None = None, **changes: Any
) -> RunResult:
    """`changes` are those of the run's evidence; `wall_s` overrules what the records say."""
    made = assemble(
        evidence(**changes),
        Occasion(
            run_id=run_id,
            config_id=config_id,
            command=["draftmark", "bench", "run", "--api-key", "s3cret"],
            started="2026-01-01T00:00:00+00:00",
            ended="2026-01-01T00:00:02+00:00",
        ),
    )
    if wall_s is None:
        return made
    return msgspec.structs.replace(made, time=msgspec.structs.replace(made.time, wall_s=wall_s))
