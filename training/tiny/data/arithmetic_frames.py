"""The language in which families of arithmetic problems are declared.

A family is a list of stages and a list of questions. A stage offers frames, and a problem draws
some of them; a frame is one clause of the question and the operation that the clause stands for.
In a frame's text `[...]` marks the words that the step copies, `{n}`, `{k}`, `{a}`, `{b}` are its
numbers, `{A}`, `{B}`, `{C}` the owners, and `~verb` is a verb without an s that has to follow the
tense of the problem ("{n} birds ~come"); verbs with an s follow it by themselves. `{act}`, `{acts}`
and `{acted}` are a verb that the family chooses: to read, reads, have read. A text with a `<part>`
of `arithmetic_parts.py` is a pattern, of which each problem draws one frame.

The operations work on a list of values, and all but those that append one change its last value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum, auto
from functools import cache, lru_cache
from random import Random

from training.tiny.data.arithmetic_parts import expand, reachable


class Structure(StrEnum):
    """What the problems of a family have in common; all are drawn equally often."""

    RUNNING = "running count"
    GROUPS = "groups, then changes"
    COMPARISON = "comparison"
    PRICES = "prices"
    SHARING = "sharing"
    RATES = "rates"
    DIFFERENCE = "difference"
    REMAINING = "remaining"
    TOTAL = "total"


class Op(IntEnum):
    """What a clause does: v is the last value, n, k, a, b are the clause's numbers."""

    START = auto()  # append n
    GROUPS = auto()  # append a * b
    MORE = auto()  # append v + n
    FEWER = auto()  # append v - n
    TIMES_AS = auto()  # append v * k
    SHARE_AS = auto()  # append v / k
    ADD = auto()  # v + n
    TAKE = auto()  # v - n
    TIMES = auto()  # v * k
    SPLIT = auto()  # v / k
    ADD_GROUPS = auto()  # a * b, then v + that
    TAKE_GROUPS = auto()  # a * b, then v - that
    GOAL = auto()  # n - v
    NOTE = auto()  # n - v, n a round sum of money


class Close(IntEnum):
    """What a question asks for: the last value, the sum of all, or the larger less the smaller."""

    VALUE = auto()
    SUM = auto()
    DIFFERENCE = auto()


CALCULATIONS = dict.fromkeys(Op, 1) | {Op.START: 0, Op.ADD_GROUPS: 2, Op.TAKE_GROUPS: 2}
APPENDING = frozenset({Op.START, Op.GROUPS, Op.MORE, Op.FEWER, Op.TIMES_AS, Op.SHARE_AS})

NUMBER_WORDS = {
    2: "two",
    3: "three",
    4: "four",
    5: "five",
    6: "six",
    7: "seven",
    8: "eight",
    9: "nine",
    10: "ten",
    11: "eleven",
    12: "twelve",
}
# Words that stand for a number in frames whose number is fixed.
FIXED_WORDS = {
    "twice": 2,
    "double": 2,
    "doubles": 2,
    "doubled": 2,
    "half": 2,
    "halves": 2,
    "halved": 2,
    "triple": 3,
    "triples": 3,
    "tripled": 3,
    "third": 3,
    "dozen": 12,
    "week": 7,
}

