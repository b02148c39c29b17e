"""Conversations with tools: the right call, exactly, or words where no tool fits.

A model this small cannot know what a tool is for. It learns to match the words of a request with
those of a tool, and to copy values; so names, parameters, strings and wordings vary by the
thousands, and neighbours share words with the right tool. What the assistant says is of few forms,
the same in both splits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from training.tiny.conversation import Conversation, Split
from training.tiny.data.arithmetic import drill_conversation
from training.tiny.data.small_talk import (
    MATERIAL,
    Exchange,
    assistant,
    draw_exchange,
    draw_history,
    user,
)
from training.tiny.data.tool_material import ENUM, Material
from training.tiny.data.tool_requests import (
    Arguments,
    draw_arguments,
    draw_order,
    draw_question,
    draw_request,
)
from training.tiny.data.tool_schemas import Tool, draw_tools, draw_wishes, schema
from training.tiny.data.tool_values import VALUES, pick, spoken

Messages = list[dict[str, Any]]

_KINDS = ("call",) * 11 + ("calls",) + ("no_fit",) * 5 + ("result",) * 3
_TOOL_COUNTS = (1,) * 20 + (2,) * 27 + (3,) * 25 + (4,) * 22 + (5,) * 3 + (6,) * 3
_REFUSALS = (
    "I have no tool to {w}.",
    "None of my tools can {w}.",
    "Sorry, I have no tool that can {w}.",
)
_WHICH_TOOLS = ("Which tools do you have?", "List your tools.", "What tools are there?")
_WHAT_IT_TAKES = (
    "Which parameters does {t} have?",
    "What does {t} take?",
    "Parameters of {t}?",
    "What do you need to {w}?",
    "What must I tell you so that you can {w}?",
)
# How often a demand names the tool as it is called: rare, and so hard to learn as it comes.
_ORDERS = {Split.TRAIN: 0.1, Split.HELD_OUT: 0.04}
_NOT_IN_RESULTS = ("sentence", "path", "state", ENUM)


@dataclass(frozen=True, slots=True)
class Draw:
    """What one conversation is drawn from. The first of its tools is the one that is asked for;
    `offered` are those that the assistant has, in its order."""

    random: Random
    split: Split
    thinking: bool
    material: Material
    tools: list[Tool]
    offered: list[Tool]

    def schemas(self) -> tuple[dict[str, Any], ...]:
        return tuple([schema(self.random, self.material, tool) for tool in self.offered])


def tool_conversation(
    random: Random, split: Split, *, thinking: bool, kind: str | None = None
) -> Conversation:
    """One conversation with one to six tools. `kind` is call, calls, no_fit or result; by default
    they come as 55, 5, 25 and 15 in a hundred."""
    kind = kind or pick(random, _KINDS)
    material = MATERIAL[split]
    count = pick(random, _TOOL_COUNTS)
    # Results and, more so, two requests are long, and leave room for fewer tools.
    if kind == "result":
        count = min(count, 4)
    elif kind == "calls":
        count = min(max(count, 2), 3)
    # Where none fits, one more is drawn, and asked for without being offered.
    missing = kind == "no_fit"
    wishes = draw_wishes(random, material, count + missing)
    # And two requests for fewer parameters.
    tools = draw_tools(random, material, wishes, as_many_as=4 if kind == "calls" else 1)
    offered = tools[1:] if missing else tools
    offered = random.sample(offered, len(offered))
    draw = Draw(random, split, thinking, material, tools, offered)
    turns = _TURNS[kind](draw)
    messages = (*_start(draw), *turns)
    return Conversation(kind=kind, messages=messages, tools=draw.schemas(), thinking=thinking)


def tool_session(random: Random, split: Split, *, thinking: bool) -> Conversation:
    """Two to six requests to the same few tools, with their calls, results and answers, and
    questions about the tools: many answers for one list of tools, which is the longest part of
    every other conversation. Results are mostly short."""
    material = MATERIAL[split]
    wishes = draw_wishes(random, material, 2 + int(random.random() * 2))
    tools = draw_tools(random, material, wishes, as_many_as=3)
    draw = Draw(random, split, thinking, material, tools, random.sample(tools, len(tools)))
    messages: Messages = []
    for _ in range(1 + int(random.random() * 5)):
        if random.random() < 0.25:
            messages += _about_tools(draw)
        else:
            tool, is_short = pick(random, tools), random.random() < 0.7
            messages += [*_call(draw, tool), *(_done(draw) if is_short else _result(draw))]
    messages += _call(draw, pick(random, tools))
    return Conversation(
        kind="session", messages=tuple(messages), tools=draw.schemas(), thinking=thinking
    )


def _start(draw: Draw) -> Messages:
    """What comes before: now and then a system message, earlier small talk or a finished call."""
    random = draw.random
    messages: Messages = []
    if random.random() < 0.15:
        messages.append({"role": "system", "content": pick(random, draw.material.wordings.systems)})
    # The more is offered, the less comes before: all has to fit the window.
    parameters = sum(len(tool.parameters) for tool in draw.offered)
    chance = random.random()
    if chance < 0.18 and parameters <= 5:
        longest = 3 if parameters <= 3 else 1
        for exchange in draw_history(random, draw.split)[:longest]:
            messages += exchange.messages(thinking=draw.thinking)
    elif chance > 0.88 and parameters <= 3:
        messages += _call_with_result(draw, pick(random, draw.offered))
    return messages


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks, the tool and the values meant, and the wish as an answer would name it."""

    text: str
    tool: Tool
    arguments: Arguments
    wish: str


