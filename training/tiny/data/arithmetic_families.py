"""The families of arithmetic problems that training draws from.

What a held-out problem means can be told only from words that stand here, so each verb and clue
stands in several families, in different sentences, and no noun, name or setting of
`arithmetic_held_out.py` may be used. The language is that of `arithmetic_frames.py`.
"""

from __future__ import annotations

from training.tiny.data.arithmetic_composed import COMPOSED
from training.tiny.data.arithmetic_frames import (
    Collection,
    Family,
    Structure,
    add,
    add_groups,
    ask,
    difference,
    fewer,
    goal,
    groups,
    more,
    note,
    one,
    share_as,
    some,
    split,
    start,
    take,
    take_groups,
    times,
    times_as,
    total,
    words,
)
from training.tiny.data.arithmetic_nouns import (
    BAKED,
    BIRDS,
    CLOTHES,
    CONTAINERS,
    FLOWERS,
    FRUIT,
    KEPT,
    KITCHEN,
    SCHOOL,
    SWEETS,
    TOYS,
    VEGETABLES,
)
from training.tiny.data.open_words import open_words

_RUNNING = (
    Family(
        name="fruit stall",
        things=FRUIT + VEGETABLES,
        stages=(
            one(
                start("{A} [has {n} {things}] on {his} stall"),
                start("There [are {n} {things}] on {A}'s stall in the morning"),
                start("{A} [brings {n} {things}] to the market"),
                start("At the market {A} [has {n} {things}] to sell"),
            ),
            some(
                2,
                4,
                take("{A} [sells {n}] of them to a cook"),
                take("{A} [sells {n} {things}] before lunch"),
                take("{A} [throws away {n}] bad {things}"),
                take("{A} [gives {n} {things}] to {B}"),
                take("A customer [buys {n} {things}]"),
                take("[{n} of the {things} ~are rotten] and thrown away"),
                add("A farmer [brings {n} more] {things}"),
                add("{A} [gets {n} more] {things} from the truck"),
                add("{A} [picks {n} more] {things} for the stall"),
                split("{A} [sells half] of {his} {things}", 2),
            ),
        ),
        questions=(
            ask("How many {things} does {A} have now?", "{A} has {x} {things} now."),
            ask("How many {things} are on the stall now?", "There are {x} {things} now."),
            ask("How many {things} are left?", "There are {x} {things} left."),
        ),
    ),
    Family(
        name="playground pocket",
        things=TOYS + KEPT,
        most=90,
        stages=(
            one(
                start("{A} [has {n} {things}]"),
                start("{A} [starts with {n} {things}]"),
                start("In the morning {A} [has {n} {things}] in a bag"),
                start("{A} [takes {n} {things}] to school"),
            ),
            some(
                2,
                4,
                add("{A} [wins {n} {things}] in a game"),
                add("{A} [finds {n} {things}] in the yard"),
                add("{A} [gets {n} {things}] from {B}"),
                add("{His} brother [gives {him} {n} more] {things}"),
                add("{A} [buys {n} more] {things}"),
                take("{A} [loses {n}] of them"),
                take("{A} [gives {n} {things}] to {B}"),
                take("{A} [drops {n} {things}] in the river"),
                take("{A} [lends {n} {things}] to a friend"),
                take("{A} [breaks {n}] of the {things}"),
                times("After a game {A} [has twice as many] {things}", 2),
                split("{A} [loses half] of {his} {things}", 2),
            ),
        ),
        questions=(
            ask("How many {things} does {A} have now?", "{A} has {x} {things} now."),
            ask("How many {things} does {A} have at the end?", "{A} has {x} {things} at the end."),
            ask("How many {things} does {he} go home with?", "{A} goes home with {x} {things}."),
        ),
    ),
    Family(
        name="bus",
        things=("passenger/passengers", "person/people", "student/students", "child/children"),
        owners=("bus", "tram", "ferry", "train"),
        most=80,
        stages=(
            one(
                start("A {A} [starts with {n} {things}]"),
                start("There [are {n} {things}] on a {A}"),
                start("A {A} [leaves with {n} {things}]"),
                start("A {A} [carries {n} {things}]"),
            ),
            some(
                2,
                4,
                add("At the first stop [{n} {things} ~get on]"),
                add("[{n} more {things} ~get on] at the school"),
                add("At the bridge [{n} {things} ~join]"),
                add("[{n} more {things} ~come in] at the old church"),
                take("[{n} {things} ~get off] at the market"),
                take("At the next stop [{n} {things} ~leave]"),
                take("[{n} of the {things} ~get off] near the park"),
                split("At the museum [half of the {things} ~get off]", 2),
                times("At the station the number of {things} [doubles]", 2),
            ),
        ),
        questions=(
            ask("How many {things} are on the {A} now?", "There are {x} {things} on the {A} now."),
            ask(
                "How many {things} are left on the {A}?", "There are {x} {things} left on the {A}."
            ),
            ask("How many {things} does the {A} carry now?", "The {A} carries {x} {things} now."),
        ),
    ),
    Family(
        name="birds on a pond",
        things=BIRDS,
        owners=("pond", "lake", "field", "roof", "river"),
        most=120,
        stages=(
            one(
                start("There [are {n} {things}] at a {A}"),
                start("[{n} {things} ~sit] near a {A}"),
                start("A {A} [has {n} {things}] in spring"),
                start("[{n} {things} ~live] near a {A}"),
            ),
            some(
                2,
                4,
                add("[{n} more {things} ~land] there"),
                add("[{n} {things} ~arrive] from the north"),
                add("[{n} more ~come] to eat"),
                add("[{n} {things} ~hatch] in the nests"),
                add("[{n} {things} ~join] them"),
                take("[{n} of them ~fly away]"),
                take("[{n} {things} ~leave] in the evening"),
                take("[{n} {things} ~swim away]"),
                take("A dog comes and [{n} {things} ~run away]"),
                times("In summer the number of {things} [triples]", 3),
                times("In a week the number of {things} [doubles]", 2),
                split("In a cold night [half of the {things} ~fly away]", 2),
            ),
        ),
        questions=(
            ask("How many {things} are there now?", "There are {x} {things} now."),
            ask("How many {things} are at the {A} now?", "There are {x} {things} at the {A} now."),
            ask("How many {things} ~stay there?", "{x} {things} ~stay there."),
        ),
    ),
    Family(
        name="library",
        things=("book/books", "comic/comics", "magazine/magazines", "map/maps", "film/films"),
        most=400,
        stages=(
            one(
                start("A library [has {n} {things}] on a shelf"),
                start("There [are {n} {things}] in the school library"),
                start("The library [owns {n} {things}]"),
                start("{A} [counts {n} {things}] in the library"),
            ),
            some(
                2,
                4,
                take("Readers [~borrow {n} {things}]"),
                take("{A} [borrows {n}] of them"),
                take("The library [lends {n} {things}] to a school"),
                take("[{n} {things} ~are taken home] by readers"),
                take("{A} [takes {n}] of these {things} to school"),
                add("Some girls [~find {n} {things}] and bring them back"),
                take("{A} [throws away {n}] old {things}"),
                take("[{n} {things} ~are lost]"),
                take("[{n} {things} ~are sent] to a hospital"),
                add("Readers [~bring back {n} {things}]"),
                add("{A} [brings back {n} {things}]"),
                add("The library [buys {n} new {things}]"),
                add("A writer [donates {n} {things}] to the library"),
                add("[{n} more {things} ~are ordered] and put on the shelf"),
            ),
        ),
        questions=(
            ask("How many {things} are in the library now?", "There are {x} {things} there now."),
            ask(
                "How many {things} does the library have now?", "The library has {x} {things} now."
            ),
            ask("How many {things} are left there?", "There are {x} {things} left there."),
        ),
    ),
    Family(
        name="car park",
        things=(
            "car/cars",
            "bike/bikes",
            "truck/trucks",
            "van/vans",
            "taxi/taxis",
            "scooter/scooters",
        ),
        most=150,
        stages=(
            one(
                start("There [are {n} {things}] in a car park"),
                start("A car park [holds {n} {things}] at noon"),
                start("{A} [counts {n} {things}] in front of the school"),
                start("[{n} {things} ~stand] in a parking lot"),
            ),
            some(
                2,
                4,
                add("[{n} more {things} ~come in]"),
                add("[{n} {things} ~arrive] before noon"),
                add("[{n} {things} ~turn in] from the street"),
                add("[{n} more {things} ~are parked] there"),
                take("[{n} {things} ~leave]"),
                take("[{n} of the {things} ~drive away]"),
                take("[{n} {things} ~go] home"),
                take("[{n} {things} ~are taken away]"),
                split("When it gets dark [half of the {things} ~leave]", 2),
                times("During a concert the number of {things} [doubles]", 2),
            ),
        ),
        questions=(
            ask("How many {things} are there now?", "There are {x} {things} now."),
            ask(
                "How many {things} are parked there at the end?",
                "There are {x} {things} at the end.",
            ),
            ask(
                "How many {things} does the place hold at the end?",
                "It holds {x} {things} at the end.",
            ),
            ask("How many {things} are still there?", "There are {x} {things} still there."),
        ),
    ),
    Family(
        name="money box",
        kind="money",
        things=("coin/coins", "dollar/dollars", "euro/euros", "cent/cents"),
        most=500,
        stages=(
            one(
                start("{A} [has {n} {things}] in a money box"),
                start("{A} [saves {n} {things}]"),
                start("There [are {n} {things}] in {A}'s purse"),
                start("{A} [has saved {n} {things}]"),
            ),
            some(
                2,
                4,
                add("{A} [earns {n} {things}] for washing a car"),
                add("{A} [gets {n} {things}] for {his} birthday"),
                add("{A} [finds {n} {things}] under the bed"),
                add("{A} [puts in {n} more] {things}"),
                add("{His} aunt [sends {him} {n} {things}]"),
                add("{A} [sells a toy for {n} {things}]"),
                take("{A} [spends {n} {things}] on a game"),
                take("{A} [pays {n} {things}] for lunch"),
                take("{A} [takes out {n} {things}]"),
                take("{A} [buys a book for {n} {things}]"),
                take("{A} [gives {n} {things}] to a poor man"),
                take("{A} [loses {n} {things}] on the way home"),
                times("{His} uncle [doubles] {his} money", 2),
                times("{His} father [triples] {his} money", 3),
                split("{A} [spends half] of {his} money on shoes", 2),
            ),
        ),
        questions=(
            ask("How many {things} does {A} have now?", "{A} has {x} {things} now."),
            ask("How many {things} does {he} have left?", "{A} has {x} {things} left."),
            ask("How much money does {A} have now?", "{A} has {x} {things} now."),
        ),
    ),
    Family(
        name="party",
        things=("guest/guests", "child/children", "friend/friends", "dancer/dancers"),
        most=100,
        stages=(
            one(
                start("[{n} {things} ~come] to {A}'s party"),
                start("There [are {n} {things}] at a party"),
                start("At noon [{n} {things} ~are] at {A}'s house"),
                start("{A}'s party [starts with {n} {things}]"),
            ),
            some(
                2,
                4,
                add("[{n} more {things} ~arrive]"),
                add("{B} comes late and [brings {n} {things}]"),
                add("[{n} {things} ~join] the dance"),
                add("[{n} {things} ~come in] from the garden"),
                take("[{n} {things} ~are ill and go home]"),
                take("[{n} {things} ~go home] early"),
                take("[{n} of the {things} ~leave]"),
                take("[{n} tired {things} ~go] to bed"),
                take("The rain starts and [{n} {things} ~go away]"),
                split("At the end of the music [half of the {things} ~go home]", 2),
                times("After dinner there [are three times as many] {things}", 3),
            ),
        ),
        questions=(
            ask(
                "How many {things} are at the party now?",
                "There are {x} {things} at the party now.",
            ),
            ask("How many {things} are still there?", "There are {x} {things} still there."),
            ask("How many {things} ~stay at the party?", "{x} {things} ~stay at the party."),
        ),
    ),
    Family(
        name="flower garden",
        things=FLOWERS,
        most=200,
        stages=(
            one(
                start("[{n} {things} ~grow] in {A}'s garden"),
                start("{A} [plants {n} {things}]"),
                start("There [are {n} {things}] behind {A}'s house"),
                start("{A} [has {n} {things}] in {his} garden"),
            ),
            some(
                2,
                4,
                add("{A} [plants {n} more] {things}"),
                add("[{n} new {things} ~open]"),
                add("{A} [adds {n} {things}] near the wall"),
                add("{B} [gives {A} {n} {things}] for the garden"),
                take("{A} [cuts {n} {things}] for the table"),
                take("{A} [picks {n}] of them for {his} mother"),
                take("[{n} {things} ~die] in the heat"),
                take("A goat [eats {n} {things}]"),
                take("The wind [breaks {n} {things}]"),
                split("In a cold night [half of the {things} ~die]", 2),
                times("In a warm month the number of {things} [triples]", 3),
                times("In spring the number of {things} [doubles]", 2),
            ),
        ),
        questions=(
            ask("How many {things} are in the garden now?", "There are {x} {things} there now."),
            ask("How many {things} are left in the garden?", "There are {x} {things} left."),
            ask("How many {things} does {A} have now?", "{A} has {x} {things} now."),
        ),
    ),
    Family(
        name="bakery counter",
        things=BAKED,
        most=300,
        stages=(
            one(
                start("{A} [bakes {n} {things}]"),
                start("A bakery [has {n} {things}] in the morning"),
                start("There [are {n} {things}] in {A}'s shop"),
                start("{A} [makes {n} {things}] before breakfast"),
            ),
            some(
                2,
                4,
                take("{A} [sells {n} {things}]"),
                take("{A} [burns {n}] of the {things}"),
                take("Hungry children [~eat {n} {things}]"),
                take("A hotel [buys {n}] of them"),
                take("[{n} {things} ~fall] on the floor and are thrown away"),
                take("{A} [sends {n} {things}] to a school"),
                take("[{n} {things} ~are taken away] by a baker"),
                take("A neighbor [buys {n}] of these {things}"),
                take("{A} [gives away {n} {things}]"),
                add("{A} [bakes {n} more] {things}"),
                add("{A} [makes another {n} {things}]"),
                add("[{n} more {things} ~come] out of the oven"),
                add("{A} [adds a dozen] {things}", 12),
                split("[half of the {things} ~are sold]", 2),
            ),
        ),
        questions=(
            ask("How many {things} are left?", "There are {x} {things} left."),
            ask("How many {things} are there at the end?", "There are {x} {things} at the end."),
            ask(
                "How many {things} are in the shop now?", "There are {x} {things} in the shop now."
            ),
        ),
    ),
    Family(
        name="growing pile",
        things=(
            "leaf/leaves",
            "brick/bricks",
            "log/logs",
            "stone/stones",
            "box/boxes",
            "tile/tiles",
        ),
        most=50,
        stages=(
            one(
                start("A pile [has {n} {things}]"),
                start("{A} makes a pile of [{n} {things}]"),
                start("There [are {n} {things}] on a pile"),
                start("{A} [carries {n} {things}] to the yard"),
            ),
            some(
                2,
                4,
                times("{A} [doubles] the number of {things}", 2),
                times("{A} [triples] the number of {things}", 3),
                times("{A} works until there [are {k} times as many] {things}"),
                split("{A} [takes half] of the {things} away", 2),
                split("{A} keeps only [a third] of the {things}", 3),
                add("Children [~collect {n} more] {things}"),
                add("{A} [adds {n} {things}]"),
                add("{B} [puts {n} more] {things} on the pile"),
                add("{A} [brings {n} {things}] from the street"),
                take("{A} [uses {n} {things}]"),
                take("{B} [takes {n} {things}] away"),
                take("The wind [blows away {n} {things}]"),
            ),
        ),
        questions=(
            ask(
                "How many {things} are on the pile now?", "There are {x} {things} on the pile now."
            ),
            ask("How many {things} are there at the end?", "There are {x} {things} at the end."),
            ask("How many {things} are in the pile then?", "There are {x} {things} in the pile."),
        ),
    ),
    Family(
        name="airport",
        things=("plane/planes", "helicopter/helicopters", "airship/airships"),
        owners=("airport", "airfield"),
        most=150,
        stages=(
            one(
                start("There [are {n} {things}] at an {A}"),
                start("An {A} [has {n} {things}]"),
                start("[{n} {things} ~stand] at an {A} in the morning"),
            ),
            some(
                2,
                4,
                add("[{n} {things} ~land] before noon"),
                add("[{n} more {things} ~fly in] from the south"),
                add("[{n} new {things} ~are built]"),
                add("The {A} [buys {n} {things}]"),
                take("[{n} {things} ~fly away]"),
                take("[{n} of the {things} ~leave] for the north"),
                take("[{n} {things} ~are sold]"),
                take("[{n} {things} ~are taken away] at night"),
                split("In good weather [half of the {things} ~fly away]", 2),
                times("For a big show the number of {things} [triples]", 3),
            ),
        ),
        questions=(
            ask("How many {things} are at the {A} now?", "There are {x} {things} at the {A} now."),
            ask("How many {things} are left there?", "There are {x} {things} left there."),
            ask("Find the number of {things} at the end.", "There are {x} {things} at the end."),
        ),
    ),
    Family(
        name="lamp at night",
        things=("moth/moths", "bat/bats", "fly/flies", "beetle/beetles"),
        owners=("lamp", "window", "tree", "barn"),
        most=100,
        stages=(
            one(
                start("[{n} {things} ~sit] on a {A}"),
                start("A boy [finds {n} {things}] near a {A}"),
                start("[{n} {things} ~fly round] a {A}"),
            ),
            some(
                2,
                4,
                add("[{n} more ~fly] to it"),
                add("[{n} {things} ~come] from the garden"),
                add("[{n} other {things} ~land] on it"),
                take("A bird [catches {n}] of them"),
                take("[{n} of the {things} ~fly away]"),
                take("[{n} {things} ~fall] to the floor and go away"),
                take("A cat [eats {n} {things}]"),
                split("In the rain [half of them ~fly away]", 2),
                times("At night there [are {k} times as many]"),
            ),
        ),
        questions=(
            ask("How many {things} are at the {A} now?", "There are {x} {things} at the {A} now."),
            ask("How many {things} are still there?", "There are {x} {things} still there."),
        ),
    ),
)

