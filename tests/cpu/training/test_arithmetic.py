"""Arithmetic problems are right, within their ranges, and held-out ones are new but tellable."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from random import Random

import pytest

from training.tiny.conversation import Conversation, Split
from training.tiny.data import arithmetic, arithmetic_parts
from training.tiny.data.arithmetic import COLLECTIONS, Problem, draw_problem
from training.tiny.data.arithmetic_frames import (
    APPENDING,
    FIXED_WORDS,
    NUMBER_WORDS,
    Close,
    Family,
    Frame,
    Op,
    Pattern,
    Question,
    QuestionPattern,
    in_past,
)

DRAWS = 6000
DRAWS_OF_PATTERN = 30
BOTH = pytest.mark.parametrize("split", list(Split))
CALCULATION = re.compile(r": (\d+) ([-+*/]) (\d+) = (\d+)$")
RESULTS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
}
TRAIN_FAMILIES, HELD_OUT_FAMILIES = (
    [family for families in COLLECTIONS[split].families.values() for family in families]
    for split in Split
)
COMPOSED_FAMILIES = [
    family
    for families in COLLECTIONS[Split.TRAIN].composed_families.values()
    for family in families
]


@pytest.fixture(scope="module")
def drawn() -> dict[Split, list[Problem]]:
    problems = {}
    for split in Split:
        random = Random(5)
        problems[split] = [draw_problem(random, split) for _ in range(DRAWS)]
    return problems


def _calculations(problem: Problem) -> list[tuple[int, str, int, int]]:
    return [
        (int(match[1]), match[2], int(match[3]), int(match[4]))
        for step in problem.steps
        if (match := CALCULATION.search(step))
    ]


@BOTH
def test_steps_are_right_and_end_in_the_answer(
    drawn: dict[Split, list[Problem]], split: Split
) -> None:
    for problem in drawn[split]:
        calculations = _calculations(problem)
        for a, sign, b, result in calculations:
            assert RESULTS[sign](a, b) == result, problem
            assert sign != "/" or a % b == 0, problem
        assert calculations[-1][3] == problem.answer
        assert str(problem.answer) in re.findall(r"\d+", problem.sentence)


@BOTH
def test_numbers_keep_to_the_stated_ranges(drawn: dict[Split, list[Problem]], split: Split) -> None:
    for problem in drawn[split]:
        calculations = _calculations(problem)
        assert 2 <= len(calculations) <= 4, problem
        for a, sign, b, result in calculations:
            assert all(2 <= number <= 999 for number in (a, b, result)), problem
            if sign == "*":
                assert min(a, b) <= 12 and max(a, b) <= 60 and result <= 600, problem
            if sign == "/":
                assert b <= 12 and result <= 60 and a <= 600, problem


@BOTH
def test_operands_come_from_the_question_or_from_an_earlier_step(
    drawn: dict[Split, list[Problem]], split: Split
) -> None:
    as_words = {word: number for number, word in NUMBER_WORDS.items()} | FIXED_WORDS
    for problem in drawn[split]:
        said = [int(number) for number in re.findall(r"\d+", problem.question)]
        assert len(set(said)) == len(said), problem
        known = set(said)
        known |= {
            as_words[w] for w in re.findall("[a-z]+", problem.question.lower()) if w in as_words
        }
        for a, _, b, result in _calculations(problem):
            assert {a, b} <= known, problem
            known.add(result)


@BOTH
def test_steps_copy_words_of_the_question(drawn: dict[Split, list[Problem]], split: Split) -> None:
    for problem in drawn[split]:
        assert not re.search(r"[\[\]{}~]|\bNone\b|  ", problem.question + problem.sentence), problem
        for step in problem.steps:
            label = CALCULATION.sub("", step)
            assert label, problem
            assert label.lower() in problem.question.lower(), problem


def test_articles_fit_the_drawn_nouns(drawn: dict[Split, list[Problem]]) -> None:
    for problem in itertools.chain(*drawn.values()):
        said = " ".join((problem.question, *problem.steps, problem.sentence))
        assert not re.search(r"\b[Aa] (?!one\b|once\b)[aio]", said), problem


def test_what_is_hard_is_drawn_often(drawn: dict[Split, list[Problem]]) -> None:
    """Money of somebody who buys and sells, goals, and sums over what is only compared."""
    comparing = {Op.MORE, Op.FEWER, Op.TIMES_AS, Op.SHARE_AS}
    hard: dict[str, str] = {}
    for family in TRAIN_FAMILIES + COMPOSED_FAMILIES:
        ops = {frame.op for stage in family.stages for frame in stage.frames}
        if Op.GOAL in ops:
            hard[family.name] = "goal"
        elif comparing & ops and any(asked.close is Close.SUM for asked in family.questions):
            hard[family.name] = "compared sum"
        elif "money" in family.kind or family.kind in ("dollars", "cents"):
            hard[family.name] = "money"
    problems = drawn[Split.TRAIN]
    counts = Counter(hard.get(problem.family) for problem in problems)
    for kind in ("goal", "compared sum", "money"):
        assert counts[kind] / len(problems) > 0.06, kind


@BOTH
def test_every_family_and_structure_is_drawn(
    drawn: dict[Split, list[Problem]], split: Split
) -> None:
    families = COLLECTIONS[split].families
    composed = COLLECTIONS[split].composed_families
    counts = Counter(problem.family for problem in drawn[split])
    for structure, declared in families.items():
        members = (*declared, *composed.get(structure, ()))
        share = sum(counts[family.name] for family in members) / DRAWS
        assert share == pytest.approx(1 / len(families), abs=0.03)
        assert all(counts[family.name] for family in members)


def test_questions_hardly_ever_repeat(drawn: dict[Split, list[Problem]]) -> None:
    for problems in drawn.values():
        assert len({problem.question for problem in problems}) > 0.995 * DRAWS


def test_a_seed_gives_the_same_problems_whatever_the_hash_seed() -> None:
    program = (
        "from random import Random\n"
        "from training.tiny.conversation import Split\n"
        "from training.tiny.data.arithmetic import draw_problem\n"
        "random = Random(3)\n"
        "print([draw_problem(random, split) for split in Split for _ in range(50)])\n"
    )
    random = Random(3)
    here = [draw_problem(random, split) for split in Split for _ in range(50)]
    there = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == str(here)


@BOTH
@pytest.mark.parametrize("thinking", [True, False])
def test_conversations_end_with_the_number(split: Split, thinking: bool) -> None:
    random = Random(1)
    for make, kind in (
        (arithmetic.arithmetic_conversation, "arithmetic"),
        (arithmetic.drill_conversation, "drill"),
    ):
        for _ in range(100):
            conversation: Conversation = make(random, split, thinking=thinking)
            user, reply = conversation.messages
            assert conversation.kind == kind
            assert conversation.thinking is thinking
            assert user["role"] == "user"
            assert reply["role"] == "assistant"
            assert ("reasoning_content" in reply) is thinking
            working = reply["reasoning_content"] if thinking else reply["content"]
            results = re.findall(r"[-+*/] \d+ = (\d+)", working)
            *_, sentence, last = reply["content"].split("\n")
            assert last == f"#### {results[-1]}"
            assert results[-1] in re.findall(r"\d+", sentence)


@BOTH
def test_drills_are_right_and_within_ranges(split: Split) -> None:
    random = Random(2)
    for _ in range(1000):
        drill = arithmetic.drill_conversation(random, split, thinking=True)
        term = drill.messages[1]["reasoning_content"]
        match = re.fullmatch(r"(\d+) ([-+*/]) (\d+) = (\d+)", term)
        assert match, term
        a, b, result = int(match[1]), int(match[3]), int(match[4])
        assert RESULTS[match[2]](a, b) == result
        assert max(a, b, result) <= 999
        question = drill.messages[0]["content"]
        assert {str(a), str(b)} <= set(re.findall(r"\d+", question))


def test_there_are_enough_families() -> None:
    assert len(TRAIN_FAMILIES) >= 60
    assert len(HELD_OUT_FAMILIES) >= 12
    names = [family.name for family in TRAIN_FAMILIES + HELD_OUT_FAMILIES + COMPOSED_FAMILIES]
    assert len(set(names)) == len(names)
    train, test = COLLECTIONS[Split.TRAIN], COLLECTIONS[Split.HELD_OUT]
    assert set(test.families) == set(train.families) == set(train.composed_families)


def _clauses(family: Family) -> Iterator[Frame | Pattern | Question | QuestionPattern]:
    for stage in family.stages:
        yield from stage.frames
    yield from family.questions


def test_every_pattern_gives_many_frames() -> None:
    random = Random(4)
    for family in COMPOSED_FAMILIES:
        for clause in _clauses(family):
            drawn = {clause.draw(random).source for _ in range(DRAWS_OF_PATTERN)}
            assert isinstance(clause, Frame | Question) == (len(drawn) == 1), clause.source
            assert not any("<" in source for source in drawn)


def test_no_part_is_left_unused() -> None:
    # These are drawn by name, for what stands beside the clauses.
    used = ("after", "before", "who", "aside", "goes on", "beside")
    sources = [clause.source for family in COMPOSED_FAMILIES for clause in _clauses(family)]
    sources += [f"<{part}>" for part in used]
    reachable = " ".join(map(arithmetic_parts.reachable, sources))
    assert [part for part in arithmetic_parts.PARTS if f"<{part}>" not in reachable] == []


def test_patterns_never_say_what_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that could is drawn again."""
    (family, *_) = HELD_OUT_FAMILIES
    for clause in _clauses(family):
        assert isinstance(clause, Frame | Question)
        other = clause.source + " again"
        monkeypatch.setitem(arithmetic_parts.PARTS, "either", (clause.source, other))
        random = Random(0)
        if isinstance(clause, Frame):
            pattern = Pattern(op=clause.op, source="<either>", fixed=clause.fixed)
            drawn = {arithmetic._drawn(random, pattern).source for _ in range(20)}
        else:
            asked = QuestionPattern(close=clause.close, source="<either>", answer="{x}")
            drawn = {arithmetic._drawn_question(random, asked).source for _ in range(20)}
        assert drawn == {other}


