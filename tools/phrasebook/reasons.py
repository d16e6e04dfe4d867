"""Reasons: because, and in order to."""

from dataclasses import dataclass

from tools.phrasebook.activities import ACTIVITIES, Activity, activity_fits, going_to
from tools.phrasebook.clauses import (
    DE_BE_PAST,
    DE_HAVE_PAST,
    FUTURE,
    PAST,
    PRESENT,
    de_verb,
    en_be,
    en_clause,
)
from tools.phrasebook.families import family
from tools.phrasebook.persons import FRIENDS, PEOPLE, Someone
from tools.phrasebook.wording import (
    EVERY_DAY,
    EVERY_WEEKEND,
    FUTURE_TIMES,
    HABITUAL_TIMES,
    PAST_TIMES,
    YESTERDAY,
    Sentence,
    Words,
    statement,
    words,
)


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
