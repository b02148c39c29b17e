"""What the composed families of arithmetic problems say and ask, operation by operation.

Every operation is said in hundreds of ways, in two sentences, with the noun left out, and the same
verbs add or take according to what the problem starts with and asks for. The parts are in
`arithmetic_parts.py`. All questions are answered in one form.
"""

from __future__ import annotations

from typing import TypeAlias

from training.tiny.data.arithmetic_frames import (
    Frame,
    Pattern,
    Question,
    QuestionPattern,
    acts,
    add,
    add_groups,
    ask,
    difference,
    fewer,
    goal,
    groups,
    more,
    note,
    share_as,
    split,
    start,
    take,
    take_groups,
    times,
    times_as,
    total,
)

_ANSWER = "The answer is {x} {things}."
_ANSWER_BOXES = "The answer is {x} {boxes}."

_Clauses: TypeAlias = tuple[Frame | Pattern, ...]
_Questions: TypeAlias = tuple[Question | QuestionPattern, ...]


def _asks(text: str, answer: str = _ANSWER) -> _Questions:
    return tuple(ask(line.strip(), answer) for line in text.strip().splitlines())


def _totals(text: str) -> _Questions:
    return tuple(total(line.strip(), _ANSWER) for line in text.strip().splitlines())


def _differences(text: str) -> _Questions:
    return tuple(difference(line.strip(), _ANSWER) for line in text.strip().splitlines())


# Somebody's things.

OWNS: _Clauses = (
    start("{A} [<own> <owned>"),
    start("{A} [<own> <owned>"),
    start("{A} [<get> {n} {things}]"),
    start("{A} [<get> <owned>"),
    start("{A} [<first> {n} {things}]"),
    start("{A} [<first> {n} {things}] <where>"),
    start("<People> [~find {n} {things}] and ~give them all to {A}"),
    start("There [are {n} {things}] <where>, and all of them are {A}'s"),
    start("At first {A} [<own> <owned>"),
    start("The number of {A}'s {things} [is {n}]"),
    start("[{n} {things} ~are] {A}'s"),
    start("{A}'s {box} [<hold> {n} {things}]"),
    start("In {A}'s {box} there [are {n} {things}]"),
)
OWNS_GROUPS: _Clauses = (
    groups("{A} <own> <groups>"),
    groups("{A} <get> <groups>"),
    groups("<Groups>, and all of it is {A}'s"),
    groups("{A} has {boxes} with [{b} {things} in each. There are {a} of them]"),
    groups("{A} has [{a} {boxes}. {He} puts {b} {things} in each]"),
    groups("{A} has [{a} {boxes} and puts {b} {things} in <each> {box}]"),
    groups("{A} fills [{a} {boxes} with {b} {things} each]"),
    groups("{A} fills [{a} {boxes}, each with {b} {things}]"),
    groups("{A} <own> [{a} dozen {things}]", 12),
    groups("<Rate>"),
    groups("{A} <does> <rate>"),
)
GAINS: _Clauses = (
    add("{A} [<get> <gain>"),
    add("{A} [<get> <gain>"),
    add("{A} [<get> <gain> from <somebody>"),
    add("{A} [<get> <gain> <where>"),
    add("After <event> {A} [<get> <gain>"),
    add("After <event> {A} [has {n} more]"),
    add("After <event> {A} [has {n} more {things}]"),
    add("After <event> {A} [has another {n}]"),
    add("From <somebody> {A} [<get> <gain>"),
    add("<Somebody> [<give> {him} <gain>"),
    add("<Somebody> [<give> {A} <gain>"),
    add("<Somebody> [has <gain> for {A} and gives them to {him}"),
    add("<Somebody> [lets {A} have <gain>"),
    add("[<arriving> <come>]"),
    add("[<arriving> <come>] <where>"),
    add("[<arriving> ~come] from <somebody>"),
    add("[<arriving> ~are given] to {A} by <somebody>"),
    add("<People> [~bring {A} <gain>"),
    add("<People> [~give {him} <gain>"),
    add("<People> [~collect <gain> for {him}"),
    add("<People> [~make {A} <gain>"),
    add("{A} [<get> a dozen]", 12),
    add("{A} looks <where> and [finds <gain>"),
    add("{A} works hard and [<get> <gain>"),
    add("The next day {A} [<get> <gain>"),
    add("When it gets late {A} [<get> <gain>"),
    add("The wind [brings <gain>"),
)
# Things bought and sold, told without what was paid for them.
GOODS_TRADED: _Clauses = (
    add("{A} [buys <gain> at the market"),
    add("{A} [buys <gain> from <somebody>"),
    add("{A} [buys {n} more {things}] with the money"),
    add("{A} [buys {n} {things}] for a low price"),
    add("<Somebody> [sells {A} <gain>"),
    add("<Somebody> [sells {n} more {things}] to {A}"),
    add("{A} pays for [another {n} {things}] and takes them home"),
    take("{A} [sells <lost> at the market"),
    take("{A} [sells <lost> to <somebody>"),
    take("{A} [sells {n} {things}] for a good price"),
    take("{A} [sells {n} of them] for some money"),
    take("<Somebody> [buys {n} {things}] from {A}"),
    take("<Somebody> pays {A} well and [gets {n} of the {things}]"),
    take("<People> [~buy {n} {things}] from {A}"),
    take("[{n} {things} ~are sold] for a good price"),
)
# What is bought with its boxes, on the way to a goal or not.
PURCHASES: _Clauses = (
    add_groups("{A} [buys] [{a} packs of {b} {things} each]"),
    add_groups("{A} [buys] [{a} packs with {b} {things} in each]"),
    add_groups("{A} [buys] [{a} bags, each with {b} {things}]"),
    add_groups("{A} [gets] [{a} packets of {b} {things}] in a shop"),
    add_groups("{A} [orders] [{a} boxes of {b} {things}]"),
    add_groups("In the shop {A} [buys] [{a} times {b} {things}]"),
    add_groups("<Somebody> [<give> {him}] [{a} bags of {b} {things}]"),
    add_groups("<Somebody> [buys] [{a} packs of {b} {things}] for {A}"),
    add("{A} [buys <gain>"),
    add("{A} [buys <gain> from <somebody>"),
    add("{A} [finds <gain> <where>"),
    add("<Somebody> [<give> {him} <gain>"),
    add("<Somebody> [buys <gain> for {him}"),
)
# Where {box} holds things, more of them may lie in another.
MORE_ELSEWHERE: _Clauses = (
    add("In another {box} {A} [has {n} more]"),
    add("In a second {box} {A} [has {n}]"),
    add("In another {box} there [are {n} {things}]"),
    add("{A} also [has {n} {things}] in a {box}"),
    add("{A} also [has {n}] <where>"),
    add("[{n} more of {A}'s {things} ~are] in a {box}"),
)
LOSSES: _Clauses = (
    take("{A} [<lose> <lost>"),
    take("{A} [<lose> <lost>"),
    take("{A} [<lose> <lost> <where>"),
    take("After <event> {A} [<lose> <lost>"),
    take("{A} [<hand over> <lost> to <somebody>"),
    take("To <somebody> {A} [<hand over> <lost>"),
    take("{A} [gives <somebody> <lost>"),
    take("{A} [lets <somebody> have <lost>"),
    take("<Stranger> [<take> <lost>"),
    take("<Somebody> [gets {n} of them] from {A}"),
    take("<Somebody> [<take> {n} of {A}'s {things}]"),
    take("<People> [~take <lost>"),
    take("<People> [~eat <lost>"),
    take("<People> [~buy {n} of them] from {A}"),
    take("[<some of them> <go>]"),
    take("[<some of them> <go>] <where>"),
    take("[<some of them> ~are taken] by <somebody>"),
    take("{A} does not need [<some of them> and gives them away]"),
    take("<Somebody> needs [<some of them> and gets them] from {A}"),
    take("{A} sees that [<some of them> ~are broken] and throws them away"),
    take("[<some of them> ~are bad], so {A} throws them away"),
    take("[<some of them> ~are rotten and thrown away]"),
    take("[{n} <spoiled> {things} ~are thrown away]"),
    take("[{n} <spoiled> {things} <go>]"),
    take("{A} [throws away {n} <spoiled> {things}]"),
    take("[<some of them> ~are rotten], and {A} throws them away"),
    take("The next day {A} [<lose> <lost>"),
    take("When it gets dark {A} [<lose> <lost>"),
    take("The wind [blows away <some of them>]"),
    take("The wind [takes <some of them>]"),
    take("{A} [gives away a dozen]", 12),
    take("{A} keeps [all but {n} of them]"),
)
HALVINGS: _Clauses = (
    split("{A} [<lose> half] of them", 2),
    split("{A} [gives half] of <all> to <somebody>", 2),
    split("{A} keeps only [half] of them", 2),
    split("{A} keeps only [a third] of <all>", 3),
    split("Only [half of them ~are left] after <event>", 2),
    split("[half of the {things} <go>]", 2),
    split("<Stranger> [takes half] of <all>", 2),
    split("<Stranger> [buys half] of <all>", 2),
    split("A shop [buys half] of <all> from {A}", 2),
)
CHANGES_BY_FACTOR: _Clauses = (
    times("{A} works hard and [doubles] the number", 2),
    times("{A} [doubles] the number of {things}", 2),
    times("{A} [triples] {his} number of {things}", 3),
    times("After <event> {A} [has {k} times as many]"),
    times("After <event> {A} [has twice as many {things}]", 2),
    times("Soon there [are {k} times as many {things}]"),
    times("Soon there [are three times as many of them]", 3),
    times("The number of {things} [doubles] after <event>", 2),
    times("The number [triples]", 3),
    *HALVINGS,
)
SHARED_WITH_ONE: _Clauses = (
    split("{A} <share> <all> equally with <stranger>, so {he} keeps [half]", 2),
    split("{A} <share> <all> with <stranger>. Each of them gets [half]", 2),
    split("{A} <share> <all> with {B}, and each gets [half]", 2),
    split("Together {A} and {B} ~divide <all> equally. Now {A} has [half]", 2),
    split("Later {A} and {B} ~split <all>, so that {A} has only [half] of it", 2),
    split("{A} has to share <all> equally with <stranger> and keeps only [half]", 2),
    split("{A} lets {B} have as many as {he} keeps, which is [half]", 2),
    split("<Stranger> and {A} ~share <all> equally, [half for each]", 2),
    split("<Stranger> comes and gets as many as {A} keeps, so that only [half ~are left]", 2),
    split(
        "Together {A} and <stranger> ~share <all>, and [each of the two gets the same number]", 2
    ),
)
GAINED_GROUPS: _Clauses = (
    add_groups("{A} [<get>] <more groups>"),
    add_groups("<Somebody> [<give> {him}] <more groups>"),
    add_groups("<more groups> [<come>]"),
    add_groups("After <event> {A} [<does>] <more rate>"),
    add_groups("{A} [<does>] <more rate>"),
    add_groups("<rate gained>"),
    add_groups("<rate gained>"),
)
LOST_GROUPS: _Clauses = (
    take_groups("{A} [<lose>] <lost groups>"),
    take_groups("{A} [<hand over>] <lost groups> to <somebody>"),
    take_groups("{A} [gives] [{b} {things} to each of {a} <persons>]"),
    take_groups("{A} [gives] [each of {a} <persons> {b} {things}]"),
    take_groups("[{a} <persons> ~get {b} {things} each] from {A}, who [gives] them gladly"),
    take_groups("[{a} <persons> ~come, and each takes {b} {things}] [away]"),
    take_groups("{A} [<lose>] <more rate>"),
    take_groups("<rate lost>"),
    take_groups("<rate lost>"),
    take_groups("<rate taken>"),
    take_groups("[Each of {a} <persons> gets {b}] of them from {A}, and [takes] them home"),
)
ASK_OWNED = _asks("""
    How many {things} does {A} have <now>?
    How many {things} does {A} own <now>?
    How many {things} does {A} still have?
    How many {things} does {A} have left?
    How many does {A} have <now>?
    How many of them does {A} have <now>?
    How many are left?
    How many {things} are left?
    How many {things} are left over?
    How many {things} are there <now>?
    How many are there <now>?
    How many of the {things} ~remain?
    How many {things} ~remain with {A}?
    What is the number of {things} that {A} has <now>?
    What is the number of {A}'s {things} <now>?
    What number of {things} does {A} have <now>?
    <tell> the number of {A}'s {things} <now>.
    <tell> the number of {things} that {A} has <now>.
    <tell> how many {things} {A} has <now>.
    <tell> how many {things} are left.
    <tell> how many {things} there are <now>.
    <tell> the number of {things} at the end.
    {A} has how many {things} <now>?
    {A} has how many <now>?
    The number of {things} that {A} has <now> is what?
    The number of {A}'s {things} <now> is how many?
    At the end {A} has how many {things}?
    After all this, how many {things} does {A} have?
    With how many {things} does {A} end up?
    {A} goes home with how many {things}?
    How large is the number of {A}'s {things} <now>?
    {A} counts the {things} <now>. How many are there?
    {A} wants to know how many {things} {he} has <now>. How many is it?
    How many {things} would {A} count <now>?
    So how many {things} does {A} have?
    And how many {things} does {A} have <now>?
""")

