"""Errors that cross processes: a `DraftmarkError` keeps its class, anything else is a crash."""

from __future__ import annotations

import traceback

from draftmark.core import errors
from draftmark.core.errors import DraftmarkError, EngineFailure
from draftmark.core.start import WorkerFailed

CRASH = "crash"


def failure_from(error: BaseException) -> WorkerFailed:
    """The message that carries `error` to the process above."""
    if isinstance(error, DraftmarkError):
        return WorkerFailed(kind=type(error).__name__, message=error.message, param=error.param)
    return WorkerFailed(
        kind=CRASH,
        message=f"{type(error).__name__}: {error}",
        traceback="".join(traceback.format_exception(error)),
    )


def error_from(failure: WorkerFailed) -> DraftmarkError:
    """The error to raise here for a failure there; a crash becomes an `EngineFailure`."""
    kind = vars(errors).get(failure.kind)
    if isinstance(kind, type) and issubclass(kind, DraftmarkError):
        return kind(failure.message, param=failure.param)
    return EngineFailure(failure.message)
