"""Training material for conversations with tools. The groups keep near synonyms apart from each
other's hard negatives: "cancel the booking" must not stand beside a tool `delete_booking`."""

from __future__ import annotations

from training.tiny.data.open_words import open_pieces, open_words
from training.tiny.data.tool_material import (
    Material,
    Strings,
    groups,
    named,
    words,
)
from training.tiny.data.tool_wordings import WORDINGS

_VERBS = groups("""
get show fetch find check read look_up list search display scan track trace monitor watch test
create add make register book reserve order schedule plan buy purchase rent hire install
delete remove erase cancel stop halt end close demolish
update edit change modify adjust rename resize replace convert translate compress calibrate
send forward share mail deliver move transfer upload publish post
save store archive download export record
open start launch run begin activate resume unlock unblock play
lock block ban guard protect mute reject decline
sell
pay settle
refund
compare
copy clone duplicate
print
sort
filter
merge combine mix blend attach connect link join collect gather
split divide cut crop trim detach disconnect
approve accept confirm sign
assign
measure weigh
paint draw sketch decorate
clean wash polish
repair fix
pack wrap
lend donate
invite
encrypt
decrypt
label mark tag highlight
cook bake fry heat warm
cool chill
plant
water
feed
rotate turn flip
fill
drain
notify alert warn
hide
hang
lift raise promote
lower
train teach
drive
carry
throw
hold
push
pull
""")

_NOUNS = groups("""
payment bank_transfer
report document letter contract
lesson class course
movie film video clip
task job work_order
car
photo picture image poster
account user customer client
subscription membership
licence permit
house home apartment flat
garden lawn
toy doll
flight plane
novel story
diary
weather forecast
parcel package shipment
invoice bill
ticket
booking reservation
hotel
meeting appointment
song track_list playlist
recipe
folder
chart graph
calendar
reminder alarm
project
team
server
database
website web_page
camera
lamp light
door gate
window
bicycle bike
train_ride
bus
taxi cab
boat ship
truck
road street
bridge
room
kitchen
oven
fridge
sofa couch
chair
desk
shelf
carpet rug
mirror
clock
wristwatch
laptop
printer
keyboard
screen
battery
cable
router
sensor
robot
drone
engine
pump
valve
tank
pipe
fuse
heater
fan
vacuum_cleaner
ladder
hammer
screw
brick
roof
wall
fence
tree
flower
pond
river
lake
beach
island
mountain hill
forest
farm
barn
horse
cow
sheep
goat
pig
dog
cat
bird
rabbit
beehive
cake
bread
pizza
soup
salad
sandwich
coffee
tea
juice
wine
cheese
apple
banana
lemon
potato
carrot
onion
shirt
jacket coat
dress
shoe
hat
glove
sock
belt
scarf
necklace
suitcase
wallet purse
magazine
newspaper
poem
map
statue
museum
theatre
cinema
concert
game
puzzle
kite
guitar
piano
violin
drum
flute
choir
exam quiz
student
teacher
library
experiment
telescope
microscope
rocket
satellite
planet
patient
doctor
nurse
pill
prescription
clinic
ambulance
loan
coupon
gift_card
warranty
passport
visa
warehouse
factory
shop
auction
survey poll
petition
newsletter
podcast
channel
backup
log_entry
cluster
container
pipeline
dashboard
widget
plugin
template
font
icon
logo
banner
blog_post
exchange_rate
stock_price
parking_spot
swimming_pool
tennis_court
washing_machine
coffee_machine
data_set
support_case
phone_call
news_feed
credit_card
train_station
bus_stop
river_cruise
city_tour
dinner_party
""")

