"""Questions: why, when, who, what."""

from tools.phrasebook.activities import (
    ACTIVITIES,
    BUY,
    DRINK,
    EAT,
    LEARN,
    MAKE,
    PAINT,
    READ,
    REPAIR,
    SING,
    WRITE,
    Activity,
    activity_fits,
)
from tools.phrasebook.clauses import (
    CAN,
    FUTURE,
    HAVE_TO,
    PAST,
    PRESENT,
    WOULD_LIKE,
    Mood,
    de_verb,
    en_clause,
    zh_verb,
)
from tools.phrasebook.families import family
from tools.phrasebook.persons import (
    ER,
    FATHER,
    HE,
    HE_WORD,
    HIS,
    MOTHER,
    NEIGHBOUR,
    PARENTS,
    PEOPLE,
    SHE,
    TEACHER,
    THEY,
    WE,
    YOU,
    I,
    Someone,
    in_question,
)
from tools.phrasebook.shopping import When
from tools.phrasebook.times import EVENTS, Event, en_third
from tools.phrasebook.wording import (
    FUTURE_TIMES,
    HABITUAL_TIMES,
    NEAR_TIMES,
    NOTHING,
    PAST_TIMES,
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