_GROUPS = (
    Family(
        name="boxes at home",
        things=TOYS + SWEETS,
        boxes=CONTAINERS,
        most=60,
        stages=(
            one(
                groups("{A} has [{a} {boxes} with {b} {things} each]"),
                groups("{A} has [{a} {boxes} of {things} with {b} in each {box}]"),
                groups("{A} opens [{a} {boxes} with {b} {things} in each {box}]"),
                groups("{A} buys [{a} {boxes}. Each {box} holds {b} {things}]"),
                groups("There are [{a} {boxes} with {b} {things} in every {box}]"),
            ),
            some(
                1,
                3,
                add("{A} [finds {n} more] {things}"),
                add("The children [~find {n} more] in the house"),
                add("{A} [buys {n} more] {things}"),
                add("{His} grandmother [gives {him} {n} {things}]"),
                take("{A} [gives {n} {things}] to {B}"),
                take("{A} [loses {n}] of them"),
                take("{A} [gives away {n} {things}] to friends"),
                take("{B} [takes {n} {things}]"),
                take_groups("{A} [gives away] [{a} {boxes} with {b} {things} each]"),
                add_groups("{A} [gets] [{a} more {boxes} with {b} {things} each]"),
            ),
        ),
        questions=(
            ask("How many {things} does {A} have now?", "{A} has {x} {things} now."),
            ask("How many {things} are there at the end?", "There are {x} {things} at the end."),
            ask("How many {things} does {he} have left?", "{A} has {x} {things} left."),
        ),
    ),
    Family(
        name="shelves",
        things=("book/books", "jar/jars", "game/games", "tin/tins", "bottle/bottles"),
        boxes=("shelf/shelves", "row/rows", "cupboard/cupboards"),
        most=60,
        stages=(
            one(
                groups("A shop has [{a} {boxes} of {b} {things}]"),
                groups("[Each of the {a} {boxes} holds {b} {things}]"),
                groups("There are [{a} full {boxes} with {b} {things} each]"),
                groups("There are [{a} {boxes} in the shop, and each has {b} {things}]"),
                groups("{A} fills [{a} {boxes} with {b} {things} each]"),
            ),
            some(
                1,
                3,
                take("[{n} {things} ~fall and ~break]"),
                take("[{n} of these {things} ~are too old and thrown away]"),
                take("{A} [sells {n} {things}]"),
                take("[{n} {things} ~are sold]"),
                take("[{n} {things} ~are broken] and thrown away"),
                take("{B} [buys {n} {things}] from the shop"),
                add("A truck [brings {n} more] {things}"),
                add("{A} [adds {n} {things}]"),
                add("[{n} {things} ~are delivered]"),
                add_groups("{A} [adds] [{a} {boxes} of {b} {things}]"),
                take_groups("{A} [empties] [{a} {boxes} with {b} {things} each]"),
            ),
        ),
        questions=(
            ask("How many {things} are there now?", "There are {x} {things} now."),
            ask(
                "How many {things} are in the shop now?", "There are {x} {things} in the shop now."
            ),
            ask(
                "How many {things} do the {boxes} hold now?", "The {boxes} ~hold {x} {things} now."
            ),
            ask("How many {things} are left?", "There are {x} {things} left."),
        ),
    ),
    Family(
        name="classroom",
        things=SCHOOL,
        boxes=("table/tables", "desk/desks", "group/groups", "class/classes"),
        most=80,
        stages=(
            one(
                groups("A teacher puts [{b} {things} on each of {a} {boxes}]"),
                groups("There are [{a} {boxes} with {b} {things} on each {box}]"),
                groups("{A} lays [{b} {things} on every one of {a} {boxes}]"),
                groups("{A} needs [{b} {things} for each of the {a} {boxes}] and brings them all"),
            ),
            some(
                1,
                3,
                take("[{n} {things} ~are broken] and thrown away"),
                take("The children [~use {n} {things}]"),
                take("{A} [takes away {n} {things}]"),
                take("[{n} of the {things} ~are lost]"),
                add("The children [~find {n} more] {things}"),
                take("[{n} {things} ~break] and ~are thrown away"),
                add("{A} [brings {n} more] {things}"),
                add("The school [buys another {n} {things}]"),
                add("[{n} {things} ~are found] in a drawer and added"),
                split("The teacher [puts half] of the {things} away", 2),
            ),
        ),
        questions=(
            ask("How many {things} are there now?", "There are {x} {things} now."),
            ask(
                "How many {things} are in the room now?", "There are {x} {things} in the room now."
            ),
            ask("How many {things} can be used now?", "{x} {things} can be used now."),
        ),
    ),
    Family(
        name="orchard rows",
        things=("tree/trees", "bush/bushes", "vine/vines", "palm/palms"),
        boxes=("row/rows", "line/lines"),
        most=90,
        stages=(
            one(
                groups("A farmer plants [{a} {boxes} of {b} {things}]"),
                groups("On {A}'s farm there are [{a} {boxes} with {b} {things} in each]"),
                groups("{A} plants [{b} {things} in each of {a} {boxes}]"),
                groups("A field has [{a} {boxes}, and every {box} has {b} {things}]"),
            ),
            some(
                1,
                3,
                take("A storm [breaks {n} {things}]"),
                take("{A} [cuts down {n} {things}]"),
                take("[{n} {things} ~die] in winter"),
                take("{A} [sells {n}] of the {things}"),
                add("{A} [plants another {n} {things}]"),
                add("{B} [plants {n} more] {things}"),
                add_groups("{A} [adds] [{a} {boxes} of {b} {things}]"),
                add_groups("{B} [plants] [{a} more {boxes} with {b} {things} each]"),
                take_groups("{A} [digs out] [{a} {boxes} of {b} {things}]"),
            ),
        ),
        questions=(
            ask("How many {things} are there now?", "There are {x} {things} now."),
            ask(
                "How many {things} ~stand there at the end?",
                "{x} {things} ~stand there at the end.",
            ),
            ask("How many {things} does the farm have now?", "The farm has {x} {things} now."),
        ),
    ),
    Family(
        name="eggs by the dozen",
        things=("egg/eggs", "bun/buns", "roll/rolls", "oyster/oysters"),
        most=60,
        stages=(
            one(
                groups("{A} buys [{a} dozen {things}]", 12),
                groups("A cook orders [{a} dozen {things}]", 12),
                groups("There are [{a} dozen {things}] in the kitchen", 12),
                groups("{A} has [{a} boxes with a dozen {things} each]", 12),
            ),
            some(
                1,
                3,
                take("{A} [uses {n} {things}] for lunch"),
                take("[{n} {things} ~break] on the way"),
                take("{A} [eats {n} {things}]"),
                take("{A} [cooks {n}] of them"),
                take("{A} [gives a dozen] to {B}", 12),
                take("The cook [drops {n} {things}]"),
                add("{B} [brings {n} more] {things}"),
                add("{A} [buys another {n} {things}]"),
                add("{A} [gets a dozen] more", 12),
                split("Then [half of them ~are eaten]", 2),
            ),
        ),
        questions=(
            ask("How many {things} are left?", "There are {x} {things} left."),
            ask("How many {things} are there now?", "There are {x} {things} now."),
            ask(
                "How many {things} are in the kitchen at the end?",
                "There are {x} {things} at the end.",
            ),
        ),
    ),
    Family(
        name="delivery truck",
        things=("parcel/parcels", "letter/letters", "bottle/bottles", "newspaper/newspapers"),
        boxes=("bag/bags", "crate/crates", "sack/sacks", "cart/carts"),
        most=100,
        stages=(
            one(
                groups("A truck carries [{a} {boxes} of {b} {things}]"),
                groups("{A} fills [{a} {boxes} with {b} {things} each]"),
                groups("There are [{b} {things} in each of {a} {boxes}] on a truck"),
                groups("{A} drives a truck with [{a} {boxes}. Every {box} holds {b} {things}]"),
            ),
            some(
                1,
                3,
                take("{A} [delivers {n} {things}] to a hotel"),
                take("{A} [leaves {n} {things}] at the school"),
                take("[{n} {things} ~get lost]"),
                take("[{n} of the {things} ~are wet and thrown away]"),
                add("{A} [picks up {n} {things}] in town"),
                add("{A} [collects {n} more] {things}"),
                add("{B} [hands {him} {n} more] {things}"),
                take_groups("{A} [delivers] [{b} {things} to each of {a} houses]"),
                add_groups("{A} [takes] on [{a} more {boxes} of {b} {things}]"),
            ),
        ),
        questions=(
            ask(
                "How many {things} are on the truck now?",
                "There are {x} {things} on the truck now.",
            ),
            ask("How many {things} are left on the truck?", "There are {x} {things} left."),
            ask("How many {things} does {A} still have?", "{A} still has {x} {things}."),
        ),
    ),
    Family(
        name="stamp album",
        things=(*KEPT, "photo/photos", "picture/pictures"),
        boxes=("page/pages", "sheet/sheets"),
        most=60,
        stages=(
            one(
                groups("{A} fills [{a} {boxes} with {b} {things} each]"),
                groups("{A} has [{a} {boxes} of {things}, {b} on each {box}]"),
                groups("{A} puts [{b} {things} on each of {a} {boxes}]"),
                groups("There are [{a} full {boxes}, and each one shows {b} {things}]"),
            ),
            some(
                1,
                3,
                add("{A} [collects {n} more] {things}"),
                add("{A} [receives {n} {things}] by mail"),
                add("{B} [lets {him} have {n} {things}]"),
                add("{A} sells a toy and [gets {n} {things}] for it"),
                take("{A} [takes out {n} {things}]"),
                take("{A} [sells {n}] of the {things}"),
                take("{A} [sends {n} {things}] to {B}"),
                take("{B} [borrows {n} {things}]"),
                times("{A} works hard and [doubles] the number of {things}", 2),
            ),
        ),
        questions=(
            ask("How many {things} does {A} have now?", "{A} has {x} {things} now."),
            ask("How many {things} are there then?", "There are {x} {things}."),
            ask("How many {things} does {he} own at the end?", "{A} owns {x} {things} at the end."),
        ),
    ),
    Family(
        name="teams and seats",
        things=(
            "player/players",
            "runner/runners",
            "singer/singers",
            "swimmer/swimmers",
            "boy/boys",
        ),
        boxes=("team/teams", "group/groups", "bus/buses", "boat/boats", "room/rooms"),
        most=60,
        each=15,
        stages=(
            one(
                groups("[{a} {boxes} of {b} {things}] ~come to the games"),
                groups("There are [{a} {boxes} with {b} {things} in each]"),
                groups("At the start there are [{a} {boxes}, each with {b} {things}]"),
                groups("Every one of the [{a} {boxes} brings {b} {things}]"),
            ),
            some(
                1,
                3,
                take("[{n} {things} ~go home]"),
                take("[{n} of the {things} ~are ill and leave]"),
                take("[{n} {things} ~leave] early"),
                add("[{n} more {things} ~join]"),
                add("[{n} {things} ~arrive] late"),
                add_groups("[{a} more {boxes} of {b} {things}] [~arrive]"),
                take_groups("[{a} {boxes} of {b} {things}] [~leave]"),
                split("After the first day [half of the {things} ~go home]", 2),
            ),
        ),
        questions=(
            ask("How many {things} are there now?", "There are {x} {things} now."),
            ask("How many {things} are still there?", "There are {x} {things} still there."),
            ask("How many {things} ~stay to the end?", "{x} {things} ~stay to the end."),
        ),
    ),
)

