"""Figures of drafts for `/metrics`, under our names and vLLM's.

All of them are there, at zero, from the start of a server that makes drafts, and none at any other:
that is how it is with vLLM, and no dashboard mistakes "does not draft" for "drafts badly". What is
no number yet (an acceptance length without windows, a break-even that nothing was measured for) is
left out until it is one. Positions count from 0 under both names, as vLLM counts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from draftmark.core.messages import DraftStats


@dataclass(frozen=True, slots=True)
class _Family:
    """`values` are numbered from `first` by the label, if there is one; else there is one value."""

    names: tuple[str, ...]
    doc: str
    values: Sequence[float]
    label: str = ""
    first: int = 0


def draft_metrics(model: str, stats: DraftStats) -> Iterator[Metric]:
    """Labelled with the model's name."""
    for family in _counters(stats):
        yield from _metrics(model, family, CounterMetricFamily)
    for family in _gauges(stats):
        yield from _metrics(model, family, GaugeMetricFamily)


def _metrics(
    model: str, family: _Family, kind: type[CounterMetricFamily | GaugeMetricFamily]
) -> Iterator[Metric]:
    labels = ["model_name", *([family.label] if family.label else [])]
    for name in family.names:
        metric = kind(name, family.doc, labels=labels)
        for number, value in enumerate(family.values, start=family.first):
            metric.add_metric([model, *([str(number)] if family.label else [])], value)
        yield metric


def _counters(stats: DraftStats) -> Iterator[_Family]:
    yield _Family(
        ("draftmark_draft_windows", "vllm:spec_decode_num_drafts"),
        "Rows of steps that had drafts.",
        [stats.windows],
    )
    yield _Family(
        ("draftmark_draft_tokens", "vllm:spec_decode_num_draft_tokens"),
        "Drafts in them.",
        [stats.drafted],
    )
    yield _Family(
        ("draftmark_draft_accepted_tokens", "vllm:spec_decode_num_accepted_tokens"),
        "Drafts that were accepted.",
        [stats.accepted],
    )
    yield _Family(
        ("draftmark_draft_judged_per_position",),
        "Drafts behind accepted ones alone, by their position in the window, 0 the first.",
        stats.judged_at,
        "position",
    )
    yield _Family(
        (
            "draftmark_draft_accepted_per_position",
            "vllm:spec_decode_num_accepted_tokens_per_pos",
        ),
        "Accepted drafts by their position in the window, 0 the first.",
        stats.accepted_at,
        "position",
    )
    yield _Family(
        ("draftmark_draft_turns",),
        "Turns by the number of drafts that they made for each row.",
        stats.turns,
        "drafts",
    )
    yield _Family(
        ("draftmark_draft_gaps",),
        "Rows whose drafts began without context, after turns that made none.",
        [stats.gaps],
    )
    yield _Family(
        ("draftmark_draft_verify_seconds",),
        "Time of the last stage in steps with drafts to verify, making drafts left out.",
        [stats.verify_us / 1e6],
    )
    yield _Family(("draftmark_draft_seconds",), "Time of making drafts.", [stats.draft_us / 1e6])
    yield _Family(
        ("draftmark_draft_low_acceptance_alarms",),
        "Times that so little was accepted that the drafts cannot be of use.",
        [stats.num_low],
    )


def _gauges(stats: DraftStats) -> Iterator[_Family]:
    yield _Family(
        ("draftmark_draft_low_acceptance",),
        "1 while so little is accepted that the drafts cannot be of use.",
        [float(stats.low_length is not None)],
    )
    if stats.windows:
        yield _Family(
            ("draftmark_draft_acceptance_length",),
            "Tokens that a window emitted in the mean since the start, every token counted alike.",
            [1 + stats.accepted / stats.windows],
        )
    if stats.break_even:
        yield _Family(
            ("draftmark_draft_break_even_length",),
            "Tokens that a window of so many drafts must emit to be no slower than no drafts, for "
            "what runs now.",
            stats.break_even,
            "drafts",
            first=1,
        )
