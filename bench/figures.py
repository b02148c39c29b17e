"""Makes the figures of the README again: `python bench/figures.py`, on a machine that is idle.

`draftmark serve smollm2` is measured by `draftmark bench run` with three profiles in turn, so that
a machine that changes changes all of them. Each run.json goes to `bench/results`, and the medians
into the README's table. A run that may not be believed is made once more, and then ends it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.fakes.server_process import serving  # noqa: E402

RESULTS = ROOT / "bench" / "results"
PROFILES = {1: "cpu_c1_i128_o128", 4: "cpu_c4_i128_o128", 16: "cpu_c16_i128_o128"}
TABLE = re.compile("<!-- measured -->\n.*?<!-- end of measured -->", re.DOTALL)
_PROGRAM = [sys.executable, "-m", "draftmark.cli.main"]
_CALM_PERCENT = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each profile")
    parser.add_argument(
        "--wait", type=float, default=30, help="minutes for a calm machine, at most"
    )
    args = parser.parse_args()
    wait_for_calm(60 * args.wait)
    runs: dict[int, list[dict[str, Any]]] = {in_flight: [] for in_flight in PROFILES}
    loads: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving([*_PROGRAM, "serve", "smollm2", "--port", "0"]) as server:
            url = server.wait_url()
            measure(folder, url, "smoke", "warm")
            for number in range(1, args.rounds + 1):
                for in_flight, profile in PROFILES.items():
                    loads.append(os.getloadavg()[0])
                    found = measure_soundly(folder, url, profile, f"{profile}-{number}")
                    runs[in_flight].append(found)
        keep(folder, [run["run_id"] for found in runs.values() for run in found])
    readme = ROOT / "README.md"
    text = readme.read_text()
    if TABLE.search(text) is None:
        raise SystemExit("README.md has no place for the table")
    readme.write_text(TABLE.sub(lambda _: table(runs, loads), text))


def wait_for_calm(seconds: float) -> None:
    """Until all cores together are hardly used for five seconds."""
    deadline = time.monotonic() + seconds
    while psutil.cpu_percent(5) > _CALM_PERCENT and time.monotonic() < deadline:
        time.sleep(5)


def measure_soundly(folder: Path, url: str, profile: str, run_id: str) -> dict[str, Any]:
    for again in ("", "-again"):
        run = measure(folder, url, profile, run_id + again)
        missed = [gate["id"] for gate in run["gates"] if gate["state"] != "ok"]
        if run["state"] == "complete" and not missed:
            return run
        print(f"{run_id + again} says nothing: {run['why_partial'] or missed}", file=sys.stderr)
    raise SystemExit(f"{run_id}: no run of it may be believed; what was there is left as it was")


def measure(folder: Path, url: str, profile: str, run_id: str) -> dict[str, Any]:
    command = [*_PROGRAM, "bench", "run", "--url", url, "--profile", profile, "--run-id", run_id]
    command += ["--warm", "0", "--runs", "1", "--config-id", "smollm2"]
    # In the folder, so that no path of this machine is part of the command that is kept.
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    path = folder / "runs" / run_id / "run.json"
    if not path.exists():
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def keep(folder: Path, names: list[str]) -> None:
    """In place of all earlier ones: the results in the repository are of one commit."""
    RESULTS.mkdir(exist_ok=True)
    for old in RESULTS.glob("*.json"):
        old.unlink()
    for name in names:
        shutil.copy(folder / "runs" / name / "run.json", RESULTS / f"{name}.json")


def table(runs: dict[int, list[dict[str, Any]]], loads: list[float]) -> str:
    first = runs[1][0]
    lines = [
        "<!-- measured -->",
        "| in flight | output, tok/s | first token, ms | per further token, ms | results |",
        "|---|---|---|---|---|",
    ]
    for in_flight, found in runs.items():
        cells = [
            spread([run["figures"]["out_tok_s"]["value"] for run in found]),
            spread([run["metrics"]["ttft_ms"]["mean"] for run in found]),
            spread([run["metrics"]["tpot_ms"]["mean"] for run in found]),
            f"`bench/results/{PROFILES[in_flight]}-*.json`",
        ]
        lines.append(f"| {in_flight} | {' | '.join(cells)} |")
    busy = f"load of the machine before each run {min(loads):.1f} to {max(loads):.1f}"
    if max(loads) > psutil.cpu_count() * 1.5:
        busy += ": others worked on it meanwhile, these are lower bounds"
    lines += [
        "",
        f"Medians of {len(runs[1])} runs, least and most in brackets; "
        f"{first['time']['started'][:10]}, commit {first['server']['version'][:7]};",
        f"{busy}.",
        "<!-- end of measured -->",
    ]
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    digits = 0 if min(values) >= 100 else 1
    middle, least, most = (
        f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values))
    )
    return f"{middle} ({least} to {most})"


if __name__ == "__main__":
    main()
