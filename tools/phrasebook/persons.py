"""People: how each is called as subject, object and owner in English, Chinese and German, and who goes with whom."""

from dataclasses import dataclass, replace
from typing import Literal

from tools.phrasebook.wording import (
    Words,
)

Person = Literal[0, 1, 2, 3]  # ich, du, er/sie, and the plural (wir and sie share every verb form)
ICH: Person = 0
DU: Person = 1
ER: Person = 2
WIR: Person = 3


@dataclass(frozen=True, eq=False)
class Someone:
    """A person as subject, as object, and as the owner of things ("his", 他的, "sein")."""

    en: str
    en_object: str
    zh: str
    de: str
    acc: str
    dat: str
    person: Person
    pronoun: Words
    own: Words  # English "his", Chinese "他的", the German "ein" word "sein"
    gender: Literal["m", "f", ""] = ""

    def __str__(self) -> str:
        return self.en


MY, YOUR = Words("my", "我的", "mein"), Words("your", "你的", "dein")
HIS, HER = Words("his", "他的", "sein"), Words("her", "她的", "ihr")
OUR, THEIR = Words("our", "我们的", "unser"), Words("their", "他们的", "ihr")
I_WORD, YOU_WORD = Words("I", "我", "ich"), Words("you", "你", "du")
HE_WORD, SHE_WORD = Words("he", "他", "er"), Words("she", "她", "sie")
WE_WORD, THEY_WORD = Words("we", "我们", "wir"), Words("they", "他们", "sie")

I = Someone("I", "me", "我", "ich", "mich", "mir", ICH, I_WORD, MY)
YOU = Someone("you", "you", "你", "du", "dich", "dir", DU, YOU_WORD, YOUR)
HE = Someone("he", "him", "他", "er", "ihn", "ihm", ER, HE_WORD, HIS, "m")
SHE = Someone("she", "her", "她", "sie", "sie", "ihr", ER, SHE_WORD, HER, "f")
WE = Someone("we", "us", "我们", "wir", "uns", "uns", WIR, WE_WORD, OUR)
THEY = Someone("they", "them", "他们", "sie", "sie", "ihnen", WIR, THEY_WORD, THEIR)


def relative(en: str, zh: str, de: str, acc: str, dat: str, gender: Literal["m", "f", ""]) -> Someone:
    pronoun, own = {"m": (HE_WORD, HIS), "f": (SHE_WORD, HER), "": (THEY_WORD, THEIR)}[gender]
    return Someone(en, en, zh, de, acc, dat, ER if gender else WIR, pronoun, own, gender)


MOTHER = relative("my mother", "我妈妈", "meine Mutter", "meine Mutter", "meiner Mutter", "f")
FATHER = relative("my father", "我爸爸", "mein Vater", "meinen Vater", "meinem Vater", "m")
PARENTS = relative("my parents", "我父母", "meine Eltern", "meine Eltern", "meinen Eltern", "")
OLDER_BROTHER = relative(
    "my older brother", "我哥哥", "mein älterer Bruder", "meinen älteren Bruder", "meinem älteren Bruder", "m"
)
YOUNGER_BROTHER = relative(
    "my younger brother", "我弟弟", "mein jüngerer Bruder", "meinen jüngeren Bruder", "meinem jüngeren Bruder", "m"
)
OLDER_SISTER = relative(
    "my older sister", "我姐姐", "meine ältere Schwester", "meine ältere Schwester", "meiner älteren Schwester", "f"
)
YOUNGER_SISTER = relative(
    "my younger sister",
    "我妹妹",
    "meine jüngere Schwester",
    "meine jüngere Schwester",
    "meiner jüngeren Schwester",
    "f",
)
GRANDMOTHER = relative("my grandmother", "我奶奶", "meine Großmutter", "meine Großmutter", "meiner Großmutter", "f")
GRANDFATHER = relative("my grandfather", "我爷爷", "mein Großvater", "meinen Großvater", "meinem Großvater", "m")
AUNT = relative("my aunt", "我阿姨", "meine Tante", "meine Tante", "meiner Tante", "f")
UNCLE = relative("my uncle", "我叔叔", "mein Onkel", "meinen Onkel", "meinem Onkel", "m")
NEIGHBOUR = relative("our neighbour", "我们邻居", "unser Nachbar", "unseren Nachbarn", "unserem Nachbarn", "m")
TEACHER = relative("our teacher", "我们老师", "unser Lehrer", "unseren Lehrer", "unserem Lehrer", "m")
FRIENDS = relative("my friends", "我的朋友们", "meine Freunde", "meine Freunde", "meinen Freunden", "")
CHILDREN = relative("the children", "孩子们", "die Kinder", "die Kinder", "den Kindern", "")

PRONOUNS = (I, YOU, HE, SHE, WE, THEY)
RELATIVES = (
    MOTHER,
    FATHER,
    PARENTS,
    OLDER_BROTHER,
    YOUNGER_BROTHER,
    OLDER_SISTER,
    YOUNGER_SISTER,
    GRANDMOTHER,
    GRANDFATHER,
    AUNT,
    UNCLE,
)
PEOPLE = (*PRONOUNS, *RELATIVES, NEIGHBOUR, TEACHER, FRIENDS, CHILDREN)
OBJECTS = tuple(someone for someone in PEOPLE if someone is not THEY)
GROWN_UPS = tuple(someone for someone in PEOPLE if someone is not CHILDREN)
ONE_PERSON = tuple(someone for someone in PEOPLE if someone.person != WIR)


def same_people(one: Someone, other: Someone) -> bool:
    """Whether the two share a person, so that one can hardly act on the other ("we help me")."""
    pair = {one.en, other.en}
    return one is other or pair == {"I", "we"} or ("my parents" in pair and bool(pair & {"my mother", "my father"}))


def _your(someone: Someone) -> Someone:
    if not someone.en.startswith(("my ", "our ")):
        return someone

    def turn(de: str) -> str:
        return "dein" + de.removeprefix("mein").removeprefix("unser")

    en = "your " + someone.en.split(" ", 1)[1]
    zh = "你" + someone.zh.removeprefix("我").removeprefix("们")
    return replace(
        someone, en=en, en_object=en, zh=zh, de=turn(someone.de), acc=turn(someone.acc), dat=turn(someone.dat)
    )


_IN_QUESTION = {someone.en: _your(someone) for someone in PEOPLE}


def in_question(someone: Someone) -> Someone:
    """One asks about your mother, not about one's own."""
    return _IN_QUESTION[someone.en]


def form_fits(someone: Someone, form: str) -> bool:
    """One hardly asks others what one does oneself."""
    return form != "question" or someone not in (I, WE)
