"""Problems with a number as their answer: GSM8K from a data folder, the arithmetic set of `tiny`.

A problem is its messages as they are sent; the right answer never is. Which number an answer gives
is read by one rule for all.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from draftmark.core.errors import ConfigError

_MARKED = re.compile(r"####\s*(\S+)")
# A minus belongs to a number unless something is taken away from: 7-5, (a)-5, x-5.
_NUMBER = re.compile(r"(?:(?<![\w)\]])-)?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?")
_GSM8K_TEST = "gsm8k/test.jsonl"
_GSM8K_SHOTS = "gsm8k/train_first200.jsonl"
_INSTRUCTION = (
    "Solve the problem step by step. End with a line that holds #### and the final number, and "
    "nothing else."
)
_Kind = TypeVar("_Kind")


# Made by `python -m training.tiny.problems`.
_ARITHMETIC = Path(__file__).with_name("arithmetic.jsonl.gz")


class Problem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of a file of problems. `fields` go into the request beside the messages."""

    id: str
    messages: list[dict[str, Any]]
    answer: str
    fields: dict[str, Any] = {}

    @property
    def sha(self) -> str:
        """Of everything that is sent."""
        sent = msgspec.json.encode([self.messages, self.fields], order="sorted")
        return hashlib.sha256(sent).hexdigest()


class _Row(msgspec.Struct, frozen=True):
    question: str
    answer: str


def read_gsm8k(data: Path, *, n: int | None = None, shots: int = 5) -> list[Problem]:
    """The first `n` test problems, each after the same `shots` solved ones of the training set.
    Raises `ConfigError` for a folder without them or too few of them."""
    examples = _take(_rows(data / _GSM8K_SHOTS, _Row), shots, data / _GSM8K_SHOTS)
    asked = _take(_rows(data / _GSM8K_TEST, _Row), n, data / _GSM8K_TEST)
    solved = [message for row in examples for message in _solved(row)]
    lead = [{"role": "system", "content": _INSTRUCTION}, *solved]
    return [
        Problem(
            id=f"gsm8k/{index}",
            messages=[*lead, {"role": "user", "content": row.question}],
            answer=_gold(row, data / _GSM8K_TEST, index),
        )
        for index, row in enumerate(asked)
    ]


def read_problems(path: Path, *, n: int | None = None) -> list[Problem]:
    """The first `n` rows of a file of `Problem`s (JSON lines, `.gz` or plain)."""
    found = _take(_rows(path, Problem), n, path)
    for problem in found:
        if number_in(problem.answer) is None:
            raise ConfigError(f"{path}: problem {problem.id} has no number as its answer")
    if len({problem.id for problem in found}) < len(found):
        raise ConfigError(f"{path}: two problems share an id")
    return found


def read_arithmetic(*, n: int | None = None) -> list[Problem]:
    """The set that ships, for `tiny` and whoever else can add."""
    return read_problems(_ARITHMETIC, n=n)


def number_in(text: str) -> Decimal | None:
    """What stands after the last `####`; where that is missing, the last number of the text."""
    marked = _MARKED.findall(text)
    numbers = _NUMBER.findall(marked[-1] if marked else text)
    return Decimal(numbers[-1].replace(",", "")) if numbers else None


def is_marked(text: str) -> bool:
    """Whether the answer was given in the form that was asked for."""
    return _MARKED.search(text) is not None


def is_right(text: str, answer: str) -> bool:
    given = number_in(text)
    return given is not None and given == number_in(answer)


def _solved(row: _Row) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": row.question},
        {"role": "assistant", "content": row.answer},
    ]


def _gold(row: _Row, path: Path, index: int) -> str:
    if not is_marked(row.answer) or number_in(row.answer) is None:
        raise ConfigError(f"{path}: row {index + 1} has no number after ####")
    return str(number_in(row.answer))


def _take(rows: Iterable[_Kind], n: int | None, path: Path) -> list[_Kind]:
    found = list(rows)
    if n is not None and n > len(found):
        raise ConfigError(f"{path} holds {len(found)} rows, {n} are wanted")
    return found[:n]


def _rows(path: Path, kind: type[_Kind]) -> Iterator[_Kind]:
    """Each line decoded strictly. Raises `ConfigError` with the number of a broken one."""
    decoder = msgspec.json.Decoder(kind)
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
    except (OSError, EOFError) as error:
        raise ConfigError(f"{path}: {error}", param="data") from error
    for number, line in enumerate(lines, 1):
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: line {number}: {error}", param="data") from error
