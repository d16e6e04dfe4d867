"""Who does what when: people, verbs, activities, and the clause that joins them in English, Chinese and German.

Tables first, and only as much machinery as the tables need: persons, how something is, and the clause, with do-support in
English, 了 and 没 in Chinese, and the verb's places in German. Irregular forms are written out, not derived, so that they can
be read and checked.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from glassformer.data.builtin.phrasebook.wording import (
    HABITUAL_TIMES,
    YESTERDAY,
    Sentence,
    Words,
    question,
    statement,
    words,
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