@pytest.mark.parametrize(
    "family", TRAIN_FAMILIES + HELD_OUT_FAMILIES + COMPOSED_FAMILIES, ids=lambda f: f.name
)
def test_a_difference_is_between_two_values(family: Family) -> None:
    for question in family.questions:
        if question.close is Close.DIFFERENCE:
            appending = [
                stage for stage in family.stages if any(f.op in APPENDING for f in stage.frames)
            ]
            assert all(stage.least == stage.most == 1 for stage in appending)
            assert len(appending) == 2


def _frame_sources(family: Family) -> Iterator[str]:
    for clause in _clauses(family):
        yield clause.source


def _sentence(source: str) -> str:
    return re.sub(r"[\[\]~]", "", source)


def _words(text: str) -> set[str]:
    plain = re.sub(r"\{\w+\}('s)?|[\[\]~]", " ", text)
    return set(re.findall(r"[a-z][a-z'-]*", plain.lower()))


def _nouns(family: Family) -> set[str]:
    """Words that name things and owners, plural and singular."""
    nouns = "/".join((*family.things, *family.boxes, *family.owners))
    return _words(nouns.replace("/", " "))


def test_labels_end_where_the_noun_of_their_number_does() -> None:
    things = r"(old |new |good |bad |small |extra )?(\{things\}|coins|dollars|euros|cents)"
    whose = r"of (them|these|it\b|(the|these|all these|\{his\}|\{[ABC]\}'s) (new )?\{things\})"
    cut = re.compile(rf"(\{{[nk]\}}|as many)( more| less| fewer)?\] ({things}|{whose}|in all)")
    random = Random(6)
    families = TRAIN_FAMILIES + HELD_OUT_FAMILIES + COMPOSED_FAMILIES
    clauses = [clause for family in families for clause in _clauses(family)]
    drawn = {clause.draw(random).source for clause in clauses for _ in range(5)}
    assert sorted(source for source in drawn if cut.search(source)) == []


