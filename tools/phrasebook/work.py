"""Work and school: subjects, languages, skills, workplaces."""

from tools.phrasebook.activities import WORK, Activity, Verb
from tools.phrasebook.clauses import (
    CAN,
    DEGREES,
    FUTURE,
    NOT,
    PAST,
    PRESENT,
    WOULD_LIKE,
    Degree,
    Form,
    Quality,
    clause,
    degree_fits,
)
from tools.phrasebook.families import family
from tools.phrasebook.persons import ER, GROWN_UPS, PEOPLE, WE, I, Someone, form_fits, in_question
from tools.phrasebook.shopping import When
from tools.phrasebook.wording import NOTHING, Sentence, Words, question, statement, words

SCHOOL_SUBJECTS = (
    Words("mathematics", "数学", "Mathematik"),
    Words("physics", "物理", "Physik"),
    Words("chemistry", "化学", "Chemie"),
    Words("biology", "生物", "Biologie"),
    Words("history", "历史", "Geschichte"),
    Words("geography", "地理", "Erdkunde"),
    Words("English", "英语", "Englisch"),
    Words("German", "德语", "Deutsch"),
    Words("Chinese", "中文", "Chinesisch"),
)


@family(
    "work",
    ("someone", "subject"),
    where=lambda someone, subject, quality, degree: (
        degree_fits(degree, quality) and not (degree.asks and someone in (I, WE))
    ),
    someone=PEOPLE,
    subject=SCHOOL_SUBJECTS,
    quality=(
        Quality("difficult", "难", "schwierig", unwelcome=True),
        Quality("easy", "容易", "leicht"),
        Quality("interesting", "有意思", "interessant"),
        Quality("boring", "无聊", "langweilig", unwelcome=True),
        Quality("useful", "有用", "nützlich"),
    ),
    degree=DEGREES,
)
def finds(someone: Someone, subject: Words, quality: Quality, degree: Degree) -> Sentence:
    if degree.asks:
        someone = in_question(someone)
    third = someone.person == ER
    finite = ("finde", "findest", "findet", "finden")[someone.person]
    zh = f"{someone.zh}觉得{subject.zh}{degree.zh}{quality.zh}{degree.zh_after}"
    if degree is NOT:
        zh = f"{someone.zh}不觉得{subject.zh}{quality.zh}"
    if degree.asks:
        return question(
            words("does" if third else "do", someone.en, "find", subject.en, quality.en),
            zh,
            words(finite, someone.de, subject.de, quality.de),
        )
    verb = "find"
    if degree.negated:
        verb = "doesn't find" if third else "don't find"
    elif third:
        verb = "finds"
    return statement(
        words(someone.en, verb, subject.en, degree.en, quality.en),
        zh,
        words(someone.de, finite, subject.de, degree.de, quality.de),
    )


LANGUAGES = (
    Words("English", "英语", "Englisch"),
    Words("German", "德语", "Deutsch"),
    Words("Chinese", "中文", "Chinesisch"),
    Words("French", "法语", "Französisch"),
    Words("Spanish", "西班牙语", "Spanisch"),
    Words("Italian", "意大利语", "Italienisch"),
    Words("Russian", "俄语", "Russisch"),
    Words("Japanese", "日语", "Japanisch"),
)


@family(
    "work",
    ("language", "other_language"),
    where=lambda someone, language, other_language, no_language: (
        len({language, other_language, no_language}) == 3 and language.en < other_language.en
    ),
    someone=PEOPLE,
    language=LANGUAGES,
    other_language=LANGUAGES,
    no_language=LANGUAGES,
)
def speaks(someone: Someone, language: Words, other_language: Words, no_language: Words) -> Sentence:
    speak = "speaks" if someone.person == ER else "speak"
    spricht = ("spreche", "sprichst", "spricht", "sprechen")[someone.person]
    return statement(
        f"{someone.en} {speak} {language.en} and {other_language.en}, but no {no_language.en}",
        f"{someone.zh}会说{language.zh}和{other_language.zh}，但是不会说{no_language.zh}",
        f"{someone.de} {spricht} {language.de} und {other_language.de}, aber kein {no_language.de}",
    )


