"""How training's users put things, made of parts: thousands of wordings of a few hundred words.

A model this small tells a value from the words around it by knowing those words. So each word
stands in many wordings, and whatever is held out is a combination that is missing here, of words
that are not. Words of wordings are never values: `tool_catalogue` takes them out of the open words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import product
from typing import Any

from training.tiny.data.tool_held_out import HELD_OUT
from training.tiny.data.tool_material import (
    ENUM,
    PAIRED,
    Groups,
    Pairs,
    Wordings,
    frame_words,
    pairs,
    phrases,
    wording_key,
)


def _composed(*parts: Sequence[str]) -> tuple[str, ...]:
    """One of each part, in every combination, with spaces between; "" leaves a part out."""
    return tuple(" ".join(filter(None, chosen)) for chosen in product(*parts))


def _ended(ends: Sequence[str], *families: Sequence[str]) -> Groups:
    return tuple(tuple(text + end for text in family for end in ends) for family in families)


def _paired(*parts: Sequence[str] | Pairs) -> Pairs:
    """As `_composed`, for true and for false; a part that is the same for both is one string."""
    return tuple(
        (
            " ".join(filter(None, (p if isinstance(p, str) else p[0] for p in chosen))),
            " ".join(filter(None, (p if isinstance(p, str) else p[1] for p in chosen))),
        )
        for chosen in product(*parts)
    )


# Before a parameter's name.
_OWN = ("the", "its", "my", "our", "this", "{a}", "")
_SHORT = ("the", "its", "")
_IS = ("is", "equals", "must be", "should be", "has to be", "will be", "shall be", "reads")
_PRESENT = ("is", "equals", "reads", "being", "must be", "should be")

_WITH = phrases("""
with | with | with | for | for | using | by | under | at | on | from | in | to | of | taking |
given | having | through | per | via | along with | together with | based on | going by | as for |
keeping | knowing | giving | considering | known by | told by
""")
_HAS = phrases("""
that has | which has | that comes with | which comes with | that goes by | that needs
""")
_TAKING = phrases("""
using | taking | with | having | given | putting | giving | choosing | passing | entering |
by using | by taking | by giving | keeping | picking | applying
""")
_SET = ("set to", "being", "equal to", "fixed at", "given as", "put at", "as", "kept at", "put as")
_WHERE = ("where", "so that", "such that", "for which", "as", "since", "given that", "provided")

_FRONTED = (
    _composed(_WITH, _OWN, ("{p} {v}",)),
    _composed(_WITH, _SHORT, ("{p} {v}",)),
    _composed(
        ("with", "for", "in", "at", "having", "given", "on", "using"),
        ("the", "{a}"),
        ("{p} of {v}",),
    ),
    _composed(_TAKING, ("{v}",), ("as", "for", "as", "to be", "being"), _OWN, ("{p}",)),
    _composed(("with", "having", "keeping", "given"), _OWN, ("{p}",), _SET, ("{v}",)),
)
_SIGNS = phrases("""
{p} {v} | {p}: {v} | {p} = {v} | {n}={v} | {n}: {v} | {p} -> {v} | {p}={v} | {n} = {v} |
{p} is {v} | {p} equals {v} | {v} as {p} | {v} as the {p} | {v} for {p} | {v} as its {p} |
{v} being the {p} | {v} for the {p} | the {p}: {v} | the {p} = {v} | {p} set to {v} |
the {p} set to {v} | {p} being {v} | the {p} being {v}
""")
_IN_BRACKETS = (
    *_SIGNS,
    *_composed(("the", "its", "my", "our", "their", "this", "whose"), ("{p}",), _PRESENT, ("{v}",)),
    *_composed(("{v}",), ("is", "being", "as", "must be"), ("the", "its", "my"), ("{p}",)),
    *_composed(("with", "using", "by", "has", "take", "use"), _SHORT, ("{p} {v}",)),
    *_composed(("use", "take", "put"), ("{v}",), ("as", "for"), _SHORT, ("{p}",)),
)
_PLAIN = (
    *_composed(("with", "with", "for", "using"), ("the", ""), ("{p} {v}",)),
    "in the {p} of {v}",
)
_INLINE = (
    _PLAIN,
    _PLAIN,
    *_FRONTED,
    _SIGNS,
    _composed(_HAS, _OWN, ("{p} {v}", "{p} of {v}", "{p}: {v}")),
    _composed(("whose",), ("", "own"), ("{p}",), (*_IS, "being"), ("{v}",)),
    _composed(_WHERE, ("the", "its", "my", "our", ""), ("{p}",), _IS, ("{v}",)),
    _composed(
        ("with", "using", "taking", "having"), ("{v},",), ("which is", "that is"), _OWN, ("{p}",)
    ),
    tuple(f"({text})" for text in _IN_BRACKETS) + tuple(f"[{text}]" for text in _SIGNS),
)

_PLEASE = ("", "", "please", "also", "then", "now", "and")
_WANT = ("want", "need", "have", "use", "take", "chose", "would like", "would use", "must use")
_PUT = ("use", "take", "put", "give", "choose", "enter", "pick", "pass", "go with", "stay with")
_ASSIGN = (
    *pairs("set / to | put / at | keep / at | let / be | have / be | leave / at"),
    *pairs("give / as | enter / as | choose / as"),
    *(("make", ""), ("use", ""), ("take", "")),
)
_MEANT = phrases("""
use | take | put | give | choose | enter | please use | please take | I have | we have | I want |
we want | it is | that is | you can use | we use | I mean
""")
_STATED = (
    _composed(
        ("the", "its", "my", "our", "their", "this", "your", "and the", "then the", "also, the"),
        ("{p}",),
        (*_IS, "is to be", "needs to be", "ought to be", "is set to", "was", "is now", "can be"),
        ("{v}",),
    ),
    tuple(
        text
        for verb, link in _ASSIGN
        for text in _composed(_PLEASE, (verb,), _OWN[:-2], ("{p}",), (link,), ("{v}",))
    ),
    _composed(_PLEASE, _PUT, ("{v}",), ("as", "for", "as", "to be"), _OWN, ("{p}",)),
    _composed(("", "so", "then", "now"), ("{v}",), _IS[:-1], _OWN[:-1], ("{p}",)),
    _composed(("{v}",), ("is what",), ("the", "its", "my", "our"), ("{p}",), _IS[:-1]),
    _composed(("what",), ("the", "its", "my", "our"), ("{p}",), _IS[:-1], ("is {v}",)),
    _composed(("I", "we", "they"), _WANT, ("{v}",), ("as", "for", "to be"), _OWN, ("{p}",)),
    _composed(("I", "we", "they"), ("want", "need", "would like"), _OWN, ("{p} to be {v}",)),
    _composed(
        ("it", "this", "that one"),
        ("has", "needs", "comes with", "takes", "goes by", "must have", "should have"),
        ("the {p} {v}", "{a} {p} of {v}", "{v} as the {p}", "{v} for its {p}", "{p} {v}"),
    ),
    _composed(("for", "as", "with"), _OWN, ("{p},",), _MEANT, ("{v}",)),
    _composed(("for", "as"), _OWN, ("{p}: {v}",)),
    (
        *("{P}: {v}", "{P} = {v}", "{P} -> {v}", "{n}: {v}", "{n} = {v}"),
        *_composed(("{P}",), _IS, ("{v}",)),
    ),
)

_TRUTHS = pairs("""
true / false | on / off | turned on / turned off | switched on / switched off |
set to true / set to false | = true / = false | as true / as false | being true / being false |
enabled / disabled | given as true / given as false
""")
_BEING = pairs("""
is true / is false | must be true / must be false | equals true / equals false |
should be true / should be false | has to be true / has to be false | is yes / is no |
is set to true / is set to false | will be true / will be false
""")
_THERE = pairs("""
is on / is off | must be on / must be off | should be on / should be off |
is wanted / is not wanted | is needed / is not needed | is included / is not included |
must be there / must not be there | should be used / should not be used |
must be used / must not be used
""")
_MARKS = (
    *pairs("""
{p}: yes / {p}: no | {p}: true / {p}: false | {n}=true / {n}=false | {n}: true / {n}: false |
{p} -> true / {p} -> false | {p} yes / {p} no
"""),
    *(("({p}: yes)", "({p}: no)"), ("({p} = true)", "({p} = false)")),
    *_paired(("", "the", "its"), ("{p}",), _TRUTHS),
)
_SO = ("where", "so that", "such that", "and", "as", "but", "given that")
_FLAGS_INLINE = (
    *(("with {p}", "without {p}"),) * 12,
    *_paired(
        pairs("""
