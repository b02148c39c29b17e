"""Families of problems that are put together of parts: everything that training says otherwise.

The declared families tie a verb to the few sentences they use it in; these meet every verb with
every way to use it. What they say is in `arithmetic_clauses.py`.
"""

from __future__ import annotations

from training.tiny.data import arithmetic_clauses as say
from training.tiny.data.arithmetic_frames import Family, Op, Structure, nouns, one, some
from training.tiny.data.arithmetic_nouns import (
    BAKED,
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

_THINGS = (
    *BAKED,
    *CLOTHES,
    *FLOWERS,
    *FRUIT,
    *KEPT,
    *KITCHEN,
    *SCHOOL,
    *SWEETS,
    *TOYS,
    *VEGETABLES,
)
_COINS = nouns("coin/coins, dollar/dollars, euro/euros, cent/cents")
_MILES = nouns("mile/miles, kilometer/kilometers, meter/meters, step/steps")
_HOLDERS = (
    *CONTAINERS,
    *nouns("shelf/shelves, row/rows, table/tables, room/rooms, page/pages, sack/sacks, tin/tins"),
)
_BUNCHES = nouns("group/groups, pile/piles, row/rows, line/lines, team/teams, class/classes")
_PERSONS = nouns("""
    friend/friends, child/children, cousin/cousins, neighbor/neighbors, boy/boys, girl/girls,
    student/students, player/players, guest/guests, worker/workers, dog/dogs, horse/horses
""")
_PLACES = (
    "shop",
    "bus",
    "hotel",
    "zoo",
    "library",
    "school",
    "factory",
    "museum",
    "garden",
    "pond",
    "kitchen",
    "train",
    "farm",
)
_PLACE_NAMES = (
    "the first box",
    "the second box",
    "the old school",
    "the new school",
    "the red bus",
    "the blue bus",
    "the big room",
    "the small room",
    "the kitchen",
    "the cellar",
    "the north field",
    "the south field",
    "the garden",
    "the yard",
)
_SPOTS = (
    "the north gate",
    "the south gate",
    "the old station",
    "the new station",
    "the first stop",
    "the last stop",
    "the lake house",
    "the front door",
    "the back door",
    "the red bridge",
)
_SIDES = nouns(
    "shelf/shelves, table/tables, tray/trays, wall/walls, bag/bags, side/sides, box/boxes"
)
_COLORS = ("red", "blue", "green", "yellow", "white", "black", "brown", "pink", "beige")
_MATERIALS = ("wooden", "iron", "glass", "paper", "stone", "plastic", "leather", "copper")
# Who may be one of those that share.
_FELLOWS = nouns("""
    child/children, friend/friends, student/students, player/players, guest/guests, worker/workers,
    neighbor/neighbors, dancer/dancers, farmer/farmers, teacher/teachers, cousin/cousins,
    traveler/travelers, runner/runners, singer/singers, hunter/hunters, member/members
""")
_SORTS = {
    "animals": ("cows", "goats", "pigs", "hens", "horses", "donkeys", "dogs", "sheep", "ducks"),
    "vehicles": ("cars", "trucks", "buses", "vans", "bikes", "taxis", "scooters", "trams"),
    "plants": ("roses", "tulips", "lilies", "apple trees", "pear trees", "bushes", "cabbages"),
    "persons": ("boys", "girls", "teachers", "fathers", "mothers", "dancers", "singers"),
}
_MEASURED_THINGS = (
    "the first part",
    "the second part",
    "the last part",
    "the red one",
    "the blue one",
    "the green one",
    "the old one",
    "the new one",
    "the big one",
    "the small one",
)
# Units, verb, the two ways to differ, and what is compared.
_MEASURES = {
    "long": ("meter/meters", "is", "longer", "shorter", "long"),
    "high": ("meter/meters", "is", "higher", "lower", "high"),
    "wide": ("meter/meters", "is", "wider", "narrower", "wide"),
    "lasting": ("minute/minutes", "takes", "longer", "less", "long"),
    "working": ("hour/hours", "lasts", "longer", "less", "long"),
    "weighing": ("kilogram/kilograms", "weighs", "more", "less", "much"),
    "costing": ("coin/coins", "costs", "more", "less", "much"),
    "holding": ("liter/liters", "holds", "more", "less", "much"),
}

# Each measure is a family of its own: together they count as two.
_MEASURE_WEIGHT = 2 / len(_MEASURES)
_MEASURED_TOGETHER = tuple(
    Family(
        name=f"composed: {name}, together",
        kind=name,
        things=(unit,),
        owners=_MEASURED_THINGS,
        open_owner="the {}",
        most=90,
        weight=_MEASURE_WEIGHT,
        stages=(
            one(*say.measured("A", verb, alike), *say.measured_in_parts("A", verb, alike)),
            one(*say.measured_by("A", "B", verb, high, low, alike)),
            some(0, 1, *say.measured_by("B", "C", verb, high, low, alike)),
        ),
        questions=say.ASK_MEASURE_SUM,
    )
    for name, (unit, verb, high, low, alike) in _MEASURES.items()
)
_MEASURED_APART = tuple(
    Family(
        name=f"composed: {name}, apart",
        kind=name,
        things=(unit,),
        owners=_MEASURED_THINGS,
        open_owner="the {}",
        most=90,
        weight=_MEASURE_WEIGHT,
        stages=(
            one(*say.measured_in_parts("A", verb, alike)),
            one(*say.measured("B", verb, alike), *say.measured_in_parts("B", verb, alike)),
        ),
        questions=say.ASK_MEASURE_DIFFERENCE,
    )
    for name, (unit, verb, high, low, alike) in _MEASURES.items()
)

# Each of the sorts is a family of its own: together they count as one.
_SORT_WEIGHT = 1 / len(_SORTS)
_SORTS_TOGETHER = tuple(
    Family(
        name=f"composed: {name}, together",
        kind=name,
        things=_THINGS,
        owners=owners,
        open_owner="{}s",
        most=120,
        weight=_SORT_WEIGHT,
        stages=(
            one(*say.FIRST_SORT, *say.FIRST_SORT_GROUPS),
            one(*say.sorts_compared("A", "B")),
            some(0, 1, *say.sorts_compared("B", "C"), *say.sort("C")),
        ),
        questions=say.ASK_SORTS_SUM,
    )
    for name, owners in _SORTS.items()
)

_RUNNING = (
    Family(
        name="composed: owned",
        things=_THINGS,
        boxes=_HOLDERS,
        stages=(one(*say.OWNS), some(2, 4, *say.GAINS, *say.LOSSES, *say.CHANGES_BY_FACTOR)),
        questions=say.ASK_OWNED,
    ),
    Family(
        name="composed: owned in two places",
        things=_THINGS,
        boxes=_HOLDERS,
        stages=(
            one(*say.OWNS, *say.OWNS_GROUPS),
            one(*say.MORE_ELSEWHERE),
            some(1, 2, *say.GAINS, *say.LOSSES),
        ),
        questions=say.ASK_OWNED,
    ),
    Family(
        name="composed: at a place",
        things=_THINGS,
        owners=_PLACES,
        open_owner="{}",
        stages=(one(*say.AT_PLACE), some(2, 4, *say.PLACE_GAINS, *say.PLACE_LOSSES)),
        questions=say.ASK_PLACE,
    ),
    Family(
        name="composed: money",
        kind="money",
        things=_COINS,
        boxes=_THINGS,
        most=400,
        each=30,
        stages=(one(*say.HAS_MONEY), some(1, 4, *say.MONEY_CHANGES)),
        questions=say.ASK_MONEY,
    ),
    Family(
        name="composed: one sale among payments",
        kind="money",
        things=_COINS,
        boxes=_THINGS,
        most=400,
        each=30,
        weight=2.0,
        stages=(
            one(*say.HAS_MONEY),
            some(0, 1, *say.BOUGHT),
            one(*say.SOLD),
            some(0, 2, *say.BOUGHT),
        ),
        questions=say.ASK_MONEY,
    ),
    Family(
        name="composed: goods bought and sold",
        things=_THINGS,
        boxes=_HOLDERS,
        weight=1.0,
        stages=(one(*say.OWNS), some(2, 3, *say.GOODS_TRADED)),
        questions=say.ASK_OWNED,
    ),
    Family(
        name="composed: shared with one other",
        things=_THINGS,
        boxes=_HOLDERS,
        stages=(
            one(*say.KEEPS, *say.KEEPS_GROUPS),
            some(0, 2, *say.GAINS, *say.LOSSES),
            one(*say.SHARED_WITH_ONE),
            some(0, 2, *say.OWN_CHANGES),
        ),
        questions=say.ASK_OWNED_BY,
    ),
)
_GROUPS = (
    Family(
        name="composed: groups owned",
        things=_THINGS,
        boxes=_HOLDERS,
        most=90,
        stages=(
            one(*say.OWNS_GROUPS),
            some(
                1,
                3,
                *say.GAINS,
                *say.LOSSES,
                *say.GAINED_GROUPS,
                *say.LOST_GROUPS,
                *say.HALVINGS,
            ),
        ),
        questions=say.ASK_OWNED,
    ),
    Family(
        name="composed: purchases without a goal",
        things=_THINGS,
        boxes=_HOLDERS,
        most=120,
        stages=(one(*say.OWNS, *say.OWNS_GROUPS), some(1, 2, *say.PURCHASES)),
        questions=say.ASK_OWNED,
    ),
    Family(
        name="composed: groups at a place",
        things=_THINGS,
        boxes=(*_HOLDERS, *_BUNCHES),
        owners=_PLACES,
        open_owner="{}",
        most=90,
        stages=(
            one(*say.AT_PLACE_GROUPS),
            some(1, 3, *say.PLACE_GAINS, *say.PLACE_LOSSES, *say.PLACE_GROUP_CHANGES),
        ),
        questions=say.ASK_PLACE,
    ),
)
_COMPARISON = (
    Family(
        name="composed: three compared, all together",
        things=_THINGS,
        boxes=_HOLDERS,
        most=120,
        weight=1.5,
        stages=(
            one(*say.FIRST_OWNS),
            one(*say.compared("A", "B"), *say.briefly_compared("A", "B")),
            one(*say.compared("B", "C"), *say.briefly_compared("B", "C")),
        ),
        questions=say.ASK_SUM,
    ),
    Family(
        name="composed: the second compared",
        things=_THINGS,
        boxes=_HOLDERS,
        most=120,
        weight=1.5,
        stages=(
            one(*(clause for clause in say.FIRST_OWNS if clause.op is Op.GROUPS)),
            one(*say.compared("A", "B"), *say.briefly_compared("A", "B")),
        ),
        questions=say.ASK_B,
    ),
    Family(
        name="composed: kinds compared, together",
        kind="kinds",
        things=_THINGS,
        boxes=_HOLDERS,
        owners=_COLORS,
        open_owner="{}",
        most=120,
        weight=1.5,
        stages=(
            one(*say.FIRST_KIND, *say.FIRST_KIND_GROUPS),
            one(*say.kinds_compared("A", "B")),
            some(0, 1, *say.kinds_compared("B", "C"), *say.kind("C")),
        ),
        questions=say.ASK_KINDS_SUM,
    ),
    Family(
        name="composed: the second kind",
        kind="kinds",
        things=_THINGS,
        boxes=_HOLDERS,
        owners=_MATERIALS,
        open_owner="{}",
        most=120,
        weight=1.0,
        stages=(one(*say.FIRST_KIND_GROUPS), one(*say.kinds_compared("A", "B"))),
        questions=say.ask_kind("B"),
    ),
    Family(
        name="composed: the third kind",
        kind="kinds",
        things=_THINGS,
        boxes=_HOLDERS,
        owners=_COLORS,
        open_owner="{}",
        most=120,
        weight=1.0,
        stages=(
            one(*say.FIRST_KIND),
            one(*say.kinds_compared("A", "B")),
            one(*say.kinds_compared("B", "C")),
        ),
        questions=say.ask_kind("C"),
    ),
    Family(
        name="composed: the third sort",
        kind="sorts",
        things=_THINGS,
        owners=_SORTS["animals"] + _SORTS["persons"],
        open_owner="{}s",
        most=120,
        weight=1.0,
        stages=(
            one(*say.FIRST_SORT),
            one(*say.sorts_compared("A", "B")),
            one(*say.sorts_compared("B", "C")),
        ),
        questions=say.ask_sort("C"),
    ),
    Family(
        name="composed: compared, together",
        things=_THINGS,
        boxes=_HOLDERS,
        most=120,
        stages=(
            one(*say.FIRST_OWNS),
            one(*say.compared("A", "B")),
            some(0, 1, *say.compared("B", "C"), *say.owning("C")),
        ),
        questions=say.ASK_SUM,
    ),
    Family(
        name="composed: places compared",
        things=_THINGS,
        boxes=_HOLDERS,
        owners=_PLACE_NAMES,
        open_owner="the {} room",
        most=120,
        stages=(
            one(*say.at("A")),
            one(*say.compared_places("A", "B")),
            some(0, 1, *say.compared_places("B", "C"), *say.joining_owner("C")),
        ),
        questions=say.ASK_PLACES_SUM,
    ),
    Family(
        name="composed: the third compared",
        things=_THINGS,
        boxes=_HOLDERS,
        most=120,
        weight=1.5,
        stages=(one(*say.FIRST_OWNS), one(*say.compared("A", "B")), one(*say.compared("B", "C"))),
        questions=say.ASK_C,
    ),
    Family(
        name="composed: compared, then changed",
        things=_THINGS,
        boxes=_HOLDERS,
        most=120,
        stages=(one(*say.FIRST_OWNS), one(*say.compared("A", "B")), some(1, 2, *say.changing("B"))),
        questions=say.ASK_B,
    ),
)
_PRICES = (
    Family(
        name="composed: price of one",
        kind="price of one",
        things=_COINS,
        boxes=_THINGS,
        most=100,
        stages=(one(*say.PAID_IN_ALL), some(1, 2, *say.PRICE_CHANGES), one(*say.ALL_ALIKE)),
        questions=say.ASK_PRICE_OF_ONE,
    ),
    Family(
        name="composed: change from a note",
        kind="price",
        things=_COINS,
        boxes=_THINGS,
        most=100,
        each=30,
        stages=(one(*say.COSTS), some(0, 2, *say.COSTS_MORE), one(*say.NOTES)),
        questions=say.ASK_CHANGE,
    ),
    Family(
        name="composed: cost",
        kind="price",
        things=_COINS,
        boxes=_THINGS,
        most=100,
        each=30,
        stages=(one(*say.COSTS), some(1, 3, *say.COSTS_MORE)),
        questions=say.ASK_COST,
    ),
    Family(
        name="composed: bought and sold",
        kind="money",
        things=_COINS,
        boxes=_THINGS,
        most=400,
        each=30,
        weight=2.0,
        stages=(one(*say.HAS_MONEY), some(2, 3, *say.SOLD, *say.BOUGHT)),
        questions=say.ASK_MONEY,
    ),
    Family(
        name="composed: goods made money",
        kind="goods and money",
        things=_COINS,
        boxes=_THINGS,
        most=60,
        weight=1.0,
        stages=(
            one(*say.HAS_GOODS),
            some(0, 1, *say.GOODS_CHANGED),
            one(*say.ALL_SOLD),
            some(0, 2, *say.BOUGHT),
        ),
        questions=say.ASK_PROCEEDS,
    ),
    Family(
        name="composed: money to save",
        kind="money",
        things=_COINS,
        boxes=_THINGS,
        most=300,
        each=30,
        weight=1.5,
        stages=(
            one(*say.HAS_MONEY),
            some(0, 2, *say.MONEY_CHANGES, *say.SOLD, *say.BOUGHT),
            one(*say.MONEY_GOALS),
        ),
        questions=say.ASK_MISSING,
    ),
)
_SHARING = (
    Family(
        name="composed: shared",
        things=_THINGS,
        boxes=_PERSONS,
        most=120,
        stages=(
            one(*say.KEEPS, *say.KEEPS_GROUPS),
            some(0, 2, *say.GAINS, *say.LOSSES),
            one(*say.SHARED),
        ),
        questions=say.ASK_SHARE,
    ),
    Family(
        name="composed: put into",
        things=_THINGS,
        boxes=(*_HOLDERS, *nouns("group/groups, pile/piles, part/parts, team/teams")),
        most=120,
        stages=(one(*say.KEEPS), some(1, 2, *say.GAINS, *say.LOSSES), one(*say.INTO)),
        questions=say.ASK_INTO,
    ),
    Family(
        name="composed: packed",
        things=_THINGS,
        boxes=_HOLDERS,
        most=120,
        stages=(one(*say.KEEPS), some(1, 2, *say.GAINS, *say.LOSSES), one(*say.PACKED)),
        questions=say.ASK_PACKED,
    ),
    Family(
        name="composed: shared, then changed",
        things=_THINGS,
        boxes=_FELLOWS,
        most=120,
        weight=2.5,
        stages=(
            one(*say.AT_TABLE, *say.KEEPS_FOR_ALL),
            some(0, 1, *say.SHARED_FIRST_CHANGED),
            one(*say.SHARED_WITH_OWNER),
            some(0, 2, *say.OWN_CHANGES),
        ),
        questions=say.ASK_OWNED_BY,
    ),
)
_RATES = (
    Family(
        name="composed: done so far",
        kind="acts done",
        things=_THINGS,
        boxes=_HOLDERS,
        acts=say.ACTS,
        most=90,
        stages=(one(*say.FIRST_DONE), some(1, 3, *say.MORE_DONE)),
        questions=say.ASK_DONE,
    ),
    Family(
        name="composed: way gone",
        kind="way gone",
        things=_MILES,
        most=150,
        each=60,
        stages=(one(*say.FIRST_GONE), some(1, 3, *say.MORE_GONE)),
        questions=say.ASK_GONE,
    ),
    Family(
        name="composed: made at a place",
        things=_THINGS,
        boxes=_HOLDERS,
        owners=("machine", "factory", "workshop", "robot", "kitchen", "bakery", "farm", "school"),
        open_owner="{}",
        most=100,
        each=50,
        stages=(one(*say.MADE_AT_PLACE), some(1, 3, *say.PLACE_GAINS, *say.PLACE_LOSSES)),
        questions=say.ASK_PLACE,
    ),
    Family(
        name="composed: coming bit by bit",
        things=_THINGS,
        boxes=_HOLDERS,
        owners=_PLACES,
        open_owner="{}",
        most=100,
        each=40,
        stages=(
            one(*say.COMING_TO_PLACE),
            some(1, 3, *say.PLACE_GAINS, *say.PLACE_LOSSES, *say.PLACE_GROUP_CHANGES),
        ),
        questions=say.ASK_PLACE,
    ),
)
_DIFFERENCE = (
    Family(
        name="composed: who has more",
        things=_THINGS,
        boxes=_HOLDERS,
        most=120,
        stages=(
            one(*say.FIRST_OWNS),
            some(0, 1, *say.changing("A")),
            one(*say.owning("B")),
            some(0, 1, *say.changing("B")),
        ),
        questions=say.ASK_MORE,
    ),
    Family(
        name="composed: who has more, told briefly",
        kind="brief",
        things=_THINGS,
        boxes=_HOLDERS,
        most=120,
        stages=(one(*say.FIRST_OWNS[:3]), one(*say.briefly("B")), one(*say.changing("B"))),
        questions=say.ASK_MORE,
    ),
    Family(
        name="composed: where more are",
        things=_THINGS,
        boxes=_HOLDERS,
        owners=_PLACE_NAMES,
        open_owner="the {} room",
        most=150,
        stages=(
            one(*say.at("A")),
            some(0, 1, *say.coming_to("A")),
            one(*say.joining_owner("B")),
            some(0, 1, *say.coming_to("B")),
        ),
        questions=say.ASK_PLACES_MORE,
    ),
    Family(
        name="composed: at which more are",
        things=_THINGS,
        boxes=_HOLDERS,
        owners=_SPOTS,
        open_owner="the {} gate",
        most=150,
        stages=(
            one(*say.at_spot("A")),
            some(0, 1, *say.changing_spot("A")),
            one(*say.at_spot("B")),
            some(0, 1, *say.changing_spot("B")),
        ),
        questions=say.ASK_SPOTS_MORE,
    ),
)
_REMAINING = (
    Family(
        name="composed: the others",
        things=_THINGS,
        boxes=_HOLDERS,
        kind="others",
        most=200,
        stages=(
            one(*say.OWNS, *say.OWNS_GROUPS),
            some(0, 1, *say.GAINS),
            some(1, 2, *say.SOME_ARE),
        ),
        questions=say.ASK_OTHERS,
    ),
    Family(
        name="composed: left to do",
        kind="acts left",
        things=_THINGS,
        boxes=_HOLDERS,
        acts=say.ACTS,
        most=300,
        stages=(one(*say.TO_DO), some(1, 3, *say.BITS_DONE)),
        questions=say.ASK_TO_DO,
    ),
    Family(
        name="composed: way left",
        kind="way left",
        things=_MILES,
        most=600,
        each=40,
        weight=1.7,
        stages=(one(*say.WHOLE_WAY), some(1, 3, *say.WAY_DONE)),
        questions=say.ASK_WAY_LEFT,
    ),
    Family(
        name="composed: goal after purchases",
        things=_THINGS,
        boxes=_HOLDERS,
        most=120,
        weight=2.0,
        stages=(one(*say.OWNS), some(1, 2, *say.PURCHASES), one(*say.GOALS)),
        questions=say.ASK_MISSING,
    ),
    Family(
        name="composed: goal",
        things=_THINGS,
        boxes=_HOLDERS,
        most=120,
        weight=2.5,
        stages=(
            one(*say.OWNS, *say.OWNS_GROUPS),
            some(0, 2, *say.GAINS, *say.LOSSES),
            one(*say.GOALS),
        ),
        questions=say.ASK_MISSING,
    ),
    Family(
        name="composed: goal first",
        kind="goal first",
        things=_THINGS,
        boxes=_HOLDERS,
        most=250,
        stages=(one(*say.GOALS_FIRST), some(0, 1, *say.HAS_OF_GOAL), some(1, 2, *say.TOWARDS_GOAL)),
        questions=say.ASK_MISSING,
    ),
    Family(
        name="composed: what is left",
        things=_THINGS,
        boxes=_HOLDERS,
        most=300,
        stages=(one(*say.OWNS, *say.OWNS_GROUPS), some(1, 3, *say.LOSSES, *say.LOST_GROUPS)),
        questions=say.ASK_OWNED,
    ),
)
_TOTAL = (
    Family(
        name="composed: kinds together",
        kind="kinds",
        things=_THINGS,
        boxes=_HOLDERS,
        owners=_COLORS,
        open_owner="{}",
        most=150,
        weight=0.6,
        stages=(
            one(*say.FIRST_KIND, *say.FIRST_KIND_GROUPS),
            one(*say.kind("B"), *say.kinds_compared("A", "B")),
            some(0, 1, *say.kind("C")),
        ),
        questions=say.ASK_KINDS_SUM,
    ),
    Family(
        name="composed: materials together",
        kind="kinds",
        things=_THINGS,
        boxes=_HOLDERS,
        owners=_MATERIALS,
        open_owner="{}",
        most=150,
        weight=0.6,
        stages=(
            one(*say.FIRST_KIND, *say.FIRST_KIND_GROUPS),
            one(*say.kinds_compared("A", "B")),
            some(0, 1, *say.kind("C")),
        ),
        questions=say.ASK_KINDS_SUM,
    ),
    Family(
        name="composed: together",
        things=_THINGS,
        boxes=_HOLDERS,
        most=150,
        stages=(
            one(*say.FIRST_OWNS),
            some(0, 1, *say.changing("A")),
            one(*say.owning("B")),
            some(0, 1, *say.changing("B")),
            some(0, 1, *say.owning("C")),
        ),
        questions=say.ASK_SUM,
    ),
    Family(
        name="composed: together, told briefly",
        kind="brief",
        things=_THINGS,
        boxes=_HOLDERS,
        most=150,
        stages=(one(*say.FIRST_OWNS[:3]), one(*say.briefly("B")), one(*say.briefly("C"))),
        questions=say.ASK_SUM,
    ),
    Family(
        name="composed: places together",
        things=_THINGS,
        boxes=_HOLDERS,
        owners=_PLACE_NAMES,
        open_owner="the {} room",
        most=150,
        stages=(
            one(*say.at("A")),
            some(0, 1, *say.coming_to("A")),
            one(*say.joining_owner("B")),
            some(0, 1, *say.joining_owner("C")),
        ),
        questions=say.ASK_PLACES_SUM,
    ),
    Family(
        name="composed: on one and on the other",
        kind="sides",
        things=_THINGS,
        boxes=_SIDES,
        most=120,
        stages=(one(*say.ON_SIDES), one(*say.ON_OTHER_SIDE), some(0, 1, *say.ON_THIRD_SIDE)),
        questions=say.ASK_PLACES_SUM,
    ),
)

COMPOSED = {
    Structure.RUNNING: _RUNNING,
    Structure.GROUPS: _GROUPS,
    Structure.COMPARISON: _COMPARISON + _MEASURED_TOGETHER + _SORTS_TOGETHER,
    Structure.PRICES: _PRICES,
    Structure.SHARING: _SHARING,
    Structure.RATES: _RATES,
    Structure.DIFFERENCE: _DIFFERENCE + _MEASURED_APART,
    Structure.REMAINING: _REMAINING,
    Structure.TOTAL: _TOTAL,
}