def test_no_held_out_sentence_noun_or_name_is_trained_on() -> None:
    trained = {_sentence(source) for family in TRAIN_FAMILIES for source in _frame_sources(family)}
    held_out = [_sentence(source) for f in HELD_OUT_FAMILIES for source in _frame_sources(f)]
    assert [sentence for sentence in held_out if sentence in trained] == []

    trained_things = {
        form for f in TRAIN_FAMILIES for noun in (*f.things, *f.boxes) for form in noun.split("/")
    } | {owner for f in TRAIN_FAMILIES for owner in f.owners}
    for family in HELD_OUT_FAMILIES:
        boxes = [noun for noun in family.boxes if noun != "box/boxes"]
        for noun in (*family.things, *family.owners, *boxes):
            assert not set(noun.split("/")) & trained_things, noun

    trained_things |= {noun for family in COMPOSED_FAMILIES for noun in _nouns(family)}
    trained_words = set(_trained_in())
    for family in HELD_OUT_FAMILIES:
        assert set(family.setting) & trained_words == set(), family.name

    train, test = COLLECTIONS[Split.TRAIN], COLLECTIONS[Split.HELD_OUT]
    names = [*train.girls, *train.boys, *test.girls, *test.boys]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert not set(train.scenes) & set(test.scenes)