# Changes that can only be of what {A} has.
OWN_CHANGES: _Clauses = tuple(
    clause for clause in GAINS + LOSSES if "{A}" in clause.source or "{him}" in clause.source
)
# What is left when something is shared is open: only whose things are counted is asked.
ASK_OWNED_BY: _Questions = tuple(question for question in ASK_OWNED if "{A}" in question.source)

# Things at a place.

AT_PLACE: _Clauses = (
    start("There [are {n} {things}] at the {A}"),
    start("There [are {n} {things}] in the {A}"),
    start("[{n} {things} ~are] at the {A}"),
    start("At the {A} there [are {n} {things}]"),
    start("The {A} [<hold place> {n} {things}]"),
    start("A {A} [<hold place> {n} {things}]"),
    start("In the {A} [{n} {things} ~are counted]"),
    start("A man [counts {n} {things}] at the {A}"),
    start("[{n} {things} <sit>] at the {A}"),
    start("[{n} {things} <sit>] near the {A}"),
    start("[{n} {things} <sit>] in the {A}"),
    start("At the {A} [{n} {things} <sit>]"),
    start("<People> [~bring {n} {things}] to the {A}"),
    start("<People> [~find {n} {things}] at the {A}"),
)
AT_PLACE_GROUPS: _Clauses = (
    groups("The {A} <hold place> <groups>"),
    groups("At the {A} there are <groups>"),
    groups("In the {A} there are <groups>"),
    groups("[{a} {boxes} of {b} {things}] <sit> at the {A}"),
    groups("[{a} {boxes} with {b} {things} each] <sit> in the {A}"),
    groups("<People> ~bring <groups> to the {A}"),
    groups("[Each of {a} {boxes} brings {b} {things}] to the {A}"),
    groups("A {A} <makes> <rate of it>"),
    groups("The {A} <makes> <rate of it>"),
    groups("The {A} has [{a} {boxes}. One {box} holds {b} {things}]"),
    groups("The {A} has {boxes} with [{b} {things} in each. There are {a} of these {boxes}]"),
)
MADE_AT_PLACE: _Clauses = (
    groups("A {A} <makes> <rate of it>"),
    groups("The {A} <makes> <rate of it>"),
    groups("In the {A} people ~make <rate of it>"),
    groups("<Rate of it>"),
)
COMING_TO_PLACE: _Clauses = (
    groups("<Rate coming>"),
    groups("<Rate coming>"),
    groups("<People> ~bring [{b} {things} to the {A} every day. This goes on for {a} days]"),
    groups("<Each> day [the {A} gets {b} {things}. This goes on for {a} days]"),
    groups("<Each> week [a {A} gets {b} {things}. It goes on like this for {a} weeks]"),
)
PLACE_GAINS: _Clauses = (
    add("[<arriving> <come>]"),
    add("[<arriving> <come>]"),
    add("[<arriving> <come>] after <event>"),
    add("[<arriving> ~are brought] to the {A}"),
    add("After <event> [<arriving> <come>]"),
    add("The {A} [gets <gain>"),
    add("The {A} [<get place> <gain>"),
    add("It [gets <gain>"),
    add("The next day [<arriving> <come>]"),
    add("When it gets late [<arriving> <come>]"),
    add("<Stranger> [<bring> <gain>"),
    add("<Stranger> [<bring> <gain> to the {A}"),
    add("<People> [~bring <gain>"),
    add("<People> [~come with <gain>"),
    add("<People> [~find <gain>"),
    add("<People> [~collect <gain>"),
    add("<People> [~make <gain>"),
    add("<Stranger> [brings {n} {things}] home"),
    add("<Stranger> [brings another {n}] to the {A}"),
    add("<Stranger> [brings {n} more {things}] back"),
    add("<Stranger> comes home and [brings {n} {things}]"),
    add("<People> [~bring home {n} {things}]"),
    add("<People> [~bring another {n} {things}] along"),
    add("[{n} {things} ~come] from the {other}"),
    add("[{n} {things} ~come home]"),
)
PLACE_LOSSES: _Clauses = (
    take("[<some of them> <go>]"),
    take("[<some of them> <go>]"),
    take("[<some of them> <go>] after <event>"),
    take("After <event> [<some of them> <go>]"),
    take("The next day [<some of them> <go>]"),
    take("When it gets dark [<some of them> <go>]"),
    take("When it is cold [<some of them> <go>]"),
    take("[<some of them> ~are ill and ~go home]"),
    take("[{n} <weary> {things} ~go home]"),
    take("[{n} <weary> {things} ~leave] the {A}"),
    take("[{n} <spoiled> {things} ~are taken away]"),
    take("The {A} [loses <some of them>]"),
    take("The {A} [loses {n} {things}] <where>"),
    take("The {A} [sells {n} of them]"),
    take("The {A} [gives away {n} {things}]"),
    take("It [loses <some of them>]"),
    take("<Stranger> [<take> <some of them>]"),
    take("<Stranger> [<take> <some of them>] from the {A}"),
    take("<People> [~take <some of them>]"),
    take("<People> [~carry away <some of them>]"),
    take("<Stranger> [takes {n} {things}] home"),
    take("<Stranger> [takes another {n}] away from the {A}"),
    take("<Stranger> goes home and [takes {n} {things}] along"),
    take("<People> [~take home {n} {things}]"),
    take("[{n} {things} ~go] to the {other}"),
    take("[{n} {things} ~leave] for the {other}"),
    split("[half of them <go>]", 2),
    split("Only [half of the {things}] ~stay", 2),
    times("The number of {things} [doubles]", 2),
    times("After <event> the number of {things} at the {A} [doubles]", 2),
    times("Soon the number of {things} in the {A} [triples]", 3),
    times("Soon there [are {k} times as many]"),
    times("After <event> there [are {k} times as many {things}]"),
)
PLACE_GROUP_CHANGES: _Clauses = (
    add_groups("<more groups> [<come>]"),
    add_groups("<more groups> [~join] them"),
    add_groups("<more groups> [~join] the others at the {A}"),
    add_groups("<more groups> [~arrive] at the {A}"),
    add_groups("The {A} [gets] <more groups>"),
    add_groups("<Stranger> [<bring>] <more groups>"),
    take_groups("<lost groups> [<go>]"),
    take_groups("The {A} [loses] <lost groups>"),
    take_groups("<Stranger> [<take>] <lost groups>"),
    take_groups("<People> [~take away] <more rate>"),
    take_groups("<rate taken>"),
    add_groups("<rate coming>"),
)
ASK_PLACE = _asks("""
    How many {things} are at the {A} <now>?
    How many {things} are in the {A} <now>?
    How many {things} are there <now>?
    How many are there <now>?
    How many are at the {A} <now>?
    How many {things} does the {A} have <now>?
    How many {things} does the {A} hold <now>?
    How many of them ~stay at the {A}?
    How many {things} ~stay there?
    How many {things} ~live at the {A} <now>?
    How many {things} are still there?
    How many {things} are left?
    How many {things} are left at the {A}?
    How many ~remain?
    What is the number of {things} at the {A} <now>?
    <tell> the number of {things} at the {A}.
    <tell> how many {things} are at the {A} <now>.
    <tell> how many {things} the {A} has <now>.
    At the {A} there are how many {things} <now>?
    The {A} has how many {things} <now>?
    The number of {things} at the {A} <now> is what?
    Somebody counts the {things} at the {A} <now>. How many are there?
    After all this, how many {things} are at the {A}?
""")

