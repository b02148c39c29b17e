"""SGLang: its server arguments in full; counters only when it was started with --enable-metrics.

Its gauge of acceptance is an average over a window or over its life, not over a run: it is not
taken, and acceptance is unknown.
"""

from __future__ import annotations

from typing import Any, ClassVar

from draftmark.bench.adapters.base import FULL_SAMPLING, Accepts, Adapter, Seen, process_start
from draftmark.bench.adapters.exposition import Exposition
from draftmark.bench.result import Counters, Sample

# Ranks of one engine count the same work.
_ONE_RANK = {"tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}


class SglangAdapter(Adapter):
    name: ClassVar[str] = "sglang"
    # Its "no top_k" is -1, and 0 is refused.
    accepts: ClassVar[Accepts] = Accepts(
        sampling=FULL_SAMPLING, top_k_off=-1, ignore_eos=True, continuous_usage=True
    )

    def reset_cache(self) -> bool:
        return self.control.posts("/flush_cache")

    def _seen(self, metrics: Exposition | None) -> Seen:
        config = server_info(self)
        if config is None:
            return Seen(start_id=process_start(metrics))
        pool = config.get("max_total_num_tokens")
        version = config.get("version")
        return Seen(
            version=None if version is None else str(version),
            start_id=process_start(metrics),
            config=config,
            kv_pool_tokens=pool if isinstance(pool, int) else None,
        )

    def _counters(self, metrics: Exposition) -> Counters:
        prompt = metrics.count("sglang:prompt_tokens_total", **_ONE_RANK)
        return Counters(
            requests=metrics.count("sglang:num_requests_total", **_ONE_RANK),
            prompt_tokens=prompt,
            output_tokens=metrics.count("sglang:generation_tokens_total", **_ONE_RANK),
            cached_tokens=metrics.count("sglang:cached_tokens_total", **_ONE_RANK),
            queried_tokens=prompt,
            retractions=metrics.count(
                "sglang:num_retracted_requests_total",
                "sglang:num_retracted_reqs_total",
                **_ONE_RANK,
            ),
        )

    def _sample(self, metrics: Exposition, t: int) -> Sample:
        return Sample(
            t=t,
            running=metrics.count("sglang:num_running_reqs", **_ONE_RANK),
            waiting=metrics.count("sglang:num_queue_reqs", **_ONE_RANK),
            kv_use=metrics.largest("sglang:token_usage"),
            counters=self._counters(metrics),
        )


def server_info(adapter: Adapter) -> dict[str, Any] | None:
    """The route's name of today, and the one of before."""
    for path in ("/server_info", "/get_server_info"):
        info = adapter.control.json(path)
        if isinstance(info, dict):
            return info
    return None
