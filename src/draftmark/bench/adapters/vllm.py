"""vLLM: counters from its metrics; the configuration as far as it tells without and with dev mode.

Without dev mode it shows the cache's configuration, its version and the context. With the process
id (`pid`), its command line is read too: that is what was asked for, not what became of it.

Its verify steps are those that had a draft: with n-gram drafts, a step without one is not counted,
so what they yield a step is more than tokens a step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from draftmark.bench.adapters.base import FULL_SAMPLING, Accepts, Adapter, Seen, process_start
from draftmark.bench.adapters.exposition import Exposition
from draftmark.bench.masking import masked_command
from draftmark.bench.result import Counters, Sample
from draftmark.core.errors import ConfigError


class VllmAdapter(Adapter):
    name: ClassVar[str] = "vllm"
    accepts: ClassVar[Accepts] = Accepts(
        sampling=FULL_SAMPLING,
        ignore_eos=True,
        token_ids=True,
        continuous_usage=True,
        tokenize=True,
    )

    def reset_cache(self) -> bool:
        return self.control.posts("/reset_prefix_cache")

    def _seen(self, metrics: Exposition | None) -> Seen:
        version = self.control.json("/version")
        cache = metrics.labels_of("vllm:cache_config_info") if metrics else {}
        config: dict[str, Any] = {}
        if cache:
            config["cache_config"] = cache
        if self.max_context is not None:
            config["max_model_len"] = self.max_context
        if (server := self.control.json("/server_info?config_format=json")) is not None:
            config["server_info"] = server
        if self.pid is not None:
            config["argv"] = command_line(self.pid)
        return Seen(
            version=str(version["version"]) if isinstance(version, dict) else None,
            start_id=process_start(metrics),
            config=config or None,
            kv_pool_tokens=_pool_tokens(cache),
        )

    def _counters(self, metrics: Exposition) -> Counters:
        return Counters(
            requests=metrics.count("vllm:request_success_total"),
            prompt_tokens=metrics.count("vllm:prompt_tokens_total"),
            output_tokens=metrics.count("vllm:generation_tokens_total"),
            cached_tokens=metrics.count(
                "vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"
            ),
            queried_tokens=metrics.count(
                "vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"
            ),
            preemptions=metrics.count("vllm:num_preemptions_total"),
            verify_steps=metrics.count("vllm:spec_decode_num_drafts_total"),
            drafted=metrics.count("vllm:spec_decode_num_draft_tokens_total"),
            accepted=metrics.count("vllm:spec_decode_num_accepted_tokens_total"),
            accepted_per_position=metrics.by_position(
                "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            ),
        )

    def _sample(self, metrics: Exposition, t: int) -> Sample:
        return Sample(
            t=t,
            running=metrics.count("vllm:num_requests_running"),
            waiting=metrics.count("vllm:num_requests_waiting"),
            kv_use=metrics.largest("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            counters=self._counters(metrics),
        )


def command_line(pid: int) -> list[str]:
    """The arguments that a process of this machine was started with, secrets masked."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError as error:
        raise ConfigError(f"--pid {pid}: {error.strerror}", param="pid") from error
    return masked_command(data.decode("utf-8", "replace").rstrip("\0").split("\0"))


def _pool_tokens(cache: dict[str, str]) -> int | None:
    blocks, size = cache.get("num_gpu_blocks", ""), cache.get("block_size", "")
    return int(blocks) * int(size) if blocks.isdigit() and size.isdigit() else None
