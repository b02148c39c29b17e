"""Arithmetic word problems and one-step drills, drawn from declared families.

Difficulty ranges, the same for both splits. A problem takes 2 to 4 calculations. Every number and
result of a problem lies in 2..999. Products have one factor in 2..12, the other in 2..60 and are at
most 600; divisions are exact, with a divisor in 2..12 and a quotient in 2..60, so a dividend of at
most 600 too. The numbers of a question differ from one another, so that an operand can stand for
one clause only. A drill is one calculation in these ranges, but sums and differences may be 0..999.

A clause without a calculation (what somebody has at first) is a step too, without a colon. Steps
copy words of the question and write their calculation as "12 + 7 = 19", with "*" and "/".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random

from training.tiny.conversation import Conversation, Split
from training.tiny.data.arithmetic_families import TRAINING
from training.tiny.data.arithmetic_frames import (
    APPENDING,
    CALCULATIONS,
    NUMBER_WORDS,
    Close,
    Collection,
    Family,
    Frame,
    Op,
    Pattern,
    Question,
    QuestionPattern,
    in_past,
    in_present,
    owners_of,
)
from training.tiny.data.arithmetic_held_out import HELD_OUT
from training.tiny.data.arithmetic_parts import expand, reachable

COLLECTIONS = {Split.TRAIN: TRAINING, Split.HELD_OUT: HELD_OUT}

LEAST, MOST = 2, 999
LARGEST_FACTOR = 60
LARGEST_SMALL_FACTOR = 12
LARGEST_PRODUCT = 600
LEAST_STEPS, MOST_STEPS = 2, 4
_NOTES = (10, 20, 50, 100, 200, 500)
_ATTEMPTS = 1000

# How often training says a thing with an open word.
_OPEN_NAMES, _OPEN_THINGS, _OPEN_BOXES = 0.4, 0.4, 0.25
_OPEN_ADJECTIVES, _OPEN_PLACES = 0.2, 0.15
# And how often it says something that has nothing to do with numbers, or joins two clauses.
_AFTER, _BEFORE, _WHO, _ASIDE, _JOINED = 0.06, 0.06, 0.05, 0.15, 0.2
# How often the last clause is the condition of the question.
_IF = 0.1
# How a clause starts that has told its time already.
_LEADING = (
    "After ",
    "At first ",
    "Each ",
    "Every ",
    "For ",
    "From ",
    "In ",
    "Later ",
    "On ",
    "To ",
)
# What stands between "a" and a vowel, which a drawn noun may start with.
_AFTER_ARTICLE = re.compile(r" (?=[aio]|e(?!u)|u(?!ni|s))(?<=\b[Aa] )(?!one\b|once\b)")
_PREPOSITIONS = ("at", "near", "in", "behind", "with", "during", "before")

_PRODUCTS = frozenset({Op.GROUPS, Op.ADD_GROUPS, Op.TAKE_GROUPS})
_MULTIPLYING = frozenset({Op.TIMES, Op.TIMES_AS})
_DIVIDING = frozenset({Op.SPLIT, Op.SHARE_AS})
_FREE = frozenset({Op.START, Op.ADD, Op.TAKE, Op.MORE, Op.FEWER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`steps` are the lines of the working; the last calculation's result is `answer`, and
    `sentence` says it in words."""

    question: str
    steps: tuple[str, ...]
    sentence: str
    answer: int
    family: str


@dataclass(frozen=True, slots=True)
class _Move:
    """One clause with its numbers: `n` is the number or factor, or the size of a group, `count`
    the number of groups; `before` and `after` are the value it changed."""

    frame: Frame
    n: int
    count: int
    before: int
    after: int


class _Misfit(Exception):
    """No number in the ranges fits the frames drawn so far: another draw is made."""


def draw_problem(random: Random, split: Split) -> Problem:
    collection = COLLECTIONS[split]
    structure = random.choice(tuple(collection.families))
    if random.random() < collection.composed:
        families = collection.composed_families[structure]
        (family,) = random.choices(families, [family.weight for family in families])
        return draw_from(random, collection, family, 0.0)
    family = random.choice(collection.families[structure])
    return draw_from(random, collection, family, collection.mixed)