_COMPARISON = (
    Family(
        name="collections compared",
        things=KEPT + TOYS,
        most=120,
        stages=(
            one(
                start("[{A} has {n} {things}]"),
                start("[{A} owns {n} {things}]"),
                start("[{A} collects {n} {things}]"),
            ),
            one(
                more("[{B} has {n} more] {things} than {A}"),
                fewer("[{B} has {n} fewer] {things} than {A}"),
                times_as("[{B} has {k} times as many] {things} as {A}"),
                times_as("[{B} has twice as many] {things} as {A}", 2),
                share_as("[{B} has half as many] {things} as {A}", 2),
            ),
            some(
                0,
                1,
                more("[{C} has {n} more] {things} than {B}"),
                fewer("[{C} has {n} fewer] {things} than {B}"),
                times_as("[{C} has twice as many] {things} as {B}", 2),
                share_as("[{C} has half as many] {things} as {B}", 2),
            ),
        ),
        questions=(
            total(
                "How many {things} do they have [together]?", "Together they ~have {x} {things}."
            ),
            total("How many {things} do they have [in all]?", "In all they ~have {x} {things}."),
            total("How many {things} are there [in total]?", "In total there are {x} {things}."),
        ),
    ),
    Family(
        name="harvest compared",
        things=FRUIT + VEGETABLES,
        most=150,
        stages=(
            one(
                start("[{A} picks {n} {things}]"),
                start("[{A} gathers {n} {things}] on the farm"),
                start("In the field [{A} collects {n} {things}]"),
            ),
            one(
                more("[{B} picks {n} more] {things} than {A}"),
                fewer("[{B} picks {n} fewer] than {A}"),
                times_as("[{B} gathers {k} times as many] as {A}"),
                times_as("[{B} picks three times as many] as {A}", 3),
                share_as("[{B} collects only half as many] as {A}", 2),
            ),
            some(
                0,
                1,
                more("[{C} gathers {n} more] than {B}"),
                fewer("[{C} gathers {n} fewer] than {B}"),
                times_as("[{C} collects double the number] of {B}", 2),
                share_as("[{C} gathers a third as many] as {B}", 3),
            ),
        ),
        questions=(
            total(
                "How many {things} do they pick [together]?", "Together they ~pick {x} {things}."
            ),
            total(
                "How many {things} do they bring home [in total]?",
                "In total they ~bring {x} {things}.",
            ),
            total("How many {things} is that [altogether]?", "Altogether that is {x} {things}."),
        ),
    ),
    Family(
        name="third person asked",
        things=SWEETS + SCHOOL,
        most=150,
        stages=(
            one(
                start("[{A} has {n} {things}]"),
                start("[{A} buys {n} {things}]"),
                start("[{A} gets {n} {things}]"),
            ),
            one(
                more("[{B} has {n} more] than {A}"),
                more("[{B} gets {n} more] {things} than {A}"),
                fewer("[{B} has {n} less] than {A}"),
                fewer("[{B} has {n} fewer] {things} than {A}"),
                times_as("[{B} has {k} times the number] of {A}'s {things}"),
                share_as("[{B} has a third as many] {things} as {A}", 3),
            ),
            one(
                more("[{C} has {n} more] than {B}"),
                fewer("[{C} has {n} fewer] {things} than {B}"),
                times_as("[{C} has {k} times as many] {things} as {B}"),
                times_as("[{C} has double the number] of {B}'s {things}", 2),
                share_as("[{C} has half as many] {things} as {B}", 2),
            ),
        ),
        questions=(
            ask("How many {things} does {C} have?", "{C} has {x} {things}."),
            ask("What is the number of {C}'s {things}?", "{C} has {x} {things}."),
            ask("Find the number of {C}'s {things}.", "{C} has {x} {things}."),
        ),
    ),
    Family(
        name="animals of a farm",
        things=("animal/animals",),
        owners=("cows", "goats", "pigs", "hens", "horses", "lambs", "rabbits", "sheep", "ducks"),
        most=90,
        stages=(
            one(
                start("A farm [has {n} {A}]"),
                start("On a farm there [are {n} {A}]"),
                start("A farmer [keeps {n} {A}]"),
                start("[{n} {A} ~live] on a farm"),
            ),
            one(
                more("There [are {n} more {B}] than {A}"),
                fewer("There [are {n} fewer {B}] than {A}"),
                times_as("There [are {k} times as many {B}] as {A}"),
                times_as("It [has twice as many {B}] as {A}", 2),
                share_as("There [are half as many {B}] as {A}", 2),
            ),
            some(
                0,
                1,
                more("There [are {n} more {C}] than {B}"),
                fewer("The farm [has {n} fewer {C}] than {B}"),
                times_as("There [are three times as many {C}] as {B}", 3),
            ),
        ),
        questions=(
            total("How many {things} are there [in all]?", "There are {x} {things} in all."),
            total(
                "How many {things} ~live there [altogether]?",
                "Altogether {x} {things} ~live there.",
            ),
            total("What is the [total] number of {things}?", "The total is {x} {things}."),
        ),
    ),
    Family(
        name="points in a game",
        kind="points",
        things=("point/points", "goal/goals", "star/stars"),
        most=150,
        stages=(
            one(
                start("[{A} scores {n} {things}]"),
                start("In a game [{A} wins {n} {things}]"),
                start("[{A} makes {n} {things}]"),
            ),
            one(
                more("[{B} scores {n} {things} more] than {A}"),
                fewer("[{B} scores {n} {things} less] than {A}"),
                times_as("[{B} scores {k} times as many] as {A}"),
                times_as("[{B} makes double the score] of {A}", 2),
                share_as("[{B} gets only half as many] as {A}", 2),
            ),
            some(
                0,
                2,
                add("In the last round [{B} scores {n} more]"),
                take("At the end [{B} loses {n} {things}]"),
                add("For a good jump [{B} gets {n} extra {things}]"),
            ),
        ),
        questions=(
            total(
                "How many {things} do they have [together]?", "Together they ~have {x} {things}."
            ),
            total(
                "How many {things} do the two score [in total]?",
                "In total they ~score {x} {things}.",
            ),
            difference(
                "[How many more] {things} does {high} have than {low}?",
                "{high} has {x} more {things} than {low}.",
            ),
        ),
    ),
    Family(
        name="ages",
        kind="time",
        things=("year/years",),
        most=40,
        stages=(
            one(
                start("[{A} is {n} years] old"),
                start("This year [{A} is {n}]"),
                start("The age of {A} [is {n} years]"),
            ),
            one(
                more("[{B} is {n} years older] than {A}"),
                fewer("[{B} is {n} years younger] than {A}"),
                times_as("[{B} is twice as old] as {A}", 2),
                times_as("[{B} is {k} times as old] as {A}"),
                share_as("[{B} is half as old] as {A}", 2),
            ),
            one(
                more("[{C} is {n} years older] than {B}"),
                fewer("[{C} is {n} years younger] than {B}"),
                share_as("[{C} is half as old] as {B}", 2),
                times_as("[{C} is twice the age] of {B}", 2),
            ),
        ),
        questions=(
            ask("How old is {C}?", "{C} is {x} years old."),
            ask("What is the age of {C}?", "{C} is {x} years old."),
            total("How old are the three [together]?", "Together they ~are {x} years old."),
            total("What is the [sum] of their ages?", "The sum of their ages is {x} years."),
        ),
    ),
    Family(
        name="pages compared",
        kind="done",
        things=("page/pages", "story/stories", "poem/poems", "chapter/chapters"),
        most=160,
        stages=(
            one(
                start("[{A} reads {n} {things}] in a week"),
                start("In the holidays [{A} reads {n} {things}]"),
                start("[{A} writes {n} {things}]"),
            ),
            one(
                more("[{B} reads {n} more] than {A}"),
                fewer("[{B} reads {n} fewer] {things} than {A}"),
                times_as("[{B} reads {k} times as many] {things} as {A}"),
                times_as("[{B} finishes three times as many] {things} as {A}", 3),
                share_as("[{B} reads a third as many] as {A}", 3),
            ),
            some(
                0,
                1,
                more("[{C} finishes {n} more] than {B}"),
                fewer("[{C} finishes {n} less] than {B}"),
                times_as("[{C} reads twice as many] {things} as {B}", 2),
            ),
        ),
        questions=(
            total("How many {things} is that [altogether]?", "Altogether that is {x} {things}."),
            total("How many {things} do they read [in all]?", "In all they ~read {x} {things}."),
            total("[Together] how many {things} is that?", "Together that is {x} {things}."),
        ),
    ),
    Family(
        name="distances compared",
        kind="way gone",
        things=("mile/miles", "kilometer/kilometers", "meter/meters"),
        most=120,
        stages=(
            one(
                start("[{A} walks {n} {things}]"),
                start("[{A} rides {n} {things}] by bike"),
                start("On Monday [{A} travels {n} {things}]"),
            ),
            one(
                more("[{B} walks {n} {things} farther] than {A}"),
                more("[{B} travels {n} {things} more] than {A}"),
                fewer("[{B} rides {n} {things} less] than {A}"),
                times_as("[{B} travels {k} times as far] as {A}"),
                times_as("[{B} walks twice as far] as {A}", 2),
                share_as("[{B} rides half as far] as {A}", 2),
            ),
            some(
                0,
                1,
                more("[{C} rides {n} {things} more] than {B}"),
                fewer("[{C} walks {n} {things} less] than {B}"),
                share_as("[{C} travels a third as far] as {B}", 3),
            ),
        ),
        questions=(
            total("How many {things} is that [together]?", "Together that is {x} {things}."),
            total("How far do they go [in total]?", "In total they ~go {x} {things}."),
            total("What is the [sum] of their {things}?", "The sum is {x} {things}."),
        ),
    ),
)

