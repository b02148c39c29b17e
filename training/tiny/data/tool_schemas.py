"""Draws tools: a verb, a noun and parameters, told apart from the tools beside them by words only.

Two tools of one conversation never have verbs of one group and nouns of one group at once, so that
at most one of them fits a wish.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from training.tiny.data.tool_material import ENUM, Material
from training.tiny.data.tool_values import VALUES, Value, made_up, pick, word

_TYPES = {"integer": "integer", "number": "number", "flag": "boolean", "state": "boolean"}
_UNMODIFIED = ("flag", "state", ENUM)
_STYLES = ("snake",) * 39 + ("camel",) * 6 + ("kebab",) * 2 + ("noun first",) * 3

# Number of parameters of a tool, by the number of tools: a conversation fits the window.
_COUNTS = {
    1: (1, 1, 2, 2, 2, 3, 3, 4),
    2: (1, 1, 1, 2, 2, 2, 3, 3, 4),
    3: (1, 1, 1, 2, 2, 3),
    4: (1, 1, 1, 2, 2),
    5: (1, 1, 1, 1, 1, 1, 2),
    6: (1,),
}


@dataclass(frozen=True, slots=True)
class Wish:
    """What a tool does or a user wants. A verb's or noun's group is its number in the material; one
    outside the groups is a group of its own, named by itself."""

    verb: str
    noun: str
    verb_group: int | str
    noun_group: int | str


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    words: str
    kind: str
    options: tuple[str, ...]
    required: bool
    # Its head is one of the catalogue, which may tell what it is: a place, a date.
    is_known: bool

    @property
    def is_boolean(self) -> bool:
        return self.kind in ("flag", "state")

    @property
    def type(self) -> str:
        """Its JSON type."""
        return _TYPES.get(self.kind, "string")

    def draw(self, random: Random, material: Material) -> Value:
        if self.kind == ENUM:
            return pick(random, self.options)
        return VALUES[self.kind](random, material.strings)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool and, unless it is only wished for, what is offered: verb and noun are in words."""

    name: str
    verb: str
    noun: str
    wish: Wish
    parameters: tuple[Parameter, ...]


def draw_wishes(random: Random, material: Material, count: int) -> list[Wish]:
    """Distinct wishes; half of the later ones share the first one's verb or noun."""
    wishes: list[Wish] = []
    taken: set[tuple[int | str, int | str]] = set()
    while len(wishes) < count:
        verb, verb_group = _verb(random, material)
        noun, noun_group = _noun(random, material)
        chance = random.random()
        if wishes and chance < 0.27:
            noun, noun_group = wishes[0].noun, wishes[0].noun_group
        elif wishes and chance < 0.5:
            verb, verb_group = wishes[0].verb, wishes[0].verb_group
        if (verb_group, noun_group) not in taken:
            taken.add((verb_group, noun_group))
            wishes.append(Wish(verb, noun, verb_group, noun_group))
    return wishes


def _verb(random: Random, material: Material) -> tuple[str, int | str]:
    if random.random() < material.invented:
        verb = made_up(random, material.strings)
        return verb, verb
    # Asking is what tools are mostly for.
    group = 0 if random.random() < 0.12 else int(random.random() * len(material.verbs))
    return pick(random, material.verbs[group]), group


def _noun(random: Random, material: Material) -> tuple[str, int | str]:
    chance = random.random()
    if chance < material.invented:
        noun = made_up(random, material.strings)
        return noun, noun
    if chance > 0.8:
        noun = pick(random, material.strings.things)
        return noun, noun
    group = int(random.random() * len(material.nouns))
    return pick(random, material.nouns[group]), group


