"""Generated tool and small-talk conversations: right by their own schemas, and fairly held out."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import fields
from functools import cache
from random import Random
from typing import Any

import pytest

from training.tiny.conversation import Conversation, Split
from training.tiny.data.extraction import extraction_conversation
from training.tiny.data.small_talk import (
    MATERIAL,
    QUESTIONS,
    draw_exchange,
    small_talk_conversation,
)
from training.tiny.data.tool_material import (
    ENUM,
    PAIRED,
    Material,
    frame_words,
    wording_key,
)
from training.tiny.data.tool_schemas import draw_wishes
from training.tiny.data.tool_values import VALUES
from training.tiny.data.tools import tool_conversation, tool_session

KINDS = ("call", "calls", "no_fit", "result")
DRAWS = 3000
MAX_BYTES = 2500
PYTHON_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool}

both = pytest.mark.parametrize("split", list(Split))


@cache
def conversations(split: Split) -> tuple[Conversation, ...]:
    """Drawn by the default weights, thinking in every second one."""
    random = Random(7)
    return tuple(
        tool_conversation(random, split, thinking=index % 2 == 0) for index in range(DRAWS)
    )


def called(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [call["function"] for call in message.get("tool_calls", [])]


def offered(conversation: Conversation) -> dict[str, dict[str, Any]]:
    """Parameters' schemas by the tool's name."""
    functions = [tool["function"] for tool in conversation.tools]
    return {function["name"]: function["parameters"] for function in functions}


def last_turn(conversation: Conversation) -> tuple[dict[str, Any], ...]:
    """From the last user's message on."""
    roles = [message["role"] for message in conversation.messages]
    return conversation.messages[len(roles) - 1 - roles[::-1].index("user") :]


@both
def test_calls_satisfy_the_schemas(split: Split) -> None:
    random = Random(8)
    sessions = [tool_session(random, split, thinking=index % 2 == 0) for index in range(300)]
    for conversation in (*conversations(split), *sessions):
        tools = offered(conversation)
        assert len(tools) == len(conversation.tools)
        for message in conversation.messages:
            for call in called(message):
                schema, arguments = tools[call["name"]], call["arguments"]
                properties = schema["properties"]
                assert set(schema["required"]) <= set(arguments) <= set(properties)
                assert list(arguments) == [name for name in properties if name in arguments]
                for name, value in arguments.items():
                    assert type(value) is PYTHON_TYPES[properties[name]["type"]]
                    assert value in properties[name].get("enum", [value])


@both
def test_values_stand_in_the_request(split: Split) -> None:
    for conversation in conversations(split):
        request = ""
        for message in conversation.messages:
            request = message["content"] if message["role"] == "user" else request
            for call in called(message):
                for name, value in call["arguments"].items():
                    assert isinstance(value, bool) or str(value) in request, (name, request)


@both
def test_each_kind_has_its_turns(split: Split) -> None:
    seen = set()
    for conversation in conversations(split):
        seen.add(conversation.kind)
        _, *answers = last_turn(conversation)
        calls = [len(called(message)) for message in answers]
        assert (
            calls
            == {"call": [1], "calls": [2], "no_fit": [0], "result": [1, 0, 0]}[conversation.kind]
        )
        for message in conversation.messages:
            assert bool(message["content"]) != bool(called(message))
            has_reasoning = "reasoning_content" in message
            assert has_reasoning == (conversation.thinking and message["role"] == "assistant")
    assert seen == set(KINDS)


@both
def test_answers_state_the_result(split: Split) -> None:
    random = Random(11)
    stated = 0
    for _ in range(300):
        *_, result, answer = tool_conversation(
            random, split, thinking=False, kind="result"
        ).messages
        if not result["content"].startswith("{") or answer["content"] == "Done.":
            continue
        for value in json.loads(result["content"]).values():
            stated += 1
            text = json.dumps(value) if isinstance(value, bool) else str(value)
            assert text in answer["content"]
    assert stated > 200


@both
def test_weights(split: Split) -> None:
    kinds = [conversation.kind for conversation in conversations(split)]
    for kind, share in zip(KINDS, (0.55, 0.05, 0.25, 0.15), strict=True):
        assert abs(kinds.count(kind) / DRAWS - share) < 0.04


