"""What becomes of drafts, as a real server tells it: in usage, in /metrics and to the bench, which
agree; and what `draftmark check` says of their memory."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from draftmark import Engine, SamplingParams
from draftmark.bench.adapters import make_adapter
from draftmark.cli.main import main
from draftmark.core.errors import RequestError
from draftmark.engine.results import Speculation
from tests.fakes.server_process import START_S, serving
from tests.workers.conftest import SMALL, client_of, open_engine
from tests.workers.tiny_model import write_tiny_hybrid

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]

MOST = 3
PROMPTS = [[7, 8, 9] * 4, [40], [50, 51, 52, 53]]
GREEDY = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
FIELDS = ("windows", "draft_tokens", "accepted_tokens")


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_hybrid(tmp_path_factory.mktemp("model") / "hybrid")


@pytest.fixture(scope="module")
def url(hybrid: Path) -> Iterator[str]:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    drafts = ["--draft", "mtp", "--draft-tokens", str(MOST), "--port", "0"]
    command = [sys.executable, "-m", "draftmark.cli.main", "serve", str(hybrid), *flags, *drafts]
    with serving(command) as server:
        yield server.wait_url()


@pytest.fixture
def engine(hybrid: Path, socket_root: Path) -> Iterator[Engine]:
    with open_engine(hybrid, draft="mtp", draft_tokens=MOST) as opened:
        yield opened


def complete(url: str, **fields: Any) -> dict[str, Any]:
    body = {**GREEDY, **fields}
    response = httpx.post(f"{url}/v1/completions", json=body, timeout=START_S)
    response.raise_for_status()
    answer: dict[str, Any] = response.json()
    return answer


def test_usage_metrics_and_bench_say_the_same(url: str) -> None:
    adapter = make_adapter("draftmark", url)
    before = adapter.before().counters
    assert (before.verify_steps, before.drafted, before.accepted) == (0, 0, 0)
    told = []
    for fields in ({"n": 2}, {"temperature": 1, "seed": 5}, {"stop": "\x00 never"}):
        usage = complete(url, prompt=PROMPTS, **fields)["usage"]
        assert usage["completion_tokens"] == 24 * len(PROMPTS) * fields.get("n", 1)
        told.append(usage["speculation"])
    after = adapter.after().counters
    windows, drafted, accepted = (sum(one[field] for one in told) for field in FIELDS)
    assert 0 < accepted < drafted <= MOST * windows
    assert (after.verify_steps, after.drafted, after.accepted) == (windows, drafted, accepted)
    assert sum(after.accepted_per_position or []) == accepted
    assert told[0]["acceptance_length"] == round(
        1 + told[0]["accepted_tokens"] / told[0]["windows"], 4
    )
    metrics = httpx.get(f"{url}/metrics").text
    assert "draftmark_draft_acceptance_length{" in metrics
    assert f'draftmark_draft_turns_total{{drafts="{MOST}"' in metrics
    ready = httpx.get(f"{url}/v1/engine/config").json()["ready"]
    assert (ready["draft"], ready["draft_tokens"], ready["adapts_drafts"]) == ("mtp", MOST, False)


def test_a_request_without_drafts_gives_the_same_tokens(url: str) -> None:
    asked = {"prompt": PROMPTS[0], "return_token_ids": True, "temperature": 1, "seed": 3}
    plain, drafted = (complete(url, **asked, draft_tokens=count) for count in (0, 2))
    assert plain["choices"][0]["token_ids"] == drafted["choices"][0]["token_ids"]
    assert "speculation" not in plain["usage"]
    assert drafted["usage"]["speculation"]["windows"] > 0
    with pytest.raises(httpx.HTTPStatusError, match="400"):
        complete(url, prompt="x", draft_tokens=MOST + 1)


def test_the_python_api_tells_it_too(engine: Engine) -> None:
    answers = engine.generate(PROMPTS, SamplingParams(**GREEDY))
    drafts = [answer.usage.speculation for answer in answers]
    assert all(isinstance(one, Speculation) for one in drafts)
    stats = wait_for_stats(engine, sum(one.windows for one in drafts if one is not None))
    assert stats.drafted == sum(one.draft_tokens for one in drafts if one is not None)
    assert stats.accepted == sum(one.accepted_tokens for one in drafts if one is not None)
    [plain] = engine.generate([PROMPTS[0]], SamplingParams(**GREEDY, draft_tokens=0))
    assert plain.token_ids == answers[0].token_ids
    assert plain.usage.speculation is None
    with pytest.raises(RequestError, match="draft_tokens is 4, this server makes at most 3"):
        engine.generate("x", SamplingParams(draft_tokens=4))


def wait_for_stats(engine: Engine, windows: int) -> Any:
    """The engine tells its totals a moment after an answer."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        drafts = client_of(engine).stats.drafts
        if drafts is not None and drafts.windows >= windows:
            return drafts
        time.sleep(0.02)
    raise AssertionError(f"no stats of {windows} windows")


def test_check_says_what_drafts_add_to_recurrent_state(
    hybrid: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(*flags: str) -> str:
        assert main(["check", str(hybrid), "--dtype", "float32", *flags]) == 0
        return capsys.readouterr().out

    def state(*flags: str) -> tuple[int, int]:
        found = json.loads(check(*flags, "--json"))["bytes"]
        return found["state_per_request"], found["state_per_request_without_drafts"]

    plain = state()
    assert plain[0] == plain[1] > 0
    drafts = ("--draft", "mtp", "--draft-tokens", "3")
    each, without = state(*drafts)
    assert without == plain[0] < each
    line = f"{each:,} bytes a request in recurrent layers; {each / without:.3f}x of the {without:,}"
    assert line in check(*drafts)
