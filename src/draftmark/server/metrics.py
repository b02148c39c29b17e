"""Prometheus figures, under our names and under vLLM's for what gateways and dashboards read.

Engine figures are read when somebody scrapes, from the last `EngineStats`; request figures are
counted here. Nothing is registered globally: two servers in one process do not mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from draftmark.core.messages import EngineState, EngineStats
from draftmark.core.request import FinishReason
from draftmark.core.synthetic import rates_of, rates_text
from draftmark.server.draft_metrics import draft_metrics

_SECONDS = tuple(base * 10.0**power for power in range(-3, 3) for base in (1, 2, 3, 5, 7))
_TOKENS = tuple(base * 10.0**power for power in range(6) for base in (1, 2, 5))


def _kv_usage(stats: EngineStats) -> float:
    """Share of pages that running sequences hold; cached pages can be had at once."""
    held = stats.pages_total - stats.pages_free - stats.pages_cached
    return held / stats.pages_total if stats.pages_total else 0.0


@dataclass(frozen=True, slots=True)
class _Figure:
    """One reading of `EngineStats`. Names of counters are without `_total`."""

    names: tuple[str, ...]
    doc: str
    read: Callable[[EngineStats], float]


_GAUGES = (
    _Figure(
        ("draftmark_requests_running", "vllm:num_requests_running"),
        "Sequences that run.",
        lambda stats: stats.running,
    ),
    _Figure(
        ("draftmark_requests_waiting", "vllm:num_requests_waiting"),
        "Sequences that wait for a place.",
        lambda stats: stats.waiting,
    ),
    _Figure(
        ("draftmark_requests_draining",),
        "Ended sequences whose last step is still in flight.",
        lambda stats: stats.draining,
    ),
    _Figure(
        # vLLM renamed it; the gateway protocol and older dashboards read the second name.
        ("draftmark_kv_usage_ratio", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        "Share of KV pages that running sequences hold (0 to 1).",
        _kv_usage,
    ),
    _Figure(("draftmark_pages",), "KV pages in all.", lambda stats: stats.pages_total),
    _Figure(("draftmark_pages_free",), "KV pages nothing is in.", lambda stats: stats.pages_free),
    _Figure(
        ("draftmark_pages_cached",),
        "KV pages only the prefix cache holds.",
        lambda stats: stats.pages_cached,
    ),
    _Figure(("draftmark_slots",), "State slots in all.", lambda stats: stats.slots_total),
    _Figure(("draftmark_slots_free",), "Free state slots.", lambda stats: stats.slots_free),
    _Figure(
        ("draftmark_snapshots",),
        "Places for snapshots of recurrent state in all.",
        lambda stats: stats.snapshots_total,
    ),
    _Figure(
        ("draftmark_snapshots_used",),
        "Places with a snapshot in the prefix cache, or one that is being written.",
        lambda stats: stats.snapshots_used,
    ),
    _Figure(
        ("draftmark_first_bad_layer",),
        "First layer that ever gave a non-finite value, -1 for none.",
        lambda stats: stats.first_bad_layer,
    ),
)
_COUNTERS = (
    _Figure(("draftmark_steps",), "Steps run.", lambda stats: stats.steps),
    _Figure(
        ("draftmark_prompt_tokens", "vllm:prompt_tokens", "vllm:prefix_cache_queries"),
        "Prompt tokens of admitted sequences, each looked up in the prefix cache.",
        lambda stats: stats.prompt_tokens,
    ),
    _Figure(
        ("draftmark_prefix_matched_tokens",),
        "Prompt tokens whose pages were cached; with recurrent layers, only those up to a snapshot "
        "can be restored.",
        lambda stats: stats.matched_tokens,
    ),
    _Figure(
        ("draftmark_cached_tokens", "vllm:prefix_cache_hits"),
        "Prompt tokens restored from the prefix cache.",
        lambda stats: stats.cached_tokens,
    ),
    _Figure(
        ("draftmark_output_tokens", "vllm:generation_tokens"),
        "Tokens generated.",
        lambda stats: stats.output_tokens,
    ),
    _Figure(
        ("draftmark_overrun_tokens",),
        "Tokens computed after an end that only the host could see.",
        lambda stats: stats.overrun_tokens,
    ),
    _Figure(
        ("draftmark_preemptions", "vllm:num_preemptions"),
        "Sequences sent back to wait for want of pages.",
        lambda stats: stats.preemptions,
    ),
    _Figure(("draftmark_aborts",), "Sequences aborted.", lambda stats: stats.aborts),
    _Figure(("draftmark_rows",), "Rows of steps.", lambda stats: stats.rows),
    _Figure(("draftmark_bad_rows",), "Rows with a non-finite value.", lambda stats: stats.bad_rows),
    _Figure(
        ("draftmark_snapshot_saves",),
        "Snapshots that became matchable.",
        lambda stats: stats.snapshot_saves,
    ),
    _Figure(
        ("draftmark_snapshot_restores",),
        "Sequences that began from a snapshot.",
        lambda stats: stats.snapshot_restores,
    ),
    _Figure(
        ("draftmark_snapshot_evictions",),
        "Snapshots dropped, for another one or with their page.",
        lambda stats: stats.snapshot_evictions,
    ),
    _Figure(
        ("draftmark_engine_seconds",),
        "Time of the engine process in steps.",
        lambda stats: stats.engine_us / 1e6,
    ),
    _Figure(
        ("draftmark_worker_seconds",),
        "Time of the worker in steps.",
        lambda stats: stats.worker_us / 1e6,
    ),
)


class Metrics:
    """All figures of one server. `state` and `stats` are asked at every scrape."""

    def __init__(
        self, *, model: str, state: Callable[[], EngineState], stats: Callable[[], EngineStats]
    ) -> None:
        self.first_token = _histogram("time_to_first_token_seconds", "Arrival to first token.")
        self.interval = _histogram("inter_token_latency_seconds", "Between tokens of an answer.")
        self.per_token = _histogram(
            "request_time_per_output_token_seconds", "Mean over an answer, first token left out."
        )
        self.whole = _histogram("e2e_request_latency_seconds", "Arrival to last token.")
        self.prompt = _histogram("request_prompt_tokens", "Tokens of a prompt.", _TOKENS)
        self.answer = _histogram("request_generation_tokens", "Tokens of an answer.", _TOKENS)
        self.finished = Counter(
            "draftmark_requests_finished",
            "Sequences ended, by reason.",
            ["finished_reason"],
            registry=None,
        )
        self.http = Counter(
            "draftmark_http_requests", "HTTP answers.", ["path", "status"], registry=None
        )
        for reason in FinishReason:
            self.finished.labels(str(reason))
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(model, state, stats))
        self._registry.register(_RequestCollector(model, self))

    def text(self) -> bytes:
        """The exposition format of Prometheus."""
        return generate_latest(self._registry)


class ChoiceTimer:
    """Times one sequence. `now` is a monotonic clock in seconds, read by the caller."""

    def __init__(self, metrics: Metrics, *, arrived: float, prompt_tokens: int) -> None:
        self._metrics = metrics
        self._arrived = arrived
        self._prompt_tokens = prompt_tokens
        self._first = 0.0
        self._last = 0.0
        self._count = 0
        self._has_ended = False

    def tokens(self, count: int, *, now: float) -> None:
        """`count` new tokens came. Those of one step came together."""
        if not count:
            return
        if not self._count:
            self._first = now
            self._metrics.first_token.observe(now - self._arrived)
        else:
            self._metrics.interval.observe((now - self._last) / count)
        self._count += count
        self._last = now

    def end(self, reason: FinishReason, *, now: float) -> None:
        """Only the first end counts."""
        if self._has_ended:
            return
        self._has_ended = True
        self._metrics.finished.labels(str(reason)).inc()
        if reason not in (FinishReason.STOP, FinishReason.LENGTH):
            return
        self._metrics.whole.observe(now - self._arrived)
        self._metrics.prompt.observe(self._prompt_tokens)
        self._metrics.answer.observe(self._count)
        if self._count > 1:
            self._metrics.per_token.observe((self._last - self._first) / (self._count - 1))


def _histogram(name: str, doc: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
    return Histogram(f"draftmark_{name}", doc, buckets=buckets, registry=None)


class _EngineCollector(Collector):
    def __init__(
        self, model: str, state: Callable[[], EngineState], stats: Callable[[], EngineStats]
    ) -> None:
        self._model = model
        self._state = state
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        for figures, family in ((_GAUGES, GaugeMetricFamily), (_COUNTERS, CounterMetricFamily)):
            for figure in figures:
                for name in figure.names:
                    metric = family(name, figure.doc, labels=["model_name"])
                    metric.add_metric([self._model], figure.read(stats))
                    yield metric
        yield from self._of_stages(stats)
        if stats.drafts is not None:
            yield from draft_metrics(self._model, stats.drafts)
        state = GaugeMetricFamily(
            "draftmark_engine_state", "1 for the state it is in.", labels=["state"]
        )
        for name in ("loading", "ready", "draining", "failed"):
            state.add_metric([name], float(self._state().state == name))
        yield state
        ready = self._state().ready or {}
        yield self._of_backends(ready)
        if rates := rates_of(ready):
            metric = GaugeMetricFamily(
                "draftmark_synthetic_acceptance",
                "1 where coins of these rates accept drafts: nothing here is of a real model.",
                labels=["model_name", "rates"],
            )
            metric.add_metric([self._model, rates_text(rates)], 1.0)
            yield metric

    def _of_backends(self, ready: dict[str, object]) -> Metric:
        metric = GaugeMetricFamily(
            "draftmark_op_backend",
            "1 for the implementation that each op was given at start.",
            labels=["model_name", "op", "backend"],
        )
        chosen = ready.get("backends", {})
        for op, backend in msgspec.convert(chosen, dict[str, str]).items():
            metric.add_metric([self._model, op, backend], 1.0)
        return metric

    def _of_stages(self, stats: EngineStats) -> Iterator[Metric]:
        """The rate of the first is the busy share over any time; the second is the latest."""
        busy = CounterMetricFamily(
            "draftmark_stage_busy_seconds",
            "Time each pipeline stage computed, waits for other stages left out.",
            labels=["model_name", "stage"],
        )
        share = GaugeMetricFamily(
            "draftmark_stage_busy_share",
            "Share of the last interval between reports that each pipeline stage computed.",
            labels=["model_name", "stage"],
        )
        rows = GaugeMetricFamily(
            "draftmark_cohort_rows",
            "Decoding rows of each cohort.",
            labels=["model_name", "cohort"],
        )
        for stage, busy_us in enumerate(stats.stage_busy_us):
            busy.add_metric([self._model, str(stage)], busy_us / 1e6)
        for stage, value in enumerate(stats.stage_busy_share):
            share.add_metric([self._model, str(stage)], value)
        for cohort, count in enumerate(stats.cohort_rows):
            rows.add_metric([self._model, str(cohort)], count)
        yield from (busy, share, rows)


class _RequestCollector(Collector):
    """Our histograms and counters, and the same samples again under vLLM's names."""

    def __init__(self, model: str, metrics: Metrics) -> None:
        self._model = model
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        both = self._metrics
        for source in (
            both.first_token,
            both.interval,
            both.per_token,
            both.whole,
            both.prompt,
            both.answer,
        ):
            yield from self._with_alias(source)
        # The older name of the interval, which dashboards still show.
        yield self._renamed(both.interval, "vllm:time_per_output_token_seconds")
        yield from both.http.collect()
        yield self._renamed(both.finished, "draftmark_requests_finished")
        yield self._renamed(both.finished, "vllm:request_success", only=("stop", "length"))

    def _with_alias(self, source: Histogram) -> Iterator[Metric]:
        [metric] = source.collect()
        yield self._renamed(source, metric.name)
        yield self._renamed(source, metric.name.replace("draftmark_", "vllm:"))

    def _renamed(
        self, source: Histogram | Counter, name: str, *, only: tuple[str, ...] = ()
    ) -> Metric:
        """The samples of `source` as a family called `name`, labelled with the model."""
        [metric] = source.collect()
        copy = Metric(name, metric.documentation, metric.type)
        for sample in metric.samples:
            if sample.name.endswith("_created"):
                continue
            if only and sample.labels.get("finished_reason") not in only:
                continue
            labels = {**sample.labels, "model_name": self._model}
            copy.add_sample(name + sample.name.removeprefix(metric.name), labels, sample.value)
        return copy
