"""Stop strings in streamed text: what may be shown now, and where the answer ends.

The match that is complete first wins; of several complete at the same character, the longest.
That is a rule about characters, so the result does not depend on how the text was cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from draftmark.core.errors import RequestError

# OpenAI allows 4; agents send more. The limits keep the cost of a token bounded.
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 1024


def check_stop(stop: Sequence[str]) -> None:
    """Raise `RequestError` naming `stop` when a list of stop strings cannot be taken."""
    if len(stop) > MAX_STOP_STRINGS:
        raise RequestError(
            f"stop has {len(stop)} strings, the limit is {MAX_STOP_STRINGS}", param="stop"
        )
    if any(not text for text in stop):
        raise RequestError("stop must not contain an empty string", param="stop")
    longest = max(map(len, stop), default=0)
    if longest > MAX_STOP_CHARS:
        raise RequestError(
            f"stop has a string of {longest} characters, the limit is {MAX_STOP_CHARS}",
            param="stop",
        )


class StopMatcher:
    """Holds back the shortest tail that could still become a stop string.

    Each stop string is followed by its own Knuth-Morris-Pratt automaton, whose state is how much
    of it the text so far ends with: the tail to hold is the largest state.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._failure = [_failure_table(text) for text in self._stop]
        self._state = [0] * len(self._stop)
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """The part of the held and new text that can be shown. Once `matched` is set, this was
        everything before the stop string, and nothing more may be fed.
        """
        assert self.matched is None, "text fed after a stop string matched"
        if not self._stop:
            return text
        buffer = self._held + text
        for position, char in enumerate(text, start=len(self._held) + 1):
            stop = self._advance(char)
            if stop is not None:
                self.matched, self._held = stop, ""
                return buffer[: position - len(stop)]
        keep = len(buffer) - max(self._state)
        self._held = buffer[keep:]
        return buffer[:keep]

    def flush(self) -> str:
        """The held text, which no stop string claimed."""
        held, self._held = self._held, ""
        return held

    def _advance(self, char: str) -> str | None:
        """The longest stop string that `char` completes, if any."""
        complete: str | None = None
        for index, stop in enumerate(self._stop):
            state = self._state[index]
            failure = self._failure[index]
            while state and stop[state] != char:
                state = failure[state - 1]
            if stop[state] == char:
                state += 1
            self._state[index] = state
            if state == len(stop) and (complete is None or len(stop) > len(complete)):
                complete = stop
        return complete


def _failure_table(text: str) -> list[int]:
    """Entry i: length of the longest proper prefix of text[:i+1] that is also its suffix."""
    table = [0] * len(text)
    length = 0
    for index in range(1, len(text)):
        while length and text[index] != text[length]:
            length = table[length - 1]
        if text[index] == text[length]:
            length += 1
        table[index] = length
    return table