_PARAMETERS = {
    "city": "city town destination origin location place region",
    "person": "owner author recipient sender manager guest driver reviewer",
    "name": "name brand model company vendor username product",
    "word": "topic keyword material language sport scent flavour animal",
    "phrase": "subject theme headline title nickname",
    "code": "code reference serial_number tracking_id sku order_number license_plate flight_number",
    "email": "email contact_address reply_address",
    "date": "date birthday deadline arrival departure day",
    "time": "time hour pickup_slot opening",
    "file": "file attachment source_document output",
    "path": "path url target_link",
    "hex": "session_key token hash user_id commit",
    "digits": "zip phone pin account_number",
    "sentence": "message note comment text reason instructions",
    "integer": "count quantity duration limit age page minutes floor seats width height level",
    "number": "price amount weight temperature distance discount ratio length budget score",
    "flag": "gift_wrap insurance breakfast subtitles shading logging encryption heating sound",
    "state": "urgent private active recursive anonymous visible automatic",
}

_CHOICES = {
    "size": ("small", "medium", "large", "huge"),
    "unit": ("celsius", "fahrenheit", "kelvin"),
    "priority": ("low", "normal", "high", "critical"),
    "format": ("json", "csv", "xml", "yaml"),
    "mode": ("fast", "slow", "eco", "turbo"),
    "style": ("modern", "classic", "rustic", "minimal"),
    "status": ("pending", "done", "failed", "queued"),
    "role": ("admin", "editor", "viewer", "member"),
    "colour": ("red", "green", "blue", "yellow", "black", "white"),
    "direction": ("north", "south", "east", "west"),
    "currency": ("euro", "dollar", "pound", "yen"),
    "seat_class": ("economy", "business", "premium"),
    "sorting": ("ascending", "descending", "random"),
    "quality": ("basic", "standard", "best"),
    "weekday": ("monday", "tuesday", "friday", "sunday"),
    "shape": ("round", "square", "oval"),
}

_MODIFIERS = """
start home backup main first last new old billing shipping default primary secondary local remote
parent child inner outer left right top bottom former current next previous final maximum minimum
work school second third
"""

