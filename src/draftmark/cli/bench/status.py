"""What a bench command ends with: the one place where gates, runs and errors become a status.

0 everything holds; 1 the server failed; 2 it was not measured as it must be, and nothing is said;
5 the command line, or a file it names, is wrong. Ctrl-C is 130, like everywhere, unless something
was kept: that is marked, and says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from draftmark.bench.ask import Asker
from draftmark.bench.gates import Standing, standing
from draftmark.bench.result import Gate, RunResult, RunState
from draftmark.core.errors import ConfigError, DraftmarkError, RequestError, Unavailable


class Status(IntEnum):
    PASS = 0
    FAIL = 1
    INVALID = 2
    USAGE = 5


_OF_STANDING = {
    Standing.PASS: Status.PASS,
    Standing.FAIL: Status.FAIL,
    Standing.INVALID: Status.INVALID,
}


def of_error(error: DraftmarkError) -> Status:
    """Of what ended a command. A server that is not there failed; settings that are not those
    declared, figures that must not be divided and a disk that is full leave nothing to say."""
    if isinstance(error, ConfigError | RequestError):
        return Status.USAGE
    return Status.FAIL if isinstance(error, Unavailable) else Status.INVALID


def of_gates(gates: Sequence[Gate], runs: Sequence[RunResult] = ()) -> Status:
    """Of `runs` with the gates of each, and of `gates` besides. A death of the server is certain,
    however it was measured; after it, what was measured wrongly outranks what failed."""
    if any(run.counts.incidents for run in runs):
        return Status.FAIL
    if any(run.state is RunState.PARTIAL for run in runs):
        return Status.INVALID
    return max(_OF_STANDING[standing(each)] for each in (gates, *(run.gates for run in runs)))


def of_answers(asker: Asker, *, holds: bool) -> Status:
    """Of questions asked one by one; `holds` is of those that were answered."""
    if asker.was_interrupted:
        return Status.INVALID
    return Status.PASS if holds and asker.stopped is None else Status.FAIL


def of_questions(asker: Asker, gates: Sequence[Gate]) -> Status:
    """Likewise, of questions that are judged by gates."""
    if asker.stopped is not None:
        return of_answers(asker, holds=False)
    return of_gates(gates)