def draw_parameters(
    random: Random, material: Material, count: int, *, camel: bool
) -> tuple[Parameter, ...]:
    """Parameters with different heads, or now and then one head with two modifiers."""
    heads: list[tuple[str, str, bool]] = []
    used = set()
    while len(heads) < count:
        head, kind = pick(random, material.parameters)
        is_known = random.random() >= material.invented
        if not is_known:
            head = made_up(random, material.strings)
        if head in used:
            continue
        used.add(head)
        if (kind in _UNMODIFIED and is_known) or random.random() > 0.4:
            heads.append((head, kind, is_known))
            continue
        first, second = _modifier(random, material), _modifier(random, material)
        heads.append((f"{first}_{head}", kind, is_known))
        if first != second and len(heads) < count and random.random() < 0.4:
            heads.append((f"{second}_{head}", kind, is_known))
    needed = int(random.random() * count)
    return tuple(
        Parameter(
            _camel(head) if camel else head,
            head.replace("_", " "),
            kind,
            _options(random, material, head, is_known) if kind == ENUM else (),
            index == needed or random.random() < 0.65,
            is_known,
        )
        for index, (head, kind, is_known) in enumerate(heads)
    )


def _modifier(random: Random, material: Material) -> str:
    if random.random() < material.invented:
        return made_up(random, material.strings)
    return pick(random, material.modifiers)


def _options(random: Random, material: Material, head: str, is_known: bool) -> tuple[str, ...]:
    if is_known:
        options = material.choices[head]
    else:
        options = tuple({word(random, material.strings): None for _ in range(5)})
    return tuple(random.sample(options, 2 + int(random.random() * (len(options) - 1))))


def draw_tools(
    random: Random, material: Material, wishes: list[Wish], *, as_many_as: int = 1
) -> list[Tool]:
    """One tool for each wish, in that order; some have the first one's parameters, of which there
    are as few as if it were `as_many_as` tools at least."""
    style = pick(random, _STYLES)
    camel = style == "camel"
    counts = _COUNTS[min(max(len(wishes), as_many_as), 6)]
    tools: list[Tool] = []
    for wish in wishes:
        if tools and random.random() < 0.2:
            parameters = tools[0].parameters
        else:
            parameters = draw_parameters(random, material, pick(random, counts), camel=camel)
        name = f"{wish.verb}_{wish.noun}"
        if camel:
            name = _camel(name)
        elif style == "kebab":
            name = name.replace("_", "-")
        elif style == "noun first":
            name = f"{wish.noun}_{wish.verb}"
        words = wish.verb.replace("_", " "), wish.noun.replace("_", " ")
        tools.append(Tool(name, *words, wish, parameters))
    return tools


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join([part.capitalize() for part in rest])


def schema(random: Random, material: Material, tool: Tool) -> dict[str, Any]:
    """The tool in OpenAI's form, with a description in one of the material's wordings. One in three
    does without descriptions of its parameters."""
    properties = {}
    is_described = random.random() < 0.65
    wordings = material.wordings
    for parameter in tool.parameters:
        words = parameter.words
        frames = wordings.parameter_descriptions
        if parameter.is_boolean:
            is_flag = parameter.kind == "flag"
            frames = wordings.flag_descriptions if is_flag else wordings.state_descriptions
        description = pick(random, frames).format(
            p=words, P=words[0].upper() + words[1:], noun=tool.noun
        )
        if not parameter.required and random.random() < 0.3:
            description += " (optional)"
        entry: dict[str, Any] = {"type": parameter.type}
        if is_described:
            entry["description"] = description
        if parameter.options:
            entry["enum"] = list(parameter.options)
        properties[parameter.name] = entry
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": _description(random, material, tool),
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": [p.name for p in tool.parameters if p.required],
            },
        },
    }


def article(noun: str, is_mass: bool = False) -> str:
    if is_mass:
        return "the"
    return "an" if noun[0] in "aeio" else "a"


def _description(random: Random, material: Material, tool: Tool) -> str:
    text = pick(random, material.wordings.descriptions).format(
        verb=tool.verb,
        noun=tool.noun,
        a=article(tool.noun, tool.wish.noun in material.mass_nouns),
        p=next(p.words for p in tool.parameters if p.required),
    )
    return text if random.random() < 0.2 else text[0].upper() + text[1:]