# Base form, third person, past.
_VERBS = """
add adds added, appear appears appeared, are is were, arrive arrives arrived, bake bakes baked, be
is was, begin begins began, blow blows blew, book books booked, borrow borrows borrowed, break
breaks broke, bring brings brought, build builds built, burn burns burned, burst bursts burst, buy
buys bought, carry carries carried, catch catches caught, check checks checked, clean cleans
cleaned, climb climbs climbed, collect collects collected, come comes came, contain contains
contained, cook cooks cooked, cost costs cost, count counts counted, cut cuts cut, deal deals dealt,
deliver delivers delivered, die dies died, dig digs dug, disappear disappears disappeared, divide
divides divided, do does did, donate donates donated, double doubles doubled, draw draws drew, drink
drinks drank, drive drives drove, drop drops dropped, earn earns earned, eat eats ate, empty empties
emptied, fall falls fell, feed feeds fed, fill fills filled, find finds found, finish finishes
finished, fit fits fit, fix fixes fixed, fly flies flew, fold folds folded, gather gathers gathered,
get gets got, give gives gave, go goes went, grow grows grew, halve halves halved, hand hands
handed, hatch hatches hatched, have has had, help helps helped, hide hides hid, hold holds held,
join joins joined, jump jumps jumped, keep keeps kept, knit knits knitted, know knows knew, land
lands landed, last lasts lasted, lay lays laid, leave leaves left, lend lends lent, let lets let,
lie lies lay, like likes liked, live lives lived, look looks looked, lose loses lost, love loves
loved, mail mails mailed, make makes made, mean means meant, meet meets met, melt melts melted, miss
misses missed, move moves moved, need needs needed, open opens opened, order orders ordered, own
owns owned, paint paints painted, park parks parked, pass passes passed, pay pays paid, pick picks
picked, plan plans planned, plant plants planted, play plays played, pour pours poured, print prints
printed, produce produces produced, put puts put, rain rains rained, reach reaches reached, read
reads read, receive receives received, remain remains remained, rent rents rented, repair repairs
repaired, ride rides rode, roll rolls rolled, run runs ran, sail sails sailed, save saves saved,
score scores scored, see sees saw, seem seems seemed, sell sells sold, send sends sent, separate
separates separated, serve serves served, sew sews sewed, share shares shared, shine shines shone,
show shows showed, sing sings sang, sit sits sat, sleep sleeps slept, smile smiles smiled, solve
solves solved, sort sorts sorted, spend spends spent, split splits split, stand stands stood, start
starts started, stay stays stayed, steal steals stole, swim swims swam, take takes took, throw
throws threw, travel travels traveled, triple triples tripled, turn turns turned, use uses used,
visit visits visited, wait waits waited, walk walks walked, want wants wanted, wash washes washed,
water waters watered, weigh weighs weighed, win wins won, work works worked, write writes wrote
"""
_PAST_OF_BASE: dict[str, str] = {}
_PAST_OF_PRESENT = {"are": "were", "is": "was", "do": "did", "now": "in the end"}
for _verb in _VERBS.replace("\n", " ").split(","):
    _base, _present, _past = _verb.split()
    _PAST_OF_BASE[_base] = _past
    _PAST_OF_PRESENT.setdefault(_present, _past)

_WORD = re.compile(r"~?(?<!\{)\b[a-z]+\b(?!\})")
_LABEL = re.compile(r"\[(.*?)\]")
_VERB_AFTER_OWNER = re.compile(r"(?:^|\. )\[?\{[ABC]\} (?:also |already )?\[?([a-z]+)")


def in_present(text: str) -> str:
    return text.replace("~", "")


