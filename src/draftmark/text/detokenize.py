"""Token ids to text, one token at a time, for ever: constant work a token, nothing re-decoded.

A character is emitted when its last byte arrives and never in part. Only `flush` gives up on an
unfinished one, as U+FFFD. Joined deltas equal the text decoded in one go, for every grouping.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from draftmark.text.tokenizer import Tokenizer

_NO_IDS: frozenset[int] = frozenset()


class Detokenizer:
    """Decodes one sequence. `after_prompt` says that the ids continue a text (an answer does), so
    that a blank in front of the first word is kept; a text of its own loses it where the
    tokenizer put it there.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True, after_prompt: bool = True
    ) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._skipped = tokenizer.special_ids if skip_special_tokens else _NO_IDS
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip_char = tokenizer.pieces.strip_char
        self._strip_left = 0 if after_prompt else tokenizer.pieces.strip_start

    def feed(self, ids: Iterable[int]) -> str:
        """The characters that these tokens complete; often none."""
        data = b"".join([self._token_bytes(token) for token in ids if token not in self._skipped])
        return self._strip(self._utf8.decode(data))

    def flush(self) -> str:
        """What is left when no token follows: nothing, or U+FFFD for an unfinished character."""
        return self._strip(self._utf8.decode(b"", final=True))

    def _strip(self, text: str) -> str:
        while text and self._strip_left:
            if not text.startswith(self._strip_char):
                self._strip_left = 0
                break
            text = text[len(self._strip_char) :]
            self._strip_left -= 1
        return text


def decode(
    tokenizer: Tokenizer,
    ids: Iterable[int],
    *,
    skip_special_tokens: bool = True,
    after_prompt: bool = False,
) -> str:
    """The text of a whole sequence."""
    detokenizer = Detokenizer(
        tokenizer, skip_special_tokens=skip_special_tokens, after_prompt=after_prompt
    )
    return detokenizer.feed(ids) + detokenizer.flush()