with / without | including / excluding | using / not using | having / not having | plus / minus |
needing / not needing | and with / and without | but with / but without | taking / not taking |
including / not including | but including / but not including
"""),
        ("", "the", "its", "our"),
        ("{p}",),
    ),
    *_paired(("with", "having", "keeping"), ("", "the", "its"), ("{p}",), _TRUTHS),
    *_paired(_SO, ("", "the"), ("{p}",), (*_BEING, *_THERE)),
    *_MARKS,
)
_STATES_INLINE = (
    *_paired(
        pairs("""
which is / which is not | that is / that is not | being / not being | and it is / and it is not |
so that it is / so that it is not | making it / not making it | keeping it / not keeping it |
which must be / which must not be | which should be / which should not be |
that must be / that must not be | that should be / that should not be | to be / not to be |
as / as not | and it must be / and it must not be | so that it will be / so that it will not be |
as it must be / as it must not be
"""),
        ("{p}",),
    ),
    *_paired(("with", "having", "keeping"), ("", "the", "its"), ("{p}",), _TRUTHS),
    *_paired(_SO, ("{p}",), _BEING),
    *_MARKS,
)
_SET_TRUTH = (
    *_paired(
        _PLEASE,
        pairs("""
set {p} to true / set {p} to false | let {p} be true / let {p} be false |
put {p} at true / put {p} at false | make {p} true / make {p} false |
have {p} be true / have {p} be false | keep {p} true / keep {p} false |
set the {p} to true / set the {p} to false | set {p} to yes / set {p} to no
"""),
    ),
    *_paired(("{P}",), _BEING),
    *_paired(("the {p}", "its {p}", "my {p}", "our {p}"), _BEING),
    *pairs("""
{P}: true / {P}: false | {P}: yes / {P}: no | {P}, yes / {P}, no | {P} = true / {P} = false |
{n}: true / {n}: false | {P} yes / {P} no
"""),
)
_FLAGS_STATED = (
    *_paired(
        ("I", "we", "they", "you"),
        pairs("""
