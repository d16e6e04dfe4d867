"""Family and friends: who has whom, how they are, how old, and what they work as."""

from dataclasses import dataclass

from tools.phrasebook.clauses import (
    DE_BE,
    DE_HAVE,
    DEGREES,
    FUTURE,
    REALLY,
    Degree,
    Quality,
    degree_fits,
    en_be,
    is_so,
)
from tools.phrasebook.families import family
from tools.phrasebook.persons import (
    AUNT,
    ER,
    FATHER,
    GRANDFATHER,
    GRANDMOTHER,
    HE,
    MOTHER,
    NEIGHBOUR,
    OBJECTS,
    OLDER_BROTHER,
    OLDER_SISTER,
    ONE_PERSON,
    PEOPLE,
    PRONOUNS,
    SHE,
    TEACHER,
    UNCLE,
    WE,
    YOU,
    YOUNGER_BROTHER,
    YOUNGER_SISTER,
    I,
    Someone,
    form_fits,
    in_question,
    same_people,
)
from tools.phrasebook.things import ANIMALS, KIN, Thing, some
from tools.phrasebook.wording import (
    NOTHING,
    TODAY,
    YESTERDAY,
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
