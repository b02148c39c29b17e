"""Seven fixed prompts that every sound model of some size answers: a look within a minute, no
measurement. Each is right by its own rule and must not be degenerate."""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from draftmark.bench.ask import Ask, Asker, Reply
from draftmark.bench.quality.degenerate import degenerate
from draftmark.bench.quality.problems import is_right

_MAX_TOKENS = 512
_NEEDLE_SEED = 20
_NEEDLE_NUMBER = 48213
_NEEDLE_WORDS = (
    "river stone morning window garden letter winter table candle harbour meadow copper "
    "quiet slowly often under across before little yellow"
)
WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """`check` says what is wrong with an answer, None when it is right."""

    name: str
    text: str
    check: Callable[[Reply], str | None]
    fields: dict[str, Any] = {}


class QuickRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`faults` is empty for a right answer."""

    name: str
    passed: bool
    faults: list[str]
    answer: str


class QuickResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`quick.json`. `stopped` says why not all were asked."""

    schema: Literal["bench.quick/1"] = "bench.quick/1"
    model: str
    passed: int
    of: int
    stopped: str | None = None
    rows: list[QuickRow]


def run_quick(
    asker: Asker, *, needle_tokens: int = 3000, max_tokens: int = _MAX_TOKENS, **fields: Any
) -> QuickResult:
    """Ask all seven, one at a time. `fields` go into every request; `needle_tokens` is about how
    long the long one is."""
    prompts = quick_prompts(needle_tokens)
    asks = [_ask(asker, prompt, {"max_tokens": max_tokens, **fields}) for prompt in prompts]
    rows = [_row(*pair) for pair in zip(prompts, asker.ask(asks), strict=True)]
    passed = sum(row.passed for row in rows)
    return QuickResult(
        model=asker.model, passed=passed, of=len(rows), stopped=asker.stopped, rows=rows
    )


def quick_prompts(needle_tokens: int) -> list[Prompt]:
    return [
        Prompt(
            name="arithmetic",
            text="What is 17 * 23? Answer with the number only.",
            check=lambda reply: _wants_number(reply, 391),
        ),
        Prompt(
            name="fact",
            text="What is the capital of France? Answer with one word.",
            check=lambda reply: _wants(reply, r"\bparis\b", "Paris is not named"),
        ),
        Prompt(
            name="json",
            text='Answer with a JSON object and nothing else. Its keys are "name" and "age". '
            "The person is called Ada and is 36 years old.",
            check=_wants_ada,
        ),
        Prompt(
            name="tool",
            text="What is the weather in Paris now?",
            check=_wants_weather,
            fields={"tools": [WEATHER_TOOL]},
        ),
        Prompt(
            name="code",
            text="Write a Python function add_even(numbers) that returns the sum of the even "
            "numbers in a list. Answer with the code only.",
            check=_wants_function,
        ),
        Prompt(
            name="chinese",
            text="水的化学式是什么？请用中文回答。",  # noqa: RUF001
            check=_wants_water,
        ),
        Prompt(
            name="needle",
            text=needle_text(needle_tokens),
            check=lambda reply: _wants_number(reply, _NEEDLE_NUMBER),
        ),
    ]


def needle_text(num_tokens: int) -> str:
    """About `num_tokens` tokens of words, a number in their middle, and a question about it."""
    draw, words = random.Random(_NEEDLE_SEED), _NEEDLE_WORDS.split()
    sentences = [
        " ".join(draw.choices(words, k=12)).capitalize() + "."
        for _ in range(max(num_tokens // 14, 2))
    ]
    sentences.insert(len(sentences) // 2, f"The number of the blue box is {_NEEDLE_NUMBER}.")
    question = "What is the number of the blue box? Answer with the number only."
    return f"{' '.join(sentences)}\n\n{question}"


def _ask(asker: Asker, prompt: Prompt, fields: dict[str, Any]) -> Ask:
    messages = [{"role": "user", "content": prompt.text}]
    return asker.chat(messages, **fields, **prompt.fields)


def _row(prompt: Prompt, reply: Reply) -> QuickRow:
    if reply.record.http != 200 or reply.record.failure in ("inband_error", "bad_sse"):
        faults = [reply.problem]
    else:
        fault = prompt.check(reply)
        # The rules read the answer; the noise may be in the reasoning.
        faults = [fault] if fault else []
        faults += degenerate(f"{reply.reasoning}\n{reply.content}")
        faults += [reply.problem] if reply.problem else []
    answer = reply.content or reply.reasoning
    return QuickRow(name=prompt.name, passed=not faults, faults=faults, answer=answer[:500])


def _wants(reply: Reply, pattern: str, fault: str) -> str | None:
    return None if re.search(pattern, reply.content, re.IGNORECASE) else fault


def _wants_number(reply: Reply, number: int) -> str | None:
    return None if is_right(reply.content, str(number)) else f"its last number is not {number}"


def _wants_ada(reply: Reply) -> str | None:
    text = _unfenced(reply.content)
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    return None if value == {"name": "Ada", "age": 36} else f"another object: {text[:100]}"


def _wants_weather(reply: Reply) -> str | None:
    if [call.name for call in reply.tools] != ["get_weather"]:
        return f"calls of {[call.name for call in reply.tools]}, one of get_weather is wanted"
    try:
        arguments = json.loads(reply.tools[0].arguments)
    except ValueError as error:
        return f"arguments are no JSON: {error}"
    is_paris = isinstance(arguments, dict) and "paris" in str(arguments.get("city")).lower()
    return None if is_paris else f"arguments {reply.tools[0].arguments[:100]}"


def _wants_function(reply: Reply) -> str | None:
    """By its shape: what a model wrote is not run."""
    try:
        tree = ast.parse(_unfenced(reply.content))
    except (SyntaxError, ValueError) as error:
        return f"no Python: {error}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "add_even":
            returns = any(isinstance(inner, ast.Return) for inner in ast.walk(node))
            return None if returns and len(node.args.args) == 1 else "add_even is incomplete"
    return "there is no function add_even"


def _wants_water(reply: Reply) -> str | None:
    if not re.search(r"[\u4e00-\u9fff]", reply.content):
        return "no Chinese"
    # In plain characters, with a subscript, or as TeX writes it.
    return _wants(reply, r"H\s*_?\{?[2\u2082]\}?\s*O", "the formula is missing")


def _unfenced(text: str) -> str:
    """What is within the first code fence, all of the text without one."""
    found = re.search(r"```[\w+-]*\n(.*?)```", text, re.DOTALL)
    return (found[1] if found else text).strip()