# Money: {things} are coins and {boxes} goods.

HAS_MONEY: _Clauses = (
    start("{A} [has {n} {things}]"),
    start("{A} [has {n} {things}] to spend"),
    start("{A} [starts with {n} {things}] in a bag"),
    start("{A} [begins the day with {n} {things}]"),
    start("In {A}'s bag there [are {n} {things}]"),
    start("{A} [<earned> {n} {things}]"),
    start("{A} [has saved {n} {things}]"),
    start("{A} [goes to the market with {n} {things}]"),
    start("There [are {n} {things}] in {A}'s purse"),
    start("[{n} {things} ~are] in {A}'s pocket"),
    groups("{A} <earned> <rate>"),
    groups("{A} works [{a} hours for {b} {things} an hour]"),
    groups("{A} works [{a} days. For each day {he} gets {b} {things}]"),
    groups("{A} is paid [{b} {things} an hour and works for {a} hours]"),
    groups("{A} sells <bought>"),
    groups("{A} sells [{a} {boxes}. For each {he} gets {b} {things}]"),
    groups("<People> ~come to {A} and ~buy <bought>"),
)
MONEY_CHANGES: _Clauses = (
    add("{A} [<earned> <amount>"),
    add("{A} [<earned> <amount> from <somebody>"),
    add("<Somebody> [<give> {him} <amount>"),
    add("<Somebody> [pays {A} <amount>"),
    add("<Somebody> [pays back <amount> to {A}"),
    add("{A} [sells a {box} for {n} {things}]"),
    add("{A} [gets {n} {things}] for a {box}"),
    add("For a {box} {A} [gets {n} {things}]"),
    take("{A} [<paid> <spent>"),
    take("{A} [spends <spent> <on it>"),
    take("{A} [pays <spent> <for it>"),
    take("{A} [pays <somebody> <spent>"),
    take("{A} [gives <spent> to <somebody>"),
    take("{A} [buys a {box} for {n} {things}]"),
    take("{A} buys a {box} that [costs {n} {things}]"),
    take("A {box} [costs {him} {n} {things}]"),
    take("For a {box} {A} [pays <spent>"),
    take("On the way {A} [loses <spent>"),
    take("{A} has to [pay {n} {things}] <for it>"),
    take("<Somebody> [borrows {n} {things}] from {A}"),
    split("{A} [spends half] of the money", 2),
    times("An uncle [doubles] {A}'s money", 2),
    take_groups("{A} [buys] <bought>"),
    take_groups("{A} [spends] money on <bought>"),
    take_groups("{A} [pays] [{b} {things} for each of {a} {boxes}]"),
    take_groups("{A} [spends] <more rate>"),
    add_groups("{A} [sells] <bought>"),
    add_groups("{A} [<earned>] <more rate>"),
)
# The same goods, sold by {A} and bought by {A}.
SOLD: _Clauses = (
    add("{A} [sells <ware> for {n} {things}]"),
    add("{A} [sells <ware> for {n} {things}]"),
    add("{A} [sells <ware> to <somebody> for {n} {things}]"),
    add("{A} [sells <ware> at the market for {n} {things}]"),
    add("{A} sells <ware> and [gets {n} {things}] for it"),
    add("{A} sells <ware>. For it {he} [gets {n} {things}]"),
    add("<Somebody> [buys <ware> from {A} for {n} {things}]"),
    add("<Somebody> [pays {A} {n} {things}] for <ware>"),
    add("<Somebody> [pays {him} {n} {things}] for <ware>"),
    add("For <ware> {A} [gets {n} {things}] from <somebody>"),
    add("For <job> {A} [gets {n} {things}]"),
    add("{A} [earns {n} {things}] for <job>"),
    add("<Ware> [is sold for {n} {things}] by {A}"),
    add("<Ware> [brings {him} {n} {things}] at the market"),
    add("At the fair {A} [sells <ware> for {n} {things}]"),
    add("When {A} sells <ware>, {he} [gets {n} {things}]"),
    add_groups("{A} [sells] [{a} {boxes} for {b} {things} each]"),
    add_groups("{A} [sells] <bought>"),
    add_groups("{A} [sells] [{a} {boxes} to <somebody> for {b} {things} each]"),
    add_groups("{A} [sells] [{a} {boxes} and gets {b} {things} for each]"),
    add_groups("<Somebody> [buys] [{a} {boxes} from {A} for {b} {things} each]"),
    add_groups("{A} [gets] [{b} {things} for each of {a} old {boxes}]"),
    add_groups("{A} [earns] <more rate>"),
)
BOUGHT: _Clauses = (
    take("{A} [buys <new ware> for {n} {things}]"),
    take("{A} [buys <new ware> for {n} {things}]"),
    take("{A} [buys <new ware> from <somebody> for {n} {things}]"),
    take("{A} [buys <new ware> at the market for {n} {things}]"),
    take("{A} [pays {n} {things}] for <new ware>"),
    take("{A} [pays {n} {things}] for <expense>"),
    take("{A} [pays <somebody> {n} {things}] for <new ware>"),
    take("<Somebody> [sells {A} <new ware> for {n} {things}]"),
    take("<Somebody> [sells {him} <new ware> for {n} {things}]"),
    take("<Ware> [costs {him} {n} {things}]"),
    take("<Ware> [costs {A} {n} {things}]"),
    take("<Expense> [costs {him} {n} {things}]"),
    take("<Expense> [costs {A} another {n} {things}]"),
    take("{A} buys <new ware>. It [costs {n} {things}]"),
    take("{A} buys <new ware>, and it [costs {him} {n} {things}]"),
    take("{A} needs <new ware> and [pays {n} {things}] for it"),
    take("For <new ware> {A} [pays {n} {things}]"),
    take("For <expense> {A} [pays {n} {things}]"),
    take("For <new ware> {A} [gives <somebody> {n} {things}]"),
    take_groups("{A} [buys] [{a} {boxes} for {b} {things} each]"),
    take_groups("{A} [buys] <bought>"),
    take_groups("{A} [buys] [{a} {boxes} from <somebody> for {b} {things} each]"),
    take_groups("{A} [buys] [{a} {boxes} and pays {b} {things} for each]"),
    take_groups("<Somebody> [sells] {him} [{a} {boxes} for {b} {things} each]"),
    take_groups("{A} [pays] <more rate> for a room"),
)
# Goods that all become money.
HAS_GOODS: _Clauses = (
    start("{A} [<own> {n} {boxes}]"),
    start("{A} [<get> {n} {boxes}]"),
    start("{A} [brings {n} {boxes}] to the market"),
)
GOODS_CHANGED: _Clauses = (
    add("{A} [<get> {n} more {boxes}]"),
    add("<Somebody> [<give> {him} {n} {boxes}]"),
    take("{A} [gives {n} {boxes}] to <somebody>"),
    take("{A} [loses {n} of the {boxes}]"),
    take("[{n} {boxes} ~are broken] and thrown away"),
)
ALL_SOLD: _Clauses = (
    times("{A} [sells all {his} {boxes} for {k} {things} each]"),
    times("Then {A} [sells the {boxes} for {k} {things} each]"),
    times("<Somebody> [buys all {boxes} from {A} for {k} {things} each]"),
    times("All {boxes} [~are sold for {k} {things} each]"),
    times("For each {box} {A} [gets {k} {things}], and {he} sells them all"),
)
ASK_PROCEEDS = _asks("""
    How many {things} does {A} have <now>?
    How many {things} does {A} have from that <now>?
    How much money does {A} have <now>?
    <tell> how much money {A} has <now>.
    At the end {A} has how many {things}?
""")
ASK_MONEY = _asks("""
    How many {things} does {A} have <now>?
    How many {things} does {A} have left?
    How much money does {A} have <now>?
    How much money does {A} have left?
    How much money is left?
    How much is left?
    How many {things} are left?
    How many {things} ~remain?
    How much does {A} still have?
    What is left of the money?
    What does {A} have <now>?
    <tell> how much money {A} has <now>.
    <tell> how many {things} {A} has left.
    <tell> how much is left.
    {A} has how many {things} <now>?
    At the end {A} has how much money?
    The money that {A} has <now> is how many {things}?
    {A} counts the money <now>. How much is it?
    How many {things} are in {A}'s purse <now>?
    How much money does {A} take home?
""")
COSTS: _Clauses = (
    groups("{A} buys <bought>"),
    groups("{A} orders <bought>"),
    groups("{A} takes <bought>"),
    groups("<Bought>"),
    groups("<Bought>"),
    start("{A} buys a {box} that [costs {n} {things}]"),
    start("{A} buys a {box} [for {n} {things}]"),
    start("The price of a {box} [is {n} {things}], and {A} buys it"),
    start("A {box} [costs {n} {things}]. {A} takes it"),
)
COSTS_MORE: _Clauses = (
    add("A bag [costs {n} {things} more]"),
    add("A {other} [costs {n} {things} more]"),
    add("The {other} for it [costs another {n} {things}]"),
    add("{A} also takes a {other}, and it [costs {n} {things}]"),
    add("{A} also takes a bag [for {n} {things}]"),
    add("A bag [for {n} {things}] is put on the bill"),
    add("{A} [adds {n} {things}] for the waiter"),
    add("A drink [for {n} {things}] comes to it"),
    add("The price [goes up by {n} {things}]"),
    take("The seller [takes {n} {things} off]"),
    take("{A} [gets {n} {things} off] the price"),
    take("A coupon makes it [{n} {things} less]"),
    take("<Stranger> [pays {n} {things}] of it"),
    take("The price [goes down by {n}]"),
    add_groups("{A} also [takes] [{a} bags at {b} {things} each]"),
    add_groups("[{a} cups for {b} {things} each] [are added]"),
)
PAID_IN_ALL: _Clauses = (
    start("{A} [has {n} {things}]"),
    start("Some {boxes} [~cost {n} {things}]"),
    start("The price of some {boxes} [is {n} {things}]"),
    start("{A} [has {n} {things}] for some {boxes}"),
    start("{A} wants some {boxes} [for {n} {things}]"),
)
PRICE_CHANGES: _Clauses = (
    add("The price [goes up by {n} {things}]"),
    add("<Somebody> [adds {n} {things}]"),
    add("[{n} {things} ~are added]"),
    add("The price [gets {n} {things} higher]"),
    take("The price [goes down by {n}]"),
    take("A coupon makes it [{n} {things} less]"),
    take("[{n} {things} ~are taken off]"),
    take("<Somebody> [takes away {n} {things}]"),
)
ALL_ALIKE: _Clauses = (
    split("For that {A} buys [{k} {boxes}], all at the same price"),
    split("For that {A} gets [{k} {boxes} with the same price]"),
    split("For all that {A} buys [{k} {boxes}]. All have the same price"),
    split("That is the price of [{k} equal {boxes}]"),
    split("That is paid for [{k} {boxes}] of the same kind"),
    split("There are [{k} {boxes}], and each costs the same"),
    split("[{k} {boxes} ~cost] as much as that, and each costs the same"),
)
ASK_PRICE_OF_ONE = _asks("""
    How much does one {box} cost?
    How much does each {box} cost?
    How many {things} does one {box} cost?
    How many {things} is that for each {box}?
    What is the price of one {box}?
    What does one {box} cost?
    What does a single {box} cost?
    <tell> the price of one {box}.
    <tell> how much one {box} costs.
    One {box} costs how many {things}?
""")
NOTES: _Clauses = (
    note("{A} [pays with {n} {things}]"),
    note("{A} [pays with a note of {n} {things}]"),
    note("{A} [gives the seller {n} {things}]"),
    note("{A} [gives a note of {n} {things}]"),
    note("{A} [hands over {n} {things}]"),
    note("The seller [gets {n} {things}] from {A}"),
    note("The seller [gets a note of {n}]"),
    note("{A} [has a note of {n} {things}] and pays with it"),
    note("{A} [puts {n} {things}] on the table to pay"),
    note("{A} [has {n} {things}] with {him} and pays with them all"),
    note("{A} [has {n} {things}] in {his} pocket and pays with that"),
    note("{A} [takes {n} {things}] out of a bag and pays with it"),
    note("{A} [pays with {n} {things}] from {his} aunt"),
)
ASK_CHANGE = _asks("""
    How many {things} does {A} get back?
    How much does {A} get back?
    How much money does {A} get back?
    How much change does {A} get?
    How much is the change?
    What is the change?
    <tell> how much {A} gets back.
    <tell> the change.
    How many {things} does the seller give back?
    The seller gives back how much?
    {A} gets back how many {things}?
""")
ASK_COST = _asks("""
    How much does {A} pay?
    How many {things} does {A} pay in all?
    How much does everything cost?
    How much does it cost in the end?
    What is the price in the end?
    How many {things} does {A} need to pay?
    <tell> how much {A} pays.
    <tell> what {A} has to pay.
    {A} pays how many {things}?
    {A} has to pay how much?
    How much is the bill?
    How many {things} is the bill?
""")

