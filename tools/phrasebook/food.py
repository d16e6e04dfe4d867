"""Food: ordering, liking, tasting."""

from dataclasses import dataclass

from tools.phrasebook.activities import DRINK, EAT, Activity, Verb
from tools.phrasebook.clauses import (
    FUTURE,
    IS_IT,
    NOT,
    NOT_VERY,
    PAST,
    REALLY,
    VERY,
    WOULD_LIKE,
    Degree,
    Form,
    Mood,
    de_verb,
)
from tools.phrasebook.families import family
from tools.phrasebook.persons import CHILDREN, ER, OBJECTS, PEOPLE, YOU, Someone
from tools.phrasebook.places import HERE
from tools.phrasebook.things import (
    ANIMALS,
    BOOKS,
    CLOTHES,
    FOODS,
    FRUIT,
    PORTIONS,
    SMALL_THINGS,
    Food,
    Portion,
    Thing,
    some,
    some_of,
)
from tools.phrasebook.wording import (
    GERMAN_THE,
    NOTHING,
    TOMORROW,
    YESTERDAY,
    Sentence,
    Words,
    question,
    statement,
    words,
)


@dataclass(frozen=True, eq=False)
class Meal:
    name: str
    time: Words
    mood: Mood

    def __str__(self) -> str:
        return self.name


ORDER_VERB = Verb("order orders ordered ordering", "bestelle bestellst bestellt bestellen bestellt")


@family(
    "food",
    ("someone", "portion"),
    where=lambda someone, count, portion, meal: (
        not (someone is CHILDREN and portion.en_of in ("beer", "wine", "coffee"))
    ),
    someone=PEOPLE,
    count=(1, 2, 3, 4),
    portion=PORTIONS,
    meal=(
        Meal("would like", NOTHING, WOULD_LIKE),
        Meal("ordered", YESTERDAY, PAST),
        Meal("had", YESTERDAY, PAST),
        Meal("will order", TOMORROW, FUTURE),
    ),
)
def portions(someone: Someone, count: int, portion: Portion, meal: Meal) -> Sentence:
    what = some_of(count, portion)
    if meal.name == "would like":
        assert WOULD_LIKE.de_finite
        return statement(
            f"{someone.en} would like {what.en}",
            f"{someone.zh}想要{what.zh}",
            f"{someone.de} {WOULD_LIKE.de_finite[someone.person]} {what.de}",
        )
    if meal.name == "had":
        verb, zh_verb = (EAT, "吃") if portion.eaten else (DRINK, "喝")
    else:
        verb, zh_verb = ORDER_VERB, "点"
    finite, end = de_verb(someone.person, meal.mood, Activity(verb, "", "", "", ""))
    zh_verb = f"{zh_verb}了" if meal.mood is PAST else f"会{zh_verb}"
    en_verb = verb.en_forms[2] if meal.mood is PAST else f"will {verb.en_forms[0]}"
    return statement(
        words(someone.en, en_verb, what.en, meal.time.en),
        f"{someone.zh}{meal.time.zh}{zh_verb}{what.zh}",
        words(someone.de, finite, meal.time.de, what.de, end),
    )


@family(
    "food",
    ("other", "portion"),
    where=lambda other, count, portion: not (other is CHILDREN and portion.en_of in ("beer", "wine", "coffee")),
    other=tuple(someone for someone in OBJECTS if someone is not YOU),
    count=(1, 2, 3, 4),
    portion=PORTIONS,
)
def please_bring(other: Someone, count: int, portion: Portion) -> Sentence:
    what = some_of(count, portion)
    return statement(
        f"please bring {other.en_object} {what.en}", f"请给{other.zh}拿{what.zh}", f"bitte bring {other.dat} {what.de}"
    )


@family(
    "food",
    ("food", "other_food"),
    where=lambda someone, food, other_food: (
        food is not other_food and not (someone is CHILDREN and {food.en, other_food.en} & {"beer", "wine", "coffee"})
    ),
    someone=PEOPLE,
    food=FOODS,
    other_food=FOODS,
)
def likes_but_not(someone: Someone, food: Food, other_food: Food) -> Sentence:
    like = "likes" if someone.person == ER else "like"
    return statement(
        f"{someone.en} {like} {food.en} but not {other_food.en}",
        f"{someone.zh}喜欢{food.zh_verb}{food.zh}，但是不喜欢{other_food.zh_verb}{other_food.zh}",
        f"{someone.de} {('mag', 'magst', 'mag', 'mögen')[someone.person]} {food.de}, aber {other_food.kein} {other_food.de}",
    )