def draw_from(random: Random, collection: Collection, family: Family, mixed: float) -> Problem:
    """`mixed` is the share of clauses that come from other families."""
    for _ in range(_ATTEMPTS):
        frames = [
            _drawn(
                random,
                _other(random, collection, family, clause) if random.random() < mixed else clause,
            )
            for stage in family.stages
            for clause in random.sample(stage.frames, random.randint(stage.least, stage.most))
        ]
        question = _drawn_question(random, random.choice(family.questions))
        if LEAST_STEPS <= _count_calculations(frames, question) <= MOST_STEPS:
            try:
                moves, values = _draw_numbers(random, family, frames)
                return _write(random, collection, family, moves, values, question)
            except _Misfit:
                continue
    raise RuntimeError(f"family {family.name!r} has no problem within the ranges")


def _drawn(random: Random, clause: Frame | Pattern) -> Frame:
    """A frame of the clause, but none that is held out: a pattern might come upon one."""
    frame = clause.draw(random)
    while isinstance(clause, Pattern) and frame.present.text in _held_out_texts():
        frame = clause.draw(random)
    return frame


def _drawn_question(random: Random, question: Question | QuestionPattern) -> Question:
    drawn = question.draw(random)
    while isinstance(question, QuestionPattern) and drawn.present[0].text in _held_out_texts():
        drawn = question.draw(random)
    return drawn


@cache
def _held_out_texts() -> frozenset[str]:
    texts = []
    for families in HELD_OUT.families.values():
        for family in families:
            frames = (frame.draw(Random(0)) for stage in family.stages for frame in stage.frames)
            texts += [frame.present.text for frame in frames]
            texts += [question.draw(Random(0)).present[0].text for question in family.questions]
    return frozenset(texts)


def _other(
    random: Random, collection: Collection, family: Family, clause: Frame | Pattern
) -> Frame | Pattern:
    """Another family's clause that does the same, if there can be one."""
    if family.owners or clause.fixed is not None or clause.op is Op.SPLIT:
        return clause
    alike = _alike(collection).get((family.kind, clause.op, owners_of(clause)))
    return random.choice(random.choice(alike)) if alike else clause


@cache
def _alike(
    collection: Collection,
) -> Mapping[tuple[str, Op, str], tuple[tuple[Frame | Pattern, ...], ...]]:
    """Clauses of people by kind, by what they do and by whom they speak of, without boxes.

    Those that are declared, and those of patterns.
    """
    found: dict[tuple[str, Op, str], tuple[dict[str, Frame | Pattern], ...]] = defaultdict(
        lambda: ({}, {})
    )
    for source in (collection.families, collection.composed_families):
        for family in (family for families in source.values() for family in families):
            for stage in () if family.owners or family.acts else family.stages:
                for clause in stage.frames:
                    if clause.fixed is None and "{box" not in reachable(clause.source):
                        is_pattern = isinstance(clause, Pattern)
                        pool = found[family.kind, clause.op, owners_of(clause)][is_pattern]
                        pool[clause.source] = clause
    return {
        key: tuple(tuple(pool.values()) for pool in pools if pool) for key, pools in found.items()
    }


def _count_calculations(frames: list[Frame], question: Question) -> int:
    count = sum(CALCULATIONS[frame.op] for frame in frames)
    if question.close is Close.DIFFERENCE:
        return count + 1
    if question.close is Close.SUM:
        return count + sum(frame.op in APPENDING for frame in frames) - 1
    return count


