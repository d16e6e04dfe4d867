"""The weather, and what one does in it."""

from dataclasses import dataclass

from tools.phrasebook.activities import ACTIVITIES, Activity, activity_fits
from tools.phrasebook.clauses import (
    A_BIT,
    DE_BE,
    DE_BE_PAST,
    DEGREES,
    FORMS,
    FUTURE,
    PAST,
    PRESENT,
    TOO,
    Degree,
    Form,
    Quality,
    de_verb,
    degree_fits,
    en_be,
    en_clause,
    is_so,
)
from tools.phrasebook.families import family
from tools.phrasebook.persons import ER, PEOPLE, Someone
from tools.phrasebook.places import CITIES, HERE
from tools.phrasebook.wording import (
    FUTURE_TIMES,
    NEXT_WEEKEND,
    NOTHING,
    PAST_TIMES,
    TODAY,
    TOMORROW,
    YESTERDAY,
    Sentence,
    Words,
    de_number,
    en_number,
    question,
    statement,
    words,
    zh_number,
)


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