def _ask(draw: Draw, tool: Tool) -> Request:
    random, material = draw.random, draw.material
    arguments = draw_arguments(random, material, tool)
    sole = sum(other.wish.noun_group == tool.wish.noun_group for other in draw.tools) == 1
    if tool.wish.verb_group == 0 and sole and random.random() < 0.45:
        question = draw_question(random, material, tool, arguments)
        return Request(question, tool, arguments, f"look up the {tool.noun}")
    return _demand(draw, tool, arguments)


def _demand(draw: Draw, tool: Tool, arguments: Arguments) -> Request:
    if draw.random.random() < _ORDERS[draw.split]:
        text = draw_order(draw.random, draw.material, tool, arguments)
        return Request(text, tool, arguments, f"run {tool.name}")
    text = draw_request(draw.random, draw.material, tool, arguments)
    return Request(text, tool, arguments, f"{tool.verb} the {tool.noun}")


def _thought(draw: Draw, requests: list[Request]) -> str:
    """The wishes, and of every tool whether it is one of them: each is decided by itself, right
    behind what it is about. No values: copied twice, they would be wrong twice as often."""
    wishes = ", ".join([request.wish for request in requests])
    wanted = {request.tool.name for request in requests}
    verdicts = [f"{tool.name} {'yes' if tool.name in wanted else 'no'}" for tool in draw.offered]
    return f"Wish: {wishes}. {', '.join(verdicts)}."


def _calls(draw: Draw, requests: list[Request]) -> dict[str, Any]:
    """An assistant's message that only calls."""
    message = assistant("", _thought(draw, requests), thinking=draw.thinking)
    message["tool_calls"] = [
        {
            "type": "function",
            "function": {
                "name": request.tool.name,
                "arguments": {parameter.name: value for parameter, value in request.arguments},
            },
        }
        for request in requests
    ]
    return message


def _call(draw: Draw, tool: Tool) -> Messages:
    request = _ask(draw, tool)
    return [user(request.text), _calls(draw, [request])]


