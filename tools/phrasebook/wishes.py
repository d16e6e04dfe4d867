"""Wishes, likes and requests."""

from dataclasses import dataclass

from tools.phrasebook.activities import ACTIVITIES, DRINK, EAT, Activity, activity_fits
from tools.phrasebook.clauses import (
    DE_WOULD,
    DE_WOULD_HAVE,
    FUTURE,
    PAST,
    PRESENT,
    WOULD_LIKE,
    Form,
    clause,
    de_subordinate,
    de_verb,
    en_clause,
    zh_verb,
)
from tools.phrasebook.families import family
from tools.phrasebook.persons import (
    CHILDREN,
    ER,
    HE,
    OBJECTS,
    PEOPLE,
    SHE,
    WE,
    I,
    Someone,
    form_fits,
    in_question,
)
from tools.phrasebook.wording import (
    LAST_WEEKEND,
    NEXT_WEEKEND,
    NOTHING,
    TODAY,
    TOMORROW,
    TOMORROW_EVENING,
    YESTERDAY,
    Sentence,
    Words,
    question,
    statement,
    words,
)


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
