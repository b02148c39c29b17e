"""Plain chat without tools: courtesies, copying tasks and a small closed table of facts.

A model this small knows nothing of the world: what it can learn is to copy, to reorder, and what
stands here. The splits share the facts and the answers, not the questions' wordings nor the words
that are copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from training.tiny.conversation import Conversation, Split
from training.tiny.data.tool_catalogue import TRAIN
from training.tiny.data.tool_held_out import HELD_OUT
from training.tiny.data.tool_material import Material, groups, words
from training.tiny.data.tool_values import (
    MONTHS,
    VALUES,
    made_up,
    name,
    phrase,
    pick,
    sentence,
    word,
)

MATERIAL = {Split.TRAIN: TRAIN, Split.HELD_OUT: HELD_OUT}
IDENTITY = "I am tiny, a small model trained by the draftmark project to test serving engines."

_DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_OPPOSITES = groups("""
hot cold
big small
old new
fast slow
high low
light dark
long short
open closed
full empty
wet dry
hard soft
early late
happy sad
strong weak
rich poor
loud quiet
clean dirty
thick thin
deep shallow
left right
up down
in out
yes no
day night
black white
first last
near far
good bad
true false
inside outside
""")
_COLOURS = (
    ("the sky", "blue"),
    ("grass", "green"),
    ("snow", "white"),
    ("coal", "black"),
    ("blood", "red"),
    ("a banana", "yellow"),
    ("a carrot", "orange"),
    ("chocolate", "brown"),
    ("an elephant", "grey"),
    ("a flamingo", "pink"),
    ("milk", "white"),
    ("a lemon", "yellow"),
    ("a tomato", "red"),
    ("the sun", "yellow"),
    ("a frog", "green"),
)

# Task -> how it is asked: {x} is what the task is about, {y} the end of a count.
_TRAIN_QUESTIONS: dict[str, tuple[str, ...]] = {
    "greeting": ("Hello", "Hi", "Hello!", "Hi there!", "hello tiny", "Good morning!", "Hi!", "Hey"),
    "identity": (
        "Who are you?",
        "What are you?",
        "What is your name?",
        "Tell me about yourself.",
        "Which model are you?",
        "Who made you?",
        "Are you a person?",
        "who are you",
    ),
    "thanks": ("Thanks!", "Thank you.", "Thank you very much!", "Great, thanks.", "thanks"),
    "farewell": ("Goodbye", "Bye!", "See you later.", "Good night!", "Bye for now."),
    "mood": ("How are you?", "How are you today?", "Are you well?", "How do you do?"),
    "ability": (
        "What can you do?",
        "How can you help me?",
        "What are you good at?",
        "What do you know?",
    ),
    "repeat": (
        "Repeat after me: {x}",
        "Repeat: {x}",
        'Say "{x}".',
        'Repeat the text "{x}".',
        "Please repeat this: {x}",
        "Echo: {x}",
        'Answer only with "{x}".',
        "Copy this exactly: {x}",
    ),
    "spell": (
        "Spell the word {x}.",
        "How do you spell {x}?",
        "Spell {x}",
        "Please spell {x}.",
        "Can you spell the word {x}?",
    ),
    "capitals": (
        "Write {x} in capital letters.",
        "Put {x} in capitals.",
        "Uppercase: {x}",
        "Make {x} uppercase.",
        "Can you write {x} in upper case?",
    ),
    "reverse": (
        "Reverse this list: {x}",
        "Reverse: {x}",
        "Write these words in reverse order: {x}",
        "Turn the list around: {x}",
        "Put the words {x} in reverse order.",
    ),
    "first": (
        "What is the first word of {x}?",
        "First word of this list: {x}",
        "Which word comes first: {x}?",
        "Give me the first of these: {x}",
    ),
    "last": (
        "What is the last word of {x}?",
        "Last word of this list: {x}",
        "Which word comes last: {x}?",
        "Give me the last of these: {x}",
    ),
    "count": (
        "Count from {x} to {y}.",
        "Please count from {x} to {y}",
        "Can you count from {x} to {y}?",
        "List the numbers from {x} to {y}.",
        "Say all numbers from {x} to {y}.",
    ),
    "opposite": (
        "What is the opposite of {x}?",
        "Opposite of {x}?",
        "Tell me the opposite of {x}.",
        'What is the opposite of the word "{x}"?',
    ),
    "colour": ("What colour is {x}?", "Which colour has {x}?", "Tell me the colour: {x}"),
    "after": (
        "What comes after {x}?",
        "Which one comes after {x}?",
        "What is next after {x}?",
        "Tell me what comes right after {x}.",
    ),
    "before": (
        "What comes before {x}?",
        "Which one comes before {x}?",
        "What is right before {x}?",
        "Tell me what comes right before {x}.",
    ),
    "lines": (
        "Put each on its own line: {x}",
        "One a line: {x}",
        "Write these one below the other: {x}",
        "Make lines of {x}",
        "List {x}",
    ),
    "introduce": ("My name is {x}.", "I am {x}.", "Hello, I am {x}", "Hi, my name is {x}."),
    "recall": ("What is my name?", "Who am I?", "Do you know my name?", "Say my name."),
}
_HELD_OUT_QUESTIONS: dict[str, tuple[str, ...]] = {
    "greeting": ("Hello again!", "Good evening, tiny."),
    "identity": ("Say who you are.", "What is the name of this model?"),
    "thanks": ("Many thanks!", "Good, thank you."),
    "farewell": ("Goodbye for today.", "Bye, see you!"),
    "mood": ("Hello, how are you?", "How are you now?"),
    "ability": ("Tell me what you can do.", "What can you help me with?"),
    "repeat": ("Please say this after me: {x}", "Repeat exactly: {x}"),
    "spell": ("Tell me how you spell {x}.", "Now spell {x}!"),
    "capitals": ("Please make {x} all capitals.", "Say {x} in capital letters."),
    "reverse": ("Please reverse the words {x}", "This list in reverse: {x}"),
    "first": ("Tell me the first word: {x}", "Of the words {x}, which is first?"),
    "last": ("Tell me the last word: {x}", "Of the words {x}, which is last?"),
    "count": ("Now count from {x} on to {y}.", "Give me the numbers from {x} to {y}."),
    "opposite": ("Which word is the opposite of {x}?", "Give me the opposite of {x}."),
    "colour": ("Say what colour {x} has.", "The colour of {x}?"),
    "after": ("Say what comes next after {x}.", "And after {x}?"),
    "before": ("Say what comes right before {x}.", "And before {x}?"),
    "lines": ("Write one on each line: {x}", "Each on a line of its own: {x}"),
    "introduce": ("Hello tiny, my name is {x}.", "I'm {x}."),
    "recall": ("Tell me my name.", "Please say my name."),
}
QUESTIONS = {Split.TRAIN: _TRAIN_QUESTIONS, Split.HELD_OUT: _HELD_OUT_QUESTIONS}


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question, one short line of reasoning, and the answer."""

    question: str
    thought: str
    answer: str

    def messages(self, *, thinking: bool) -> list[dict[str, Any]]:
        return [user(self.question), assistant(self.answer, self.thought, thinking=thinking)]


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str, thought: str, *, thinking: bool) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    if thinking:
        message["reasoning_content"] = thought
    return message