_PRICES = (
    Family(
        name="lunch bill",
        kind="bill",
        things=("soup/soups", "salad/salads", "burger/burgers", "pizza/pizzas", "coffee/coffees"),
        most=60,
        each=20,
        stages=(
            one(
                groups("{A} orders [{a} {things} for {b} euros each]"),
                groups("With some friends {A} eats [{a} {things} that ~cost {b} euros each]"),
                groups("For lunch there are [{a} {things} at {b} euros each]"),
            ),
            some(
                1,
                2,
                add("The cups of tea [~cost {n} euros more]"),
                add("A small cake [costs {n} euros]"),
                add("{A} [adds {n} euros] for the waiter"),
                take("The cook [takes {n} euros off] the bill"),
                take("A friend [pays {n} euros] of it"),
            ),
            one(
                note("{A} [pays with a note of {n}] euros"),
                note("{A} [gives the waiter a note of {n}] euros"),
                note("{A} [pays with {n} euros]"),
            ),
        ),
        questions=(
            ask("How many euros does the waiter give back?", "The waiter gives back {x} euros."),
            ask("How much change does {A} get?", "{A} gets {x} euros change."),
        ),
    ),
    Family(
        name="taxi ride",
        kind="fare",
        things=("mile/miles", "kilometer/kilometers"),
        most=40,
        each=12,
        stages=(
            one(
                groups("{A} takes a taxi for [{a} {things} at {b} dollars each]"),
                groups("A taxi costs [{b} dollars per {thing}, and {A} rides {a} {things}]"),
                groups("{A} rides in a taxi for [{a} {things}. Each {thing} costs {b} dollars]"),
            ),
            some(
                0,
                1,
                add("The bags [~cost {n} dollars more]"),
                add("{A} [gives {n} dollars more] to the driver"),
                take("With a ticket {A} [gets {n} dollars off] the price"),
            ),
            one(
                note("{A} [gives the driver a note of {n}] dollars"),
                note("{A} [has a note of {n}] dollars and pays with it"),
            ),
        ),
        questions=(
            ask("How many dollars does {A} get back?", "{A} gets {x} dollars back."),
            ask("How much money does the driver give back?", "The driver gives back {x} dollars."),
        ),
    ),
    Family(
        name="shopping with a note",
        kind="goods",
        things=CLOTHES + TOYS,
        most=100,
        each=40,
        stages=(
            one(
                groups("{A} buys [{a} {things} at {b} coins each]"),
                groups("{A} buys [{a} {things}. Each {thing} costs {b} coins]"),
                groups("[One {thing} costs {b} coins. {A} buys {a}] of them"),
                groups("{A} takes [{a} {things} for {b} coins each]"),
            ),
            some(
                0,
                1,
                add("{A} buys a bag [for {n} coins] too"),
                add("{A} [pays {n} coins] for a small bag"),
                add("{A} [pays {n} coins more] for a bag"),
                take("{A} [gets {n} coins off] the price"),
            ),
            one(
                note("{A} [pays with a note of {n}] coins"),
                note("{A} [gives the seller {n}] coins"),
                note("{A} [pays with {n} coins]"),
                note("{A} [has {n} coins] and pays for everything"),
            ),
        ),
        questions=(
            ask("How much change does {A} get?", "{A} gets {x} coins change."),
            ask("How many coins does {A} get back?", "{A} gets {x} coins back."),
            ask("How much money is left?", "{x} coins are left."),
        ),
    ),
    Family(
        name="two kinds of goods",
        kind="two goods",
        things=SCHOOL + SWEETS,
        owners=(
            "apples",
            "pears",
            "lemons",
            "pens",
            "rulers",
            "hats",
            "cups",
            "cakes",
            "books",
            "balls",
            "plates",
            "socks",
        ),
        most=60,
        each=30,
        stages=(
            one(
                groups("A woman buys [{a} {A} at {b} coins each]"),
                groups("A man buys [{a} {A} for {b} coins each]"),
                groups("The shop sells {A}. A girl buys [{a} {A} and pays {b} coins for each]"),
            ),
            one(
                groups("The same bill shows [{a} {B} at {b} coins each]"),
                groups("On the bill there are also [{a} {B} at {b} coins each]"),
                start("The [{B} ~cost {n} coins]"),
                start("There are also {B} [for {n} coins] on the bill"),
            ),
            some(
                0,
                1,
                start("A bag [costs {n} coins]"),
                start("There is also a drink [for {n} coins]"),
            ),
        ),
        questions=(
            total("How many coins do they cost [together]?", "Together they ~cost {x} coins."),
            total(
                "How much does everything cost [in total]?", "In total everything costs {x} coins."
            ),
            total("What is the [total] price?", "The total price is {x} coins."),
        ),
    ),
    Family(
        name="saved money spent",
        kind="dollars",
        things=BAKED + FRUIT,
        most=400,
        each=25,
        stages=(
            one(
                start("{A} [has {n} dollars]"),
                start("{A} [goes to the market with {n} dollars]"),
                start("There [are {n} dollars] in {A}'s purse"),
                start("{A} [takes {n} dollars] to the shop"),
            ),
            some(
                1,
                2,
                take_groups("{A} [buys] [{a} {things} at {b} dollars each]"),
                take_groups("{A} [spends] money on [{a} {things} that ~cost {b} dollars each]"),
                take("{A} [spends {n} dollars] on a bag"),
                take("{A} [pays {n} dollars] for the bus"),
                take("A coat [costs {him} {n} dollars]"),
                add("{A} [earns {n} dollars] on the way"),
                add("{B} [pays {him} back {n} dollars]"),
            ),
        ),
        questions=(
            ask("How many dollars does {A} have left?", "{A} has {x} dollars left."),
            ask("How much money does {A} have now?", "{A} has {x} dollars now."),
            ask("How many dollars ~remain?", "{x} dollars ~remain."),
        ),
    ),
    Family(
        name="selling",
        kind="cents",
        things=BAKED + FLOWERS + FRUIT,
        most=100,
        each=30,
        stages=(
            one(
                groups("{A} sells [{a} {things} at {b} cents each]"),
                groups("{A} sells [{a} {things} for {b} cents each]"),
                groups("At the fair {A} sells [{a} {things} and gets {b} cents for each]"),
                groups("People ~pay [{b} cents for a {thing}, and {A} sells {a}] of them"),
            ),
            some(
                1,
                2,
                add("{A} [earns {n} cents more] with old books"),
                add("{A} [gets {n} cents] as a gift"),
                take("{A} [pays {n} cents] for a table"),
                take("{A} [spends {n} cents] on lunch"),
                take("{A} [gives {n} cents] to {B} for the help"),
                add_groups("{A} [sells] [{a} books at {b} cents each] too"),
            ),
        ),
        questions=(
            ask("How many cents does {A} have at the end?", "{A} has {x} cents at the end."),
            ask("How much money does {he} have now?", "{A} has {x} cents now."),
            ask("How many cents are left?", "{x} cents are left."),
        ),
    ),
    Family(
        name="price of one",
        kind="price of one",
        things=KITCHEN + SCHOOL,
        most=100,
        each=30,
        stages=(
            one(
                start("{A} [pays {n} coins] for some {things}"),
                start("Some {things} [~cost {n} coins]"),
                start("The price of a set of {things} [is {n} coins]"),
            ),
            one(
                split("There are [{k} {things}], and all have the same price"),
                split("{A} gets [{k} {things}] with the same price"),
            ),
            some(
                1,
                2,
                add("The price of one {thing} [goes up by {n} coins]"),
                take("The price of one {thing} [goes down by {n} coins]"),
                times("For a red {thing} the price [is twice as high]", 2),
            ),
        ),
        questions=(
            ask("How many coins does one {thing} cost then?", "One {thing} costs {x} coins then."),
            ask("What is the price of one {thing} then?", "One {thing} costs {x} coins then."),
        ),
    ),
    Family(
        name="saving for something",
        kind="euros",
        things=("bike/bikes", "guitar/guitars", "tent/tents", "camera/cameras", "drum/drums"),
        most=300,
        each=30,
        stages=(
            one(
                groups("{A} saves [{b} euros a week for {a} weeks]"),
                groups("{A} earns [{b} euros a day for {a} days]"),
                groups("For [{a} weeks {A} saves {b} euros each week]"),
                start("{A} [has saved {n} euros]"),
                start("{A} [has {n} euros]"),
            ),
            some(
                1,
                2,
                add("{A} [gets {n} euros] from {his} uncle"),
                add("{A} [earns {n} euros more] with garden work"),
                add("{His} sister [adds {n} euros]"),
                take("{A} [spends {n} euros] on a ticket"),
                take("{A} [loses {n} euros]"),
            ),
            one(
                goal("A {thing} [costs {n} euros]"),
                goal("{A} [needs {n} euros] for a {thing}"),
                goal("{A} wants a {thing} that [costs {n} euros]"),
            ),
        ),
        questions=(
            ask("How many more euros does {A} need?", "{A} needs {x} more euros."),
            ask("How many euros are still missing?", "{x} euros are still missing."),
            ask("How much does {A} still have to save?", "{A} still has to save {x} euros."),
        ),
    ),
    Family(
        name="tickets",
        kind="tickets",
        things=("adult/adults", "child/children", "student/students", "visitor/visitors"),
        owners=("circus", "zoo", "cinema", "museum", "theater"),
        most=60,
        each=30,
        stages=(
            one(
                groups("At the {A} [a ticket costs {b} dollars, and {a} {things}] ~go in"),
                groups("[{a} {things} ~pay {b} dollars each] at the {A}"),
                groups("The {A} sells [{a} tickets at {b} dollars each]"),
            ),
            some(
                1,
                2,
                add("The guests [~pay {n} dollars more] for coffee"),
                add("The guide [costs {n} dollars more]"),
                add_groups("[{a} babies ~pay {b} dollars each], and this [is added]"),
                take("A coupon takes [{n} dollars off]"),
                take("[{n} dollars ~are given back]"),
            ),
        ),
        questions=(
            ask("How many dollars are paid in the end?", "{x} dollars are paid in the end."),
            ask("How much money does the {A} get?", "The {A} gets {x} dollars."),
        ),
    ),
)

