"""JSON Schemas of all files that the bench keeps, made from the types that write and read them.

`python -m draftmark.bench.schemas` writes them anew; a test says when that was forgotten.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from draftmark.bench.calibrate import Calibration
from draftmark.bench.conc import ConcResult
from draftmark.bench.killer import KillerResult
from draftmark.bench.manifest import Manifests
from draftmark.bench.profile import Profile
from draftmark.bench.quality import QualityResult, QuickResult
from draftmark.bench.request import RequestRecord
from draftmark.bench.result import RunResult, Sample, ServerState
from draftmark.bench.suite import SuiteResult

# Of one row, for the files that are rows.
SCHEMAS: dict[str, type[msgspec.Struct]] = {
    "run": RunResult,
    "request": RequestRecord,
    "sample": Sample,
    "server": ServerState,
    "manifest": Manifests,
    "profile": Profile,
    "killer": KillerResult,
    "conc": ConcResult,
    "suite": SuiteResult,
    "quality": QualityResult,
    "quick": QuickResult,
    "calibration": Calibration,
}


def path_of(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.json")


def text_of(name: str) -> str:
    schema = msgspec.json.schema(SCHEMAS[name])
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    written = msgspec.json.encode({**dialect, **schema}, order="sorted")
    return msgspec.json.format(written, indent=1).decode() + "\n"


def write_schemas() -> None:
    for name in SCHEMAS:
        path_of(name).write_text(text_of(name))
