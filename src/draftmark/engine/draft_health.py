"""Says in the log when drafts are accepted too rarely to be of use, and when they are again.

The scheduler finds it (`scheduler.acceptance`), in whole lots of windows, again and again while it
lasts; the log has one warning and one line of relief each time.
"""

from __future__ import annotations

import logging

from draftmark.core.messages import DraftStats
from draftmark.scheduler.acceptance import HEALTH_ROUNDS

logger = logging.getLogger(__name__)


class DraftHealth:
    """Looks at totals that rise."""

    def __init__(self) -> None:
        self._num_low = 0
        self._is_low = False
        # Windows and accepted drafts when it was found.
        self._at_alarm = (0, 0)

    def look(self, stats: DraftStats | None) -> None:
        """Log what changed since the last look."""
        if stats is None:
            return
        if stats.num_low > self._num_low and not self._is_low:
            self._is_low, self._at_alarm = True, (stats.windows, stats.accepted)
            logger.warning("%s", _alarm(stats.low_length))
        self._num_low = stats.num_low
        if self._is_low and stats.low_length is None:
            self._is_low = False
            logger.info("drafts are accepted again%s", self._since_alarm(stats))

    def _since_alarm(self, stats: DraftStats) -> str:
        windows, accepted = self._at_alarm
        if stats.windows == windows:
            return ""
        length = 1 + (stats.accepted - accepted) / (stats.windows - windows)
        return f": {length:.2f} tokens a window since the warning"


def _alarm(length: float | None) -> str:
    """`length` is None where it was over before anybody looked."""
    seen = "hardly more than one token" if length is None else f"{length:.2f} tokens"
    return (
        f"drafts are hardly ever accepted: {seen} a window over {HEALTH_ROUNDS} windows, one of "
        "which would have come without drafts. Answers are right all the same, only slower. Either "
        "what drafts does not belong to this model (a broken head, or one of another checkpoint), "
        "or the text cannot be guessed, as random ids cannot. Try ordinary text; if it stays so, "
        "look at the checkpoint's head, or serve with --draft none"
    )
