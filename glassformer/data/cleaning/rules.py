"""What can be put right in a text, and the rules by which pairs are taken out of a file: small functions, each with a name.

What cannot be repaired is left for a rule to find. A rule is handed all pairs that the rules before it left, and says the places
of those it takes. Rules that need one pair only come first, since those that learn from the whole file (its languages, its usual
lengths, a dictionary) learn better from what is left. Duplicates come last: of two alike the first good one stays.
"""

from __future__ import annotations

import functools
import html
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassformer.data.cleaning.alignment import TELLING, Pair, alignment_scores, border, exchanged, log_ratio
from glassformer.data.oddities import HTML, INVISIBLE, is_blank, is_mojibake, is_quoted_alone, unquoted
from glassformer.errors import UserError
from glassformer.language import _

LONGEST = 1000  # characters; no sentence is so long: paragraphs that were not cut, tables, lost line breaks
COPIED_WORDS = 2  # a copy of fewer words may be right: a name, "OK", "Taxi"
OTHER_LANGUAGE = 10.0  # times likelier than the one that is expected; short sentences are often a little likelier
LOOKED_AT = 2000  # sides that say which language a side has
FEWEST_PAIRS = 2000  # to learn a dictionary from: of fewer, too many good pairs look wrong
FEW = 100  # pairs
SPREADS = 4.0  # standard deviations (by the median of deviations) of the logarithm of the ratio
ENDS = 3.4  # of these are granted where the longer side has a sentence end more
SENTENCE_END = re.compile(r"[.!?…]+[\"'”’»“)]*(?=\s|$)|[。！？]+")
NEAREST = 3  # pairs shown that a rule just left

# What cannot be undone: U+FFFD, NUL, "M?nner", "zu ?ber", "????".
LOST = re.compile("[\ufffd\0]|[^\\W\\d_]\\?+[^\\W\\d_]|(?:^|\\s)\\?+[^\\W\\d_]|^\\W*\\?\\?\\W*$")
URL = re.compile(r"(?:https?://|ftp://|www\.)[!-~]+|[\w.+-]+@[\w-]+\.[\w.-]+", re.ASCII)
NUMBER = re.compile(r"\d+(?:[.,:'’]\d+|[ \u00a0\u202f]\d{3}(?!\d))*")
HOURS = re.compile("[ap]\\.?m\\b|o'clock|:|uhr|[点點时時]", re.I)
SCALES = re.compile("[千万萬亿億百]|hundred|thousand|million|billion|hundert|tausend|milli|mio|mrd", re.I)

ENTITY = re.compile("&(?:[a-z][a-z0-9]{1,30}|#[0-9]{1,7}|#x[0-9a-f]{1,6});", re.I)
TAG = re.compile(HTML.partition("|&")[0], re.I)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u2028\u2029\ufff9-\ufffb]")
TWICE = 2  # "&amp;amp;lt;": what was escaped twice
# Of two pairs that share 70% of their shingles 99% are candidates, of 20% one in 40.
PERMUTATIONS, BANDS, ROWS = 64, 16, 4
ALIKE = 0.97  # of all shingles of both: a word or two of a long pair
UNSPACED = re.compile("[\u2e80-\u9fff\uf900-\ufaff]")
HASHED_AT_ONCE = 10_000  # signatures that are made together


def fix_mojibake(text: str) -> str:
    """UTF-8 that was read in another encoding, read anew (ftfy). Its other habits are left alone: it would make the quotation
    marks of Chinese and German, and Chinese punctuation, ASCII."""
    if text.isascii():
        return text
    import ftfy

    return ftfy.fix_encoding(text)


def fix_entities(text: str) -> str:
    """Entities as what they stand for, and without the tags of a page.

    >>> fix_entities("R&amp;amp;D &lt;b&gt;now&lt;/b&gt; &#8211; <br/>AT&T;")
    'R&D now – AT&T;'
    """
    for _turn in range(TWICE):
        if "&" in text:
            text = ENTITY.sub(lambda found: html.unescape(found[0]), text)
    return TAG.sub("", text) if "<" in text else text