@both
def test_optional_parameters_are_left_out_at_times(split: Split) -> None:
    given = left_out = 0
    for conversation in conversations(split):
        for message in conversation.messages:
            for call in called(message):
                schema = offered(conversation)[call["name"]]
                optional = set(schema["properties"]) - set(schema["required"])
                given += len(optional & set(call["arguments"]))
                left_out += len(optional - set(call["arguments"]))
    assert given > 100
    assert left_out > 100


@both
def test_hard_negatives(split: Split) -> None:
    """Tools that share the wish's noun or verb are common, ones that mean both never come."""
    random, material = Random(5), MATERIAL[split]
    same_noun = same_verb = 0
    for _ in range(500):
        first, *others = draw_wishes(random, material, 3)
        same_noun += any(other.noun == first.noun for other in others)
        same_verb += any(other.verb == first.verb for other in others)
        pairs = {(wish.verb_group, wish.noun_group) for wish in (first, *others)}
        assert len(pairs) == 3
    assert same_noun > 100
    assert same_verb > 100


@both
def test_refusals_name_what_is_not_offered(split: Split) -> None:
    random, near = Random(9), 0
    for _ in range(300):
        conversation = tool_conversation(random, split, thinking=True, kind="no_fit")
        answer = conversation.messages[-1]
        found = re.fullmatch(r"Wish: (.+?)\. (.+) no\.", answer["reasoning_content"])
        if found is None:
            continue
        wish, names = found.groups()
        assert names.split(" no, ") == list(offered(conversation))
        assert wish in answer["content"]
        if " the " not in wish:
            assert wish.removeprefix("run ") not in offered(conversation)
            continue
        verb, noun = wish.split(" the ")
        plain = [
            "".join(name.lower().replace("-", "_").split("_")) for name in offered(conversation)
        ]
        parts = ["".join(part.split()) for part in (verb, noun)]
        assert not {"".join(parts), "".join(parts[::-1])} & set(plain)
        near += any(name.startswith(parts[0]) or name.endswith(parts[1]) for name in plain)
    assert near > 80


def test_training_has_many_tools() -> None:
    names = {name for conversation in conversations(Split.TRAIN) for name in offered(conversation)}
    assert len(names) >= 2500


@both
def test_sizes(split: Split) -> None:
    for conversation in conversations(split):
        assert 1 <= len(conversation.tools) <= 6
        assert all(1 <= len(schema["properties"]) <= 4 for schema in offered(conversation).values())
        size = len(json.dumps(conversation.tools)) + len(json.dumps(conversation.messages))
        assert size <= MAX_BYTES


@both
@pytest.mark.parametrize("thinking", [False, True])
def test_draws_are_deterministic(split: Split, thinking: bool) -> None:
    def drawn() -> list[Conversation]:
        random = Random(3)
        tools = [tool_conversation(random, split, thinking=thinking) for _ in range(50)]
        return tools + [
            small_talk_conversation(random, split, thinking=thinking) for _ in range(50)
        ]

    assert drawn() == drawn()


@both
def test_extracted_values_are_those_of_the_text(split: Split) -> None:
    random, compared = Random(19), 0
    for index in range(300):
        conversation = extraction_conversation(random, split, thinking=index % 2 == 0)
        question, answer = conversation.messages
        lines = answer["content"].split("\n")
        assert len(lines) % 2 == 0 and 4 <= len(lines) <= 12
        for name, value in zip(lines[::2], lines[1::2], strict=True):
            assert name in question["content"]
            compared += value not in ("true", "false")
            assert value in ("true", "false") or value in question["content"]
    assert compared > 600


@both
def test_questions_about_tools_are_answered_by_their_names(split: Split) -> None:
    random, seen = Random(23), 0
    for _ in range(200):
        conversation = tool_session(random, split, thinking=True)
        tools = offered(conversation)
        lists = {", ".join(tools), *(", ".join(one["properties"]) for one in tools.values())}
        for message in conversation.messages:
            if "my tools." in message.get("reasoning_content", "") or message.get(
                "reasoning_content", ""
            ).startswith("The parameters"):
                seen += 1
                assert message["content"] in lists
    assert seen > 80


