"""What `/metrics` says of stages, cohorts and snapshots."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from draftmark.core.messages import EngineState, EngineStats
from draftmark.server.metrics import Metrics


def samples(stats: EngineStats) -> dict[tuple[str, str], float]:
    """(name, stage or cohort) -> value."""
    metrics = Metrics(model="m", state=lambda: EngineState("ready"), stats=lambda: stats)
    return {
        (sample.name, sample.labels.get("stage") or sample.labels.get("cohort", "")): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_each_stage_has_its_busy_time_and_share_each_cohort_its_rows() -> None:
    found = samples(
        EngineStats(
            stage_busy_us=[1_500_000, 2_000_000],
            stage_busy_share=[0.75, 1.0],
            cohort_rows=[3, 4],
        )
    )
    assert found["draftmark_stage_busy_seconds_total", "0"] == 1.5
    assert found["draftmark_stage_busy_seconds_total", "1"] == 2.0
    assert found["draftmark_stage_busy_share", "0"] == 0.75
    assert found["draftmark_stage_busy_share", "1"] == 1.0
    assert (found["draftmark_cohort_rows", "0"], found["draftmark_cohort_rows", "1"]) == (3, 4)


def test_what_pages_matched_and_what_could_be_used_are_two_figures() -> None:
    found = samples(
        EngineStats(
            matched_tokens=300,
            cached_tokens=256,
            snapshots_total=8,
            snapshots_used=5,
            snapshot_saves=7,
            snapshot_restores=4,
            snapshot_evictions=2,
        )
    )
    assert found["draftmark_prefix_matched_tokens_total", ""] == 300
    assert found["draftmark_cached_tokens_total", ""] == 256
    assert (found["draftmark_snapshots", ""], found["draftmark_snapshots_used", ""]) == (8, 5)
    names = ("saves", "restores", "evictions")
    assert [found[f"draftmark_snapshot_{name}_total", ""] for name in names] == [7, 4, 2]


def test_the_implementation_of_each_op_is_shown() -> None:
    ready: dict[str, object] = {"backends": {"attention": "torch", "linear": "onednn"}}
    state = EngineState("ready", ready=ready)
    text = Metrics(model="m", state=lambda: state, stats=EngineStats).text().decode()
    shown = {
        (sample.labels["op"], sample.labels["backend"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "draftmark_op_backend"
    }
    assert shown == {("attention", "torch"): 1.0, ("linear", "onednn"): 1.0}
