"""Shopping: what is bought, what it costs, whose it is."""

from dataclasses import dataclass

from tools.phrasebook.activities import BUY, Activity
from tools.phrasebook.clauses import (
    CAN,
    DE_HAVE,
    DEGREES,
    FUTURE,
    HAVE_TO,
    PAST,
    WOULD_LIKE,
    Degree,
    Form,
    Mood,
    Quality,
    clause,
    degree_fits,
    is_so,
)
from tools.phrasebook.families import family
from tools.phrasebook.persons import (
    ER,
    FATHER,
    FRIENDS,
    GRANDMOTHER,
    GROWN_UPS,
    HE,
    MOTHER,
    OBJECTS,
    PRONOUNS,
    SHE,
    UNCLE,
    WE,
    YOU,
    YOUNGER_SISTER,
    I,
    Someone,
    form_fits,
    in_question,
    same_people,
)
from tools.phrasebook.things import (
    BOOKS,
    CLOTHES,
    COLOURED,
    COLOURS,
    DEVICES,
    FRUIT,
    FURNITURE,
    GOODS,
    SMALL_THINGS,
    VEHICLES,
    Thing,
    some,
    wears,
)
from tools.phrasebook.wording import (
    ADJECTIVE_AFTER_EIN,
    ADJECTIVE_AFTER_THE,
    EXCUSE_ME,
    GERMAN_DIES,
    GERMAN_EIN,
    LAST_WEEK,
    NOTHING,
    TODAY,
    TOMORROW,
    YESTERDAY,
    Case,
    Sentence,
    Words,
    de_number,
    en_number,
    question,
    statement,
    words,
    zh_count,
)

BULKY = (*FURNITURE, *VEHICLES, *DEVICES)


@dataclass(frozen=True, eq=False)
class When:
    """A tense or modal verb with the time that goes with it."""

    mood: Mood
    time: Words
    form: Form

    def __str__(self) -> str:
        return words(str(self.mood), self.time.en, self.form)


@family(
    "shopping",
    ("someone", "thing"),
    where=lambda someone, count, thing, purchase: (
        (count <= 2 or thing not in BULKY) and form_fits(someone, purchase.form)
    ),
    someone=GROWN_UPS,
    count=(1, 2, 3, 4),
    thing=GOODS,
    purchase=(
        When(WOULD_LIKE, NOTHING, "statement"),
        When(WOULD_LIKE, NOTHING, "question"),
        When(PAST, YESTERDAY, "statement"),
        When(PAST, LAST_WEEK, "time first"),
        When(FUTURE, TOMORROW, "statement"),
        When(HAVE_TO, TODAY, "statement"),
    ),
)
def buys(someone: Someone, count: int, thing: Thing, purchase: When) -> Sentence:
    what = some(count, thing, "acc")
    en, zh, de = clause(
        someone, purchase.mood, Activity(BUY, what.en, "买" + what.zh, what.de, ""), purchase.time, purchase.form
    )
    if purchase.mood is PAST:  # with a number, 了 follows the verb: 买了两本书
        zh = zh.replace("买", "买了", 1).replace("了。", "。")
    return Sentence(en, zh, de)


def this(count: int, thing: Thing, case: Case = "nom", colour: Words | None = None) -> Words:
    """This red jacket, 这件红色的夹克, diese rote Jacke; these two red jackets."""
    en_colour, zh_colour = (colour.en, colour.zh + "的") if colour else ("", "")
    zh = f"这{zh_count(count) if count > 1 else ''}{thing.classifier}{zh_colour}{thing.zh}"
    if count > 1:
        return Words(
            words("these", en_number(count), en_colour, thing.en_plural),
            zh,
            words("diese", de_number(count), colour.de + "en" if colour else "", thing.de_plural),
        )
    de_colour = colour.de + ADJECTIVE_AFTER_THE[case][thing.gender] if colour else ""
    return Words(words("this", en_colour, thing.en), zh, words(GERMAN_DIES[case][thing.gender], de_colour, thing.de))


