"""The clock, the calendar, and what happens when."""

from dataclasses import dataclass

from tools.phrasebook.activities import EAT, GO, Activity, Verb
from tools.phrasebook.clauses import DE_HAVE, PRESENT, Form, de_verb, en_clause
from tools.phrasebook.families import family
from tools.phrasebook.persons import (
    CHILDREN,
    ER,
    ONE_PERSON,
    PEOPLE,
    PRONOUNS,
    Someone,
    form_fits,
    in_question,
)
from tools.phrasebook.places import CITIES
from tools.phrasebook.wording import (
    DAYS,
    EVERY_EVENING,
    HOURS,
    MINUTES,
    MONTHS,
    NOTHING,
    ROUND_MINUTES,
    TODAY,
    TOMORROW,
    WEEKDAYS,
    YESTERDAY,
    Minute,
    Month,
    Sentence,
    Words,
    clock,
    de_number,
    de_ordinal_stem,
    en_number,
    en_ordinal,
    question,
    statement,
    words,
    zh_count,
    zh_number,
)


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