# Goals.

GOALS: _Clauses = (
    goal("{A} [needs {n}]"),
    goal("{A} [needs {n} {things}]"),
    goal("{A} [needs {n} {things} in all]"),
    goal("{A} [needs {n} in all]"),
    goal("In all {A} [needs {n} {things}]"),
    goal("Altogether {A} [needs {n}]"),
    goal("{A} [wants {n} {things} in all]"),
    goal("{A} [wants to have {n} {things}]"),
    goal("{A} [wants to have {n}] in the end"),
    goal("{A} [wants to reach {n} {things}]"),
    goal("{A} [has to reach {n}]"),
    goal("{A} [has to have {n} {things}] in the end"),
    goal("{A} [plans to have {n}]"),
    goal("The goal [is {n} {things}]"),
    goal("{His} goal [is {n}]"),
    goal("{His} goal [is to have {n} {things}]"),
    goal("{A}'s goal [is {n} {things}]"),
    goal("[{n} {things} ~are needed]"),
    goal("[{n} {things} ~are needed in all]"),
    goal("[{n} ~are needed] in all for a {other}"),
    goal("For a {other} {A} [needs {n} {things}]"),
    goal("A {other} [needs {n} {things}]"),
    goal("There [~have to be {n} {things}] in the end"),
    goal("There is [room for {n} {things}] in all"),
    goal("The {other} is full when there [are {n}] in it"),
    goal("A full {other} [holds {n} {things}]"),
    goal("A full {other} [counts {n}]"),
    goal("A complete {other} [has {n} {things}]"),
    goal("A complete set [has {n}]"),
    goal("A full set [is {n} {things}]"),
    goal("In a full set there [are {n} {things}]"),
    goal("In a complete {other} there [are {n}]"),
    goal("The whole set [has {n} {things}]"),
    goal("[{n} {things} ~make] a full set"),
    goal("For a full set {A} [needs {n} in all]"),
    goal("To fill the {other} {A} [needs {n} {things} in all]"),
    goal("To finish a {other} [{n} {things} ~are needed]"),
    goal("It [takes {n} {things}] to finish the {other}"),
    goal("The {other} [has room for {n} {things}]"),
    goal("The number needed [is {n}]"),
    goal("{A} is done when {he} [has {n} in all]"),
    goal("The set is complete when {A} [has {n} {things}]"),
)
MONEY_GOALS: _Clauses = (
    goal("A {box} [costs {n} {things}]"),
    goal("The price of a {box} [is {n} {things}]"),
    goal("{A} wants a {box} that [costs {n} {things}]"),
    goal("{A} wants to buy a {box} [for {n} {things}]"),
    goal("{A} [needs {n} {things}] for a {box}"),
    goal("{A} [needs {n} {things} in all]"),
    goal("For a {box} {A} [needs {n} {things}]"),
    goal("{His} goal [is {n} {things}]"),
    goal("{A} [wants to have {n} {things}]"),
    goal("{A} [has to have {n}] in the end"),
    goal("{A} saves for a {box}. It [costs {n} {things}]"),
)
GOALS_FIRST: _Clauses = (
    start("{A} [needs {n} {things}]"),
    start("{A} [needs {n} {things} in all]"),
    start("In all {A} [needs {n} {things}]"),
    start("{A} [wants to have {n} {things}]"),
    start("{A} [wants {n} {things} in all]"),
    start("The goal is to have [{n} {things}]"),
    start("{A}'s goal [is {n} {things}]"),
    start("[{n} {things} ~are needed]"),
    start("A {other} [needs {n} {things}]"),
    start("{A} [has to find {n} {things}]"),
    start("There is [room for {n} {things}]"),
    groups("{A} needs [{b} {things} for each of {a} <persons>]"),
    groups("[{a} <persons> ~need {b} {things} each]"),
)
HAS_OF_GOAL: _Clauses = (
    take("{A} [has {n}]"),
    take("{A} already [has {n} of them]"),
    take("{A} [has {n} {things}] at home"),
    take("[{n} {things} ~are there] already"),
    take_groups("{A} already [has] <lost groups>"),
)
TOWARDS_GOAL: _Clauses = (
    take("{A} [<get> {n} of them]"),
    take("{A} [<get> <gain>"),
    take("<Somebody> [<give> {him} <gain>"),
    take("<Somebody> [has {n} of them] for {him}"),
    take("[{n} of them ~are found] <where>"),
    take("[<arriving> ~are brought] by <somebody>"),
    take_groups("{A} [<get>] <lost groups>"),
    take_groups("{A} [<does>] <more rate>"),
)
ASK_MISSING = _asks("""
    How many {things} are missing?
    How many are missing?
    How many {things} are still missing?
    How many are still missing?
    How many more {things} does {A} need?
    How many more does {A} need?
    How many {things} does {A} still need?
    How many does {A} still need?
    How many more {things} are needed?
    How many more are needed?
    How many {things} are still needed?
    How many {things} does {A} have to get?
    What is still missing?
    How many more does {A} have to collect?
    How many {things} are missing now?
    How many {things} are not there yet?
    How many more are needed to reach that?
    How many more {things} must {A} find?
    How many {things} must be added?
    How many {things} does {A} still have to collect?
    What number of {things} is missing?
    <tell> how many {things} are missing.
    <tell> how many more {things} {A} needs.
    <tell> the number of {things} that are missing.
    {A} still needs how many {things}?
    {A} needs how many more?
    The number of {things} that are missing is what?
""")

# What is done bit by bit: {act}, {acts}, {acted}.

