"""What is seen while a run goes on: a block that is drawn over and over, a line each ten seconds,
or events as JSON for a program.

The progress of the load comes from one thread and the samples of the server from another; both may
call at any time.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import Any, TextIO

import msgspec

from draftmark.bench.client.load import LoadProgress
from draftmark.bench.result import RunResult, Sample
from draftmark.bench.screen.picture import Picture, Tracker
from draftmark.bench.screen.words import block, one_line

__all__ = ["Picture", "Screen", "Ui", "open_screen"]

LINE_EACH_S = 10.0
_DRAW_EACH_S = 0.2
_HIDE, _SHOW, _CLEAR = "\x1b[?25l", "\x1b[?25h", "\x1b[J"


class Ui(StrEnum):
    """Auto: live where a person looks on, plain elsewhere."""

    AUTO = "auto"
    LIVE = "live"
    PLAIN = "plain"
    JSON = "json"


class Screen:
    """For `with`. `steps` is how many stages there will be."""

    # Between two looks, in seconds.
    each_s = LINE_EACH_S

    def __init__(self, out: TextIO, *, steps: int, clock: Callable[[], float]) -> None:
        self._out = out
        self._clock = clock
        self._tracker = Tracker(steps)
        self._lock = threading.RLock()
        self._shown_at = clock()

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def stage(self, name: str, *, ledger_left: int | None = None) -> None:
        with self._lock:
            self._tracker.stage(name, ledger_left=ledger_left)
            self._shown_at = self._clock()
            self.show_stage(self._tracker.picture())

    def progress(self, progress: LoadProgress) -> None:
        with self._lock:
            self._tracker.progress(progress)
            if self._clock() - self._shown_at >= self.each_s:
                self._shown_at = self._clock()
                self.show_progress(self._tracker.picture())

    def sample(self, sample: Sample) -> None:
        with self._lock:
            self._tracker.sample(sample)

    def warn(self, text: str) -> None:
        with self._lock:
            self._tracker.warn(text)
            self.show_warning(text)

    def result(self, run: RunResult, folder: str) -> None:
        """A run is over and kept."""
        with self._lock:
            self.show_result(run, folder)

    def close(self) -> None:
        """Leaves the terminal as it was."""

    def show_stage(self, picture: Picture) -> None:
        self._line(f"[{picture.step}/{picture.steps}] {picture.stage}")

    def show_progress(self, picture: Picture) -> None:
        self._line(one_line(picture))

    def show_warning(self, text: str) -> None:
        self._line(f"warning: {text}")

    def show_result(self, run: RunResult, folder: str) -> None:
        self._line(f"{run.run_id}: {run.state}, kept in {folder}")

    def _line(self, text: str) -> None:
        print(text, file=self._out, flush=True)


class JsonScreen(Screen):
    """One object a line, `event` first."""

    def show_stage(self, picture: Picture) -> None:
        self._event("stage", step=picture.step, steps=picture.steps, name=picture.stage)

    def show_progress(self, picture: Picture) -> None:
        self._event("progress", **msgspec.structs.asdict(picture))

    def show_warning(self, text: str) -> None:
        self._event("warning", text=text)

    def show_result(self, run: RunResult, folder: str) -> None:
        self._event("result", run_id=run.run_id, state=run.state, folder=folder, run=run)

    def _event(self, kind: str, **fields: Any) -> None:
        self._line(msgspec.json.encode({"event": kind, **fields}).decode())


class LiveScreen(Screen):
    """Draws over what it drew before. Lines that stay are put above the block."""

    each_s = _DRAW_EACH_S

    def __init__(self, out: TextIO, *, steps: int, clock: Callable[[], float]) -> None:
        super().__init__(out, steps=steps, clock=clock)
        self._drawn = 0
        out.write(_HIDE)

    def show_stage(self, picture: Picture) -> None:
        self._draw(picture)

    def show_progress(self, picture: Picture) -> None:
        self._draw(picture)

    def show_result(self, run: RunResult, folder: str) -> None:
        self._wipe()
        super().show_result(run, folder)

    def show_warning(self, text: str) -> None:
        self._wipe()
        super().show_warning(text)
        self._draw(self._tracker.picture())

    def close(self) -> None:
        self._wipe()
        self._out.write(_SHOW)
        self._out.flush()

    def _draw(self, picture: Picture) -> None:
        # A line that wraps would be two, and the next block would lie one too low.
        width = shutil.get_terminal_size().columns - 1
        lines = [line[:width] for line in block(picture)]
        self._wipe()
        self._out.write("\n".join(lines) + "\n")
        self._out.flush()
        self._drawn = len(lines)

    def _wipe(self) -> None:
        if self._drawn:
            self._out.write(f"\x1b[{self._drawn}F{_CLEAR}")
            self._drawn = 0


def open_screen(
    ui: Ui,
    *,
    steps: int,
    out: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Screen:
    """Events go to stdout, all else to stderr, so that stdout is left to the result."""
    if ui is Ui.JSON:
        return JsonScreen(out or sys.stdout, steps=steps, clock=clock)
    out = out or sys.stderr
    is_live = ui is Ui.LIVE or (ui is Ui.AUTO and out.isatty())
    return (LiveScreen if is_live else Screen)(out, steps=steps, clock=clock)
