"""Who does what when: the clause that joins people and activities in English, Chinese and German.

Only as much machinery as the tables need: how something is, and the clause, with do-support in English, 了 and 没 in Chinese,
and the verb's places in German.
"""

from dataclasses import dataclass
from typing import Literal

from tools.phrasebook.activities import Activity
from tools.phrasebook.persons import ER, ICH, Person, Someone, in_question
from tools.phrasebook.wording import (
    HABITUAL_TIMES,
    YESTERDAY,
    Sentence,
    Words,
    question,
    statement,
    words,
)

# ---------------------------------------------------------------------------------------------------------------------
# "To be", and how very


def en_be(person: Person, past: bool, negated: bool) -> str:
    if past:
        be = "was" if person in (ICH, ER) else "were"
    else:
        be = ("am", "are", "is", "are")[person]
    if not negated:
        return be
    return "am not" if be == "am" else f"{be}n't"


DE_BE = ("bin", "bist", "ist", "sind")
DE_BE_PAST = ("war", "warst", "war", "waren")
DE_HAVE = ("habe", "hast", "hat", "haben")
DE_HAVE_PAST = ("hatte", "hattest", "hatte", "hatten")
DE_WOULD = ("würde", "würdest", "würde", "würden")
DE_WOULD_HAVE = ("hätte", "hättest", "hätte", "hätten")


@dataclass(frozen=True, eq=False)
class Degree:
    en: str
    zh: str
    zh_after: str
    de: str
    negated: bool = False
    asks: bool = False
    name: str = ""

    def __str__(self) -> str:
        return self.name or self.en


VERY = Degree("very", "很", "", "sehr")
REALLY = Degree("really", "真", "", "wirklich")
TOO = Degree("too", "太", "了", "zu")
A_BIT = Degree("a bit", "有点儿", "", "ein bisschen")
NOT = Degree("", "不", "", "nicht", negated=True, name="not")
NOT_VERY = Degree("very", "不太", "", "nicht sehr", negated=True, name="not very")
IS_IT = Degree("", "", "吗", "", asks=True, name="is it?")
DEGREES = (VERY, REALLY, TOO, A_BIT, NOT, NOT_VERY, IS_IT)


@dataclass(frozen=True, eq=False)
class Quality:
    """An adjective after "to be"; one is only "a bit" or "too" something unwelcome."""

    en: str
    zh: str
    de: str
    unwelcome: bool = False

    def __str__(self) -> str:
        return self.en


def degree_fits(degree: Degree, quality: Quality) -> bool:
    return quality.unwelcome or degree not in (TOO, A_BIT)


def is_so(en: str, zh: str, de: str, person: Person, degree: Degree, quality: Quality, time: Words) -> Sentence:
    """Something is very good today; the German time follows the verb (and subject), `zh` brings its own."""
    past = time is YESTERDAY
    be = en_be(person, past, degree.negated)
    de_be = (DE_BE_PAST if past else DE_BE)[person]
    zh_sentence = zh + degree.zh + quality.zh + degree.zh_after
    if degree.asks:
        return question(words(be, en, quality.en, time.en), zh_sentence, words(de_be, de, time.de, quality.de))
    return statement(
        words(en, be, degree.en, quality.en, time.en), zh_sentence, words(de, de_be, time.de, degree.de, quality.de)
    )


@dataclass(frozen=True, eq=False)
class Mood:
    """The tense or the modal verb of a clause.

    English: an auxiliary, its negation, and what links it to the verb ("would", "wouldn't", "like to"); without an
    auxiliary, `en_link` is put before the verb as its own verb with do-support ("have to", "has to"). Chinese: what
    stands before the verb, denied and not. German: the finite verb; the infinitive goes to the end of the clause.
    """

    name: str
    zh: str
    zh_not: str
    en_aux: str = ""
    en_not: str = ""
    en_link: str = ""
    de_finite: tuple[str, str, str, str] | None = None

    def __str__(self) -> str:
        return self.name


