"""Adapters take from each kind of server what it tells, and None for what it does not."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from draftmark.bench.adapters import detect, make_adapter
from draftmark.bench.adapters.exposition import parse_exposition
from draftmark.bench.adapters.vllm import command_line
from draftmark.bench.ask import COMPLETIONS, Ask, Asker
from draftmark.bench.control import Control
from draftmark.bench.result import Counters
from draftmark.bench.truth.process import truth_process
from draftmark.bench.truth.script import Script
from draftmark.core.errors import ConfigError, ModelNotFound, Unavailable
from draftmark.core.messages import DraftStats, EngineState, EngineStats
from draftmark.server.metrics import Metrics
from tests.fakes.scripted_http import Status, scripted_http

MODELS = {"data": [{"id": "m", "max_model_len": 4096}, {"id": "other"}]}
OURS = """\
# TYPE draftmark_requests_running gauge
draftmark_requests_running{model_name="m"} 3.0
draftmark_requests_waiting{model_name="m"} 2.0
draftmark_kv_usage_ratio{model_name="m"} 0.25
# TYPE draftmark_prompt_tokens counter
draftmark_prompt_tokens_total{model_name="m"} 1000.0
# TYPE draftmark_output_tokens counter
draftmark_output_tokens_total{model_name="m"} 50.0
# TYPE draftmark_cached_tokens counter
draftmark_cached_tokens_total{model_name="m"} 16.0
# TYPE draftmark_preemptions counter
draftmark_preemptions_total{model_name="m"} 0.0
# TYPE draftmark_http_requests counter
draftmark_http_requests_total{path="/v1/completions",status="200"} 4.0
draftmark_http_requests_total{path="/v1/completions",status="400"} 1.0
draftmark_http_requests_total{path="/metrics",status="200"} 9.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 3.0
"""
VLLM = """\
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1700000000.25
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",gpu_memory_utilization="0.9"} 1.0
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0"} 700.0
vllm:prefix_cache_queries_total{engine="1"} 300.0
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0"} 16.0
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",finished_reason="stop"} 2.0
vllm:request_success_total{engine="0",finished_reason="length"} 5.0
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0"} 100.0
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total{engine="0"} 300.0
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 150.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 80.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 20.0
"""
SGLANG = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",tp_rank="0",pp_rank="0"} 3.0
sglang:num_running_reqs{model_name="m",tp_rank="1",pp_rank="0"} 3.0
sglang:num_queue_reqs{model_name="m"} 1.0
sglang:token_usage{model_name="m"} 0.5
# TYPE sglang:cached_tokens counter
sglang:cached_tokens_total{cache_source="device"} 10.0
sglang:cached_tokens_total{cache_source="host"} 6.0
# TYPE sglang:num_retracted_requests counter
sglang:num_retracted_requests_total{tp_rank="0"} 2.0
"""


def _routes(metrics: str | None, **more: Any) -> dict[str, Any]:
    routes: dict[str, Any] = {"GET /v1/models": MODELS, **more}
    return routes | ({} if metrics is None else {"GET /metrics": metrics})


@pytest.mark.parametrize(
    ("metrics", "models", "kind"),
    [
        (OURS, MODELS, "draftmark"),
        (VLLM, MODELS, "vllm"),
        (SGLANG, MODELS, "sglang"),
        (None, {"data": [{"id": "m", "owned_by": "sglang"}]}, "sglang"),
        (None, {"data": [{"id": "m", "owned_by": "vllm"}]}, "vllm"),
        (None, MODELS, "openai"),
    ],
)
def test_the_kind_of_server_is_found(metrics: str | None, models: Any, kind: str) -> None:
    with scripted_http(_routes(metrics) | {"GET /v1/models": models}) as server:
        assert detect(Control(server.url)) == kind
        assert make_adapter("auto", server.url).name == kind


def test_draftmark_tells_configuration_counters_and_its_start() -> None:
    config = {
        "memory": {"kv_pool_tokens": {"value": 16000, "source": "measured", "note": ""}},
        "ready": {"start_id": "abc", "commit": "0123"},
    }
    with scripted_http(_routes(OURS) | {"GET /v1/engine/config": config}) as server:
        adapter = make_adapter("draftmark", server.url)
        state = adapter.before()
        sample = adapter.sample(t=7)
    assert (state.model, state.start_id, state.version) == ("m", "abc", "0123")
    assert (state.config, state.kv_pool_tokens) == (config, 16000)
    assert state.counters == Counters(
        requests=5,
        prompt_tokens=1000,
        output_tokens=50,
        cached_tokens=16,
        queried_tokens=1000,
        preemptions=0,
    )
    assert (sample.t, sample.running, sample.waiting, sample.kv_use) == (7, 3, 2, 0.25)
    assert state.raw['draftmark_prompt_tokens_total{model_name="m"}'] == 1000


