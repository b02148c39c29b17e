"""What a caller says: of the server, and of what a run sends to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from draftmark.bench.ledger.entries import Use
from draftmark.bench.profile import Endpoint, Mode, Profile, ProfileFile, PromptSource
from draftmark.bench.prompts.prompt import Prompt


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, what is known about it, and where runs go. `command` is for the record.
    `tokenizer` is a folder, a file or a hub id; `log` as `log_scan.open_log` takes it, `allow` are
    regular expressions of log lines that are expected. `isolated`: no cache outlives a start of the
    server, which paired windows need."""

    url: str
    runs: Path
    command: Sequence[str]
    adapter: str = "auto"
    model: str | None = None
    api_key: str | None = None
    pid: int | None = None
    config_id: str = "server"
    tokenizer: str | None = None
    data: Path | None = None
    ledger: Path | None = None
    corpus: str | None = None
    use: Use = Use.FRESH
    isolated: bool = False
    declared: Path | None = None
    service: str | None = None
    log: str | None = None
    allow: Sequence[str] = ()
    waive: Sequence[str] = ()
    shards: int | None = None
    calibration: Path | None = None
    keep_text: bool = False


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a run sends. `prompts` and `times` are a trace's own; None: the profile makes them.
    `files` are those the work was read from, by their role."""

    profile: Profile
    files: Mapping[str, Path] = {}
    prompts: Sequence[Prompt] | None = None
    times: Sequence[float] | None = None


def work_of(file: ProfileFile) -> Work:
    return Work(profile=file.profile, files={"profile": Path(file.path)})


def warm_work(work: Work) -> Work:
    """The same load from random ids: it heats the server, uses up no corpus and leaves nothing in
    its cache that the run would find there."""
    changed = {
        "source": PromptSource.RANDOM_IDS,
        "file": None,
        "endpoint": Endpoint.COMPLETIONS_IDS,
        "mode": Mode.CLOSED,
        "rate": None,
        "burstiness": 1.0,
    }
    profile = msgspec.structs.replace(work.profile, **changed)
    return Work(profile=profile, files=work.files)