want / do not want | need / do not need | would like / would not like | want / don't want |
asked for / did not ask for | use / do not use | should have / should not have |
must have / must not have
"""),
        ("", "the", "our"),
        ("{p}",),
    ),
    *_paired(
        ("it", "this"),
        pairs("""
has / has no | needs / needs no | comes with / comes without | needs / does not need |
must have / must not have | goes with / goes without | should have / should have no |
takes / takes no | will have / will have no | will need / will need no |
will come with / will come without
"""),
        ("{p}",),
    ),
    *_paired(
        ("there",),
        pairs("""
is / is no | should be / should be no | must be / must be no | will be / will be no |
has to be / can be no
"""),
        ("{p}",),
    ),
    *_paired(
        _PLEASE,
        pairs("""
turn {p} on / turn {p} off | switch {p} on / switch {p} off | leave {p} on / leave {p} off |
keep {p} on / keep {p} off | include {p} / exclude {p} | use {p} / do not use {p} |
do it with {p} / do it without {p} | take {p} / do not take {p} | yes to {p} / no to {p} |
add {p} / no {p} | have {p} / have no {p}
"""),
    ),
    *_paired(("{P}", "the {p}", "our {p}", "its {p}"), _THERE),
    *_SET_TRUTH,
)
_STATES_STATED = (
    *_paired(
        ("it", "this", "that one"),
        (
            *pairs("""
