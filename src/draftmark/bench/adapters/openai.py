"""Any server with OpenAI's API: its list of models, and what each answer says of itself."""

from __future__ import annotations

from typing import ClassVar

from draftmark.bench.adapters.base import Adapter, Seen
from draftmark.bench.adapters.exposition import Exposition
from draftmark.bench.result import Counters, Sample


class OpenaiAdapter(Adapter):
    name: ClassVar[str] = "openai"

    def metrics(self) -> Exposition | None:
        """None: figures under names that nobody defined are not guessed at."""
        return None

    def _seen(self, metrics: Exposition | None) -> Seen:
        context = self.max_context
        return Seen(config=None if context is None else {"max_model_len": context})

    def _counters(self, metrics: Exposition) -> Counters:
        return Counters()

    def _sample(self, metrics: Exposition, t: int) -> Sample:
        return Sample(t=t, running=None, waiting=None, kv_use=None)
