"""A hand-written grammar of everyday sentences in English, Chinese and German: the lexicon and the sentence families.

When a grammar of three languages in step, and not a list of sentences: a small model can learn it to near perfection on
a laptop, and whatever it gets wrong is a real mistake of grammar, not a matter of taste. For that, a sentence in any
one of the languages must determine the other two. Real language is not so kind, so the grammar keeps to the part of
each language where it is:

- tense: Chinese verbs have none, so every past or future sentence names its time (昨天, 明天);
- "you" is one familiar person (你, du), never several and never the formal Sie;
- German "sie" is she or they, told apart by the verb; as an object nothing tells them apart, so "them" is no object;
- "ihr" (her, their) is always the subject's own;
- Chinese has an older and a younger brother, so English and German say which.

A filler (a person, a thing, an activity, a time) knows how it looks in each language; a family is a table of slots,
each with its list of fillers, and one function that writes the three sentences. Slots are typed: nobody eats a chair.

The price: it is a small, tidy world. A model trained on it does not speak these languages.
This module knows nothing of splits, sampling or directions: see `phrases`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from glassformer.data.phrases_lexicon import (
    A_BIT,
    ACTIVITIES,
    ADJECTIVE_AFTER_EIN,
    ADJECTIVE_AFTER_THE,
    ANIMALS,
    AUNT,
    BELONGINGS,
    BOOKS,
    BUY,
    CAN,
    CHILDREN,
    CITIES,
    CLOTHES,
    COLOURED,
    COLOURS,
    DAYS,
    DE_BE,
    DE_BE_PAST,
    DE_HAVE,
    DE_HAVE_PAST,
    DE_WOULD,
    DE_WOULD_HAVE,
    DEGREES,
    DEVICES,
    DRINK,
    EAT,
    ER,
    EUROPEAN_CITIES,
    EVERY_DAY,
    EVERY_EVENING,
    EVERY_WEEKEND,
    FATHER,
    FOODS,
    FORMS,
    FREQUENCIES,
    FRIENDS,
    FRUIT,
    FURNITURE,
    FUTURE,
    FUTURE_TIMES,
    GERMAN_DIES,
    GERMAN_EIN,
    GERMAN_THE,
    GO,
    GOODS,
    GRANDFATHER,
    GRANDMOTHER,
    HABITUAL_TIMES,
    HAVE_TO,
    HE,
    HE_WORD,
    HIS,
    HOURS,
    IN_TOWN,
    IS_IT,
    KIN,
    LAST_SUNDAY,
    LAST_WEEK,
    LAST_WEEKEND,
    LEARN,
    LONG_DISTANCE,
    MAKE,
    MINUTES,
    MONTHS,
    MOTHER,
    NEAR_TIMES,
    NEIGHBOUR,
    NEXT_SUNDAY,
    NEXT_WEEK,
    NEXT_WEEKEND,
    NOT,
    NOT_VERY,
    NOTHING,
    OBJECTS,
    OLDER_BROTHER,
    OLDER_SISTER,
    PAINT,
    PARENTS,
    PAST,
    PAST_TIMES,
    PEOPLE,
    PLACES,
    PORTIONS,
    PRESENT,
    PRONOUNS,
    READ,
    REALLY,
    RELATIVES,
    REPAIR,
    ROUND_MINUTES,
    SHE,
    SHOULD,
    SING,
    SMALL_THINGS,
    TEACHER,
    THEY,
    TODAY,
    TOMORROW,
    TOMORROW_EVENING,
    TOO,
    UNCLE,
    VEHICLES,
    VERY,
    WE,
    WEEKDAYS,
    WIR,
    WORK,
    WOULD_LIKE,
    WRITE,
    YESTERDAY,
    YOU,
    YOUNGER_BROTHER,
    YOUNGER_SISTER,
    Activity,
    Case,
    Degree,
    Food,
    Form,
    I,
    Minute,
    Month,
    Mood,
    Place,
    Portion,
    Quality,
    Sentence,
    Someone,
    Thing,
    Vehicle,
    Verb,
    Words,
    a,
    activity_fits,
    clause,
    clock,
    de_number,
    de_ordinal_stem,
    de_subordinate,
    de_verb,
    degree_fits,
    en_be,
    en_clause,
    en_number,
    en_ordinal,
    form_fits,
    going_to,
    in_question,
    is_so,
    question,
    same_people,
    some,
    some_of,
    statement,
    wears,
    words,
    zh_count,
    zh_number,
    zh_verb,
)


@dataclass(frozen=True, eq=False)
class Family:
    """Sentences of one pattern: every combination of fillers that makes sense, written in the three languages."""

    name: str
    topic: str
    held: tuple[str, str]  # the two slots whose combinations of fillers are kept apart for validation and test
    slots: dict[str, Sequence[object]]
    makes_sense: Callable[..., bool]
    write: Callable[..., Sentence]


def family(
    topic: str, held: tuple[str, str], /, *, where: Callable[..., bool] | None = None, **slots: Sequence[object]
) -> Callable[[Callable[..., Sentence]], Family]:
    """Make a family of a function that writes one sentence; its parameters are the slots, in the same order."""

    def make(write: Callable[..., Sentence]) -> Family:
        return Family(write.__name__, topic, held, slots, where or (lambda *fillers: True), write)

    return make


# ---------------------------------------------------------------------------------------------------------------------
# Everyday life: who does what when


@family(
    "everyday",
    ("someone", "activity"),
    where=lambda someone, activity, time, form: activity_fits(someone, activity) and form_fits(someone, form),
    someone=PEOPLE,
    activity=ACTIVITIES,
    time=(EVERY_DAY, EVERY_EVENING, EVERY_WEEKEND),
    form=("statement", "time first", "question"),
)
def habit(someone: Someone, activity: Activity, time: Words, form: Form) -> Sentence:
    return clause(someone, PRESENT, activity, time, form)


@family(
    "everyday",
    ("someone", "activity"),
    where=lambda someone, activity, time, form: activity_fits(someone, activity) and form_fits(someone, form),
    someone=PEOPLE,
    activity=ACTIVITIES,
    time=(YESTERDAY, LAST_SUNDAY, LAST_WEEK),
    form=FORMS,
)
def past(someone: Someone, activity: Activity, time: Words, form: Form) -> Sentence:
    return clause(someone, PAST, activity, time, form)


@family(
    "everyday",
    ("someone", "activity"),
    where=lambda someone, activity, time, form: activity_fits(someone, activity) and form_fits(someone, form),
    someone=PEOPLE,
    activity=ACTIVITIES,
    time=(TOMORROW, NEXT_SUNDAY, NEXT_WEEK),
    form=FORMS,
)
def future(someone: Someone, activity: Activity, time: Words, form: Form) -> Sentence:
    return clause(someone, FUTURE, activity, time, form)


@family(
    "everyday",
    ("someone", "activity"),
    where=lambda someone, activity, mood, form: activity_fits(someone, activity) and form_fits(someone, form),
    someone=PEOPLE,
    activity=ACTIVITIES,
    mood=(HAVE_TO, CAN, SHOULD),
    form=("statement", "negation", "question"),
)
def modal_today(someone: Someone, activity: Activity, mood: Mood, form: Form) -> Sentence:
    return clause(someone, mood, activity, TODAY, form)


@family(
    "everyday",
    ("someone", "activity"),
    where=lambda someone, activity, frequency: activity_fits(someone, activity),
    someone=PEOPLE,
    activity=ACTIVITIES,
    frequency=FREQUENCIES,
)
def how_often(someone: Someone, activity: Activity, frequency: Words) -> Sentence:
    base, he_form, _, _ = activity.verb.en_forms
    finite, end = de_verb(someone.person, PRESENT, activity)
    return statement(
        words(someone.en, frequency.en, he_form if someone.person == ER else base, activity.en_rest),
        someone.zh + frequency.zh + activity.zh,
        words(someone.de, finite, frequency.de, activity.de, end),
    )


@family(
    "everyday",
    ("someone", "activity"),
    where=lambda someone, activity, form: (
        activity.ongoing and activity_fits(someone, activity) and form_fits(someone, form)
    ),
    someone=PEOPLE,
    activity=ACTIVITIES,
    form=("statement", "question"),
)
def right_now(someone: Someone, activity: Activity, form: Form) -> Sentence:
    if form == "question":
        someone = in_question(someone)
    be = en_be(someone.person, past=False, negated=False)
    doing = words(activity.verb.en_forms[3], activity.en_rest)
    finite, end = de_verb(someone.person, PRESENT, activity)
    zh = someone.zh + "正在" + activity.zh
    if form == "question":
        return question(words(be, someone.en, doing), zh + "吗", words(finite, someone.de, "gerade", activity.de, end))
    return statement(words(someone.en, be, doing), zh, words(someone.de, finite, "gerade", activity.de, end))


# ---------------------------------------------------------------------------------------------------------------------
# Weather

HERE = Words("here", "这里", "hier")


def in_city(city: Words) -> Words:
    return city if city is HERE else Words(f"in {city.en}", city.zh, f"in {city.de}")


@family(
    "weather",
    ("city", "degree"),
    where=lambda city, quality, degree, time: degree_fits(degree, quality) and degree not in (TOO, A_BIT),
    city=(NOTHING, HERE, *CITIES),
    quality=(Quality("nice", "好", "schön"), Quality("bad", "糟糕", "schlecht", unwelcome=True)),
    degree=DEGREES,
    time=(TODAY, YESTERDAY),
)
def weather(city: Words, quality: Quality, degree: Degree, time: Words) -> Sentence:
    place = city if city is NOTHING else in_city(city)
    zh = time.zh + (f"{city.zh}的天气" if city.zh else "天气")
    return is_so(words("the weather", place.en), zh, words("das Wetter", place.de), ER, degree, quality, time)


@family(
    "weather",
    ("city", "quality"),
    where=lambda city, quality, degree, time: degree_fits(degree, quality),
    city=(HERE, *CITIES),
    quality=(
        Quality("cold", "冷", "kalt", unwelcome=True),
        Quality("hot", "热", "heiß", unwelcome=True),
        Quality("warm", "暖和", "warm"),
        Quality("cool", "凉快", "kühl"),
        Quality("dry", "干燥", "trocken", unwelcome=True),
        Quality("humid", "潮湿", "feucht", unwelcome=True),
    ),
    degree=DEGREES,
    time=(TODAY, YESTERDAY),
)
def cold_or_warm(city: Words, quality: Quality, degree: Degree, time: Words) -> Sentence:
    place = in_city(city)
    past = time is YESTERDAY
    be = en_be(ER, past, degree.negated)
    de_be = (DE_BE_PAST if past else DE_BE)[ER]
    zh = time.zh + city.zh + degree.zh + quality.zh + degree.zh_after
    if degree.asks:
        return question(
            words(be, "it", quality.en, place.en, time.en), zh, words(de_be, "es", time.de, place.de, quality.de)
        )
    return statement(
        words("it", be, degree.en, quality.en, place.en, time.en),
        zh,
        words(place.de, de_be, "es", time.de, degree.de, quality.de),
    )


@family(
    "weather",
    ("city", "other_city"),
    where=lambda city, other_city, quality, time: city is not other_city,
    city=CITIES,
    other_city=(HERE, *CITIES),
    quality=(
        Words("colder", "冷", "kälter"),
        Words("hotter", "热", "heißer"),
        Words("warmer", "暖和", "wärmer"),
        Words("cooler", "凉快", "kühler"),
    ),
    time=(TODAY, YESTERDAY),
)
def colder_than(city: Words, other_city: Words, quality: Words, time: Words) -> Sentence:
    be, de_be = ("was", "war") if time is YESTERDAY else ("is", "ist")
    other = in_city(other_city)
    return statement(
        f"it {be} {quality.en} in {city.en} than {other.en} {time.en}",
        f"{time.zh}{city.zh}比{other.zh}{quality.zh}",
        f"in {city.de} {de_be} es {time.de} {quality.de} als {other.de}",
    )


@family(
    "weather",
    ("city", "degrees"),
    city=(HERE, *CITIES),
    degrees=(-20, -15, -12, -10, -8, -5, -3, *range(3, 20), 20, 21, 22, 23, 24, 25, 26, 28, 30, 32, 33, 35, 37, 38, 40),
    time=(TODAY, YESTERDAY),
)
def temperature(city: Words, degrees: int, time: Words) -> Sentence:
    be, de_be = ("was", "waren") if time is YESTERDAY else ("is", "sind")
    place = in_city(city)
    sign = Words("minus", "零下", "minus") if degrees < 0 else NOTHING
    number = abs(degrees)
    return statement(
        words("it", be, sign.en, en_number(number), "degrees", place.en, time.en),
        f"{time.zh}{city.zh}{sign.zh}{zh_number(number)}度",
        words(place.de, de_be, "es", time.de, sign.de, de_number(number), "Grad"),
    )


@dataclass(frozen=True, eq=False)
class Precipitation:
    en: str
    en_past: str
    zh: str
    de: str
    de_participle: str

    def __str__(self) -> str:
        return self.en


@family(
    "weather",
    ("city", "weather"),
    city=(HERE, *CITIES),
    weather=(
        Precipitation("rain", "rained", "下雨", "regnen", "geregnet"),
        Precipitation("snow", "snowed", "下雪", "schneien", "geschneit"),
        Precipitation("rain heavily", "rained heavily", "下大雨", "stark regnen", "stark geregnet"),
        Precipitation("snow heavily", "snowed heavily", "下大雪", "stark schneien", "stark geschneit"),
    ),
    time=(*PAST_TIMES, *FUTURE_TIMES),
    form=FORMS,
)
def rain_or_snow(city: Words, weather: Precipitation, time: Words, form: Form) -> Sentence:
    place = in_city(city)
    if time in PAST_TIMES:
        mood, finite, end = PAST, "hat", weather.de_participle
    else:
        mood, finite, end = FUTURE, "wird", weather.de
    zh = mood.zh + weather.zh + ("了" if mood is PAST else "")
    if form == "question":
        return question(
            words(mood.en_aux, "it", weather.en, place.en, time.en),
            f"{time.zh}{city.zh}{zh}吗",
            words(finite, "es", time.de, place.de, end),
        )
    if form == "negation":
        return statement(
            words("it", mood.en_not, weather.en, place.en, time.en),
            time.zh + city.zh + mood.zh_not + weather.zh,
            words("es", finite, time.de, place.de, "nicht", end),
        )
    en = words("it", weather.en_past if mood is PAST else f"will {weather.en}", place.en)
    if form == "time first":
        return statement(words(time.en, en), time.zh + city.zh + zh, words(time.de, finite, "es", place.de, end))
    return statement(words(en, time.en), city.zh + time.zh + zh, words("es", finite, time.de, place.de, end))


FINE_WEATHER_PLANS = tuple(
    activity
    for activity in ACTIVITIES
    if activity.zh
    in ("去公园", "去动物园", "去市场", "去游泳", "去散步", "踢足球", "跑步", "骑自行车", "拍照片", "洗车")
)
INDOOR_PLANS = tuple(
    activity
    for activity in ACTIVITIES
    if activity.zh
    in ("去图书馆", "去博物馆", "去电影院", "看电视", "看电影", "看书", "烤蛋糕", "打扫厨房", "收拾客厅", "画画")
)


@dataclass(frozen=True, eq=False)
class Condition:
    """What the weather may do; {} is the time."""

    en: str
    zh: str
    de: str
    fine: bool

    def __str__(self) -> str:
        return self.en


@family(
    "weather",
    ("someone", "activity"),
    where=lambda someone, activity, condition, time: activity_fits(someone, activity),
    someone=PEOPLE,
    activity=(*FINE_WEATHER_PLANS, *INDOOR_PLANS),
    condition=(
        Condition("it rains {}", "{}下雨", "es {} regnet", fine=False),
        Condition("it snows {}", "{}下雪", "es {} schneit", fine=False),
        Condition("the weather is bad {}", "{}天气不好", "das Wetter {} schlecht ist", fine=False),
        Condition("the weather is nice {}", "{}天气好", "das Wetter {} schön ist", fine=True),
        Condition("it is warm {}", "{}天气暖和", "es {} warm ist", fine=True),
    ),
    time=(TOMORROW, NEXT_WEEKEND),
)
def if_it_rains(someone: Someone, activity: Activity, condition: Condition, time: Words) -> Sentence:
    """In bad weather one stays in and does not go out; in fine weather the other way round."""
    does = (activity in FINE_WEATHER_PLANS) == condition.fine
    finite, end = de_verb(someone.person, PRESENT, activity)
    return statement(
        f"if {condition.en.format(time.en)}, {en_clause(someone, FUTURE, activity, 'statement' if does else 'negation')}",
        f"如果{condition.zh.format(time.zh)}，{someone.zh}就{'' if does else '不'}{activity.zh}",
        words(
            f"wenn {condition.de.format(time.de)},", finite, someone.de, activity.de if does else activity.de_not, end
        ),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Time


@family(
    "time",
    ("hour", "minute"),
    hour=HOURS,
    minute=MINUTES,
    already=("", "already", "only", "question"),
)
def what_time(hour: int, minute: Minute, already: str) -> Sentence:
    now = clock(hour, minute)
    if already == "already":
        return statement(f"it is already {now.en}", f"已经{now.zh}了", f"es ist schon {now.de}")
    if already == "only":
        return statement(f"it is only {now.en}", f"现在才{now.zh}", f"es ist erst {now.de}")
    if already == "question":
        return question(f"is it {now.en} now", f"现在是{now.zh}吗", f"ist es jetzt {now.de}")
    return statement(f"it is {now.en} now", f"现在{now.zh}", f"es ist jetzt {now.de}")


@dataclass(frozen=True, eq=False)
class Event:
    """Something with a time: "the train leaves", 火车出发, "der Zug fährt ab"."""

    en: str
    en_verb: str
    zh: str
    zh_verb: str
    de: str
    de_verb: str
    de_prefix: str = ""

    def __str__(self) -> str:
        return f"{self.en} {self.en_verb}"


EVENTS = (
    Event("the train", "leave", "火车", "出发", "der Zug", "fährt", "ab"),
    Event("the train", "arrive", "火车", "到", "der Zug", "kommt", "an"),
    Event("the bus", "leave", "大巴", "出发", "der Bus", "fährt", "ab"),
    Event("the bus", "arrive", "大巴", "到", "der Bus", "kommt", "an"),
    Event("the plane", "take off", "飞机", "起飞", "das Flugzeug", "fliegt", "ab"),
    Event("the plane", "land", "飞机", "降落", "das Flugzeug", "landet"),
    Event("the film", "start", "电影", "开始", "der Film", "fängt", "an"),
    Event("the film", "end", "电影", "结束", "der Film", "endet"),
    Event("the meeting", "start", "会议", "开始", "die Besprechung", "fängt", "an"),
    Event("the meeting", "end", "会议", "结束", "die Besprechung", "endet"),
    Event("the concert", "start", "音乐会", "开始", "das Konzert", "fängt", "an"),
    Event("the concert", "end", "音乐会", "结束", "das Konzert", "endet"),
    Event("the party", "start", "聚会", "开始", "die Party", "fängt", "an"),
    Event("the match", "start", "比赛", "开始", "das Spiel", "fängt", "an"),
    Event("the match", "end", "比赛", "结束", "das Spiel", "endet"),
    Event("the bank", "open", "银行", "开门", "die Bank", "macht", "auf"),
    Event("the bank", "close", "银行", "关门", "die Bank", "macht", "zu"),
    Event("the library", "open", "图书馆", "开门", "die Bibliothek", "macht", "auf"),
    Event("the library", "close", "图书馆", "关门", "die Bibliothek", "macht", "zu"),
    Event("the museum", "open", "博物馆", "开门", "das Museum", "macht", "auf"),
    Event("the museum", "close", "博物馆", "关门", "das Museum", "macht", "zu"),
    Event("the supermarket", "open", "超市", "开门", "der Supermarkt", "macht", "auf"),
    Event("the supermarket", "close", "超市", "关门", "der Supermarkt", "macht", "zu"),
)


def en_third(verb: str) -> str:
    head, _, tail = verb.partition(" ")
    return words(head + "s", tail)


@family(
    "time",
    ("event", "hour"),
    event=EVENTS,
    hour=HOURS,
    minute=MINUTES,
    day=(NOTHING, TOMORROW),
    form=("statement", "question"),
)
def timetable(event: Event, hour: int, minute: Minute, day: Words, form: Form) -> Sentence:
    at = clock(hour, minute)
    zh = event.zh + day.zh + at.zh + event.zh_verb
    if form == "question":
        return question(
            words("does", event.en, event.en_verb, "at", at.en, day.en),
            zh + "吗",
            words(event.de_verb, event.de, day.de, "um", at.de, event.de_prefix),
        )
    return statement(
        words(event.en, en_third(event.en_verb), "at", at.en, day.en),
        zh,
        words(event.de, event.de_verb, day.de, "um", at.de, event.de_prefix),
    )


@dataclass(frozen=True, eq=False)
class Routine:
    """What one does at about the same time every day, and the hours at which one does."""

    activity: Activity
    time: Words
    hours: tuple[int, ...]

    def __str__(self) -> str:
        return str(self.activity)


EVERY_MORNING = Words("every morning", "每天早上", "jeden Morgen")
GET_UP = Verb("get gets got getting", "stehe stehst steht stehen aufgestanden", "auf", with_sein=True)
BREAKFAST = Verb("have has had having", "frühstücke frühstückst frühstückt frühstücken gefrühstückt")
HAVE_DINNER = Verb(BREAKFAST.en, EAT.de)
COME = Verb("come comes came coming", "komme kommst kommt kommen gekommen", with_sein=True)
LEAVE_HOUSE = Verb("leave leaves left leaving", "gehe gehst geht gehen gegangen", with_sein=True)
ROUTINES = (
    Routine(Activity(GET_UP, "up", "起床", "", "nicht"), EVERY_MORNING, (5, 6, 7, 8)),
    Routine(Activity(BREAKFAST, "breakfast", "吃早饭", "", "nicht"), EVERY_MORNING, (6, 7, 8, 9)),
    Routine(
        Activity(LEAVE_HOUSE, "the house", "出门", "aus dem Haus", "nicht aus dem Haus"), EVERY_MORNING, (6, 7, 8, 9)
    ),
    Routine(Activity(COME, "home", "回家", "nach Hause", "nicht nach Hause"), EVERY_EVENING, (5, 6, 7, 8)),
    Routine(Activity(HAVE_DINNER, "dinner", "吃晚饭", "zu Abend", "nicht zu Abend"), EVERY_EVENING, (6, 7, 8, 9)),
    Routine(Activity(GO, "to bed", "睡觉", "ins Bett", "nicht ins Bett"), EVERY_EVENING, (8, 9, 10, 11)),
)


@family(
    "time",
    ("someone", "routine"),
    where=lambda someone, routine, hour, minute, form: hour in routine.hours and form_fits(someone, form),
    someone=PEOPLE,
    routine=ROUTINES,
    hour=(5, 6, 7, 8, 9, 10, 11),
    minute=ROUND_MINUTES,
    form=("statement", "time first", "question"),
)
def daily_routine(someone: Someone, routine: Routine, hour: int, minute: Minute, form: Form) -> Sentence:
    at = clock(hour, minute)
    if form == "question":
        someone = in_question(someone)
    every, activity = routine.time, routine.activity
    finite, end = de_verb(someone.person, PRESENT, activity)
    en = words(en_clause(someone, PRESENT, activity, form), "at", at.en)
    de_rest = words("um", at.de, activity.de, end)
    if form == "question":
        return question(
            words(en, every.en),
            f"{someone.zh}{every.zh}{at.zh}{activity.zh}吗",
            words(finite, someone.de, every.de, de_rest),
        )
    if form == "time first":
        return statement(
            words(every.en, en),
            f"{every.zh}{someone.zh}{at.zh}{activity.zh}",
            words(every.de, finite, someone.de, de_rest),
        )
    return statement(
        words(en, every.en),
        f"{someone.zh}{every.zh}{at.zh}{activity.zh}",
        words(someone.de, finite, every.de, de_rest),
    )


def day_in_month(*fillers: object) -> bool:
    month = next(filler for filler in fillers if isinstance(filler, Month))
    day = next(filler for filler in fillers if isinstance(filler, int))
    return day <= month.days


@family(
    "time",
    ("day", "month"),
    where=day_in_month,
    weekday=WEEKDAYS,
    day=DAYS,
    month=MONTHS,
    which=(TODAY, YESTERDAY, TOMORROW),
)
def what_day(weekday: Words, day: int, month: Month, which: Words) -> Sentence:
    be, de_be = ("was", "war") if which is YESTERDAY else ("is", "ist")
    return statement(
        f"{which.en} {be} {weekday.en}, the {en_ordinal(day)} of {month.en}",
        f"{which.zh}是{zh_number(month.number)}月{zh_number(day)}号，{weekday.zh}",
        f"{which.de} {de_be} {weekday.de}, der {de_ordinal_stem(day)}e {month.de}",
    )


ONE_PERSON = tuple(someone for someone in PEOPLE if someone.person != WIR)


@family("time", ("day", "month"), where=day_in_month, someone=ONE_PERSON, day=DAYS, month=MONTHS)
def birthday(someone: Someone, day: int, month: Month) -> Sentence:
    whose = someone.own.en if someone in PRONOUNS else f"{someone.en}'s"
    return statement(
        f"{whose} birthday is on the {en_ordinal(day)} of {month.en}",
        f"{someone.zh}的生日是{zh_number(month.number)}月{zh_number(day)}号",
        f"{someone.de} {DE_HAVE[someone.person]} am {de_ordinal_stem(day)}en {month.de} Geburtstag",
    )


@dataclass(frozen=True, eq=False)
class Dwelling:
    en: str
    zh: str
    de: tuple[str, str, str, str]

    def __str__(self) -> str:
        return self.en


@family(
    "time",
    ("someone", "city"),
    someone=tuple(someone for someone in PEOPLE if someone is not CHILDREN),
    city=CITIES,
    dwelling=(
        Dwelling("lived", "住", ("wohne", "wohnst", "wohnt", "wohnen")),
        Dwelling("worked", "工作", ("arbeite", "arbeitest", "arbeitet", "arbeiten")),
    ),
    count=(2, 3, 4, 5, 6, 8, 10),
    unit=(Words("years", "年", "Jahren"), Words("months", "个月", "Monaten")),
)
def since(someone: Someone, city: Words, dwelling: Dwelling, count: int, unit: Words) -> Sentence:
    have = "has" if someone.person == ER else "have"
    return statement(
        f"{someone.en} {have} {dwelling.en} in {city.en} for {en_number(count)} {unit.en}",
        f"{someone.zh}在{city.zh}{dwelling.zh}了{zh_count(count)}{unit.zh}了",
        f"{someone.de} {dwelling.de[someone.person]} seit {de_number(count)} {unit.de} in {city.de}",
    )


# ---------------------------------------------------------------------------------------------------------------------
# Family and friends

HAVERS = (*PRONOUNS, MOTHER, FATHER, AUNT, UNCLE, NEIGHBOUR, TEACHER)


@family(
    "family",
    ("someone", "thing"),
    where=lambda someone, thing, count, form: form_fits(someone, form) and not (form == "only" and count == 1),
    someone=HAVERS,
    thing=(*KIN, *ANIMALS),
    count=(1, 2, 3, 4, 5),
    form=("statement", "only", "question"),
)
def has(someone: Someone, thing: Thing, count: int, form: str) -> Sentence:
    what = some(count, thing, "acc")
    finite = DE_HAVE[someone.person]
    if form == "question":
        someone = in_question(someone)
        do = "does" if someone.person == ER else "do"
        return question(
            f"{do} {someone.en} have {what.en}", f"{someone.zh}有{what.zh}吗", f"{finite} {someone.de} {what.de}"
        )
    have = "has" if someone.person == ER else "have"
    if form == "only":
        return statement(
            f"{someone.en} only {have} {what.en}",
            f"{someone.zh}只有{what.zh}",
            f"{someone.de} {finite} nur {what.de}",
        )
    return statement(f"{someone.en} {have} {what.en}", f"{someone.zh}有{what.zh}", f"{someone.de} {finite} {what.de}")


@family(
    "family",
    ("someone", "thing"),
    someone=HAVERS,
    thing=(*KIN, *ANIMALS),
    other_thing=(*KIN, *ANIMALS),
    where=lambda someone, thing, other_thing: (
        thing is not other_thing and any({thing, other_thing} <= set(kind) for kind in (KIN[:4], KIN[4:], ANIMALS))
    ),
)
def has_but_not(someone: Someone, thing: Thing, other_thing: Thing) -> Sentence:
    what, not_what = some(1, thing, "acc"), some(1, other_thing, "acc")
    have = "has" if someone.person == ER else "have"
    return statement(
        f"{someone.en} {have} {what.en}, but no {other_thing.en}",
        f"{someone.zh}有{what.zh}，但是没有{other_thing.zh}",
        f"{someone.de} {DE_HAVE[someone.person]} {what.de}, aber k{not_what.de}",
    )


STATES = (
    Quality("tired", "累", "müde", unwelcome=True),
    Quality("busy", "忙", "beschäftigt", unwelcome=True),
    Quality("nervous", "紧张", "nervös", unwelcome=True),
    Quality("sad", "难过", "traurig", unwelcome=True),
    Quality("angry", "生气", "wütend", unwelcome=True),
    Quality("happy", "高兴", "glücklich"),
    Quality("satisfied", "满意", "zufrieden"),
    Quality("hungry", "饿", "hungrig", unwelcome=True),
    Quality("thirsty", "渴", "durstig", unwelcome=True),
)
TRAITS = (
    Quality("friendly", "友好", "freundlich"),
    Quality("clever", "聪明", "klug"),
    Quality("hard-working", "勤奋", "fleißig"),
    Quality("patient", "有耐心", "geduldig"),
    Quality("strict", "严格", "streng", unwelcome=True),
    Quality("tall", "高", "groß"),
    Quality("funny", "幽默", "lustig"),
    Quality("shy", "害羞", "schüchtern", unwelcome=True),
)


def quality_fits(someone: Someone, quality: Quality, degree: Degree, time: Words) -> bool:
    if time is YESTERDAY and degree is REALLY:
        return False
    lasting = time is NOTHING or quality in STATES
    return lasting and degree_fits(degree, quality) and not (degree.asks and someone in (I, WE))


@family(
    "family",
    ("someone", "quality"),
    where=quality_fits,
    someone=PEOPLE,
    quality=(*STATES, *TRAITS),
    degree=DEGREES,
    time=(NOTHING, TODAY, YESTERDAY),
)
def how_people_are(someone: Someone, quality: Quality, degree: Degree, time: Words) -> Sentence:
    if degree.asks:
        someone = in_question(someone)
    return is_so(someone.en, someone.zh + time.zh, someone.de, someone.person, degree, quality, time)


@family(
    "family",
    ("someone", "other"),
    where=lambda someone, other, quality, measure: not same_people(someone, other),
    someone=PEOPLE,
    other=OBJECTS,
    quality=(
        Words("taller", "高", "größer"),
        Words("stronger", "强壮", "stärker"),
        Words("cleverer", "聪明", "klüger"),
        Words("friendlier", "友好", "freundlicher"),
        Words("more hard-working", "勤奋", "fleißiger"),
        Words("more patient", "有耐心", "geduldiger"),
    ),
    measure=(NOTHING, Words("much", "得多", "viel"), Words("a bit", "一点儿", "ein bisschen")),
)
def taller_than(someone: Someone, other: Someone, quality: Words, measure: Words) -> Sentence:
    return statement(
        words(someone.en, en_be(someone.person, False, False), measure.en, quality.en, "than", other.en_object),
        f"{someone.zh}比{other.zh}{quality.zh}{measure.zh}",
        words(someone.de, DE_BE[someone.person], measure.de, quality.de, "als", other.de),
    )


SOME_AGE = (I, YOU, HE, SHE, AUNT, UNCLE, NEIGHBOUR, TEACHER)


@family(
    "family",
    ("other", "count"),
    where=lambda someone, other, quality, count: not same_people(someone, other),
    someone=SOME_AGE,
    other=SOME_AGE,
    quality=(Words("older", "大", "älter"), Words("younger", "小", "jünger")),
    count=tuple(range(2, 13)),
)
def years_older(someone: Someone, other: Someone, quality: Words, count: int) -> Sentence:
    be = en_be(someone.person, False, False)
    return statement(
        f"{someone.en} {be} {en_number(count)} years {quality.en} than {other.en_object}",
        f"{someone.zh}比{other.zh}{quality.zh}{zh_count(count)}岁",
        f"{someone.de} {DE_BE[someone.person]} {de_number(count)} Jahre {quality.de} als {other.de}",
    )


@dataclass(frozen=True, eq=False)
class Feeling:
    """A verb with a person as its object, in the accusative or the dative."""

    en: str
    zh: str
    de: str
    dative: bool = False
    very: bool = True

    def __str__(self) -> str:
        return self.en


CLOSE = (I, *RELATIVES, FRIENDS)


def can_feel(someone: Someone, feeling: Feeling, other: Someone, form: str) -> bool:
    if feeling.en == "know" and someone in CLOSE and other in CLOSE:
        return False  # of course they know each other
    if feeling.en == "love" and other in (NEIGHBOUR, TEACHER):
        return False
    return not same_people(someone, other) and form_fits(someone, form) and (feeling.very or form != "very")


@family(
    "family",
    ("someone", "other"),
    where=can_feel,
    someone=PEOPLE,
    feeling=(
        Feeling("like", "喜欢", "mag magst mag mögen"),
        Feeling("love", "爱", "liebe liebst liebt lieben"),
        Feeling("miss", "想念", "vermisse vermisst vermisst vermissen"),
        Feeling("know", "认识", "kenne kennst kennt kennen", very=False),
        Feeling("understand", "理解", "verstehe verstehst versteht verstehen", very=False),
        Feeling("trust", "信任", "vertraue vertraust vertraut vertrauen", dative=True, very=False),
    ),
    other=OBJECTS,
    form=("statement", "very", "negation", "question"),
)
def feels(someone: Someone, feeling: Feeling, other: Someone, form: str) -> Sentence:
    finite = feeling.de.split()[someone.person]
    de_other = other.dat if feeling.dative else other.acc
    third = someone.person == ER
    if form == "question":
        someone = in_question(someone)
        do = "does" if third else "do"
        return question(
            f"{do} {someone.en} {feeling.en} {other.en_object}",
            f"{someone.zh}{feeling.zh}{other.zh}吗",
            f"{finite} {someone.de} {de_other}",
        )
    if form == "negation":
        do = "doesn't" if third else "don't"
        return statement(
            f"{someone.en} {do} {feeling.en} {other.en_object}",
            f"{someone.zh}不{feeling.zh}{other.zh}",
            f"{someone.de} {finite} {de_other} nicht",
        )
    verb = {"miss": "misses"}.get(feeling.en, f"{feeling.en}s") if third else feeling.en
    very = Words("very much", "很", "sehr") if form == "very" else NOTHING
    return statement(
        words(someone.en, verb, other.en_object, very.en),
        f"{someone.zh}{very.zh}{feeling.zh}{other.zh}",
        words(someone.de, finite, de_other, very.de),
    )


@dataclass(frozen=True, eq=False)
class Deed:
    """Something done to a person: English "visit visited", Chinese with {} for the person and 了 for the past."""

    en: str
    en_after: str
    zh: str
    zh_past: str
    verb: Verb
    de_before: str = ""
    dative: bool = False

    def __str__(self) -> str:
        return words(self.en, self.en_after)


DEEDS = (
    Deed("visit visited", "", "看望{}", "看望了{}", Verb("", "besuche besuchst besucht besuchen besucht")),
    Deed("call called", "", "给{}打电话", "给{}打了电话", Verb("", "rufe rufst ruft rufen angerufen", "an")),
    Deed("invite invited", "", "邀请{}", "邀请了{}", Verb("", "lade lädst lädt laden eingeladen", "ein")),
    Deed("pick picked", "up", "接{}", "接了{}", Verb("", "hole holst holt holen abgeholt", "ab")),
    Deed("help helped", "", "帮助{}", "帮助了{}", Verb("", "helfe hilfst hilft helfen geholfen"), dative=True),
    Deed("thank thanked", "", "感谢{}", "感谢了{}", Verb("", "danke dankst dankt danken gedankt"), dative=True),
    Deed("answer answered", "", "回答{}", "回答了{}", Verb("", "_ _ _ antworten geantwortet"), dative=True),
    Deed("wait waited", "for", "等{}", "等了{}", Verb("", "warte wartest wartet warten gewartet"), "auf"),
    Deed("ask asked", "", "问{}", "问了{}", Verb("", "frage fragst fragt fragen gefragt")),
)
DOERS = (I, YOU, HE, SHE, WE, THEY, MOTHER, PARENTS, OLDER_BROTHER, AUNT, NEIGHBOUR, FRIENDS)
RECEIVERS = (I, YOU, HE, SHE, WE, FATHER, YOUNGER_SISTER, GRANDMOTHER, UNCLE, PARENTS, TEACHER, CHILDREN)


@family(
    "family",
    ("deed", "other"),
    where=lambda someone, deed, other, time, form: not same_people(someone, other) and form_fits(someone, form),
    someone=DOERS,
    deed=DEEDS,
    other=RECEIVERS,
    time=(YESTERDAY, NEXT_WEEKEND),
    form=("time first", "negation", "question"),
)
def does_to(someone: Someone, deed: Deed, other: Someone, time: Words, form: Form) -> Sentence:
    if form == "question":
        someone = in_question(someone)
    base, en_past = deed.en.split()
    mood = PAST if time in PAST_TIMES else FUTURE
    particle = deed.en_after == "up"
    en_other = words(other.en_object, "up") if particle else words(deed.en_after, other.en_object)
    de_other = words(deed.de_before, other.dat if deed.dative else other.acc)
    finite, end = de_verb(someone.person, mood, Activity(deed.verb, "", "", "", ""))
    if form == "question":
        zh = deed.zh.format(other.zh)
        return question(
            words(mood.en_aux, someone.en, base, en_other, time.en),
            someone.zh + time.zh + (f"{zh}了吗" if mood is PAST else f"会{zh}吗"),
            words(finite, someone.de, de_other, time.de, end),
        )
    if form == "negation":
        return statement(
            words(someone.en, mood.en_not, base, en_other, time.en),
            someone.zh + time.zh + mood.zh_not + deed.zh.format(other.zh),
            words(someone.de, finite, de_other, time.de, "nicht", end)
            if not deed.de_before
            else words(someone.de, finite, time.de, "nicht", de_other, end),
        )
    return statement(
        words(time.en, someone.en, en_past if mood is PAST else f"will {base}", en_other),
        time.zh + someone.zh + (deed.zh_past if mood is PAST else "会" + deed.zh).format(other.zh),
        words(time.de, finite, someone.de, de_other, end),
    )


@dataclass(frozen=True, eq=False)
class Profession:
    en: str
    zh: str
    de_m: str
    de_f: str

    def __str__(self) -> str:
        return self.en


PROFESSIONS = (
    Profession("doctor", "医生", "Arzt", "Ärztin"),
    Profession("nurse", "护士", "Krankenpfleger", "Krankenpflegerin"),
    Profession("teacher", "老师", "Lehrer", "Lehrerin"),
    Profession("engineer", "工程师", "Ingenieur", "Ingenieurin"),
    Profession("lawyer", "律师", "Rechtsanwalt", "Rechtsanwältin"),
    Profession("cook", "厨师", "Koch", "Köchin"),
    Profession("journalist", "记者", "Journalist", "Journalistin"),
    Profession("architect", "建筑师", "Architekt", "Architektin"),
    Profession("actor", "演员", "Schauspieler", "Schauspielerin"),
    Profession("police officer", "警察", "Polizist", "Polizistin"),
    Profession("singer", "歌手", "Sänger", "Sängerin"),
    Profession("painter", "画家", "Maler", "Malerin"),
    Profession("farmer", "农民", "Bauer", "Bäuerin"),
    Profession("writer", "作家", "Schriftsteller", "Schriftstellerin"),
)
WORKERS = (HE, SHE, MOTHER, FATHER, OLDER_BROTHER, OLDER_SISTER, AUNT, UNCLE, NEIGHBOUR)
JOB_FORMS = ("is", "is not", "is?", "was", "wants", "does not want", "wants?")


@family("work", ("someone", "profession"), someone=WORKERS, profession=PROFESSIONS, form=JOB_FORMS)
def has_job(someone: Someone, profession: Profession, form: str) -> Sentence:
    if form.endswith("?"):
        someone = in_question(someone)
    en, zh = a(profession.en), profession.zh
    de, kein = (profession.de_m, "kein") if someone.gender == "m" else (profession.de_f, "keine")
    if form == "is":
        return statement(f"{someone.en} is {en}", f"{someone.zh}是{zh}", f"{someone.de} ist {de}")
    if form == "is not":
        return statement(f"{someone.en} isn't {en}", f"{someone.zh}不是{zh}", f"{someone.de} ist {kein} {de}")
    if form == "is?":
        return question(f"is {someone.en} {en}", f"{someone.zh}是{zh}吗", f"ist {someone.de} {de}")
    if form == "was":
        return statement(f"{someone.en} used to be {en}", f"{someone.zh}以前是{zh}", f"{someone.de} war früher {de}")
    if form == "wants":
        return statement(
            f"{someone.en} would like to become {en}", f"{someone.zh}想当{zh}", f"{someone.de} möchte {de} werden"
        )
    if form == "does not want":
        return statement(
            f"{someone.en} wouldn't like to become {en}",
            f"{someone.zh}不想当{zh}",
            f"{someone.de} möchte {kein} {de} werden",
        )
    return question(
        f"would {someone.en} like to become {en}", f"{someone.zh}想当{zh}吗", f"möchte {someone.de} {de} werden"
    )


AGES = {
    **{someone.en: range(8, 60) for someone in (I, YOU, HE, SHE)},
    **{someone.en: range(36, 62) for someone in (MOTHER, FATHER, AUNT, UNCLE)},
    **{someone.en: range(18, 40) for someone in (OLDER_BROTHER, OLDER_SISTER)},
    **{someone.en: range(4, 18) for someone in (YOUNGER_BROTHER, YOUNGER_SISTER)},
    **{someone.en: range(63, 98) for someone in (GRANDMOTHER, GRANDFATHER)},
    **{someone.en: range(30, 80) for someone in (NEIGHBOUR, TEACHER)},
}


@family(
    "family",
    ("someone", "age"),
    where=lambda someone, age, form: age in AGES[someone.en] and form_fits(someone, form),
    someone=ONE_PERSON,
    age=tuple(range(4, 98)),
    form=("statement", "next year", "question"),
)
def is_years_old(someone: Someone, age: int, form: str) -> Sentence:
    en, zh, de = f"{en_number(age)} years old", f"{zh_number(age)}岁", f"{de_number(age)} Jahre alt"
    if form == "question":
        someone = in_question(someone)
        be = en_be(someone.person, False, False)
        return question(f"{be} {someone.en} {en}", f"{someone.zh}{zh}吗", f"{DE_BE[someone.person]} {someone.de} {de}")
    if form == "next year":
        assert FUTURE.de_finite
        wird = FUTURE.de_finite[someone.person]
        return statement(
            f"{someone.en} will be {en} next year",
            f"{someone.zh}明年就{zh}了",
            f"{someone.de} {wird} nächstes Jahr {de}",
        )
    be = en_be(someone.person, False, False)
    return statement(f"{someone.en} {be} {en}", f"{someone.zh}{zh}", f"{someone.de} {DE_BE[someone.person]} {de}")


# ---------------------------------------------------------------------------------------------------------------------
# Shopping

GROWN_UPS = tuple(someone for someone in PEOPLE if someone is not CHILDREN)
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


EXCUSE_ME = Words("excuse me,", "请问，", "Entschuldigung,")


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


# ---------------------------------------------------------------------------------------------------------------------
# Travel


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


# ---------------------------------------------------------------------------------------------------------------------
# Food


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


# ---------------------------------------------------------------------------------------------------------------------
# Work and school

SCHOOL_SUBJECTS = (
    Words("mathematics", "数学", "Mathematik"),
    Words("physics", "物理", "Physik"),
    Words("chemistry", "化学", "Chemie"),
    Words("biology", "生物", "Biologie"),
    Words("history", "历史", "Geschichte"),
    Words("geography", "地理", "Erdkunde"),
    Words("English", "英语", "Englisch"),
    Words("German", "德语", "Deutsch"),
    Words("Chinese", "中文", "Chinesisch"),
)


@family(
    "work",
    ("someone", "subject"),
    where=lambda someone, subject, quality, degree: (
        degree_fits(degree, quality) and not (degree.asks and someone in (I, WE))
    ),
    someone=PEOPLE,
    subject=SCHOOL_SUBJECTS,
    quality=(
        Quality("difficult", "难", "schwierig", unwelcome=True),
        Quality("easy", "容易", "leicht"),
        Quality("interesting", "有意思", "interessant"),
        Quality("boring", "无聊", "langweilig", unwelcome=True),
        Quality("useful", "有用", "nützlich"),
    ),
    degree=DEGREES,
)
def finds(someone: Someone, subject: Words, quality: Quality, degree: Degree) -> Sentence:
    if degree.asks:
        someone = in_question(someone)
    third = someone.person == ER
    finite = ("finde", "findest", "findet", "finden")[someone.person]
    zh = f"{someone.zh}觉得{subject.zh}{degree.zh}{quality.zh}{degree.zh_after}"
    if degree is NOT:
        zh = f"{someone.zh}不觉得{subject.zh}{quality.zh}"
    if degree.asks:
        return question(
            words("does" if third else "do", someone.en, "find", subject.en, quality.en),
            zh,
            words(finite, someone.de, subject.de, quality.de),
        )
    verb = "find"
    if degree.negated:
        verb = "doesn't find" if third else "don't find"
    elif third:
        verb = "finds"
    return statement(
        words(someone.en, verb, subject.en, degree.en, quality.en),
        zh,
        words(someone.de, finite, subject.de, degree.de, quality.de),
    )


LANGUAGES = (
    Words("English", "英语", "Englisch"),
    Words("German", "德语", "Deutsch"),
    Words("Chinese", "中文", "Chinesisch"),
    Words("French", "法语", "Französisch"),
    Words("Spanish", "西班牙语", "Spanisch"),
    Words("Italian", "意大利语", "Italienisch"),
    Words("Russian", "俄语", "Russisch"),
    Words("Japanese", "日语", "Japanisch"),
)


@family(
    "work",
    ("language", "other_language"),
    where=lambda someone, language, other_language, no_language: (
        len({language, other_language, no_language}) == 3 and language.en < other_language.en
    ),
    someone=PEOPLE,
    language=LANGUAGES,
    other_language=LANGUAGES,
    no_language=LANGUAGES,
)
def speaks(someone: Someone, language: Words, other_language: Words, no_language: Words) -> Sentence:
    speak = "speaks" if someone.person == ER else "speak"
    spricht = ("spreche", "sprichst", "spricht", "sprechen")[someone.person]
    return statement(
        f"{someone.en} {speak} {language.en} and {other_language.en}, but no {no_language.en}",
        f"{someone.zh}会说{language.zh}和{other_language.zh}，但是不会说{no_language.zh}",
        f"{someone.de} {spricht} {language.de} und {other_language.de}, aber kein {no_language.de}",
    )


SKILLS = tuple(
    [
        Activity(Verb("speak", "_ _ _ sprechen _"), language.en, f"说{language.zh}", language.de, f"kein {language.de}")
        for language in LANGUAGES
    ]
    + [
        Activity(Verb("swim", "_ _ _ schwimmen _"), "", "游泳", "", "nicht"),
        Activity(Verb("drive", "_ _ _ fahren _"), "", "开车", "Auto", "nicht Auto"),
        Activity(Verb("ride", "_ _ _ fahren _"), "a bicycle", "骑自行车", "Fahrrad", "nicht Fahrrad"),
        Activity(Verb("ride", "_ _ _ reiten _"), "a horse", "骑马", "", "nicht"),
        Activity(Verb("ski", "_ _ _ fahren _"), "", "滑雪", "Ski", "nicht Ski"),
        Activity(Verb("cook", "_ _ _ kochen _"), "", "做饭", "", "nicht"),
        Activity(Verb("dance", "_ _ _ tanzen _"), "", "跳舞", "", "nicht"),
        Activity(Verb("play", "_ _ _ spielen _"), "the piano", "弹钢琴", "Klavier", "nicht Klavier"),
        Activity(Verb("play", "_ _ _ spielen _"), "the guitar", "弹吉他", "Gitarre", "nicht Gitarre"),
        Activity(Verb("play", "_ _ _ spielen _"), "chess", "下棋", "Schach", "nicht Schach"),
    ]
)


def verb_base(activity: Activity) -> str:
    return words(activity.verb.en_forms[0], activity.en_rest)


@family(
    "work",
    ("someone", "skill"),
    where=lambda someone, skill, form: form_fits(someone, form),
    someone=PEOPLE,
    skill=SKILLS,
    form=("statement", "well", "negation", "question"),
)
def can_do(someone: Someone, skill: Activity, form: str) -> Sentence:
    assert CAN.de_finite
    finite, infinitive = CAN.de_finite[someone.person], skill.verb.de_forms[3]
    base = verb_base(skill)
    if form == "question":
        someone = in_question(someone)
        return question(
            f"can {someone.en} {base}", f"{someone.zh}会{skill.zh}吗", words(finite, someone.de, skill.de, infinitive)
        )
    if form == "negation":
        return statement(
            f"{someone.en} can't {base}",
            f"{someone.zh}不会{skill.zh}",
            words(someone.de, finite, skill.de_not, infinitive),
        )
    if form == "well":
        return statement(
            f"{someone.en} can {base} very well",
            f"{someone.zh}很会{skill.zh}",
            words(someone.de, finite, "sehr gut", skill.de, infinitive),
        )
    return statement(
        f"{someone.en} can {base}", f"{someone.zh}会{skill.zh}", words(someone.de, finite, skill.de, infinitive)
    )


WORKPLACES = (
    Words("at a hospital", "医院", "in einem Krankenhaus"),
    Words("at a bank", "银行", "bei einer Bank"),
    Words("at a school", "学校", "an einer Schule"),
    Words("at a university", "大学", "an einer Universität"),
    Words("at a hotel", "酒店", "in einem Hotel"),
    Words("at a restaurant", "餐厅", "in einem Restaurant"),
    Words("at a supermarket", "超市", "in einem Supermarkt"),
    Words("at a museum", "博物馆", "in einem Museum"),
    Words("at a library", "图书馆", "in einer Bibliothek"),
    Words("at a pharmacy", "药店", "in einer Apotheke"),
    Words("at a bookshop", "书店", "in einer Buchhandlung"),
    Words("at a factory", "工厂", "in einer Fabrik"),
    Words("at an office", "办公室", "in einem Büro"),
)
LAST_YEAR, NEXT_YEAR = Words("last year", "去年", "letztes Jahr"), Words("next year", "明年", "nächstes Jahr")


@family(
    "work",
    ("someone", "workplace"),
    where=lambda someone, workplace, when, form: form_fits(someone, form),
    someone=GROWN_UPS,
    workplace=WORKPLACES,
    when=(
        When(PRESENT, NOTHING, "statement"),
        When(PAST, LAST_YEAR, "statement"),
        When(FUTURE, NEXT_YEAR, "statement"),
        When(WOULD_LIKE, NOTHING, "statement"),
    ),
    form=("statement", "negation", "question"),
)
def works_at(someone: Someone, workplace: Words, when: When, form: Form) -> Sentence:
    activity = Activity(WORK, workplace.en, f"在{workplace.zh}工作", workplace.de, f"nicht {workplace.de}")
    en, zh, de = clause(someone, when.mood, activity, when.time, form)
    if when.mood is PAST:  # a lasting state takes no 了
        zh = zh.replace("工作了", "工作")
    return Sentence(en, zh, de)


# ---------------------------------------------------------------------------------------------------------------------
# Reasons


@dataclass(frozen=True, eq=False)
class Reason:
    en: str
    zh: str
    de: str
    de_have: bool = False

    def __str__(self) -> str:
        return self.en


@family(
    "reasons",
    ("someone", "activity"),
    where=lambda someone, activity, reason, time: activity_fits(someone, activity) and activity.zh != "去看医生",
    someone=PEOPLE,
    activity=ACTIVITIES,
    reason=(
        Reason("very tired", "很累", "sehr müde"),
        Reason("ill", "生病了", "krank"),
        Reason("very busy", "很忙", "sehr beschäftigt"),
        Reason("no time", "没有时间", "keine Zeit", de_have=True),
    ),
    time=(YESTERDAY,),
)
def because(someone: Someone, activity: Activity, reason: Reason, time: Words) -> Sentence:
    he = someone.pronoun
    finite, end = de_verb(someone.person, PAST, activity)
    if reason.de_have:
        en_was, de_war = "had", DE_HAVE_PAST[someone.person]
    else:
        en_was, de_war = en_be(someone.person, True, False), DE_BE_PAST[someone.person]
    did = words(he.en, "didn't", activity.verb.en_forms[0], activity.en_rest, time.en)
    return statement(
        f"because {someone.en} {en_was} {reason.en}, {did}",
        f"因为{someone.zh}{reason.zh}，所以{he.zh}{time.zh}没{activity.zh}",
        words(f"weil {someone.de} {reason.de} {de_war},", finite, he.de, time.de, activity.de_not, end),
    )


ERRANDS = (
    (going_to("to the supermarket", "去超市", "in den Supermarkt"), "to buy bread", "买面包", "um Brot zu kaufen"),
    (going_to("to the supermarket", "去超市", "in den Supermarkt"), "to buy milk", "买牛奶", "um Milch zu kaufen"),
    (going_to("to the market", "去市场", "auf den Markt"), "to buy vegetables", "买蔬菜", "um Gemüse zu kaufen"),
    (going_to("to the market", "去市场", "auf den Markt"), "to buy flowers", "买花", "um Blumen zu kaufen"),
    (going_to("to the library", "去图书馆", "in die Bibliothek"), "to read a book", "看书", "um ein Buch zu lesen"),
    (going_to("to the library", "去图书馆", "in die Bibliothek"), "to borrow books", "借书", "um Bücher auszuleihen"),
    (going_to("to the park", "去公园", "in den Park"), "to play football", "踢足球", "um Fußball zu spielen"),
    (going_to("to the park", "去公园", "in den Park"), "to take photos", "拍照片", "um Fotos zu machen"),
    (
        going_to("to the train station", "去火车站", "zum Bahnhof"),
        "to pick up a friend",
        "接朋友",
        "um einen Freund abzuholen",
    ),
    (going_to("to the post office", "去邮局", "zur Post"), "to send a letter", "寄信", "um einen Brief abzuschicken"),
    (going_to("to the swimming pool", "去游泳池", "ins Schwimmbad"), "to swim", "游泳", "um zu schwimmen"),
    (going_to("to the café", "去咖啡馆", "ins Café"), "to meet friends", "见朋友", "um Freunde zu treffen"),
)


@dataclass(frozen=True, eq=False)
class Errand:
    going: Activity
    purpose: Words

    def __str__(self) -> str:
        return words(str(self.going), self.purpose.en)


@family(
    "reasons",
    ("someone", "errand"),
    where=lambda someone, errand, time: not (someone is FRIENDS and "朋友" in errand.purpose.zh),
    someone=PEOPLE,
    errand=tuple(Errand(going, Words(en, zh, de)) for going, en, zh, de in ERRANDS),
    time=(EVERY_DAY, EVERY_WEEKEND, *PAST_TIMES[:3], *FUTURE_TIMES[:3]),
)
def errands(someone: Someone, errand: Errand, time: Words) -> Sentence:
    mood = PRESENT if time in HABITUAL_TIMES else PAST if time in PAST_TIMES else FUTURE
    going, purpose = errand.going, errand.purpose
    finite, end = de_verb(someone.person, mood, going)
    every = "都" if mood is PRESENT else mood.zh
    return statement(
        words(time.en, en_clause(someone, mood, going, "statement"), purpose.en),
        f"{time.zh}{someone.zh}{every}{going.zh}{purpose.zh}{'了' if mood is PAST else ''}",
        words(time.de, finite, someone.de, going.de, end) + f", {purpose.de}",
    )


# ---------------------------------------------------------------------------------------------------------------------
# Questions


@family(
    "questions",
    ("someone", "activity"),
    where=lambda someone, activity, why: activity_fits(someone, activity) and someone is not I,
    someone=PEOPLE,
    activity=ACTIVITIES,
    why=(
        When(PRESENT, NOTHING, "negation"),
        When(PAST, YESTERDAY, "negation"),
        When(FUTURE, TOMORROW, "negation"),
        When(HAVE_TO, TODAY, "question"),
        When(WOULD_LIKE, TODAY, "question"),
        When(CAN, TODAY, "negation"),
    ),
)
def why_question(someone: Someone, activity: Activity, why: When) -> Sentence:
    someone = in_question(someone)
    mood, negated = why.mood, why.form == "negation"
    base = words(mood.en_link, activity.verb.en_forms[0], activity.en_rest)
    do = "does" if someone.person == ER else "do"
    aux = (mood.en_not if negated else mood.en_aux) or (f"{do}n't" if negated else do)
    finite, end = de_verb(someone.person, mood, activity)
    return question(
        words("why", aux, someone.en, base, why.time.en),
        f"{someone.zh}{why.time.zh}为什么{mood.zh_not if negated else mood.zh}{activity.zh}",
        words("warum", finite, someone.de, why.time.de, activity.de_not if negated else activity.de, end),
    )


@family(
    "questions",
    ("someone", "activity"),
    where=lambda someone, activity, mood: activity_fits(someone, activity) and someone is not I,
    someone=PEOPLE,
    activity=ACTIVITIES,
    mood=(WOULD_LIKE, HAVE_TO, CAN),
)
def when_question(someone: Someone, activity: Activity, mood: Mood) -> Sentence:
    someone = in_question(someone)
    do = "does" if someone.person == ER else "do"
    finite, end = de_verb(someone.person, mood, activity)
    return question(
        words("when", mood.en_aux or do, someone.en, mood.en_link, activity.verb.en_forms[0], activity.en_rest),
        f"{someone.zh}什么时候{mood.zh}{activity.zh}",
        words("wann", finite, someone.de, activity.de, end),
    )


WHO = Someone("who", "who", "谁", "wer", "wen", "wem", ER, HE_WORD, HIS)


@family(
    "questions",
    ("activity", "time"),
    activity=ACTIVITIES,
    time=(*PAST_TIMES, *FUTURE_TIMES, *HABITUAL_TIMES),
)
def who_question(activity: Activity, time: Words) -> Sentence:
    mood = PRESENT if time in HABITUAL_TIMES else PAST if time in PAST_TIMES else WOULD_LIKE
    finite, end = de_verb(ER, mood, activity)
    every = "都" if mood is PRESENT else ""
    return question(
        words(en_clause(WHO, mood, activity, "statement"), time.en),
        f"谁{time.zh}{every}{zh_verb(mood, activity, 'statement')}",
        words("wer", finite, time.de, activity.de, end),
    )


WHAT_VERBS = (
    Activity(EAT, "", "吃", "", ""),
    Activity(DRINK, "", "喝", "", ""),
    Activity(BUY, "", "买", "", ""),
    Activity(READ, "", "读", "", ""),
    Activity(WRITE, "", "写", "", ""),
    Activity(LEARN, "", "学", "", ""),
    Activity(PAINT, "", "画", "", ""),
    Activity(SING, "", "唱", "", ""),
    Activity(MAKE, "", "做", "", ""),
    Activity(REPAIR, "", "修", "", ""),
)


@family(
    "questions",
    ("someone", "verb"),
    where=lambda someone, verb, when: someone not in (I, WE),
    someone=PEOPLE,
    verb=WHAT_VERBS,
    when=(
        *(When(PAST, time, "question") for time in PAST_TIMES),
        *(When(WOULD_LIKE, time, "question") for time in NEAR_TIMES),
        *(When(HAVE_TO, time, "question") for time in NEAR_TIMES[:2]),
    ),
)
def what_question(someone: Someone, verb: Activity, when: When) -> Sentence:
    someone = in_question(someone)
    mood, time = when.mood, when.time
    do = "does" if someone.person == ER else "do"
    finite, end = de_verb(someone.person, mood, verb)
    return question(
        words("what", mood.en_aux or do, someone.en, mood.en_link, verb.verb.en_forms[0], time.en),
        f"{someone.zh}{time.zh}{mood.zh}{verb.zh}{'了' if mood is PAST else ''}什么",
        words("was", finite, someone.de, time.de, end),
    )


@family(
    "questions",
    ("someone", "event"),
    someone=(YOU, HE, SHE, THEY, MOTHER, FATHER, PARENTS, TEACHER, NEIGHBOUR),
    event=EVENTS,
    form=("knows?", "does not know"),
    day=(NOTHING, TODAY, TOMORROW),
)
def knows_when(someone: Someone, event: Event, form: str, day: Words) -> Sentence:
    weiss = ("weiß", "weißt", "weiß", "wissen")[someone.person]
    third = someone.person == ER
    when = words("when", event.en, en_third(event.en_verb), day.en)
    zh_when = f"知道{event.zh}{day.zh}什么时候{event.zh_verb}"
    wann = words("wann", event.de, day.de, event.de_prefix + event.de_verb)
    if form == "knows?":
        someone = in_question(someone)
        return question(
            f"{'does' if third else 'do'} {someone.en} know {when}",
            f"{someone.zh}{zh_when}吗",
            f"{weiss} {someone.de}, {wann}",
        )
    return statement(
        f"{someone.en} {'does' if third else 'do'}n't know {when}",
        f"{someone.zh}不{zh_when}",
        f"{someone.de} {weiss} nicht, {wann}",
    )


# ---------------------------------------------------------------------------------------------------------------------
# Wishes, likes and requests


@family(
    "wishes",
    ("someone", "activity"),
    where=lambda someone, activity, time, form: (
        activity_fits(someone, activity) and form_fits(someone, form) and activity.zh != "去看医生"
    ),
    someone=PEOPLE,
    activity=ACTIVITIES,
    time=(TODAY, TOMORROW_EVENING),
    form=("statement", "negation", "question"),
)
def would_like(someone: Someone, activity: Activity, time: Words, form: Form) -> Sentence:
    return clause(someone, WOULD_LIKE, activity, time, form)


@family(
    "wishes",
    ("someone", "activity"),
    where=lambda someone, activity, form: (
        activity_fits(someone, activity)
        and form_fits(someone, form)
        and activity.zh != "去看医生"
        and not activity.de.startswith("ein ")
        and not activity.de.startswith(("eine", "einen"))
    ),
    someone=PEOPLE,
    activity=ACTIVITIES,
    form=("statement", "very", "negation", "question"),
)
def likes_doing(someone: Someone, activity: Activity, form: str) -> Sentence:
    if form == "question":
        someone = in_question(someone)
    third = someone.person == ER
    doing = words("to", activity.verb.en_forms[0], activity.en_rest)
    finite, end = de_verb(someone.person, PRESENT, activity)
    zh = f"喜欢{activity.zh}"
    if form == "question":
        return question(
            words("does" if third else "do", someone.en, "like", doing),
            f"{someone.zh}{zh}吗",
            words(finite, someone.de, "gern", activity.de, end),
        )
    if form == "negation":
        return statement(
            words(someone.en, "doesn't" if third else "don't", "like", doing),
            f"{someone.zh}不{zh}",
            words(someone.de, finite, "nicht gern", activity.de, end),
        )
    very = Words("really", "很", "sehr") if form == "very" else NOTHING
    return statement(
        words(someone.en, very.en, "likes" if third else "like", doing),
        f"{someone.zh}{very.zh}{zh}",
        words(someone.de, finite, very.de, "gern", activity.de, end),
    )


@dataclass(frozen=True, eq=False)
class Thought:
    """I hope that, I have heard that: with the times of what is hoped or heard."""

    en: str
    zh: str
    de: str
    past: bool

    def __str__(self) -> str:
        return words(self.en, "(past)" if self.past else "(future)")


@family(
    "wishes",
    ("someone", "activity"),
    where=lambda someone, activity, thought, later: (
        activity_fits(someone, activity) and (someone not in (I, WE) or thought.zh == "我希望")
    ),
    someone=PEOPLE,
    activity=ACTIVITIES,
    thought=(
        Thought("I hope that", "我希望", "ich hoffe, dass", past=False),
        Thought("we hope that", "我们希望", "wir hoffen, dass", past=False),
        Thought("I think that", "我觉得", "ich glaube, dass", past=False),
        Thought("I have heard that", "我听说", "ich habe gehört, dass", past=True),
    ),
    later=(False, True),
)
def hopes_that(someone: Someone, activity: Activity, thought: Thought, later: bool) -> Sentence:
    mood = PAST if thought.past else FUTURE
    time = (LAST_WEEKEND if later else YESTERDAY) if thought.past else (NEXT_WEEKEND if later else TOMORROW)
    return statement(
        words(thought.en, en_clause(someone, mood, activity, "statement"), time.en),
        f"{thought.zh}{someone.zh}{time.zh}{zh_verb(mood, activity, 'statement')}",
        words(thought.de, de_subordinate(someone, mood, time.de, activity)),
    )


@family(
    "wishes",
    ("someone", "activity"),
    where=lambda someone, activity, means: activity_fits(someone, activity) and activity.verb not in (EAT, DRINK),
    someone=PEOPLE,
    activity=ACTIVITIES,
    means=(
        Words("time", "时间", "Zeit"),
        Words("more time", "更多时间", "mehr Zeit"),
        Words("a holiday", "假期", "Urlaub"),
    ),
)
def if_someone_had(someone: Someone, activity: Activity, means: Words) -> Sentence:
    he = someone.pronoun
    verb = activity.verb
    infinitive = verb.de_prefix + verb.de_forms[3]
    return statement(
        words(f"if {someone.en} had {means.en}, {he.en} would", verb.en_forms[0], activity.en_rest),
        f"如果{someone.zh}有{means.zh}，{he.zh}就会{activity.zh}",
        words(
            f"wenn {someone.de} {means.de} {DE_WOULD_HAVE[someone.person]},",
            DE_WOULD[someone.person],
            he.de,
            activity.de,
            infinitive,
        ),
    )


GREETINGS = (
    Words("a good journey", "旅途愉快", "eine gute Reise"),
    Words("a nice weekend", "周末愉快", "ein schönes Wochenende"),
    Words("a nice holiday", "假期愉快", "einen schönen Urlaub"),
    Words("a happy new year", "新年快乐", "ein frohes neues Jahr"),
    Words("a merry Christmas", "圣诞快乐", "frohe Weihnachten"),
    Words("a happy birthday", "生日快乐", "alles Gute zum Geburtstag"),
    Words("good health", "身体健康", "gute Gesundheit"),
    Words("much success", "成功", "viel Erfolg"),
)


@family(
    "wishes",
    ("other", "greeting"),
    someone=(I, WE),
    other=tuple(in_question(someone) for someone in OBJECTS if someone not in (I, WE, HE, SHE, CHILDREN)),
    greeting=GREETINGS,
)
def greets(someone: Someone, other: Someone, greeting: Words) -> Sentence:
    return statement(
        f"{someone.en} wish {other.en_object} {greeting.en}",
        f"{someone.zh}祝{other.zh}{greeting.zh}",
        f"{someone.de} {'wünsche' if someone is I else 'wünschen'} {other.dat} {greeting.de}",
    )


@dataclass(frozen=True, eq=False)
class Request:
    en: str
    zh: str
    de: str
    de_object: str
    de_prefix: str

    def __str__(self) -> str:
        return self.en


REQUESTS = (
    Request("open the window", "打开窗户", "mach", "das Fenster", "auf"),
    Request("close the window", "关上窗户", "mach", "das Fenster", "zu"),
    Request("open the door", "打开门", "mach", "die Tür", "auf"),
    Request("close the door", "关上门", "mach", "die Tür", "zu"),
    Request("turn on the light", "开灯", "mach", "das Licht", "an"),
    Request("turn off the light", "关灯", "mach", "das Licht", "aus"),
    Request("turn on the TV", "开电视", "mach", "den Fernseher", "an"),
    Request("turn off the TV", "关电视", "mach", "den Fernseher", "aus"),
    Request("turn on the computer", "开电脑", "mach", "den Computer", "an"),
    Request("turn off the computer", "关电脑", "mach", "den Computer", "aus"),
    Request("tidy the kitchen", "收拾厨房", "räum", "die Küche", "auf"),
    Request("wash the dishes", "洗碗", "spül", "das Geschirr", ""),
    Request("clean the living room", "打扫客厅", "putz", "das Wohnzimmer", ""),
    Request("call the doctor", "给医生打电话", "ruf", "den Arzt", "an"),
    Request("pick up the children", "接孩子们", "hol", "die Kinder", "ab"),
    Request("wash the car", "洗车", "wasch", "das Auto", ""),
)


@family(
    "wishes",
    ("request", "when"),
    request=REQUESTS,
    when=(
        NOTHING,
        Words("when you come home", "你回家的时候", "wenn du nach Hause kommst"),
        Words("before you go to bed", "你睡觉以前", "bevor du ins Bett gehst"),
        Words("before you leave the house", "你出门以前", "bevor du aus dem Haus gehst"),
        Words("when you get up", "你起床以后", "wenn du aufstehst"),
        Words("after you have eaten", "你吃完饭以后", "nachdem du gegessen hast"),
        Words("if you have time", "你有时间的话", "wenn du Zeit hast"),
    ),
    negated=(False, True),
)
def requests(request: Request, when: Words, negated: bool) -> Sentence:
    dont, zh_dont, nicht = ("don't", "不要", "nicht") if negated else ("", "", "")
    de = words("bitte", request.de, request.de_object, nicht, request.de_prefix)
    return statement(
        words("please", dont, request.en, when.en),
        words(f"{when.zh}，" if when.zh else "") + f"请{zh_dont}{request.zh}",
        f"{de}, {when.de}" if when.de else de,
    )


FAMILIES: tuple[Family, ...] = (
    weather,
    cold_or_warm,
    colder_than,
    temperature,
    rain_or_snow,
    if_it_rains,
    what_time,
    timetable,
    daily_routine,
    what_day,
    birthday,
    since,
    has,
    has_but_not,
    how_people_are,
    taller_than,
    years_older,
    feels,
    does_to,
    is_years_old,
    buys,
    price,
    how_much,
    goods_are,
    needs,
    gives,
    where_to_buy,
    belongs,
    trip,
    finding_the_way,
    location,
    minutes_between,
    hours_between,
    tickets,
    has_been,
    own_things,
    portions,
    please_bring,
    likes_but_not,
    prefers,
    tastes,
    there_is,
    has_job,
    finds,
    speaks,
    can_do,
    works_at,
    habit,
    past,
    future,
    modal_today,
    how_often,
    right_now,
    because,
    errands,
    why_question,
    when_question,
    who_question,
    what_question,
    knows_when,
    would_like,
    likes_doing,
    hopes_that,
    if_someone_had,
    greets,
    requests,
)