def _draw_numbers(
    random: Random, family: Family, frames: list[Frame]
) -> tuple[list[_Move], list[int]]:
    """The clauses with their numbers, and the values at the end."""
    high = random.choice((family.most, family.most, max(20, family.most // 3)))
    moves: list[_Move] = []
    values: list[int] = []
    divisor: int | None = None
    for frame, following in zip(frames, [*frames[1:], None], strict=True):
        before = values[-1] if values else 0
        highest, multiple = _limits(random, high, following)
        if frame.op in _FREE:
            move = _draw_sum(random, frame, before, high, highest, multiple)
        else:
            move = _draw_other(random, family, frame, before, high, divisor)
        divisor = multiple if frame.op in _FREE else None
        if not LEAST <= move.after <= MOST or move.n > MOST:
            raise _Misfit
        moves.append(move)
        if frame.op in APPENDING:
            values.append(move.after)
        else:
            values[-1] = move.after
    shown = [n for move in moves for n in (move.n, move.count) if n]
    if len(set(shown)) < len(shown):
        raise _Misfit
    return moves, values


def _limits(random: Random, high: int, following: Frame | None) -> tuple[int, int]:
    """The highest result of a sum whose value `following` uses, and what has to divide it.

    A division can only be exact if the number before it is drawn for that.
    """
    if following is not None and following.op in _DIVIDING:
        divisor = following.fixed or random.randint(2, LARGEST_SMALL_FACTOR)
        return min(LARGEST_FACTOR * divisor, LARGEST_PRODUCT), divisor
    if following is not None and following.op in _MULTIPLYING:
        return min(2 * high, LARGEST_FACTOR), 1
    return min(2 * high, MOST), 1


def _between(random: Random, least: int, most: int) -> int:
    if least > most:
        raise _Misfit
    return random.randint(least, most)


def _draw_sum(
    random: Random, frame: Frame, before: int, high: int, highest: int, multiple: int
) -> _Move:
    """A start, sum or difference that is a multiple of `multiple` and at most `highest`."""
    op = frame.op
    if op is Op.START:
        most = min(highest, high)
        least = max(4, most // 8)
        n = multiple * _between(random, -(-least // multiple), most // multiple)
        return _Move(frame, n, 0, before, n)
    if op in (Op.ADD, Op.MORE):
        n = frame.fixed or _between(random, 2, min(highest - before, max(10, high // 2)))
        if frame.fixed is None:
            n -= (before + n) % multiple
            n += multiple if n < LEAST else 0
        after = before + n
    else:
        least = max(2, before - highest)
        n = frame.fixed or _between(random, least, max(least, min(before - 2, before * 3 // 4)))
        if frame.fixed is None:
            n += (before - n) % multiple
        after = before - n
    if after % multiple or after > highest:
        raise _Misfit
    return _Move(frame, n, 0, before, after)


def _draw_other(
    random: Random, family: Family, frame: Frame, before: int, high: int, divisor: int | None
) -> _Move:
    """`divisor` is the one that the number before was drawn for, if it was."""
    op = frame.op
    if op in _MULTIPLYING:
        if before > LARGEST_FACTOR:
            raise _Misfit
        factors = min(LARGEST_SMALL_FACTOR, LARGEST_PRODUCT // before)
        n = frame.fixed or _between(random, 2, min(factors, max(4, 2 * high // before)))
        if n > factors:
            raise _Misfit
        return _Move(frame, n, 0, before, before * n)
    if op in _DIVIDING:
        n = divisor or frame.fixed or _divisor(random, before)
        is_in_range = before <= LARGEST_PRODUCT and LEAST <= before // n <= LARGEST_FACTOR
        if before % n or not is_in_range:
            raise _Misfit
        return _Move(frame, n, 0, before, before // n)
    if op in _PRODUCTS:
        room = before - LEAST if op is Op.TAKE_GROUPS else min(LARGEST_PRODUCT, MOST - before)
        count, n = _draw_factors(random, frame, family.each, room)
        if op is Op.GROUPS:
            return _Move(frame, n, count, before, count * n)
        signed = -count * n if op is Op.TAKE_GROUPS else count * n
        return _Move(frame, n, count, before, before + signed)
    n = _note(random, before) if op is Op.NOTE else before + _between(random, 2, high)
    return _Move(frame, n, 0, before, n - before)


def _draw_factors(random: Random, frame: Frame, each: int, room: int) -> tuple[int, int]:
    """How many groups, and how many in each, with a product of at most `room`."""
    if frame.fixed is not None:
        count = _between(random, 2, min(LARGEST_SMALL_FACTOR, room // frame.fixed))
        return count, frame.fixed
    small = _between(random, 2, min(LARGEST_SMALL_FACTOR, room // 2))
    large = _between(random, 2, min(LARGEST_FACTOR, each, room // small))
    if random.random() < 0.2:
        return large, small
    return small, large


def _divisor(random: Random, value: int) -> int:
    fitting = [
        k
        for k in range(2, LARGEST_SMALL_FACTOR + 1)
        if value % k == 0 and LEAST <= value // k <= LARGEST_FACTOR
    ]
    if not fitting:
        raise _Misfit
    return random.choice(fitting)


def _note(random: Random, price: int) -> int:
    fitting = [note for note in _NOTES if note >= price + LEAST]
    if not fitting:
        raise _Misfit
    return random.choice(fitting[:3])


def _write(
    random: Random,
    collection: Collection,
    family: Family,
    moves: list[_Move],
    values: list[int],
    question: Question,
) -> Problem:
    words = _draw_words(random, collection, family)
    is_past = random.random() < 0.4
    words |= _draw_act(random, family, is_past)
    # "he" has to mean {A}: another name in the question would leave it open.
    names_others = "{B}" in question.source or any("{B}" in m.frame.source for m in moves)
    pronoun = None

    sentences: list[str] = []
    steps: list[str] = []
    for move in moves:
        form = move.frame.past if is_past else move.frame.present
        words["n"], words["k"], words["a"], words["b"] = _spell(random, move)
        steps += _steps(move, form.label.format_map(words), form.product_label.format_map(words))
        _join(random, collection, sentences, move.frame, form.text, words, pronoun, is_past)
        if "{A}" in move.frame.source and not family.owners and not names_others:
            pronoun = words["he"]

    if question.close is Close.DIFFERENCE:
        first_is_high = values[0] > values[1]
        words["high"], words["low"] = (
            (words["A"], words["B"]) if first_is_high else (words["B"], words["A"])
        )
    form, answer_text = question.past if is_past else question.present
    answer, closing = _close(question.close, values, form.label.format_map(words))
    words["x"] = str(answer)
    asked = _capital(form.text.format_map(words))
    is_conditional = collection.open_words and asked.startswith("How ") and random.random() < _IF
    if is_conditional and _is_simple(sentences[-1]) and not sentences[-1].startswith("To "):
        asked = f"If {_within(sentences.pop()[:-1], words)}, h{asked[1:]}"
    if collection.open_words and random.random() < _ASIDE:
        aside = _capital(_aside(random, "aside", words, is_past))
        sentences.insert(random.randint(0, len(sentences)), aside)
    sentences.append(asked)
    if random.random() < 0.1:
        sentences.insert(0, random.choice(collection.scenes))
    return Problem(
        question=_with_articles(" ".join(sentences)),
        steps=tuple(_with_articles(step) for step in (*steps, *closing)),
        sentence=_with_articles(_capital(answer_text.format_map(words))),
        answer=answer,
        family=family.name,
    )


def _draw_words(random: Random, collection: Collection, family: Family) -> dict[str, str]:
    """What stands in the frames for everything but numbers."""
    is_girl = random.random() < 0.5
    if family.owners:
        owners = random.sample(family.owners, min(3, len(family.owners)))
        if family.open_owner and random.random() < _OPEN_NAMES:
            opened = random.sample(collection.open_words, len(owners))
            owners = [family.open_owner.format(word) for word in opened]
    else:
        owners = [random.choice(collection.girls if is_girl else collection.boys)]
        while len(owners) < 3:
            name = random.choice(random.choice((collection.girls, collection.boys)))
            if name not in owners:
                owners.append(name)
        if collection.open_words:
            owners = [
                random.choice(collection.open_words).capitalize()
                if random.random() < _OPEN_NAMES
                else owner
                for owner in owners
            ]
    thing, things = _draw_noun(random, collection, family.thing_pairs, _OPEN_THINGS)
    box, boxes = _draw_noun(random, collection, family.box_pairs, _OPEN_BOXES)
    he, his, him = ("she", "her", "her") if is_girl else ("he", "his", "him")
    return {
        # Where families own less than three, their frames speak of fewer.
        **dict(zip("ABC", owners, strict=False)),
        "other": random.choice(collection.open_words) if collection.open_words else "",
        "thing": thing,
        "things": things,
        "box": box,
        "boxes": boxes,
        "he": he,
        "his": his,
        "him": him,
        "He": he.capitalize(),
        "His": his.capitalize(),
    }


def _draw_act(random: Random, family: Family, is_past: bool) -> dict[str, str]:
    if not family.acts:
        return {}
    act = random.choice(family.acts)
    return {"act": act.base, "acts": act.past if is_past else act.present, "acted": act.done}


def _draw_noun(
    random: Random, collection: Collection, pairs: tuple[tuple[str, str], ...], share: float
) -> tuple[str, str]:
    """One and many: declared ones, open words, or either with an open word before it."""
    one, many = random.choice(pairs)
    if not collection.open_words:
        return one, many
    if random.random() < share:
        one = random.choice(collection.open_words)
        many = f"{one}s"
    if random.random() < _OPEN_ADJECTIVES:
        adjective = random.choice(collection.open_words)
        one, many = f"{adjective} {one}", f"{adjective} {many}"
    return one, many


def _spell(random: Random, move: _Move) -> tuple[str, str, str, str]:
    """The clause's numbers as it writes them: n, k, a, b. Only factors are sometimes words."""
    k = NUMBER_WORDS[move.n] if move.n in NUMBER_WORDS and random.random() < 0.4 else str(move.n)
    return str(move.n), k, str(move.count), str(move.n)


def _steps(move: _Move, label: str, product_label: str) -> list[str]:
    op, n, count, before, after = move.frame.op, move.n, move.count, move.before, move.after
    if op is Op.START:
        return [label]
    if op in (Op.ADD, Op.MORE):
        return [f"{label}: {before} + {n} = {after}"]
    if op in (Op.TAKE, Op.FEWER):
        return [f"{label}: {before} - {n} = {after}"]
    if op in _MULTIPLYING:
        return [f"{label}: {before} * {n} = {after}"]
    if op in _DIVIDING:
        return [f"{label}: {before} / {n} = {after}"]
    if op in (Op.GOAL, Op.NOTE):
        return [f"{label}: {n} - {before} = {after}"]
    product = count * n
    steps = [f"{product_label}: {count} * {n} = {product}"]
    if op is Op.ADD_GROUPS:
        steps.append(f"{label}: {before} + {product} = {after}")
    elif op is Op.TAKE_GROUPS:
        steps.append(f"{label}: {before} - {product} = {after}")
    return steps


def _join(
    random: Random,
    collection: Collection,
    sentences: list[str],
    frame: Frame,
    text: str,
    words: dict[str, str],
    pronoun: str | None,
    is_past: bool,
) -> None:
    """Appends the clause as a sentence, or to the last sentence."""
    owner = words["A"]
    subject = owner
    if frame.has_subject and frame.op not in APPENDING and sentences:
        predicate = text.removeprefix("{A} ").format_map(words)
        last = sentences[-1]
        speaks_of_owner = last.startswith((f"{owner} ", "He ", "She "))
        if speaks_of_owner and _is_simple(last) and random.random() < 0.3:
            sentences[-1] = f"{last[:-1]} and {random.choice(('', 'then '))}{predicate}."
            return
        if pronoun is not None and random.random() < 0.5:
            subject = pronoun
        clause = f"{subject} {predicate}"
    else:
        clause = text.format_map(words)
    if text.startswith(("and ", "but ")):
        sentences[-1] = f"{sentences[-1][:-1]}{random.choice((' ', ', '))}{clause}."
        return
    is_led = clause.startswith(_LEADING)
    if not is_led and frame.can_follow and sentences and random.random() < 0.25:
        is_led = True
        clause = f"{_link(random, collection)} {_lower(clause, frame)}"
    if not collection.open_words:
        sentences.append(f"{_capital(clause)}.")
        return

    names_owner = frame.source.startswith("{A} ") and subject == owner and owner[0].isupper()
    if names_owner and not is_led and random.random() < _WHO:
        clause = f"{owner}, {_aside(random, 'who', words, is_past)},{clause.removeprefix(owner)}"
    if random.random() < _OPEN_PLACES:
        clause = f"{clause} {_place(random, collection)}"
    elif random.random() < _AFTER:
        clause = f"{clause} {_aside(random, 'after', words, is_past)}"
    is_second = frame.op in APPENDING
    if sentences and _is_simple(sentences[-1]) and random.random() < _JOINED:
        joint = _aside(random, "beside" if is_second or is_led else "goes on", words, is_past)
        sentences[-1] = f"{sentences[-1][:-1]}{joint}{_within(clause, words)}."
        return
    if not is_led and random.random() < _BEFORE:
        clause = f"{_aside(random, 'before', words, is_past)}, {_within(clause, words)}"
    sentences.append(f"{_capital(clause)}.")


def _aside(random: Random, part: str, words: dict[str, str], is_past: bool) -> str:
    """A part of `arithmetic_parts.py` that says nothing of numbers, in the tense of the problem."""
    source = expand(random, f"<{part}>")
    return (in_past(source) if is_past else in_present(source)).format_map(words)


def _is_simple(sentence: str) -> bool:
    return not any(mark in sentence for mark in (" and ", ". ", ", ", "; "))


def _within(clause: str, words: dict[str, str]) -> str:
    """The clause as it stands inside a sentence: only names keep their capital."""
    if clause.startswith(tuple(words[owner] for owner in "ABC" if owner in words)):
        return clause
    return clause[0].lower() + clause[1:]


def _link(random: Random, collection: Collection) -> str:
    if collection.open_words and random.random() < 0.4:
        return _capital(_place(random, collection))
    return random.choice(collection.links)


def _place(random: Random, collection: Collection) -> str:
    return f"{random.choice(_PREPOSITIONS)} the {random.choice(collection.open_words)}"


def _lower(clause: str, frame: Frame) -> str:
    """The clause as it stands after other words: "His" and "He" lose their capital."""
    if frame.source.startswith(("{His}", "{He}")):
        return clause[0].lower() + clause[1:]
    return clause


def _with_articles(text: str) -> str:
    return _AFTER_ARTICLE.sub("n ", text)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _close(close: Close, values: list[int], label: str) -> tuple[int, list[str]]:
    """The answer, and the steps that come after those of the clauses."""
    if close is Close.VALUE:
        return values[-1], []
    if close is Close.DIFFERENCE:
        low, high = sorted(values)
        if high - low < LEAST:
            raise _Misfit
        return high - low, [f"{label}: {high} - {low} = {high - low}"]
    running, steps = values[0], []
    for value in values[1:]:
        steps.append(f"{label}: {running} + {value} = {running + value}")
        running += value
    if running > MOST:
        raise _Misfit
    return running, steps


def arithmetic_conversation(random: Random, split: Split, *, thinking: bool) -> Conversation:
    problem = draw_problem(random, split)
    return _conversation(
        "arithmetic", problem.question, problem.steps, problem.sentence, problem.answer, thinking
    )


def _conversation(
    kind: str, question: str, steps: tuple[str, ...], sentence: str, answer: int, thinking: bool
) -> Conversation:
    working = "\n".join(steps)
    result = f"{sentence}\n#### {answer}"
    reply: dict[str, str] = (
        {"role": "assistant", "reasoning_content": working, "content": result}
        if thinking
        else {"role": "assistant", "content": f"{working}\n{result}"}
    )
    return Conversation(
        kind=kind, messages=({"role": "user", "content": question}, reply), thinking=thinking
    )


def drill_conversation(random: Random, split: Split, *, thinking: bool) -> Conversation:
    sign = random.choice("+-*/")
    a, b, result = _DRILLS[sign](random)
    wording = random.choice(_WORDINGS[split][sign] + _WORDINGS[split]["any"])
    written = f"{a} {random.choice(_SIGNS[sign])} {b}"
    return _conversation(
        "drill",
        wording.format(a=a, b=b, term=written),
        (f"{a} {sign} {b} = {result}",),
        f"The answer is {result}.",
        result,
        thinking,
    )


def _sum(random: Random) -> tuple[int, int, int]:
    result = random.randint(0, random.choice((20, 100, MOST)))
    a = random.randint(0, result)
    return a, result - a, result


def _difference(random: Random) -> tuple[int, int, int]:
    a, b, result = _sum(random)
    return result, a, b


def _product(random: Random) -> tuple[int, int, int]:
    small = random.randint(2, LARGEST_SMALL_FACTOR)
    large = random.randint(2, min(LARGEST_FACTOR, LARGEST_PRODUCT // small))
    a, b = random.choice(((small, large), (large, small)))
    return a, b, a * b


def _quotient(random: Random) -> tuple[int, int, int]:
    k = random.randint(2, LARGEST_SMALL_FACTOR)
    result = random.randint(2, min(LARGEST_FACTOR, LARGEST_PRODUCT // k))
    return k * result, k, result


_DRILLS: dict[str, Callable[[Random], tuple[int, int, int]]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _quotient,
}
_SIGNS = {"+": ("+", "plus"), "-": ("-", "minus"), "*": ("*", "x", "times"), "/": ("/", ":")}
_WORDINGS: dict[Split, dict[str, tuple[str, ...]]] = {
    Split.TRAIN: {
        "any": (
            "What is {term}?",
            "{term} = ?",
            "How much is {term}?",
            "Calculate {term}.",
            "Work out {term}.",
            "Find {term}.",
            "What do you get? {term}",
            "Tell me {term}.",
            "Compute {term}.",
            "Solve {term}.",
            "Can you calculate {term}?",
            "Please work out {term} for me.",
            "{term} is how much?",
            "{term} makes what?",
            "How much does {term} make?",
            "What is the result of {term}?",
            "Give me the result of {term}.",
            "What number is {term}?",
            "I want to know how much {term} is.",
        ),
        "+": (
            "Add {a} and {b}.",
            "What is the sum of {a} and {b}?",
            "Add {b} to {a}.",
            "Add up {a} and {b}.",
            "How much are {a} and {b} together?",
            "Tell me the sum of {a} and {b}.",
            "The sum of {a} and {b} is what?",
            "Increase {a} by {b}.",
            "What number is {b} more than {a}?",
            "If {b} is added to {a}, what is the result?",
        ),
        "-": (
            "Subtract {b} from {a}.",
            "Take {b} away from {a}.",
            "Take {b} from {a}.",
            "What is the difference between {a} and {b}?",
            "Tell me the difference between {a} and {b}.",
            "What is left if {b} is taken away from {a}?",
            "What number is {b} less than {a}?",
            "Decrease {a} by {b}.",
            "How much more is {a} than {b}?",
            "What do I have to add to {b} to get {a}?",
        ),
        "*": (
            "Multiply {a} by {b}.",
            "Multiply {a} and {b}.",
            "What is the product of {a} and {b}?",
            "Tell me the product of {a} and {b}.",
            "What is {a} multiplied by {b}?",
            "If {a} is multiplied by {b}, what is the result?",
            "How much are {a} groups of {b}?",
            "How much is {b}, taken {a} times?",
        ),
        "/": (
            "Divide {a} by {b}.",
            "What is {a} divided by {b}?",
            "If {a} is divided by {b}, what is the result?",
            "How many times does {b} go into {a}?",
            "Split {a} into {b} equal parts. How much is one part?",
            "Share {a} equally among {b}. How much does each get?",
        ),
    },
    Split.HELD_OUT: {
        "any": ("Find out how much {term} is.", "What do you get for {term}?"),
        "+": ("What do you get when you add {a} and {b}?", "Find the sum of {a} and {b}."),
        "-": ("Find the difference between {a} and {b}.", "How much is {a} take away {b}?"),
        "*": ("Find the product of {a} and {b}.", "How much is {a} multiplied by {b}?"),
        "/": ("How much is {a} divided by {b}?", "What do you get when you divide {a} by {b}?"),
    },
}
