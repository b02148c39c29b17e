"""Values out of a text, by their names: what a call is made of, without the tools.

A conversation with tools spends most of its tokens on their schemas. Here the same requests are
answered with the same names and values, each on a line of its own as in a call, for a quarter of
the tokens.
"""

from __future__ import annotations

from random import Random

from training.tiny.conversation import Conversation, Split
from training.tiny.data.small_talk import MATERIAL, assistant, user
from training.tiny.data.tool_requests import draw_request
from training.tiny.data.tool_schemas import Tool, draw_parameters, draw_wishes
from training.tiny.data.tool_values import pick, spoken

_QUESTIONS = (
    "{names}\n\n{text}",
    "{text}\n\n{names}",
    "Take the values of {names} from this: {text}",
    "Values of {names}, please. {text}",
    "Read this and write {names}.\n{text}",
    "What are {names}?\n{text}",
)


def extraction_conversation(random: Random, split: Split, *, thinking: bool) -> Conversation:
    """Two to six values of one request."""
    material = MATERIAL[split]
    (wish,) = draw_wishes(random, material, 1)
    count = 2 + int(random.random() * 5)
    parameters = draw_parameters(random, material, count, camel=random.random() < 0.12)
    tool = Tool(
        f"{wish.verb}_{wish.noun}",
        wish.verb.replace("_", " "),
        wish.noun.replace("_", " "),
        wish,
        parameters,
    )
    arguments = [(parameter, parameter.draw(random, material)) for parameter in parameters]
    names = ", ".join([parameter.name for parameter in parameters])
    question = pick(random, _QUESTIONS).format(
        names=names, text=draw_request(random, material, tool, arguments)
    )
    lines = [f"{parameter.name}\n{spoken(value)}" for parameter, value in arguments]
    answer = assistant("\n".join(lines), f"Values: {len(lines)}.", thinking=thinking)
    return Conversation(
        kind="extraction", messages=(user(question), answer), tools=(), thinking=thinking
    )
