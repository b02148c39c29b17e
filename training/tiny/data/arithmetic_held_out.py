"""The families of arithmetic problems that only evaluation draws from.

Settings, nouns, names and sentences are new, and operations come in orders that belong to no
training family. The verbs and clues are those of `arithmetic_families.py`, each known from several
families there, as nothing else could tell what they mean; `setting` lists the words that are new.
"""

from __future__ import annotations

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

_RUNNING = (
    Family(
        name="harbor",
        things=("sailboat/sailboats", "canoe/canoes", "yacht/yachts", "kayak/kayaks"),
        owners=("harbor", "bay", "port"),
        most=120,
        setting=words("captain fog tide"),
        stages=(
            one(
                start("In the morning the {A} [holds {n} {things}]"),
                start("A captain [counts {n} {things}] in the {A}"),
                start("[{n} {things} ~stay] in the {A} at night"),
            ),
            some(
                2,
                4,
                add("[{n} {things} ~arrive] from the sea"),
                add("With the tide [{n} more {things} ~come in]"),
                add("The captain [brings {n} {things}] home"),
                take("When the fog goes [{n} {things} ~leave] the {A}"),
                take("[{n} of the {things} ~are taken away] in the night"),
                take("The captain [sells {n} old {things}]"),
                split("In a storm [half of the {things} ~are lost]", 2),
                times("Before the big game the number of {things} there [doubles]", 2),
            ),
        ),
        questions=(
            ask("How many {things} does the {A} hold now?", "The {A} holds {x} {things} now."),
            ask(
                "Find the number of {things} in the {A} at the end.",
                "There are {x} {things} there.",
            ),
        ),
    ),
    Family(
        name="treasure cave",
        things=(
            "pearl/pearls",
            "diamond/diamonds",
            "crown/crowns",
            "sword/swords",
            "lantern/lanterns",
        ),
        most=100,
        setting=words("cave dragon pirate wizard magic"),
        stages=(
            one(
                start("In a cave {A} [finds {n} {things}]"),
                start("The wizard {A} [owns {n} {things}]"),
                start("There [are {n} {things}] in the cave of {A}"),
            ),
            some(
                2,
                4,
                add("A pirate [gives {him} {n} old {things}]"),
                add("{A} [gets another {n} {things}] from a dragon"),
                add("{A} [collects {n} more {things}] in the dark"),
                take("The dragon [takes {n} of the {things}]"),
                take("On the way out of the cave {A} [loses {n} {things}]"),
                take("{A} [sends {n} {things}] home by boat"),
                times("With magic {A} [triples] the number of {things}", 3),
                times("By magic there [are {k} times as many {things}]"),
                split("The pirate and {A} ~share equally, and so {A} has only [half]", 2),
            ),
        ),
        questions=(
            ask(
                "How many {things} does {A} have at the end of the story?",
                "{A} has {x} {things} at the end.",
            ),
            ask("What is the number of {things} of {A} now?", "{A} has {x} {things} now."),
        ),
    ),
)

_GROUPS = (
    Family(
        name="beekeeper",
        things=(
            "bottle of syrup/bottles of syrup",
            "honeycomb/honeycombs",
            "wax figure/wax figures",
        ),
        boxes=("chest/chests", "wagon/wagons", "case/cases"),
        most=60,
        setting=words("beekeeper valley"),
        stages=(
            one(
                groups(
                    "The beekeeper {A} has [{a} {boxes}, and in every {box} there are {b} {things}]"
                ),
                groups("{A} is a beekeeper and fills [{a} {boxes} with {b} {things} in each]"),
                groups("[Each of {a} {boxes} of the beekeeper {A} holds {b} {things}]"),
            ),
            some(
                1,
                3,
                take("In the valley {A} [sells {n} of the {things}]"),
                take("{A} [gives {n} {things}] to an old neighbor"),
                take("On the bad road [{n} {things} ~are broken]"),
                add("At home {A} [makes another {n} {things}]"),
                add_groups("{A} [gets] [{a} new {boxes} of {b} {things}] from the valley"),
                split("A hotel [buys half] of the {things}", 2),
            ),
        ),
        questions=(
            ask("How many {things} does the beekeeper still have?", "{A} still has {x} {things}."),
            ask("How many {things} are left for the beekeeper?", "There are {x} {things} left."),
        ),
    ),
    Family(
        name="castle",
        things=("knight/knights", "soldier/soldiers", "archer/archers", "horseman/horsemen"),
        most=60,
        each=15,
        setting=words("castle king queen huts"),
        stages=(
            one(
                groups("Near a castle there are [{a} huts, each with {b} {things}]"),
                groups("A king comes with [{b} {things} in each of {a} huts]"),
                groups("The king has [{a} rows of {b} {things}] in front of the castle"),
            ),
            some(
                1,
                3,
                add("The queen [sends {n} more {things}]"),
                add("[{n} {things} ~come] late to the castle"),
                add_groups("[{a} groups with {b} {things} each] [~join] the king"),
                take("[{n} of the {things} ~go home] in the cold evening"),
                take("The king [loses {n} {things}] in the cold"),
                take("[{n} ill {things} ~leave] the castle"),
            ),
        ),
        questions=(
            ask("How many {things} does the king have now?", "The king has {x} {things} now."),
            ask(
                "How many {things} are at the castle now?",
                "There are {x} {things} at the castle now.",
            ),
        ),
    ),
)

