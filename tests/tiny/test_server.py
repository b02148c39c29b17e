"""`tiny` through the server's process: its golden texts, and what it must get right.

What is wanted stands in `training.tiny.evaluate.WANTED`, how much less is too little in `gates.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import torch
from tokenizers import Tokenizer

from draftmark.engine.source import SHIPPED
from tests.cpu.models.one_sequence import Runner
from tests.tiny.conftest import serving_tiny
from tests.tiny.gates import count_right, least_right, line
from tests.tiny.golden import MAX_TOKENS, Golden, read_goldens, write_texts
from training.tiny.evaluate import TASKS, WANTED, Asker, Task, is_unthinking

# What is asked together, by the name of the gate: each task for itself, or a kind with and without
# thinking, which for few questions leaves less room.
SINGLE = {task.name: (task,) for task in TASKS if task.name in WANTED}
POOLED = {
    kind: tuple(task for name, (task,) in SINGLE.items() if name.startswith(kind))
    for kind in ("arithmetic exact", "calls exactly right", "no call where none fits")
}
RESPECTED = "thinking off respected"
TIE = 1e-3
MODEL = SHIPPED["tiny"].directory


def test_it_is_served_under_its_name(url: str) -> None:
    models = httpx.get(f"{url}/v1/models").json()["data"]
    assert [model["id"] for model in models] == ["tiny"]
    messages = [{"role": "user", "content": "What is 12 + 7?"}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 8}
    assert httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).status_code == 200


# -- golden texts


async def test_golden_texts(url: str) -> None:
    goldens = read_goldens()
    texts = await write_texts(url, [golden.prompt for golden in goldens])
    for golden, text in zip(goldens, texts, strict=True):
        if text != golden.text:
            gap = gap_where_they_part(golden, text)
            print(f"{golden.name}: differs where the two best logits are {gap:.1e} apart")
            assert gap < TIE, f"{golden.name}:\n{text}\n-- is not\n{golden.text}"


def gap_where_they_part(golden: Golden, text: str) -> float:
    """Between the two best logits of the plain model, after what the texts share."""
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    prompt, ours, theirs = (
        tokenizer.encode(part, add_special_tokens=False).ids
        for part in (golden.prompt, text, golden.text)
    )
    shared = 0
    while shared < min(len(ours), len(theirs)) and ours[shared] == theirs[shared]:
        shared += 1
    ids = prompt + ours[:shared]
    logits = Runner(MODEL, dtype=torch.float32, context=len(ids) + 1).feed(ids)[-1]
    best, second = logits.topk(2).values.tolist()
    return best - second


def test_a_text_that_parts_where_the_model_is_sure_is_no_tie() -> None:
    golden = next(golden for golden in read_goldens() if golden.name.startswith("arithmetic"))
    assert gap_where_they_part(golden, golden.text[: len(golden.text) // 2] + " walrus") > TIE
    assert len(golden.text) < 4 * MAX_TOKENS


# -- gates


async def ask_gates(url: str, gates: dict[str, tuple[Task, ...]], count: int) -> list[str]:
    """`count` questions of each task. Prints the table, returns the names of the red gates."""
    red: list[str] = []
    unthinking: list[str] = []

    def judge(name: str, right: int, asked: int, wanted: float) -> None:
        print(line(name, right, asked, wanted))
        if right < least_right(wanted, asked):
            red.append(name)

    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        asker = Asker(client)
        for name, tasks in gates.items():
            right = 0
            for task in tasks:
                made = task.draw(count)
                texts = await asker.answers(made)
                right += count_right(task, made, texts)
                unthinking += [] if task.thinking else texts
            judge(name, right, count * len(tasks), max(WANTED[task.name] for task in tasks))
    judge(RESPECTED, sum(map(is_unthinking, unthinking)), len(unthinking), WANTED[RESPECTED])
    return red


async def test_gates(url: str) -> None:
    assert await ask_gates(url, POOLED, 8) == []


@pytest.fixture(scope="module")
def default_url() -> Iterator[str]:
    """In the number format that a start chooses."""
    with serving_tiny() as address:
        yield address


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_gates_on_many(default_url: str) -> None:
    assert await ask_gates(default_url, SINGLE, 100) == []


def test_margins() -> None:
    """A model that just reaches what is wanted fails one gate in a hundred draws, at most."""
    assert [least_right(0.9, count) for count in (1, 10, 24, 100)] == [0, 6, 18, 82]
    assert least_right(1.0, 24) == 24