def _two_calls(draw: Draw) -> Messages:
    """Two requests in one message; one in four asks the same tool for two things."""
    random, material = draw.random, draw.material
    first, second = draw.tools[:2]
    if random.random() < 0.25:
        second = first
    requests = [
        _demand(draw, tool, draw_arguments(random, material, tool)) for tool in (first, second)
    ]
    start, then = (request.text for request in requests)
    joiner = pick(random, material.wordings.joiners)
    end = "" if start[-1] in ".!?" else "\n" if "\n" in start else "."
    return [user(f"{start}{end}{joiner}{then}"), _calls(draw, requests)]


def _no_fit(draw: Draw) -> Messages:
    random = draw.random
    chance = random.random()
    if chance < 0.12:
        return draw_exchange(random, draw.split).messages(thinking=draw.thinking)
    if chance < 0.2:
        return list(drill_conversation(random, draw.split, thinking=draw.thinking).messages)
    request = _ask(draw, draw.tools[0])
    answer = pick(random, _REFUSALS).format(w=request.wish)
    thought = _thought(draw, [request])
    return Exchange(request.text, thought, answer).messages(thinking=draw.thinking)


def _call_with_result(draw: Draw, tool: Tool) -> Messages:
    return [*_call(draw, tool), *_result(draw)]


def _result(draw: Draw) -> Messages:
    """A tool's message, with one to three values, a failure or "ok", and what is said then."""
    random, material = draw.random, draw.material
    chance = random.random()
    if chance < 0.12:
        failure = pick(random, material.failures)
        content = json.dumps({"error": failure}) if chance < 0.08 else f"error: {failure}"
        return _reported(draw, content, f"Error: {failure}.", f"That did not work: {failure}.")
    if chance < 0.2:
        return _done(draw)
    values: dict[str, Any] = {}
    count = pick(random, (1, 1, 2, 2, 3))
    while len(values) < count:
        name, kind = pick(random, material.parameters)
        if kind not in _NOT_IN_RESULTS:
            values[name] = VALUES[kind](random, material.strings)
    pairs = [(name.replace("_", " "), spoken(value)) for name, value in values.items()]
    said = ", ".join([f"{words} {value}" for words, value in pairs])
    facts = [f"the {words} {_be(words)} {value}" for words, value in pairs]
    answer = ", ".join(facts[:-1]) + (" and " if len(facts) > 1 else "") + facts[-1] + "."
    content = json.dumps(values, ensure_ascii=False) if chance < 0.8 else said
    return _reported(draw, content, f"Result: {said}.", "T" + answer[1:])


def _done(draw: Draw) -> Messages:
    content = pick(draw.random, ("ok", '{"ok": true}', '{"status": "ok"}', "done"))
    return _reported(draw, content, "It worked.", "Done.")


def _about_tools(draw: Draw) -> Messages:
    """Which tools there are, or what one of them takes: names found in the list alone."""
    random = draw.random
    if random.random() < 0.2:
        question, thought = pick(random, _WHICH_TOOLS), "The names of my tools."
        names = [tool.name for tool in draw.offered]
    else:
        tool = pick(random, draw.offered)
        question = pick(random, _WHAT_IT_TAKES).format(
            t=tool.name, w=f"{tool.verb} the {tool.noun}"
        )
        thought = f"The parameters of {tool.name}."
        names = [parameter.name for parameter in tool.parameters]
    return [user(question), assistant(", ".join(names), thought, thinking=draw.thinking)]


def _be(words: str) -> str:
    return "are" if words.endswith("s") and not words.endswith("ss") else "is"


def _reported(draw: Draw, content: str, thought: str, answer: str) -> Messages:
    said = assistant(answer, thought, thinking=draw.thinking)
    return [{"role": "tool", "content": content}, said]


_TURNS: dict[str, Callable[[Draw], Messages]] = {
    "call": lambda draw: _call(draw, draw.tools[0]),
    "calls": _two_calls,
    "no_fit": _no_fit,
    "result": lambda draw: _call_with_result(draw, draw.tools[0]),
}
