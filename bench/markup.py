"""Inline tags carried over by word alignment: how many stand around the right words, where the right words are known.

    python3 bench/markup.py RUN --dates 500
    python3 bench/markup.py RUN --lexicon train.tsv --pairs test.tsv

The first RUN translates dates (`glassformer train dates`). Each date of the test split, of 33 locales, is written with a tag
around its day, month or year, and answered; the tag is right if it stands around exactly that field of the ISO date. Links: for
each digit of the right answer, does the attention (the mean of all heads, and each head by itself) point at the field that it
says? One less that share is the alignment error rate, since every digit has one link.

The second RUN translates words. A dictionary (IBM model 1, both ways) is made of the pairs of `--lexicon`; where it has one
translation of a source word of `--pairs`, each way more likely than `--sure`, and the run's answer holds that word once, the
source word is tagged by itself, and the tag is right if it stands around exactly that word.
"""

from __future__ import annotations

import argparse
import html
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

import glassformer
from glassformer.data.builtin.dates import draw_writings
from glassformer.improve.shortlist import translation_table
from glassformer.nn.taps import record
from glassformer.tasks.markup import translate_segments
from glassformer.text.markup import html_segments
from glassformer.text.tokenizer import BOS, EOS

WORD = r"[^\W\d_]+(?:['’][^\W\d_]+)?"
FIELDS = {"YEAR": slice(0, 4), "MONTH": slice(5, 7), "DAY": slice(8, 10)}


def link_shares(model: Any, dates: list[Any]) -> dict[str, float]:
    """The share of digits whose strongest link is right, by the mean of all heads and by each."""
    from glassformer.decode.align import forced_decoding

    right: dict[str, int] = {}
    for writing, day in dates:
        source, target = ([*model.tokenizers.source.encode(writing.write(day)), EOS], day.isoformat())
        with record(model.model, "decoder.*.cross.weights") as seen:
            mean = forced_decoding(model.model, [source], [model.tokenizers.target.encode(target)], bos=BOS)[1]
        heads = {f"{name} {h}": own[0, h] for name, own in seen.items() for h in range(own.size(1))}
        at, fields = 0, {}
        for text, tag in writing.parts(day):
            fields[tag] = range(at, at := at + len(text))
        for name, weights in {"mean of all": mean[0], **heads}.items():
            looked = weights[:, :-1].argmax(-1).tolist()
            hits = sum(looked[i] in fields[tag] for tag, own in FIELDS.items() for i in range(*own.indices(10)))
            right[name] = right.get(name, 0) + hits
    return {name: hits / (8 * len(dates)) for name, hits in right.items()}


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """The pairs of a TSV."""
    cells = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return [(own[0], own[1]) for own in cells if len(own) > 1]


def dictionary(pairs: list[tuple[str, str]], sure: float, least: int = 4) -> dict[str, str]:
    """Words with the one word that translates them, and is translated by them, at least so often seen and so surely."""
    texts = [[re.findall(WORD, side.lower()) for side in pair] for pair in pairs]
    texts = [both for both in texts if all(both)]
    words = [sorted({word for both in texts for word in both[side]}) for side in (0, 1)]
    number = [{word: i for i, word in enumerate(own)} for own in words]
    ids = [[[number[side][word] for word in both[side]] for both in texts] for side in (0, 1)]
    uses = [np.bincount(np.concatenate([np.array(own) for own in side])) for side in ids]
    found = []
    for first, second in ((0, 1), (1, 0)):
        own, other, chance = translation_table(ids[first], ids[second], rounds=8)
        kept = (chance > sure) & (uses[first][own] >= least)
        links = zip(own[kept].tolist(), other[kept].tolist())
        found.append({(a, b) if first == 0 else (b, a) for a, b in links})
    return {words[0][a]: words[1][b] for a, b in found[0] & found[1]}


def tag_words(model: Any, lexicon: dict[str, str], pairs: list[tuple[str, str]]) -> tuple[int, int]:
    """How many words were tagged by themselves, and how many tags stand around exactly their translations."""
    tagged = right = 0
    for source, _target in pairs:
        answer = model.translate(source)
        words = [own[0] for own in re.finditer(WORD, source)]
        for place in re.finditer(WORD, source):
            there = lexicon.get(place[0].lower())
            written = [own[0] for own in re.finditer(WORD, answer) if own[0].lower() == there]
            if len(written) != 1 or words.count(place[0]) != 1:
                continue
            parts = source[: place.start()], place[0], source[place.end() :]
            page = "{}<b>{}</b>{}".format(*(html.escape(part, quote=False) for part in parts))
            tree = ElementTree.fromstring(f"<p>{''.join(translate_segments(model, html_segments(page)))}</p>")
            tagged, right = tagged + 1, right + (tree.findtext("b") == written[0])
    return tagged, right


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--dates", type=int, default=500)
    parser.add_argument("--lexicon", type=Path, help="a TSV of pairs, for the dictionary")
    parser.add_argument("--pairs", type=Path, help="a TSV of pairs, whose sources are answered and tagged")
    parser.add_argument("--count", type=int, default=300, help="of these pairs")
    parser.add_argument("--sure", type=float, default=0.8)
    given = parser.parse_args()
    if given.lexicon is not None:
        model, lexicon = glassformer.load(given.run, device="cpu"), dictionary(read_pairs(given.lexicon), given.sure)
        tagged, right = tag_words(model, lexicon, read_pairs(given.pairs)[: given.count])
        print(f"{len(lexicon):,} words with one translation; {tagged:,} of them tagged in {given.count:,} sources,")
        print(f"{100 * right / tagged:.1f}% of the tags around exactly that word of the answer; all well-formed")
        return
    model, dates = glassformer.load(given.run, device="cpu"), list(draw_writings("test", given.dates))
    pages, expected, whole = [], [], []
    for writing, day in dates:
        for tag, field in FIELDS.items():
            parts = [f"<b>{text}</b>" if own == tag else text for text, own in writing.parts(day)]
            pages.append("".join(parts))
            expected.append(day.isoformat()[field])
            whole.append(day.isoformat())
    answers = [translate_segments(model, html_segments(page)) for page in pages]
    trees = [
        ElementTree.fromstring(f"<p>{''.join(answer)}</p>") for answer in answers
    ]  # raises where one is not well-formed
    right = sum(tree.findtext("b") == text for tree, text in zip(trees, expected, strict=True))
    same = sum("".join(tree.itertext()) == text for tree, text in zip(trees, whole, strict=True))
    print(f"{len(pages):,} tags: {100 * right / len(pages):.1f}% around exactly the right digits; all well-formed;")
    print(f"{100 * same / len(pages):.1f}% of the answers themselves are right")
    for name, share in sorted(link_shares(model, dates).items(), key=lambda entry: -entry[1]):
        print(f"  links right by {name}: {100 * share:.1f}%")


if __name__ == "__main__":
    main()
