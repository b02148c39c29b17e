"""Words what a user asks of a tool: each value stands beside its parameter's name, as it is."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from training.tiny.data.tool_material import ENUM, Material, Pairs
from training.tiny.data.tool_schemas import Parameter, Tool, article
from training.tiny.data.tool_values import Value, made_up, pick

Arguments = list[tuple[Parameter, Value]]
_NOT_BARE = ("sentence", "integer", "number", "flag", "state")
# Between details of one sentence, whatever the split.
_JOINTS = ("; ", " and ", " plus ", ", plus ", ", and ", " & ")
_LAST_JOINTS = (
    ", and ",
    " plus ",
    ", plus ",
    "; ",
    " as well as ",
    ", and also ",
    ", also ",
    " & ",
)
_ATTACHED = ("with ", "using ", "taking ", "for ", "given ")
_AFTER_COMMA = ("where", "so that", "such that", "and", "but", "for which", "provided", "as for")


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
        details = _bare(random, material, arguments)
    else:
        details = _inline(random, material, tool, arguments).removeprefix(", ")
    text = frame.format(noun=tool.noun, d=details)
    return _closed(random, material, _introduced(random, material, text))


def draw_request(random: Random, material: Material, tool: Tool, arguments: Arguments) -> str:
    """Names the verb, the noun and every argument."""
    arguments = random.sample(arguments, len(arguments))
    wish = _wish(random, material, tool)
    if _can_be_bare(tool) and random.random() < 0.3:
        text = _phrase(random, material, f"{wish} {_bare(random, material, arguments)}")
        return _closed(random, material, text)
    chance = random.random()
    if chance < 0.47:
        details = _inline(random, material, tool, arguments)
        space = "" if details.startswith(", ") else " "
        text = _phrase(random, material, f"{wish}{space}{details}")
    elif chance < 0.55 and not any(parameter.is_boolean for parameter, _ in arguments):
        text = _phrase(random, material, wish, _fronted(random, material, arguments) + ", ")
    elif chance < 0.7:
        text = f"{_ended(_phrase(random, material, wish))} {_stated(random, material, arguments)}"
    elif chance < 0.8:
        text = f"{_stated(random, material, arguments)} {_phrase(random, material, wish)}"
    else:
        text = _listed(random, material, wish, _items(random, material, arguments))
    return _closed(random, material, text)


def draw_order(random: Random, material: Material, tool: Tool, arguments: Arguments) -> str:
    """Names the tool as it is called, and every argument."""
    items = _items(random, material, random.sample(arguments, len(arguments)))
    return pick(random, material.wordings.by_name).format(t=tool.name) + ", ".join(items)


def _wish(random: Random, material: Material, tool: Tool) -> str:
    determiner = pick(random, material.wordings.determiners).format(
        a=article(tool.noun, tool.wish.noun in material.mass_nouns),
        x=pick(random, material.strings.people),
    )
    return f"{tool.verb} {determiner} {tool.noun}" if determiner else f"{tool.verb} {tool.noun}"


def _listed(random: Random, material: Material, wish: str, items: Sequence[str]) -> str:
    """The request and a list of its details; now and then the list comes first."""
    bullet = pick(random, material.wordings.bullets)
    request = _phrase(random, material, wish)
    is_column = bullet.startswith("\n")
    if random.random() < 0.25:
        if is_column:
            return bullet.lstrip("\n") + bullet.join(items) + "\n" + request
        return f"{_ended(bullet.join(items))} {request}"
    lead = pick(random, material.wordings.leads)
    if lead == ":" and is_column and random.random() < 0.4:
        text = request
    elif lead == ":" or lead.startswith(_ATTACHED):
        text = request.rstrip(".!?") + (lead if lead == ":" else f" {lead}")
    else:
        text = f"{_ended(request)} {_capitalised(lead)}"
    return text + (bullet if is_column else " ") + bullet.join(items)


def _introduced(random: Random, material: Material, text: str, before: str = "") -> str:
    """Now and then a greeting, a reason or a remark precedes it, or `before` does; sentences begin
    with a capital mostly."""
    if not before and random.random() < 0.2:
        before = _spoken(random, material, pick(random, pick(random, material.wordings.before)))
    if before[-2:-1] in (".", "!") and random.random() < 0.85:
        text = _capitalised(text)
    text = before + text
    return _capitalised(text) if random.random() < 0.85 else text


def _closed(random: Random, material: Material, text: str) -> str:
    """Now and then thanks or a remark follow."""
    if random.random() > 0.1:
        return text
    closing = _spoken(random, material, pick(random, material.wordings.closings))
    if "\n" in text:
        return f"{text}\n{_capitalised(closing)}."
    return f"{_ended(text)} {_capitalised(closing)}{'!' if random.random() < 0.3 else '.'}"


def _spoken(random: Random, material: Material, frame: str) -> str:
    """A frame with some name and something in it: no value stands there."""
    if "{x}" not in frame and "{o}" not in frame:
        return frame
    strings = material.strings
    who = pick(random, strings.people)
    if random.random() < 0.5:
        who = made_up(random, strings).capitalize()
    what = pick(random, strings.things) if random.random() < 0.3 else made_up(random, strings)
    return frame.replace("{x}", who).replace("{o}", what)


def _can_be_bare(tool: Tool) -> bool:
    """True when a lone value can be meant for one parameter only."""
    return len(tool.parameters) == 1 and tool.parameters[0].kind not in _NOT_BARE


def _bare(random: Random, material: Material, arguments: Arguments) -> str:
    ((parameter, value),) = arguments
    wordings = material.wordings
    frames = (
        wordings.bare_city if parameter.kind == "city" and parameter.is_known else wordings.bare
    )
    return pick(random, frames).format(v=_written(random, parameter, value))


def _phrase(random: Random, material: Material, wish: str, before: str = "") -> str:
    """An opening with this wish, after `before` or what else introduces it, and with a reason."""
    opening = _spoken(random, material, pick(random, pick(random, material.wordings.openings)))
    text = opening.format(w=wish)
    if random.random() < 0.06:
        reason = _spoken(random, material, pick(random, material.wordings.reasons))
        text = f"{text.rstrip('.!?')}, {reason}."
    return _introduced(random, material, text, before)


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


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
    common = pick(random, pick(random, wordings.inline)) if random.random() < 0.5 else ""
    text = ""
    for index, (parameter, value) in enumerate(arguments):
        frame = common or pick(random, pick(random, wordings.inline))
        if parameter.is_boolean:
            pairs = wordings.flags_inline if parameter.kind == "flag" else wordings.states_inline
            frame = _for_truth(random, pairs, value, frame)
        elif _is_told_by_its_value(parameter, kinds) and random.random() < 0.2:
            frame = pick(random, wordings.nameless.get(parameter.kind, (frame,)))
        if index == 0:
            text = ", " if _follows_comma(frame) else ""
        else:
            text += _between(random, index == len(arguments) - 1, frame)
        text += _filled(random, frame, parameter, value)
    return text


def _is_told_by_its_value(parameter: Parameter, kinds: Sequence[str]) -> bool:
    """True where a value without a name can only be this one's: the sole place, the sole option."""
    is_listed = parameter.kind == ENUM
    return kinds.count(parameter.kind) == 1 and (parameter.is_known or is_listed)


