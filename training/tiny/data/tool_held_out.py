"""Held-out material for conversations with tools: no verb, noun, word of a parameter's name, string
or wording of a request is in training, but each word of a wording is, in several others."""

from __future__ import annotations

from training.tiny.data.tool_material import Material, Strings, Wordings, groups, named, words

_VERBS = groups("""
retrieve obtain view browse query inspect audit analyze evaluate assess extract
generate compose produce draft
discard purge withdraw revoke
amend revise tweak alter tune
dispatch transmit convey
initiate trigger deploy
summon
classify
annotate
crush grind
sew stitch
fold
bury
harvest
inflate enlarge
illuminate
boil melt
insure
sharpen
rewind
sanitize rinse
shrink
nominate
sponsor
tow
unpack
weave
varnish
carve
""")

_NOUNS = groups("""
humidity
lantern
canoe kayak
tractor
hedge
orchard
vineyard
lobster
pelican
walrus
hamster
tortoise
falcon
antelope
cactus
mushroom
pumpkin
radish
pancake
waffle
omelette
burrito
smoothie
espresso
cardigan
trousers
bracelet
helmet
backpack
tent
compass
anchor
windmill
lighthouse
cathedral
elevator
escalator
thermostat
turbine
reactor
antenna
spreadsheet
ledger
manuscript
sonnet
thesis
syllabus
seminar
tournament
marathon
parade
banquet
wedding
sculpture
mosaic
tapestry
harp
cello
accordion
opera
ballet
pension
dividend
tariff
customs_form
boarding_pass
spare_part
ferry_crossing
voicemail
hologram
firewall
webhook
repository
certificate
firmware
""")

_PARAMETERS = {
    "city": "venue hometown harbour",
    "person": "tenant referee nominee",
    "name": "alias trademark publisher",
    "word": "genre hobby fabric",
    "phrase": "slogan motto caption",
    "code": "barcode batch docket locker",
    "email": "mailbox correspondent",
    "date": "expiry anniversary checkout",
    "time": "kickoff bedtime curfew",
    "file": "screenshot transcript asset",
    "path": "directory endpoint",
    "hex": "fingerprint checksum nonce",
    "digits": "postcode passcode hotline",
    "sentence": "remark memo feedback",
    "integer": "headcount capacity rows laps",
    "number": "fare salary altitude voltage",
    "flag": "parking catering wifi lighting",
    "state": "silent refundable confidential",
}

_CHOICES = {
    "tier": ("bronze", "platinum", "titanium"),
    "season": ("summer", "autumn", "winter"),
    "pace": ("walk", "trot", "gallop"),
    "texture": ("matte", "glossy", "satin"),
    "codec": ("opus", "flac", "vorbis"),
}

_STRINGS = Strings(
    adjectives=words("""
crimson violet turquoise scarlet gloomy cheerful fragile sturdy polite rude nervous eager humble
hollow crooked crispy sticky slippery dusty foggy windy sunny rapid sudden secret noble vivid
elegant clumsy thirsty
"""),
    things=words("""
pebble lagoon glacier volcano canyon prairie thistle clover willow maple cedar acorn raven sparrow
heron otter beaver badger hedgehog squirrel moose panther cobra scorpion beetle cricket wagon saddle
cradle trumpet whistle hourglass parchment quill lavender cinnamon saffron apricot papaya walnut
archery fencing judo velvet denim geology
"""),
    people=words("""
Agatha Bernard Cecilia Desmond Estelle Fergus Gwen Horace Ingrid Jasper Kirsten Lionel Mabel Nigel
Ophelia Percy Rosalind Silas Tabitha Winston
"""),
    cities=words("""
Reykjavik Tallinn Riga Vilnius Zagreb Ljubljana Sarajevo Tirana Valletta Antwerp Utrecht Bergen
Malaga Bologna Palermo Hanoi Jakarta Manila Perth Quito Caracas Tunis Accra Dakar Calgary Phoenix
Portland Memphis
"""),
    syllables=words("""
bly cha chi dwo fla glo gna kle kro phi pri sha sho ska sno spe thu tho twu tsu vra yel yor zhe
bim dax fum gop hib jux kep lux mox nib pog rud sib tov wug yim
"""),
    domains=words("letters.uk courier.fr parlour.eu"),
    extensions=words("ods svg webp tar flac md"),
    codes=words("A-99-AA 999-AAA AA.99.9 99A99 AAA9-A 9-AA-999"),
    digits=words("9999999 99-99-99 99999-9999"),
    hexadecimals=words("xxxxxxxxxx xxxxxx xxx-xxx"),
    dates=("{d:02}.{m:02}.{y}", "{y}/{m:02}/{d:02}", "{y}{m:02}{d:02}"),
    years=(2031, 2039),
    times=("{h:02}h{i:02}", "{h:02}:{i:02}:{d:02}", "{h:02}{i:02}"),
    sentences=(
        "{n} found a {a} {t} under the {u}",
        "every {t} needs a {a} {u}",
        "Nobody saw the {a} {t}",
        "Keep the {t} away from the {u}",
        "{s} {a} {t} belongs to {n}",
    ),
)

