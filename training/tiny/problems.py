"""Writes the arithmetic problems that `draftmark bench quality` asks: held-out ones, by number.

python -m training.tiny.problems FILE [--count N]

A row a problem, as `draftmark.bench.quality` reads them: id, messages, the right number, and the
field of the request that turns thinking on or off. The same at every call.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.tiny.conversation import Split
from training.tiny.data.arithmetic import arithmetic_conversation
from training.tiny.grading import final_number

_SEED = "problems"


def problems(count: int) -> Iterator[dict[str, Any]]:
    """`count` different questions, every second one to be answered without thinking."""
    draw = random.Random(_SEED)
    asked: set[str] = set()
    while len(asked) < count:
        thinking = len(asked) % 2 == 0
        made = arithmetic_conversation(draw, Split.HELD_OUT, thinking=thinking)
        question, answer = made.messages
        if question["content"] in asked:
            continue
        yield {
            "id": f"arithmetic/{len(asked)}",
            "messages": [question],
            "answer": str(final_number(answer["content"])),
            "fields": {"chat_template_kwargs": {"enable_thinking": thinking}},
        }
        asked.add(question["content"])


def write_problems(path: Path, count: int) -> None:
    """Byte for byte the same at every call: the archive holds no time and no name."""
    rows = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in problems(count))
    path.write_bytes(gzip.compress(rows.encode(), mtime=0))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write arithmetic problems for the bench.")
    parser.add_argument("file", type=Path, help="what to write, a name that ends in .jsonl.gz")
    parser.add_argument("--count", type=int, default=400)
    arguments = parser.parse_args()
    write_problems(arguments.file, arguments.count)


if __name__ == "__main__":
    main()
