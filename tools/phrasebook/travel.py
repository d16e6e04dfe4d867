"""Travel: where things are, how to get there, how long it takes."""

from dataclasses import dataclass

from tools.phrasebook.activities import GO, Activity, Verb
from tools.phrasebook.clauses import (
    CAN,
    DE_BE_PAST,
    DE_HAVE,
    FORMS,
    FUTURE,
    PAST,
    Form,
    clause,
    en_be,
)
from tools.phrasebook.families import family
from tools.phrasebook.persons import (
    ER,
    GROWN_UPS,
    PEOPLE,
    WE,
    WIR,
    I,
    Someone,
    form_fits,
    in_question,
)
from tools.phrasebook.places import (
    CITIES,
    EUROPEAN_CITIES,
    IN_TOWN,
    LONG_DISTANCE,
    PLACES,
    Place,
    Vehicle,
)
from tools.phrasebook.things import BELONGINGS, CLOTHES, Thing, wears
from tools.phrasebook.wording import (
    EXCUSE_ME,
    GERMAN_EIN,
    GERMAN_THE,
    LAST_WEEK,
    NOTHING,
    PAST_TIMES,
    TOMORROW,
    Sentence,
    Words,
    a,
    de_number,
    en_number,
    question,
    statement,
    words,
    zh_count,
    zh_number,
)


def reachable(city: Words, vehicle: Vehicle) -> bool:
    return vehicle.zh == "坐飞机" or city.en not in ("New York", "Tokyo")


@family(
    "travel",
    ("someone", "city"),
    where=lambda someone, city, vehicle, time, form: reachable(city, vehicle) and form_fits(someone, form),
    someone=GROWN_UPS,
    city=CITIES,
    vehicle=LONG_DISTANCE,
    time=(LAST_WEEK, TOMORROW),
    form=FORMS,
)
def trip(someone: Someone, city: Words, vehicle: Vehicle, time: Words, form: Form) -> Sentence:
    verb = Verb(GO.en, vehicle.de_forms, with_sein=True)
    to_city = f"{vehicle.de} nach {city.de}"
    activity = Activity(verb, f"to {city.en} {vehicle.en}", f"{vehicle.zh}去{city.zh}", to_city, f"nicht {to_city}")
    en, zh, de = clause(someone, PAST if time in PAST_TIMES else FUTURE, activity, time, form)
    if time in PAST_TIMES and form in ("statement", "time first"):
        zh = zh.replace(f"去{city.zh}了", f"去了{city.zh}")
    return Sentence(en, zh, de)


@family(
    "travel",
    ("place", "way"),
    opener=(NOTHING, EXCUSE_ME),
    place=PLACES,
    way=("where", "nearest", "how", "is there", "how far", "do you know", "do you know nearest", "tell me"),
)
def finding_the_way(opener: Words, place: Place, way: str) -> Sentence:
    the, gender = place.the_de, place.gender
    nearest = f"{GERMAN_THE['nom'][gender]} nächste {place.de}"
    if way == "where":
        en, zh, de = f"where is the {place.en}", f"{place.zh}在哪里", f"wo ist {the}"
    elif way == "nearest":
        en, zh, de = f"where is the nearest {place.en}", f"最近的{place.zh}在哪里", f"wo ist {nearest}"
    elif way == "how":
        en, zh, de = f"how do I get to the {place.en}", f"去{place.zh}怎么走", f"wie komme ich {place.de_after('zu')}"
    elif way == "is there":
        one = "a" if place.en == "university" else a(place.en).split()[0]
        en, zh = f"is there {one} {place.en} near here", f"这附近有{place.zh}吗"
        de = f"gibt es hier in der Nähe ein{GERMAN_EIN['acc'][gender]} {place.de}"
    elif way == "how far":
        en, zh = f"how far is it to the {place.en}", f"这里离{place.zh}有多远"
        de = f"wie weit ist es bis {place.de_after('zu')}"
    elif way == "do you know":
        en, zh, de = f"do you know where the {place.en} is", f"你知道{place.zh}在哪里吗", f"weißt du, wo {the} ist"
    elif way == "do you know nearest":
        en, zh = f"do you know where the nearest {place.en} is", f"你知道最近的{place.zh}在哪里吗"
        de = f"weißt du, wo {nearest} ist"
    else:
        en, zh = f"can you tell me how I get to the {place.en}", f"你能告诉我去{place.zh}怎么走吗"
        de = f"kannst du mir sagen, wie ich {place.de_after('zu')} komme"
    return question(words(opener.en, en), opener.zh + zh, words(opener.de, de))