def fix_invisible(text: str) -> str:
    """Without control characters and blanks of no width; letters composed (NFC); any run of blanks as one."""
    text = unicodedata.normalize("NFC", INVISIBLE.sub("", CONTROL.sub(" ", text)))
    return " ".join(text.split())


def fix_quotes(source: str, target: str) -> Pair:
    """Both sides, one of which stood in quotation marks as a cell of a table does, without them."""
    if is_quoted_alone(source, target):
        return unquoted(source), target
    return (source, unquoted(target)) if is_quoted_alone(target, source) else (source, target)


def each_side(fix: Callable[[str], str]) -> Callable[[str, str], Pair]:
    """A repair of a text, made on both sides."""
    return lambda source, target: (fix(source), fix(target))


REPAIRS: dict[str, Callable[[str, str], Pair]] = {
    "mojibake": each_side(fix_mojibake),
    "entities": each_side(fix_entities),
    "invisible": each_side(fix_invisible),
    "quotes": fix_quotes,
}
"""By name, in the order in which they are made: mojibake may hold control characters, entities may stand for blanks."""


@dataclass(frozen=True)
class RuleMatch:
    """The places of pairs that a rule takes; what it learned for that, in words; places of pairs that it just left."""

    places: Sequence[int]
    note: str = ""
    left: Sequence[int] = ()


Rule = Callable[[Sequence[Pair], Sequence[str]], RuleMatch]
"""Called with pairs and with the languages of the sides, where these were given."""


def each(holds: Callable[[str, str], bool]) -> Rule:
    """A rule of what is true of a pair by itself."""
    return lambda pairs, _languages: RuleMatch([i for i, pair in enumerate(pairs) if holds(*pair)])


def has_empty_side(source: str, target: str) -> bool:
    """A side in which nothing can be seen."""
    return is_blank(source) or is_blank(target)


def is_broken(source: str, target: str) -> bool:
    """Letters that an encoding lost, or mojibake that could not be read anew."""
    return any(LOST.search(URL.sub("", text)) or is_mojibake(text) for text in (source, target))


def is_long(source: str, target: str) -> bool:
    """A side longer than any sentence."""
    return max(len(source), len(target)) > LONGEST


def bare(text: str) -> str:
    """A text without case, blanks and punctuation, but with what changes its meaning: the question mark, the apostrophe."""
    return re.sub(r"[^\w?']+", "", text.casefold())


def is_copy(source: str, target: str) -> bool:
    """Two sides that are the same but for case and punctuation."""
    return bare(source) == bare(target) and (len(source.split()) >= COPIED_WORDS or len(source) > 20)


def urls_differ(source: str, target: str) -> bool:
    """Addresses of one side that the other has not."""
    first, second = ({found.rstrip(".,;:!?)'\"") for found in URL.findall(text)} for text in (source, target))
    return first != second


def numbers_of(text: str) -> Counter[str]:
    """The numbers that stand in digits, without what parts their digits: 1,000 and 1.000 are 1000, 10:30 is 1030."""
    found = NUMBER.findall(unicodedata.normalize("NFKC", URL.sub(" ", text)))
    return Counter(re.sub(r"\D", "", number).lstrip("0") or "0" for number in found)


def numbers_differ(source: str, target: str) -> bool:
    """Numbers on both sides that the other one has not. Where only one side has one, the other may have it in words. 1:30 p.m. is
    13:30, '80 is 1980, 20 million is 2000万, and 6-0 is 6:0."""
    first, second = numbers_of(source), numbers_of(target)
    if first == second or re.sub(r"\D", "", source) == re.sub(r"\D", "", target):
        return False
    hours, scaled = (bool(words.search(f"{source} {target}")) for words in (HOURS, SCALES))

    def is_there(number: str, others: Counter[str]) -> bool:
        near = {str(int(number) + d) for d in (-1200, -12, 12, 1200)} if hours and len(number) <= 4 else {number}
        year = {other for other in others if sorted(map(len, (number, other))) == [2, 4] and number[-2:] == other[-2:]}
        scale = {other for other in others if scaled and number.rstrip("0") == other.rstrip("0")}
        return bool(year or scale or near & others.keys())

    here, there = ([n for n in a - b if not is_there(n, b - a)] for a, b in ((first, second), (second, first)))
    return bool(here and there)


