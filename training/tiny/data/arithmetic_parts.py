"""Parts of which clauses and questions are put together: `<name>` stands for any line of `name`.

Each operation's verbs meet here every way of naming what they move, with the noun and without, so
that what a clause does is to be read from its words and not from the sentence as a whole. A part
may close the marks `[...]` that the clause around it opens, and may hold further parts.
"""

from __future__ import annotations

import re
from random import Random

_PART = re.compile(r"<([A-Za-z ]+)>")
_UNITS = ("day", "hour", "week", "minute", "morning", "evening", "month", "round")


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


def _of_units(text: str) -> tuple[str, ...]:
    """The lines for every unit of time; `@` is the unit."""
    return tuple(
        line.replace(" a @", " an @" if unit == "hour" else " a @").replace("@", unit)
        for line in _lines(text)
        for unit in _UNITS
    )


def _list(text: str) -> tuple[str, ...]:
    return tuple(" ".join(item.split()) for item in text.split(","))


PARTS: dict[str, tuple[str, ...]] = {
    # Who else there is.
    "somebody": _list("""
        {B}, {B}, a friend, an aunt, an uncle, a neighbor, a child, a sister, a brother, a woman,
        a man, the {other}, the teacher, a cousin, another child, a farmer, the seller
    """),
    "Somebody": _list("""
        {B}, {B}, A friend, {His} aunt, {His} uncle, A neighbor, A child, {His} sister,
        {His} brother, A woman, A man, The {other}, The teacher, {His} cousin, Another child,
        {His} friend {B}, Somebody, One of {his} friends
    """),
    # Somebody who is not named elsewhere in the problem.
    "stranger": _list("""
        a friend, an aunt, an uncle, a neighbor, a child, a sister, a brother, a woman, a man,
        the {other}, the teacher, a cousin, another child
    """),
    "Stranger": _list("""
        A friend, An aunt, An uncle, A neighbor, A child, A sister, A brother, A woman, A man,
        The {other}, The teacher, A cousin, Another child, Somebody, A farmer, The seller,
        Another man, Another {other}
    """),
    "People": _list("""
        Children, Some people, Friends, Workers, Some boys, Two women, The children, The girls,
        Students, Guests, Neighbors, The {other} people
    """),
    "event": _list("""
        lunch, school, a game, a walk, the {other}, a rest, dinner, the rain, the storm, work,
        breakfast, the concert, the night, the wind, the holidays, a cold night
    """),
    "where": _list("""
        at home, on a table, in a room, at the {other}, in the {other}, near the {other},
        on a shelf, in the yard, behind the house, under the {other}, in a drawer, by the {other},
        in front of the house, in front of the {other}, in the oven, in the dark, in the cold,
        by the sea, at the market, in the park, in a purse, on the floor, in the street
    """),
    # What somebody has at first.
    "own": _list("has, has, has, owns, keeps, holds, saves, starts with, begins with, carries"),
    "get": _list("""
        gets, finds, wins, receives, collects, gathers, makes, adds, buys, brings, picks, catches,
        builds, orders, bakes, plants, paints, draws, picks up, brings home, brings back, is given,
        is handed, is sent, takes in, puts in, earns, prints, digs up
    """),
    "first": _list("""
        counts, cuts, picks, takes, opens, writes, paints, finds, buys, sorts, carries,
        lays out
    """),
    # What many do who are somewhere.
    "sit": _list("""
        ~are, ~stay, ~live, ~sit, ~stand, ~lie, ~wait, ~land, ~come, ~go in, ~meet, ~start, ~grow
    """),
    "owned": _lines("""
        {n} {things}]
        {n} {things}]
        {n} good {things}]
        {n} old {things}]
        {n} small {things}]
        {n} {things} in all]
        {n} {things}] <where>
    """),
    "gain": _lines("""
        {n} more {things}]
        {n} more]
        {n} more of them]
        {n} more {things}]
        another {n}]
        another {n} {things}]
        {n} {things}]
        {n} old {things}]
        {n} small {things}]
        {n} new {things}]
        {n} {things} more]
        an extra {n}]
        {n} extra {things}]
        {n} other {things}]
        {n}]
        {n} {things}] too
        a further {n}]
        {n} further {things}]
    """),
    "give": _list("gives, hands, sends, brings, lends, buys, gives"),
    # What goes away.
    "lose": _list("""
        sells, loses, drops, breaks, burns, eats, uses, donates, lends, cuts up, uses up, gives up,
        sends away, gives away, throws away, takes away, hands out, leaves behind, gives back,
        takes out, puts away
    """),
    "hand over": _list("gives, sends, sells, hands, lends, takes, carries, donates, mails"),
    "take": _list("""
        takes, takes away, borrows, buys, eats, breaks, steals, burns, uses, throws away, drops,
        carries away, picks out
    """),
    "lost": _lines("""
        {n} {things}]
        {n} {things}]
        {n} of them]
        {n} of these]
        {n} of the {things}]
        {n} of these {things}]
        {n} of {his} {things}]
        {n}]
        {n} old {things}]
        {n} of all these {things}]
    """),
    "some of them": _lines("""
        {n} {things}
        {n} of them
        {n} of these
        {n} of the {things}
        {n} of these {things}
        {n}
        {n} old {things}
    """),
    # What goes or is lost for what it is like.
    "spoiled": _list("bad, rotten, broken, old, wet, dirty"),
    "weary": _list("ill, tired, hungry, cold, wet, sleepy"),
    "come": _list("""
        ~arrive, ~come, ~come in, ~join, ~are added, ~are brought, ~are found, ~are bought,
        ~are made, ~are delivered, ~are put in, ~come back, ~are built, ~are born, ~move in,
        ~turn up, ~are picked up, ~get in, ~appear, ~are ordered, ~land,
        ~fly in, ~walk in, ~swim in, ~drive in, ~sail in, ~climb in, ~hatch, ~are planted,
        ~come late
    """),
    "go": _list("""
        ~leave, ~go away, ~go home, ~are lost, ~are sold, ~are eaten, ~are broken, ~are used,
        ~are taken away, ~are thrown away, ~are given away, ~are sent away, ~go out, ~move away,
        ~disappear, ~are gone, ~run away, ~die, ~break, ~get lost, ~are stolen, ~are taken out,
        ~fly away, ~swim away, ~drive away, ~walk away, ~sail away, ~fall down, ~melt, ~burn,
        ~are cut off, ~are lent, ~are missing
    """),
    "arriving": _lines("""
        {n} {things}
        {n} more {things}
        {n} more
        another {n}
        another {n} {things}
        {n} new {things}
        {n} other {things}
        {n} of the same {things}
    """),
    # What places do.
    "hold place": _list("has, has, holds, keeps, contains, owns, starts with"),
    "get place": _list("gets, buys, receives, takes in, orders, is sent, is given, finds, makes"),
    "bring": _list("brings, adds, puts in, delivers, brings back, sends, gives, carries in"),
    "persons": _list("""
        friends, children, cousins, neighbors, boys, girls, students, guests, workers, women, men,
        people, players, dogs
    """),
    # Groups.
    "hold": _list("holds, has, contains, is filled with, carries, holds, comes with"),
    "each": _list("each, every"),
    "groups": _lines("""
        [{a} {boxes} with {b} {things} each]
        [{a} {boxes} with {b} {things} in <each> {box}]
        [{a} {boxes} of {b} {things}]
        [{a} {boxes} of {b} {things} each]
        [{a} {boxes} of {things} with {b} in <each> {box}]
        [{a} {boxes} of {things}, {b} in each]
        [{a} {boxes}, each with {b} {things}]
        [{a} {boxes}, and <each> {box} <hold> {b} {things}]
        [{a} {boxes}, and in each there are {b} {things}]
        [{a} {boxes}. <Each> {box} <hold> {b} {things}]
        [{a} {boxes}. Each of them <hold> {b} {things}]
        [{a} {boxes}. There are {b} {things} in <each> {box}]
        [{a} {boxes}. In <each> {box} there are {b} {things}]
        [{a} {boxes}. {b} {things} ~are in each of them]
        [{a} {boxes} that ~hold {b} {things} each]
        [{a} {boxes} filled with {b} {things} each]
        [{a} full {boxes} with {b} {things} each]
        [{a} full {boxes} of {b} {things}]
        [{a} {boxes} with the same number of {things}, {b} in each]
        [{b} {things} in each of {a} {boxes}]
        [{b} {things} in every one of {a} {boxes}]
        [{a} times {b} {things}]
    """),
    "Each": _list("Each, Every"),
    "Groups": _lines("""
        [Each of the {a} {boxes} <hold> {b} {things}]
        [Each of {a} {boxes} <hold> {b} {things}]
        [Every one of {a} {boxes} <hold> {b} {things}]
        [One {box} holds {b} {things}, and there are {a} {boxes}]
        [One {box} holds {b} {things}. There are {a} {boxes}]
        [A {box} holds {b} {things}. There are {a} such {boxes}]
        [<Each> {box} <hold> {b} {things}, and there are {a} {boxes}]
        [<Each> {box} <hold> {b} {things}. There are {a} of these {boxes}]
        [There are {b} {things} in <each> {box}, and there are {a} {boxes}]
        [There are {b} {things} in <each> {box}. There are {a} {boxes}]
        In <each> {box} [there are {b} {things}, and there are {a} {boxes}]
        [{a} {boxes} ~hold {b} {things} each]
        There are <groups>
        There are <groups> <where>
        In each of [{a} {boxes} there are {b} {things}]
    """),
    "more groups": _lines("""
        [{a} more {boxes} with {b} {things} each]
        [{a} more {boxes} of {b} {things}]
        [another {a} {boxes} with {b} {things} in each]
        [{a} more {boxes}, each with {b} {things}]
        [{a} other {boxes} with {b} {things} each]
        [{a} new {boxes} of {b} {things}]
        [{a} new {boxes} with {b} {things} each]
        [{a} {boxes} of {b} {things}]
        [{a} {boxes} with {b} {things} each]
        [{b} {things} from each of {a} {boxes}]
        [{a} times {b} {things}]
    """),
    "lost groups": _lines("""
        [{a} {boxes} with {b} {things} each]
        [{a} {boxes} of {b} {things}]
        [{a} {boxes} with {b} in each]
        [{a} {boxes} that ~hold {b} {things} each]
        [{a} times {b} {things}]
        [{b} {things} in each of {a} {boxes}]
    """),
    # What goes on for some time.
    "rate": _of_units("""
        [{b} {things} a @ for {a} @s]
        [{b} {things} every @ for {a} @s]
        [{b} {things} each @ for {a} @s]
        [{b} {things} per @ for {a} @s]
        [{b} {things} in each of {a} @s]
        [{b} {things} in a @, and this goes on for {a} @s]
        [{b} {things} a @. This goes on for {a} @s]
        [{b} {things} every @. {He} does this for {a} @s]
        [{b} {things} each @ and does so for {a} @s]
        [{b} {things} a @, {a} @s long]
    """),
    "rate of it": _of_units("""
        [{b} {things} a @ for {a} @s]
        [{b} {things} every @ for {a} @s]
        [{b} {things} per @ for {a} @s]
        [{b} {things} in each of {a} @s]
        [{b} {things} a @. It goes on for {a} @s]
        [{b} {things} every @. This goes on for {a} @s]
        [{b} {things} each @, and it works for {a} @s]
        [{b} {things} in one @. It works {a} @s]
    """),
    "more rate": _of_units("""
        [{b} {things} a @ for {a} @s]
        [{b} {things} a @ for {a} more @s]
        [{b} {things} each @ for {a} more @s]
        [{b} {things} per @ for {a} more @s]
        [{b} every @ for {a} @s]
        [{b} {things} each @ for another {a} @s]
        [{b} {things} per @ for {a} @s]
        [{b} per @ for {a} @s]
        [{b} a @ for {a} @s]
        [{b} {things} in each of {a} @s]
    """),
    "rate lost": _of_units("""
        Each @ {A} [<lose>] [{b} of them. This goes on for {a} @s]
        Every @ {A} [<lose>] [{b} {things}, and this goes on for {a} @s]
        {A} [<lose>] [{b} {things} a @. {He} does so for {a} @s]
        For {a} @s {A} [<lose>] [{b} of them each @]
        For {a} @s {A} [<lose>] [{b} {things} a @]
        In each of {a} @s {A} [<lose>] [{b} of them]
        {A} [<lose>] [{b} of them a @], {a} @s long
    """),
    "rate taken": _of_units("""
        Each @ [{b} of them] [<go>]. This goes on for {a} @s
        For {a} @s [{b} of them] [<go>] each @
        In each of {a} @s [{b} {things}] [<go>]
        <Stranger> [<take>] [{b} of them a @ for {a} @s]
    """),
    "rate gained": _of_units("""
        Each @ {A} [<get>] [{b} more. This goes on for {a} @s]
        Every @ {A} [<get>] [{b} {things}, and this goes on for {a} @s]
        {A} [<get>] [{b} {things} a @. {He} does so for {a} @s]
        For {a} @s {A} [<get>] [{b} more each @]
        For {a} @s {A} [<get>] [{b} {things} a @]
        In each of {a} @s {A} [<get>] [{b} more]
    """),
    "act rate": _of_units("""
        Each @ {A} [{acts}] [{b} {things}. This goes on for {a} @s]
        Each @ {A} [{acts}] [{b} of them, and this goes on for {a} @s]
        For {a} @s {A} [{acts}] [{b} {things} a @]
        In each of {a} @s {A} [{acts}] [{b} {things}]
        {A} [{acts}] [{b} {things} a @. {He} works for {a} @s]
    """),
    "way rate": _of_units("""
        Each @ {A} [<goes>] [{b} {things}. This goes on for {a} @s]
        Each @ {A} [<goes>] [{b} {things}, and this goes on for {a} @s]
        For {a} @s {A} [<goes>] [{b} {things} a @]
        In each of {a} @s {A} [<goes>] [{b} {things}]
        {A} [<goes>] [{b} {things} a @. {He} does so for {a} @s]
    """),
    "Rate": _of_units("""
        For [{a} @s {A} <does> {b} {things} a @]
        For [{a} @s {A} <does> {b} {things} every @]
        In each of [{a} @s {A} <does> {b} {things}]
        <Each> @ [{A} <does> {b} {things}. This goes on for {a} @s]
        <Each> @ [{A} <does> {b} {things}, and this goes on for {a} @s]
        In one @ [{A} <does> {b} {things}. {He} works {a} @s]
        In one @ [{A} <does> {b} {things}, and {he} does so for {a} @s]
        {A} works for [{a} @s and <does> {b} {things} each @]
        {A} has [{a} @s and <does> {b} {things} in each]
        {A} has [{a} @s of time. In each @ {he} <does> {b} {things}]
        {A} goes on for [{a} @s. <Each> @ {he} <does> {b} {things}]
    """),
    "does": _list(
        "gets, makes, finds, collects, picks, gathers, buys, builds, catches, saves, wins"
    ),
    "Rate act": _of_units("""
        For [{a} @s {A} {acts} {b} {things} a @]
        For [{a} @s {A} {acts} {b} {things} <each> @]
        In each of [{a} @s {A} {acts} {b} {things}]
        <Each> @ [{A} {acts} {b} {things}. This goes on for {a} @s]
        In one @ [{A} {acts} {b} {things}. {He} works {a} @s]
        {A} works for [{a} @s and {acts} {b} {things} each @]
        {A} has [{a} @s of time. In each @ {he} {acts} {b} {things}]
    """),
    "Rate way": _of_units("""
        For [{a} @s {A} <goes> {b} {things} a @]
        For [{a} @s {A} <goes> {b} {things} <each> @]
        In each of [{a} @s {A} <goes> {b} {things}]
        <Each> @ [{A} <goes> {b} {things}. This goes on for {a} @s]
        In one @ [{A} <goes> {b} {things}. {He} goes on for {a} @s]
        {A} is on the way for [{a} @s and <goes> {b} {things} each @]
    """),
    "Rate of it": _of_units("""
        <Each> @ [the {A} <makes> {b} {things}. It works for {a} @s]
        <Each> @ [the {A} <makes> {b} {things}, and this goes on for {a} @s]
        For [{a} @s the {A} <makes> {b} {things} a @]
        In each of [{a} @s the {A} <makes> {b} {things}]
        The {A} works for [{a} @s and <makes> {b} {things} each @]
        In one @ [the {A} <makes> {b} {things}. It works {a} @s]
    """),
    # What comes to a place bit by bit.
    "Rate coming": _of_units("""
        <Each> @ [{b} {things} <come to> the {A}, and this goes on for {a} @s]
        <Each> @ [{b} {things} <come to> the {A}. It goes on like this for {a} @s]
        <Each> @ [{b} {things} <come to> the {A}. This lasts {a} @s]
        <Each> @ [{b} {things} <come to> a {A}. So it is for {a} @s]
        For [{a} @s {b} {things} <come to> the {A} <each> @]
        In each of [{a} @s {b} {things} <come to> the {A}]
        [{b} {things} <come to> the {A} <each> @. That goes on for {a} @s]
        [{b} {things} <come to> a {A} each @, {a} @s long]
    """),
    "rate coming": _of_units("""
        Each @ [{b} more {things}] [<come>]. This goes on for {a} @s
        Every @ [{b} {things}] [<come>], and so it is for {a} @s
        For {a} @s [{b} {things}] [<come>] each @
        In each of {a} @s [{b} more {things}] [<come>]
    """),
    "come to": _list("""
        ~arrive at, ~come to, ~are brought to, ~are delivered to, ~land at, ~are made at,
        ~are built in, ~are sent to, ~are left at, ~are added in
    """),
    "makes": _list("makes, builds, prints, bakes, paints, produces, gets, sends, fills"),
    # Money: {things} is a coin, {boxes} what is bought.
    "paid": _list("spends, pays, loses, gives away, uses, donates, lends, uses up, hands out"),
    "earned": _list(
        "earns, gets, receives, wins, finds, saves, is paid, is given, collects, makes"
    ),
    # What is sold, and what is bought: nothing but the verb tells them apart.
    "ware": _list("""
        a {box}, an old {box}, {his} {box}, {his} old {box}, a used {box}, a small {box},
        a new {box}, one {box}, the {box}, a {other}, {his} {other}, an old {other}, a good {box}
    """),
    "new ware": _list("""
        a {box}, an old {box}, a used {box}, a small {box}, a new {box}, one {box}, the {box},
        another {box}, a big {box}, a {other}, the {other}, an old {other}, a good {box}
    """),
    "Ware": _list("""
        A {box}, An old {box}, A used {box}, A small {box}, A new {box}, One {box}, A good {box},
        A {other}, An old {other}
    """),
    "job": _list("""
        a day of work, help in the kitchen, work in the garden, the work of a week, a song,
        washing plates, a picture, help with a {other}
    """),
    "Expense": _list("""
        Lunch, Dinner, Breakfast, The ticket, The bus, A coffee, The train, A meal, The {other},
        A night in a hotel, A cake
    """),
    "expense": _list("""
        lunch, dinner, breakfast, the ticket, the bus, a coffee, the train, a meal, the {other},
        a night in a hotel, a cake
    """),
    "amount": _lines("""
        {n} {things}]
        {n} {things}]
        {n} more {things}]
        another {n} {things}]
        {n} {things} more]
        {n}]
        {n} more]
        another {n}]
    """),
    "spent": _lines("""
        {n} {things}]
        {n} {things}]
        {n} of the {things}]
        {n} of them]
        {n}]
        {n} of {his} {things}]
    """),
    "for it": _list("""
        for a {box}, for lunch, for a ticket, for the bus, for a {other}, for two {boxes}, for rent,
        for some {boxes}, for the {other}
    """),
    "on it": _list("""
        on a {box}, on food, on a {other}, on some {boxes}, on the {other}, on a present, on bread
    """),
    "bought": _lines("""
        [{a} {boxes} at {b} {things} each]
        [{a} {boxes} for {b} {things} each]
        [{a} {boxes} that ~cost {b} {things} each]
        [{a} {boxes}. Each {box} costs {b} {things}]
        [{a} {boxes}. Each costs {b} {things}]
        [{a} {boxes}, and each {box} costs {b} {things}]
        [{a} {boxes}. The price of one {box} is {b} {things}]
        [{a} {boxes} with a price of {b} {things} each]
        [{a} {boxes} at a price of {b} {things} for each]
    """),
    "Bought": _lines("""
        [One {box} costs {b} {things}, and {A} buys {a}]
        In the shop [every {box} costs {b} {things}. {A} takes {a} of them]
        [Each {box} costs {b} {things}. {A} needs {a} of them]
        {A} needs [{a} {boxes}. One costs {b} {things}]
        {A} takes [{a} {boxes}. The price of each is {b} {things}]
        [One {box} costs {b} {things}. {A} buys {a} of them]
        [A {box} costs {b} {things}. {A} takes {a} of them]
        [The price of one {box} is {b} {things}, and {A} takes {a} {boxes}]
        [{a} {boxes} ~cost {b} {things} each], and {A} buys them
        {A} pays [{b} {things} for each of {a} {boxes}]
        {A} pays for [{a} {boxes}, {b} {things} for each]
    """),
    # Dividing.
    "holds": _list("holds, has room for, can hold, takes, fits, contains, carries"),
    "share": _list("shares, divides, splits"),
    "all": _list("them, all of them, the {things}, all the {things}, all {things}, everything"),
    "All": _list("They, All of them, The {things}, All the {things}, All {things}"),
    "into": _list("into, in"),
    # A way, gone or still to go.
    "goes": _list("walks, rides, drives, goes, travels, runs, flies, swims, sails, moves on"),
    "went": _lines("""
        {n} {things}]
        {n} {things}]
        {n} more {things}]
        another {n} {things}]
        another {n}]
        {n} more]
        a further {n}]
        {n}]
        {n} {things} more]
        {n} {things} farther]
    """),
    "how": _list("""
        by bus, on foot, by train, by boat, by bike, with a friend, on a horse, to the {other},
        over the {other}, in the rain, through the {other}, through the park, by night
    """),
    "did": _lines("""
        {n} {things}]
        {n} of the {things}]
        {n} more {things}]
        {n} of them]
        another {n}]
        another {n} {things}]
        {n} more]
        {n}]
    """),
    "did too": _lines("""
        {n} {things}]
        {n} more {things}]
        {n} more]
        another {n}]
        another {n} {things}]
        a further {n}]
        {n} {things} more]
        {n} other {things}]
        {n}]
    """),
    # What says nothing of numbers: after a clause, before it, after its subject, and by itself.
    "after": _list("""
        because it rains, because it is cold, because it is late, as always, with a smile,
        after school, when the sun shines, although it is late, before the {other} comes,
        while the {other} sleeps, for no reason, without a word, after a while, again, today,
        when it gets dark, because of the {other}
    """),
    "before": _list("""
        Because it rains, Because it is cold, When it gets dark, While the {other} sleeps,
        Although it is late, Before the {other} comes, When the {other} is over, As always,
        After a while, After the {other}, During the {other}, Without a word, When school is over,
        As soon as the sun shines, Before <event>, After <event>
    """),
    "who": _list("""
        who likes the {other}, who is a {other}, who lives near the {other}, who loves them,
        who is often late, who never sleeps long, who has a {other}, who comes from the {other}
    """),
    "aside": _lines("""
        The weather is fine.
        The {other} is open today.
        A {other} looks on.
        Nobody sees the {other}.
        The sun shines.
        {A} likes the {other}.
        It is a long day.
        That is a lot of work.
        Everybody is happy about it.
    """),
    "goes on": (", and ", ", and ", ", and then ", ", but ", ", but then ", "; then ", ", then "),
    "beside": (", and ", ", and ", ", while ", ", but ", "; "),
    # Questions.
    "now": ("now", "now", "at the end", "then", "in the end", "after all that", "after that"),
    "tell": _list("""
        Tell, Say, Find out, Work out, Calculate, Find, Write down, Give, Please tell, Tell me,
        Show
    """),
}


def expand(random: Random, source: str) -> str:
    """The source with each part drawn."""
    while "<" in source:
        source = _PART.sub(lambda match: random.choice(PARTS[match[1]]), source)
    return source


def reachable(source: str) -> str:
    """The source and all parts that could stand in it, one after another."""
    texts, names = [source], set[str]()
    for text in texts:
        for name in _PART.findall(text):
            if name not in names:
                names.add(name)
                texts += PARTS[name]
    return " | ".join(texts)