_SHARING = (
    Family(
        name="friends share",
        things=SWEETS + BAKED + FRUIT,
        boxes=("friend/friends", "child/children", "cousin/cousins", "neighbor/neighbors"),
        most=90,
        stages=(
            one(
                start("{A} [has {n} {things}]"),
                start("{A} [owns {n} {things}]"),
                start("{A} [buys {n} {things}]"),
                groups("{A} has [{a} bags with {b} {things} each]"),
            ),
            some(
                0,
                2,
                add("{A} [gets {n} more] {things}"),
                add("{B} [brings {n} {things}]"),
                take("{A} [eats {n} {things}]"),
                take("{A} [gives {n} {things}] to {his} mother"),
                take("[{n} {things} ~are rotten and thrown away]"),
            ),
            one(
                split("{A} shares the {things} [equally among {k} {boxes}]"),
                split("{A} divides them [equally between {k} {boxes}]"),
                split("[{k} {boxes} ~share] all of them equally"),
                split("[{k} {boxes} ~divide] them equally"),
                split("{A} gives them all to [{k} {boxes}, the same number to each]"),
            ),
        ),
        questions=(
            ask("How many {things} does each {box} get?", "Each {box} gets {x} {things}."),
            ask("How many {things} does one {box} receive?", "One {box} receives {x} {things}."),
            ask(
                "How many {things} are there for each {box}?",
                "There are {x} {things} for each {box}.",
            ),
        ),
    ),
    Family(
        name="packing",
        things=(*FRUIT, *KITCHEN, "candle/candles", "soap/soaps"),
        boxes=CONTAINERS,
        most=120,
        stages=(
            one(
                start("{A} [has {n} {things}] to pack"),
                start("A shop [gets {n} {things}]"),
                start("There [are {n} {things}] on a table"),
            ),
            some(
                0,
                2,
                add("[{n} more {things} ~arrive]"),
                add("{A} [finds {n} more] {things}"),
                take("[{n} {things} ~are broken] and thrown away"),
                take("{A} [sells {n}] of them"),
                take("{A} [puts {n} {things}] aside"),
            ),
            one(
                split("{A} puts [{k} {things} in each {box}]"),
                split("Each {box} [holds {k} {things}], and {A} puts away all the {things}"),
                split("{A} fills {boxes} [with {k} {things} each]"),
                split("[{k} {things} ~fit] in one {box}"),
            ),
        ),
        questions=(
            ask("How many {boxes} does {A} fill?", "{A} fills {x} {boxes}."),
            ask("How many {boxes} are needed?", "{x} {boxes} are needed."),
            ask("How many full {boxes} are there?", "There are {x} full {boxes}."),
        ),
    ),
    Family(
        name="share and then change",
        things=KEPT + TOYS,
        most=90,
        stages=(
            one(
                start("A teacher [has {n} {things}]"),
                start("{B} [buys {n} {things}]"),
                groups("{B} has [{a} boxes with {b} {things} each]"),
            ),
            one(
                split("[{k} children ~share] them equally, and {A} is one of the children"),
                split("{A} is in a group of [{k} children that ~get the same number] each"),
                split("[{k} children ~divide] them equally, and one of them is {A}"),
                split("They are dealt [equally among {k} children], and {A} is one of them"),
            ),
            some(
                1,
                2,
                add("{A} [wins {n} more] {things}"),
                add("{A} [finds {n} {things}] at home"),
                add("{C} [gives {A} {n} {things}]"),
                take("{A} [loses {n} {things}]"),
                take("{A} [gives {n} {things}] to {C}"),
                times("{A} plays well and [doubles] {his} number of {things}", 2),
            ),
        ),
        questions=(
            ask("How many {things} does {A} have now?", "{A} has {x} {things} now."),
            ask("How many {things} does {A} have at the end?", "{A} has {x} {things} at the end."),
        ),
    ),
    Family(
        name="groups of students",
        things=("student/students", "girl/girls", "boy/boys", "camper/campers", "dancer/dancers"),
        boxes=("group/groups", "team/teams", "row/rows", "line/lines"),
        most=120,
        stages=(
            one(
                start("There [are {n} {things}] in a school"),
                start("[{n} {things} ~come] to a camp"),
                groups("There are [{a} rooms with {b} {things} each]"),
            ),
            some(
                0,
                2,
                add("[{n} more {things} ~join]"),
                add("[{n} {things} ~arrive] later"),
                take("[{n} {things} ~are ill and stay home]"),
                take("[{n} of the {things} ~go home]"),
            ),
            one(
                split("They are divided into [{k} equal {boxes}]"),
                split("A teacher splits them [equally into {k} {boxes}]"),
                split("They ~make [{k} {boxes} of the same size]"),
                split("All of them ~stand in [{k} equal {boxes}]"),
            ),
        ),
        questions=(
            ask("How many {things} are in each {box}?", "There are {x} {things} in each {box}."),
            ask("How many {things} does one {box} have?", "One {box} has {x} {things}."),
        ),
    ),
    Family(
        name="rope and boards",
        kind="length",
        things=("rope/ropes", "board/boards", "ribbon/ribbons", "pipe/pipes", "wire/wires"),
        most=120,
        stages=(
            one(
                start("A {thing} [is {n} meters long]"),
                start("{A} has a {thing} of [{n} meters]"),
                start("{A} [buys {n} meters] of {thing}"),
            ),
            some(
                0,
                2,
                take("{A} [cuts off {n} meters]"),
                take("{A} [uses {n} meters] for a gate"),
                add("{A} [adds {n} meters]"),
                add("{B} [puts on {n} more meters]"),
            ),
            one(
                split("{A} cuts it into [{k} equal pieces]"),
                split("{A} cuts all of it into [{k} pieces of the same length]"),
                split("It is divided into [{k} equal parts]"),
            ),
            some(0, 1, take("{A} [cuts {n} meters] from the first piece")),
        ),
        questions=(
            ask("How long is the first piece?", "The first piece is {x} meters long."),
            ask(
                "How many meters long is the first piece now?",
                "The first piece is {x} meters long.",
            ),
        ),
    ),
    Family(
        name="halves and thirds",
        things=SWEETS + VEGETABLES + KEPT,
        most=120,
        stages=(
            one(
                start("{A} [has {n} {things}]"),
                start("{A} [finds {n} {things}]"),
                start("There [are {n} {things}] in {A}'s bag"),
                groups("{A} has [{a} packets of {b} {things}]"),
            ),
            some(
                1,
                2,
                split("{A} [gives half] of them to {B}", 2),
                split("{A} keeps only [a third] of the {things}", 3),
                split("{A} keeps [one third] and gives the others to {B}", 3),
                split("They are shared [equally among {k} children], and {A} is one of them"),
                split("{A} [loses half] of the {things}", 2),
                split("{A} shares them with {B}, and each gets [half]", 2),
            ),
            some(
                0,
                2,
                add("{A} [gets {n} more] {things}"),
                add("{C} [gives {A} {n} {things}]"),
                take("{A} [uses {n} {things}]"),
                take("{A} [sells {n} {things}]"),
            ),
        ),
        questions=(
            ask("How many {things} does {A} have now?", "{A} has {x} {things} now."),
            ask("How many {things} are left for {A}?", "There are {x} {things} left for {A}."),
        ),
    ),
    Family(
        name="food for animals",
        things=("fish/fish", "carrot/carrots", "nut/nuts", "seed/seeds", "bone/bones"),
        boxes=(
            "seal/seals",
            "monkey/monkeys",
            "parrot/parrots",
            "bear/bears",
            "dog/dogs",
            "cat/cats",
        ),
        most=100,
        stages=(
            one(
                groups("A zoo has [{a} buckets with {b} {things} each]"),
                start("{A} [brings {n} {things}] to the zoo"),
                start("There [are {n} {things}] in a bucket"),
            ),
            some(
                0,
                2,
                take("[{n} {things} ~are old and thrown away]"),
                take("A bird [takes {n} {things}]"),
                add("{A} [adds {n} {things}]"),
                add("{B} [brings {n} more]"),
            ),
            one(
                split("{A} feeds them to [{k} {boxes}, and each gets the same]"),
                split("[{k} {boxes} ~eat] them all, each the same number"),
                split("[{k} {boxes} ~divide] them all equally"),
                split("{A} gives all of them [equally to {k} {boxes}]"),
                split("They are shared [equally among {k} {boxes}]"),
            ),
        ),
        questions=(
            ask("How many {things} does each {box} get?", "Each {box} gets {x} {things}."),
            ask("How many {things} does one {box} eat?", "One {box} eats {x} {things}."),
        ),
    ),
)

