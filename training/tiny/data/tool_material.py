"""What conversations with tools are drawn from: the form of a catalogue of words and wordings.

There are two catalogues, `tool_catalogue` for training and `tool_held_out`; they share no verb, no
noun, no word of a parameter's name and no string. Of wordings, what is held out is how words are
put together, never the words: each stands in several of training's wordings, in the same place
between values and names, for else nobody could tell that it is no part of a value. Determiners, and
wordings without a word, are shared. What the model itself says is the same in both, and stands in
`tools`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

Groups = tuple[tuple[str, ...], ...]
Pairs = tuple[tuple[str, str], ...]
ENUM = "enum"


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def phrases(text: str) -> tuple[str, ...]:
    """What stands between bars; how it is broken into lines does not count."""
    return tuple(" ".join(part.split()) for part in text.split("|"))


def pairs(text: str) -> Pairs:
    """As `phrases`, with a slash between the halves of each."""
    halves = (part.split(" / ") for part in phrases(text))
    return tuple((true, false) for true, false in halves)


def groups(text: str) -> Groups:
    """One group a line; the words of a group mean nearly the same."""
    return tuple(words(line) for line in text.strip().splitlines())


def named(kinds: Mapping[str, str], choices: Mapping[str, tuple[str, ...]]) -> Pairs:
    """(name, kind of value) of every parameter; those with choices are of the kind `ENUM`."""
    plain = [(name, kind) for kind, names in kinds.items() for name in names.split()]
    return (*plain, *((name, ENUM) for name in choices))


@dataclass(frozen=True, slots=True, kw_only=True)
class Strings:
    """Where argument strings come from. `open_words` and what can be put together of `open_pieces`
    name what has no meaning here, and codes have any shape; without them names are made of
    `syllables`, and codes are of the shapes listed. In `codes`, A is a capital letter, a a small
    one, 9 a digit, and x a hexadecimal digit."""

    adjectives: tuple[str, ...]
    things: tuple[str, ...]
    people: tuple[str, ...]
    cities: tuple[str, ...]
    syllables: tuple[str, ...]
    domains: tuple[str, ...]
    extensions: tuple[str, ...]
    codes: tuple[str, ...]
    digits: tuple[str, ...]
    hexadecimals: tuple[str, ...]
    dates: tuple[str, ...]
    years: tuple[int, int]
    times: tuple[str, ...]
    sentences: tuple[str, ...]
    open_words: tuple[str, ...] = ()
    open_pieces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wordings:
    """How a user and a tool's author put things.

    In frames, {w} is a wish ("track the parcel"), {v} a value as written, {p} a parameter's name in
    words, {P} the same with a capital, {n} that name as in the schema, {d} details and {t} a tool's
    name; {verb} and {noun} are in words, {a} is "a", "an" or, of a noun, "the"; {x} is anybody's
    name and {o} anything. Pairs are for true and false; of groups, each is drawn from as often.

    `openings` hold the wish, with `inline` details or without, `before` comes before it, `reasons`
    after a comma behind it, and `closings` last of all. `fronted` details, and a comma, precede an
    opening. `leads` stand between a request and the list of its details. `nameless` maps a kind of
    value to inline frames that do without the parameter's name.
    """

    descriptions: tuple[str, ...]
    parameter_descriptions: tuple[str, ...]
    flag_descriptions: tuple[str, ...]
    state_descriptions: tuple[str, ...]
    determiners: tuple[str, ...]
    openings: Groups
    before: Groups
    reasons: tuple[str, ...]
    closings: tuple[str, ...]
    questions: tuple[str, ...]
    inline: Groups
    fronted: Groups
    nameless: Mapping[str, tuple[str, ...]]
    statements: Groups
    items: tuple[str, ...]
    bullets: tuple[str, ...]
    leads: tuple[str, ...]
    bare: tuple[str, ...]
    bare_city: tuple[str, ...]
    flags_inline: Pairs
    flags_stated: Pairs
    states_inline: Pairs
    states_stated: Pairs
    joiners: tuple[str, ...]
    by_name: tuple[str, ...]
    systems: tuple[str, ...]

    def frames(self) -> Iterator[tuple[str, str]]:
        """Every wording with its field's name; the halves of pairs are told apart."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Mapping):
                value = tuple(value.values())
            for item in value:
                parts = (item,) if isinstance(item, str) else item
                for index, frame in enumerate(parts):
                    half = f" {index == 0}".lower() if field.name in PAIRED else ""
                    yield field.name + half, frame


PAIRED = ("flags_inline", "flags_stated", "states_inline", "states_stated")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\{\w+\}")


def wording_key(frame: str) -> str:
    """The same for wordings that differ in capitals and in how they end only."""
    return frame.casefold().strip(" .!?:,\n")


def frame_words(frame: str) -> list[tuple[str, str, str]]:
    """Each word of a wording with the placeholders before and after it, "" where none is. A name is
    {p} in each of its forms; {x} and {o} are mere words, and so are not told."""
    words = _WORD.findall(_PLACEHOLDER.sub(_unified, frame.casefold()))
    found = []
    for index, word in enumerate(words):
        if word[0] != "{":
            before = [w for w in words[:index] if w[0] == "{"]
            after = [w for w in words[index:] if w[0] == "{"]
            found.append((word, before[-1] if before else "", after[0] if after else ""))
    return found


def _unified(placeholder: re.Match[str]) -> str:
    name = placeholder[1]
    return " " if name in "xoa" else "{p}" if name == "n" else placeholder[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """One split's catalogue. The first group of `verbs` asks for information. `parameters` holds
    (name, kind of value), `choices` an enum parameter's possible values by its name. `invented` is
    the share of verbs, of nouns and of words in parameters' names that are such names: matching
    them must not rest on words known by heart."""

    verbs: Groups
    nouns: Groups
    mass_nouns: frozenset[str]
    parameters: Pairs
    choices: Mapping[str, tuple[str, ...]]
    modifiers: tuple[str, ...]
    invented: float
    failures: tuple[str, ...]
    strings: Strings
    wordings: Wordings