def name_words(material: Material) -> dict[str, set[str]]:
    """The words that names are made of, by what they name."""

    def split(names: list[str]) -> set[str]:
        return {part for name in names for part in name.split("_")}

    parameters = [*(name for name, _ in material.parameters), *material.modifiers]
    return {
        "verbs": split([verb for group in material.verbs for verb in group]),
        "nouns": split([*material.strings.things, *(n for group in material.nouns for n in group)]),
        "parameters": split(parameters),
    }


def test_names_are_held_out() -> None:
    train, held_out = (name_words(MATERIAL[split]) for split in Split)
    for part in train:
        shared = train[part] & held_out[part]
        assert not shared, (part, shared)


def test_strings_are_held_out() -> None:
    train, held_out = (MATERIAL[split] for split in Split)
    for field in fields(train.strings):
        if field.name != "years":
            ours, theirs = (getattr(m.strings, field.name) for m in (train, held_out))
            assert not set(ours) & set(theirs), (field.name, set(ours) & set(theirs))
    (first, last), (later, _) = train.strings.years, held_out.strings.years
    assert first < last < later
    words = [
        {*m.strings.things, *m.strings.adjectives, *(v for vs in m.choices.values() for v in vs)}
        for m in (train, held_out)
    ]
    assert not words[0] & words[1]
    assert not set(train.failures) & set(held_out.failures)


SHARED_WORDINGS = ("determiners",)
NOT_OF_REQUESTS = (
    "descriptions",
    "parameter_descriptions",
    "flag_descriptions",
    "state_descriptions",
    "systems",
)


def trained_frames() -> dict[str, set[str]]:
    """Training's wordings by their field."""
    frames = defaultdict(set)
    for field, frame in MATERIAL[Split.TRAIN].wordings.frames():
        frames[field].add(frame)
    return frames


def held_out_frames() -> list[tuple[str, str]]:
    frames = MATERIAL[Split.HELD_OUT].wordings.frames()
    return [(field, frame) for field, frame in frames if field not in SHARED_WORDINGS]


def test_wordings_of_requests_are_held_out() -> None:
    """Only what has no words of its own is shared, and determiners, which are single words."""
    assert not MATERIAL[Split.HELD_OUT].wordings.nameless
    trained = trained_frames()
    keys = {field: {wording_key(frame) for frame in frames} for field, frames in trained.items()}
    for field, frame in held_out_frames():
        assert wording_key(frame) not in keys[field] or not frame_words(frame), (field, frame)
    for task, questions in QUESTIONS[Split.TRAIN].items():
        assert not set(questions) & set(QUESTIONS[Split.HELD_OUT][task]), task


def neighbours(frame: str) -> list[tuple[str, str]]:
    """Each placeholder with what stands before it and what after: a word, a sign or the end."""
    plain = re.sub(r"\{[xo]\}", "someone", frame.casefold()).replace("{n}", "{p}")
    tokens = re.findall(r"\{\w+\}|[a-z']+|[^\sa-z]|\n", plain.replace("{a}", "a"))
    pairs = zip(["", *tokens], [*tokens, ""], strict=True)
    return [pair for pair in pairs if any(token.startswith("{") for token in pair)]


def test_every_word_of_a_held_out_wording_is_trained_on() -> None:
    """In three wordings at least, each time in the same place: before a value and after nothing,
    between a name and a value, behind the wish. Else it might be a part of the value, or a verb.
    And what touches a value, a name or a wish, be it a comma, touches it in as many wordings."""
    ways: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for field, frames in trained_frames().items():
        for frame in frames:
            for place in frame_words(frame):
                ways[field, *place].add(wording_key(frame))
            for pair in neighbours(frame):
                ways[field, *pair].add(frame)
    rare = {
        (field, frame): few
        for field, frame in held_out_frames()
        if (places := frame_words(frame))
        and (few := [p for p in (*places, *neighbours(frame)) if len(ways[field, *p]) < 3])
    }
    assert rare == {}
    train, held_out = (MATERIAL[split].wordings.determiners for split in Split)
    assert set(held_out) <= set(train)