_WORDINGS = Wordings(
    descriptions=(
        "A function to {verb} {a} {noun}.",
        "Will {verb} the given {noun}.",
        "To {verb} any {noun}, call this.",
        "{verb} some {noun}",
        "You can {verb} {a} {noun} here.",
    ),
    parameter_descriptions=("{P} for the {noun}", "What {p} it has", "Its {p}", "{P} as given"),
    flag_descriptions=("True if it needs {p}", "Should there be {p}"),
    state_descriptions=("Is the {noun} {p}", "Should it be {p}"),
    determiners=("the", "their", "his", "her", "{a}", "{x}'s", ""),
    openings=(
        (
            "I'd be glad if you could {w}.",
            "any chance you can {w}?",
            "we have to {w}.",
            "be so kind as to {w}.",
            "someone must {w}.",
            "would it be possible to {w}?",
            "I hope you can {w}.",
            "now {w}.",
            "try to {w}.",
            "do {w}, thanks.",
            "is there any way for us to {w}?",
            "my sister hopes someone can {w}.",
            "could somebody please {w} today?",
            "if you please, {w} right now.",
            "all we want is to {w}, thank you.",
            "{x} asked whether someone could {w}.",
            "they must {w} at once, if possible.",
            "just try and {w} for us, please.",
        ),
    ),
    before=(
        (
            "Hello again, if there is time, ",
            "Dear assistant, one thing: ",
            "As our {o} is not here now, ",
            "When you could, ",
            "Hi there, as soon as possible, ",
            "Someone is here and needs it: ",
        ),
    ),
    reasons=(
        "as our {o} asked me for it now",
        "since {x} is waiting here",
        "because I need it today",
    ),
    closings=("Thank you all", "Many thanks for your time, {x}", "It is for our {o}, thanks"),
    questions=(
        "tell me the {noun} {d}.",
        "I wonder what the {noun} is {d}.",
        "what {noun} is it {d}?",
        "do you know which {noun} there is {d}?",
        "let me know how our {noun} is {d}.",
    ),
    inline=(
        (
            "whose {p} is {v}",
            "given the {p} {v}",
            "taking {v} as the {p}",
            "by {p} {v}",
            "from the {p} {v}",
            "that has {p} {v}",
            "(its {p} is {v})",
            "with {v}, which is the {p}",
            "for which its {p} should be {v}",
            "using {a} {p} set to {v}",
            "(take {v} as its {p})",
        ),
    ),
    fronted=(
        (
            "given the {p} {v}",
            "taking {v} as the {p}",
            "by {p} {v}",
            "going by {a} {p} of {v}",
            "with its {p} kept at {v}",
        ),
    ),
    nameless={},
    statements=(
        (
            "Let the {p} be {v}",
            "As the {p}, take {v}",
            "For the {p}, use {v}",
            "We have {v} as the {p}",
            "Our {p} is {v}",
            "{v} is what its {p} must be",
            "It needs {v} as its {p}",
            "So {v} should be the {p}",
            "I want {v} to be its {p}",
        ),
    ),
    items=("{P} is {v}", "{P} {v}", "the {p}: {v}", "{v} being its {p}"),
    bullets=("\n+ ", "\n  ", ", "),
    leads=(
        ":",
        "with these values as follows:",
        "what I have is the following:",
        "here are my details:",
    ),
    bare=("{v}", "only with {v}", "from {v}", "just for {v}", "which is just {v}"),
    bare_city=("right in {v}", "over in {v}", "here at {v}"),
    flags_inline=(
        ("with the {p}", "without the {p}"),
        ("with {p} = true", "with {p} = false"),
        ("so that {p} is on", "so that {p} is off"),
        ("including our {p}", "not including our {p}"),
    ),
    flags_stated=(
        ("We want {p}", "We do not want {p}"),
        ("{P} must be true", "{P} must be false"),
        ("It should have the {p}", "It should not have the {p}"),
        ("There will be {p}", "There will be no {p}"),
    ),
    states_inline=(
        ("{p} as true", "{p} as false"),
        ("so that it must be {p}", "so that it must not be {p}"),
        ("having {p} on", "having {p} off"),
    ),
    states_stated=(
        ("Let it be {p}", "Let it not be {p}"),
        ("{P} must be true", "{P} must be false"),
        ("I would like it to be {p}", "I would not like it to be {p}"),
        ("Keep this {p}", "Do not keep this {p}"),
    ),
    joiners=(" Afterwards: ", " Next: ", "\nAs well: ", " And after this, "),
    by_name=("Invoke {t}: ", "Apply {t}, ", "Please run {t} now with "),
    systems=("You are an assistant for a small firm.", "Help the user well."),
)

HELD_OUT = Material(
    verbs=_VERBS,
    nouns=_NOUNS,
    mass_nouns=frozenset(words("humidity trousers")),
    parameters=named(_PARAMETERS, _CHOICES),
    choices=_CHOICES,
    modifiers=words("interim spare nearest preferred external nightly senior rival joint"),
    invented=0.0,
    failures=("not allowed", "quota exceeded", "unknown error", "the service is busy"),
    strings=_STRINGS,
    wordings=_WORDINGS,
)