@cache
def _trained_in() -> Counter[str]:
    """In how many training frames and questions each word stands, in either tense.

    Of a pattern, some of its frames are counted; a family's nouns and verbs stand in all frames.
    """
    random = Random(0)
    counts: Counter[str] = Counter()
    for family in TRAIN_FAMILIES + COMPOSED_FAMILIES:
        own = _nouns(family)
        own |= {verb for a in family.acts for verb in (a.base, a.present, a.past, a.done)}
        sources: list[str] = []
        for clause in _clauses(family):
            is_open = isinstance(clause, Pattern | QuestionPattern)
            drawn = [clause.draw(random).source for _ in range(10 if is_open else 1)]
            sources += dict.fromkeys(drawn)
        for source in sources:
            counts.update(_words(f"{source} {in_past(source)}"))
        for word in own:
            counts[word] += len(sources)
    return counts


def test_every_word_of_a_held_out_family_is_trained_on_in_three_frames() -> None:
    trained = _trained_in()
    rare = {}
    for family in HELD_OUT_FAMILIES:
        own = _nouns(family) | set(family.setting)
        for source in _frame_sources(family):
            if few := {word for word in _words(source) - own if trained[word] < 3}:
                rare[source] = few
    assert rare == {}


def test_every_operation_is_put_in_many_ways() -> None:
    """15 ways each of adding, taking away, multiplying and dividing, each in several families."""
    kinds = {
        "add": {Op.ADD, Op.MORE},
        "take": {Op.TAKE, Op.FEWER},
        "multiply": {Op.GROUPS, Op.ADD_GROUPS, Op.TAKE_GROUPS, Op.TIMES, Op.TIMES_AS},
        "divide": {Op.SPLIT, Op.SHARE_AS},
    }
    for kind, ops in kinds.items():
        ways: dict[str, set[str]] = {}
        for family in TRAIN_FAMILIES:
            for frame in itertools.chain(*(stage.frames for stage in family.stages)):
                if frame.op in ops:
                    for word in _words(" ".join(re.findall(r"\[(.*?)\]", frame.source))):
                        ways.setdefault(word, set()).add(family.name)
        several = sorted(word for word, families in ways.items() if len(families) >= 2)
        assert len(several) >= 15, (kind, several)