@family(
    "food",
    ("food", "other_food"),
    where=lambda someone, food, other_food: (
        food is not other_food
        and food.zh_verb == other_food.zh_verb
        and "soup" not in (food.en, other_food.en)
        and someone is not CHILDREN
    ),
    someone=PEOPLE,
    food=FOODS,
    other_food=FOODS,
)
def prefers(someone: Someone, food: Food, other_food: Food) -> Sentence:
    verb = EAT if food.zh_verb == "吃" else DRINK
    return statement(
        f"{someone.en} {'prefers' if someone.person == ER else 'prefer'} {food.en} to {other_food.en}",
        f"比起{other_food.zh}，{someone.zh}更喜欢{food.zh_verb}{food.zh}",
        f"{someone.de} {verb.de_forms[someone.person]} lieber {food.de} als {other_food.de}",
    )


@family(
    "food",
    ("food", "place"),
    food=FOODS,
    place=(
        HERE,
        Words("in this restaurant", "这家餐厅", "in diesem Restaurant"),
        Words("in our hotel", "我们酒店", "in unserem Hotel"),
        Words("at the market", "市场上", "auf dem Markt"),
        Words("in Berlin", "柏林", "in Berlin"),
        Words("in Beijing", "北京", "in Peking"),
        Words("in Vienna", "维也纳", "in Wien"),
        Words("at my grandmother's", "我奶奶家", "bei meiner Großmutter"),
        Words("at my aunt's", "我阿姨家", "bei meiner Tante"),
    ),
    degree=(VERY, REALLY, NOT, NOT_VERY, IS_IT),
)
def tastes(food: Food, place: Words, degree: Degree) -> Sentence:
    plural = food.en.endswith("s")
    article = "die" if food.gender == "pl" else GERMAN_THE["nom"][food.gender]
    schmeckt = "schmecken" if food.gender == "pl" else "schmeckt"
    en, de = words("the", food.en, place.en), words(article, food.de, place.de)
    zh = f"{place.zh}的{food.zh}{degree.zh}好{food.zh_verb}{degree.zh_after}"
    if degree.asks:
        return question(f"{'do' if plural else 'does'} {en} taste good", zh, f"{schmeckt} {de} gut")
    if degree.negated:
        verb = "don't taste" if plural else "doesn't taste"
    else:
        verb = "taste" if plural else "tastes"
    return statement(words(en, verb, degree.en, "good"), zh, words(de, schmeckt, degree.de, "gut"))


LOCATIONS = (
    Words("on the table", "桌子上", "auf dem Tisch"),
    Words("on the chair", "椅子上", "auf dem Stuhl"),
    Words("under the bed", "床底下", "unter dem Bett"),
    Words("in the kitchen", "厨房里", "in der Küche"),
    Words("in the living room", "客厅里", "im Wohnzimmer"),
    Words("in the box", "盒子里", "in der Kiste"),
    Words("next to the window", "窗户旁边", "neben dem Fenster"),
    Words("behind the door", "门后面", "hinter der Tür"),
    Words("in the garden", "花园里", "im Garten"),
    Words("in front of the house", "房子前面", "vor dem Haus"),
)
FINDABLE = (
    *FRUIT,
    *SMALL_THINGS,
    *BOOKS,
    *(animal for animal in ANIMALS if animal.en != "horse"),
    CLOTHES[8],
    CLOTHES[9],
)


@family(
    "food",
    ("thing", "location"),
    where=lambda thing, location, count, form: not (form == "negation" and count != 2),
    thing=FINDABLE,
    location=LOCATIONS,
    count=(1, 2, 3, 4, 5, 6),
    form=("statement", "negation", "question"),
)
def there_is(thing: Thing, location: Words, count: int, form: Form) -> Sentence:
    """Where things are; the negation has no number: there are no apples."""
    what = some(count, thing, "nom")
    be, de_be = ("is", "ist") if count == 1 else ("are", "sind")
    if form == "negation":
        return statement(
            f"there are no {thing.en_plural} {location.en}",
            f"{location.zh}没有{thing.zh}",
            f"{location.de} sind keine {thing.de_plural}",
        )
    if form == "question":
        return question(
            f"{be} there {what.en} {location.en}", f"{location.zh}有{what.zh}吗", f"{de_be} {what.de} {location.de}"
        )
    return statement(
        f"there {be} {what.en} {location.en}", f"{location.zh}有{what.zh}", f"{location.de} {de_be} {what.de}"
    )
