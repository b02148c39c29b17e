"""Calibration: the search over a rate, its file, and one short try of it against a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmark.bench import calibrate as module
from draftmark.bench.calibrate import (
    Calibration,
    Cell,
    calibrate,
    lag_limit_ms,
    read_calibration,
    shards_needed,
)
from draftmark.bench.single_file import write_value
from draftmark.bench.truth.process import truth_process
from draftmark.core.errors import ConfigError


def cell(streams: int, *, is_carried: bool, written: float | None = None) -> Cell:
    return Cell(
        streams=streams,
        asked_rate=50.0 * streams,
        written_rate=50.0 * streams if written is None else written,
        lag_p50_ms=0.1,
        lag_p99_ms=1.0 if is_carried else 3.0,
        lag_max_ms=4.0,
        tick_lag_p99_ms=None,
        cpu_share=None,
        is_carried=is_carried,
    )


def search(monkeypatch: pytest.MonkeyPatch, *, carries: int, server: int = 10**9) -> Calibration:
    """A calibration of a client that carries so many streams and a server that writes so many."""

    def attempt(truth: object, streams: int, **_: object) -> Cell:
        written = 50.0 * min(streams, server)
        return cell(streams, is_carried=streams <= carries, written=written)

    monkeypatch.setattr(module, "_try", attempt)
    return calibrate(streams=128, rate=50.0)


@pytest.mark.parametrize(
    ("carries", "tried", "found"),
    [
        (300, [128, 256, 512, 384, 320], 256),
        (400, [128, 256, 512, 384, 448], 384),
        (50, [128, 64, 32, 48, 56], 48),
        (1, [128, 64, 32, 16, 8, 4, 2, 1], 1),
    ],
)
def test_the_search(
    monkeypatch: pytest.MonkeyPatch, carries: int, tried: list[int], found: int
) -> None:
    result = search(monkeypatch, carries=carries)
    assert [cell.streams for cell in result.cells] == tried
    assert result.rate == 50.0 * found and result.bound == "client"


def test_a_client_that_carries_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    result = search(monkeypatch, carries=0)
    assert result.rate is None
    with pytest.raises(ConfigError, match="no rate"):
        shards_needed(10.0, result)


def test_the_server_may_be_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    result = search(monkeypatch, carries=10**6, server=200)
    assert result.bound == "server" and result.rate == 50.0 * 200


def test_more_streams_than_are_tried_may_be_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    result = search(monkeypatch, carries=10**6)
    assert result.bound == "streams" and result.cells[-1].streams == 4096


def test_a_real_try_compares_every_event() -> None:
    """What is carried on a busy machine is not asserted."""
    with truth_process() as truth:
        tried = module._try(truth, 3, rate=20.0, seconds=0.5, limit_ms=2.0)
    assert 0 <= tried.lag_p50_ms <= tried.lag_p99_ms <= tried.lag_max_ms
    assert tried.is_carried == (tried.lag_p99_ms < 2.0)
    assert tried.written_rate == pytest.approx(60.0, rel=0.5)


def test_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "calibration.json"
    result = search(monkeypatch, carries=300)
    write_value(path, result)
    assert read_calibration(path) == result


def test_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shards_needed(1.0, None) == 1
    assert shards_needed(3500.0, None) == 1 and shards_needed(3501.0, None) == 2
    assert shards_needed(40_000.0, search(monkeypatch, carries=400)) == 3


def test_limits() -> None:
    assert lag_limit_ms(20.0) == 2.0 and lag_limit_ms(100.0) == 5.0


def test_nonsense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        calibrate(streams=0)
    (tmp_path / "x.json").write_text('{"rate": 1}')
    for name in ("x.json", "missing.json"):
        with pytest.raises(ConfigError, match=r"\.json: "):
            read_calibration(tmp_path / name)
