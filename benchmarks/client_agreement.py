"""`draftmark bench run` and guidellm against one server, in turn: do two clients see the same?

Both send prompts of 64 tokens and take 64 tokens back: `--load closed` keeps 4 in flight, `open`
starts one each 0.8 s whatever the server does, so that both clients ask for the same. In a closed
loop they need not: clients that answer an end at other speeds put the next prompts elsewhere among
the tokens of the others. One server (smollm2) serves all runs; the clients take turns ABBA, so that
a machine that slows down slows both. Server and clients have half of the cores each: what a client
takes of them would else slow the server, and be seen as the server's time. guidellm runs in an
environment of its own:

    python -m venv /tmp/guidellm && /tmp/guidellm/bin/pip install guidellm
    python benchmarks/client_agreement.py --guidellm /tmp/guidellm/bin/guidellm [--rounds 4]

guidellm's TPOT counts the first token too; its ITL is what is called TPOT here.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import print_result

from draftmark.engine.source import resolve_source
from tests.fakes.server_process import serving

_IN_FLIGHT, _REQUESTS, _PROMPT, _ANSWER = 4, 32, 64, 64
_RATE = 1.25
_PROFILE = f"""
name: agreement
n_requests: {_REQUESTS}
isl: {_PROMPT}
osl: {_ANSWER}
warm_runs: 0
"""
# The load by either client: of our profile, and guidellm's --profile. Bursts of one are even.
LOADS = {
    "closed": (
        f"mode: closed\nconcurrency: {_IN_FLIGHT}\n",
        f"kind=concurrent,streams={_IN_FLIGHT}",
    ),
    "open": (f"mode: burst\nconcurrency: 1\nrate: {_RATE}\n", f"kind=constant,rate={_RATE}"),
}
_CORES = sorted(os.sched_getaffinity(0))
_OF_SERVER, _OF_CLIENTS = _CORES[: len(_CORES) // 2], _CORES[len(_CORES) // 2 :]
FIGURES = ("ttft ms", "tpot ms", "tok/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guidellm", required=True, help="its program, in its own environment")
    parser.add_argument("--load", choices=list(LOADS), default="open")
    parser.add_argument("--rounds", type=int, default=4, help="runs of each client")
    args = parser.parse_args()
    os.sched_setaffinity(0, _OF_CLIENTS)
    seen: dict[str, list[tuple[float, ...]]] = {"draftmark bench": [], "guidellm": []}
    with tempfile.TemporaryDirectory() as name, serving_apart() as (url, model_dir):
        folder = Path(name)
        ours, theirs = LOADS[args.load]
        (folder / "agreement.yaml").write_text(_PROFILE + ours)
        clients = {
            "draftmark bench": lambda run: by_bench(url, folder, run),
            "guidellm": lambda run: by_guidellm(
                args.guidellm, url, model_dir, folder, run, load=theirs
            ),
        }
        for client in clients.values():
            client("warm")
        for number in range(args.rounds):
            order = list(clients) if number % 2 == 0 else list(clients)[::-1]
            for client_name in order:
                figures = clients[client_name](str(number))
                seen[client_name].append(figures)
                print(client_name, *(f"{x:.2f}" for x in figures), file=sys.stderr, flush=True)
    rows = []
    for index, figure in enumerate(FIGURES):
        one, other = (statistics.fmean(run[index] for run in seen[client]) for client in seen)
        rows.append(
            {
                "figure": figure,
                "draftmark bench": one,
                "guidellm": other,
                "difference %": 100 * (one / other - 1),
            }
        )
    print_result(rows, load=args.load, runs=seen, requests=_REQUESTS)


def by_bench(url: str, folder: Path, run: str) -> tuple[float, ...]:
    command = [sys.executable, "-m", "draftmark.cli.main", "bench", "run", "--url", url]
    command += ["--profile", str(folder / "agreement.yaml"), "--out", str(folder / "runs")]
    done = subprocess.run([*command, "--run-id", run], capture_output=True, text=True)
    found = json.loads((folder / "runs" / run / "run.json").read_text())
    if found["state"] != "complete":
        raise RuntimeError(f"the run broke off: {done.stderr}")
    metrics = found["metrics"]
    return (
        metrics["ttft_ms"]["mean"],
        metrics["tpot_ms"]["mean"],
        found["figures"]["out_tok_s"]["value"],
    )


def by_guidellm(
    program: str, url: str, model_dir: Path, folder: Path, run: str, *, load: str
) -> tuple[float, ...]:
    out = folder / f"guidellm-{run}.json"
    # Greedy, as our profile is: it would leave sampling to the server's defaults.
    backend = {
        "kind": "openai_http",
        "target": url,
        "model": "smollm2",
        "request_format": "/v1/completions",
        "extras": {"body": {"temperature": 0}},
    }
    options = {
        "--backend": json.dumps(backend),
        "--profile": load,
        "--constraint": f"kind=max_requests,count={_REQUESTS}",
        "--tokenizer": f"kind=hf_auto,model={model_dir}",
        "--data": f"kind=synthetic_text,prompt_tokens={_PROMPT},output_tokens={_ANSWER}",
        # Prompts of its own for each run, or the server's cache would know them.
        "--seed": f"kind=static,value={sum(run.encode())}",
        "--output": f"kind=json,path={out}",
    }
    words = [word for option in options.items() for word in option]
    subprocess.run([program, "run", *words, "--disable-console"], check=True, cwd=folder)
    (report,) = json.loads(out.read_text())["benchmarks"]
    requests = report["requests"]["successful"]
    # It may cut the last one off when it has its number.
    if len(requests) < _REQUESTS - 1 or any(one["output_tokens"] != _ANSWER for one in requests):
        raise RuntimeError(f"guidellm made {len(requests)} requests, not {_REQUESTS} of one length")
    if any(one["cached_tokens"] for one in requests):
        raise RuntimeError("a prompt was cached: the figures would not be comparable")
    span = max(one["request_end_time"] for one in requests) - min(
        one["request_start_time"] for one in requests
    )
    metrics = report["metrics"]
    return (
        metrics["time_to_first_token_ms"]["successful"]["mean"],
        metrics["inter_token_latency_ms"]["successful"]["mean"],
        sum(one["output_tokens"] for one in requests) / span,
    )


@contextmanager
def serving_apart() -> Iterator[tuple[str, Path]]:
    """The address of a server of smollm2, on cores of its own, and the model's folder."""
    command = [sys.executable, "-m", "draftmark.cli.main", "serve", "smollm2", "--port", "0"]
    os.sched_setaffinity(0, _OF_SERVER)
    with serving(command) as server:
        os.sched_setaffinity(0, _OF_CLIENTS)
        yield server.wait_url(), _model_dir()


def _model_dir() -> Path:
    source = resolve_source("smollm2", progress=lambda text: print(text, file=sys.stderr))
    return Path(source.directory)


if __name__ == "__main__":
    main()