ACTS = acts("""
    read reads read read, write writes wrote written, clean cleans cleaned cleaned,
    wash washes washed washed, paint paints painted painted, fix fixes fixed fixed,
    solve solves solved solved, fold folds folded folded, water waters watered watered,
    plant plants planted planted, pack packs packed packed, learn learns learned learned,
    build builds built built, check checks checked checked, print prints printed printed,
    open opens opened opened, cut cuts cut cut, finish finishes finished finished,
    make makes made made, draw draws drew drawn, sew sews sewed sewed, dig digs dug dug
""")
TO_DO: _Clauses = (
    start("{A} has to {act} [{n} {things}]"),
    start("{A} wants to {act} [{n} {things}]"),
    start("{A} plans to {act} [{n} {things}]"),
    start("There [are {n} {things}] to {act}"),
    start("[{n} {things} ~are] not {acted} yet"),
    start("[{n} {things} ~have] to be {acted}"),
    start("{A}'s work is to {act} [{n} {things}]"),
    start("{A} has [{n} {things}] to {act}"),
    groups("{A} has to {act} <groups>"),
    groups("{A} wants to {act} <groups>"),
)
BITS_DONE: _Clauses = (
    take("{A} [{acts} <did>"),
    take("{A} [{acts} <did>"),
    take("On Monday {A} [{acts} <did>"),
    take("After <event> {A} [{acts} <did>"),
    take("<Somebody> helps and [{acts} <did>"),
    take("{B} [{acts} <did>"),
    take("[{n} of them ~are {acted}] before <event>"),
    take("[{n} {things} ~are {acted}] by <somebody>"),
    take_groups("{A} [{acts}] <more rate>"),
    take_groups("<act rate>"),
    take_groups("<act rate>"),
    take_groups("<Somebody> [{acts}] <more rate>"),
    split("<Somebody> helps and [{acts} half] of <all>", 2),
)
ASK_TO_DO = _asks("""
    How many {things} are left?
    How many {things} are left to {act}?
    How many are left to {act}?
    How many {things} ~remain?
    How many does {A} still have to {act}?
    How many {things} does {A} still have to {act}?
    How many {things} are not {acted} yet?
    How many are not {acted}?
    How many of them must still be {acted}?
    What number of {things} is left?
    <tell> how many {things} are left to {act}.
    <tell> how many {things} are not {acted}.
    {A} still has to {act} how many {things}?
    The number of {things} left to {act} is what?
    How much work is left?
""")
FIRST_DONE: _Clauses = (
    start("{A} [{acts} {n} {things}]"),
    start("On Monday {A} [{acts} {n} {things}]"),
    start("Before <event> {A} [{acts} {n} {things}]"),
    start("{A} has {acted} [{n} {things}]"),
    start("[{n} {things} ~are {acted}] already"),
    groups("{A} {acts} <rate>"),
    groups("{A} {acts} <rate>"),
    groups("<Rate act>"),
    groups("{A} {acts} <groups>"),
    groups("{A} {acts} [{a} {boxes}. Each {box} has {b} {things}]"),
)
MORE_DONE: _Clauses = (
    add("{A} [{acts} <did too>"),
    add("{A} [{acts} <did too>"),
    add("After <event> {A} [{acts} <did too>"),
    add("On Sunday {A} [{acts} <did too>"),
    add("<Somebody> helps and [{acts} {n} more {things}]"),
    add("In bed {A} [{acts} another {n}]"),
    add("Later [{n} more ~are {acted}]"),
    add_groups("{A} [{acts}] <more rate>"),
    add_groups("Then {A} [{acts}] <more rate>"),
    add_groups("<act rate>"),
)
ASK_DONE = _asks("""
    How many {things} is that?
    How many {things} is that in all?
    How many {things} is that together?
    How many is that altogether?
    How many {things} are {acted} now?
    How many {things} are {acted} in all?
    How many {things} does {A} {act} in all?
    How many does {A} {act} altogether?
    How many has {A} {acted} in all?
    How many {things} has {A} {acted} <now>?
    What is the total number of {things}?
    <tell> how many {things} {A} {acts} in all.
    <tell> how many {things} are {acted} <now>.
    In all, {A} {acts} how many {things}?
    The number of {things} that {A} has {acted} is what?
    How much work is done?
""")

# A way, still to go or gone.

WHOLE_WAY: _Clauses = (
    start("The way [is {n} {things} long]"),
    start("The way to the {other} [is {n} {things}]"),
    start("The whole way [is {n} {things}]"),
    start("It [is {n} {things}] to the {other}"),
    start("The {other} [is {n} {things} away]"),
    start("{A} [has to go {n} {things}]"),
    start("{A} [wants to travel {n} {things}]"),
    start("{A} [has {n} {things}] to go"),
    start("{A} [is {n} {things}] from home and goes home"),
    start("{A} [plans a trip of {n} {things}]"),
    start("{A} wants to get to a {other} [{n} {things} away]"),
    start("From home to the {other} it [is {n} {things}]"),
    start("{A} begins a way of [{n} {things}]"),
    groups("{A} plans to go [{b} {things} a day for {a} days]"),
    groups("The way has [{a} parts of {b} {things} each]"),
)
WAY_DONE: _Clauses = (
    take("{A} [<goes> <went>"),
    take("{A} [<goes> <went>"),
    take("{A} [<goes> <went> <how>"),
    take("On Monday {A} [<goes> <went>"),
    take("After <event> {A} [<goes> <went>"),
    take("[{n} {things} ~go by]"),
    take("<Somebody> [takes {A} {n} {things}] along"),
    take_groups("{A} [<goes>] <more rate>"),
    take_groups("{A} [<goes>] <more rate>"),
    take_groups("<way rate>"),
    take_groups("<way rate>"),
    add("{A} loses the way and [has to go {n} {things} more]"),
    add("A broken bridge [makes the way {n} {things} longer]"),
)
ASK_WAY_LEFT = _asks("""
    How many {things} are left?
    How many {things} are left to go?
    How many are left?
    How many {things} ~remain?
    How many {things} does {A} still have to go?
    How far does {A} still have to go?
    How far is it still?
    How far is it to the end?
    How long is the rest of the way?
    What is left of the way?
    <tell> how many {things} are left.
    <tell> how far {A} still has to go.
    {A} still has to go how many {things}?
    {A} is how many {things} from the end?
""")
FIRST_GONE: _Clauses = (
    start("{A} [<goes> {n} {things}]"),
    start("{A} [<goes> {n} {things}] <how>"),
    start("On Monday {A} [<goes> {n} {things}]"),
    start("First {A} [<goes> {n} {things}]"),
    start("{A} has [gone {n} {things}]"),
    groups("{A} <goes> <rate>"),
    groups("{A} <goes> <rate>"),
    groups("<Rate way>"),
    groups("{A} [<goes> for {a} hours at {b} {things} an hour]"),
    groups("{A} <goes> [{a} rounds of {b} {things} each]"),
    groups("{A} <goes> round a {other} [{a} times. One round is {b} {things}]"),
)
MORE_GONE: _Clauses = (
    add("{A} [<goes> <went>"),
    add("{A} [<goes> <went>"),
    add("{A} [<goes> <went> <how>"),
    add("On Tuesday {A} [<goes> <went>"),
    add("After <event> {A} [<goes> <went>"),
    add("<Somebody> [takes {A} another {n} {things}] along"),
    add_groups("{A} [<goes>] <more rate>"),
    add_groups("<way rate>"),
    add_groups("<way rate>"),
)
ASK_GONE = _asks("""
    How many {things} is that?
    How many {things} is that in all?
    How many {things} does {A} go in all?
    How far does {A} go in all?
    How far has {A} gone?
    How far is that altogether?
    How many {things} has {A} gone <now>?
    How long is the whole way of {A}?
    What is the whole way?
    What is the total way in {things}?
    <tell> how far {A} goes in all.
    <tell> how many {things} {A} has gone.
    In all {A} goes how many {things}?
    {A} has gone how many {things} <now>?
""")

# Some are so, and the others are asked for.

# Only colors: what is old may be small too, and would be counted twice.
SOME_ARE: _Clauses = (
    take("[{n} of them ~are red]"),
    take("[{n} of them ~are blue]"),
    take("[{n} ~are green]"),
    take("[{n} of the {things} ~are white]"),
    take("[{n} of these ~are yellow]"),
    take("[{n} {things} ~are pink]"),
    take_groups("[{a} {boxes} with {b} {things} each] [~are brown]"),
)
ASK_OTHERS = _asks("""
    How many others are there?
    How many other {things} are there?
    The others are black. How many is that?
    The rest is black. How many {things} is that?
    All the others are new. How many are new?
    How many {things} are in the rest?
    How large is the rest?
    How many {things} are none of these?
    <tell> the number of the other {things}.
    <tell> how many others there are.
    The others are how many?
    How many {things} are not any of these?
""")

# Comparing.

FIRST_OWNS: _Clauses = (
    start("[{A} <own> {n} {things}]"),
    start("[{A} <get> {n} {things}]"),
    start("[{n} {things} ~are {A}'s]"),
    start("{A}'s {box} [<hold> {n} {things}]"),
    groups("{A} <own> <groups>"),
    groups("{A} <does> <rate>"),
    groups("<Rate>"),
)


def compared(first: str, second: str) -> _Clauses:
    """What `second` has, told by what `first` has; the two are letters."""
    a, b = f"{{{first}}}", f"{{{second}}}"
    return (
        more(f"[{b} <own> {{n}} more {{things}}] than {a}"),
        more(f"[{b} <own> {{n}} more] than {a}"),
        more(f"[{b} <get> {{n}} {{things}} more] than {a}"),
        more(f"[{b} <get> {{n}} more {{things}}] than {a}"),
        more(f"[{b} has as many as {a} and {{n}} more]"),
        more(f"The number of {b}'s {{things}} [is {{n}} higher] than {a}'s"),
        fewer(f"[{b} <own> {{n}} fewer {{things}}] than {a}"),
        fewer(f"[{b} <own> {{n}} less] than {a}"),
        fewer(f"[{b} <get> {{n}} fewer] than {a}"),
        fewer(f"[{b} <get> {{n}} {{things}} less] than {a}"),
        fewer(f"The number of {b}'s {{things}} [is {{n}} lower] than {a}'s"),
        times_as(f"[{b} <own> {{k}} times as many {{things}}] as {a}"),
        times_as(f"[{b} <get> {{k}} times as many] as {a}"),
        times_as(f"[{b} <own> {{k}} times the number] of {a}"),
        times_as(f"[{b} <get> twice as many] as {a}", 2),
        times_as(f"[{b} <own> twice as many {{things}}] as {a}", 2),
        times_as(f"[{b} <own> double the number] of {a}'s {{things}}", 2),
        times_as(f"[{b} <get> three times as many] as {a}", 3),
        share_as(f"[{b} <own> half as many {{things}}] as {a}", 2),
        share_as(f"[{b} <get> only half as many] as {a}", 2),
        share_as(f"[{b} <own> a third as many] as {a}", 3),
        share_as(f"[{b} <own> half the number] of {a}'s {{things}}", 2),
    )


