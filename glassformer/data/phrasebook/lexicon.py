"""The words of the built-in phrases: how each looks in English, Chinese and German, and how they join into a clause.

Tables first, and only as much machinery as the tables need: German endings, numbers, the clock, persons, and the clause
(who does what when) with do-support in English, 了 and 没 in Chinese, and the verb's places in German. Irregular forms
are written out, not derived, so that they can be read and checked.

This module knows no sentence patterns: see the modules beside it, one a topic.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

Gender = Literal["m", "f", "n"]
Case = Literal["nom", "acc", "dat"]


class Sentence(NamedTuple):
    en: str
    zh: str
    de: str


# ---------------------------------------------------------------------------------------------------------------------
# Putting words together


def words(*parts: str) -> str:
    return " ".join(filter(None, parts))


def capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def statement(en: str, zh: str, de: str) -> Sentence:
    return Sentence(capitalised(en) + ".", zh + "。", capitalised(de) + ".")


def question(en: str, zh: str, de: str) -> Sentence:
    return Sentence(capitalised(en) + "?", zh + "？", capitalised(de) + "?")


def a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


# German endings. "ein" words: ein, kein, mein, dein, sein, ihr, unser.
GERMAN_THE: dict[Case, dict[Gender, str]] = {
    "nom": {"m": "der", "f": "die", "n": "das"},
    "acc": {"m": "den", "f": "die", "n": "das"},
    "dat": {"m": "dem", "f": "der", "n": "dem"},
}
GERMAN_EIN: dict[Case, dict[Gender, str]] = {
    "nom": {"m": "", "f": "e", "n": ""},
    "acc": {"m": "en", "f": "e", "n": ""},
    "dat": {"m": "em", "f": "er", "n": "em"},
}
GERMAN_DIES: dict[Case, dict[Gender, str]] = {
    "nom": {"m": "dieser", "f": "diese", "n": "dieses"},
    "acc": {"m": "diesen", "f": "diese", "n": "dieses"},
    "dat": {"m": "diesem", "f": "dieser", "n": "diesem"},
}
ADJECTIVE_AFTER_EIN: dict[Case, dict[Gender, str]] = {
    "nom": {"m": "er", "f": "e", "n": "es"},
    "acc": {"m": "en", "f": "e", "n": "es"},
    "dat": {"m": "en", "f": "en", "n": "en"},
}
ADJECTIVE_AFTER_THE: dict[Case, dict[Gender, str]] = {
    "nom": {"m": "e", "f": "e", "n": "e"},
    "acc": {"m": "en", "f": "e", "n": "e"},
    "dat": {"m": "en", "f": "en", "n": "en"},
}


# ---------------------------------------------------------------------------------------------------------------------
# Numbers, clock and calendar

# fmt: off
EN_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
EN_TENS = ["_", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
DE_ONES = [
    "null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf",
    "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
]
DE_TENS = ["_", "zehn", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
# fmt: on
ZH_DIGITS = "零一二三四五六七八九"


def en_number(n: int) -> str:
    if n >= 100:
        return f"{EN_ONES[n // 100]} hundred"  # round hundreds only
    if n < 20:
        return EN_ONES[n]
    return EN_TENS[n // 10] + (f"-{EN_ONES[n % 10]}" if n % 10 else "")


def zh_number(n: int) -> str:
    if n >= 100:
        return f"{zh_count(n // 100)}百"
    tens, ones = divmod(n, 10)
    return ("" if tens == 0 else "十" if tens == 1 else f"{ZH_DIGITS[tens]}十") + (
        ZH_DIGITS[ones] if ones or not tens else ""
    )


def zh_count(n: int) -> str:
    """A number before a classifier: two things are 两, not 二."""
    return "两" if n == 2 else zh_number(n)


def de_number(n: int) -> str:
    if n >= 100:
        return ("ein" if n < 200 else DE_ONES[n // 100]) + "hundert"
    if n < 20:
        return DE_ONES[n]
    ones = "ein" if n % 10 == 1 else DE_ONES[n % 10]
    return (f"{ones}und" if n % 10 else "") + DE_TENS[n // 10]


def en_ordinal(n: int) -> str:
    irregular = {1: "first", 2: "second", 3: "third", 5: "fifth", 8: "eighth", 9: "ninth", 12: "twelfth"}
    if n > 20 and n % 10:
        return f"{EN_TENS[n // 10]}-{en_ordinal(n % 10)}"
    if n in irregular:
        return irregular[n]
    return en_number(n).removesuffix("y") + ("ieth" if n >= 20 else "th")


def de_ordinal_stem(n: int) -> str:
    irregular = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
    return irregular.get(n) or de_number(n) + ("t" if n < 20 else "st")


@dataclass(frozen=True, eq=False)
class Words:
    """The same thing said three times."""

    en: str
    zh: str
    de: str

    def __str__(self) -> str:
        return self.en


NOTHING = Words("", "", "")


@dataclass(frozen=True, eq=False)
class Minute:
    """How one says the minutes; from half past on, German (and at twenty to, English) counts from the next hour."""

    en: str
    zh: str
    de: str
    en_next: bool = False
    de_next: bool = False

    def __str__(self) -> str:
        return self.en


MINUTES = (
    Minute("{} o'clock", "{}点", "{} Uhr"),
    Minute("five past {}", "{}点五分", "fünf nach {}"),
    Minute("ten past {}", "{}点十分", "zehn nach {}"),
    Minute("a quarter past {}", "{}点一刻", "Viertel nach {}"),
    Minute("twenty past {}", "{}点二十分", "zwanzig nach {}"),
    Minute("half past {}", "{}点半", "halb {}", de_next=True),
    Minute("twenty to {}", "{}点四十分", "zwanzig vor {}", en_next=True, de_next=True),
    Minute("a quarter to {}", "{}点四十五分", "Viertel vor {}", en_next=True, de_next=True),
    Minute("ten to {}", "{}点五十分", "zehn vor {}", en_next=True, de_next=True),
    Minute("five to {}", "{}点五十五分", "fünf vor {}", en_next=True, de_next=True),
)
ROUND_MINUTES = tuple(minute for minute in MINUTES if minute.zh[-1] == "点" or minute.zh[-1] in "半刻")
HOURS = tuple(range(1, 13))


def clock(hour: int, minute: Minute) -> Words:
    following = hour % 12 + 1
    de_hour = de_number(following if minute.de_next else hour)
    return Words(
        minute.en.format(en_number(following if minute.en_next else hour)),
        minute.zh.format(zh_count(hour)),
        minute.de.format("ein" if de_hour == "eins" and minute.de == "{} Uhr" else de_hour),
    )


WEEKDAYS = (
    Words("Monday", "星期一", "Montag"),
    Words("Tuesday", "星期二", "Dienstag"),
    Words("Wednesday", "星期三", "Mittwoch"),
    Words("Thursday", "星期四", "Donnerstag"),
    Words("Friday", "星期五", "Freitag"),
    Words("Saturday", "星期六", "Samstag"),
    Words("Sunday", "星期天", "Sonntag"),
)


@dataclass(frozen=True, eq=False)
class Month:
    en: str
    de: str
    number: int
    days: int

    def __str__(self) -> str:
        return self.en


MONTHS = (
    Month("January", "Januar", 1, 31),
    Month("February", "Februar", 2, 29),
    Month("March", "März", 3, 31),
    Month("April", "April", 4, 30),
    Month("May", "Mai", 5, 31),
    Month("June", "Juni", 6, 30),
    Month("July", "Juli", 7, 31),
    Month("August", "August", 8, 31),
    Month("September", "September", 9, 30),
    Month("October", "Oktober", 10, 31),
    Month("November", "November", 11, 30),
    Month("December", "Dezember", 12, 31),
)
DAYS = tuple(range(1, 32))

TODAY = Words("today", "今天", "heute")
YESTERDAY = Words("yesterday", "昨天", "gestern")
TOMORROW = Words("tomorrow", "明天", "morgen")

LAST_SUNDAY = Words("last Sunday", "上个星期天", "letzten Sonntag")
LAST_WEEK = Words("last week", "上个星期", "letzte Woche")
LAST_WEEKEND = Words("last weekend", "上个周末", "letztes Wochenende")
TOMORROW_EVENING = Words("tomorrow evening", "明天晚上", "morgen Abend")
NEXT_SUNDAY = Words("next Sunday", "下个星期天", "nächsten Sonntag")
NEXT_WEEK = Words("next week", "下个星期", "nächste Woche")
NEXT_WEEKEND = Words("next weekend", "下个周末", "nächstes Wochenende")
EVERY_DAY = Words("every day", "每天", "jeden Tag")
EVERY_EVENING = Words("every evening", "每天晚上", "jeden Abend")
EVERY_WEEKEND = Words("every weekend", "每个周末", "jedes Wochenende")

PAST_TIMES = (
    YESTERDAY,
    Words("yesterday evening", "昨天晚上", "gestern Abend"),
    Words("the day before yesterday", "前天", "vorgestern"),
    LAST_SUNDAY,
    LAST_WEEK,
    LAST_WEEKEND,
)
FUTURE_TIMES = (
    TOMORROW,
    TOMORROW_EVENING,
    Words("the day after tomorrow", "后天", "übermorgen"),
    NEXT_SUNDAY,
    NEXT_WEEK,
    NEXT_WEEKEND,
)
NEAR_TIMES = (TODAY, TOMORROW, Words("this evening", "今天晚上", "heute Abend"), NEXT_SUNDAY, NEXT_WEEKEND)
HABITUAL_TIMES = (
    EVERY_DAY,
    EVERY_EVENING,
    Words("every Sunday", "每个星期天", "jeden Sonntag"),
    Words("every week", "每个星期", "jede Woche"),
    EVERY_WEEKEND,
)
FREQUENCIES = (
    Words("often", "经常", "oft"),
    Words("always", "总是", "immer"),
    Words("sometimes", "有时候", "manchmal"),
    Words("rarely", "很少", "selten"),
    Words("never", "从来不", "nie"),
)


# ---------------------------------------------------------------------------------------------------------------------
# People

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


# ---------------------------------------------------------------------------------------------------------------------
# Verbs and activities


@dataclass(frozen=True, eq=False)
class Verb:
    """English "go goes went going"; German "gehe gehst geht gehen gegangen", `de_prefix` where it is separable."""

    en: str
    de: str
    de_prefix: str = ""
    with_sein: bool = False

    @cached_property
    def en_forms(self) -> list[str]:
        return self.en.split()

    @cached_property
    def de_forms(self) -> list[str]:
        return self.de.split()


GO = Verb("go goes went going", "gehe gehst geht gehen gegangen", with_sein=True)
DRIVE = Verb("drive drives drove driving", "fahre fährst fährt fahren gefahren", with_sein=True)
RIDE = Verb("ride rides rode riding", DRIVE.de, with_sein=True)
DRINK = Verb("drink drinks drank drinking", "trinke trinkst trinkt trinken getrunken")
EAT = Verb("eat eats ate eating", "esse isst isst essen gegessen")
WATCH_TV = Verb("watch watches watched watching", "sehe siehst sieht sehen ferngesehen", "fern")
WATCH = Verb("watch watches watched watching", "sehe siehst sieht sehen gesehen")
READ = Verb("read reads read reading", "lese liest liest lesen gelesen")
LISTEN = Verb("listen listens listened listening", "höre hörst hört hören gehört")
PLAY = Verb("play plays played playing", "spiele spielst spielt spielen gespielt")
LEARN = Verb("learn learns learned learning", "lerne lernst lernt lernen gelernt")
STUDY = Verb("study studies studied studying", LEARN.de)
WRITE = Verb("write writes wrote writing", "schreibe schreibst schreibt schreiben geschrieben")
MAKE = Verb("do does did doing", "mache machst macht machen gemacht")
TAKE = Verb("take takes took taking", MAKE.de)
CLEAN = Verb("clean cleans cleaned cleaning", "putze putzt putzt putzen geputzt")
COOK = Verb("cook cooks cooked cooking", "koche kochst kocht kochen gekocht")
BAKE = Verb("bake bakes baked baking", "backe backst backt backen gebacken")
WORK = Verb("work works worked working", "arbeite arbeitest arbeitet arbeiten gearbeitet")
DANCE = Verb("dance dances danced dancing", "tanze tanzt tanzt tanzen getanzt")
SING = Verb("sing sings sang singing", "singe singst singt singen gesungen")
JOG = Verb("jog jogs jogged jogging", "jogge joggst joggt joggen gejoggt", with_sein=True)
SURF = Verb("surf surfs surfed surfing", "surfe surfst surft surfen gesurft")
WASH = Verb("wash washes washed washing", "wasche wäschst wäscht waschen gewaschen")
DO_LAUNDRY = Verb(MAKE.en, WASH.de)
DO_DISHES = Verb(WASH.en, "spüle spülst spült spülen gespült")
TIDY = Verb("tidy tidies tidied tidying", "räume räumst räumt räumen aufgeräumt", "auf")
TALK = Verb("talk talks talked talking", "spreche sprichst spricht sprechen gesprochen")
BUY = Verb("buy buys bought buying", "kaufe kaufst kauft kaufen gekauft")
REPAIR = Verb("repair repairs repaired repairing", "repariere reparierst repariert reparieren repariert")
PAINT = Verb("paint paints painted painting", "male malst malt malen gemalt")


@dataclass(frozen=True, eq=False)
class Activity:
    """What somebody does: a verb and what belongs to it; `de_not` is the same denied (kein, or nicht in its place)."""

    verb: Verb
    en_rest: str
    zh: str
    de: str
    de_not: str
    ongoing: bool = True  # one can be in the middle of it
    adults: bool = False

    def __str__(self) -> str:
        return words(self.verb.en_forms[0], self.en_rest)


def eating(en: str, zh: str, de: str, ein: str) -> Activity:
    return Activity(EAT, en, f"吃{zh}", de, f"{ein} {de}")


def drinking(en: str, zh: str, de: str, ein: str, adults: bool = False) -> Activity:
    return Activity(DRINK, en, f"喝{zh}", de, f"{ein} {de}", adults=adults)


def playing(en: str, zh: str, de: str) -> Activity:
    return Activity(PLAY, en, zh, de, f"nicht {de}")


def going_to(en: str, zh: str, de: str, adults: bool = False) -> Activity:
    return Activity(GO, en, zh, de, f"nicht {de}", ongoing=False, adults=adults)


ACTIVITIES = (
    drinking("coffee", "咖啡", "Kaffee", "keinen", adults=True),
    drinking("tea", "茶", "Tee", "keinen"),
    drinking("milk", "牛奶", "Milch", "keine"),
    drinking("beer", "啤酒", "Bier", "kein", adults=True),
    drinking("wine", "葡萄酒", "Wein", "keinen", adults=True),
    drinking("juice", "果汁", "Saft", "keinen"),
    eating("fish", "鱼", "Fisch", "keinen"),
    eating("meat", "肉", "Fleisch", "kein"),
    eating("fruit", "水果", "Obst", "kein"),
    eating("vegetables", "蔬菜", "Gemüse", "kein"),
    eating("cake", "蛋糕", "Kuchen", "keinen"),
    eating("bread", "面包", "Brot", "kein"),
    eating("noodles", "面条", "Nudeln", "keine"),
    eating("rice", "米饭", "Reis", "keinen"),
    playing("football", "踢足球", "Fußball"),
    playing("basketball", "打篮球", "Basketball"),
    playing("tennis", "打网球", "Tennis"),
    playing("table tennis", "打乒乓球", "Tischtennis"),
    playing("chess", "下棋", "Schach"),
    playing("the piano", "弹钢琴", "Klavier"),
    going_to("to the park", "去公园", "in den Park"),
    going_to("to the library", "去图书馆", "in die Bibliothek"),
    going_to("to the supermarket", "去超市", "in den Supermarkt"),
    going_to("to the museum", "去博物馆", "ins Museum"),
    going_to("to the cinema", "去电影院", "ins Kino"),
    going_to("to the theatre", "去剧院", "ins Theater"),
    going_to("to the market", "去市场", "auf den Markt"),
    going_to("to the zoo", "去动物园", "in den Zoo"),
    going_to("to the doctor", "去看医生", "zum Arzt"),
    going_to("to work", "去上班", "zur Arbeit", adults=True),
    going_to("shopping", "去买东西", "einkaufen"),
    going_to("swimming", "去游泳", "schwimmen"),
    going_to("for a walk", "去散步", "spazieren"),
    Activity(WATCH_TV, "TV", "看电视", "", "nicht"),
    Activity(WATCH, "a film", "看电影", "einen Film", "keinen Film"),
    Activity(READ, "a book", "看书", "ein Buch", "kein Buch"),
    Activity(READ, "the newspaper", "看报纸", "Zeitung", "keine Zeitung"),
    Activity(LISTEN, "to music", "听音乐", "Musik", "keine Musik"),
    Activity(LEARN, "Chinese", "学中文", "Chinesisch", "kein Chinesisch"),
    Activity(LEARN, "German", "学德语", "Deutsch", "kein Deutsch"),
    Activity(STUDY, "for the exam", "准备考试", "für die Prüfung", "nicht für die Prüfung"),
    Activity(WRITE, "an e-mail", "写电子邮件", "eine E-Mail", "keine E-Mail"),
    Activity(WRITE, "a letter", "写信", "einen Brief", "keinen Brief"),
    Activity(MAKE, "homework", "做作业", "Hausaufgaben", "keine Hausaufgaben"),
    Activity(TAKE, "photos", "拍照片", "Fotos", "keine Fotos"),
    Activity(CLEAN, "the kitchen", "打扫厨房", "die Küche", "die Küche nicht"),
    Activity(TIDY, "the living room", "收拾客厅", "das Wohnzimmer", "das Wohnzimmer nicht"),
    Activity(DO_LAUNDRY, "the laundry", "洗衣服", "die Wäsche", "die Wäsche nicht"),
    Activity(DO_DISHES, "the dishes", "洗碗", "das Geschirr", "das Geschirr nicht"),
    Activity(WASH, "the car", "洗车", "das Auto", "das Auto nicht", adults=True),
    Activity(REPAIR, "the bicycle", "修自行车", "das Fahrrad", "das Fahrrad nicht"),
    Activity(BAKE, "a cake", "烤蛋糕", "einen Kuchen", "keinen Kuchen"),
    Activity(BUY, "bread", "买面包", "Brot", "kein Brot"),
    Activity(BUY, "flowers", "买花", "Blumen", "keine Blumen"),
    Activity(TALK, "with friends", "和朋友聊天", "mit Freunden", "nicht mit Freunden"),
    Activity(RIDE, "a bicycle", "骑自行车", "Fahrrad", "nicht Fahrrad"),
    Activity(SURF, "the internet", "上网", "im Internet", "nicht im Internet"),
    Activity(COOK, "", "做饭", "", "nicht"),
    Activity(WORK, "", "工作", "", "nicht", adults=True),
    Activity(DANCE, "", "跳舞", "", "nicht"),
    Activity(SING, "", "唱歌", "", "nicht"),
    Activity(JOG, "", "跑步", "", "nicht"),
    Activity(PAINT, "", "画画", "", "nicht"),
)


def activity_fits(someone: Someone, activity: Activity) -> bool:
    if activity.adults and someone is CHILDREN:
        return False
    return not (someone is FRIENDS and activity.zh == "和朋友聊天")


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


def form_fits(someone: Someone, form: str) -> bool:
    """One hardly asks others what one does oneself."""
    return form != "question" or someone not in (I, WE)


# ---------------------------------------------------------------------------------------------------------------------
# Things, with classifier, gender and plural


@dataclass(frozen=True, eq=False)
class Thing:
    en: str
    en_plural: str
    zh: str
    classifier: str
    de: str
    de_plural: str
    gender: Gender

    def __str__(self) -> str:
        return self.en


CLOTHES = (
    Thing("jacket", "jackets", "夹克", "件", "Jacke", "Jacken", "f"),
    Thing("shirt", "shirts", "衬衫", "件", "Hemd", "Hemden", "n"),
    Thing("coat", "coats", "大衣", "件", "Mantel", "Mäntel", "m"),
    Thing("sweater", "sweaters", "毛衣", "件", "Pullover", "Pullover", "m"),
    Thing("dress", "dresses", "连衣裙", "条", "Kleid", "Kleider", "n"),
    Thing("skirt", "skirts", "裙子", "条", "Rock", "Röcke", "m"),
    Thing("scarf", "scarves", "围巾", "条", "Schal", "Schals", "m"),
    Thing("hat", "hats", "帽子", "顶", "Hut", "Hüte", "m"),
    Thing("bag", "bags", "包", "个", "Tasche", "Taschen", "f"),
    Thing("umbrella", "umbrellas", "雨伞", "把", "Regenschirm", "Regenschirme", "m"),
)
FURNITURE = (
    Thing("table", "tables", "桌子", "张", "Tisch", "Tische", "m"),
    Thing("bed", "beds", "床", "张", "Bett", "Betten", "n"),
    Thing("chair", "chairs", "椅子", "把", "Stuhl", "Stühle", "m"),
    Thing("lamp", "lamps", "台灯", "盏", "Lampe", "Lampen", "f"),
    Thing("sofa", "sofas", "沙发", "张", "Sofa", "Sofas", "n"),
)
VEHICLES = (
    Thing("bicycle", "bicycles", "自行车", "辆", "Fahrrad", "Fahrräder", "n"),
    Thing("car", "cars", "汽车", "辆", "Auto", "Autos", "n"),
)
DEVICES = (
    Thing("computer", "computers", "电脑", "台", "Computer", "Computer", "m"),
    Thing("camera", "cameras", "照相机", "台", "Kamera", "Kameras", "f"),
    Thing("mobile phone", "mobile phones", "手机", "部", "Handy", "Handys", "n"),
    Thing("watch", "watches", "手表", "块", "Armbanduhr", "Armbanduhren", "f"),
)
BOOKS = (
    Thing("book", "books", "书", "本", "Buch", "Bücher", "n"),
    Thing("dictionary", "dictionaries", "词典", "本", "Wörterbuch", "Wörterbücher", "n"),
    Thing("newspaper", "newspapers", "报纸", "份", "Zeitung", "Zeitungen", "f"),
    Thing("map", "maps", "地图", "张", "Landkarte", "Landkarten", "f"),
    Thing("pencil", "pencils", "铅笔", "支", "Bleistift", "Bleistifte", "m"),
)
SMALL_THINGS = (
    Thing("key", "keys", "钥匙", "把", "Schlüssel", "Schlüssel", "m"),
    Thing("knife", "knives", "刀", "把", "Messer", "Messer", "n"),
    Thing("cup", "cups", "杯子", "个", "Tasse", "Tassen", "f"),
    Thing("plate", "plates", "盘子", "个", "Teller", "Teller", "m"),
    Thing("ball", "balls", "球", "个", "Ball", "Bälle", "m"),
    Thing("suitcase", "suitcases", "箱子", "个", "Koffer", "Koffer", "m"),
)
FRUIT = (
    Thing("apple", "apples", "苹果", "个", "Apfel", "Äpfel", "m"),
    Thing("orange", "oranges", "橙子", "个", "Orange", "Orangen", "f"),
    Thing("banana", "bananas", "香蕉", "根", "Banane", "Bananen", "f"),
    Thing("pear", "pears", "梨", "个", "Birne", "Birnen", "f"),
    Thing("egg", "eggs", "鸡蛋", "个", "Ei", "Eier", "n"),
    Thing("tomato", "tomatoes", "西红柿", "个", "Tomate", "Tomaten", "f"),
    Thing("potato", "potatoes", "土豆", "个", "Kartoffel", "Kartoffeln", "f"),
)
ANIMALS = (
    Thing("cat", "cats", "猫", "只", "Katze", "Katzen", "f"),
    Thing("dog", "dogs", "狗", "条", "Hund", "Hunde", "m"),
    Thing("bird", "birds", "鸟", "只", "Vogel", "Vögel", "m"),
    Thing("rabbit", "rabbits", "兔子", "只", "Kaninchen", "Kaninchen", "n"),
    Thing("horse", "horses", "马", "匹", "Pferd", "Pferde", "n"),
)
KIN = (
    Thing("older brother", "older brothers", "哥哥", "个", "älter Bruder", "ältere Brüder", "m"),
    Thing("younger brother", "younger brothers", "弟弟", "个", "jünger Bruder", "jüngere Brüder", "m"),
    Thing("older sister", "older sisters", "姐姐", "个", "älter Schwester", "ältere Schwestern", "f"),
    Thing("younger sister", "younger sisters", "妹妹", "个", "jünger Schwester", "jüngere Schwestern", "f"),
    Thing("son", "sons", "儿子", "个", "Sohn", "Söhne", "m"),
    Thing("daughter", "daughters", "女儿", "个", "Tochter", "Töchter", "f"),
)
GOODS = (*CLOTHES, *FURNITURE, *VEHICLES, *DEVICES, *BOOKS)
BELONGINGS = (
    Thing("passport", "passports", "护照", "本", "Pass", "Pässe", "m"),
    Thing("wallet", "wallets", "钱包", "个", "Geldbeutel", "Geldbeutel", "m"),
    Thing("ticket", "tickets", "车票", "张", "Fahrkarte", "Fahrkarten", "f"),
    *(thing for thing in (*CLOTHES, *DEVICES, *BOOKS, *SMALL_THINGS) if thing.en not in ("knife", "cup", "plate")),
)


def wears(someone: Someone, thing: Thing) -> bool:
    return thing.en not in ("skirt", "dress") or someone.gender == "f" or someone in (I, YOU)


def some(count: int, thing: Thing, case: Case) -> Words:
    """ "a book", 一本书, "ein Buch"; "two books", 两本书, "zwei Bücher"."""
    zh = f"{zh_count(count)}{thing.classifier}{thing.zh}"
    if count > 1:
        return Words(f"{en_number(count)} {thing.en_plural}", zh, f"{de_number(count)} {thing.de_plural}")
    ein = f"ein{GERMAN_EIN[case][thing.gender]}"
    adjective, _, noun = thing.de.rpartition(" ")
    if adjective:
        adjective += ADJECTIVE_AFTER_EIN[case][thing.gender]
    return Words(a(thing.en), zh, words(ein, adjective, noun))


COLOURS = (
    Words("red", "红色", "rot"),
    Words("blue", "蓝色", "blau"),
    Words("green", "绿色", "grün"),
    Words("yellow", "黄色", "gelb"),
    Words("black", "黑色", "schwarz"),
    Words("white", "白色", "weiß"),
    Words("grey", "灰色", "grau"),
    Words("brown", "棕色", "braun"),
)
COLOURED = (*CLOTHES, *FURNITURE, *VEHICLES)


# ---------------------------------------------------------------------------------------------------------------------
# Food and drink


@dataclass(frozen=True, eq=False)
class Portion:
    """So much of something: "a cup of tea", 一杯茶, "eine Tasse Tee"."""

    en: str
    en_plural: str
    en_of: str
    classifier: str
    zh: str
    de: str
    de_plural: str
    gender: Gender
    de_of: str
    eaten: bool = False

    def __str__(self) -> str:
        return f"{self.en} of {self.en_of}"


def some_of(count: int, portion: Portion) -> Words:
    """A portion as an accusative object."""
    zh = f"{zh_count(count)}{portion.classifier}{portion.zh}"
    if count > 1:
        en, de = f"{en_number(count)} {portion.en_plural}", f"{de_number(count)} {portion.de_plural}"
    else:
        en, de = a(portion.en), f"ein{GERMAN_EIN['acc'][portion.gender]} {portion.de}"
    return Words(f"{en} of {portion.en_of}", zh, f"{de} {portion.de_of}")


def _cup(en: str, zh: str, de: str) -> Portion:
    return Portion("cup", "cups", en, "杯", zh, "Tasse", "Tassen", "f", de)


def _glass(en: str, zh: str, de: str) -> Portion:
    return Portion("glass", "glasses", en, "杯", zh, "Glas", "Gläser", "n", de)


def _bottle(en: str, zh: str, de: str) -> Portion:
    return Portion("bottle", "bottles", en, "瓶", zh, "Flasche", "Flaschen", "f", de)


PORTIONS = (
    _cup("tea", "茶", "Tee"),
    _cup("coffee", "咖啡", "Kaffee"),
    _cup("green tea", "绿茶", "grünen Tee"),
    _glass("water", "水", "Wasser"),
    _glass("milk", "牛奶", "Milch"),
    _glass("juice", "果汁", "Saft"),
    _glass("beer", "啤酒", "Bier"),
    _glass("wine", "葡萄酒", "Wein"),
    _bottle("water", "水", "Wasser"),
    _bottle("milk", "牛奶", "Milch"),
    _bottle("juice", "果汁", "Saft"),
    _bottle("beer", "啤酒", "Bier"),
    _bottle("wine", "葡萄酒", "Wein"),
    Portion("bowl", "bowls", "soup", "碗", "汤", "Schale", "Schalen", "f", "Suppe", eaten=True),
    Portion("bowl", "bowls", "rice", "碗", "米饭", "Schale", "Schalen", "f", "Reis", eaten=True),
    Portion("bowl", "bowls", "noodles", "碗", "面条", "Schale", "Schalen", "f", "Nudeln", eaten=True),
    Portion("piece", "pieces", "cake", "块", "蛋糕", "Stück", "Stück", "n", "Kuchen", eaten=True),
    Portion("piece", "pieces", "cheese", "块", "奶酪", "Stück", "Stück", "n", "Käse", eaten=True),
    Portion("piece", "pieces", "chocolate", "块", "巧克力", "Stück", "Stück", "n", "Schokolade", eaten=True),
    Portion("slice", "slices", "bread", "片", "面包", "Scheibe", "Scheiben", "f", "Brot", eaten=True),
    Portion("plate", "plates", "dumplings", "盘", "饺子", "Teller", "Teller", "m", "Teigtaschen", eaten=True),
    Portion("plate", "plates", "vegetables", "盘", "蔬菜", "Teller", "Teller", "m", "Gemüse", eaten=True),
)


@dataclass(frozen=True, eq=False)
class Food:
    """Something one likes or not; `zh_verb` says whether it is eaten or drunk, `kein` denies it in German."""

    en: str
    zh: str
    de: str
    kein: str
    zh_verb: str = "吃"
    gender: Gender | Literal["pl"] = "m"

    def __str__(self) -> str:
        return self.en


FOODS = (
    Food("fish", "鱼", "Fisch", "keinen", gender="m"),
    Food("meat", "肉", "Fleisch", "kein", gender="n"),
    Food("fruit", "水果", "Obst", "kein", gender="n"),
    Food("vegetables", "蔬菜", "Gemüse", "kein", gender="n"),
    Food("rice", "米饭", "Reis", "keinen", gender="m"),
    Food("noodles", "面条", "Nudeln", "keine", gender="pl"),
    Food("bread", "面包", "Brot", "kein", gender="n"),
    Food("cake", "蛋糕", "Kuchen", "keinen", gender="m"),
    Food("cheese", "奶酪", "Käse", "keinen", gender="m"),
    Food("chocolate", "巧克力", "Schokolade", "keine", gender="f"),
    Food("dumplings", "饺子", "Teigtaschen", "keine", gender="pl"),
    Food("eggs", "鸡蛋", "Eier", "keine", gender="pl"),
    Food("soup", "汤", "Suppe", "keine", "喝", gender="f"),
    Food("tea", "茶", "Tee", "keinen", "喝", gender="m"),
    Food("coffee", "咖啡", "Kaffee", "keinen", "喝", gender="m"),
    Food("milk", "牛奶", "Milch", "keine", "喝", gender="f"),
    Food("juice", "果汁", "Saft", "keinen", "喝", gender="m"),
    Food("beer", "啤酒", "Bier", "kein", "喝", gender="n"),
    Food("wine", "葡萄酒", "Wein", "keinen", "喝", gender="m"),
)


# ---------------------------------------------------------------------------------------------------------------------
# Places

HERE = Words("here", "这里", "hier")
EXCUSE_ME = Words("excuse me,", "请问，", "Entschuldigung,")
CITIES = (
    Words("Berlin", "柏林", "Berlin"),
    Words("Hamburg", "汉堡", "Hamburg"),
    Words("Munich", "慕尼黑", "München"),
    Words("Cologne", "科隆", "Köln"),
    Words("Vienna", "维也纳", "Wien"),
    Words("Zurich", "苏黎世", "Zürich"),
    Words("London", "伦敦", "London"),
    Words("Paris", "巴黎", "Paris"),
    Words("Rome", "罗马", "Rom"),
    Words("Moscow", "莫斯科", "Moskau"),
    Words("Beijing", "北京", "Peking"),
    Words("Shanghai", "上海", "Shanghai"),
    Words("Nanjing", "南京", "Nanjing"),
    Words("Tokyo", "东京", "Tokio"),
    Words("New York", "纽约", "New York"),
)
EUROPEAN_CITIES = CITIES[:9]


@dataclass(frozen=True, eq=False)
class Place:
    en: str
    zh: str
    de: str
    gender: Gender

    def __str__(self) -> str:
        return self.en

    @cached_property
    def the_de(self) -> str:
        return f"{GERMAN_THE['nom'][self.gender]} {self.de}"

    def de_after(self, preposition: str) -> str:
        """The place in the dative after a preposition, joined as German does: zum, zur, vom, im."""
        joined = {"zu dem": "zum", "zu der": "zur", "von dem": "vom", "in dem": "im"}
        start = f"{preposition} {GERMAN_THE['dat'][self.gender]}"
        for apart, together in joined.items():
            if start == apart or start.endswith(f" {apart}"):
                start = start.removesuffix(apart) + together
        return f"{start} {self.de}"


PLACES = (
    Place("train station", "火车站", "Bahnhof", "m"),
    Place("airport", "机场", "Flughafen", "m"),
    Place("bank", "银行", "Bank", "f"),
    Place("post office", "邮局", "Post", "f"),
    Place("hospital", "医院", "Krankenhaus", "n"),
    Place("pharmacy", "药店", "Apotheke", "f"),
    Place("supermarket", "超市", "Supermarkt", "m"),
    Place("bakery", "面包店", "Bäckerei", "f"),
    Place("bookshop", "书店", "Buchhandlung", "f"),
    Place("market", "市场", "Markt", "m"),
    Place("school", "学校", "Schule", "f"),
    Place("university", "大学", "Universität", "f"),
    Place("library", "图书馆", "Bibliothek", "f"),
    Place("museum", "博物馆", "Museum", "n"),
    Place("theatre", "剧院", "Theater", "n"),
    Place("cinema", "电影院", "Kino", "n"),
    Place("church", "教堂", "Kirche", "f"),
    Place("park", "公园", "Park", "m"),
    Place("zoo", "动物园", "Zoo", "m"),
    Place("swimming pool", "游泳池", "Schwimmbad", "n"),
    Place("hotel", "酒店", "Hotel", "n"),
    Place("restaurant", "餐厅", "Restaurant", "n"),
    Place("café", "咖啡馆", "Café", "n"),
)


@dataclass(frozen=True, eq=False)
class Vehicle:
    """A way to get from city to city; one flies in a German plane and drives in a German train."""

    en: str
    zh: str
    de: str
    de_forms: str = "fahre fährst fährt fahren gefahren"

    def __str__(self) -> str:
        return self.en


LONG_DISTANCE = (
    Vehicle("by train", "坐火车", "mit dem Zug"),
    Vehicle("by plane", "坐飞机", "mit dem Flugzeug", "fliege fliegst fliegt fliegen geflogen"),
    Vehicle("by bus", "坐大巴", "mit dem Bus"),
    Vehicle("by car", "开车", "mit dem Auto"),
)
IN_TOWN = (
    Vehicle("on foot", "走路", "zu Fuß"),
    Vehicle("by taxi", "坐出租车", "mit dem Taxi"),
    Vehicle("by underground", "坐地铁", "mit der U-Bahn"),
    Vehicle("by tram", "坐有轨电车", "mit der Straßenbahn"),
    Vehicle("by bicycle", "骑自行车", "mit dem Fahrrad"),
)
