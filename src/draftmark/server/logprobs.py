"""Log-probabilities of tokens in the forms of chat, completions and prompts."""

from __future__ import annotations

from collections.abc import Sequence

from draftmark.core.step import TokenLogprobs
from draftmark.server.responses import (
    AlternativeLogprob,
    ChatLogprobs,
    ChatTokenLogprob,
    PromptLogprob,
    PromptLogprobList,
    TextLogprobs,
)
from draftmark.text.detokenize import Detokenizer
from draftmark.text.tokenizer import Tokenizer

# JSON has no minus infinity; this is what OpenAI writes for it.
_FLOOR = -9999.0


class TokenNames:
    """How a token is written: as its text, or as `token_id:7` when asked for."""

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool) -> None:
        self._tokenizer = tokenizer
        self._as_ids = as_ids

    def bytes_of(self, token: int) -> bytes:
        return self._tokenizer.token_bytes(token)

    def for_chat(self, token: int) -> str:
        """Half a character is shown as U+FFFD; the entry's bytes are exact."""
        if self._as_ids:
            return f"token_id:{token}"
        return self._tokenizer.token_bytes(token).decode("utf-8", "replace")

    def for_completion(self, token: int) -> str:
        r"""There are no bytes beside it here, so half a character is written `bytes:\xe6\x97`."""
        if self._as_ids:
            return f"token_id:{token}"
        data = self._tokenizer.token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def chat_logprobs(
    entries: Sequence[TokenLogprobs], names: TokenNames, *, num_top: int
) -> ChatLogprobs:
    """`num_top` alternatives each, the chosen token among them where it is one of the likeliest."""
    return ChatLogprobs(
        [
            ChatTokenLogprob(
                names.for_chat(entry.token),
                _finite(entry.logprob),
                list(names.bytes_of(entry.token)),
                [
                    AlternativeLogprob(
                        names.for_chat(token), _finite(logprob), list(names.bytes_of(token))
                    )
                    for token, logprob in entry.top[:num_top]
                ],
            )
            for entry in entries
        ]
    )


class TextLogprobBuilder:
    """Builds the lists of one choice of a completion; follows its text to know the offsets."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        names: TokenNames,
        *,
        num_top: int,
        skip_special_tokens: bool,
        after_prompt: bool,
    ) -> None:
        self._names = names
        self._num_top = num_top
        self._detokenizer = Detokenizer(
            tokenizer, skip_special_tokens=skip_special_tokens, after_prompt=after_prompt
        )
        self._offset = 0

    def prompt(
        self, ids: Sequence[int], entries: Sequence[TokenLogprobs], *, text: str
    ) -> TextLogprobs:
        """Of an echoed prompt, whose first token follows nothing and so has no probability."""
        built = self._empty()
        self._add(built, ids[0], None)
        for entry in entries:
            self._add(built, entry.token, entry)
        self._offset = len(text)
        return built

    def answer(self, entries: Sequence[TokenLogprobs]) -> TextLogprobs:
        built = self._empty()
        for entry in entries:
            self._add(built, entry.token, entry)
        return built

    def _empty(self) -> TextLogprobs:
        return TextLogprobs([], [], [], [])

    def _add(self, built: TextLogprobs, token: int, entry: TokenLogprobs | None) -> None:
        built.text_offset.append(self._offset)
        built.tokens.append(self._names.for_completion(token))
        built.token_logprobs.append(None if entry is None else _finite(entry.logprob))
        built.top_logprobs.append(None if entry is None else self._top(entry))
        self._offset += len(self._detokenizer.feed((token,)))

    def _top(self, entry: TokenLogprobs) -> dict[str, float]:
        """The likeliest tokens, and the chosen one even where it is not among them."""
        shown = [*entry.top[: self._num_top], (entry.token, entry.logprob)]
        named: dict[str, float] = {}
        for token, logprob in shown:
            named.setdefault(self._names.for_completion(token), _finite(logprob))
        return named


def prompt_logprobs(
    entries: Sequence[TokenLogprobs], names: TokenNames, *, num_top: int
) -> PromptLogprobList:
    """vLLM's form: by token id, the chosen token first."""
    built: PromptLogprobList = [None]
    for entry in entries:
        by_id = {
            str(entry.token): PromptLogprob(
                _finite(entry.logprob), entry.rank, names.for_chat(entry.token)
            )
        }
        for rank, (token, logprob) in enumerate(entry.top[:num_top], start=1):
            by_id.setdefault(
                str(token), PromptLogprob(_finite(logprob), rank, names.for_chat(token))
            )
        built.append(by_id)
    return built


def _finite(logprob: float) -> float:
    return max(logprob, _FLOOR)
