"""What the truth server counts, as /metrics tells it under our names and under vLLM's."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

_GAUGES = {
    "running": ("draftmark_requests_running", "vllm:num_requests_running"),
    "waiting": ("draftmark_requests_waiting", "vllm:num_requests_waiting"),
    "kv_use": ("draftmark_kv_usage_ratio", "vllm:kv_cache_usage_perc"),
}
_COUNTERS = {
    "prompt_tokens": ("draftmark_prompt_tokens", "vllm:prompt_tokens"),
    "queried_tokens": ("", "vllm:prefix_cache_queries"),
    "cached_tokens": ("draftmark_cached_tokens", "vllm:prefix_cache_hits"),
    "output_tokens": ("draftmark_output_tokens", "vllm:generation_tokens"),
    "preemptions": ("draftmark_preemptions", "vllm:num_preemptions"),
    "verify_steps": ("draftmark_draft_windows", "vllm:spec_decode_num_drafts"),
    "accepted": ("draftmark_draft_accepted_tokens", "vllm:spec_decode_num_accepted_tokens"),
}


class Figures(msgspec.Struct):
    """Since the start. A verify step is an event after the first one; what it brings above one
    token was accepted."""

    running: int = 0
    waiting: int = 0
    kv_use: float = 0.0
    prompt_tokens: int = 0
    queried_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    verify_steps: int = 0
    accepted: int = 0
    # By HTTP status, and finished ones by their reason.
    answers: dict[tuple[str, int], int] = {}
    finished: dict[str, int] = {}

    def text(self, names: Sequence[str], *, model: str) -> bytes:
        """The exposition format of Prometheus."""
        lines: list[str] = []
        for place, whose in enumerate(("draftmark", "vllm")):
            if whose not in names:
                continue
            for kind, suffix, families in (
                ("gauge", "", _GAUGES),
                ("counter", "_total", _COUNTERS),
            ):
                for field, both in families.items():
                    name = both[place] + suffix
                    if both[place]:
                        lines += [f"# TYPE {name} {kind}"]
                        lines += [f'{name}{{model_name="{model}"}} {getattr(self, field):.1f}']
            lines += self._labelled(whose, model)
        return "\n".join([*lines, ""]).encode()

    def _labelled(self, whose: str, model: str) -> list[str]:
        reasons = {
            "draftmark": "draftmark_requests_finished_total",
            "vllm": "vllm:request_success_total",
        }
        lines = [f"# TYPE {reasons[whose]} counter"]
        for reason, count in self.finished.items():
            labels = f'finished_reason="{reason}",model_name="{model}"'
            lines.append(f"{reasons[whose]}{{{labels}}} {count}.0")
        if whose == "draftmark":
            lines.append("# TYPE draftmark_http_requests_total counter")
            for (path, status), count in self.answers.items():
                labels = f'path="{path}",status="{status}"'
                lines.append(f"draftmark_http_requests_total{{{labels}}} {count}.0")
        return lines