def test_places_of_words() -> None:
    assert frame_words("Take {v} as its {P}, {x}") == [
        ("take", "", "{v}"),
        ("as", "{v}", "{p}"),
        ("its", "{v}", "{p}"),
    ]
    assert frame_words("I'd {w} {a} day.") == [("i'd", "", "{w}"), ("day", "{w}", "")]


@both
def test_words_of_requests_are_no_values(split: Split) -> None:
    """Where a value ends must be clear."""
    material = MATERIAL[split]
    strings = material.strings
    values = {*strings.adjectives, *strings.things, *strings.open_words}
    values |= {value.lower() for value in (*strings.people, *strings.cities)}
    values |= {value for values in material.choices.values() for value in values}
    for wordings in (MATERIAL[split].wordings for split in Split):
        for field, frame in wordings.frames():
            if field not in NOT_OF_REQUESTS:
                assert not values & {word for word, *_ in frame_words(frame)}, (field, frame)


@both
def test_true_is_never_put_as_false(split: Split) -> None:
    wordings = MATERIAL[split].wordings
    for field in PAIRED:
        true, false = zip(*getattr(wordings, field), strict=True)
        assert not set(true) & set(false), field


def test_wordings_are_many() -> None:
    """And none of the groups that they are drawn from is empty."""
    wordings, trained = MATERIAL[Split.TRAIN].wordings, trained_frames()
    for field in ("openings", "before", "inline", "fronted", "statements"):
        assert all(getattr(wordings, field)), field
        assert len(trained[field]) > 500, field
    for half in ("true", "false"):
        for field in PAIRED:
            assert len(trained[f"{field} {half}"]) > 100, field
    openings = {word for frame in trained["openings"] for word, *_ in frame_words(frame)}
    assert len(openings) > 100


@both
def test_materials_are_whole(split: Split) -> None:
    """No word twice; every kind can be drawn; no parameter's name stands within another's."""
    material = MATERIAL[split]
    for groups in (material.verbs, material.nouns):
        names = [name for group in groups for name in group]
        assert len(names) == len(set(names))
    heads = [name for name, _ in material.parameters]
    assert len(heads) == len(set(heads))
    assert {kind for _, kind in material.parameters} == {*VALUES, ENUM}
    for head in heads:
        assert not any(set(head.split("_")) < set(other.split("_")) for other in heads), head
    nouns = {noun for group in material.nouns for noun in group}
    assert not (nouns | set(heads)) & set(material.strings.things)
    assert not nouns & set(heads)
    assert material.mass_nouns <= nouns
    for field in fields(material.strings):
        values = getattr(material.strings, field.name)
        assert field.name == "dates" or len(values) == len(set(values)), field.name


@both
def test_small_talk(split: Split) -> None:
    random, words = Random(13), 0
    for index in range(400):
        thinking = index % 2 == 0
        conversation = small_talk_conversation(random, split, thinking=thinking)
        assert conversation.kind == "small_talk"
        assert not conversation.tools
        *_, question, answer = conversation.messages
        assert (question["role"], answer["role"]) == ("user", "assistant")
        assert 0 < len(answer["content"]) <= 120
        assert ("reasoning_content" in answer) == thinking
        words += len(answer["content"].split())
    assert words / 400 < 10


@both
def test_small_talk_answers(split: Split) -> None:
    """Answers recomputed from what the question holds."""
    random = Random(17)
    checked = set()
    for _ in range(600):
        exchange = draw_exchange(random, split)
        task = exchange.thought.split()[0]
        if task in ("Spell", "Capitals"):
            word = exchange.answer.replace("-", "").lower()
            assert word in exchange.question
        elif task == "Reverse":
            assert ", ".join(exchange.answer.split(", ")[::-1]) in exchange.question
        elif task == "Repeat":
            assert exchange.answer in exchange.question
        elif task == "Count":
            numbers = [int(number) for number in exchange.answer.split(", ")]
            step = 1 if "up" in exchange.thought else -1
            assert numbers == list(range(numbers[0], numbers[-1] + step, step))
            assert str(numbers[0]) in exchange.question
            assert str(numbers[-1]) in exchange.question
        else:
            continue
        checked.add(task)
    assert checked == {"Spell", "Capitals", "Reverse", "Repeat", "Count"}
