"""The three screens, fed by hand and by a clock that the test turns."""

import io
import json
import threading

import pytest

from draftmark.bench.client.load import LoadProgress
from draftmark.bench.request import Failure
from draftmark.bench.result import Counters, Sample
from draftmark.bench.screen import LiveScreen, Screen, Ui, open_screen
from draftmark.bench.screen.picture import Tracker
from draftmark.bench.screen.words import block, one_line, sparkline
from tests.fakes.bench_result import result
from tests.fakes.bench_run import failed, record


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def progress(t_s: float, **changes) -> LoadProgress:
    fields = {"t_s": t_s, "planned": 40, "sent": 14, "ok": 10, "failed": 0, "in_flight": 4}
    return LoadProgress(
        **{**fields, "tokens": round(100 * t_s), "lag_ms": 0.2, "new": [], **changes}
    )


def sample(**changes) -> Sample:
    return Sample(**{"t": 0, "running": 4, "waiting": 1, "kv_use": 0.5, **changes})


def open_on(ui: Ui) -> tuple[Screen, io.StringIO, Clock]:
    out, clock = io.StringIO(), Clock()
    return open_screen(ui, steps=2, out=out, clock=clock), out, clock


def test_a_picture_of_a_run():
    tracker = Tracker(3)
    tracker.stage("warm")
    tracker.stage("run 1", ledger_left=61_772)
    tracker.progress(progress(1.0, new=[record(0), record(1, ttft_ms=200)]))
    tracker.progress(progress(5.0, ok=9, failed=1, new=[failed(2, Failure.RESET, at_ms=1)]))
    tracker.sample(sample(counters=Counters(verify_steps=10, accepted=10, retractions=3)))
    tracker.sample(
        sample(kv_use=0.75, counters=Counters(verify_steps=20, accepted=25, retractions=5))
    )
    tracker.warn("slow")
    seen = tracker.picture()
    assert (seen.step, seen.steps, seen.stage, seen.ledger_left) == (2, 3, "run 1", 61_772)
    assert (seen.ok, seen.failed, seen.in_flight) == (9, 1, 4)
    assert seen.eta_s == pytest.approx(15.0)
    assert seen.tok_s == pytest.approx(100.0)
    assert (seen.ttft_ms_so_far, seen.tpot_ms_so_far) == (150.0, 10.0)
    assert (seen.kv_use, seen.tokens_a_step, seen.retracted) == (0.75, 2.5, 2)
    assert seen.warning == "slow"


def test_the_rate_is_of_the_last_ten_seconds():
    tracker = Tracker(1)
    tracker.stage("run")
    for second in range(1, 31):
        tracker.progress(
            progress(float(second), tokens=10 * min(second, 20) + 100 * max(second - 20, 0))
        )
    seen = tracker.picture()
    assert seen.tok_s == pytest.approx(100.0)
    assert seen.tok_s_history[-11:] == pytest.approx([10.0] + [100.0] * 10)


def test_a_new_stage_begins_anew():
    tracker = Tracker(2)
    tracker.stage("warm")
    tracker.progress(progress(5.0, new=[record()]))
    tracker.stage("run")
    seen = tracker.picture()
    assert (seen.ok, seen.tok_s, seen.ttft_ms_so_far) == (0, None, None)


def test_a_plain_screen_says_a_line_each_ten_seconds():
    screen, out, clock = open_on(Ui.PLAIN)
    with screen:
        screen.stage("run 1")
        for tenth in range(1, 251):
            clock.now = tenth / 10
            screen.progress(progress(clock.now))
        screen.warn("the server is slow")
        screen.result(result(), "runs/run-1")
    lines = out.getvalue().splitlines()
    assert lines == [
        "[1/2] run 1",
        "[1/2] run 1 0:10, 10/40 ended, 4 in flight, tok/s 100, lag 0.2 ms, eta 0:30",
        "[1/2] run 1 0:20, 10/40 ended, 4 in flight, tok/s 100, lag 0.2 ms, eta 1:00",
        "warning: the server is slow",
        "run-1: complete, kept in runs/run-1",
    ]


def test_a_program_reads_events():
    screen, out, clock = open_on(Ui.JSON)
    with screen:
        screen.stage("run 1")
        clock.now = 10.0
        screen.sample(sample())
        screen.progress(progress(10.0))
        screen.warn("slow")
        screen.result(result(), "runs/run-1")
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [event["event"] for event in events] == ["stage", "progress", "warning", "result"]
    assert events[1]["kv_use"] == 0.5
    assert events[1]["ttft_ms_so_far"] is None
    assert events[3]["run"]["schema"] == "bench.run/1"


def terminal(text: str) -> list[str]:
    """What a terminal shows of it: as much of its language as the screen speaks."""
    lines = [""]
    for part in text.replace("\x1b[?25l", "").replace("\x1b[?25h", "").split("\x1b["):
        if part is not text and part[:1].isdigit() and "F" in part:
            count, _, rest = part.partition("F")
            del lines[len(lines) - 1 - int(count) :]
            lines.append("")
            part = rest
        part = part.removeprefix("J")
        head, *others = part.split("\n")
        lines[-1] += head
        lines += others
    return lines


def test_a_live_screen_draws_over_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "70")
    screen, out, clock = open_on(Ui.LIVE)
    with screen:
        screen.stage("run 1")
        for tenth in range(1, 101):
            clock.now = tenth / 10
            screen.progress(progress(clock.now))
        screen.warn("the server is slow")
        seen = terminal(out.getvalue())
        assert seen[0] == "warning: the server is slow"
        assert seen[1] == "step 1 of 2: run 1  0:10, about 0:30 left"
        assert len(seen) == 1 + 7 + 1
        assert max(map(len, seen)) < 70
        screen.result(result(), "runs/run-1")
    assert out.getvalue().startswith("\x1b[?25l") and out.getvalue().endswith("\x1b[?25h")
    assert terminal(out.getvalue()) == [
        "warning: the server is slow", "run-1: complete, kept in runs/run-1", "",
    ]  # fmt: skip


def test_a_live_screen_gives_the_cursor_back_after_a_fault():
    screen, out, _ = open_on(Ui.LIVE)
    with pytest.raises(KeyboardInterrupt), screen:
        raise KeyboardInterrupt
    assert out.getvalue().endswith("\x1b[?25h")


def test_who_looks_on_decides():
    screen, _, _ = open_on(Ui.AUTO)
    assert type(screen) is Screen
    out = io.StringIO()
    out.isatty = lambda: True
    assert isinstance(open_screen(Ui.AUTO, steps=1, out=out), LiveScreen)


def test_what_is_unknown_is_said_so():
    tracker = Tracker(1)
    tracker.stage("run")
    empty = tracker.picture()
    assert one_line(empty) == "[1/1] run 0:00, 0/0 ended, 0 in flight"
    text = "\n".join(block(empty))
    assert "n/a tok/s" in text and "kv n/a" in text and "ledger n/a tokens left" in text


def test_a_sparkline():
    assert sparkline([]) == ""
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([0.0, 50.0, 100.0]) == "▁▅█"


def test_two_threads_may_speak_at_once():
    screen, out, _ = open_on(Ui.JSON)

    def speak(word: str) -> None:
        for _ in range(200):
            screen.warn(word * 50)

    threads = [threading.Thread(target=speak, args=(word,)) for word in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([json.loads(line) for line in out.getvalue().splitlines()]) == 400