is / is not | must be / must not be | should be / should not be | is to be / is not to be |
will be / will not be | has to be / cannot be | needs to be / must not be
"""),
        ),
        ("{p}",),
    ),
    *_paired(
        _PLEASE,
        pairs("""
make it / do not make it | make this / do not make this | leave this / do not leave this |
have this / do not have this | keep it / do not keep it | let it be / do not let it be |
have it / do not have it | let this be / let this not be | let that one be / let that one not be |
may it be / may it not be | treat it as / treat it as not
"""),
        ("{p}",),
    ),
    *_paired(
        ("I", "we", "they"),
        pairs("""
want it / do not want it | need it / do not need it | want it to be / do not want it to be |
would like it / would not like it
"""),
        ("{p}",),
    ),
    *_SET_TRUTH,
)

_ROLES = phrases("""
boss | sister | brother | friend | colleague | neighbour | mother | father | uncle | aunt | wife |
husband | son | daughter | assistant | cousin | lawyer | landlord
""")
_MANY = phrases("""
I | we | you | they | all of us | some of us | people here | my parents | I now | we now
""")
_ONE = ("someone", "somebody", "{x}", "someone here", "everyone", "my {o}", "one of us", "the {o}")
_SOMEONE = (*_ONE[:-1], *_composed(("my", "our", "her", "his"), _ROLES))
_DO = ("must", "should", "have to", "need to", "want to", "would like to", "hope to", "ought to")
_DOES = phrases("""
must | should | has to | needs to | wants to | would like to | hopes to | ought to
""")
_ASKS = phrases("""
wants you to | needs you to | asks you to | expects you to | would like you to | told me to |
asked me to | told you to | hopes you can | hopes you will | must ask you to | asked if you can |
asked if you could | asks whether you can | wants me to | told us to | has to ask you to |
would be glad if you could | needs someone to | said you should
""")
_ASK = phrases("""
want you to | need you to | ask you to | expect you to | would like you to | trust you to |
hope you can | hope you could | hope you will | think you should | think you can |
hope that you can | must ask you to | have to ask you to | wonder if you can |
wonder if you could | would ask you to | hope someone can | need someone to
""")
_CAN = phrases("""
can you | could you | would you | will you | can you | could you | might you | can someone |
could someone | could somebody | can we | could we | shall we | must I
""")
_IS_IT = (
    *_composed(
        ("is it", "would it be", "might it be"),
        ("possible", "okay", "all right", "possible for you", "too much"),
        ("to",),
    ),
    *_composed(
        ("would you be", "are you"), ("able to", "so kind as to", "so nice as to", "ready to")
    ),
    *("could you be so kind as to", "would you be kind enough to", "may I ask you to"),
    *_composed(
        ("any", "is there any", "is there a", "do we have any"),
        ("way", "chance", "hope"),
        phrases("""
