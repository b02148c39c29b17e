"""What is asked of every server: its state before and after a run, a sample a second, a reset.

A subclass fills in what its server tells. What it does not tell is None.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from draftmark.bench.adapters.exposition import Exposition, parse_exposition
from draftmark.bench.control import Control
from draftmark.bench.masking import masked
from draftmark.bench.memory import memory_of_server
from draftmark.bench.result import Counters, Sample, ServerState
from draftmark.core.errors import ModelNotFound

_REST_S = 5.0
_LOOK_S = 0.2
_OPENAI_SAMPLING = frozenset(
    {"temperature", "top_p", "presence_penalty", "frequency_penalty", "seed"}
)
FULL_SAMPLING = _OPENAI_SAMPLING | {"top_k", "min_p", "repetition_penalty"}


class Accepts(msgspec.Struct, frozen=True, kw_only=True):
    """Which fields of a request the server takes. `sampling` are names of `profile.Sampling`;
    `top_k_off` is how "no top_k" is written."""

    sampling: frozenset[str] = _OPENAI_SAMPLING
    top_k_off: int = 0
    ignore_eos: bool = False
    prompt_ids: bool = True
    token_ids: bool = False
    continuous_usage: bool = False
    tokenize: bool = False


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter finds out besides the counters."""

    version: str | None = None
    start_id: str | None = None
    config: dict[str, Any] | None = None
    kv_pool_tokens: int | None = None
    synthetic_acceptance: str | None = None


class Adapter(ABC):
    """One server. `model` is the one to measure; None takes the first that the server lists.
    `pid` is its process on this machine, where that is known."""

    name: ClassVar[str]
    accepts: ClassVar[Accepts] = Accepts()

    def __init__(
        self, control: Control, *, model: str | None = None, pid: int | None = None
    ) -> None:
        self.control = control
        self.pid = pid
        self._wanted = model
        self._model: dict[str, Any] | None = None

    @property
    def model(self) -> str:
        """The name that requests give. Raises `ModelNotFound`, and `Unavailable`."""
        return str(self._card()["id"])

    @property
    def max_context(self) -> int | None:
        """Tokens of a prompt and its answer together, where the server tells."""
        card = self._card()
        length = card.get("max_model_len") or card.get("context_length")
        return length if isinstance(length, int) else None

    def before(self) -> ServerState:
        """Raises `Unavailable` when the server is not there, `ModelNotFound` for a wrong model."""
        return self._state(self.model)

    def after(self) -> ServerState:
        """The same at the end, when its counters have come to rest. Raises `Unavailable` when the
        server is gone."""
        self._model = None  # another server may stand there now, and must be seen
        self.wait_for_rest()
        return self._state(self.model)

    def sample(self, *, t: int) -> Sample:
        """The server now; `t` is the caller's time of it. Raises `Unavailable`."""
        metrics = self.metrics()
        if metrics is None:
            return Sample(t=t, running=None, waiting=None, kv_use=None)
        return self._sample(metrics, t)

    def reset_cache(self) -> bool:
        """Empty the prefix cache. False where the server has no way to."""
        return False

    def metrics(self) -> Exposition | None:
        """One scrape, None where there is no `/metrics`."""
        text = self.control.text("/metrics")
        return None if text is None else parse_exposition(text)

    @abstractmethod
    def _seen(self, metrics: Exposition | None) -> Seen: ...

    @abstractmethod
    def _counters(self, metrics: Exposition) -> Counters: ...

    @abstractmethod
    def _sample(self, metrics: Exposition, t: int) -> Sample: ...

    def _state(self, model: str) -> ServerState:
        metrics = self.metrics()
        seen = self._seen(metrics)
        return ServerState(
            adapter=self.name,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            url=self.control.url,
            model=model,
            version=seen.version,
            start_id=seen.start_id,
            config=masked(seen.config),
            counters=Counters() if metrics is None else self._counters(metrics),
            kv_pool_tokens=seen.kv_pool_tokens,
            synthetic_acceptance=seen.synthetic_acceptance,
            memory=memory_of_server(self.control.url, pid=self.pid),
            raw={} if metrics is None else metrics.counters(),
        )

    def wait_for_rest(self) -> None:
        """Until nothing runs and two looks agree: a client sees the end of an answer before the
        server has counted it. A server that stays busy is looked at as it is."""
        deadline = time.monotonic() + _REST_S
        before = None
        while time.monotonic() < deadline:
            now = self.sample(t=0)
            if now == before and not now.running and not now.waiting:
                return
            before = now
            time.sleep(_LOOK_S)

    def _card(self) -> dict[str, Any]:
        """The entry of `/v1/models` of the model, asked once."""
        if self._model is None:
            self._model = find_model(self.control, self._wanted)
        return self._model


def find_model(control: Control, wanted: str | None) -> dict[str, Any]:
    """Raises `ModelNotFound` with what there is."""
    listing = control.json("/v1/models")
    cards = listing.get("data") if isinstance(listing, dict) else None
    named = {str(card["id"]): card for card in cards or [] if isinstance(card, dict)}
    if wanted is None and named:
        return next(iter(named.values()))
    if wanted not in named:
        there = ", ".join(named) or "none"
        raise ModelNotFound(f"{control.url} does not serve {wanted or 'any model'}; it has {there}")
    return named[wanted]


def process_start(metrics: Exposition | None) -> str | None:
    """When the server's process began, as its start's name; None where it does not tell."""
    began = metrics.total("process_start_time_seconds") if metrics else None
    return None if began is None else f"{began:.2f}"