def _follows_comma(frame: str) -> bool:
    """True where a name or a value leads, which would run into the noun before it."""
    return frame[0] in "{[" or frame.startswith(_AFTER_COMMA)


def _between(random: Random, is_last: bool, frame: str) -> str:
    if frame.startswith("and "):
        return ", "
    if is_last and random.random() < 0.8:
        return " and " if random.random() < 0.75 else pick(random, _LAST_JOINTS)
    return ", " if random.random() < 0.85 else pick(random, _JOINTS)


def _for_truth(random: Random, pairs: Pairs, value: Value, frame: str) -> str:
    """How true or false is put, or at times the frame, which then ends in the word itself."""
    if frame.endswith("{v}") and random.random() < 0.15:
        return frame
    return pick(random, pairs)[0 if value else 1]


def _fronted(random: Random, material: Material, arguments: Arguments) -> str:
    """Details that precede the opening in its own sentence."""
    wordings = material.wordings
    text = ""
    for index, (parameter, value) in enumerate(arguments):
        frame = pick(random, pick(random, wordings.fronted))
        if index:
            text += _between(random, index == len(arguments) - 1, frame)
        text += _filled(random, frame, parameter, value)
    return text


def _stated(random: Random, material: Material, arguments: Arguments) -> str:
    """Details in sentences of their own."""
    wordings = material.wordings
    sentences = []
    for parameter, value in arguments:
        frame = pick(random, pick(random, wordings.statements))
        if parameter.is_boolean:
            pairs = wordings.flags_stated if parameter.kind == "flag" else wordings.states_stated
            frame = _for_truth(random, pairs, value, frame)
        if not frame.startswith("{") and random.random() < 0.9:
            frame = _capitalised(frame)
        sentences.append(_filled(random, frame, parameter, value) + ".")
    return " ".join(sentences)


def _items(random: Random, material: Material, arguments: Arguments) -> Sequence[str]:
    """Details as the items of a list."""
    frame = pick(random, material.wordings.items)
    return [_filled(random, frame, parameter, value) for parameter, value in arguments]


def _filled(random: Random, frame: str, parameter: Parameter, value: Value) -> str:
    words = parameter.words
    if parameter.is_boolean:
        # "No" before a name would deny it, rather than be its value.
        in_words = frame.endswith("{v}") and random.random() < 0.4
        written = _yes_or_no(value) if in_words else "true" if value else "false"
    else:
        written = _written(random, parameter, value)
    return frame.format(
        v=written, p=words, P=_capitalised(words), n=parameter.name, a=article(words)
    )


def _yes_or_no(value: Value) -> str:
    return "yes" if value else "no"
