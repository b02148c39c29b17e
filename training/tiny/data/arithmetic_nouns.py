"""What training's arithmetic problems count, and what they put it in."""

from __future__ import annotations

from training.tiny.data.arithmetic_frames import nouns

FRUIT = nouns("""
    apple/apples, pear/pears, orange/oranges, banana/bananas, lemon/lemons, plum/plums,
    peach/peaches, melon/melons, cherry/cherries
""")
SWEETS = nouns("""
    candy/candies, lollipop/lollipops, toffee/toffees, gumdrop/gumdrops, jelly bean/jelly beans,
    chocolate/chocolates, mint/mints
""")
BAKED = nouns("""
    cookie/cookies, muffin/muffins, cupcake/cupcakes, roll/rolls, bun/buns, pie/pies,
    waffle/waffles, pancake/pancakes, pretzel/pretzels
""")
TOYS = nouns("""
    marble/marbles, toy car/toy cars, block/blocks, ball/balls, doll/dolls, puzzle/puzzles,
    top/tops, whistle/whistles, teddy bear/teddy bears
""")
KEPT = nouns("""
    stamp/stamps, coin/coins, sticker/stickers, card/cards, shell/shells, button/buttons,
    postcard/postcards, bead/beads, badge/badges, stone/stones
""")
SCHOOL = nouns("""
    pencil/pencils, pen/pens, eraser/erasers, notebook/notebooks, ruler/rulers, crayon/crayons,
    marker/markers, folder/folders
""")
FLOWERS = nouns("""
    rose/roses, tulip/tulips, daisy/daisies, lily/lilies, sunflower/sunflowers, violet/violets
""")
VEGETABLES = nouns("""
    carrot/carrots, potato/potatoes, onion/onions, tomato/tomatoes, cabbage/cabbages,
    pepper/peppers, bean/beans
""")
BIRDS = nouns("""
    duck/ducks, goose/geese, swan/swans, pigeon/pigeons, gull/gulls, robin/robins, crow/crows
""")
CLOTHES = nouns("""
    shirt/shirts, hat/hats, scarf/scarves, sock/socks, coat/coats, dress/dresses, glove/gloves,
    belt/belts
""")
KITCHEN = nouns("""
    plate/plates, cup/cups, bowl/bowls, spoon/spoons, fork/forks, glass/glasses
""")
CONTAINERS = nouns("""
    box/boxes, bag/bags, basket/baskets, jar/jars, crate/crates, tray/trays, packet/packets,
    pack/packs
""")
