"""draftmark: everything it runs with, and all of its counters.

Its verify steps are those that had a draft: what it chose to run without any is not counted, so
what they yield a step is more than tokens a step.
"""

from __future__ import annotations

from typing import Any, ClassVar

from draftmark.bench.adapters.base import FULL_SAMPLING, Accepts, Adapter, Seen
from draftmark.bench.adapters.exposition import Exposition
from draftmark.bench.result import Counters, Sample

_GENERATING = ("/v1/completions", "/v1/chat/completions")


class DraftmarkAdapter(Adapter):
    name: ClassVar[str] = "draftmark"
    accepts: ClassVar[Accepts] = Accepts(
        sampling=FULL_SAMPLING,
        ignore_eos=True,
        token_ids=True,
        continuous_usage=True,
        tokenize=True,
    )

    # By its settings, which `_seen` reads before anything is counted.
    _drafts_nothing = False

    def reset_cache(self) -> bool:
        return self.control.posts("/v1/engine/cache/reset")

    def _seen(self, metrics: Exposition | None) -> Seen:
        config = self.control.json("/v1/engine/config")
        self._drafts_nothing = False
        if not isinstance(config, dict):
            return Seen()
        drafter = _mapping(_mapping(config.get("speculation")).get("draft")).get("value")
        self._drafts_nothing = drafter == "none"
        ready = _mapping(config.get("ready"))
        pool = _mapping(_mapping(config.get("memory")).get("kv_pool_tokens")).get("value")
        return Seen(
            version=_text(ready.get("commit")),
            start_id=_text(ready.get("start_id")),
            config=config,
            kv_pool_tokens=pool if isinstance(pool, int) else None,
            synthetic_acceptance=_rates(ready.get("synthetic_acceptance")),
        )

    def _counters(self, metrics: Exposition) -> Counters:
        """A server that makes no drafts does not speak of them: there are none then. One that does
        and says nothing is of before it counted them."""
        prompt = metrics.count("draftmark_prompt_tokens_total")
        return Counters(
            requests=generating_requests(metrics),
            prompt_tokens=prompt,
            output_tokens=metrics.count("draftmark_output_tokens_total"),
            cached_tokens=metrics.count("draftmark_cached_tokens_total"),
            queried_tokens=prompt,
            preemptions=metrics.count("draftmark_preemptions_total"),
            verify_steps=self._of_drafts(metrics, "draftmark_draft_windows_total"),
            drafted=self._of_drafts(metrics, "draftmark_draft_tokens_total"),
            accepted=self._of_drafts(metrics, "draftmark_draft_accepted_tokens_total"),
            accepted_per_position=metrics.by_position(
                "draftmark_draft_accepted_per_position_total"
            ),
        )

    def _of_drafts(self, metrics: Exposition, name: str) -> int | None:
        return 0 if self._drafts_nothing else metrics.count(name)

    def _sample(self, metrics: Exposition, t: int) -> Sample:
        return Sample(
            t=t,
            running=metrics.count("draftmark_requests_running"),
            waiting=metrics.count("draftmark_requests_waiting"),
            kv_use=metrics.largest("draftmark_kv_usage_ratio"),
            counters=self._counters(metrics),
        )


def generating_requests(metrics: Exposition) -> int | None:
    """Answers of the two routes that generate."""
    name = "draftmark_http_requests_total"
    counts = [metrics.count(name, path=path) for path in _GENERATING]
    return None if None in counts else sum(count or 0 for count in counts)


def _rates(value: Any) -> str | None:
    """As its flag has them, None where there are none."""
    return ",".join(f"{rate:g}" for rate in value) if isinstance(value, list) and value else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