def briefly_compared(first: str, second: str) -> _Clauses:
    """The same in the sentence that says what `first` has."""
    a, b = f"{{{first}}}", f"{{{second}}}"
    return (
        more(f"and [{b} {{n}} more] than {a}"),
        fewer(f"and [{b} {{n}} fewer] than {a}"),
        fewer(f"but [{b} {{n}} less] than {a}"),
        times_as(f"and [{b} {{k}} times as many] as {a}"),
        times_as(f"and [{b} twice as many] as {a}", 2),
        share_as(f"and [{b} half as many] as {a}", 2),
        share_as(f"but [{b} only a third as many] as {a}", 3),
    )


def owning(who: str) -> _Clauses:
    """What {B} or {C} has, told by itself."""
    name = f"{{{who}}}"
    return (
        start(f"[{name} <own> {{n}}]"),
        start(f"[{name} <own> {{n}} {{things}}]"),
        start(f"[{name} <get> {{n}} {{things}}]"),
        start(f"[{name} <get> {{n}}]"),
        start(f"[{{n}} {{things}} ~are {name}'s]"),
        start(f"In {name}'s {{box}} there [are {{n}}]"),
        start(f"{name} <own> {{things}}, and there [are {{n}} of them]"),
        start(f"{name} has some {{things}}. Of these there [are {{n}}]"),
        groups(f"{name} <own> <groups>"),
        groups(f"{name} <get> <more groups>"),
        groups(f"{name} <does> <more rate>"),
    )


def changing(who: str) -> _Clauses:
    name = f"{{{who}}}"
    return (
        add(f"{name} [<get> <gain>"),
        add(f"{name} [<get> <gain> from <stranger>"),
        add(f"<Stranger> [<give> {name} <gain>"),
        add(f"[<arriving> ~are given] to {name}"),
        take(f"{name} [<lose> <some of them>]"),
        take(f"{name} [<hand over> <some of them>] to <stranger>"),
        take(f"<Stranger> [<take> {{n}} of {name}'s {{things}}]"),
        take(f"{name} [gives <stranger> <some of them>]"),
    )


def briefly(which: str) -> _Clauses:
    """What {B} or {C} has, in the sentence that says it of the one before."""
    name = f"{{{which}}}"
    return (
        start(f"and [{name} {{n}}]"),
        start(f"and [{name} {{n}} {{things}}]"),
        start(f"and [{name} has {{n}}]"),
        start(f"but [{name} only {{n}}]"),
        start(f"and [{{n}} ~are {name}'s]"),
        groups(f"and {name} [{{a}} {{boxes}} with {{b}} {{things}} each]"),
        groups(f"and {name} [{{a}} times {{b}} {{things}}]"),
    )


ASK_SUM = _totals("""
    How many {things} do they have [together]?
    How many do they have [together]?
    How many {things} do they have [in all]?
    How many {things} do they have [in total]?
    How many {things} do they have [altogether]?
    How many {things} are there [in all]?
    How many are there [altogether]?
    How many are there [in total]?
    How many {things} is that [together]?
    How many is that [in all]?
    What is the [sum] of all {things}?
    What is the [total]?
    What is the [total] number of {things}?
    What do they have [together]?
    <tell> the [total] number of {things}.
    <tell> the [sum] of their {things}.
    <tell> how many {things} they have [together].
    <tell> how many {things} there are [in all].
    [Together] they ~have how many {things}?
    [Together] that is how many {things}?
    [In all], how many {things} are there?
    [Altogether], how many {things} do they have?
    The [sum] of all their {things} is what?
    They put [all {things}] together. How many is that?
    They put everything in [one {box}]. How many {things} are in it?
    Somebody counts [all their {things}]. How many are there?
""")
ASK_MORE = _differences("""
    [How many more] {things} does {high} have than {low}?
    [How many more] does {high} have than {low}?
    [How many more] {things} than {low} does {high} have?
    [How many fewer] {things} does {low} have than {high}?
    [How many fewer] does {low} have?
    [How many less] does {low} have than {high}?
    {high} has [how many more] {things} than {low}?
    {low} has [how many fewer] than {high}?
    By [how many] is {high} ahead of {low}?
    What is the [difference] between the two?
    What is the [difference] between {high} and {low}?
    What is the [difference] between {high}'s and {low}'s {things}?
    How large is the [difference] of {high}'s and {low}'s numbers?
    How large is the [difference]?
    How big is the [difference] between the two numbers of {things}?
    <tell> the [difference] between the two numbers.
    <tell> the [difference] between {high} and {low}.
    <tell> [how many more] {things} {high} has than {low}.
    The [difference] between them is how many {things}?
    [How many] {things} does {low} need to have as many as {high}?
""")
ASK_C = _asks("""
    How many {things} does {C} have?
    How many does {C} have?
    What is the number of {C}'s {things}?
    <tell> the number of {C}'s {things}.
    <tell> how many {things} {C} has.
    {C} has how many {things}?
    The number of {C}'s {things} is what?
    And how many {things} are {C}'s?
""")
ASK_B = _asks("""
    How many {things} does {B} have <now>?
    How many does {B} have <now>?
    What is the number of {B}'s {things} <now>?
    <tell> how many {things} {B} has <now>.
    {B} has how many {things} <now>?
    The number of {B}'s {things} <now> is what?
""")
# Kinds: {A}, {B} and {C} tell how things are.

FIRST_KIND: _Clauses = (
    start("There [are {n} {A} {things}] at the {other}"),
    start("At the {other} there [are {n} {A} {things}]"),
    start("In a room there [are {n} {A} {things}]"),
    start("A {other} [<hold place> {n} {A} {things}]"),
    start("A shop [<hold place> {n} {A} {things}]"),
    start("<Stranger> [has {n} {A} {things}]"),
    start("<People> [~have {n} {A} {things}]"),
    start("[{n} {A} {things} ~are] <where>"),
)
FIRST_KIND_GROUPS: _Clauses = (
    groups("There are [{a} {boxes} of {b} {A} {things}] <where>"),
    groups("A shop has [{a} {boxes} with {b} {A} {things} in each]"),
    groups("<Stranger> has [{a} {boxes} of {b} {A} {things} each]"),
    groups("At the {other} there are [{a} {boxes}, <each> with {b} {A} {things}]"),
)


def kind(which: str) -> _Clauses:
    """How many there are of another kind, told at once or in two parts."""
    name = f"{{{which}}}"
    return (
        start(f"There [are also {{n}} {name} {{things}}]"),
        start(f"There [are {{n}} {name} {{things}}] too"),
        start(f"There [are {{n}} {name} ones] too"),
        start(f"and [{{n}} {name} {{things}}]"),
        start(f"and [{{n}} {name} ones]"),
        start(f"There are also {name} {{things}}, and there [are {{n}} of them]"),
        start(f"There are {name} {{things}} too. Of these there [are {{n}}]"),
        start(f"There are {name} ones too, and of them there [are {{n}}]"),
        start(f"Some other {{things}} ~are {name}. There [are {{n}} of these]"),
        start(f"Of the {name} {{things}} there [are {{n}}]"),
        start(f"The number of {name} {{things}} [is {{n}}]"),
        start(f"Then ~come the {name} ones, and these [are {{n}}]"),
        start(f"Besides these there are {name} {{things}}, [{{n}} of them]"),
        groups(f"There are also [{{a}} {{boxes}} of {{b}} {name} {{things}}]"),
        groups(f"There are [{{a}} {{boxes}} with {{b}} {name} ones in each] too"),
    )


def kinds_compared(first: str, second: str) -> _Clauses:
    a, b = f"{{{first}}}", f"{{{second}}}"
    return (
        more(f"There [are {{n}} more {b} {{things}}] than {a} {{things}}"),
        more(f"There [are {{n}} more {b} {{things}}] than {a} ones"),
        more(f"[{{n}} more {{things}} ~are {b}] than {a}"),
        more(f"Of the {b} ones there [are {{n}} more] than of the {a} ones"),
        more(f"The number of {b} {{things}} [is {{n}} higher] than that of {a} ones"),
        fewer(f"There [are {{n}} fewer {b} {{things}}] than {a} {{things}}"),
        fewer(f"There [are {{n}} fewer {b} ones] than {a} ones"),
        fewer(f"[{{n}} fewer {{things}} ~are {b}] than {a}"),
        fewer(f"Of the {b} {{things}} there [are {{n}} less] than of the {a} ones"),
        times_as(f"There [are {{k}} times as many {b} {{things}}] as {a} ones"),
        times_as(f"There [are {{k}} times as many {b} ones] as {a} {{things}}"),
        times_as(f"There [are twice as many {b} {{things}}] as {a} {{things}}", 2),
        times_as(f"There [are three times as many {b} ones] as {a} ones", 3),
        share_as(f"There [are half as many {b} {{things}}] as {a} ones", 2),
        share_as(f"There [are only a third as many {b} {{things}}] as {a} {{things}}", 3),
    )


ASK_KINDS_SUM = _totals("""
    How many {things} are there [in all]?
    How many {things} are there [altogether]?
    How many {things} are there [together]?
    How many {things} is that [in total]?
    How many is that [altogether]?
    How many {things} of [all kinds] are there?
    What is the [total] number of {things}?
    What is the [sum] of these {things}?
    <tell> how many {things} there are [altogether].
    <tell> the [total] number of {things}.
    [Altogether] there are how many {things}?
    Somebody counts [all {things}]. How many are there?
    All kinds [together] are how many {things}?
""")


def ask_kind(which: str) -> _Questions:
    return _asks(f"""
        How many {{{which}}} {{things}} are there?
        How many {{{which}}} ones are there?
        How many {{things}} are {{{which}}}?
        How many of the {{things}} are {{{which}}}?
        What is the number of {{{which}}} {{things}}?
        <tell> the number of {{{which}}} {{things}}.
        <tell> how many {{things}} are {{{which}}}.
        The number of {{{which}}} {{things}} is what?
    """)