_COMPARISON = (
    Family(
        name="forest walk",
        things=("mushroom/mushrooms", "acorn/acorns", "feather/feathers", "pine cone/pine cones"),
        most=120,
        setting=words("forest"),
        stages=(
            one(
                start("In the forest [{A} finds {n} {things}]"),
                start("In the evening [{A} collects {n} {things}]"),
                start("[{A} has {n} {things}] from the forest"),
            ),
            one(
                more("[{B} finds {n} more {things}] than {A}"),
                fewer("[{B} finds {n} fewer] than {A}"),
                times_as("[{B} brings home {k} times as many] as {A}"),
                share_as("[{B} finds only half as many {things}] as {A}", 2),
                times_as("[{B} gathers twice as many] as {A}", 2),
            ),
            some(
                0,
                1,
                more("[{C} brings {n} more {things}] than {B}"),
                fewer("[{C} brings home {n} less] than {B}"),
                share_as("[{C} finds a third as many {things}] as {B}", 3),
            ),
        ),
        questions=(
            total(
                "How many {things} do they find in the forest [together]?",
                "Together they ~find {x} {things}.",
            ),
            total(
                "How many {things} ~come from the forest [in all]?",
                "In all {x} {things} ~come from there.",
            ),
            total(
                "What is the [total] number of {things} from the forest?",
                "The total is {x} {things}.",
            ),
        ),
    ),
    Family(
        name="northern island",
        things=("creature/creatures",),
        owners=("penguins", "walruses", "reindeer", "owls", "polar foxes", "squirrels"),
        most=80,
        setting=words("island snow"),
        stages=(
            one(
                start("On an island there [are {n} {A}]"),
                start("[{n} {A} ~live] in the snow"),
                start("An island in the north [has {n} {A}]"),
            ),
            one(
                more("The island [has {n} more {B}] than {A}"),
                fewer("The island [has {n} fewer {B}] than {A}"),
                times_as("In the snow there [are {k} times as many {B}] as {A}"),
                times_as("In the snow there [are twice as many {B}] as {A}", 2),
            ),
            one(
                more("And there [are {n} more {C}] than {B}"),
                fewer("And there [are {n} fewer {C}] than {B}"),
                share_as("And there [are half as many {C}] as {B}", 2),
            ),
        ),
        questions=(
            ask("How many {C} ~live on the island?", "{x} {C} ~live there."),
            ask("What is the number of {C}?", "There are {x} {C}."),
        ),
    ),
)

_PRICES = (
    Family(
        name="music shop",
        things=("trumpet/trumpets", "flute/flutes", "violin/violins", "harp/harps", "banjo/banjos"),
        most=100,
        each=40,
        setting=words("orchestra"),
        stages=(
            one(
                groups("For an orchestra {A} buys [{a} {things} that ~cost {b} dollars each]"),
                groups("In a music shop [every {thing} costs {b} dollars. {A} takes {a} of them]"),
                groups("{A} needs [{a} {things}. The price is {b} dollars for each]"),
            ),
            some(
                0,
                1,
                add("A music book [costs {n} dollars more]"),
                take("The seller [takes {n} dollars off] the price"),
            ),
            one(
                note("{A} [gives a note of {n} dollars] to the seller"),
                note("{A} [has {n} dollars] in {his} purse and pays with it"),
                note("{A} [pays with {n} dollars] from the music teacher"),
            ),
        ),
        questions=(
            ask(
                "How many dollars does the seller give back?", "The seller gives back {x} dollars."
            ),
            ask("How much change does the seller give to {A}?", "{A} gets {x} dollars change."),
        ),
    ),
    Family(
        name="island market",
        things=("mango/mangoes", "coconut/coconuts", "pineapple/pineapples", "papaya/papayas"),
        most=400,
        each=25,
        setting=words("island"),
        stages=(
            one(
                start("On the island {A} [has {n} coins] in a bag"),
                start("{A} [starts with {n} coins] on the island"),
            ),
            some(
                2,
                3,
                take_groups("At the island market {A} [buys] [{a} {things} for {b} coins each]"),
                take("{A} [pays {n} coins] for a small boat"),
                take("Lunch on the island [costs {him} {n} coins]"),
                add("{A} [sells an old book for {n} coins]"),
                add("A friend on the island [gives {him} {n} coins]"),
                add_groups("{A} [earns] [{b} coins a day for {a} days] on the boat"),
            ),
        ),
        questions=(
            ask("How many coins does {A} have at the end of the day?", "{A} has {x} coins."),
            ask("How much money is in {A}'s bag now?", "There are {x} coins in the bag now."),
        ),
    ),
)

