"""What conversations with tools are drawn from: the form of a catalogue of words and wordings.

There are two catalogues, `tool_catalogue` for training and `tool_held_out`; they share no verb, no
noun, no word of a parameter's name, no string and no request's wording. What the model itself says
is the same in both, and stands in `tools`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Groups = tuple[tuple[str, ...], ...]
Pairs = tuple[tuple[str, str], ...]
ENUM = "enum"


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


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
    name; {verb} and {noun} are in words, {a} is "a", "an" or "the". Pairs are for true and false.
    `nameless` maps a kind of value to inline frames that do without the parameter's name.
    """

    descriptions: tuple[str, ...]
    parameter_descriptions: tuple[str, ...]
    flag_descriptions: tuple[str, ...]
    state_descriptions: tuple[str, ...]
    determiners: tuple[str, ...]
    openings: tuple[str, ...]
    questions: tuple[str, ...]
    inline: tuple[str, ...]
    nameless: Mapping[str, tuple[str, ...]]
    statements: tuple[str, ...]
    items: tuple[str, ...]
    bullets: tuple[str, ...]
    bare: tuple[str, ...]
    bare_city: tuple[str, ...]
    flags_inline: Pairs
    flags_stated: Pairs
    states_inline: Pairs
    states_stated: Pairs
    joiners: tuple[str, ...]
    by_name: tuple[str, ...]
    systems: tuple[str, ...]


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
