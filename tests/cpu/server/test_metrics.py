"""What `/metrics` says of stages and cohorts."""

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