def in_past(text: str) -> str:
    """The text with every finite verb in the past, and "now" as "in the end"."""

    def past(match: re.Match[str]) -> str:
        word = match.group()
        if word.startswith("~"):
            return _PAST_OF_BASE[word[1:]]
        return _PAST_OF_PRESENT.get(word, word)

    return _WORD.sub(past, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A clause in one tense, as format strings. `label` names the operation's step, and
    `product_label` the step before it where the clause speaks of groups."""

    text: str
    label: str
    product_label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One clause, without its full stop. `fixed` is k, or b of groups, or n, where words say it.

    `has_subject` says that the clause starts with "{A} ", which a pronoun may replace; `can_follow`
    that a phrase of time may stand before it. One that starts with "and" or "but" is no sentence:
    it goes on from the clause before it.
    """

    op: Op
    source: str
    fixed: int | None
    present: Form
    past: Form
    has_subject: bool
    can_follow: bool

    def draw(self, random: Random) -> Frame:
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A frame with parts left open."""

    op: Op
    source: str
    fixed: int | None

    def draw(self, random: Random) -> Frame:
        return _frame(self.op, expand(random, self.source), self.fixed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    close: Close
    source: str
    present: tuple[Form, str]
    past: tuple[Form, str]

    def draw(self, random: Random) -> Question:
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPattern:
    """A question with parts left open."""

    close: Close
    source: str
    answer: str

    def draw(self, random: Random) -> Question:
        return _question(self.close, expand(random, self.source), self.answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A verb for what is done bit by bit."""

    base: str
    present: str
    past: str
    done: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    frames: tuple[Frame | Pattern, ...]
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`things` and `boxes` are nouns as "one/many". `owners` stand for {A}, {B}, {C} in place of
    people, and `open_owner` is how an open word becomes one. `most` bounds a starting number,
    `each` the number in one group. `setting` lists words of the frames that name only the scenery.

    Families of one `kind` may lend each other clauses: "walks 5 miles" adds to a way that was gone
    and takes from one that is left, and what is paid is no longer owned but part of a price.
    Composed families are drawn by `weight`."""

    name: str
    things: tuple[str, ...]
    stages: tuple[Stage, ...]
    questions: tuple[Question | QuestionPattern, ...]
    kind: str = "things"
    boxes: tuple[str, ...] = ("box/boxes",)
    owners: tuple[str, ...] = ()
    open_owner: str = ""
    acts: tuple[Act, ...] = ()
    most: int = 200
    each: int = 20
    setting: tuple[str, ...] = ()
    weight: float = 1.0
    # Derived: the nouns split once.
    thing_pairs: tuple[tuple[str, str], ...] = field(init=False)
    box_pairs: tuple[tuple[str, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "thing_pairs", tuple(_pair(noun) for noun in self.things))
        object.__setattr__(self, "box_pairs", tuple(_pair(noun) for noun in self.boxes))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Collection:
    """Everything that one split draws from. `links` stand before a clause that changes a value.

    Only training varies what is declared: names, things and scenery are at times `open_words`, a
    `mixed` share of the clauses is another family's, a `composed` share of the problems comes from
    families that are all patterns, and clauses are joined and filled up in more ways.
    """

    families: dict[Structure, tuple[Family, ...]]
    composed_families: dict[Structure, tuple[Family, ...]] = field(default_factory=dict)
    girls: tuple[str, ...]
    boys: tuple[str, ...]
    scenes: tuple[str, ...]
    links: tuple[str, ...]
    open_words: tuple[str, ...] = ()
    mixed: float = 0.0
    composed: float = 0.0


def _pair(noun: str) -> tuple[str, str]:
    one, many = noun.split("/")
    return one, many


def _form(text: str) -> Form:
    labels = _LABEL.findall(text)
    products = [label for label in labels if "{a}" in label or "{b}" in label]
    others = [label for label in labels if label not in products]
    return Form(
        text=_LABEL.sub(r"\1", text),
        label=others[0] if others else "",
        product_label=products[0] if products else "",
    )


def _clause(op: Op, source: str, fixed: int | None = None) -> Frame | Pattern:
    if "<" in source:
        return Pattern(op=op, source=source, fixed=fixed)
    return _frame(op, source, fixed)


@lru_cache(maxsize=1 << 15)
def _frame(op: Op, source: str, fixed: int | None) -> Frame:
    for verb in _VERB_AFTER_OWNER.findall(source):
        if verb not in _PAST_OF_PRESENT:
            raise ValueError(f"no past tense for {verb!r} in {source!r}")
    present, past = _form(in_present(source)), _form(in_past(source))
    has_groups = op in (Op.GROUPS, Op.ADD_GROUPS, Op.TAKE_GROUPS)
    if has_groups != bool(present.product_label) or (op is not Op.GROUPS and not present.label):
        raise ValueError(f"the marked words of {source!r} do not fit {op}")
    return Frame(
        op=op,
        source=source,
        fixed=fixed,
        present=present,
        past=past,
        has_subject=source.startswith("{A} "),
        can_follow=source.startswith(("{", "[{")) and op not in APPENDING | {Op.GOAL, Op.NOTE},
    )


def owners_of(clause: Frame | Pattern) -> str:
    """Whom the clause speaks of, or may speak of, as letters."""
    return _owners_in(clause.source)


@cache
def _owners_in(source: str) -> str:
    text = reachable(source)
    return "".join(owner for owner in "ABC" if f"{{{owner}}}" in text)


def start(source: str) -> Frame | Pattern:
    return _clause(Op.START, source)


def groups(source: str, b: int | None = None) -> Frame | Pattern:
    return _clause(Op.GROUPS, source, b)


def more(source: str) -> Frame | Pattern:
    return _clause(Op.MORE, source)


def fewer(source: str) -> Frame | Pattern:
    return _clause(Op.FEWER, source)


def times_as(source: str, k: int | None = None) -> Frame | Pattern:
    return _clause(Op.TIMES_AS, source, k)


def share_as(source: str, k: int) -> Frame | Pattern:
    return _clause(Op.SHARE_AS, source, k)


def add(source: str, n: int | None = None) -> Frame | Pattern:
    return _clause(Op.ADD, source, n)


def take(source: str, n: int | None = None) -> Frame | Pattern:
    return _clause(Op.TAKE, source, n)


def times(source: str, k: int | None = None) -> Frame | Pattern:
    return _clause(Op.TIMES, source, k)


def split(source: str, k: int | None = None) -> Frame | Pattern:
    return _clause(Op.SPLIT, source, k)


def add_groups(source: str, b: int | None = None) -> Frame | Pattern:
    return _clause(Op.ADD_GROUPS, source, b)


def take_groups(source: str, b: int | None = None) -> Frame | Pattern:
    return _clause(Op.TAKE_GROUPS, source, b)


def goal(source: str) -> Frame | Pattern:
    return _clause(Op.GOAL, source)


def note(source: str) -> Frame | Pattern:
    return _clause(Op.NOTE, source)


@lru_cache(maxsize=1 << 12)
def _question(close: Close, source: str, answer: str) -> Question:
    if (close is Close.VALUE) != ("[" not in source):
        raise ValueError(f"the marked words of {source!r} do not fit {close}")
    return Question(
        close=close,
        source=source,
        present=(_form(in_present(source)), in_present(answer)),
        # What is asked may be long past: "The answer is" stays.
        past=(
            _form(in_past(source)),
            in_present(answer) if answer.startswith("The answer is") else in_past(answer),
        ),
    )


def _asking(close: Close, source: str, answer: str) -> Question | QuestionPattern:
    if "<" in source:
        return QuestionPattern(close=close, source=source, answer=answer)
    return _question(close, source, answer)


def ask(source: str, answer: str) -> Question | QuestionPattern:
    return _asking(Close.VALUE, source, answer)


def total(source: str, answer: str) -> Question | QuestionPattern:
    return _asking(Close.SUM, source, answer)


def difference(source: str, answer: str) -> Question | QuestionPattern:
    """The texts speak of {high}, the owner of more, and {low}."""
    return _asking(Close.DIFFERENCE, source, answer)


def acts(text: str) -> tuple[Act, ...]:
    """Verbs as "read reads read read", given with commas between."""
    found = []
    for verb in text.split(","):
        base, present, past, done = verb.split()
        found.append(Act(base=base, present=present, past=past, done=done))
    return tuple(found)


def one(*frames: Frame | Pattern) -> Stage:
    return Stage(frames=frames, least=1, most=1)


def some(least: int, most: int, *frames: Frame | Pattern) -> Stage:
    assert most <= len(frames)
    return Stage(frames=frames, least=least, most=most)


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def nouns(text: str) -> tuple[str, ...]:
    """Nouns as "one/many", given with commas between."""
    return tuple(" ".join(noun.split()) for noun in text.split(","))
