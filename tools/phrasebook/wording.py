"""How words join into sentences: capitals and full stops, German endings, numbers, the clock and the calendar.

Irregular forms are written out, not derived, so that they can be read and checked.
"""

from dataclasses import dataclass
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

EXCUSE_ME = Words("excuse me,", "请问，", "Entschuldigung,")