# What stands around values must not be a value: a model could not tell where they begin and end.
_STRINGS = Strings(
    adjectives=words("""
blue red green yellow black white brown grey golden silver bright dark warm cold hot cool soft
hard loud quiet slow early late old new young fresh dry wet clean dirty heavy light
full open broken sharp smooth rough sweet sour bitter salty little big great long short wide
narrow deep shallow tall low round flat strong weak rich poor sad angry calm brave shy 
proud lazy busy clever simple plain fancy modern ancient local foreign wild tame rare common cheap
expensive wooden plastic glass paper stone northern southern daily weekly monthly public royal
gentle hidden frozen burning rusty shiny striped spotted curly straight
"""),
    things=words("""
table bottle bucket candle pencil paper button needle thread ribbon basket blanket pillow towel
soap brush comb spoon fork knife plate cup bowl kettle pot pan stove sink drawer closet curtain
stairs corner ceiling chimney cellar attic balcony porch stone sand mud dust smoke fire flame
spark ash wood leaf root branch seed grass moss cloud rain snow storm wind thunder rainbow sun moon
star sky wave tide shore cliff cave valley desert swamp meadow village market harbor tower castle
temple station airport tunnel wheel rope chain hook nail spring lever gear handle blade arrow sword
shield crown coin jewel pearl diamond gold copper iron steel lead salt sugar honey butter milk
cream pepper garlic ginger mint basil cherry grape peach pear plum melon berry nut wheat corn bean
pea lettuce spinach tomato lion tiger bear wolf fox deer mouse rat frog snake turtle lizard shark
whale dolphin eagle hawk owl crow duck goose swan chicken spider ant butterfly music dance rhythm
melody history science physics chemistry biology poetry football tennis hockey chess swimming
cycling rowing skiing cotton leather linen marble granite english french german italian spanish
vanilla chocolate caramel coconut almond travel health finance fashion nature
"""),
    people=words("""
Anna Ben Clara David Emma Felix Grace Henry Ida Jack Kate Leo Maria Noah Olga Paul Rosa Sam Tina
Victor Wendy Xavier Yara Zoe Alice Boris Carmen Daniel Elena Frank Gloria Hugo Irene James Karim
Laura Martin Nadia Oscar Petra Quentin Robert Sofia Thomas Ursula Vera Walter Yusuf Ahmed Fatima
"""),
    cities=(
        *words("""
Lisbon Paris London Berlin Madrid Rome Vienna Prague Warsaw Budapest Athens Dublin Oslo Stockholm
Helsinki Copenhagen Brussels Amsterdam Hamburg Munich Lyon Marseille Porto Seville Valencia Milan
Naples Turin Geneva Basel Boston Chicago Denver Seattle Dallas Houston Miami Atlanta Toronto
Montreal Vancouver Tokyo Osaka Kyoto Seoul Beijing Shanghai Delhi Mumbai Cairo Nairobi Lagos
Casablanca Sydney Melbourne Auckland Lima Santiago Bogota Havana
"""),
        "New York",
        "San Francisco",
        "Buenos Aires",
        "Hong Kong",
        "Cape Town",
        "Mexico City",
        "Los Angeles",
        "Tel Aviv",
    ),
    syllables=tuple(
        onset + vowel + coda
        for onset in words("b c d f g h j k l m n p r s t v w z br cr dr fr gr pl st tr")
        for vowel in "aeiou"
        for coda in ("", "l", "n", "r", "s")
    ),
    domains=words("example.com mail.com post.org inbox.net web.de office.io"),
    extensions=words("pdf csv txt png jpg docx json zip py mp3 html xlsx"),
    codes=words("""
AA-9999 A99 AAA999 99-AA-99 AA9999A A-999999 AAAA-99 9999-AAAA a999 AAA-9-9 AA-99-AA-99 AA/999
A9A9A9 AAA_9999 aaa-999 aa99aa AA999 9A-99999 #9999 A-9A
"""),
    digits=words("99999 9999 999-9999 999999 99999999 +99-999-9999 999-999-9999"),
    hexadecimals=words("xxxxxxxx xxxx-xxxx 0xxxxx xxxxxxxxxxxx xxxxxxx xxxx"),
    dates=(
        "{y}-{m:02}-{d:02}",
        "{y}-{m:02}-{d:02}",
        "{d} {month} {y}",
        "{month} {d}",
        "{d} {month}",
        "{d:02}/{m:02}/{y}",
        "{month} {y}",
    ),
    years=(2020, 2029),
    times=("{h:02}:{i:02}", "{h}:{i:02}", "{k}:{i:02} am", "{k}:{i:02} pm", "{k} pm", "{k}am"),
    sentences=(
        "{s} {a} {t} is {b}",
        "Please bring the {a} {t}",
        "{s} {t} and the {u} are missing",
        "Call me about the {t}",
        "I will be late because of the {a} {t}",
        "do not touch the {a} {t}",
        "we need {d} more {t}",
        "{s} {t} arrived with a {a} {u}",
        "Leave it next to the {a} {t}",
        "see you near the {t}",
        "my {t} looks {a} today",
        "Thank you for the {a} {t}!",
        "is the {t} still {a}?",
        "{n} lost the {t}",
    ),
    open_words=open_words(),
    open_pieces=open_pieces(),
)

TRAIN = Material(
    verbs=_VERBS,
    nouns=_NOUNS,
    mass_nouns=frozenset(words("weather coffee tea juice wine bread cheese soup salad")),
    parameters=named(_PARAMETERS, _CHOICES),
    choices=_CHOICES,
    modifiers=words(_MODIFIERS),
    invented=0.65,
    failures=(
        "not found",
        "access denied",
        "timeout",
        "already exists",
        "too many requests",
        "service not available",
        "wrong value",
        "no connection",
    ),
    strings=_STRINGS,
    wordings=WORDINGS,
)
