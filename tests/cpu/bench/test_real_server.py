"""What the bench asks of draftmark's own server, against the real processes over a fake worker:
its counters, its configuration, its log."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from draftmark.bench.adapters import make_adapter
from draftmark.bench.ask import COMPLETIONS, Ask, Asker
from draftmark.bench.declared import differences, drift, read_declared
from draftmark.bench.log_scan import open_log, scan_log
from draftmark.bench.result import DriftState
from draftmark.bench.sampler import Sampler
from tests.fakes import tokenizer

SERVE = Path(__file__).parents[2] / "fakes" / "serve.py"


@contextmanager
def _serving(model_dir: Path, log: Path) -> Iterator[str]:
    command = [sys.executable, str(SERVE), str(model_dir), "--set", "max_running=4"]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tokenizer.write_model_dir(tmp_path_factory.mktemp("model"))
    (directory / "config.json").write_text("{}")
    return directory


def test_what_the_bench_asks_of_draftmark(model_dir: Path, tmp_path: Path) -> None:
    log_file = tmp_path / "server.log"
    with _serving(model_dir, log_file) as url:
        adapter = make_adapter("auto", url)
        assert adapter.name == "draftmark"
        log = open_log(str(log_file))
        began = log.mark()
        before = adapter.before()
        with Sampler(adapter, interval_s=0.05) as sampler:
            sampler.start(time.perf_counter_ns())
            asker = Asker(url, model=adapter.model, timeout_s=60)
            body = {"model": adapter.model, "prompt": [65, 66, 67], "max_tokens": 5}
            body |= {"ignore_eos": True, "temperature": 0}
            ask = Ask(path=COMPLETIONS, body=body)
            refused = Ask(path=COMPLETIONS, body={**body, "prompt": "x", "temperature": "hot"})
            replies = asker.ask([ask, ask, refused], in_flight=3)
        after = adapter.after()

        assert [reply.record.http for reply in replies] == [200, 200, 400]
        assert [reply.record.n_out for reply in replies] == [5, 5, None]
        assert before.counters.requests == 0
        assert after.counters.requests == 3
        assert (after.counters.prompt_tokens, after.counters.output_tokens) == (6, 10)
        assert (after.counters.cached_tokens, after.counters.preemptions) == (0, 0)
        assert after.counters.verify_steps == 0  # its settings say that it drafts nothing
        assert before.start_id == after.start_id is not None
        assert after.kv_pool_tokens is not None
        assert sampler.missed == [] and sampler.samples[0].waiting is not None
        assert adapter.reset_cache()

        # What it says that it runs with is what it runs with.
        path = tmp_path / "run.yaml"
        path.write_text(httpx.get(f"{url}/v1/engine/config?format=yaml").text)
        states = {row.key: row.state for row in drift(read_declared(path), after)}
        others = {key for key, state in states.items() if state is not DriftState.EQUAL}
        # It read no file, and nobody declared how to sample.
        assert states["file"] is DriftState.MISSING
        assert all(key.startswith("sampling.") for key in others - {"file"})
        assert len(states) - len(others) > 20
        path.write_text("schedule:\n  max-num-seqs: 8\n")
        rows = {row.key: row for row in drift(read_declared(path), after)}
        assert rows["schedule.max_num_seqs"].state is DriftState.DIFFERS
        assert rows["schedule.max_num_seqs"].effective == 4
        assert differences(before, after) == []

        found = scan_log(log.slice(began, log.mark()))
        assert [row for row in found if row.count] == []