# Sorts: {A}, {B} and {C} tell what things are.

FIRST_SORT: _Clauses = (
    start("There [are {n} {A}] at the {other}"),
    start("At the {other} there [are {n} {A}]"),
    start("A {other} [has {n} {A}]"),
    start("<Stranger> [counts {n} {A}]"),
    start("<People> [~see {n} {A}]"),
    start("[{n} {A} <sit>] near the {other}"),
)
FIRST_SORT_GROUPS: _Clauses = (
    groups("There are [{a} rows of {b} {A}]"),
    groups("At the {other} there are [{a} groups of {b} {A} each]"),
    groups("<Stranger> sees [{a} groups with {b} {A} in each]"),
)


def sort(which: str) -> _Clauses:
    name = f"{{{which}}}"
    return (
        start(f"There [are also {{n}} {name}]"),
        start(f"There [are {{n}} {name}] too"),
        start(f"There are {name} too, [{{n}} of them]"),
        start(f"There are also some {name}. Of them there [are {{n}}]"),
        start(f"The number of {name} [is {{n}}]"),
        start(f"and [{{n}} {name}]"),
        groups(f"There are also [{{a}} groups of {{b}} {name}]"),
    )


def sorts_compared(first: str, second: str) -> _Clauses:
    a, b = f"{{{first}}}", f"{{{second}}}"
    return (
        more(f"There [are {{n}} more {b}] than {a}"),
        more(f"The number of {b} [is {{n}} higher] than that of {a}"),
        more(f"Of {b} there [are {{n}} more] than of {a}"),
        more(f"[{{n}} more {b}] than {a} ~are there"),
        fewer(f"There [are {{n}} fewer {b}] than {a}"),
        fewer(f"There [are {{n}} less {b}] than {a}"),
        fewer(f"The number of {b} [is {{n}} lower] than that of {a}"),
        times_as(f"There [are {{k}} times as many {b}] as {a}"),
        times_as(f"For each of the {a} there [are {{k}} {b}]"),
        times_as(f"There [are twice as many {b}] as {a}", 2),
        share_as(f"There [are half as many {b}] as {a}", 2),
        share_as(f"There [are only a third as many {b}] as {a}", 3),
    )


ASK_SORTS_SUM: _Questions = tuple(
    total(text, "The answer is {x}.")
    for text in (
        "How many are there [in all]?",
        "How many is that [altogether]?",
        "How many is that [together]?",
        "How many of [all kinds] are there?",
        "How many are they [in total]?",
        "What is the [total] number?",
        "What is the [sum] of these numbers?",
        "<tell> the [total].",
        "<tell> how many there are [altogether].",
        "[Together] that is how many?",
    )
)


def ask_sort(which: str) -> _Questions:
    return tuple(
        ask(text.format(which), f"The answer is {{x}} {{{which}}}.")
        for text in (
            "How many {{{}}} are there?",
            "And how many {{{}}} are there?",
            "What is the number of {{{}}} there?",
            "<tell> the number of {{{}}}.",
            "<tell> how many {{{}}} there are.",
            "The number of {{{}}} is what?",
        )
    )


# What is measured: lengths, times, weights, prices, ages.


def measured(who: str, verb: str, alike: str) -> _Clauses:
    """What somebody measures: "is 5 meters long", with `verb` "is" and `alike` "long"."""
    size = f" {alike}" if verb == "is" else ""
    name = f"{{{who}}}"
    return (
        start(f"[{name} {verb} {{n}} {{things}}{size}]"),
        start(f"[{name} {verb} {{n}} {{things}}]{size} <after>"),
    )


def measured_in_parts(who: str, verb: str, alike: str) -> _Clauses:
    size = f" {alike}" if verb == "is" else ""
    name = f"{{{who}}}"
    return (
        groups(f"{name} has [{{a}} parts, and each {verb} {{b}} {{things}}{size}]"),
        groups(f"{name} has [{{a}} parts. Each part {verb} {{b}} {{things}}{size}]"),
        groups(f"{name} has [{{a}} parts of {{b}} {{things}} each]"),
    )


def measured_by(first: str, second: str, verb: str, high: str, low: str, alike: str) -> _Clauses:
    a, b = f"{{{first}}}", f"{{{second}}}"
    return (
        more(f"[{b} {verb} {{n}} {{things}} {high}] than {a}"),
        more(f"[{b} {verb} {{n}} {high}] than {a}"),
        fewer(f"[{b} {verb} {{n}} {{things}} {low}] than {a}"),
        fewer(f"[{b} {verb} {{n}} {low}] than {a}"),
        times_as(f"[{b} {verb} {{k}} times as {alike}] as {a}"),
        times_as(f"[{b} {verb} twice as {alike}] as {a}", 2),
        share_as(f"[{b} {verb} half as {alike}] as {a}", 2),
        share_as(f"[{b} {verb} only a third as {alike}] as {a}", 3),
    )


ASK_MEASURE_SUM = _totals("""
    How many {things} is that [together]?
    How much is that [in all]?
    How many {things} are they [together]?
    What is the [sum]?
    What is the [total] in {things}?
    <tell> the [total].
    [Together] that is how many {things}?
""")
ASK_MEASURE_DIFFERENCE = _differences("""
    What is the [difference] in {things}?
    What is the [difference] between {high} and {low}?
    How large is the [difference]?
    How many {things} is the [difference]?
    <tell> the [difference].
    <tell> the [difference] between {high} and {low}.
""")


# Places and things that own, compared or counted together.


def at(which: str) -> _Clauses:
    name = f"{{{which}}}"
    return (
        start(f"In {name} there [are {{n}} {{things}}]"),
        start(f"In {name} [{{n}} {{things}} ~are counted]"),
        start(f"There [are {{n}} {{things}}] in {name}"),
        start(f"[{name} <hold place> {{n}} {{things}}]"),
        start(f"[{{n}} {{things}} ~are] in {name}"),
        start(f"[{{n}} {{things}} ~stand] in {name}"),
        groups(f"In {name} there are <groups>"),
        groups(f"{name} <hold place> <groups>"),
        groups(f"{name} <hold place> [{{a}} {{boxes}}. Each {{box}} holds {{b}} {{things}}]"),
    )


def compared_places(first: str, second: str) -> _Clauses:
    a, b = f"{{{first}}}", f"{{{second}}}"
    return (
        more(f"In {b} there [are {{n}} more] than in {a}"),
        more(f"There [are {{n}} more {{things}}] in {b} than in {a}"),
        more(f"[{b} <hold place> {{n}} more] than {a}"),
        fewer(f"In {b} there [are {{n}} fewer] than in {a}"),
        fewer(f"There [are {{n}} fewer {{things}}] in {b} than in {a}"),
        fewer(f"[{b} <hold place> {{n}} less] than {a}"),
        times_as(f"In {b} there [are {{k}} times as many] as in {a}"),
        times_as(f"There [are {{k}} times as many {{things}}] in {b} as in {a}"),
        times_as(f"[{b} <hold place> twice as many] as {a}", 2),
        times_as(f"In {b} there [are three times as many] as in {a}", 3),
        share_as(f"In {b} there [are half as many] as in {a}", 2),
        share_as(f"There [are only half as many {{things}}] in {b} as in {a}", 2),
        share_as(f"[{b} <hold place> a third as many] as {a}", 3),
    )


def coming_to(which: str) -> _Clauses:
    name = f"{{{which}}}"
    return (
        add(f"{name} [gets <gain>"),
        add(f"[<arriving> ~are brought] to {name}"),
        add(f"<Stranger> [<bring> <gain> to {name}"),
        take(f"{name} [loses <some of them>]"),
        take(f"[{{n}} {{things}} ~are taken] from {name}"),
        take(f"<Stranger> [<take> {{n}} {{things}}] from {name}"),
    )


# Spots: things are at them and not in them.


def at_spot(which: str) -> _Clauses:
    name = f"{{{which}}}"
    return (
        start(f"At {name} there [are {{n}} {{things}}]"),
        start(f"There [are {{n}} {{things}}] at {name}"),
        start(f"[{{n}} {{things}} <sit>] at {name}"),
        start(f"At {name} [{{n}} {{things}} ~are counted]"),
        start(f"<Stranger> [counts {{n}} {{things}}] at {name}"),
        groups(f"At {name} there are <groups>"),
    )


def changing_spot(which: str) -> _Clauses:
    name = f"{{{which}}}"
    return (
        add(f"At {name} [<arriving> <come>]"),
        add(f"[<arriving> ~arrive] at {name}"),
        add(f"<Stranger> [<bring> <gain> to {name}"),
        take(f"At {name} [<some of them> <go>]"),
        take(f"From {name} [<some of them> ~go home]"),
        take(f"[<some of them> ~leave] {name}"),
    )