_SHARING = (
    Family(
        name="squirrels in winter",
        things=("walnut/walnuts", "hazelnut/hazelnuts", "chestnut/chestnuts"),
        boxes=("squirrel/squirrels", "hedgehog/hedgehogs", "raccoon/raccoons", "beaver/beavers"),
        owners=("oak", "forest", "valley"),
        most=90,
        stages=(
            one(
                start("In the {A} some {boxes} [~find {n} {things}]"),
                start("[{n} {things} ~are found] in the {A} by some {boxes}"),
                groups("In the {A} there are [{a} bags with {b} {things} in each]"),
            ),
            some(
                0,
                2,
                take("A crow [eats {n} of the {things}]"),
                take("[{n} rotten {things} ~are thrown away]"),
                add("The wind [brings {n} more {things}]"),
                add("At night they [~collect {n} more]"),
            ),
            one(
                split("[{k} {boxes} ~divide] all {things} equally"),
                split("All {things} ~are shared [equally among {k} {boxes}]"),
                split("Each of [{k} {boxes} gets the same number]"),
            ),
        ),
        questions=(
            ask("How many {things} does every {box} have then?", "Each {box} has {x} {things}."),
            ask(
                "How many {things} are there for one {box}?",
                "There are {x} {things} for one {box}.",
            ),
        ),
    ),
    Family(
        name="tool workshop",
        things=("hammer/hammers", "screw/screws", "bolt/bolts", "wrench/wrenches"),
        boxes=("drawer/drawers", "toolbox/toolboxes", "bin/bins"),
        most=150,
        setting=words("smith"),
        stages=(
            one(
                start("A smith [makes {n} {things}]"),
                groups("A smith makes [{b} {things} an hour for {a} hours]"),
                start("There [are {n} {things}] in the house of the smith"),
            ),
            some(
                0,
                2,
                add("A friend [brings {n} old {things}]"),
                take("The smith [sells {n} {things}] to a farmer"),
                take("The smith [uses {n} of the {things}]"),
            ),
            one(
                split("The smith puts [{k} {things} in every {box}]"),
                split("One {box} [holds {k} {things}], and the smith puts all of them away"),
                split(
                    "The smith puts [{k} {things} in each {box}] and fills {boxes} with them all"
                ),
            ),
        ),
        questions=(
            ask("How many {boxes} does the smith need?", "The smith needs {x} {boxes}."),
            ask("What is the number of full {boxes}?", "There are {x} full {boxes}."),
        ),
    ),
    Family(
        name="crew of a ship",
        things=("biscuit/biscuits", "fig/figs", "date/dates", "sardine/sardines"),
        most=90,
        setting=words("ship sailors captain"),
        stages=(
            one(
                start("On a ship there [are {n} {things}]"),
                groups("On a ship there are [{a} boxes, and each holds {b} {things}]"),
            ),
            some(
                0, 1, take("The captain [eats {n} {things}]"), add("The captain [finds {n} more]")
            ),
            one(
                split("There are [{k} sailors, and each gets the same number]. One of them is {A}"),
                split(
                    "The {things} ~are divided [equally among {k} sailors], and one of them is {A}"
                ),
            ),
            some(
                1,
                2,
                take("{A} [eats {n}] at night"),
                take("{A} [gives {n} {things}] to the cook"),
                add("{A} [gets {n} extra {things}] from the captain"),
            ),
        ),
        questions=(
            ask("How many {things} does {A} have left now?", "{A} has {x} {things} left."),
            ask("How many {things} does {A} own now?", "{A} owns {x} {things} now."),
        ),
    ),
)