to | you can | you could | that you can | that you could | for you to | someone can
"""),
    ),
    *_composed(
        ("do you think", "any idea if", "I wonder if"), ("you can", "you could", "someone can")
    ),
)
_IF_YOU = _composed(("if you", "if someone", "if you please"), ("can", "could", "would"))
_GLAD = (
    *_composed(
        ("I'd be", "I would be", "we'd be", "we would be", "they'd be"),
        ("glad", "happy", "grateful", "so glad"),
        _IF_YOU,
    ),
    *_composed(("it would be", "it'd be"), ("nice", "kind", "good of you", "so kind"), _IF_YOU),
)
_ITS_TIME = phrases("""
it is time to | it's time to | time to | now it is time to | it is necessary to |
it would be nice to | I was told to | I was asked to | we were told to | we were asked to |
I am supposed to | I am here to | I came to | I am trying to | we are trying to |
they are trying to | someone is trying to | let's | let us | now let us | I am going to |
we are going to | what I need is to | what we want is to | all I want is to |
what someone must do is | all you have to do is | we try to | I will try to
""")
_KINDLY = phrases("""
kindly | now | just | quickly | simply | do | please do | now do | do please | go and |
go ahead and | try to | try and | please try to | now try to | be so good as to |
be so nice as to | please be so kind as to | be so kind and | be kind and | be good and |
be nice and | be kind enough to | then | next | so | first | now please | and now | please just |
just go and | so please | please now | someone please | so now | and then
""")
_TAILS = phrases("""
please | for me | now | for us | for me please | right now | at once | today | today please
""")
_COMMA_TAILS = phrases("""
please | thanks | thank you | will you | would you | if you can | if possible | right away |
at once | as soon as you can | as soon as possible | for my {o} | many thanks | for me | today |
and thanks | and thank you | so that {x} can go
""")
_IMPERATIVE = (".", ".", "", "!")
_ASIDES = phrases("""
if you can | if you could | if possible | if it is possible | when you can | first |
when you have time | as soon as you can | as soon as possible | as soon as it is possible |
first of all | next | then | now | today | this time | once more | again | so | well | okay |
all right | when it is possible | if there is time | for a start | once again
""")
_OPENINGS = (
    *_ended(_IMPERATIVE, ("{w}",), ("please {w}",), _composed(_KINDLY, ("{w}",))),
    *_ended(
        ("?", "?", "?", ""), _composed(_CAN, ("", "", "please", "kindly", "just", "now"), ("{w}",))
    ),
    *_ended(("?", "?", "?", ""), _composed(_CAN, ("{w}",), _TAILS), _composed(_IS_IT, ("{w}",))),
    *_ended(
        (".", ""),
        _composed(_MANY, _DO, ("{w}",)),
        _composed(_ONE, _DOES, ("{w}",)),
        _composed(_SOMEONE, _ASKS, ("{w}",)),
        _composed(("I", "we", "they", "I now", "we all"), _ASK, ("{w}",)),
        _composed((*_GLAD, *_ITS_TIME), ("{w}",)),
    ),
    *_ended(
        _IMPERATIVE,
        _composed(
            tuple(f"{aside}," for aside in (*_ASIDES, "if you please")),
            ("", "please", "just"),
            ("{w}",),
        ),
        _composed(("", "please", *_KINDLY), ("{w}",), _TAILS),
        _composed(("", "please", *_KINDLY), ("{w},",), _COMMA_TAILS),
    ),
)

_HELLO = phrases("""
hi | hello | hey | good morning | good evening | hi there | hello there | hello again | hi again |
hey there | dear assistant | hello tiny | good day | hi, my friend
""")
_WHO = phrases("""
the {o} | my {o} | our {o} | her {o} | {x} | someone | somebody | my boss | my sister
""")
_NEEDS = phrases("""
is away | is gone | is waiting | is here | is not here | needs it | wants it | forgot it |
asked for it | needs it now | is waiting for it | cannot wait | has no time | said so |
is in need of it | asked me for it | will not wait | is waiting for me | is here and waiting |
has come and needs it | came here and wants it | is away and needs it
""")
_WE_NEED = _composed(
    ("I", "we", "they"),
    phrases("""
need it | want it | need it now | need it today | want it today | have no time | asked for it
"""),
)
_BECAUSE = ("because", "since", "as", "now that", "for")
_BEFORE = (
    *_ended((", ", "! ", ". "), _HELLO),
    *_ended((", ",), _ASIDES, _composed(_BECAUSE[:-1], _WHO, _NEEDS), _composed(_HELLO, _ASIDES)),
    *_ended((". ", "! ", ": "), _composed(_WHO, _NEEDS)),
    *_ended(
        (": ", ". "),
        phrases("""