PRESENT = Mood("present", "", "不")
PAST = Mood("past", "", "没", en_aux="did", en_not="didn't")
FUTURE = Mood("will", "会", "不会", "will", "won't", "", ("werde", "wirst", "wird", "werden"))
WOULD_LIKE = Mood(
    "would like", "想", "不想", "would", "wouldn't", "like to", ("möchte", "möchtest", "möchte", "möchten")
)
HAVE_TO = Mood("have to", "必须", "不用", "", "", "have to", ("muss", "musst", "muss", "müssen"))
CAN = Mood("can", "能", "不能", "can", "can't", "", ("kann", "kannst", "kann", "können"))
SHOULD = Mood("should", "应该", "不应该", "should", "shouldn't", "", ("sollte", "solltest", "sollte", "sollten"))

Form = Literal["statement", "time first", "negation", "question"]
FORMS: tuple[Form, ...] = ("statement", "time first", "negation", "question")


def en_clause(someone: Someone, mood: Mood, activity: Activity, form: Form) -> str:
    base, he_form, past, _ = activity.verb.en_forms
    if mood.en_aux:
        plain, verb = base, words(mood.en_link, base, activity.en_rest)
        aux, aux_not = mood.en_aux, mood.en_not
    else:
        third = someone.person == ER
        aux, aux_not = ("does", "doesn't") if third else ("do", "don't")
        plain = words("has to" if third else "have to", base) if mood.en_link else he_form if third else base
        verb = words(mood.en_link, base, activity.en_rest)
    if form == "question":
        return words(aux, someone.en, verb)
    if form == "negation":
        return words(someone.en, aux_not, verb)
    if mood is PAST:
        return words(someone.en, past, activity.en_rest)
    if mood.en_aux:
        return words(someone.en, aux, verb)
    return words(someone.en, plain, activity.en_rest)


def zh_verb(mood: Mood, activity: Activity, form: Form) -> str:
    if form == "negation":
        return mood.zh_not + activity.zh
    return mood.zh + activity.zh + ("了" if mood is PAST else "") + ("吗" if form == "question" else "")


def de_verb(person: Person, mood: Mood, activity: Activity) -> tuple[str, str]:
    """The finite verb, and what goes to the end of a main clause: prefix, participle or infinitive."""
    verb = activity.verb
    forms = verb.de_forms
    if mood.de_finite:
        return mood.de_finite[person], verb.de_prefix + forms[3]
    if mood is PAST:
        return (DE_BE if verb.with_sein else DE_HAVE)[person], forms[4]
    return forms[person], verb.de_prefix


def de_subordinate(someone: Someone, mood: Mood, time: str, activity: Activity, negated: bool = False) -> str:
    """The clause after dass, weil, wenn: the finite verb last, a separable prefix joined to it."""
    finite, end = de_verb(someone.person, mood, activity)
    tail = end + finite if mood is PRESENT else words(end, finite)
    return words(someone.de, time, activity.de_not if negated else activity.de, tail)


def clause(someone: Someone, mood: Mood, activity: Activity, time: Words, form: Form) -> Sentence:
    """Who does what when: the workhorse."""
    if form == "question":
        someone = in_question(someone)
    en = en_clause(someone, mood, activity, form)
    zh_every = "都" if time in HABITUAL_TIMES else ""
    zh = zh_every + zh_verb(mood, activity, form)
    finite, end = de_verb(someone.person, mood, activity)
    if form == "question":
        return question(
            words(en, time.en),
            someone.zh + time.zh + zh,
            words(finite, someone.de, time.de, activity.de, end),
        )
    if form == "time first":
        return statement(
            words(time.en, en), time.zh + someone.zh + zh, words(time.de, finite, someone.de, activity.de, end)
        )
    rest = activity.de_not if form == "negation" else activity.de
    return statement(words(en, time.en), someone.zh + time.zh + zh, words(someone.de, finite, time.de, rest, end))