_RATES = (
    Family(
        name="potter",
        things=("vase/vases", "teapot/teapots", "mug/mugs", "saucer/saucers"),
        most=80,
        each=30,
        setting=words("potter clay"),
        stages=(
            one(
                groups("The potter {A} makes [{b} {things} per hour for {a} hours]"),
                groups("Potter {A} works [{a} days and makes {b} {things} each day]"),
                groups("For [{a} weeks {A} makes {b} {things} of clay a week]"),
            ),
            some(
                1,
                3,
                take("In the oven [{n} of the {things} ~break]"),
                take("The potter [sells {n} of these {things}]"),
                take("{A} [drops {n} of the new {things}]"),
                add("The sister of {A} [makes {n} more] of clay"),
                add_groups("{A} [makes] [{b} {things} an hour for {a} more hours]"),
                split("A hotel [takes half] of all {things}", 2),
            ),
        ),
        questions=(
            ask("How many {things} does the potter have now?", "The potter has {x} {things} now."),
            ask("How many good {things} are left at the end?", "There are {x} good {things} left."),
        ),
    ),
    Family(
        name="space flight",
        things=("rocket/rockets", "satellite/satellites", "engine/engines"),
        owners=("planet", "moon", "spaceship"),
        most=80,
        each=20,
        setting=words("pilot pilots"),
        stages=(
            one(
                groups("On a {A} the pilots ~build [{b} {things} a week for {a} weeks]"),
                groups("Every day [{b} {things} ~land on a {A}. This goes on for {a} days]"),
                groups("A {A} receives [{b} {things} each day for {a} days]"),
            ),
            some(
                1,
                3,
                take("[{n} {things} ~fly away] from the {A}"),
                take("In a storm of stones [{n} {things} ~are lost]"),
                add("Another pilot [brings {n} {things}] to the {A}"),
                add("[{n} {things} ~are built] by the pilots and added"),
                times("In the next week the number of {things} [triples]", 3),
            ),
        ),
        questions=(
            ask(
                "How many {things} are there on the {A} at the end?",
                "There are {x} {things} on the {A} now.",
            ),
            ask(
                "How many {things} does the {A} have at the end?",
                "The {A} has {x} {things} at the end.",
            ),
        ),
    ),
)

_DIFFERENCE = (
    Family(
        name="yard and park",
        things=("snowball/snowballs", "sandcastle/sandcastles", "paper plane/paper planes"),
        most=100,
        setting=words("sand"),
        stages=(
            one(
                start("In the yard [{A} makes {n} {things}]"),
                groups("{A} makes [{a} rows with {b} {things} in each row]"),
                groups("{A} works hard and makes [{b} {things} an hour for {a} hours]"),
            ),
            some(
                0,
                1,
                take("A dog [breaks {n} of {A}'s {things}]"),
                add("In the evening {A} [makes {n} more]"),
            ),
            one(
                start("In the park [{B} makes {n} {things}]"),
                groups("{B} makes [{a} rows, and every row has {b} {things}]"),
            ),
            some(
                0,
                1,
                take("The wind [takes {n} of {B}'s {things}]"),
                add("A friend helps and {B} [gets {n} more]"),
            ),
        ),
        questions=(
            difference(
                "At the end, [how many more] {things} does {high} have than {low}?",
                "{high} has {x} more {things} than {low}.",
            ),
            difference(
                "What is the [difference] between {high}'s and {low}'s number of {things}?",
                "The difference is {x} {things}.",
            ),
        ),
    ),
    Family(
        name="mountain huts",
        things=("tourist/tourists", "hiker/hikers", "skier/skiers", "pilgrim/pilgrims"),
        owners=("the north hut", "the valley hut", "the forest hut", "the snow hut"),
        most=150,
        stages=(
            one(
                start("In the morning [{A} has {n} {things}]"),
                groups("{A} has [{a} rooms with {b} {things} in each room]"),
                start("There [are {n} {things}] at {A}"),
            ),
            some(
                0,
                1,
                add("[{n} more {things} ~arrive] at {A}"),
                take("[{n} of the {things} ~leave] {A}"),
            ),
            one(
                start("At {B} there [are {n} {things}]"),
                groups("{B} has [{a} rooms, and in each there are {b} {things}]"),
            ),
            some(
                0,
                1,
                add("At {B} [{n} {things} ~come in] from the rain"),
                take("From {B} [{n} {things} ~go home]"),
            ),
        ),
        questions=(
            difference(
                "[How many more] {things} are at {high} than at {low}?",
                "There are {x} more {things} at {high}.",
            ),
            difference(
                "[How many fewer] {things} are at {low} than at {high}?",
                "There are {x} fewer {things} at {low}.",
            ),
        ),
    ),
)

