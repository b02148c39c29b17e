"""Words what a user asks of a tool: each value stands beside its parameter's name, as it is."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from training.tiny.data.tool_material import Material
from training.tiny.data.tool_schemas import Parameter, Tool
from training.tiny.data.tool_values import Value, pick

Arguments = list[tuple[Parameter, Value]]
_NOT_BARE = ("sentence", "integer", "number", "flag", "state")


def draw_arguments(random: Random, material: Material, tool: Tool) -> Arguments:
    """A value for each required parameter and for half of the others, in the schema's order."""
    return [
        (parameter, parameter.draw(random, material))
        for parameter in tool.parameters
        if parameter.required or random.random() < 0.5
    ]


def draw_question(random: Random, material: Material, tool: Tool, arguments: Arguments) -> str:
    """Asks after the noun, without a verb: the tool must be the only one with that noun."""
    frame = pick(random, material.wordings.questions)
    if _can_be_bare(tool) and random.random() < 0.5:
        return frame.format(noun=tool.noun, d=_bare(random, material, arguments))
    return frame.format(
        noun=tool.noun, d=_inline(random, material, tool, arguments).removeprefix(", ")
    )


def draw_request(random: Random, material: Material, tool: Tool, arguments: Arguments) -> str:
    """Names the verb, the noun and every argument; or, rarely, the tool's own name."""
    wordings = material.wordings
    arguments = random.sample(arguments, len(arguments))
    wish = f"{tool.verb} {pick(random, wordings.determiners)} {tool.noun}"
    opening = pick(random, wordings.openings)
    if _can_be_bare(tool) and random.random() < 0.35:
        return _phrase(random, opening, f"{wish} {_bare(random, material, arguments)}")
    chance = random.random()
    if chance < 0.5:
        details = _inline(random, material, tool, arguments)
        space = "" if details.startswith(", ") else " "
        return _phrase(random, opening, f"{wish}{space}{details}")
    if chance < 0.7:
        return f"{_ended(_phrase(random, opening, wish))} {_stated(random, material, arguments)}"
    if chance < 0.83:
        return f"{_stated(random, material, arguments)} {_phrase(random, opening, wish)}"
    items = _items(random, material, arguments)
    if chance > 0.96:
        return pick(random, wordings.by_name).format(t=tool.name) + ", ".join(items)
    bullet = pick(random, wordings.bullets)
    if bullet.startswith("\n"):
        return _phrase(random, opening, wish) + bullet + bullet.join(items)
    text = _phrase(random, "{w}" if random.random() < 0.5 else opening, wish)
    return text.rstrip(".!?") + ": " + bullet.join(items)


def _can_be_bare(tool: Tool) -> bool:
    """True when a lone value can be meant for one parameter only."""
    return len(tool.parameters) == 1 and tool.parameters[0].kind not in _NOT_BARE


def _bare(random: Random, material: Material, arguments: Arguments) -> str:
    ((parameter, value),) = arguments
    wordings = material.wordings
    frames = wordings.bare_city if parameter.kind == "city" else wordings.bare
    return pick(random, frames).format(v=_written(random, parameter, value))


def _phrase(random: Random, opening: str, wish: str) -> str:
    text = opening.format(w=wish)
    if opening.startswith("{w}") and random.random() < 0.85:
        text = text[0].upper() + text[1:]
    return text


def _ended(text: str) -> str:
    return text if text[-1] in ".!?" else text + "."


def _written(random: Random, parameter: Parameter, value: Value) -> str:
    """A value as it stands in a request: sentences in quotes, other strings now and then."""
    if isinstance(value, str) and (parameter.kind == "sentence" or random.random() < 0.1):
        return f"'{value}'" if random.random() < 0.2 else f'"{value}"'
    return str(value)


def _inline(random: Random, material: Material, tool: Tool, arguments: Arguments) -> str:
    """Details that follow the wish in its own sentence; ", " leads where a name or value does."""
    wordings = material.wordings
    kinds = [parameter.kind for parameter in tool.parameters]
    common = pick(random, wordings.inline) if random.random() < 0.5 else ""
    text = ""
    for index, (parameter, value) in enumerate(arguments):
        frame = common or pick(random, wordings.inline)
        if parameter.is_boolean:
            pairs = wordings.flags_inline if parameter.kind == "flag" else wordings.states_inline
            frame = pick(random, pairs)[0 if value else 1]
        elif kinds.count(parameter.kind) == 1 and random.random() < 0.2:
            frame = pick(random, wordings.nameless.get(parameter.kind, (frame,)))
        if index == 0:
            text = ", " if frame.startswith("{") else ""
        elif index == len(arguments) - 1 and random.random() < 0.8:
            text += " and "
        else:
            text += ", "
        text += _filled(random, frame, parameter, value)
    return text


def _stated(random: Random, material: Material, arguments: Arguments) -> str:
    """Details in sentences of their own."""
    wordings = material.wordings
    sentences = []
    for parameter, value in arguments:
        frame = pick(random, wordings.statements)
        if parameter.is_boolean:
            pairs = wordings.flags_stated if parameter.kind == "flag" else wordings.states_stated
            frame = pick(random, pairs)[0 if value else 1]
        sentences.append(_filled(random, frame, parameter, value) + ".")
    return " ".join(sentences)


def _items(random: Random, material: Material, arguments: Arguments) -> Sequence[str]:
    """Details as the items of a list."""
    frame = pick(random, material.wordings.items)
    return [_filled(random, frame, parameter, value) for parameter, value in arguments]


def _filled(random: Random, frame: str, parameter: Parameter, value: Value) -> str:
    words = parameter.words
    if parameter.is_boolean:
        written = ("true" if value else "false") if random.random() < 0.6 else _yes_or_no(value)
    else:
        written = _written(random, parameter, value)
    return frame.format(v=written, p=words, P=words[0].upper() + words[1:], n=parameter.name)


def _yes_or_no(value: Value) -> str:
    return "yes" if value else "no"
