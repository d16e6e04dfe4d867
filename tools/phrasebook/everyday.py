"""Everyday life: who does what when."""

from tools.phrasebook.activities import ACTIVITIES, Activity, activity_fits
from tools.phrasebook.clauses import (
    CAN,
    FORMS,
    FUTURE,
    HAVE_TO,
    PAST,
    PRESENT,
    SHOULD,
    Form,
    Mood,
    clause,
    de_verb,
    en_be,
)
from tools.phrasebook.families import family
from tools.phrasebook.persons import ER, PEOPLE, Someone, form_fits, in_question
from tools.phrasebook.wording import (
    EVERY_DAY,
    EVERY_EVENING,
    EVERY_WEEKEND,
    FREQUENCIES,
    LAST_SUNDAY,
    LAST_WEEK,
    NEXT_SUNDAY,
    NEXT_WEEK,
    TODAY,
    TOMORROW,
    YESTERDAY,
    Sentence,
    Words,
    question,
    statement,
    words,
)


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