# What a task asks about ({x}, {y}), and the reasoning and the answer to it.
_Drawn = tuple[str, str, str, str]


def _courtesy(thought: str, answer: str) -> Callable[[Random, Material], _Drawn]:
    return lambda random, material: ("", "", thought, answer)


def _repeat(random: Random, material: Material) -> _Drawn:
    strings = material.strings
    chance = random.random()
    if chance < 0.4:
        text = sentence(random, strings)
    elif chance < 0.6:
        text = phrase(random, strings)
    elif chance < 0.8:
        text = " ".join(_any_strings(random, material))
    else:
        text = name(random, strings)
    return text, "", "Repeat the text.", text


_LISTED = (
    *("word", "word", "word", "name", "code", "digits", "file", "city"),
    *("sentence", "phrase", "email", "path", "hex", "time"),
)


def _any_strings(random: Random, material: Material) -> list[str]:
    """One to eight names and values of all kinds, of a hundred letters at most."""
    strings: list[str] = []
    for _ in range(2 + int(random.random() * 7)):
        text = str(VALUES[pick(random, _LISTED)](random, material.strings))
        if strings and sum(map(len, strings)) + 2 * len(strings) + len(text) > 100:
            break
        strings.append(text)
    return strings


def _lines(random: Random, material: Material) -> _Drawn:
    """Copying to where no space stands before a word, as in a tool's call."""
    listed = _any_strings(random, material)
    return ", ".join(listed), "", f"Lines: {len(listed)}.", "\n".join(listed)


def _one_word(random: Random, material: Material) -> str:
    if random.random() < 0.5:
        return made_up(random, material.strings)
    return word(random, material.strings)


def _spell(random: Random, material: Material) -> _Drawn:
    x = _one_word(random, material)
    return x, "", f"Spell {x}.", "-".join(x)


def _capitals(random: Random, material: Material) -> _Drawn:
    x = _one_word(random, material)
    return x, "", f"Capitals of {x}.", x.upper()


def _list(random: Random, material: Material) -> list[str]:
    """Three to five different words: a repeated one would be first and last at once."""
    listed: list[str] = []
    count = 3 + int(random.random() * 3)
    while len(listed) < count:
        drawn = word(random, material.strings)
        if drawn not in listed:
            listed.append(drawn)
    return listed


def _reverse(random: Random, material: Material) -> _Drawn:
    listed = _list(random, material)
    return ", ".join(listed), "", f"Reverse {len(listed)} words.", ", ".join(listed[::-1])


