"""`draftmark check`: what would run here, and whether it would, without running it.

One report, shown as text or as one line of JSON. Exit status 1 or 2 with a reason when a start
would fail, or when a request of a `--length` could never run.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from draftmark.cache.spec import PAGE_TOKENS, pages_of
from draftmark.cli.arguments import (
    ALL_SECTIONS,
    CommandParser,
    add_config_flags,
    declared_from,
)
from draftmark.core.errors import BudgetError, ConfigError
from draftmark.core.generation import read_generation
from draftmark.engine.inspection import Inspection, inspect

_MAX_LENGTH = 2**31 - 1


def run(argv: list[str]) -> int:
    parser = CommandParser(
        "check",
        about="Say what would run: sizes, the KV pool, requests that fit, every resolved value and "
        "its source. Takes the flags of serve; fails with a reason when it would not run.",
    )
    parser.own(
        "--length",
        metavar="N,N",
        default="",
        help="Also say how many requests of these lengths (prompt and answer) fit at once.",
    )
    parser.own("--json", action="store_true", help="One line of JSON.")
    add_config_flags(parser, sections=ALL_SECTIONS)
    given = parser.parse(argv)
    lengths = _read_lengths(given.length)
    found = inspect(declared_from(given), progress=_say)
    report = make_report(found, lengths=lengths or [found.resolved.max_context])
    print(json.dumps(report) if given.json else render(report, found))
    for entry in report["requests"]:
        if entry["fit"] == 0:
            raise BudgetError(f"a request of {entry['length']} tokens could never run")
    return 0


def _say(phase: str) -> None:
    print(phase, file=sys.stderr)


def _read_lengths(text: str) -> list[int]:
    try:
        lengths = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        lengths = [0]
    if any(not 1 <= length <= _MAX_LENGTH for length in lengths):
        raise ConfigError(f"--length must be whole numbers of at least 1; got {text!r}")
    return lengths


def make_report(found: Inspection, *, lengths: list[int]) -> dict[str, Any]:
    """Plain values for JSON; all sizes in bytes."""
    budget, resolved = found.budget, found.resolved
    return {
        "model": {
            "name": found.source.name,
            "rule": found.source.rule,
            "directory": str(found.source.directory),
            **msgspec.to_builtins(found.model),
        },
        "device": msgspec.to_builtins(found.device),
        "bytes": {
            "weights": budget.weight_bytes,
            "workspace": budget.workspace_bytes,
            "slots": budget.slot_bytes,
            "kv_pool": budget.pool_bytes,
            "snapshots": budget.snapshot_bytes,
            "total": budget.total_bytes,
            "per_token": budget.bytes_per_token,
            "per_snapshot": budget.bytes_per_snapshot,
            "state_per_request": found.state_bytes,
            "state_per_request_without_drafts": found.plain_state_bytes,
        },
        "pool_tokens": budget.pool_tokens,
        "snapshots": budget.num_snapshots,
        "requests": [_request(found, length) for length in lengths],
        "sampling": read_generation(found.source.directory, own=found.source.own).record(),
        **resolved.record(),
    }


def _request(found: Inspection, length: int) -> dict[str, int]:
    """How many requests of `length` tokens fit at once, by pool and by slots."""
    pages = pages_of(length)
    in_pool = found.budget.pool_tokens // PAGE_TOKENS // pages
    fit = min(in_pool, found.resolved.max_running)
    return {
        "length": length,
        "bytes": pages * PAGE_TOKENS * found.budget.bytes_per_token,
        "fit_in_pool": in_pool,
        "fit": fit if length <= found.resolved.max_context else 0,
    }


def render(report: dict[str, Any], found: Inspection) -> str:
    """The report for people."""
    model, device = report["model"], report["device"]
    lines = [
        f"model       {model['name']}, {model['rule']}: {model['architecture']}, "
        f"{model['num_parameters'] / 1e6:.1f} million parameters, {model['num_layers']} layers",
        f"            read from {model['directory']}",
        f"device      {device['name']} ({device['kind']}), {device['free_bytes'] / 2**30:.2f} of "
        f"{device['total_bytes'] / 2**30:.2f} GiB available, {device['threads']} threads",
        "",
        found.budget.explain(),
        *_render_state(found),
        "",
    ]
    lines += [_render_request(entry, found) for entry in report["requests"]]
    lines += ["", "sampling defaults (a request may say otherwise)"]
    lines += [
        f"  {name:<22}{entry['value']!s:<24}{entry['source']}"
        for name, entry in report["sampling"].items()
    ]
    for section, fields in report["config"].items():
        lines += ["", section]
        lines += [_render_field(name, entry) for name, entry in fields.items()]
    if report["file"] is not None:
        lines += ["", f"read {report['file']['path']} (sha256 {report['file']['sha256']})"]
    return "\n".join(lines)


def _render_state(found: Inspection) -> list[str]:
    """What drafts add to the recurrent state of a request, if there is any."""
    each, plain = found.state_bytes, found.plain_state_bytes
    if not each:
        return []
    line = f"states      {each:,} bytes a request in recurrent layers"
    if drafts := found.resolved.draft_tokens:
        line += f"; {each / plain:.3f}x of the {plain:,} without drafts (here at most {drafts})"
    return [line]


def _render_request(entry: dict[str, int], found: Inspection) -> str:
    size = f"{entry['bytes'] / 2**20:.2f} MiB each"
    if entry["length"] > found.resolved.max_context:
        reason = f"above the context of {found.resolved.max_context}"
    elif entry["fit"] < entry["fit_in_pool"]:
        reason = f"max_running; the KV pool would hold {entry['fit_in_pool']}"
    else:
        reason = "what the KV pool holds"
    return f"requests    {entry['fit']} of {entry['length']} tokens at once, {size} ({reason})"


def _render_field(name: str, entry: dict[str, Any]) -> str:
    value = entry["value"]
    if isinstance(value, list):
        value = ",".join(str(item) for item in value)
    shown = "-" if value is None or value == "" else str(value)
    note = f" ({entry['note']})" if entry["note"] else ""
    return f"  {name:<22}{shown:<24}{entry['source']}{note}"