_RATES = (
    Family(
        name="pages a day",
        kind="done",
        things=("page/pages", "poem/poems", "puzzle/puzzles", "word/words", "letter/letters"),
        most=60,
        each=25,
        stages=(
            one(
                groups("{A} reads [{b} {things} a day for {a} days]"),
                groups("{A} reads [{b} {things} every day for {a} days]"),
                groups("For [{a} days {A} reads {b} {things} each day]"),
                groups("{A} writes [{a} {things} a day for a week]", 7),
                groups("Every day {A} reads [{b} {things}. This goes on for {a} days]"),
            ),
            some(
                1,
                2,
                add("{A} [reads {n} more] on Sunday"),
                add("On the last day {A} [reads another {n} {things}]"),
                add_groups("{A} [reads] [{b} {things} a day for {a} more days]"),
                add("{B} [shows {him} {n} more] {things}"),
            ),
        ),
        questions=(
            ask("How many {things} is that?", "That is {x} {things}."),
            ask("How many {things} does {A} finish?", "{A} finishes {x} {things}."),
            ask(
                "How many {things} does {he} get through in all?",
                "{A} gets through {x} {things} in all.",
            ),
        ),
    ),
    Family(
        name="factory",
        things=(
            "toy/toys",
            "chair/chairs",
            "lamp/lamps",
            "shoe/shoes",
            "clock/clocks",
            "radio/radios",
        ),
        owners=("machine", "factory", "workshop", "robot"),
        most=100,
        each=50,
        stages=(
            one(
                groups("A {A} makes [{b} {things} an hour. It works for {a} hours]"),
                groups("A {A} builds [{b} {things} every hour for {a} hours]"),
                groups("In one hour a {A} makes [{b} {things}. It works {a} hours]"),
                groups("A {A} makes [{b} {things} per day for {a} days]"),
            ),
            some(
                1,
                2,
                take("[{n} of the {things} ~are broken] and thrown away"),
                take("[{n} {things} ~are sold]"),
                take("[{n} {things} ~are sent] to a shop"),
                add("A worker [makes {n} more]"),
                add("[{n} more {things} ~are built] by hand"),
                add("[{n} {things} ~are made] by hand and added"),
                times("A second {A} does the same, so there [are twice as many]", 2),
            ),
        ),
        questions=(
            ask("How many {things} are there now?", "There are {x} {things} now."),
            ask("How many good {things} are there?", "There are {x} good {things}."),
            ask(
                "How many {things} are left at the end?", "There are {x} {things} left at the end."
            ),
        ),
    ),
    Family(
        name="journey",
        kind="way gone",
        things=("mile/miles", "kilometer/kilometers"),
        most=90,
        each=60,
        stages=(
            one(
                groups("{A} drives [{b} {things} an hour for {a} hours]"),
                groups("{A} rides [{b} {things} a day for {a} days]"),
                groups("{A} travels [for {a} hours at {b} {things} per hour]"),
                groups("A train with {A} goes [{b} {things} each hour for {a} hours]"),
            ),
            some(
                1,
                2,
                add("{A} [walks {n} more] {things}"),
                add("{A} [goes another {n} {things}] by boat"),
                take("{A} [goes back {n} {things}]"),
                add_groups("{A} [travels] [{b} {things} an hour for {a} more hours]"),
            ),
        ),
        questions=(
            ask("How far is {A} from home then?", "{A} is {x} {things} from home."),
            ask("How many {things} is {A} from the start?", "{A} is {x} {things} from the start."),
        ),
    ),
    Family(
        name="hens and cows",
        things=("egg/eggs",),
        boxes=("hen/hens", "duck/ducks", "goose/geese", "turkey/turkeys"),
        most=80,
        each=30,
        stages=(
            one(
                groups(
                    "{A} has {boxes} that ~lay [{b} {things} a day. {A} collects them for {a} days]"
                ),
                groups("[Each of {a} {boxes} lays {b} {things}]"),
                groups("[{a} {boxes} ~lay {b} {things} each]"),
                groups("Every day {A} gathers [{b} {things}. {He} does so for {a} days]"),
            ),
            some(
                1,
                3,
                take("{A} [cooks {n} {things}]"),
                take("{A} [sells {n} {things}]"),
                take("[{n} {things} ~break] and ~are thrown away"),
                take("A fox [eats {n} {things}]"),
                add("The children [~collect {n} more]"),
                add("{B} [gives {him} {n} {things}]"),
                add("{A} [finds {n} more] {things} in the barn"),
                split("{A} [sells half] of the {things}", 2),
            ),
        ),
        questions=(
            ask("How many {things} are left?", "There are {x} {things} left."),
            ask("How many {things} does {A} have now?", "{A} has {x} {things} now."),
        ),
    ),
    Family(
        name="wages",
        kind="money",
        things=("dollar/dollars", "coin/coins", "euro/euros"),
        most=200,
        each=60,
        stages=(
            one(
                groups("{A} earns [{b} {things} an hour and works {a} hours]"),
                groups("{A} works [{a} hours for {b} {things} per hour]"),
                groups("{A} gets [{b} {things} a day for {a} days of work]"),
                groups("{A} washes [{a} cars for {b} {things} each]"),
            ),
            some(
                1,
                2,
                add("{His} boss [pays {him} {n} {things} more]"),
                add("{A} [gets {n} extra {things}]"),
                take("{A} [spends {n} {things}] on food"),
                take("{A} [pays {n} {things}] for rent"),
                take("{A} [gives {n} {things}] to {his} father"),
                take_groups("{A} [pays] [{b} {things} a day for {a} days] for the bus"),
            ),
        ),
        questions=(
            ask("How many {things} does {A} have left?", "{A} has {x} {things} left."),
            ask("How much money does {A} have then?", "{A} has {x} {things}."),
            ask("How many {things} does {A} have at the end?", "{A} has {x} {things} at the end."),
        ),
    ),
    Family(
        name="water tank",
        kind="water",
        things=("liter/liters", "gallon/gallons"),
        owners=("tank", "pool", "barrel", "well"),
        most=300,
        each=40,
        stages=(
            one(
                groups("A pipe fills a {A} with [{b} {things} a minute for {a} minutes]"),
                groups("For [{a} minutes {b} {things} of water per minute] ~run into a {A}"),
                start("A {A} [holds {n} {things}] of water"),
                start("There [are {n} {things}] of water in a {A}"),
            ),
            some(
                1,
                2,
                take("[{n} {things} ~run out]"),
                take("A farmer [takes out {n} {things}]"),
                take("A horse [drinks {n} {things}]"),
                take_groups("Water [runs out], [{b} {things} an hour for {a} hours]"),
                take_groups("People [~use] [{b} {things} a day for {a} days]"),
                add("A man [pours in {n} {things}]"),
                add("The rain [adds {n} {things}]"),
                add_groups("A pump [adds] [{b} {things} a minute for {a} minutes]"),
            ),
        ),
        questions=(
            ask("How many {things} are in the {A} now?", "There are {x} {things} in the {A} now."),
            ask("How much water is in the {A} now?", "There are {x} {things} in the {A} now."),
        ),
    ),
    Family(
        name="training",
        kind="done",
        things=("lap/laps", "jump/jumps", "push-up/push-ups", "kick/kicks", "throw/throws"),
        most=60,
        each=25,
        stages=(
            one(
                groups("{A} does [{b} {things} each morning for {a} mornings]"),
                groups("{A} does [{b} {things} every day for {a} days]"),
                groups("In each of [{a} weeks {A} does {b} {things}]"),
                groups("{A} does [{a} {things} a day for a week]", 7),
            ),
            some(
                1,
                2,
                add("{A} [does {n} more] in the evening"),
                add("{A} [does an extra {n}] with {his} team"),
                add("{A} [adds {n} {things}] on Sunday"),
                add_groups("{A} [does] [{b} {things} a day for {a} more days]"),
            ),
        ),
        questions=(
            ask("How many {things} is that now?", "That is {x} {things}."),
            ask("How many {things} are there at the end?", "There are {x} {things} at the end."),
        ),
    ),
)
_DIFFERENCE = (
    Family(
        name="who has more",
        things=TOYS + SWEETS + FRUIT,
        most=120,
        stages=(
            one(
                start("[{A} has {n} {things}]"),
                start("[{A} owns {n} {things}]"),
                start("[{A} buys {n} {things}]"),
                groups("{A} has [{a} boxes with {b} {things} each]"),
                groups("{A} buys [{a} bags of {b} {things}]"),
            ),
            some(
                0,
                1,
                add("{A} [gets {n} more]"),
                add("{A} [finds {n} more] {things}"),
                take("{A} [loses {n}] of them"),
                take("{A} [gives away {n}]"),
            ),
            one(
                start("[{B} has {n} {things}]"),
                start("[{B} gets {n} {things}]"),
                groups("{B} has [{a} bags of {b} {things}]"),
                groups("{B} buys [{a} boxes with {b} {things} in each]"),
            ),
            some(
                0,
                1,
                add("{B} [finds {n} more]"),
                take("{B} [gives {n} {things}] to a friend"),
                take("{B} [loses {n} {things}]"),
            ),
        ),
        questions=(
            difference(
                "[How many more] {things} does {high} have than {low}?",
                "{high} has {x} more {things} than {low}.",
            ),
            difference(
                "[How many fewer] {things} does {low} have than {high}?",
                "{low} has {x} fewer {things} than {high}.",
            ),
            difference(
                "What is the [difference] between the two numbers of {things}?",
                "The difference is {x} {things}.",
            ),
        ),
    ),
    Family(
        name="two schools",
        things=(
            "student/students",
            "teacher/teachers",
            "chair/chairs",
            "window/windows",
            "computer/computers",
        ),
        owners=("the old school", "the new school", "the town school", "the village school"),
        most=250,
        stages=(
            one(
                start("In {A} there [are {n} {things}]"),
                start("[{A} has {n} {things}]"),
                groups("[{A} has {a} rooms with {b} {things} each]"),
            ),
            some(
                0,
                1,
                add("{A} [gets {n} new {things}]"),
                take("{A} [loses {n} {things}]"),
            ),
            one(
                start("In {B} there [are {n} {things}]"),
                start("[{B} has {n} {things}]"),
                groups("{B} has [{b} {things} in each of {a} rooms]"),
            ),
            some(
                0,
                1,
                add("In summer {B} [gets {n} more]"),
                take("In winter {B} [loses {n} {things}]"),
                add("Then {B} [receives {n} more] {things}"),
            ),
        ),
        questions=(
            difference(
                "[How many more] {things} are in {high} than in {low}?",
                "There are {x} more {things} in {high}.",
            ),
            difference(
                "[How many fewer] {things} are in {low} than in {high}?",
                "There are {x} fewer {things} in {low}.",
            ),
        ),
    ),
    Family(
        name="animals counted",
        things=("animal/animals",),
        owners=(
            "cats",
            "dogs",
            "birds",
            "sheep",
            "bees",
            "frogs",
            "mice",
            "goats",
            "bears",
            "deer",
        ),
        most=150,
        stages=(
            one(
                start("There [are {n} {A}] in a park"),
                start("[{n} {A} ~live] in a park"),
                start("A girl [counts {n} {A}]"),
                groups("There are [{a} groups of {b} {A}]"),
                groups("A man counts [{a} fields with {b} {A} each]"),
            ),
            some(
                0,
                1,
                add("[{n} more {A} ~come]"),
                add("[{n} {A} ~are born]"),
                take("[{n} {A} ~run away]"),
                take("[{n} {A} ~leave]"),
            ),
            one(
                start("There [are {n} {B}] too"),
                start("There are also [{n} {B}]"),
                groups("There are also [{a} groups of {b} {B}]"),
            ),
            some(
                0,
                1,
                add("[{n} more {B} ~arrive]"),
                take("[{n} of the {B} ~go away]"),
                take("[{n} {B} ~hide] and are not counted"),
            ),
        ),
        questions=(
            difference(
                "[How many more] {high} than {low} are there?",
                "There are {x} more {high} than {low}.",
            ),
            difference(
                "[How many fewer] {low} than {high} are there?",
                "There are {x} fewer {low} than {high}.",
            ),
        ),
    ),
    Family(
        name="earned more",
        kind="money",
        things=("coin/coins", "dollar/dollars", "euro/euros"),
        most=300,
        each=40,
        stages=(
            one(
                groups("{A} earns [{b} {things} a day for {a} days]"),
                groups("{A} works [{a} hours for {b} {things} an hour]"),
                start("[{A} earns {n} {things}]"),
            ),
            some(
                0,
                1,
                take("{A} [spends {n} {things}] on shoes"),
                take("{A} [pays {n} {things}] for a ticket"),
                add("{A} [gets {n} {things} more]"),
            ),
            one(
                groups("{B} earns [{b} {things} a week for {a} weeks]"),
                groups("{B} sells [{a} toys for {b} {things} each]"),
                start("[{B} gets {n} {things}] from an aunt"),
            ),
            some(
                0,
                1,
                take("{B} [spends {n} {things}] on a present"),
                take("{B} [loses {n} {things}]"),
                add("{B} [finds {n} {things}]"),
            ),
        ),
        questions=(
            difference(
                "[How many more] {things} does {high} have than {low}?",
                "{high} has {x} more {things} than {low}.",
            ),
            difference(
                "[How much less] money does {low} have than {high}?",
                "{low} has {x} {things} less than {high}.",
            ),
            difference(
                "[How much more] money does {high} have than {low}?",
                "{high} has {x} {things} more than {low}.",
            ),
        ),
    ),
    Family(
        name="heights and lengths",
        kind="length",
        things=("meter/meters",),
        owners=("tower", "bridge", "wall", "road", "tunnel", "fence"),
        most=300,
        each=40,
        stages=(
            one(
                start("A {A} [is {n} meters long]"),
                start("The length of a {A} [is {n} meters]"),
                groups("Workers ~build [{b} meters of a {A} a day for {a} days]"),
            ),
            some(
                0,
                1,
                add("Workers [~add {n} meters] to it"),
                add("[{n} more meters of it ~are built]"),
                add("The {A} [grows by {n} meters]"),
                take("The {A} [loses {n} meters] in a storm"),
            ),
            one(
                start("A {B} [is {n} meters long]"),
                start("The length of a {B} [is {n} meters]"),
                groups("A {B} has [{a} parts of {b} meters each]"),
            ),
            some(
                0,
                1,
                add("The {B} [gets {n} meters longer]"),
                take("The {B} [gets {n} meters shorter]"),
            ),
        ),
        questions=(
            difference(
                "[How much longer] is the {high} than the {low}?",
                "The {high} is {x} meters longer than the {low}.",
            ),
            difference(
                "[How much shorter] is the {low} than the {high}?",
                "The {low} is {x} meters shorter than the {high}.",
            ),
            difference(
                "What is the [difference] in meters?",
                "The difference is {x} meters.",
            ),
        ),
    ),
    Family(
        name="games won",
        kind="points",
        things=("point/points", "goal/goals", "star/stars", "medal/medals", "vote/votes"),
        owners=(
            "the red team",
            "the blue team",
            "the green team",
            "the first team",
            "the other team",
        ),
        most=150,
        stages=(
            one(
                start("[{A} scores {n} {things}]"),
                start("[{A} has {n} {things}]"),
                groups("{A} scores [{b} {things} in each of {a} games]"),
            ),
            some(
                0,
                1,
                add("{A} [wins {n} more] {things}"),
                take("{A} [loses {n} {things}]"),
            ),
            one(
                start("[{B} scores {n} {things}]"),
                start("[{B} gets {n} {things}]"),
                groups("{B} plays [{a} games and gets {b} {things} in every game]"),
            ),
            some(
                0,
                1,
                add("In the last game {B} [scores {n} more]"),
                add("{B} [is given {n} extra {things}]"),
                take("For a bad throw {B} [loses {n}]"),
            ),
        ),
        questions=(
            difference(
                "By how many {things} is {high} [ahead] of {low}?",
                "{high} is {x} {things} ahead of {low}.",
            ),
            difference(
                "[How many more] {things} does {high} have than {low}?",
                "{high} has {x} more {things} than {low}.",
            ),
            difference(
                "What is the [difference] at the end?",
                "The difference is {x} {things}.",
            ),
        ),
    ),
    Family(
        name="made by two",
        things=(*BAKED, "kite/kites", "basket/baskets", "scarf/scarves", "card/cards"),
        most=100,
        stages=(
            one(
                groups("{A} makes [{b} {things} a day for {a} days]"),
                groups("{A} makes [{a} trays of {b} {things}]"),
                start("[{A} makes {n} {things}]"),
                start("[{A} makes {n} {things}] for the fair"),
            ),
            some(
                0,
                1,
                take("{A} [sells {n}] of them"),
                take("{A} [breaks {n}] of them"),
                add("{A} [makes {n} more]"),
            ),
            one(
                groups("{B} makes [{b} {things} an hour for {a} hours]"),
                start("[{B} makes {n} {things}]"),
                groups("{B} fills [{a} boxes with {b} {things} each]"),
            ),
            some(
                0,
                1,
                take("{B} [gives away {n} {things}]"),
                take("{B} [drops {n}] of them"),
                add("{B} [makes another {n}]"),
            ),
        ),
        questions=(
            difference(
                "[How many more] {things} does {high} have than {low}?",
                "{high} has {x} more {things} than {low}.",
            ),
            difference(
                "[How many fewer] {things} does {low} have?",
                "{low} has {x} fewer {things} than {high}.",
            ),
        ),
    ),
    Family(
        name="two travelers",
        kind="way gone",
        things=("mile/miles", "kilometer/kilometers", "step/steps"),
        most=200,
        each=40,
        stages=(
            one(
                start("[{A} walks {n} {things}]"),
                groups("{A} rides [{b} {things} an hour for {a} hours]"),
                groups("{A} walks [{b} {things} a day for {a} days]"),
            ),
            some(
                0,
                1,
                add("After a rest {A} [walks another {n}]"),
                add("{A} [travels {n} {things} more] by bus"),
                take("{A} [goes back {n} {things}]"),
            ),
            one(
                start("[{B} rides {n} {things}]"),
                groups("{B} travels [{b} {things} per hour for {a} hours]"),
                groups("{B} walks [{a} times {b} {things}]"),
            ),
            some(
                0,
                1,
                add("{B} [rides another {n} {things}]"),
                take("{B} [walks back {n} {things}]"),
            ),
        ),
        questions=(
            difference(
                "[How many more] {things} is {high} from the start than {low}?",
                "{high} is {x} {things} farther from the start than {low}.",
            ),
            difference(
                "[How much farther] from the start is {high} than {low}?",
                "{high} is {x} {things} farther from the start than {low}.",
            ),
        ),
    ),
)

