"""The built-in phrases: right in three languages, one meaning each way, and splits that hold out combinations."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from inspect import signature
from itertools import permutations
from typing import NamedTuple

import pytest

from glassformer.data.builtin import phrases
from glassformer.data.builtin.phrasebook import FAMILIES
from glassformer.data.builtin.phrases import DIRECTIONS, open_phrases, split_of, topic_of
from glassformer.errors import UserError
from tests.programs import run_program


class Known(NamedTuple):
    """A triple, the split it belongs to, its family, and its fillers as "slot=filler"."""

    en: str
    zh: str
    de: str
    split: str
    family: str
    fillers: tuple[str, ...]


@pytest.fixture(scope="module")
def everything() -> list[Known]:
    known = []
    for line in run_program("all_triples").splitlines():
        en, zh, de, split, family, *fillers = line.split("\t")
        known.append(Known(en, zh, de, split, family, tuple(fillers)))
    return known


# Written by hand, not by the grammar.
BY_HAND: list[tuple[str, str, str]] = [
    # plain and short
    ("I like you.", "我喜欢你。", "Ich mag dich."),
    ("The weather is really nice today.", "今天天气真好。", "Das Wetter ist heute wirklich schön."),
    ("Is the weather in Berlin nice today?", "今天柏林的天气好吗？", "Ist das Wetter in Berlin heute schön?"),
    # English agreement and do-support; German verb forms, Fugen-e, vowel change
    ("He likes to drink tea.", "他喜欢喝茶。", "Er trinkt gern Tee."),
    ("They like to drink tea.", "他们喜欢喝茶。", "Sie trinken gern Tee."),
    ("She likes to drink tea.", "她喜欢喝茶。", "Sie trinkt gern Tee."),
    ("Does he know you?", "他认识你吗？", "Kennt er dich?"),
    ("My older brother doesn't like to dance.", "我哥哥不喜欢跳舞。", "Mein älterer Bruder tanzt nicht gern."),
    ("You read the newspaper every evening.", "你每天晚上都看报纸。", "Du liest jeden Abend Zeitung."),
    ("Are you working?", "你正在工作吗？", "Arbeitest du gerade?"),
    ("My mother isn't tired today.", "我妈妈今天不累。", "Meine Mutter ist heute nicht müde."),
    ("I am not hungry.", "我不饿。", "Ich bin nicht hungrig."),
    (
        "The children were a bit nervous yesterday.",
        "孩子们昨天有点儿紧张。",
        "Die Kinder waren gestern ein bisschen nervös.",
    ),
    # a and an; professions by gender
    ("My aunt is an engineer.", "我阿姨是工程师。", "Meine Tante ist Ingenieurin."),
    ("My father isn't a doctor.", "我爸爸不是医生。", "Mein Vater ist kein Arzt."),
    ("My mother used to be a teacher.", "我妈妈以前是老师。", "Meine Mutter war früher Lehrerin."),
    # classifiers, 两 and 二, plurals
    ("I bought a book yesterday.", "我昨天买了一本书。", "Ich habe gestern ein Buch gekauft."),
    ("She has two cats.", "她有两只猫。", "Sie hat zwei Katzen."),
    ("He would like three cups of tea.", "他想要三杯茶。", "Er möchte drei Tassen Tee."),
    (
        "It is twenty-two degrees in Beijing today.",
        "今天北京二十二度。",
        "In Peking sind es heute zweiundzwanzig Grad.",
    ),
    ("Last week we bought four shirts.", "上个星期我们买了四件衬衫。", "Letzte Woche haben wir vier Hemden gekauft."),
    ("We have an older brother.", "我们有一个哥哥。", "Wir haben einen älteren Bruder."),
    ("There are no apples on the table.", "桌子上没有苹果。", "Auf dem Tisch sind keine Äpfel."),
    ("There is a key in the box.", "盒子里有一把钥匙。", "In der Kiste ist ein Schlüssel."),
    # past, future, negation with 没 and 不
    ("I didn't drink coffee yesterday.", "我昨天没喝咖啡。", "Ich habe gestern keinen Kaffee getrunken."),
    (
        "Did your parents go to the park last week?",
        "你父母上个星期去公园了吗？",
        "Sind deine Eltern letzte Woche in den Park gegangen?",
    ),
    (
        "My younger sister won't watch TV tomorrow.",
        "我妹妹明天不会看电视。",
        "Meine jüngere Schwester wird morgen nicht fernsehen.",
    ),
    ("He never eats meat.", "他从来不吃肉。", "Er isst nie Fleisch."),
    ("Will it rain in Hamburg tomorrow?", "明天汉堡会下雨吗？", "Wird es morgen in Hamburg regnen?"),
    # modal verbs: the infinitive last
    ("My father has to work today.", "我爸爸今天必须工作。", "Mein Vater muss heute arbeiten."),
    ("You don't have to clean the kitchen today.", "你今天不用打扫厨房。", "Du musst heute die Küche nicht putzen."),
    ("I can't find my passport.", "我找不到我的护照。", "Ich kann meinen Pass nicht finden."),
    ("She can't speak Japanese.", "她不会说日语。", "Sie kann kein Japanisch sprechen."),
    # verb second and separable verbs
    ("Every evening he watches TV.", "每天晚上他都看电视。", "Jeden Abend sieht er fern."),
    (
        "The train leaves at half past three tomorrow.",
        "火车明天三点半出发。",
        "Der Zug fährt morgen um halb vier ab.",
    ),
    (
        "Do you get up at half past six every morning?",
        "你每天早上六点半起床吗？",
        "Stehst du jeden Morgen um halb sieben auf?",
    ),
    ("It is a quarter to one now.", "现在十二点四十五分。", "Es ist jetzt Viertel vor eins."),
    ("It is one o'clock now.", "现在一点。", "Es ist jetzt ein Uhr."),
    (
        "Please close the window before you go to bed.",
        "你睡觉以前，请关上窗户。",
        "Bitte mach das Fenster zu, bevor du ins Bett gehst.",
    ),
    # subordinate clauses: the verb last
    (
        "Because he was ill, he didn't go to work yesterday.",
        "因为他生病了，所以他昨天没去上班。",
        "Weil er krank war, ist er gestern nicht zur Arbeit gegangen.",
    ),
    (
        "If it rains tomorrow, we won't go to the zoo.",
        "如果明天下雨，我们就不去动物园。",
        "Wenn es morgen regnet, gehen wir nicht in den Zoo.",
    ),
    (
        "I hope that she will bake a cake tomorrow.",
        "我希望她明天会烤蛋糕。",
        "Ich hoffe, dass sie morgen einen Kuchen backen wird.",
    ),
    ("Do you know where the bank is?", "你知道银行在哪里吗？", "Weißt du, wo die Bank ist?"),
    ("He doesn't know when the bus arrives.", "他不知道大巴什么时候到。", "Er weiß nicht, wann der Bus ankommt."),
    (
        "If I had time, I would go swimming.",
        "如果我有时间，我就会去游泳。",
        "Wenn ich Zeit hätte, würde ich schwimmen gehen.",
    ),
    # accusative and dative
    (
        "My grandmother needs a black coat.",
        "我奶奶需要一件黑色的大衣。",
        "Meine Großmutter braucht einen schwarzen Mantel.",
    ),
    ("Yesterday I helped my father.", "昨天我帮助了我爸爸。", "Gestern habe ich meinem Vater geholfen."),
    (
        "My mother bought me a bag yesterday.",
        "我妈妈昨天给我买了一个包。",
        "Meine Mutter hat mir gestern eine Tasche gekauft.",
    ),
    (
        "This umbrella doesn't belong to our neighbour.",
        "这把雨伞不是我们邻居的。",
        "Dieser Regenschirm gehört unserem Nachbarn nicht.",
    ),
    (
        "We will go to Vienna by train tomorrow.",
        "我们明天会坐火车去维也纳。",
        "Wir werden morgen mit dem Zug nach Wien fahren.",
    ),
    (
        "Last week she went to Rome by plane.",
        "上个星期她坐飞机去了罗马。",
        "Letzte Woche ist sie mit dem Flugzeug nach Rom geflogen.",
    ),
    ("The museum is opposite the church.", "博物馆在教堂对面。", "Das Museum ist gegenüber der Kirche."),
    (
        "Excuse me, how do I get to the train station?",
        "请问，去火车站怎么走？",
        "Entschuldigung, wie komme ich zum Bahnhof?",
    ),
    ("Is there a pharmacy near here?", "这附近有药店吗？", "Gibt es hier in der Nähe eine Apotheke?"),
    # comparison, age, dates, prices, food
    ("I am much taller than her.", "我比她高得多。", "Ich bin viel größer als sie."),
    ("He is two years older than me.", "他比我大两岁。", "Er ist zwei Jahre älter als ich."),
    ("My mother is forty-two years old.", "我妈妈四十二岁。", "Meine Mutter ist zweiundvierzig Jahre alt."),
    ("My birthday is on the third of May.", "我的生日是五月三号。", "Ich habe am dritten Mai Geburtstag."),
    (
        "Today is Tuesday, the twenty-first of February.",
        "今天是二月二十一号，星期二。",
        "Heute ist Dienstag, der einundzwanzigste Februar.",
    ),
    ("This hat costs twenty-one euros.", "这顶帽子二十一欧元。", "Dieser Hut kostet einundzwanzig Euro."),
    ("This red dress is too expensive.", "这条红色的连衣裙太贵了。", "Dieses rote Kleid ist zu teuer."),
    (
        "My father likes fish but not cheese.",
        "我爸爸喜欢吃鱼，但是不喜欢吃奶酪。",
        "Mein Vater mag Fisch, aber keinen Käse.",
    ),
    ("The soup here tastes very good.", "这里的汤很好喝。", "Die Suppe hier schmeckt sehr gut."),
    ("He has lived in Berlin for three years.", "他在柏林住了三年了。", "Er wohnt seit drei Jahren in Berlin."),
    ("Have you ever been to Paris?", "你去过巴黎吗？", "Warst du schon einmal in Paris?"),
    (
        "What did your older sister buy yesterday?",
        "你姐姐昨天买了什么？",
        "Was hat deine ältere Schwester gestern gekauft?",
    ),
    ("Who would like to play chess tomorrow?", "谁明天想下棋？", "Wer möchte morgen Schach spielen?"),
    ("I wish you a good journey.", "我祝你旅途愉快。", "Ich wünsche dir eine gute Reise."),
]


@pytest.mark.slow
def test_sentences_by_hand(everything: list[Known]) -> None:
    """A wrong classifier, case, verb form or word order in the grammar shows here."""
    written = {triple.en: (triple.zh, triple.de) for triple in everything}
    assert {en: written.get(en) for en, _, _ in BY_HAND} == {en: (zh, de) for en, zh, de in BY_HAND}
    assert len(BY_HAND) >= 60


@pytest.mark.slow
def test_at_least_200_000_triples(everything: list[Known]) -> None:
    assert len({(triple.en, triple.zh, triple.de) for triple in everything}) == len(everything) >= 200_000
    assert len({(triple.family, triple.fillers) for triple in everything}) == len(everything)


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), list(permutations(("en", "zh", "de"), 2)))
def test_a_sentence_has_one_translation(everything: list[Known], source: str, target: str) -> None:
    """Letting "them" be an object (German "sie", as "her") breaks this, as would 哥哥 for a plain "brother"."""
    translations = defaultdict(set)
    for triple in everything:
        translations[getattr(triple, source)].add(getattr(triple, target))
    assert [sentence for sentence, found in translations.items() if len(found) > 1] == []


EN_OR_DE = {
    "en": re.compile(r"[A-Z][A-Za-zé',-]*( [A-Za-zé'-]+,?)*[.?]"),
    "de": re.compile(r"[A-ZÄÖÜ][A-Za-zäöüÄÖÜßé-]*,?( [A-Za-zäöüÄÖÜßé-]+,?)*[.?]"),
}
CHINESE = re.compile(r"[\u4e00-\u9fff]+(，[\u4e00-\u9fff]+)*[。？]")


@pytest.mark.slow
def test_spelling_and_punctuation(everything: list[Known]) -> None:
    """Double or missing spaces, a half-width comma in Chinese, a small first letter, a stray brace."""
    for triple in everything:
        assert EN_OR_DE["en"].fullmatch(triple.en), triple.en
        assert EN_OR_DE["de"].fullmatch(triple.de), triple.de
        assert CHINESE.fullmatch(triple.zh), triple.zh
        asks = triple.en.endswith("?")
        assert triple.de.endswith("?") == asks and triple.zh.endswith("？") == asks, triple
        assert asks or "吗" not in triple.zh, triple
        assert 3 <= len(triple.en.split()) <= 20 and 3 <= len(triple.de.split()) <= 20, triple
        assert 4 <= len(triple.zh) <= 30, triple


@pytest.mark.slow
def test_english_articles_and_auxiliaries(everything: list[Known]) -> None:
    """ "a apple", "does he likes", "he don't": what careless templates write."""
    wrong = re.compile(
        r"\b[Aa] [aeio]|\b[Aa]n [^aeiou]"
        r"|\b(?:he|she|mother|father|brother|sister|uncle|aunt) (?:don't|have|do|are|were|go|like)\b"
        r"|\b(?:I|you|we|they|parents|friends|children) (?:doesn't|has|does|is|likes|goes)\b"
        r"|\b(?:doesn't|don't|didn't|will|won't|can|can't) (?:has|is|goes|likes|drinks|went|bought)\b",
    )
    auxiliary_asks = re.compile(r"(?:Does|Do|Did|Will|Can|Would) [\w ]* (?:has|goes|likes|drinks|went|bought|drank)\b")
    questioned = re.compile(
        r"^(?:Do|Have|Are|Were) (?:he|she|your (?:mother|father|aunt|uncle))\b|^(?:Does|Has|Is) (?:you|they)\b"
    )
    for triple in everything:
        if triple.en.endswith("?"):
            assert not auxiliary_asks.search(triple.en) and not questioned.search(triple.en), triple.en
        else:
            assert not wrong.search(triple.en), triple.en


GENDERS = {
    "m": "Tee Kaffee Wein Saft Fisch Kuchen Reis Film Brief Park Supermarkt Markt Zoo Arzt Bahnhof Flughafen Zug Bus "
    "Mantel Rock Schal Hut Regenschirm Tisch Stuhl Bleistift Ball Apfel Hund "
    "Vogel Bruder Sohn Pass Geldbeutel Käse Garten Urlaub Vater Onkel Großvater Lehrer Fernseher",
    "f": "Milch Zeitung Musik Küche Wäsche Prüfung Bibliothek Arbeit Bank Post Apotheke Bäckerei Buchhandlung Schule "
    "Universität Kirche Jacke Tasche Lampe Kamera Armbanduhr Landkarte Tasse Orange Banane Birne Tomate Kartoffel Katze "
    "Schwester Tochter Fahrkarte Suppe Schokolade Kiste Tür U-Bahn Straßenbahn Mutter Tante Großmutter Besprechung "
    "Party Fabrik Reise E-Mail",
    "n": "Bier Fleisch Obst Gemüse Brot Wohnzimmer Geschirr Auto Fahrrad Buch Wörterbuch Hemd Kleid Bett Sofa Handy "
    "Ei Pferd Wasser Glas Krankenhaus Museum Theater Kino Schwimmbad Hotel Restaurant Café Flugzeug "
    "Taxi Fenster Haus Licht Konzert Spiel Büro Wochenende Wetter",
}
NOUNS = {noun: gender for gender, nouns in GENDERS.items() for noun in nouns.split()}
ENDINGS = {
    "m": {"der", "den", "dem", "im", "vom", "zum", "en", "em", "er", ""},
    "f": {"die", "der", "zur", "e", "er"},
    "n": {"das", "dem", "im", "ins", "vom", "zum", "", "em", "es"},
}


def german_articles(sentence: str) -> Iterator[tuple[str, str]]:
    """Each article (or its ending, for ein, kein, mein, dieser and their like) with the noun it stands before."""
    tokens = re.findall(r"[\w-]+", sentence)
    for place, token in enumerate(tokens[:-1]):
        article = re.fullmatch(
            r"(der|die|das|den|dem|im|ins|vom|zum|zur)|(?:dies(?=e)|k?ein|mein|dein|sein|ihr|unser)(em|er|en|es|e|)",
            token.lower(),
        )
        noun = next(iter(re.findall(r"[A-ZÄÖÜ][\w-]*", " ".join(tokens[place + 1 : place + 2]))), None)
        if article and noun in NOUNS:
            yield article[1] or article[2] or "", noun


@pytest.mark.slow
def test_german_articles_agree_with_independent_genders(everything: list[Known]) -> None:
    """A wrong gender in the lexicon, or a wrong article in a phrase written out ("ein Film", "in die Park")."""
    seen = Counter()
    for triple in everything:
        for article, noun in german_articles(triple.de):
            seen[noun] += 1
            assert article in ENDINGS[NOUNS[noun]], triple.de
    assert len(seen) > 100


@pytest.mark.slow
def test_german_nouns_are_capitalised(everything: list[Known]) -> None:
    small = {noun.lower() for noun in NOUNS} - {"rock", "pass", "spiel"}
    small |= {
        "uhr",
        "grad",
        "jahre",
        "geburtstag",
        "zeit",
        "abend",
        "tag",
        "woche",
        "montag",
        "januar",
        "äpfel",
        "bücher",
    }
    for triple in everything:
        assert small.isdisjoint(re.findall(r"[\w-]+", triple.de)), triple.de


@pytest.mark.slow
def test_chinese_counts_with_classifiers(everything: list[Known]) -> None:
    """二本书, 两十, 三书: a number without its classifier, or the wrong two."""
    wrong_two = re.compile(
        r"(?<!十)二(?:[个本只杯件条把张台部块支顶辆盏份瓶碗片盘匹根岁年次]|点[一二五十半]?)|两(?:十|月|号)|十两"
    )
    bare = re.compile(r"(?<!星期)(?:一|两|三|四|五|六)(?:书|猫|茶|狗|衬衫|苹果|钥匙|电脑|哥哥)")
    for triple in everything:
        assert not wrong_two.search(triple.zh), triple.zh
        assert not bare.search(triple.zh), triple.zh


def test_families_are_well_formed() -> None:
    """The slots of a family are the parameters of its function, in order; fillers are told apart by name."""
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    for family in FAMILIES:
        assert list(signature(family.write).parameters) == list(family.slots), family.name
        assert set(family.held) <= set(family.slots), family.name
        for slot, fillers in family.slots.items():
            assert len({str(filler) for filler in fillers}) == len(fillers), (family.name, slot)


@pytest.mark.slow
def test_no_held_out_combination_is_trained_on(everything: list[Known]) -> None:
    """A split by sentence instead of by pair, or by another pair in another family, would leak."""
    pairs: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for triple in everything:
        first, second = phrases.FAMILY_NAMED[triple.family].held
        pair = [filler for filler in triple.fillers if filler.startswith((f"{first}=", f"{second}="))]
        assert len(pair) == 2
        pairs[tuple(pair)].add(triple.split)
    assert all(len(splits) == 1 for splits in pairs.values())
    counts = Counter(next(iter(splits)) for splits in pairs.values())
    assert 0.03 < counts["test"] / len(pairs) < 0.07 and 0.03 < counts["val"] / len(pairs) < 0.07


@pytest.mark.slow
def test_every_family_is_in_every_split(everything: list[Known]) -> None:
    found = {(triple.family, triple.split) for triple in everything}
    assert len(found) == 3 * len(FAMILIES)


@pytest.mark.slow
def test_every_word_is_trained_on(everything: list[Known]) -> None:
    """Each filler occurs in training in each slot where it occurs at all, and each written word in each language."""
    fillers: dict[str, set[tuple[str, str]]] = defaultdict(set)
    tokens: dict[str, set[str]] = defaultdict(set)
    for triple in everything:
        split = triple.split
        fillers[split].update((triple.family, filler) for filler in triple.fillers)
        tokens[split].update(re.findall(r"[\w'-]+", triple.en), re.findall(r"[\w-]+", triple.de), triple.zh)
    assert fillers["test"] | fillers["val"] <= fillers["train"]
    assert tokens["test"] | tokens["val"] <= tokens["train"]


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh", "de"])
def test_no_sentence_is_in_two_splits(everything: list[Known], language: str) -> None:
    split_of_sentence: dict[str, str] = {}
    for triple in everything:
        split = triple.split
        assert split_of_sentence.setdefault(getattr(triple, language), split) == split


@pytest.mark.parametrize("split", ["val", "test"])
def test_held_out_samples_are_balanced_and_do_not_depend_on_the_seed(split: phrases.Split) -> None:
    sample = list(open_phrases("zh-en", split).triples())
    assert len(sample) == len(set(sample)) == 1000
    assert {split_of(triple) for triple in sample} == {split}
    topics = Counter(topic_of(triple) for triple in sample)
    assert len(topics) >= 9 and max(topics.values()) - min(topics.values()) <= 1
    assert list(open_phrases("zh-en", split, seed=7).triples()) == sample
    assert list(open_phrases("zh-en", split, size=50).triples()) == sample[:50]


def test_a_training_sample_is_repeatable_and_follows_its_seed() -> None:
    opened = open_phrases("en-de", "train", size=500, seed=1)
    once = list(opened)
    assert list(opened) == once == list(open_phrases("en-de", "train", size=500, seed=1))
    assert len(set(once)) == 500
    assert set(once) != set(open_phrases("en-de", "train", size=500, seed=2))
    assert {split_of(triple) for triple in opened.triples()} == {"train"}


def test_directions_turn_the_same_triples() -> None:
    triples_of = list(open_phrases("zh-en", "train", size=300, seed=3).triples())
    for direction in DIRECTIONS:
        source, target = direction.split("-")
        expected = [(getattr(triple, source), getattr(triple, target)) for triple in triples_of]
        assert list(open_phrases(direction, "train", size=300, seed=3)) == expected


def test_a_sample_writes_only_what_it_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing from a list of all sentences would write them all first."""
    written = []
    write = phrases._triple
    monkeypatch.setattr(phrases, "_triple", lambda *arguments: written.append(1) or write(*arguments))
    assert len(list(open_phrases("de-zh", "test", size=200))) == 200
    assert len(written) <= 201


@pytest.mark.slow
def test_all_of_training_is_given_once(everything: list[Known]) -> None:
    given = run_program("all_of_training").splitlines()
    assert sorted(given) == sorted(triple.en for triple in everything if triple.split == "train")


@pytest.mark.slow
def test_splits_and_samples_are_the_same_in_every_process() -> None:
    """Python's own hash() changes with PYTHONHASHSEED."""
    here = f"{[*open_phrases('zh-en', 'test', 40), *open_phrases('zh-en', 'train', 40)]}\n"
    for seed in ("1", "2"):
        assert run_program("some_phrases", PYTHONHASHSEED=seed) == here


def test_bad_requests_end_in_a_sentence() -> None:
    with pytest.raises(UserError, match="zh-en, en-zh, de-en, en-de, zh-de, de-zh"):
        open_phrases("en-fr", "train")
    with pytest.raises(UserError, match="train, val, test"):
        open_phrases("en-de", "dev")
    with pytest.raises(UserError, match="size of 1 or more"):
        open_phrases("en-de", "train", size=0)