def _first(random: Random, material: Material) -> _Drawn:
    listed = _list(random, material)
    return ", ".join(listed), "", "The first word.", listed[0]


def _last(random: Random, material: Material) -> _Drawn:
    listed = _list(random, material)
    return ", ".join(listed), "", "The last word.", listed[-1]


def _count(random: Random, material: Material) -> _Drawn:
    start, steps = int(random.random() * 60), 2 + int(random.random() * 8)
    numbers = list(range(start, start + steps + 1))
    direction = "up"
    if random.random() < 0.4:
        numbers.reverse()
        direction = "down"
    x, y = str(numbers[0]), str(numbers[-1])
    return x, y, f"Count {direction} from {x} to {y}.", ", ".join(map(str, numbers))


def _opposite(random: Random, material: Material) -> _Drawn:
    x, y = pick(random, _OPPOSITES)
    if random.random() < 0.5:
        x, y = y, x
    return x, "", f"{x}: {y}.", f"The opposite of {x} is {y}."


def _colour(random: Random, material: Material) -> _Drawn:
    x, colour = pick(random, _COLOURS)
    return x, "", f"{x}: {colour}.", f"{x[0].upper()}{x[1:]} is {colour}."


def _after(random: Random, material: Material) -> _Drawn:
    cycle = pick(random, (_DAYS, MONTHS))
    index = int(random.random() * len(cycle))
    x, y = cycle[index - 1], cycle[index]
    return x, "", f"After {x}: {y}.", f"{y} comes after {x}."


def _before(random: Random, material: Material) -> _Drawn:
    cycle = pick(random, (_DAYS, MONTHS))
    index = int(random.random() * len(cycle))
    x, y = cycle[index], cycle[index - 1]
    return x, "", f"Before {x}: {y}.", f"{y} comes before {x}."


_TASKS: dict[str, Callable[[Random, Material], _Drawn]] = {
    "greeting": _courtesy("A greeting.", "Hello! How can I help you?"),
    "identity": _courtesy("Say who I am.", IDENTITY),
    "thanks": _courtesy("Thanks.", "You are welcome!"),
    "farewell": _courtesy("A farewell.", "Goodbye!"),
    "mood": _courtesy("A courtesy.", "I am fine, thank you. How can I help you?"),
    "ability": _courtesy(
        "Say what I can do.",
        "I can call tools, solve small arithmetic problems, and copy or reorder words.",
    ),
    "repeat": _repeat,
    "spell": _spell,
    "capitals": _capitals,
    "reverse": _reverse,
    "lines": _lines,
    "first": _first,
    "last": _last,
    "count": _count,
    "opposite": _opposite,
    "colour": _colour,
    "after": _after,
    "before": _before,
}
# Copying is what calls are made of.
_COPYING = ("repeat",) * 8 + ("lines",) * 10
_SINGLE = (*_TASKS, *_COPYING, "spell", "reverse", "count", "greeting", "identity")


def draw_exchange(random: Random, split: Split) -> Exchange:
    """One question that stands on its own, with its answer."""
    task = pick(random, _SINGLE)
    x, y, thought, answer = _TASKS[task](random, MATERIAL[split])
    question = pick(random, QUESTIONS[split][task])
    return Exchange(question.format(x=x, y=y), thought, answer)


def draw_history(random: Random, split: Split) -> list[Exchange]:
    """One to three exchanges."""
    return [draw_exchange(random, split) for _ in range(1 + int(random.random() * 3))]


def _introduction(random: Random, split: Split) -> tuple[Exchange, Exchange]:
    """A name is told, and asked for later."""
    strings = MATERIAL[split].strings
    who = pick(random, strings.people) if random.random() < 0.4 else name(random, strings)
    told = pick(random, QUESTIONS[split]["introduce"]).format(x=who)
    asked = pick(random, QUESTIONS[split]["recall"])
    return (
        Exchange(told, f"A name: {who}.", f"Nice to meet you, {who}."),
        Exchange(asked, f"The name is {who}.", f"Your name is {who}."),
    )


def small_talk_conversation(random: Random, split: Split, *, thinking: bool) -> Conversation:
    """A short question, now and then after others; one in ten recalls the user's name."""
    exchanges = draw_history(random, split) if random.random() < 0.3 else []
    if random.random() < 0.1:
        told, asked = _introduction(random, split)
        exchanges = [told, *exchanges[:2], asked]
    else:
        exchanges.append(draw_exchange(random, split))
    messages = [m for exchange in exchanges for m in exchange.messages(thinking=thinking)]
    if random.random() < 0.15:
        systems = MATERIAL[split].wordings.systems
        messages.insert(0, {"role": "system", "content": pick(random, systems)})
    return Conversation(kind="small_talk", messages=tuple(messages), thinking=thinking)
