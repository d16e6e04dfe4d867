"""Pairs that stand in a file before: the same, or the same but for case, punctuation, a typo or a few words of many.

Candidates come from MinHash signatures and locality-sensitive hashing (datasketch; Broder, 1997, "On the resemblance and
containment of documents"), so that not every pair is held against every other; what is called a duplicate is then decided on
the texts. A paraphrase is none: "Do you know me?" may have two good translations, and they are two lessons.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

from glassformer.data.cleaning.alignment import Pair

# Of two pairs that share 70% of their shingles 99% are candidates, of 20% one in 40.
PERMUTATIONS, BANDS, ROWS = 64, 16, 4
ALIKE = 0.97  # of all shingles of both: a word or two of a long pair
UNSPACED = re.compile("[\u2e80-\u9fff\uf900-\ufaff]")
AT_ONCE = 10_000  # signatures that are made together


def bare(text: str) -> str:
    """A text without case, blanks and punctuation, but with what changes its meaning: the question mark, the apostrophe."""
    return re.sub(r"[^\w?']+", "", text.casefold())


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
    """The places of pairs that stand before."""
    from datasketch import MinHash, MinHashLSH
    from datasketch.hashfunc import sha1_hash32

    hashed = functools.cache(sha1_hash32)  # the shingles of a language are few
    known = MinHashLSH(num_perm=PERMUTATIONS, params=(BANDS, ROWS))
    texts = [(bare(source), bare(target)) for source, target in pairs]
    for start in range(0, len(pairs), AT_ONCE):
        some = [shingles(pair) for pair in texts[start : start + AT_ONCE]]
        for place, signature in enumerate(MinHash.bulk(some, num_perm=PERMUTATIONS, hashfunc=hashed), start):
            if any(is_duplicate(texts[place], texts[other]) for other in known.query(signature)):
                yield place
            else:
                known.insert(place, signature, check_duplication=False)