@functools.cache
def language_identifier() -> Any:
    """py3langid's, whose scores are probabilities."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def language_codes(given: Sequence[str]) -> list[str]:
    """The languages of source and target by their codes of two letters, however they were written (EN, de-AT, zh_CN)."""
    codes = [re.split("[-_]", code.strip().lower())[0] for code in given]
    for code, written in zip(codes, given, strict=True):
        if code not in language_identifier().nb_classes:
            raise UserError(
                "{written!r} is not the code of a language that can be told; en, de and zh are some", written
            )
    return codes


def is_other_language(pairs: Sequence[Pair], languages: Sequence[str]) -> RuleMatch:
    """Pairs of which a side is in another language than the others (py3langid)."""
    identifier = language_identifier()
    taken: set[int] = set()
    notes = []
    for side, given in zip((0, 1), languages or ("", ""), strict=True):
        texts = [pair[side].lower() if pair[side].isupper() else pair[side] for pair in pairs]
        likeliest = [identifier.classify(text)[0] for text in texts]
        seen = Counter(likeliest[:: max(1, len(texts) // LOOKED_AT)])
        usual, count = seen.most_common(1)[0] if seen else ("", 0)
        expected = given or usual
        if not given and count < 0.5 * sum(seen.values()):
            notes.append(_("the {side} is in no one language", _("source") if side == 0 else _("target")))
            continue
        notes.append(expected)
        for place, text in enumerate(texts):
            if likeliest[place] == expected or not any(map(str.isalpha, text)):
                continue  # to rank all languages takes twice as long as to name the likeliest
            chances: dict[str, float] = dict(identifier.rank(text))
            if OTHER_LANGUAGE * chances.get(expected, 0.0) < max(chances.values()):
                taken.add(place)
    return RuleMatch(sorted(taken), " → ".join(notes))


def beyond(scores: Any, limit: float, note: str) -> RuleMatch:
    """The pairs whose scores are below a limit, and of the others the nearest."""
    places = np.flatnonzero(scores < limit)
    order = np.argsort(scores, kind="stable")
    return RuleMatch(places.tolist(), note, order[len(places) : len(places) + NEAREST].tolist())


def below_border(scores: Any, limit: float) -> RuleMatch:
    """The pairs whose scores are below a border that was found by pairs that are wrong for certain."""
    note = _("score below {limit}", f"{limit:.2g}")
    return beyond(scores, limit, note if limit > -math.inf else _("not applied: right and wrong pairs score alike"))


def is_odd_ratio(pairs: Sequence[Pair], languages: Sequence[str]) -> RuleMatch:
    """Pairs of which one side is far longer, beside the other, than is usual in this file: something was cut off or added. Where
    the longer side has more sentence ends, too, less than far is enough."""
    ratio = log_ratio(*(np.array([len(pair[side]) for pair in pairs]) for side in (0, 1)))
    ends = np.array([len(SENTENCE_END.findall(target)) - len(SENTENCE_END.findall(source)) for source, target in pairs])
    usual = float(np.median(ratio))
    least = 0.05 if len(pairs) >= FEW else 0.25  # what a handful of pairs have in common says little of the next
    spread = max(least, 1.4826 * float(np.median(np.abs(ratio - usual))))
    away = (ratio - usual) / spread
    odd = np.abs(away) + ENDS * ((ends != 0) & (np.sign(ends) == np.sign(away)))
    most = math.exp(SPREADS * spread)
    return beyond(
        -odd, -SPREADS, _("usually {usual:.2f}, at most {most:.1f} times more or less", math.exp(usual), most)
    )


def is_misaligned(pairs: Sequence[Pair], languages: Sequence[str]) -> RuleMatch:
    """Pairs whose sides do not translate each other, by a dictionary of all the others (alignment.py)."""
    if len(pairs) < FEWEST_PAIRS:
        return RuleMatch((), _("not applied: a dictionary needs {fewest:,} pairs or more", FEWEST_PAIRS))
    scores, wrong = alignment_scores(pairs)
    return below_border(scores, border(scores, wrong, TELLING))


def shingles(pair: Pair) -> list[bytes]:
    """Three letters each, or two of a script whose characters are words; of which side they are belongs to them."""
    found = set()
    for side, text in enumerate(map(bare, pair)):
        size = 2 if UNSPACED.search(text) else 3
        found |= {f"{side}{text[i : i + size]}" for i in range(max(1, len(text) - size + 1))}
    return [shingle.encode("utf-8", "surrogatepass") for shingle in found]


def is_typo(a: str, b: str) -> bool:
    """Whether two bare texts differ by one letter, or by two that changed places. A Chinese character is a word, and
    an apostrophe is one, too ("what is", "what's").

    >>> is_typo("hello", "helo"), is_typo("hello", "hlelo"), is_typo("hello", "hi"), is_typo("我是", "我不")
    (True, True, False, False)
    """
    if abs(len(a) - len(b)) > 1:
        return False
    first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    left, right = a[first:], b[first:]
    while left and right and left[-1] == right[-1]:
        left, right = left[:-1], right[:-1]
    one = max(len(left), len(right)) <= 1 or (len(left) == 2 and left == right[::-1])
    return one and not re.search(f"[?'0-9]|{UNSPACED.pattern}", left + right)


def is_duplicate(pair: Pair, other: Pair) -> bool:
    """Whether two pairs of bare texts are the same lesson. A number that differs makes another sentence."""
    if pair == other:
        return True
    if any(pair[same] == other[same] and is_typo(pair[1 - same], other[1 - same]) for same in (0, 1)):
        return True
    if [re.findall(r"\d", side) for side in pair] != [re.findall(r"\d", side) for side in other]:
        return False
    mine, its = set(shingles(pair)), set(shingles(other))
    return len(mine & its) >= ALIKE * len(mine | its)


def duplicates(pairs: Sequence[Pair]) -> Iterator[int]:
    """The places of pairs that stand before: the same, or the same but for case, punctuation, a typo or a few words of many.

    Candidates come from MinHash signatures and locality-sensitive hashing (datasketch; Broder, 1997, "On the resemblance and
    containment of documents"), so that not every pair is held against every other; what is called a duplicate is then decided
    on the texts. A paraphrase is none: "Do you know me?" may have two good translations, and they are two lessons."""
    from datasketch import MinHash, MinHashLSH
    from datasketch.hashfunc import sha1_hash32

    hashed = functools.cache(sha1_hash32)  # the shingles of a language are few
    known = MinHashLSH(num_perm=PERMUTATIONS, params=(BANDS, ROWS))
    texts = [(bare(source), bare(target)) for source, target in pairs]
    for start in range(0, len(pairs), HASHED_AT_ONCE):
        some = [shingles(pair) for pair in texts[start : start + HASHED_AT_ONCE]]
        for place, signature in enumerate(MinHash.bulk(some, num_perm=PERMUTATIONS, hashfunc=hashed), start):
            if any(is_duplicate(texts[place], texts[other]) for other in known.query(signature)):
                yield place
            else:
                known.insert(place, signature, check_duplication=False)


RULES: dict[str, tuple[str, Rule]] = {
    "empty": (_("a side is empty"), each(has_empty_side)),
    "encoding": (_("letters are lost: a wrong encoding that cannot be undone"), each(is_broken)),
    "long": (_("a side has more than {longest:,} characters", LONGEST), each(is_long)),
    "copy": (_("the sides are the same"), each(is_copy)),
    "urls": (_("the sides have different addresses"), each(urls_differ)),
    "numbers": (_("the sides have different numbers"), each(numbers_differ)),
    "exchanged": (_("the sides are exchanged"), lambda pairs, _languages: RuleMatch(exchanged(pairs))),
    "language": (_("a side is in another language"), is_other_language),
    "ratio": (_("one side is far too long for the other"), is_odd_ratio),
    "misaligned": (_("the sides do not translate each other"), is_misaligned),
    "duplicate": (
        _("the pair stands in the file before"),
        lambda pairs, _languages: RuleMatch(list(duplicates(pairs))),
    ),
}
"""By name, in order: what a pair has that is taken, and the rule."""