_REMAINING = (
    Family(
        name="book to finish",
        kind="left to do",
        things=("page/pages",),
        most=400,
        each=30,
        stages=(
            one(
                start("{A}'s book [has {n} {things}]"),
                start("There [are {n} {things}] in a book"),
                start("{A} wants to read a book of [{n} {things}]"),
            ),
            some(
                1,
                3,
                take("On Monday {A} [reads {n} {things}]"),
                take("On Tuesday {A} [reads {n} {things}]"),
                take("The next day {A} [finishes {n} {things}]"),
                take("In bed {A} [reads {n} more] {things}"),
                take_groups("{A} [reads] [{b} {things} a day for {a} days]"),
                take_groups("{A} [finishes] [{b} {things} each day for {a} days]"),
            ),
        ),
        questions=(
            ask("How many {things} are left to read?", "{x} {things} are left to read."),
            ask("How many {things} ~remain?", "{x} {things} ~remain."),
            ask("How many {things} are not read yet?", "{x} {things} are not read yet."),
        ),
    ),
    Family(
        name="seats",
        things=("seat/seats", "place/places", "chair/chairs"),
        boxes=("row/rows", "table/tables"),
        most=300,
        stages=(
            one(
                groups("A hall has [{a} {boxes} with {b} {things} each]"),
                groups("There are [{a} {boxes} of {b} {things}] in a theater"),
                start("A theater [has {n} {things}]"),
                start("There [are {n} {things}] in a big room"),
            ),
            some(
                1,
                3,
                take("[{n} {things} ~are taken]"),
                take("Students [~take {n} {things}]"),
                take("[{n} of the {things} ~are sold]"),
                take("[{n} {things} ~are broken] and thrown away"),
                take("Families [~book {n} {things}]"),
                take_groups("[{a} families with {b} people each] [~take] their {things}"),
            ),
        ),
        questions=(
            ask("How many {things} are still free?", "{x} {things} are still free."),
            ask("How many {things} are empty?", "{x} {things} are empty."),
            ask("How many free {things} ~remain?", "{x} free {things} ~remain."),
        ),
    ),
    Family(
        name="goal to reach",
        things=(*KEPT, "can/cans", "bottle/bottles", "signature/signatures"),
        most=120,
        stages=(
            one(
                start("{A} [collects {n} {things}]"),
                start("{A} [gathers {n} {things}]"),
                start("{A} [has {n} {things}]"),
                groups("{A} collects [{b} {things} a day for {a} days]"),
                groups("{A} has [{a} bags with {b} {things} each]"),
            ),
            some(
                0,
                2,
                add("{A} [gets {n} more] from {B}"),
                add("Friends [~collect {n} {things}] for {him}"),
                add("{A} [collects another {n}]"),
                add("{A} [finds {n} {things}]"),
                take("{A} [loses {n}] of them"),
                take("[{n} {things} ~are lost]"),
            ),
            one(
                goal("{A} [wants to have {n} {things}]"),
                goal("{A} [needs {n} {things}]"),
                goal("{His} [goal is {n} {things}]"),
                goal("{A} [plans to have {n} {things}]"),
            ),
        ),
        questions=(
            ask("How many more {things} does {A} need?", "{A} needs {x} more {things}."),
            ask("How many {things} are missing?", "{x} {things} are missing."),
            ask("How many {things} does {A} still need?", "{A} still needs {x} {things}."),
        ),
    ),
    Family(
        name="work to do",
        kind="left to do",
        things=(
            "window/windows",
            "room/rooms",
            "car/cars",
            "plate/plates",
            "wall/walls",
            "floor/floors",
        ),
        most=200,
        stages=(
            one(
                start("{A} has to clean [{n} {things}]"),
                start("There [are {n} dirty {things}] to clean"),
                groups("{A} has to wash [the {things} of {a} houses with {b} {things} each]"),
                start("{A} [needs to wash {n} {things}]"),
            ),
            some(
                1,
                3,
                take("{A} [cleans {n} {things}] before noon"),
                take("{A} [washes {n}] of the {things}"),
                take("{B} [cleans {n} {things}]"),
                take("{B} helps and [washes {n} {things}]"),
                take("{A} [finishes {n} more] {things}"),
                take_groups("{A} [cleans] [{b} {things} an hour for {a} hours]"),
                take_groups("{B} [washes] [{b} {things} a day for {a} days]"),
            ),
        ),
        questions=(
            ask("How many {things} are still dirty?", "{x} {things} are still dirty."),
            ask("How many {things} are left to clean?", "{x} {things} are left to clean."),
            ask("How many {things} ~remain?", "{x} {things} ~remain."),
        ),
    ),
    Family(
        name="long way",
        kind="way left",
        things=("mile/miles", "kilometer/kilometers", "meter/meters", "step/steps"),
        most=600,
        each=40,
        stages=(
            one(
                start("The way to the sea [is {n} {things} long]"),
                start("{A} [wants to travel {n} {things}]"),
                start("It [is {n} {things}] to {A}'s home"),
                start("{A} [plans a trip of {n} {things}]"),
            ),
            some(
                1,
                3,
                take("{A} [walks {n} {things}]"),
                take("{A} [rides {n} {things}] on a horse"),
                take("{A} [drives {n} {things}] in the morning"),
                take("In the afternoon {A} [goes {n} {things}]"),
                take_groups("{A} [walks] [{b} {things} a day for {a} days]"),
                take_groups("{A} [rides] [{b} {things} each day for {a} days]"),
                take_groups("{A} [goes] [{b} {things} a day for {a} days]"),
                take_groups("{A} [travels] [{b} {things} an hour for {a} hours]"),
            ),
        ),
        questions=(
            ask("How many {things} are left?", "{x} {things} are left."),
            ask(
                "How many {things} does {A} still have to go?", "{A} still has to go {x} {things}."
            ),
            ask("How many {things} ~remain?", "{x} {things} ~remain."),
        ),
    ),
    Family(
        name="kitchen supplies",
        things=(
            "egg/eggs",
            "potato/potatoes",
            "onion/onions",
            "tomato/tomatoes",
            "lemon/lemons",
            "nut/nuts",
        ),
        boxes=CONTAINERS,
        most=200,
        stages=(
            one(
                start("A cook [has {n} {things}]"),
                groups("A cook has [{a} {boxes} of {b} {things}]"),
                groups("In the kitchen there are [{a} {boxes} with {b} {things} each]"),
                start("There [are {n} {things}] in a kitchen"),
            ),
            some(
                1,
                3,
                take("The cook [uses {n} {things}] for a soup"),
                take_groups("The cook [uses] [{b} {things} for each of {a} cakes]"),
                take_groups("[{a} dishes ~need {b} {things} each], and the cook [makes them all]"),
                take("[{n} {things} ~are eaten]"),
                take("[{n} {things} ~are rotten] and thrown away"),
                take("The cook [gives {n} {things}] to a neighbor"),
                take("[{n} of the {things} ~are used] for dinner"),
            ),
        ),
        questions=(
            ask("How many {things} are left?", "{x} {things} are left."),
            ask("How many {things} does the cook still have?", "The cook still has {x} {things}."),
            ask("How many {things} ~remain?", "{x} {things} ~remain."),
        ),
    ),
    Family(
        name="handed out",
        things=(*SWEETS, *SCHOOL, "balloon/balloons", "flag/flags"),
        most=250,
        each=12,
        stages=(
            one(
                start("{A} [has {n} {things}] for a party"),
                start("To school {A} [brings {n} {things}]"),
                groups("{A} opens [{a} boxes of {b} {things}]"),
            ),
            some(
                1,
                2,
                take_groups("{A} [gives] [{b} {things} to each of {a} children]"),
                take_groups("[{a} girls ~get {b} {things} each] and [~take] them home"),
                take_groups("{A} [hands out] [{b} {things} to every one of {a} boys]"),
                take("{A} [hands out {n} {things}]"),
                take("{A} [gives away {n} {things}]"),
                take("[{n} {things} ~are broken] and thrown away"),
            ),
        ),
        questions=(
            ask("How many {things} are left over?", "{x} {things} are left over."),
            ask("How many {things} does {A} still have?", "{A} still has {x} {things}."),
            ask("How many {things} does {A} have left?", "{A} has {x} {things} left."),
        ),
    ),
)

