"""Prompts and what `tiny` writes after them, greedily, in float32: golden.json.

python -m tests.tiny.golden   writes it anew, for new weights
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from tests.tiny.conftest import serving_tiny
from training.tiny.evaluate import TASKS, Asker
from training.tiny.rendering import segments

FILE = Path(__file__).with_name("golden.json")
OF_EACH_TASK = 1
MAX_TOKENS = 160
PROSE = (
    "It was a cold evening in November, and the old man",
    "Call me what you like, said the captain,",
)


@dataclass(frozen=True, slots=True)
class Golden:
    name: str
    prompt: str
    text: str


def read_goldens() -> list[Golden]:
    return [Golden(**entry) for entry in json.loads(FILE.read_text(encoding="utf-8"))]


async def write_texts(url: str, prompts: list[str]) -> list[str]:
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        asker = Asker(client)
        return await asyncio.gather(
            *(asker.complete(prompt, max_tokens=MAX_TOKENS) for prompt in prompts)
        )


def main() -> None:
    named = [
        (task.name, segments(made)[0][0]) for task in TASKS for made in task.draw(OF_EACH_TASK)
    ]
    named += [("prose", prompt) for prompt in PROSE]
    with serving_tiny("--dtype", "float32") as url:
        texts = asyncio.run(write_texts(url, [prompt for _, prompt in named]))
    goldens = [asdict(Golden(*pair, text)) for pair, text in zip(named, texts, strict=True)]
    FILE.write_text(json.dumps(goldens, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