@family(
    "shopping",
    ("thing", "amount"),
    where=lambda count, thing, amount, currency: (amount >= 100) == (thing in BULKY),
    count=(1, 2, 3),
    thing=GOODS,
    amount=(*range(4, 30), *range(30, 100, 5), 36, 42, 48, 54, 63, 72, 81, 99, *range(100, 1000, 100)),
    currency=(
        Words("euros", "欧元", "Euro"),
        Words("dollars", "美元", "Dollar"),
        Words("francs", "法郎", "Franken"),
    ),
)
def price(count: int, thing: Thing, amount: int, currency: Words) -> Sentence:
    what = this(count, thing)
    together = Words("altogether", "一共", "zusammen") if count > 1 else NOTHING
    return statement(
        words(what.en, "cost" if count > 1 else "costs", en_number(amount), currency.en, together.en),
        what.zh + together.zh + zh_count(amount) + currency.zh,
        words(what.de, "kosten" if count > 1 else "kostet", together.de, de_number(amount), currency.de),
    )


@family(
    "shopping",
    ("colour", "thing"),
    opener=(NOTHING, EXCUSE_ME),
    count=(1, 2, 3),
    colour=COLOURS,
    thing=COLOURED,
)
def how_much(opener: Words, count: int, colour: Words, thing: Thing) -> Sentence:
    what = this(count, thing, colour=colour)
    return question(
        words(opener.en, "how much", "do" if count > 1 else "does", what.en, "cost"),
        f"{opener.zh}{what.zh}多少钱",
        words(opener.de, "wie viel", "kosten" if count > 1 else "kostet", what.de),
    )


@family(
    "shopping",
    ("colour", "thing"),
    where=lambda colour, thing, quality, degree: degree_fits(degree, quality),
    colour=COLOURS,
    thing=COLOURED,
    quality=(
        Quality("expensive", "贵", "teuer", unwelcome=True),
        Quality("cheap", "便宜", "billig"),
        Quality("pretty", "漂亮", "schön"),
        Quality("practical", "实用", "praktisch"),
        Quality("small", "小", "klein", unwelcome=True),
        Quality("big", "大", "groß", unwelcome=True),
    ),
    degree=DEGREES,
)
def goods_are(colour: Words, thing: Thing, quality: Quality, degree: Degree) -> Sentence:
    what = this(1, thing, colour=colour)
    return is_so(what.en, what.zh, what.de, ER, degree, quality, NOTHING)


def with_colour(colour: Words, thing: Thing) -> Words:
    """A red jacket, as an accusative object."""
    ein, ending = GERMAN_EIN["acc"][thing.gender], ADJECTIVE_AFTER_EIN["acc"][thing.gender]
    return Words(
        f"a {colour.en} {thing.en}",
        f"一{thing.classifier}{colour.zh}的{thing.zh}",
        f"ein{ein} {colour.de}{ending} {thing.de}",
    )


@dataclass(frozen=True, eq=False)
class Need:
    en: tuple[str, str, str, str]
    zh: str
    de: tuple[str, str, str, str]

    def __str__(self) -> str:
        return self.en[0]


@family(
    "shopping",
    ("colour", "thing"),
    where=lambda someone, need, colour, thing: wears(someone, thing),
    someone=GROWN_UPS,
    need=(
        Need(
            ("am looking for", "are looking for", "is looking for", "are looking for"),
            "在找",
            ("suche", "suchst", "sucht", "suchen"),
        ),
        Need(("need", "need", "needs", "need"), "需要", ("brauche", "brauchst", "braucht", "brauchen")),
        Need(("would like",) * 4, "想要", ("möchte", "möchtest", "möchte", "möchten")),
    ),
    colour=COLOURS,
    thing=COLOURED,
)
def needs(someone: Someone, need: Need, colour: Words, thing: Thing) -> Sentence:
    what = with_colour(colour, thing)
    return statement(
        f"{someone.en} {need.en[someone.person]} {what.en}",
        f"{someone.zh}{need.zh}{what.zh}",
        f"{someone.de} {need.de[someone.person]} {what.de}",
    )


@dataclass(frozen=True, eq=False)
class Giving:
    """Bringing a thing to a person; {who} and {what} stand in the Chinese."""

    en: str
    en_past: str
    zh: str
    zh_past: str
    de: str
    de_participle: str

    def __str__(self) -> str:
        return self.en


