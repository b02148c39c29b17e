"""What a server counted in a run, and how much of a step its drafts were worth."""

import pytest

from draftmark.bench.acceptance import acceptance
from draftmark.bench.counters import delta, same_start, server_report
from draftmark.bench.request import Acceptance, CountSource
from draftmark.bench.result import AcceptSource, Counters, PromptKind, ServerState
from tests.fakes.bench_run import record


def state(*, start_id: str | None = "a", **counters: object) -> ServerState:
    return ServerState(
        adapter="draftmark",
        at="2026-01-01T00:00:00.000+00:00",
        url="http://127.0.0.1:1",
        model="m",
        version=None,
        start_id=start_id,
        config=None,
        counters=Counters(**counters),
    )


def test_after_minus_before():
    found = delta(state(requests=3, cached_tokens=16), state(requests=43, drafted=5))
    assert (found.requests, found.cached_tokens, found.drafted) == (40, None, None)


def test_a_position_that_nobody_reached_before_began_at_nothing():
    found = delta(state(accepted_per_position=[5]), state(accepted_per_position=[9, 2]))
    assert found.accepted_per_position == [4, 2]


def test_another_process_counted_from_zero_again():
    before, after = state(requests=300), state(start_id="b", requests=340)
    assert same_start(before, after) is False
    assert delta(before, after) == Counters()
    unnamed = state(start_id=None, requests=40)
    assert same_start(before, unnamed) is False
    assert same_start(state(start_id=None, requests=4), state(start_id=None, requests=5)) is None


def test_a_server_that_is_gone_tells_nothing():
    assert server_report(state(requests=1), None).delta == Counters()


def test_acceptance_from_the_counters():
    counted = Counters(verify_steps=100, accepted=185, drafted=300, accepted_per_position=[90, 95])
    found = acceptance([record()], counted, PromptKind.RANDOM_IDS)
    assert found.accept == pytest.approx(2.85)
    assert (found.source, found.steps, found.draft_length) == (AcceptSource.COUNTERS, 100, 3.0)
    assert found.per_position == [0.9, 0.95]
    assert found.prompts is PromptKind.RANDOM_IDS


def test_acceptance_from_the_requests_is_weighted_by_steps():
    told = [
        record(0, accept=Acceptance(steps=10, accepted=30)),
        record(1, accept=Acceptance(steps=90, accepted=0)),
    ]
    found = acceptance(told, Counters(), PromptKind.TEXT)
    assert found.accept == pytest.approx(1.3)
    assert found.source is AcceptSource.REQUESTS


def test_one_silent_request_makes_it_unknown():
    found = acceptance([record(0, accept=Acceptance(steps=1, accepted=1)), record(1)],
                       Counters(), PromptKind.TEXT)  # fmt: skip
    assert (found.accept, found.source, found.steps) == (None, None, None)


def test_no_steps_is_no_acceptance():
    found = acceptance([record()], Counters(verify_steps=0, accepted=0), PromptKind.TEXT)
    assert (found.accept, found.steps) == (None, 0)


def test_the_estimate_of_the_client_stands_apart():
    """Events of three tokens: three a step by the client, and unknown to the server."""
    seen = record(gaps_ms=[60.0] * 9, event_tokens=[3] * 10)
    found = acceptance([seen], Counters(), PromptKind.TEXT)
    assert found.client_estimate == 3.0
    assert found.accept is None
    counted_by_events = record(n_out_source=CountSource.CHUNKS)
    assert acceptance([counted_by_events], Counters(), PromptKind.TEXT).client_estimate is None
