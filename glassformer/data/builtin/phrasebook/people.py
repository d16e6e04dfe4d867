"""Family and friends: who has whom, how they are and what they do to each other."""

from dataclasses import dataclass

from glassformer.data.builtin.phrasebook.clauses import (
    AUNT,
    CHILDREN,
    DE_BE,
    DE_HAVE,
    DEGREES,
    ER,
    FATHER,
    FRIENDS,
    FUTURE,
    GRANDFATHER,
    GRANDMOTHER,
    HE,
    MOTHER,
    NEIGHBOUR,
    OBJECTS,
    OLDER_BROTHER,
    OLDER_SISTER,
    ONE_PERSON,
    PARENTS,
    PAST,
    PEOPLE,
    PRONOUNS,
    REALLY,
    RELATIVES,
    SHE,
    TEACHER,
    THEY,
    UNCLE,
    WE,
    YOU,
    YOUNGER_BROTHER,
    YOUNGER_SISTER,
    Activity,
    Degree,
    Form,
    I,
    Quality,
    Someone,
    Verb,
    de_verb,
    degree_fits,
    en_be,
    form_fits,
    in_question,
    is_so,
    same_people,
)
from glassformer.data.builtin.phrasebook.families import family
from glassformer.data.builtin.phrasebook.things import ANIMALS, KIN, Thing, some
from glassformer.data.builtin.phrasebook.wording import (
    NEXT_WEEKEND,
    NOTHING,
    PAST_TIMES,
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
