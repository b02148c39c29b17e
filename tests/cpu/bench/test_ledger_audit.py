"""The audit: what is wrong in a ledger whose chain holds, and runs that have no window."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from draftmark.bench.ledger.audit import audit, export
from draftmark.bench.ledger.choose import Order
from draftmark.bench.ledger.entries import Entry, Reserved, Use, Voided
from draftmark.bench.ledger.journal import locked
from draftmark.bench.ledger.ledger import Ledger, Reservation
from draftmark.core.errors import ConfigError
from tests.fakes.bench_tokens import numbered

ORDER = Order(num_prompts=2, prompt_tokens=100)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(numbered(1000))
    return ledger


def forge(ledger: Ledger, **fields: Any) -> None:
    """A well-chained line that no honest ledger would write: the last one, changed."""

    def make(prev: str, at: str) -> Entry:
        last = session.reading.entries[-1][1]
        assert isinstance(last, Reserved)
        return msgspec.structs.replace(last, prev=prev, at=at, run_id="forged", **fields)

    with locked(ledger.path) as session:
        session.append(make)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({}, "overlaps [0, 200) of run r0 (fresh)"),
        ({"start": 150, "end": 350}, "overlaps [0, 200) of run r0 (fresh)"),
        ({"use": Use.SHIFTED, "start": 100, "end": 200}, "overlaps"),
        ({"use": Use.PAIRED}, "overlaps"),
        ({"start": 900, "end": 1100}, "is not inside the corpus"),
        ({"start": 400, "end": 600}, "does not hold the tokens it was reserved with"),
    ],
)
def test_a_forged_window_is_found(ledger: Ledger, fields: dict[str, Any], fault: str) -> None:
    ledger.reserve("r0", "books", ORDER)
    assert audit(ledger) == []
    forge(ledger, **fields)
    assert [found for found in audit(ledger) if fault in found]


def test_a_fresh_window_of_an_imported_part_is_found(ledger: Ledger) -> None:
    """Only what was known to be used before: a part that turns out so later is nobody's fault."""
    ledger.reserve("r0", "books", ORDER)
    ledger.import_used("books", used_until=500)
    assert audit(ledger) == []
    assert ledger.reserve("r1", "books", ORDER).start == 500
    forge(ledger, start=400, end=500)
    assert "books: [400, 500) of run forged (fresh) had been used elsewhere before" in audit(ledger)


def test_lines_that_there_can_be_only_once_are_found(ledger: Ledger) -> None:
    """Each would make used tokens look free."""
    first = ledger.reserve("r0", "books", ORDER)
    ledger.commit(first.line_sha)
    whole = ledger.path.read_bytes()
    with locked(ledger.path) as session:
        session.append(
            lambda prev, at: Voided(prev=prev, at=at, line_sha=first.line_sha, reason="")
        )
    assert audit(ledger) == ["the window of run r0 is committed already"]
    ledger.path.write_bytes(whole)
    added = ledger.state().corpus("books").added
    with locked(ledger.path) as session:
        session.append(lambda prev, at: msgspec.structs.replace(added, prev=prev, at=at))
    assert audit(ledger) == ["the ledger has a corpus books twice"]


def test_tokens_that_were_changed_or_lost_are_found(ledger: Ledger) -> None:
    path = ledger.tokens_path(ledger.state().corpus("books").added.tokens_sha256)
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)
    assert audit(ledger) == ["books: the tokens beside the ledger are not those that were added"]
    path.write_bytes(content[:-1])
    assert ["3999 bytes are not 1000 tokens" in fault for fault in audit(ledger)] == [True]
    path.unlink()
    assert ["tokens are gone" in fault for fault in audit(ledger)] == [True]
    with pytest.raises(ConfigError, match="tokens are gone"):
        ledger.reserve("r", "books", ORDER)


def write_run(folder: Path, reservation: Reservation, **changes: object) -> None:
    run = {
        "run_id": reservation.run_id,
        "profile": {"source": "ledger", "isl": 100},
        "ledger": {
            "corpus": reservation.corpus,
            "window": [reservation.start, reservation.end],
            "class": "fresh",
            "line_sha": reservation.line_sha,
        },
        "other": {},
    }
    path = folder / reservation.run_id / "run.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(run | changes))


def test_every_run_has_the_window_it_says(ledger: Ledger, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    first, second, third, fourth = (ledger.reserve(f"r{n}", "books", ORDER) for n in range(4))
    write_run(runs, first)
    assert audit(ledger, runs=runs) == []
    write_run(runs, second, ledger=None)
    write_run(runs, third, run_id="another")
    write_run(runs, fourth)
    ledger.void(fourth.line_sha, bytes_sent=0, reason="")
    (runs / "broken").mkdir()
    (runs / "broken" / "run.json").write_text("{")
    faults = audit(ledger, runs=runs)
    shown: list[Callable[[str], bool]] = [
        lambda fault: "broken/run.json: cannot be read" in fault,
        lambda fault: "r1/run.json: prompts from a ledger, and no window" in fault,
        lambda fault: "is not that of its line: [400, 600) of run r2" in fault,
        lambda fault: "r3/run.json: its window (600, 800) was given back as never sent" in fault,
    ]
    assert len(faults) == len(shown)
    assert all(is_it(fault) for is_it, fault in zip(shown, faults, strict=True))


def test_a_run_of_another_ledger_is_found(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger(tmp_path / "other.jsonl")
    other.add(numbered(1000))
    write_run(tmp_path / "runs", other.reserve("r0", "books", ORDER))
    assert ["is in no line of this ledger" in f for f in audit(ledger, runs=tmp_path / "runs")] == [
        True
    ]


def test_there_must_be_a_ledger_to_audit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no ledger at"):
        audit(Ledger(tmp_path / "none.jsonl"))


def test_the_export_has_every_window(ledger: Ledger) -> None:
    first = ledger.reserve("r0", "books", ORDER)
    ledger.commit(first.line_sha)
    ledger.reserve("w0", "books", Order(num_prompts=1, prompt_tokens=100, use=Use.SHIFTED))
    shown = json.loads(json.dumps(export(ledger.state())))
    assert (shown["lines"], shown["corpora"][0]["left"]) == (5, 800)
    assert shown["corpora"][0]["free"] == [[200, 1000]]
    assert [(w["run_id"], w["use"], w["status"]) for w in shown["windows"]] == [
        ("r0", "fresh", "committed"),
        ("w0", "shifted", "reserved"),
    ]