_TOTAL = (
    Family(
        name="three friends",
        things=KEPT + SWEETS + FRUIT,
        most=200,
        stages=(
            one(
                start("[{A} has {n} {things}]"),
                start("[{A} finds {n} {things}]"),
                groups("{A} has [{a} bags of {b} {things}]"),
            ),
            one(
                start("[{B} has {n} {things}]"),
                start("[{B} brings {n} {things}]"),
                groups("{B} has [{a} boxes with {b} {things} in each box]"),
            ),
            one(
                start("[{C} has {n}]"),
                start("[{C} gets {n} {things}]"),
                start("[{C} buys {n} {things}]"),
            ),
        ),
        questions=(
            total(
                "How many {things} do they have [together]?", "Together they ~have {x} {things}."
            ),
            total("How many {things} do they have [in all]?", "In all they ~have {x} {things}."),
            total(
                "They put all {things} in one box. How many are [in it]?",
                "There are {x} {things} in it.",
            ),
        ),
    ),
    Family(
        name="days of the week",
        things=(
            "ticket/tickets",
            "visitor/visitors",
            "ice cream/ice creams",
            "loaf/loaves",
            "drink/drinks",
        ),
        owners=("shop", "zoo", "museum", "cinema", "hotel"),
        most=300,
        stages=(
            one(
                start("On Monday a {A} [counts {n} {things}]"),
                start("A {A} [has {n} {things}] on Monday"),
                start("On Friday there [are {n} {things}] in a {A}"),
            ),
            one(
                start("On the next day it [has {n}]"),
                start("On Saturday there [are {n} {things}]"),
                more("The next day there [are {n} more {things}] than the day before"),
                fewer("The next day there [are {n} fewer {things}] than the day before"),
            ),
            one(
                start("On Sunday there [are {n} {things}]"),
                start("The third day [brings {n} {things}]"),
                times_as("On Sunday there [are twice as many] as the day before", 2),
            ),
        ),
        questions=(
            total("How many {things} is that [in all]?", "In all that is {x} {things}."),
            total(
                "How many {things} are there in the three days [together]?",
                "Together there are {x} {things}.",
            ),
            total("What is the [total] for the three days?", "The total is {x} {things}."),
        ),
    ),
    Family(
        name="colors",
        things=(*CLOTHES, *KITCHEN, "balloon/balloons", "flag/flags", "crayon/crayons"),
        owners=("red", "blue", "green", "yellow", "white", "black", "brown", "pink"),
        most=150,
        stages=(
            one(
                start("In a shop there [are {n} {A} {things}]"),
                start("A box [holds {n} {A} {things}]"),
                groups("There are [{a} rows of {b} {A} {things}]"),
            ),
            one(
                start("There are also [{n} {B} {things}]"),
                groups("There are also [{a} packs of {b} {B} {things}]"),
                more("There [are {n} more {B} {things}] than {A} {things}"),
                fewer("There [are {n} fewer {B} {things}] than {A} {things}"),
            ),
            some(
                0,
                1,
                start("There [are {n} {C} {things}] too"),
                start("The other [{n} {things} ~are {C}]"),
            ),
        ),
        questions=(
            total("How many {things} are there [in total]?", "In total there are {x} {things}."),
            total("How many {things} is that [altogether]?", "Altogether that is {x} {things}."),
            total(
                "How many {things} are there in [all colors]?",
                "There are {x} {things} in all colors.",
            ),
        ),
    ),
    Family(
        name="class collection",
        things=("can/cans", "book/books", "toy/toys", "blanket/blankets", "coat/coats"),
        owners=(
            "the first class",
            "the second class",
            "the third class",
            "the fourth class",
            "the music class",
        ),
        most=200,
        stages=(
            one(
                start("[{A} collects {n} {things}]"),
                start("[{A} gives {n} {things}] to the poor"),
                groups("{A} fills [{a} bags with {b} {things} each]"),
            ),
            one(
                start("[{B} collects {n} {things}]"),
                start("[{B} brings {n}]"),
                groups("In {B} [each of {a} children brings {b} {things}]"),
            ),
            some(
                0,
                1,
                start("[{C} donates {n} {things}]"),
                start("[{C} adds {n} {things}]"),
            ),
        ),
        questions=(
            total("What is the [sum] of all their {things}?", "The sum is {x} {things}."),
            total("How many {things} do they give [in all]?", "In all they ~give {x} {things}."),
            total(
                "How many {things} are there [altogether]?", "Altogether there are {x} {things}."
            ),
            total(
                "How many {things} do the classes collect [together]?",
                "Together they ~collect {x} {things}.",
            ),
        ),
    ),
    Family(
        name="parts of a meal",
        kind="time",
        things=("minute/minutes",),
        owners=("soup", "rice", "bread", "cake", "fish", "salad", "sauce"),
        most=90,
        each=15,
        stages=(
            one(
                start("[The {A} takes {n} minutes]"),
                start("[{n} minutes ~are needed for the {A}]"),
                groups("For the {A} a cook works [{a} times for {b} minutes]"),
            ),
            one(
                start("[The {B} takes {n} minutes]"),
                more("[The {B} takes {n} minutes more] than the {A}"),
                fewer("[The {B} takes {n} minutes less] than the {A}"),
                times_as("[The {B} takes twice as long] as the {A}", 2),
                times_as("[The {B} takes {k} times as long] as the {A}"),
            ),
            some(
                0,
                1,
                start("Then the cook [needs {n} minutes] for the {C}"),
                start("[The {C} is done in {n} minutes]"),
            ),
        ),
        questions=(
            total(
                "How many {things} does the cook need [in all]?",
                "In all the cook needs {x} {things}.",
            ),
            total("How long does everything take [together]?", "Together it takes {x} {things}."),
        ),
    ),
    Family(
        name="post office",
        things=("letter/letters", "parcel/parcels", "card/cards", "newspaper/newspapers"),
        most=200,
        stages=(
            one(
                start("[{A} delivers {n} {things}]"),
                start("[{A} carries {n} {things}]"),
                groups("{A} delivers [{b} {things} to each of {a} houses]"),
            ),
            some(
                0,
                1,
                add("{A} [takes {n} more] in the afternoon"),
                take("{A} [brings {n} back]"),
            ),
            one(
                start("[{B} delivers {n} {things}]"),
                start("[{B} has {n} {things}] in a bag"),
                groups("{B} delivers [{b} {things} a day for {a} days]"),
            ),
        ),
        questions=(
            total(
                "How many {things} do the two deliver [together]?",
                "Together they ~deliver {x} {things}.",
            ),
            total("How many {things} is that [in total]?", "In total that is {x} {things}."),
            total("What is the [sum] of their {things}?", "The sum is {x} {things}."),
        ),
    ),
    Family(
        name="vehicles and legs",
        things=("wheel/wheels", "light/lights", "window/windows", "seat/seats"),
        owners=("cars", "vans", "trucks", "buses", "carts", "trains"),
        most=60,
        each=12,
        stages=(
            one(
                groups("There are [{a} {A} with {b} {things} each]"),
                groups("[{a} {A} ~have {b} {things} each]"),
                groups("[Each of {a} {A} has {b} {things}]"),
            ),
            one(
                groups("There are also [{a} {B} with {b} {things} each]"),
                groups("[Each of {a} {B} has {b} {things}]"),
                start("The {B} [~have {n} {things}]"),
            ),
            some(
                0,
                1,
                start("There [are {n} {things}] in a box"),
                start("[{n} {things} ~are] in the yard"),
            ),
        ),
        questions=(
            total("How many {things} are there [in all]?", "There are {x} {things} in all."),
            total("How many {things} is that [altogether]?", "Altogether that is {x} {things}."),
        ),
    ),
)

_GIRLS = words("""
Alice Amy Anna Beth Bella Clara Cora Daisy Diana Dora Ella Elsa Emily Emma Erin Eva Fiona Freya
Gina Grace Greta Hanna Hazel Helen Ida Iris Isla Ivy Jane Jenny Jill Julia June Karen Kate Kim
Lara Laura Leah Lena Lily Lisa Lucy Luna Maria Martha Mary Maya Mia Mila Molly Nadia Nancy Nina
Nora Olga Olivia Paula Petra Rachel Rita Rosa Ruby Ruth Sally Sara Sofia Sonia Stella Susan Tara
Tina Vera Wendy Yara Zoe Aisha Chloe Fatima Ines Keiko Leila Mei Priya Sana Yuki
""")
_BOYS = words("""
Adam Alan Alex Ali Andy Anton Ben Bill Bob Boris Carl Chris Dan David Dean Diego Ed Eli Emil Eric
Ethan Felix Finn Frank Fred Gary George Glen Hans Harry Henry Hugo Ian Igor Ivan Jack Jacob James
Jan Jim Joe John Jonas Josh Juan Karl Ken Kevin Lars Leo Liam Louis Luca Luke Marco Mark Martin
Max Mike Milo Nick Noah Oliver Omar Oscar Otto Paul Pedro Peter Ralph Ray Robin Roy Sam Scott Sean
Simon Steve Ted Theo Tim Tom Tony Victor Will Amir Arjun Chen Hiro Kofi Omari Rahul Tariq
""")

TRAINING = Collection(
    families={
        Structure.RUNNING: _RUNNING,
        Structure.GROUPS: _GROUPS,
        Structure.COMPARISON: _COMPARISON,
        Structure.PRICES: _PRICES,
        Structure.SHARING: _SHARING,
        Structure.RATES: _RATES,
        Structure.DIFFERENCE: _DIFFERENCE,
        Structure.REMAINING: _REMAINING,
        Structure.TOTAL: _TOTAL,
    },
    composed_families=COMPOSED,
    girls=_GIRLS,
    boys=_BOYS,
    scenes=(
        "It is a sunny day.",
        "It is raining outside.",
        "It is the first day of spring.",
        "This is a small story.",
        "Here is a question.",
        "It is a cold morning.",
        "School is over for today.",
        "Listen to this.",
        "It is Saturday.",
        "The holidays are here.",
    ),
    links=(
        "Then",
        "Later",
        "After that",
        "Next",
        "The next day",
        "On Monday",
        "On Tuesday",
        "On Friday",
        "In the evening",
        "In the afternoon",
        "A little later",
        "Soon",
    ),
    open_words=open_words(),
    mixed=0.3,
    composed=0.5,
)