POSITIONS = (
    Words("next to", "旁边", "neben"),
    Words("behind", "后面", "hinter"),
    Words("in front of", "前面", "vor"),
    Words("opposite", "对面", "gegenüber"),
    Words("near", "附近", "in der Nähe von"),
    Words("to the left of", "左边", "links von"),
    Words("to the right of", "右边", "rechts von"),
)


@family(
    "travel",
    ("place", "landmark"),
    where=lambda place, position, landmark, form: place is not landmark,
    place=PLACES,
    position=POSITIONS,
    landmark=PLACES,
    form=("statement", "negation", "question"),
)
def location(place: Place, position: Words, landmark: Place, form: Form) -> Sentence:
    en, zh, de = f"{position.en} the {landmark.en}", f"在{landmark.zh}{position.zh}", landmark.de_after(position.de)
    if form == "question":
        return question(f"is the {place.en} {en}", f"{place.zh}{zh}吗", f"ist {place.the_de} {de}")
    if form == "negation":
        return statement(f"the {place.en} isn't {en}", f"{place.zh}不{zh}", f"{place.the_de} ist nicht {de}")
    return statement(f"the {place.en} is {en}", f"{place.zh}{zh}", f"{place.the_de} ist {de}")


TOWN_STOPS = tuple(place for place in PLACES if place.en not in ("café", "restaurant", "bakery", "pharmacy", "airport"))


@family(
    "travel",
    ("place", "landmark"),
    where=lambda place, landmark, vehicle, count: place is not landmark,
    place=TOWN_STOPS,
    landmark=TOWN_STOPS,
    vehicle=IN_TOWN,
    count=(5, 10, 20),
)
def minutes_between(place: Place, landmark: Place, vehicle: Vehicle, count: int) -> Sentence:
    return statement(
        f"it takes {en_number(count)} minutes {vehicle.en} from the {place.en} to the {landmark.en}",
        f"从{place.zh}到{landmark.zh}{vehicle.zh}要{zh_number(count)}分钟",
        f"{place.de_after('von')} {landmark.de_after('zu')} braucht man {vehicle.de} {de_number(count)} Minuten",
    )


@family(
    "travel",
    ("city", "count"),
    where=lambda city, other_city, vehicle, count: (
        city is not other_city and (count <= 3) == (vehicle.en == "by plane")
    ),
    city=EUROPEAN_CITIES,
    other_city=EUROPEAN_CITIES,
    vehicle=LONG_DISTANCE,
    count=(2, 3, 4, 5, 6, 7, 8, 9, 10, 12),
)
def hours_between(city: Words, other_city: Words, vehicle: Vehicle, count: int) -> Sentence:
    return statement(
        f"it takes {en_number(count)} hours {vehicle.en} from {city.en} to {other_city.en}",
        f"从{city.zh}到{other_city.zh}{vehicle.zh}要{zh_count(count)}个小时",
        f"von {city.de} nach {other_city.de} braucht man {vehicle.de} {de_number(count)} Stunden",
    )


@dataclass(frozen=True, eq=False)
class Ticket:
    en: str
    zh: str
    de: str
    vehicle: Vehicle

    def __str__(self) -> str:
        return self.en


@family(
    "travel",
    ("city", "other_city"),
    where=lambda count, ticket, city, other_city: (
        city is not other_city
        and (ticket.en == "plane ticket" or (city in EUROPEAN_CITIES) == (other_city in EUROPEAN_CITIES))
        and reachable(city, ticket.vehicle)
        and reachable(other_city, ticket.vehicle)
    ),
    count=(1, 2, 3, 4, 5),
    ticket=(
        Ticket("train ticket", "火车票", "Zugticket", LONG_DISTANCE[0]),
        Ticket("bus ticket", "大巴票", "Busticket", LONG_DISTANCE[2]),
        Ticket("plane ticket", "机票", "Flugticket", LONG_DISTANCE[1]),
    ),
    city=CITIES,
    other_city=CITIES,
)
def tickets(count: int, ticket: Ticket, city: Words, other_city: Words) -> Sentence:
    en = f"{en_number(count)} {ticket.en}{'s' if count > 1 else ''} from {city.en} to {other_city.en}"
    de = f"{'ein' if count == 1 else de_number(count)} {ticket.de}{'s' if count > 1 else ''}"
    return statement(
        f"{en}, please",
        f"请给我{zh_count(count)}张从{city.zh}到{other_city.zh}的{ticket.zh}",
        f"{de} von {city.de} nach {other_city.de}, bitte",
    )