@pytest.mark.parametrize(("draft", "steps"), [("none", 0), ("mtp", None)])
def test_draftmark_without_drafts_is_known_to_verify_nothing(draft: str, steps: int | None) -> None:
    config = {"speculation": {"draft": {"value": draft, "source": "default"}}}
    with scripted_http(_routes(OURS) | {"GET /v1/engine/config": config}) as server:
        found = make_adapter("draftmark", server.url).before().counters
    assert (found.verify_steps, found.drafted, found.accepted) == (steps, steps, steps)


DRAFTS = """\
# TYPE draftmark_draft_windows counter
draftmark_draft_windows_total{model_name="m"} 100.0
# TYPE draftmark_draft_tokens counter
draftmark_draft_tokens_total{model_name="m"} 250.0
# TYPE draftmark_draft_accepted_tokens counter
draftmark_draft_accepted_tokens_total{model_name="m"} 150.0
# TYPE draftmark_draft_accepted_per_position counter
draftmark_draft_accepted_per_position_total{model_name="m",position="0"} 90.0
draftmark_draft_accepted_per_position_total{model_name="m",position="1"} 60.0
"""


def test_draftmark_tells_what_became_of_its_drafts() -> None:
    with scripted_http(_routes(OURS + DRAFTS)) as server:
        found = make_adapter("draftmark", server.url).before().counters
    assert (found.verify_steps, found.drafted, found.accepted) == (100, 250, 150)
    assert found.accepted_per_position == [90, 60]


def test_the_names_are_those_of_the_server() -> None:
    """What the adapter asks for is what a server that drafts exposes."""
    stats = EngineStats(
        drafts=DraftStats(
            windows=100,
            drafted=250,
            accepted=150,
            judged_at=[100, 90],
            accepted_at=[90, 60],
            turns=[0, 5, 95],
            gaps=0,
            verify_us=0,
            draft_us=0,
            break_even=[],
            low_length=None,
            num_low=0,
        )
    )
    text = Metrics(model="m", state=lambda: EngineState("ready"), stats=lambda: stats).text()
    with scripted_http(_routes(text.decode())) as server:
        ours, vllms = (
            make_adapter(name, server.url).before().counters for name in ("draftmark", "vllm")
        )
    for found in (ours, vllms):
        assert (found.verify_steps, found.drafted, found.accepted) == (100, 250, 150)
        assert found.accepted_per_position == [90, 60]


def test_vllm_adds_engines_up_and_counts_drafts() -> None:
    routes = _routes(VLLM) | {"GET /version": {"version": "0.33.0"}}
    with scripted_http(routes) as server:
        adapter = make_adapter("vllm", server.url, pid=os.getpid())
        state, sample = adapter.before(), adapter.sample(t=0)
    assert state.version == "0.33.0"
    assert state.start_id == "1700000000.25"
    assert state.kv_pool_tokens == 16000
    assert state.counters == Counters(
        requests=7,
        cached_tokens=16,
        queried_tokens=1000,
        verify_steps=100,
        drafted=300,
        accepted=150,
        accepted_per_position=[80, 50, 20],
    )
    assert (sample.running, sample.waiting, sample.kv_use) == (7, 0, 0.5)
    assert state.config is not None
    assert state.config["cache_config"]["gpu_memory_utilization"] == "0.9"
    assert state.config["max_model_len"] == 4096
    assert "server_info" not in state.config  # no dev mode
    assert state.config["argv"] == command_line(os.getpid())


def test_sglang_counts_one_rank_and_no_acceptance() -> None:
    info = {"version": "0.5.23", "context_length": 8192, "max_total_num_tokens": 500}
    routes = _routes(SGLANG) | {"GET /get_server_info": info}
    with scripted_http(routes) as server:
        adapter = make_adapter("sglang", server.url)
        state, sample = adapter.before(), adapter.sample(t=0)
    assert (state.version, state.kv_pool_tokens, state.config) == ("0.5.23", 500, info)
    assert state.counters == Counters(cached_tokens=16, retractions=2)
    assert (sample.running, sample.waiting, sample.kv_use) == (3, 1, 0.5)
    assert adapter.accepts.top_k_off == -1


