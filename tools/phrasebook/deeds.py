"""What people feel for each other and do to each other."""

from dataclasses import dataclass

from tools.phrasebook.activities import Activity, Verb
from tools.phrasebook.clauses import FUTURE, PAST, Form, de_verb
from tools.phrasebook.families import family
from tools.phrasebook.persons import (
    AUNT,
    CHILDREN,
    ER,
    FATHER,
    FRIENDS,
    GRANDMOTHER,
    HE,
    MOTHER,
    NEIGHBOUR,
    OBJECTS,
    OLDER_BROTHER,
    PARENTS,
    PEOPLE,
    RELATIVES,
    SHE,
    TEACHER,
    THEY,
    UNCLE,
    WE,
    YOU,
    YOUNGER_SISTER,
    I,
    Someone,
    form_fits,
    in_question,
    same_people,
)
from tools.phrasebook.wording import (
    NEXT_WEEKEND,
    NOTHING,
    PAST_TIMES,
    YESTERDAY,
    Sentence,
    Words,
    question,
    statement,
    words,
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