_REMAINING = (
    Family(
        name="desert trip",
        things=("league/leagues", "furlong/furlongs"),
        most=500,
        each=30,
        setting=words("desert camel"),
        stages=(
            one(
                start("The way through the desert [is {n} {things} long]"),
                start("In the desert {A} [wants to go {n} {things}]"),
            ),
            some(
                2,
                3,
                take("{A} [rides {n} {things}] on a camel"),
                take("The next day the camel [goes {n} {things}]"),
                take("At night {A} [travels another {n} {things}]"),
                take_groups("The camel [walks] [{b} {things} a day for {a} days]"),
                take_groups("{A} [rides] [{b} {things} per hour for {a} hours]"),
            ),
        ),
        questions=(
            ask("How many {things} are left in the desert?", "{x} {things} are left."),
            ask(
                "How many {things} does the camel still have to go?", "{x} {things} are left to go."
            ),
        ),
    ),
    Family(
        name="quilt to finish",
        things=("patch/patches", "tassel/tassels", "square of cloth/squares of cloth"),
        most=100,
        setting=words("quilt"),
        stages=(
            one(
                start("For a quilt {A} [has {n} {things}]"),
                groups("For a quilt {A} has [{a} bags, each with {b} {things}]"),
                start("For a quilt {A} [cuts {n} {things}]"),
            ),
            some(
                0,
                2,
                add("A neighbor [gives {him} another {n}]"),
                add("{A} [finds {n} more {things}] in a box"),
                take("{A} [uses {n} {things}] for a coat"),
                add_groups("{A} [buys] [{a} packs with {b} {things} each] in town"),
            ),
            one(
                goal("The quilt [needs {n} {things}]"),
                goal("For the quilt {A} [needs {n} in all]"),
                goal("A full quilt [has {n} {things}]"),
            ),
        ),
        questions=(
            ask("How many {things} are missing for the quilt?", "{x} {things} are missing."),
            ask("How many more {things} are needed?", "{x} more {things} are needed."),
        ),
    ),
)

_TOTAL = (
    Family(
        name="pumpkin farm",
        things=("pumpkin/pumpkins", "turnip/turnips", "radish/radishes", "eggplant/eggplants"),
        boxes=("wagon/wagons", "wheelbarrow/wheelbarrows"),
        most=200,
        setting=words("hill"),
        stages=(
            one(
                start("On the hill [{A} picks {n} {things}]"),
                groups("{A} brings [{a} {boxes} of {b} {things}] from the hill"),
            ),
            one(
                start("Near the river [{B} gathers {n}]"),
                groups("{B} has [{a} {boxes}, each full with {b} {things}]"),
            ),
            some(
                0,
                1,
                take("{B} [throws away {n} of them]"),
                add("{B} [picks another {n}]"),
            ),
            some(
                0,
                1,
                start("And [{C} has {n} {things}] from the market"),
                start("[{C} brings {n} {things}] too"),
            ),
        ),
        questions=(
            total(
                "How many {things} do they have for the market [in total]?",
                "In total they ~have {x} {things}.",
            ),
            total("What is the [sum] of the {things} for the market?", "The sum is {x} {things}."),
        ),
    ),
    Family(
        name="aquarium",
        things=("turtle/turtles", "dolphin/dolphins", "jellyfish/jellyfish", "lobster/lobsters"),
        owners=("golden", "silver", "purple", "gray", "turquoise"),
        most=120,
        setting=words("aquarium tanks"),
        stages=(
            one(
                start("In an aquarium there [are {n} {A} {things}]"),
                groups("An aquarium has [{a} tanks with {b} {A} {things} in each]"),
            ),
            one(
                start("It also has {B} {things}, and of these there [are {n}]"),
                groups("There are also [{a} groups with {b} {B} {things} in each]"),
                more("It [has {n} more {B} {things}] than {A} {things}"),
            ),
            some(0, 1, start("And the aquarium [gets {n} {C} {things}]")),
        ),
        questions=(
            total(
                "How many {things} does the aquarium have [altogether]?",
                "Altogether it has {x} {things}.",
            ),
            total(
                "How many {things} are in the aquarium [in all]?", "In all there are {x} {things}."
            ),
        ),
    ),
)

HELD_OUT = Collection(
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
    girls=words("Abby Bianca Carmen Donna Edith Flora Gloria Heidi Irene Judy Lydia Monica Naomi"),
    boys=words("Aaron Bruno Caleb Derek Edgar Gavin Howard Isaac Jerome Kurt Nathan Philip Ruben"),
    scenes=("It is a cold day in winter.", "This is the story of a day.", "It is raining again."),
    links=("Then", "After that", "Later", "In the evening", "The next day"),
)
