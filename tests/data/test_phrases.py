"""The built-in phrases: right in three languages, one meaning each way, and splits that hold out combinations."""

import gzip
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from inspect import signature
from itertools import pairwise, permutations
from typing import NamedTuple

import pytest

from glassformer.data.builtin import phrases
from glassformer.data.builtin.phrases import DIRECTIONS, FOLDER, Triple, open_phrases
from glassformer.data.splits import Split
from glassformer.errors import UserError
from tests.phrases_by_hand import BY_HAND
from tests.programs import run_program
from tools.phrasebook import FAMILIES
from tools.phrasebook.book import SPLITS, Written, book, sentences

pytestmark = pytest.mark.slow


class Known(NamedTuple):
    """A triple, the split it belongs to, its family, and its fillers as "slot=filler"."""

    en: str
    zh: str
    de: str
    split: str
    family: str
    fillers: tuple[str, ...]


@pytest.fixture(scope="module")
def grammar() -> dict[str, list[Written]]:
    """All that the grammar writes, by the name of the family. It takes seconds; the tests only read it."""
    return {family.name: list(sentences(family)) for family in FAMILIES}


@pytest.fixture(scope="module")
def everything(grammar: dict[str, list[Written]]) -> list[Known]:
    return [
        Known(each.en, each.zh, each.de, each.split, family, tuple(map("=".join, each.fillers)))
        for family, own in grammar.items()
        for each in own
    ]


@pytest.fixture
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the package unpacked once, for tests of what is drawn from them."""
    monkeypatch.setattr(phrases, "read_families", cache(phrases.read_families))


def test_sentences_by_hand(everything: list[Known]) -> None:
    """A wrong classifier, case, verb form or word order in the grammar shows here."""
    written = {triple.en: (triple.zh, triple.de) for triple in everything}
    assert {en: written.get(en) for en, _, _ in BY_HAND} == {en: (zh, de) for en, zh, de in BY_HAND}
    assert len(BY_HAND) >= 60


def test_at_least_200_000_triples(everything: list[Known]) -> None:
    assert len({(triple.en, triple.zh, triple.de) for triple in everything}) == len(everything) >= 200_000
    assert len({(triple.family, triple.fillers) for triple in everything}) == len(everything)


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


def test_english_articles_and_auxiliaries(everything: list[Known]) -> None:
    """ "a apple", "does he likes", "he don't": what careless templates write."""
    wrong = re.compile(
        r"\b[Aa] [aeio]|\b[Aa]n [^aeiou]"
        r"|\b(?:he|she|mother|father|brother|sister|uncle|aunt) (?:don't|have|do|are|were|go|like)\b"
        r"|\b(?:I|you|we|they|parents|friends|children) (?:doesn't|has|does|is|likes|goes)\b"
        r"|\b(?:doesn't|don't|didn't|will|won't|can|can't) (?:has|is|goes|likes|drinks|went|bought)\b"
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


@cache
def article(token: str) -> str | None:
    """An article, or its ending for ein, kein, mein, dieser and their like; None for other words."""
    found = re.fullmatch(
        r"(der|die|das|den|dem|im|ins|vom|zum|zur)|(?:dies(?=e)|k?ein|mein|dein|sein|ihr|unser)(em|er|en|es|e|)",
        token.lower(),
    )
    return (found[1] or found[2] or "") if found else None


@cache
def noun(token: str) -> str | None:
    found = re.search(r"[A-ZÄÖÜ][\w-]*", token)
    return found[0] if found and found[0] in NOUNS else None


def german_articles(sentence: str) -> Iterator[tuple[str, str]]:
    """Each article with the noun it stands before."""
    tokens = re.findall(r"[\w-]+", sentence)
    for token, after in pairwise(tokens):
        if (form := article(token)) is not None and (name := noun(after)) is not None:
            yield form, name


def test_german_articles_agree_with_independent_genders(everything: list[Known]) -> None:
    """A wrong gender in the lexicon, or a wrong article in a phrase written out ("ein Film", "in die Park")."""
    seen = Counter()
    for triple in everything:
        for form, name in german_articles(triple.de):
            seen[name] += 1
            assert form in ENDINGS[NOUNS[name]], triple.de
    assert len(seen) > 100


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


def test_no_held_out_combination_is_trained_on(everything: list[Known]) -> None:
    """A split by sentence instead of by pair, or by another pair in another family, would leak."""
    pairs: dict[tuple[str, ...], set[str]] = defaultdict(set)
    held = {family.name: family.held for family in FAMILIES}
    for triple in everything:
        first, second = held[triple.family]
        pair = [filler for filler in triple.fillers if filler.startswith((f"{first}=", f"{second}="))]
        assert len(pair) == 2
        pairs[tuple(pair)].add(triple.split)
    assert all(len(splits) == 1 for splits in pairs.values())
    counts = Counter(next(iter(splits)) for splits in pairs.values())
    assert 0.03 < counts["test"] / len(pairs) < 0.07 and 0.03 < counts["val"] / len(pairs) < 0.07


def test_every_family_is_in_every_split(everything: list[Known]) -> None:
    found = {(triple.family, triple.split) for triple in everything}
    assert len(found) == 3 * len(FAMILIES)


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


@pytest.mark.parametrize("language", ["en", "zh", "de"])
def test_no_sentence_is_in_two_splits(everything: list[Known], language: str) -> None:
    split_of_sentence: dict[str, str] = {}
    for triple in everything:
        split = triple.split
        assert split_of_sentence.setdefault(getattr(triple, language), split) == split


def written(split: Split) -> dict[Triple, str]:
    """Every sentence of a split's file, with its topic."""
    families = phrases.read_families(split)
    return {Triple(*line.split("\t")): family.topic for family in families for line in family.sentences.values()}