NEVER, EVER = Words("never", "", "noch nie"), Words("ever", "", "schon einmal")


@family(
    "travel",
    ("someone", "city"),
    where=lambda someone, city, times: not (times is EVER and someone in (I, WE)),
    someone=PEOPLE,
    city=CITIES,
    times=(
        Words("once", "一次", "einmal"),
        Words("twice", "两次", "zweimal"),
        Words("three times", "三次", "dreimal"),
        Words("many times", "很多次", "oft"),
        NEVER,
        EVER,
    ),
)
def has_been(someone: Someone, city: Words, times: Words) -> Sentence:
    have = "has" if someone.person == ER else "have"
    war = DE_BE_PAST[someone.person]
    if times is EVER:
        someone = in_question(someone)
        return question(
            f"{have} {someone.en} ever been to {city.en}",
            f"{someone.zh}去过{city.zh}吗",
            f"{war} {someone.de} schon einmal in {city.de}",
        )
    if times is NEVER:
        return statement(
            f"{someone.en} {have} never been to {city.en}",
            f"{someone.zh}从来没去过{city.zh}",
            f"{someone.de} {war} noch nie in {city.de}",
        )
    return statement(
        f"{someone.en} {have} been to {city.en} {times.en}",
        f"{someone.zh}去过{city.zh}{times.zh}",
        f"{someone.de} {war} schon {times.de} in {city.de}",
    )


MISHAPS = ("lost", "found", "forgot", "looking", "cannot find", "needs")


@family(
    "travel",
    ("someone", "thing"),
    where=lambda someone, thing, mishap: wears(someone, thing) and (someone.person != WIR or thing not in CLOTHES[:8]),
    someone=PEOPLE,
    thing=BELONGINGS,
    mishap=MISHAPS,
)
def own_things(someone: Someone, thing: Thing, mishap: str) -> Sentence:
    who, person, third = someone, someone.person, someone.person == ER
    en = f"{who.own.en} {thing.en}"
    zh = f"{who.own.zh}{thing.zh}"
    de = f"{who.own.de}{GERMAN_EIN['acc'][thing.gender]} {thing.de}"
    if mishap == "lost":
        return statement(
            f"{who.en} lost {en} yesterday",
            f"{who.zh}昨天弄丢了{zh}",
            f"{who.de} {DE_HAVE[person]} gestern {de} verloren",
        )
    if mishap == "found":
        return statement(
            f"{who.en} found {en} yesterday",
            f"{who.zh}昨天找到了{zh}",
            f"{who.de} {DE_HAVE[person]} gestern {de} gefunden",
        )
    if mishap == "forgot":
        return statement(
            f"{who.en} forgot {en} yesterday",
            f"{who.zh}昨天忘了带{zh}",
            f"{who.de} {DE_HAVE[person]} gestern {de} vergessen",
        )
    if mishap == "looking":
        return statement(
            f"{who.en} {en_be(person, False, False)} looking for {en}",
            f"{who.zh}正在找{zh}",
            f"{who.de} {('suche', 'suchst', 'sucht', 'suchen')[person]} gerade {de}",
        )
    if mishap == "needs":
        return statement(
            f"{who.en} need{'s' if third else ''} {en} today",
            f"{who.zh}今天需要{zh}",
            f"{who.de} {('brauche', 'brauchst', 'braucht', 'brauchen')[person]} heute {de}",
        )
    assert CAN.de_finite
    return statement(
        f"{who.en} can't find {en}", f"{who.zh}找不到{zh}", f"{who.de} {CAN.de_finite[person]} {de} nicht finden"
    )
