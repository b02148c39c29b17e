"""What a run sends: how many requests of which size, how fast, from which prompts, sampled how."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Mode(StrEnum):
    """How requests start. Closed: as many in flight as `concurrency`. The others are open: at times
    that do not depend on the server."""

    CLOSED = "closed"
    POISSON = "poisson"
    GAMMA = "gamma"
    TRACE = "trace"
    BURST = "burst"


class Endpoint(StrEnum):
    COMPLETIONS_IDS = "completions_ids"
    COMPLETIONS = "completions"
    CHAT = "chat"


class PromptSource(StrEnum):
    LEDGER = "ledger"
    RANDOM_IDS = "random_ids"
    FILE = "file"


class Sampling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sent with every request, each field explicitly: a server's own defaults must not decide."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None


class Objectives(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request is good when it is within each of these that is given, in milliseconds."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of run. `isl` and `osl` are tokens of a prompt and of an answer."""

    name: str
    mode: Mode = Mode.CLOSED
    concurrency: int = 1
    # Requests a second, of the open modes but traces.
    rate: float | None = None
    # Shape of the gamma distribution of gaps: 1 is Poisson, below is burstier.
    burstiness: float = 1.0
    n_requests: int
    isl: int
    osl: int
    ignore_eos: bool = True
    sampling: Sampling = Sampling()
    endpoint: Endpoint = Endpoint.COMPLETIONS_IDS
    source: PromptSource = PromptSource.RANDOM_IDS
    # A file of prompts, of the source `file`: a path below the data folder.
    file: str | None = None
    seed: int = 1
    warm_runs: int = 1
    runs: int = 1
    timeout_s: float = 600.0
    slo: Objectives = Objectives()
