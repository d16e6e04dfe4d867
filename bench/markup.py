"""Inline tags carried over by word alignment: how many stand around the right words, where the right words are known.

    python3 bench/markup.py RUN --dates 500

RUN translates dates (`glassformer train dates`). Each date of the test split, of 33 locales, is written with a tag around its
day, month or year, and answered; the tag is right if it stands around exactly that field of the ISO date. Links: for each digit
of the right answer, does the attention (the mean of all heads, and each head by itself) point at the field that it says? One less
that share is the alignment error rate, since every digit has one link.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parents[1]))

import glassformer
from glassformer.data.builtin.written_dates import draw_writings
from glassformer.nn.taps import record
from glassformer.tasks.markup import translate_segments
from glassformer.text.markup import html_segments
from glassformer.text.tokenizer import BOS, EOS

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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--dates", type=int, default=500)
    given = parser.parse_args()
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