I have a request | one request | one more thing | another thing | a request | one thing |
here is what I need | this is what I want | here is another thing | here is my request |
here is what we need | this is my request | a thing for you
"""),
    ),
)
_THANKS = (
    *_composed(
        phrases("""
thanks | thank you | many thanks | thanks again | thank you so much | thank you again
"""),
        ("", "", "in advance", "for it", "for your time", "from us all"),
    ),
    *phrases("""
please | that is all | that's all | I am waiting | we are waiting for it | please be quick |
I need it now | I need it today | we need it today | thanks, {x} | be quick, please
"""),
    *_composed(
        ("it is for", "this is for", "it's for", "we need it for", "I want it for"),
        ("{x}", "my {o}", "our {o}", "the {o}", "my sister"),
        ("", "", "again", "today"),
    ),
    "I am in need of it",
)

_ALL = Wordings(
    descriptions=(
        *phrases("""
{verb} {a} {noun} | {verb} {a} {noun}. | {verb} the {noun}. | {verb} this {noun} |
{verb} one {noun} of the user. | {noun}: {verb} it. | {noun}: {verb} it here |
{verb} {a} {noun} by {p}. | {verb} {a} {noun} with its {p} | {verb} any {noun}. |
Can {verb} {a} {noun}, given the {p}. | {verb} some {noun} here. | {verb} a given {noun} |
Here you can {verb} {a} {noun}. | With this you can {verb} {a} {noun}. |
A function to {verb} it: {noun} | The function for you to {verb} any {noun}. |
You {verb} {a} {noun} here. | Call this to {verb} any {noun}
"""),
        *_composed(
            ("Use this to", "Lets you", "This tool can", "Call it to", "Helps to", "Can", "Will"),
            ("{verb}",),
            ("{a}", "the", "any", "some", "a given", "this", "one"),
            ("{noun}", "{noun}."),
        ),
        *_composed(
            ("A tool to", "A function that can", "This function will", "To", "You can use it to"),
            ("{verb}",),
            ("{a}", "the", "one", "a given", "this"),
            ("{noun}", "{noun}.", "{noun} here", "{noun} for you."),
        ),
        *_composed(
            ("To", "If you want to"),
            ("{verb}",),
            ("the", "{a}"),
            ("{noun},",),
            ("call it.", "use this."),
        ),
    ),
    parameter_descriptions=phrases("""
The {p} | {P} of the {noun} | {P} | {P} to use | Which {p} | the {p} | {P}, as given |
{P} of this {noun}. | The {p} that is wanted | Give the {p} | What {p} to use |
What {p} is wanted | What {p} the {noun} has | Which {p} it has | The {p} it has |
{P} for this {noun} | {P} for a {noun} | {P} for it | Its {p} to use | Its own {p} |
Which {p} it needs | {P} it must have | What {p} it takes | Its {p}, if any | The {p} as given |
{P} that it has | {P} as it is | {P} for one {noun} | {P} given for the {noun} |
{P} given for it | {P} as wanted | What is the {p} | What its {p} is
"""),
    flag_descriptions=phrases("""
Whether to use {p} | {P} or not | Whether {p} is wanted | With or without {p} |
If true, with {p} | True if {p} is wanted | True if it has {p} | If it needs {p} |
True if there is {p} | Whether it needs {p} | If true, it needs {p} | Should it have {p} |
If there should be {p} | Whether there should be {p} | Should {p} be used | Is there {p} |
Should there not be {p} | Should it be with {p} | True if there should be {p}
"""),
    state_descriptions=phrases("""