SKILLS = tuple(
    [
        Activity(Verb("speak", "_ _ _ sprechen _"), language.en, f"说{language.zh}", language.de, f"kein {language.de}")
        for language in LANGUAGES
    ]
    + [
        Activity(Verb("swim", "_ _ _ schwimmen _"), "", "游泳", "", "nicht"),
        Activity(Verb("drive", "_ _ _ fahren _"), "", "开车", "Auto", "nicht Auto"),
        Activity(Verb("ride", "_ _ _ fahren _"), "a bicycle", "骑自行车", "Fahrrad", "nicht Fahrrad"),
        Activity(Verb("ride", "_ _ _ reiten _"), "a horse", "骑马", "", "nicht"),
        Activity(Verb("ski", "_ _ _ fahren _"), "", "滑雪", "Ski", "nicht Ski"),
        Activity(Verb("cook", "_ _ _ kochen _"), "", "做饭", "", "nicht"),
        Activity(Verb("dance", "_ _ _ tanzen _"), "", "跳舞", "", "nicht"),
        Activity(Verb("play", "_ _ _ spielen _"), "the piano", "弹钢琴", "Klavier", "nicht Klavier"),
        Activity(Verb("play", "_ _ _ spielen _"), "the guitar", "弹吉他", "Gitarre", "nicht Gitarre"),
        Activity(Verb("play", "_ _ _ spielen _"), "chess", "下棋", "Schach", "nicht Schach"),
    ]
)


def verb_base(activity: Activity) -> str:
    return words(activity.verb.en_forms[0], activity.en_rest)


@family(
    "work",
    ("someone", "skill"),
    where=lambda someone, skill, form: form_fits(someone, form),
    someone=PEOPLE,
    skill=SKILLS,
    form=("statement", "well", "negation", "question"),
)
def can_do(someone: Someone, skill: Activity, form: str) -> Sentence:
    assert CAN.de_finite
    finite, infinitive = CAN.de_finite[someone.person], skill.verb.de_forms[3]
    base = verb_base(skill)
    if form == "question":
        someone = in_question(someone)
        return question(
            f"can {someone.en} {base}", f"{someone.zh}会{skill.zh}吗", words(finite, someone.de, skill.de, infinitive)
        )
    if form == "negation":
        return statement(
            f"{someone.en} can't {base}",
            f"{someone.zh}不会{skill.zh}",
            words(someone.de, finite, skill.de_not, infinitive),
        )
    if form == "well":
        return statement(
            f"{someone.en} can {base} very well",
            f"{someone.zh}很会{skill.zh}",
            words(someone.de, finite, "sehr gut", skill.de, infinitive),
        )
    return statement(
        f"{someone.en} can {base}", f"{someone.zh}会{skill.zh}", words(someone.de, finite, skill.de, infinitive)
    )


WORKPLACES = (
    Words("at a hospital", "医院", "in einem Krankenhaus"),
    Words("at a bank", "银行", "bei einer Bank"),
    Words("at a school", "学校", "an einer Schule"),
    Words("at a university", "大学", "an einer Universität"),
    Words("at a hotel", "酒店", "in einem Hotel"),
    Words("at a restaurant", "餐厅", "in einem Restaurant"),
    Words("at a supermarket", "超市", "in einem Supermarkt"),
    Words("at a museum", "博物馆", "in einem Museum"),
    Words("at a library", "图书馆", "in einer Bibliothek"),
    Words("at a pharmacy", "药店", "in einer Apotheke"),
    Words("at a bookshop", "书店", "in einer Buchhandlung"),
    Words("at a factory", "工厂", "in einer Fabrik"),
    Words("at an office", "办公室", "in einem Büro"),
)
LAST_YEAR, NEXT_YEAR = Words("last year", "去年", "letztes Jahr"), Words("next year", "明年", "nächstes Jahr")


@family(
    "work",
    ("someone", "workplace"),
    where=lambda someone, workplace, when, form: form_fits(someone, form),
    someone=GROWN_UPS,
    workplace=WORKPLACES,
    when=(
        When(PRESENT, NOTHING, "statement"),
        When(PAST, LAST_YEAR, "statement"),
        When(FUTURE, NEXT_YEAR, "statement"),
        When(WOULD_LIKE, NOTHING, "statement"),
    ),
    form=("statement", "negation", "question"),
)
def works_at(someone: Someone, workplace: Words, when: When, form: Form) -> Sentence:
    activity = Activity(WORK, workplace.en, f"在{workplace.zh}工作", workplace.de, f"nicht {workplace.de}")
    en, zh, de = clause(someone, when.mood, activity, when.time, form)
    if when.mood is PAST:  # a lasting state takes no 了
        zh = zh.replace("工作了", "工作")
    return Sentence(en, zh, de)
