"""One server, and runs against it: from a profile to a folder with figures, gates and a report.

with open_screen(...) as screen:
    session = open_session(settings, screen)
    folder, result = session.run(work, role=Role.MEASURE, run_id="...")
"""

from __future__ import annotations

from draftmark.bench.session.opening import open_session
from draftmark.bench.session.session import NotAsDeclared, Session
from draftmark.bench.session.settings import Settings, Work, warm_work, work_of

__all__ = [
    "NotAsDeclared",
    "Session",
    "Settings",
    "Work",
    "open_session",
    "warm_work",
    "work_of",
]