Whether it is {p} | {P} or not | True if {p} | If the {noun} should be {p} | Is it {p} |
Is this {noun} {p} | Is a {noun} {p} | Should the {noun} be {p} | True if the {noun} is {p} |
Whether it should be {p} | If it should be {p} | Should this be {p} | Is your {noun} {p} |
Whether the {noun} is {p} | True if it should be {p} | Should it not be {p} |
Should its {noun} be {p} | Is that {noun} {p} | Is it to be {p} | Is the {noun} to be {p} |
Is the one {noun} {p}
"""),
    determiners=(
        *("the", "the", "the", "the", "{a}", "{a}", "{a}", "my", "my", "our", "this", "that"),
        *("her", "his", "their", "your", "{x}'s", "", "", "some", "one"),
    ),
    openings=_OPENINGS,
    before=_BEFORE,
    reasons=(*_composed(_BECAUSE, _WHO, _NEEDS), *_composed(_BECAUSE, _WE_NEED)),
    closings=_THANKS,
    questions=(
        *("what is the {noun} {d}?",) * 8,
        *("what's the {noun} {d}?", "what is the {noun} like {d}?", "how is the {noun} {d}?") * 3,
        *_composed(
            ("what is", "what's", "how is", "do you know", "can you tell me", "do we know"),
            ("the", "my", "our", "this", "her", "their"),
            ("{noun} {d}?",),
        ),
        *_composed(
            ("tell me", "I want to know", "give me", "I need", "I wonder about", "let me know"),
            ("the", "my", "our", "this", "his", "their"),
            ("{noun} {d}.", "{noun} {d}"),
        ),
        *_composed(
            ("which", "what", "which other"),
            ("{noun}",),
            ("is there", "do we have", "was it", "is that"),
            ("{d}?",),
        ),
        *_composed(
            ("I wonder", "tell me", "I want to know", "do you know", "say"),
            ("what", "how"),
            ("the", "this", "our"),
            ("{noun} is {d}.", "{noun} was {d}", "{noun} is like {d}."),
        ),
        *_composed(
            ("I wonder", "tell me", "I want to know"),
            ("which", "what"),
            ("{noun}",),
            ("it is {d}.", "is there {d}.", "it was {d}.", "there is {d}.", "there was {d}."),
        ),
    ),
    inline=_INLINE,
    fronted=_FRONTED,
    nameless={
        "city": ("in {v}", "near {v}", "from {v}", "over in {v}", "right in {v}", "at {v}"),
        "date": ("on {v}", "by {v}", "for {v}"),
        "time": ("at {v}", "by {v}", "right at {v}"),
        "email": ("to {v}", "from {v}"),
        ENUM: ("in {v}", "({v})", "as {v}", "with {v}", "being {v}"),
    },
    statements=_STATED,
    items=(
        *phrases("""
{p}: {v} | {p}: {v} | {p}: {v} | {P}: {v} | {P}: {v} | {n}: {v} | {n} = {v} | {n}={v}
"""),
        *_composed(
            ("", "the", "its", "my", "this", "our"),
            ("{p}",),
            phrases("""
= {v} | {v} | is {v} | -> {v} | being {v} | should be {v} | must be {v} | equals {v}
"""),
        ),
        *("the {P}: {v}", "its {p}: {v}", "my {p}: {v}", "our {p}: {v}", "{v} ({p})", "({v}) {p}"),
        *_composed(("{v}",), ("as", "for", "being", "is"), ("", "the", "its", "my"), ("{p}",)),
    ),
    bullets=("\n- ", "\n- ", "\n+ ", "\n  ", "\n* ", "\n", "; ", ", ", "\n\t", "\n• ", "\n  - "),
    leads=(
        *(":",) * 8,
        *_composed(
            ("", "use", "take", "here is", "this is"),
            ("the following:", "what you need:", "what to use:", "what I have:", "all I know:"),
        ),
        *_composed(
            ("with", "using", "taking", "for", "given"),
            phrases("""
this: | the following: | these values: | these: | what follows: | these details:
"""),
        ),
        *_composed(
            phrases("""
 | the | my | use these | here are the | here are all | these are the | take the