ASK_SPOTS_MORE = _differences("""
    [How many more] {things} are there at {high} than at {low}?
    [How many more] are at {high} than at {low}?
    [How many fewer] {things} are there at {low} than at {high}?
    [How many fewer] are at {low} than at {high}?
    At {high} there are [how many more] {things} than at {low}?
    What is the [difference] between {high} and {low}?
    How large is the [difference]?
    <tell> [how many more] {things} are at {high} than at {low}.
""")
ASK_PLACES_SUM = _totals("""
    How many {things} are there [in all]?
    How many {things} are there [together]?
    How many are there [in total]?
    How many {things} is that [altogether]?
    How many is that [in all]?
    What is the [total] number of {things}?
    What is the [sum]?
    <tell> the [total].
    <tell> how many {things} there are [in all].
    [In all] there are how many {things}?
    [Together] that is how many {things}?
    Somebody counts [all {things}]. How many are there?
""")
ASK_PLACES_MORE = _differences("""
    [How many more] {things} are in {high} than in {low}?
    [How many more] are in {high}?
    [How many fewer] {things} are in {low} than in {high}?
    [How many fewer] are in {low}?
    [How many more] {things} does {high} have than {low}?
    In {high} there are [how many more] {things} than in {low}?
    What is the [difference]?
    What is the [difference] between {high} and {low}?
    How large is the [difference]?
    <tell> the [difference] between the two numbers.
    <tell> [how many more] {things} are in {high} than in {low}.
""")
ON_SIDES = (
    start("There [are {n} {things}] on one {box}"),
    start("[{n} {things} ~are] on one {box}"),
    start("On one {box} there [are {n} {things}]"),
    groups("There are [{a} packs of {b} {things}] on one {box}"),
)
ON_OTHER_SIDE = (
    start("There [are {n}] on the other"),
    start("[{n} ~are] on the other"),
    start("On the other there [are {n}]"),
    start("On the other {box} there [are {n} {things}]"),
    more("On the other {box} there [are {n} more {things}] than on the first"),
    more("On the other there [are {n} more] than there"),
    fewer("There [are {n} fewer] on the other"),
    start("and [{n} on the other]"),
    start("and [{n} on the other {box}]"),
    start("and on the other [{n}]"),
    start("but only [{n} on the other]"),
    fewer("On the other there [are {n} less] than on the first"),
    times_as("There [are {k} times as many] on the other"),
    times_as("On the other there [are twice as many]", 2),
    share_as("On the other there [are half as many]", 2),
)
ON_THIRD_SIDE = (
    start("On a third {box} there [are {n}]"),
    start("A third {box} [<hold> {n} {things}]"),
    start("and [{n} on a third]"),
    start("and [{n} {things} on a third {box}]"),
)

# Sharing and packing. Here {boxes} are what the things are shared among or packed into.

KEEPS: _Clauses = tuple(clause for clause in OWNS if "{box}" not in clause.source)
KEEPS_GROUPS: _Clauses = (
    groups("{A} has [{a} bags with {b} {things} each]"),
    groups("{A} <own> [{a} boxes of {b} {things}]"),
    groups("{A} brings [{a} packets. Each packet holds {b} {things}]"),
    groups("<Rate>"),
    groups("{A} <does> <rate>"),
)

SHARED: _Clauses = (
    split("{A} <share> <all> [equally among {k} {boxes}]"),
    split("{A} <share> <all> [equally between {k} {boxes}]"),
    split("{A} <share> <all> [among {k} {boxes}], and each gets the same"),
    split("[{k} {boxes} ~share] <all> equally"),
    split("[{k} {boxes} ~divide] <all> equally"),
    split("[{k} {boxes} ~get the same number each]"),
    split("[{k} {boxes} ~get] <all>, each the same number"),
    split("[{k} {boxes} ~come] and ~get <all>, all the same number"),
    split("<All> ~are shared [equally among {k} {boxes}]"),
    split("<All> ~are shared [by {k} {boxes}], and nobody gets more"),
    split("<All> ~are divided [equally among {k} {boxes}]"),
    split("<All> ~go to [{k} {boxes} in equal parts]"),
    split("{A} gives <all> to [{k} {boxes}, the same number to each]"),
    split("{A} gives [each of {k} {boxes} the same number] until nothing is left"),
    split("Each of [{k} {boxes} gets the same number] of <all>"),
    split("Every one of [{k} {boxes} takes the same number], and nothing is left over"),
    split("{A} has [{k} {boxes}] and gives each of them the same number of {things}"),
    split("There are [{k} {boxes}], and {A} <share> <all> equally among them"),
    split("There are [{k} {boxes}]. Each gets the same number of {things}"),
    split("{A} hands <all> out [to {k} {boxes}] in equal parts"),
    split("{A} makes [{k} equal parts], one for each {box}"),
)
ASK_SHARE = _asks("""
    How many {things} does each {box} get?
    How many does each {box} get?
    How many {things} does each get?
    How many does each of them get?
    How many does every {box} get?
    How many {things} does one {box} get?
    How many {things} are there for each {box}?
    How many are there for one {box}?
    How many {things} does each {box} take home?
    What does each {box} get?
    What number of {things} does each {box} get?
    <tell> how many {things} each {box} gets.
    <tell> how many each gets.
    Each {box} gets how many {things}?
    Each gets how many?
    The number of {things} for one {box} is what?
    How many {things} are in the part of one {box}?
""")
INTO: _Clauses = (
    split("{A} puts <all> <into> [{k} {boxes}, the same number in each]"),
    split("{A} puts <all> into [{k} equal {boxes}]"),
    split("{A} puts <all> [equally into {k} {boxes}]"),
    split("{A} <share> <all> into [{k} equal {boxes}]"),
    split("{A} makes [{k} equal {boxes}] of <all>"),
    split("{A} makes [{k} {boxes} of the same size]"),
    split("<All> ~are put [into {k} {boxes}], the same number in each"),
    split("<All> ~are divided [into {k} equal {boxes}]"),
    split("<All> ~are in [{k} {boxes}, with the same number in each]"),
    split("<All> ~fill [{k} {boxes}], and all {boxes} hold the same"),
    split("{A} has [{k} {boxes}] and puts the same number in each"),
    split("There are [{k} {boxes}]. {A} puts the same number in each until nothing is left"),
)
ASK_INTO = _asks("""
    How many {things} are in each {box}?
    How many {things} are in one {box}?
    How many are in each {box}?
    How many are in each?
    How many {things} does each {box} hold?
    How many {things} does one {box} have?
    How many {things} go in one {box}?
    What number of {things} is in each {box}?
    <tell> how many {things} are in each {box}.
    <tell> the number of {things} in one {box}.
    Each {box} has how many {things}?
    In one {box} there are how many {things}?
""")
PACKED: _Clauses = (
    split("{A} puts [{k} {things} in each {box}]"),
    split("{A} puts [{k} in every {box}]"),
    split("{A} puts <all> in {boxes}, [{k} in each]"),
    split("<All> ~are put in {boxes}, [{k} in each]"),
    split("<All> ~are put in {boxes} [of {k}]"),
    split("{A} makes {boxes} [of {k} {things}]"),
    split("{A} fills {boxes} [with {k} {things} each]"),
    split("{A} fills {boxes} with <all>, [{k} in each]"),
    split("Each {box} [<holds> {k} {things}]"),
    split("Each {box} [<holds> {k}]"),
    split("One {box} [<holds> {k}]"),
    split("One {box} [<holds> {k} {things}]"),
    split("A {box} [<holds> {k} {things}]"),
    split("Every {box} [<holds> {k}]"),
    split("There is room for [{k} {things} in each {box}]"),
    split("There is room for [{k} in one {box}]"),
    split("[{k} {things} ~fit] in one {box}"),
    split("[{k} ~go] into one {box}"),
    split("In each {box} [{k} {things} ~have room]"),
    split("For each {box} [{k} {things} ~are needed]"),
    split("For one {box} {A} [needs {k} {things}]"),
)
ASK_PACKED = _asks(
    """
    How many {boxes} does {A} need?
    How many {boxes} are needed?
    How many {boxes} are needed for all the {things}?
    How many {boxes} does {A} fill?
    How many {boxes} can {A} fill?
    How many {boxes} can be filled?
    How many {boxes} are filled?
    How many full {boxes} are there?
    How many {boxes} are there in the end?
    How many {boxes} does {A} get?
    What number of {boxes} does {A} need?
    <tell> how many {boxes} are needed.
    <tell> how many {boxes} {A} fills.
    <tell> the number of {boxes}.
    {A} needs how many {boxes}?
    {A} fills how many {boxes}?
    The number of {boxes} is what?
    """,
    _ANSWER_BOXES,
)
# What all {boxes} share, {A} being one of them.
AT_TABLE: _Clauses = (
    start("There [are {n} {things}] for some {boxes}"),
    start("Some {boxes} [~find {n} {things}]"),
    start("Some {boxes} together [~have {n} {things}]"),
    start("[{n} {things} ~lie] on a table"),
    start("<Stranger> [brings {n} {things}] for everybody"),
    start("A {other} [has {n} {things}]"),
    start("{A} [<get> {n} {things}]"),
)
KEEPS_FOR_ALL: _Clauses = (
    groups("There are [{a} bags with {b} {things} each]"),
    groups("<Stranger> has [{a} boxes of {b} {things}]"),
    groups("On a table there are [{a} plates, and each holds {b} {things}]"),
    groups("Some {boxes} ~bring [{a} packets. Each packet holds {b} {things}]"),
)
SHARED_FIRST_CHANGED: _Clauses = (
    add("[<arriving> <come>]"),
    add("<Stranger> [<bring> {n} more {things}]"),
    take("[<some of them> <go>]"),
    take("<Stranger> [<take> <some of them>]"),
)
SHARED_WITH_OWNER: _Clauses = (
    split("[{k} children ~share] <all> equally, and {A} is one of the children"),
    split("With some friends {A} makes a group of [{k} children that ~share] <all> equally"),
    split("<All> ~are shared [equally among {k} children], and {A} is one of them"),
    split("{A} <share> them with friends. There are [{k} children in all], and each gets the same"),
    split("{A} gives <all> to [{k} children in equal parts] and is one of them"),
    split("There are [{k} {boxes}, and each gets the same number]. {A} is one of the {boxes}"),
    split("There are [{k} {boxes}, and all ~get the same number]. One of the {boxes} is {A}"),
    split("{A} is one of [{k} {boxes}, and each of them takes the same number]"),
    split("[{k} {boxes} ~get the same number each], and one of the {boxes} is {A}"),
    split("[{k} {boxes} ~divide] <all> equally. {A} is one of these {boxes}"),
    split("<All> ~are divided [equally between {k} {boxes}]. One is {A}"),
)


def joining_owner(which: str) -> _Clauses:
    """What {B} or {C} holds, told after the first: with the noun left out too."""
    name = f"{{{which}}}"
    return (
        *at(which),
        start(f"In {name} there [are {{n}}]"),
        start(f"There [are {{n}}] in {name}"),
        start(f"[{{n}} ~are] in {name}"),
        start(f"[{name} <hold place> {{n}}]"),
    )
