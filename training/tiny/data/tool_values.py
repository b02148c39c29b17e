"""Draws argument values: one function a kind, each from a split's own strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from training.tiny.data.tool_material import Strings, words

Value = str | int | float | bool
Item = TypeVar("Item")

MONTHS = words(
    "January February March April May June July August September October November December"
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ENDINGS = ("aa", "aa", "aaa", "aaa", "aaaa", "a9", "aa9", "9a")
_SMALL_WORDS = words("""
the the the the a a a of of to to and and in in is is was it with for on at by from not no my his
her our their your this that all every some any nobody never always under over near away behind
between into out up down off about after before because until needs has had will can may must keep
bring take find found saw see put left lost gave came went belongs looks more less very so but or if
""")
_SEPARATORS = ("-", "-", "-", ":", ":", "/", ".", "_", "+", "#", " ", "")
_ALPHABETS = {
    "A": _LETTERS.upper(),
    "a": _LETTERS,
    "9": "0123456789",
    "x": "0123456789abcdef",
}


def pick(random: Random, items: Sequence[Item]) -> Item:
    """One of them, in a third of the time that `Random.choice` takes."""
    return items[int(random.random() * len(items))]


def made_up(random: Random, strings: Strings) -> str:
    """A name in small letters: an open word, two or three pieces of words, or of syllables."""
    chance = random.random()
    if strings.open_words and chance < 0.55:
        return pick(random, strings.open_words)
    if strings.open_pieces and chance < 0.9:
        name = pick(random, strings.open_pieces) + pick(random, strings.open_pieces)
        return name if random.random() < 0.75 else name + pick(random, strings.open_pieces)
    word = pick(random, strings.syllables) + pick(random, strings.syllables)
    return word if random.random() < 0.6 else word + pick(random, strings.syllables)


def word(random: Random, strings: Strings) -> str:
    chance = random.random()
    if chance < (0.6 if strings.open_words else 0.25):
        return made_up(random, strings)
    return pick(random, strings.things if chance < 0.8 else strings.adjectives)


def name(random: Random, strings: Strings) -> str:
    chance = random.random()
    first = made_up(random, strings).capitalize()
    if chance < 0.55:
        return first
    if chance < 0.75:
        return f"{first} {made_up(random, strings).capitalize()}"
    return f"{first} {pick(random, strings.things).capitalize()}"


def person(random: Random, strings: Strings) -> str:
    first = pick(random, strings.people)
    if random.random() < 0.4:
        return first
    return f"{first} {made_up(random, strings).capitalize()}"


def city(random: Random, strings: Strings) -> str:
    if random.random() < 0.55:
        return pick(random, strings.cities)
    return made_up(random, strings).capitalize()


def phrase(random: Random, strings: Strings) -> str:
    text = f"{pick(random, strings.adjectives)} {word(random, strings)}"
    if random.random() < 0.25:
        text = f"{pick(random, strings.adjectives)} {text}"
    return text.capitalize() if random.random() < 0.3 else text


def shaped(random: Random, shapes: Sequence[str]) -> str:
    """One of the shapes with its placeholders filled; other characters stay."""
    return filled(random, pick(random, shapes))


def any_shape(random: Random, signs: str) -> str:
    """One to four runs of one placeholder of `signs` each, up to five long, with the same sign, or
    none, between them."""
    between = pick(random, _SEPARATORS)
    runs = [
        pick(random, signs) * (1 + int(random.random() * 5))
        for _ in range(1 + int(random.random() * 4))
    ]
    return between.join(runs)


def filled(random: Random, shape: str) -> str:
    return "".join(pick(random, _ALPHABETS[sign]) if sign in _ALPHABETS else sign for sign in shape)


def code(random: Random, strings: Strings, shapes: Sequence[str], signs: str) -> str:
    if strings.open_words and random.random() < 0.5:
        return filled(random, any_shape(random, signs))
    return shaped(random, shapes)


def ending(random: Random, strings: Strings, listed: Sequence[str]) -> str:
    """What follows the last dot of a name: one that is listed, or two to four signs."""
    if strings.open_words and random.random() < 0.5:
        return shaped(random, _ENDINGS)
    return pick(random, listed)


def domain(random: Random, strings: Strings) -> str:
    """One that is listed or, mostly, a name with any ending."""
    if random.random() < 0.4:
        return pick(random, strings.domains)
    endings = [listed[listed.index(".") + 1 :] for listed in strings.domains]
    return f"{made_up(random, strings)}.{ending(random, strings, endings)}"


def email(random: Random, strings: Strings) -> str:
    local = made_up(random, strings)
    chance = random.random()
    if chance < 0.35:
        local = f"{pick(random, strings.people).lower()}.{local}"
    elif chance < 0.55:
        local = f"{pick(random, strings.people).lower()}{int(random.random() * 100)}"
    return f"{local}@{domain(random, strings)}"


def date(random: Random, strings: Strings) -> str:
    if strings.open_words and random.random() < 0.3:
        return filled(random, any_shape(random, "9"))
    first, last = strings.years
    return pick(random, strings.dates).format(
        y=first + int(random.random() * (last - first + 1)),
        m=1 + int(random.random() * 12),
        d=1 + int(random.random() * 28),
        month=pick(random, MONTHS),
    )


def time(random: Random, strings: Strings) -> str:
    if strings.open_words and random.random() < 0.3:
        return filled(random, any_shape(random, "9"))
    return pick(random, strings.times).format(
        h=int(random.random() * 24),
        k=1 + int(random.random() * 12),
        i=int(random.random() * 60),
        d=int(random.random() * 60),
    )


def file(random: Random, strings: Strings) -> str:
    stem = word(random, strings)
    chance = random.random()
    if chance < 0.3:
        stem = f"{stem}_{pick(random, strings.things)}"
    elif chance < 0.5:
        stem = f"{stem}{pick(random, '-_')}{1 + int(random.random() * 99)}"
    return f"{stem}.{ending(random, strings, strings.extensions)}"


def path(random: Random, strings: Strings) -> str:
    first = word(random, strings)
    chance = random.random()
    if chance < 0.35:
        return f"https://{domain(random, strings)}/{first}"
    if chance < 0.7:
        return f"{first}/{file(random, strings)}"
    return f"/{first}/{pick(random, strings.things)}"


def sentence(random: Random, strings: Strings) -> str:
    if strings.open_words and random.random() < 0.6:
        return _any_sentence(random, strings)
    text = pick(random, strings.sentences).format(
        s="the" if random.random() < 0.6 else "a",
        a=pick(random, strings.adjectives),
        b=pick(random, strings.adjectives),
        t=pick(random, strings.things),
        u=pick(random, strings.things),
        n=pick(random, strings.people),
        d=2 + int(random.random() * 40),
    )
    return text if random.random() < 0.4 else text[0].upper() + text[1:]


def _any_sentence(random: Random, strings: Strings) -> str:
    """Three to nine words in any order, the small ones again and again, as in every sentence: what
    follows a word must be found by more than that word."""
    said: list[str] = []
    for _ in range(3 + int(random.random() * 7)):
        chance = random.random()
        if said and chance < 0.12:
            said.append(pick(random, said))
        elif chance < 0.55:
            said.append(pick(random, _SMALL_WORDS))
        elif chance < 0.6:
            said.append(pick(random, strings.people))
        else:
            said.append(word(random, strings))
    text = " ".join(said)
    return text if random.random() < 0.4 else text[0].upper() + text[1:]


def integer(random: Random, strings: Strings) -> int:
    return 1 + int(random.random() * pick(random, (12, 99, 99, 999, 9999)))


def number(random: Random, strings: Strings) -> float:
    """Never whole, so that the text that stands in a request is the text of the call."""
    whole = int(random.random() * pick(random, (9, 99, 999)))
    if random.random() < 0.5:
        return float(f"{whole}.{1 + int(random.random() * 9)}")
    return float(f"{whole}.{int(random.random() * 10)}{1 + int(random.random() * 9)}")


def boolean(random: Random, strings: Strings) -> bool:
    return random.random() < 0.5


VALUES: dict[str, Callable[[Random, Strings], Value]] = {
    "word": word,
    "name": name,
    "person": person,
    "city": city,
    "phrase": phrase,
    "code": lambda random, strings: code(random, strings, strings.codes, "AAa99x"),
    "digits": lambda random, strings: code(random, strings, strings.digits, "9"),
    "hex": lambda random, strings: code(random, strings, strings.hexadecimals, "x"),
    "email": email,
    "date": date,
    "time": time,
    "file": file,
    "path": path,
    "sentence": sentence,
    "integer": integer,
    "number": number,
    "flag": boolean,
    "state": boolean,
}


def spoken(value: Value) -> str:
    """A value as the assistant says it: true and false in JSON's words."""
    return str(value).lower() if isinstance(value, bool) else str(value)