"""),
            ("details:", "values:", "facts:", "following values:", "details as follows:"),
        ),
    ),
    bare=(
        # What is said most is plain.
        *phrases("{v} | {v} | {v} | for {v} | with {v} | called {v} | using {v} | ({v})") * 5,
        *_composed(
            ("", "just", "only", "right", "simply", "now"),
            ("for", "with", "by", "using", "called", "from", "taking", "at", "of", "given", "on"),
            ("{v}",),
        ),
        *("just {v}", "only {v}", "known as {v}", "as {v}", "under {v}"),
        *_composed(
            ("which is", "that is", "being"), ("", "only", "just", "simply", "called"), ("{v}",)
        ),
    ),
    bare_city=(
        *phrases("in {v} | in {v} | in {v} | for {v} | at {v} | near {v} | of {v}") * 10,
        *_composed(
            ("", "just", "right", "over", "here", "somewhere", "only", "out"),
            ("in", "in", "for", "at", "near", "of", "around", "from"),
            ("{v}",),
        ),
    ),
    flags_inline=_FLAGS_INLINE,
    flags_stated=_FLAGS_STATED,
    states_inline=_STATES_INLINE,
    states_stated=_STATES_STATED,
    joiners=(
        *(" ", " ", "\n", "\n\n", "\n2. "),
        *(
            f"{start}{text} "
            for start in " \n"
            for text in phrases("""
Then: | Then | And then: | Also: | Second: | Also, | Afterwards | Then, afterwards: | Next |
And afterwards: | Afterwards, | Next, | And next: | As well as that: | And as well: | Now: |
This as well: | After that: | Now, | After that, and now: | And after that | Then afterwards |
Then, next: | Now next: | Also this: | And also: | And now this: | Besides,
""")
        ),
    ),
    by_name=tuple(
        text + " "
        for text in (
            *_composed(
                phrases("""
Use | Call | Run | Invoke | Apply | Please use | Please call | Please invoke | I want
"""),
                ("{t}", "{t} now", "the tool {t}"),
                ("with", "using", "for"),
            ),
            *("Use {t}:", "Call {t}:", "Run {t},", "{t}:", "{t} with", "{t},"),
            *("Please apply {t}:", "Now apply {t}:", "Now invoke {t},", "Apply {t} now:"),
            "Invoke {t} now,",
        )
    ),
    systems=(
        *phrases("""
You are tiny, a small model. | Answer shortly. | Be brief and exact. | Help well and fast.
"""),
        *_composed(
            ("You are", "You help as", "Be"),
            ("a helpful", "a good", "a brief", "an exact", "an"),
            phrases("""
assistant. | assistant of a small shop. | assistant for a firm. | assistant for the user.
"""),
        ),
        *("You help the user of a small shop.", "Help the user.", "Help the user of a firm well."),
        *("You help a small firm.", "Help all users well.", "Serve the user well."),
    ),
)


def _without_held_out(wordings: Wordings) -> Wordings:
    taken: dict[str, set[str]] = {}
    for part, frame in HELD_OUT.wordings.frames():
        if frame_words(frame):
            taken.setdefault(part.split()[0], set()).add(wording_key(frame))
    kept = {
        field.name: _kept(getattr(wordings, field.name), taken.get(field.name, set()), field.name)
        for field in fields(wordings)
        if field.name not in ("determiners", "nameless")
    }
    return replace(wordings, **kept)


def _kept(value: tuple[Any, ...], taken: set[str], name: str) -> tuple[Any, ...]:
    if name in PAIRED:
        return tuple(pair for pair in value if not taken & {wording_key(half) for half in pair})
    return tuple(
        item if isinstance(item, str) else _kept(item, taken, name)
        for item in value
        if not (isinstance(item, str) and wording_key(item) in taken)
    )


WORDINGS = _without_held_out(_ALL)
