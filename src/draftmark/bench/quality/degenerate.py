"""Text that no sound model writes: digits without words, and the same again and again.

Both look at the whole of an answer, reasoning included, and say what they found, so that a reader
can judge them. They are for prompts that ask for neither long numbers nor repetition.
"""

from __future__ import annotations

import re

# Longer than any number, sum or list that the fixed prompts and school problems lead to.
_MAX_DIGITS_WITHOUT_LETTERS = 60
_LONGEST_PERIOD = 32
_REPEATS = 4
_LOOPED_SHARE = 0.3
_FEWEST_UNITS = 24
_LONGEST_WORD = 60


def digit_noise(text: str) -> str | None:
    """A stretch without any letter that holds too many digits, in words; None without one."""
    for stretch in re.finditer(r"[\W\d_]+", text):
        digits = sum(character.isdigit() for character in stretch.group())
        if digits > _MAX_DIGITS_WITHOUT_LETTERS:
            return f"{digits} digits without a letter between: {stretch.group()[:60]!r}"
    return None


def repetition(text: str) -> str | None:
    """Too large a share of the text within pieces that follow themselves, in words; None if not.

    Pieces are of at most 32 words, or characters where a script writes no spaces or a word has no
    end.
    """
    units = words_of(text)
    for word in units:
        if len(word) > _LONGEST_WORD and word.isalpha() and looped_share(list(word)) > 0.5:
            return f"a word of {len(word)} letters that repeats itself: {word[:60]!r}"
    share = looped_share(units)
    if len(units) < _FEWEST_UNITS or share <= _LOOPED_SHARE:
        return None
    return f"{share:.0%} of the text repeats itself {_REPEATS} times or more"


def degenerate(text: str) -> list[str]:
    """Everything found, one sentence each."""
    return [found for found in (digit_noise(text), repetition(text)) if found is not None]


def words_of(text: str) -> list[str]:
    """Words as spaces part them; each character of a script that has none (Chinese, Japanese)."""
    return re.findall(
        r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\s\u3040-\u30ff\u3400-\u9fff]+", text
    )


def looped_share(units: list[str]) -> float:
    """The share of `units` within a stretch where a piece follows itself `_REPEATS` times."""
    looped = [False] * len(units)
    for period in range(1, min(_LONGEST_PERIOD, len(units) // _REPEATS) + 1):
        run = 0
        for i in range(period, len(units)):
            run = run + 1 if units[i] == units[i - period] else 0
            if run >= period * (_REPEATS - 1):
                start = i - run - period + 1
                looped[start : i + 1] = [True] * (i + 1 - start)
    return sum(looped) / len(looped) if looped else 0.0
