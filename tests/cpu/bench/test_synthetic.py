"""A server that lets coins accept drafts: its runs say so first of all, and divide by no others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from draftmark.bench.adapters.draftmark import DraftmarkAdapter
from draftmark.bench.report.compare import compare
from draftmark.bench.report.html import run_html
from draftmark.bench.report.markdown import run_markdown
from draftmark.bench.result import RunResult
from tests.fakes.bench_result import result
from tests.fakes.bench_run import closed_loop, server_state

MARK = "SYNTHETIC ACCEPTANCE 0.9,0.5"


def of_coins(run_id: str = "a") -> RunResult:
    state = server_state(requests=100, cached_tokens=7)
    before = msgspec.structs.replace(state, synthetic_acceptance="0.9,0.5")
    return result(run_id=run_id, before=before)


@pytest.mark.parametrize(
    ("told", "read"), [([0.9, 0.5], "0.9,0.5"), ([0.777], "0.777"), ([], None), (None, None)]
)
def test_the_adapter_reads_it(told: Any, read: str | None) -> None:
    class Server:
        def json(self, path: str) -> dict[str, Any]:
            return {"ready": {"start_id": "s", "synthetic_acceptance": told}}

    server: Any = Server()
    assert DraftmarkAdapter(server)._seen(None).synthetic_acceptance == read


def test_every_report_begins_with_it() -> None:
    run = of_coins()
    assert MARK in run_markdown(run) and MARK in run_html(run, closed_loop(concurrency=4, waves=10))
    assert "SYNTHETIC" not in run_markdown(result(run_id="b"))


def test_it_is_compared_with_its_like_only() -> None:
    alike = compare([of_coins("a"), of_coins("b")])
    assert [note for note in alike.notes if note.startswith(MARK)] == alike.notes
    assert any(ratio is not None for row in alike.rows for ratio in row.ratios)
    mixed = compare([result(run_id="a"), of_coins("b")])
    assert "No ratios: synthetic acceptance is not the same in all runs." in mixed.notes
    assert all(ratio is None for row in mixed.rows for ratio in row.ratios)