GIVINGS = (
    Giving("buy", "bought", "给{who}买{what}", "给{who}买了{what}", "kaufen", "gekauft"),
    Giving("send", "sent", "给{who}寄{what}", "给{who}寄了{what}", "schicken", "geschickt"),
    Giving("lend", "lent", "借给{who}{what}", "借给了{who}{what}", "leihen", "geliehen"),
    Giving("show", "showed", "给{who}看{what}", "给{who}看了{what}", "zeigen", "gezeigt"),
    Giving("bring", "brought", "给{who}带来{what}", "给{who}带来了{what}", "mitbringen", "mitgebracht"),
)
GIFTS = tuple(thing for thing in (*CLOTHES, *DEVICES, *BOOKS) if thing.en not in ("newspaper", "coat"))


@family(
    "shopping",
    ("other", "thing"),
    where=lambda someone, giving, other, thing, time: not same_people(someone, other),
    someone=(I, HE, SHE, WE, MOTHER, UNCLE, FRIENDS),
    giving=GIVINGS,
    other=(I, YOU, HE, SHE, WE, FATHER, YOUNGER_SISTER, GRANDMOTHER),
    thing=GIFTS,
    time=(YESTERDAY, TOMORROW),
)
def gives(someone: Someone, giving: Giving, other: Someone, thing: Thing, time: Words) -> Sentence:
    what = some(1, thing, "acc")
    if time is YESTERDAY:
        en_verb, zh_verbs, finite, end = giving.en_past, giving.zh_past, DE_HAVE[someone.person], giving.de_participle
    else:
        assert FUTURE.de_finite
        en_verb, zh_verbs = f"will {giving.en}", "会" + giving.zh
        finite, end = FUTURE.de_finite[someone.person], giving.de
    return statement(
        words(someone.en, en_verb, other.en_object, what.en, time.en),
        someone.zh + time.zh + zh_verbs.format(who=other.zh, what=what.zh),
        words(someone.de, finite, other.dat, time.de, what.de, end),
    )


@family(
    "shopping",
    ("someone", "thing"),
    opener=(NOTHING, EXCUSE_ME),
    someone=PRONOUNS,
    thing=(*GOODS, *FRUIT),
    place=(
        NOTHING,
        Words("here", "在这里的什么地方", "hier"),
        Words("in this city", "在这个城市的什么地方", "in dieser Stadt"),
        Words("near the train station", "在火车站附近的什么地方", "in der Nähe vom Bahnhof"),
    ),
    where=lambda opener, someone, thing, place: not (opener is EXCUSE_ME and someone is YOU),
)
def where_to_buy(opener: Words, someone: Someone, thing: Thing, place: Words) -> Sentence:
    """With fruit in the plural: where can I buy apples?"""
    assert CAN.de_finite
    one = some(1, thing, "acc")
    en, de = (thing.en_plural, thing.de_plural) if thing in FRUIT else (one.en, one.de)
    return question(
        words(opener.en, "where can", someone.en, "buy", en, place.en),
        f"{opener.zh}{someone.zh}{place.zh or '在哪里'}能买到{thing.zh}",
        words(opener.de, "wo", CAN.de_finite[someone.person], someone.de, place.de, de, "kaufen"),
    )


@family(
    "shopping",
    ("other", "thing"),
    where=lambda other, thing, colour, form: thing in COLOURED or colour is None,
    other=OBJECTS,
    thing=tuple(thing for thing in (*GOODS, *SMALL_THINGS) if thing not in FURNITURE),
    colour=(None, *COLOURS[:4]),
    form=("statement", "negation", "question"),
)
def belongs(other: Someone, thing: Thing, colour: Words | None, form: Form) -> Sentence:
    what = this(1, thing, colour=colour)
    if form == "question":
        other = in_question(other)
        return question(
            f"does {what.en} belong to {other.en_object}", f"{what.zh}是{other.zh}的吗", f"gehört {what.de} {other.dat}"
        )
    if form == "negation":
        return statement(
            f"{what.en} doesn't belong to {other.en_object}",
            f"{what.zh}不是{other.zh}的",
            f"{what.de} gehört {other.dat} nicht",
        )
    return statement(
        f"{what.en} belongs to {other.en_object}", f"{what.zh}是{other.zh}的", f"{what.de} gehört {other.dat}"
    )