def test_a_plain_server_tells_nothing_and_nothing_is_zero() -> None:
    with scripted_http(_routes(VLLM)) as server:
        adapter = make_adapter("openai", server.url)
        state, sample = adapter.before(), adapter.sample(t=0)
        assert not adapter.reset_cache()
    assert state.counters == Counters()
    assert state.config == {"max_model_len": 4096}
    assert (sample.running, sample.waiting, sample.kv_use) == (None, None, None)
    assert "top_k" not in adapter.accepts.sampling


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("draftmark", "/v1/engine/cache/reset"),
        ("vllm", "/reset_prefix_cache"),
        ("sglang", "/flush_cache"),
    ],
)
def test_the_cache_is_reset_where_that_is_possible(kind: str, path: str) -> None:
    with scripted_http(_routes(None) | {f"POST {path}": ""}) as server:
        assert make_adapter(kind, server.url).reset_cache()
        assert [asked[:2] for asked in server.asked] == [("POST", path)]
        server.routes.clear()
        assert not make_adapter(kind, server.url).reset_cache()
        server.routes[f"POST {path}"] = Status(400, "requests are running")
        with pytest.raises(Unavailable, match="requests are running"):
            make_adapter(kind, server.url).reset_cache()


def test_no_server_a_wrong_model_and_a_wrong_adapter_are_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # taken, but nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unavailable, match="refused"):
            make_adapter("auto", url)
    with scripted_http(_routes(OURS)) as server:
        with pytest.raises(ModelNotFound, match="does not serve x; it has m, other"):
            make_adapter("auto", server.url, model="x").before()
        with pytest.raises(ConfigError, match="tgi"):
            make_adapter("tgi", server.url)
        server.routes["GET /metrics"] = "this is { no exposition"
        with pytest.raises(Unavailable, match="no Prometheus text"):
            make_adapter("draftmark", server.url).before()


def test_the_key_goes_along_and_urls_are_plain() -> None:
    with scripted_http(_routes(OURS)) as server:
        make_adapter("draftmark", f"{server.url}/v1/", api_key="k").before()
        assert {asked[2].get("Authorization") for asked in server.asked} == {"Bearer k"}
    assert Control("http://h:1/prefix/v1").url == "http://h:1/prefix"
    assert Control("http://[::1]:2").url == "http://[::1]:2"
    for url in ("https://h", "ftp://h", "http://", "h:1"):
        with pytest.raises(ConfigError):
            Control(url)


def test_secrets_of_a_command_line_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    words = b"vllm\0serve\0m\0--api-key\0secret\0--hf-token=secret\0"
    monkeypatch.setattr("pathlib.Path.read_bytes", lambda _: words)
    assert command_line(1) == ["vllm", "serve", "m", "--api-key", "***", "--hf-token=***"]


def test_figures_that_are_not_there_are_none() -> None:
    metrics = parse_exposition(f"{OURS}# TYPE never_seen counter\n# TYPE other_total counter\n")
    assert metrics.total("never_seen_total") == metrics.total("other_total") == 0
    assert metrics.total("draftmark_http_requests_total", path="/v1/chat/completions") == 0
    assert metrics.total("no_such_total") is None
    assert metrics.largest("no_such") is None
    assert metrics.count("no_such_total", "draftmark_output_tokens_total") == 50
    assert metrics.total("draftmark_requests_running", model_name="another") is None


def test_after_waits_until_the_counters_rest() -> None:
    looks = iter(range(1, 100))

    def metrics(_: Any) -> str:
        """Two more requests are counted after the first look."""
        count = min(next(looks), 3)
        name = "draftmark_http_requests_total"
        return f'# TYPE {name} counter\n{name}{{path="/v1/completions"}} {count}\n'

    with scripted_http(_routes(None) | {"GET /metrics": metrics}) as server:
        adapter = make_adapter("draftmark", server.url)
        assert adapter.after().counters.requests == 3


def test_the_truth_server_is_known_and_counts_what_was_asked() -> None:
    with truth_process() as truth:
        adapter = make_adapter("auto", truth.url)
        assert (adapter.name, adapter.model) == ("draftmark", "truth")
        before = adapter.before()
        asker = Asker(truth.url, model="truth")
        body = {"prompt": [1, 2, 3], "max_tokens": 4, "stream": True}
        assert all(one.ok for one in asker.ask([Ask(path=COMPLETIONS, body=body)] * 2))
        after = adapter.after()
        assert before.counters.requests == 0
        assert (after.counters.requests, after.counters.output_tokens) == (2, 8)
        assert after.counters.prompt_tokens == 6
        truth.play(Script(metrics=("vllm",)))
        assert detect(Control(truth.url)) == "vllm"


def test_secrets_of_a_configuration_are_not_kept() -> None:
    told = {
        "hf_token": "s",
        "env": [{"VLLM_API_KEY": "s"}],
        "hf_config": {"tokens": 3},
        "key": None,
    }
    with scripted_http(_routes(None) | {"GET /server_info": told}) as server:
        config = make_adapter("sglang", server.url).before().config
    assert config == {**told, "hf_token": "***", "env": [{"VLLM_API_KEY": "***"}]}