def test_the_grammar_writes_the_files_of_the_package(
    grammar: dict[str, list[Written]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grammar that was changed without `python3 -m tools.phrasebook.book`, or a file that was."""
    monkeypatch.setattr("tools.phrasebook.book.sentences", lambda family: grammar[family.name])
    files = {split: gzip.decompress((FOLDER / f"{split}.tsv.gz").read_bytes()).decode() for split in SPLITS}
    assert files == book()


@pytest.mark.parametrize("split", ["val", "test"])
def test_held_out_samples_are_balanced_and_do_not_depend_on_the_seed(split: Split) -> None:
    sample = list(open_phrases("zh-en", split).triples())
    assert len(sample) == len(set(sample)) == 1000
    topic_of = written(split)
    topics = Counter(topic_of[triple] for triple in sample)
    assert len(topics) >= 9 and max(topics.values()) - min(topics.values()) <= 1
    assert list(open_phrases("zh-en", split, seed=7).triples()) == sample
    assert list(open_phrases("zh-en", split, size=50).triples()) == sample[:50]


@pytest.mark.usefixtures("read_once")
def test_a_training_sample_is_repeatable_and_follows_its_seed() -> None:
    opened = open_phrases("en-de", "train", size=500, seed=1)
    once = list(opened)
    assert list(opened) == once == list(open_phrases("en-de", "train", size=500, seed=1))
    assert len(set(once)) == 500
    assert set(once) != set(open_phrases("en-de", "train", size=500, seed=2))
    assert set(opened.triples()) <= set(written("train"))


@pytest.mark.usefixtures("read_once")
def test_directions_turn_the_same_triples() -> None:
    triples_of = list(open_phrases("zh-en", "train", size=300, seed=3).triples())
    for direction in DIRECTIONS:
        source, target = direction.split("-")
        expected = [(getattr(triple, source), getattr(triple, target)) for triple in triples_of]
        assert list(open_phrases(direction, "train", size=300, seed=3)) == expected


def test_all_of_training_is_given_once(everything: list[Known]) -> None:
    given = [target for _, target in open_phrases("zh-en", "train")]
    assert sorted(given) == sorted(triple.en for triple in everything if triple.split == "train")


def test_splits_and_samples_are_the_same_in_every_process() -> None:
    """Python's own hash() changes with PYTHONHASHSEED."""
    here = f"{[*open_phrases('zh-en', 'test', 40), *open_phrases('zh-en', 'train', 40)]}\n"
    for seed in ("1", "2"):
        assert run_program("some_phrases", PYTHONHASHSEED=seed) == here


def test_bad_requests_end_in_a_sentence() -> None:
    with pytest.raises(UserError, match="zh-en, en-zh, de-en, en-de, zh-de, de-zh"):
        open_phrases("en-fr", "train")
