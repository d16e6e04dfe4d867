"""Text cut anew each time, and both directions at once: whatever is cut, the words stay the same."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from glassformer.config import DataConfig, Recipe
from glassformer.data.encoding import encode_split
from glassformer.data.prepare import prepare
from glassformer.data.sources import open_split
from glassformer.data.tokens import TokenFile
from glassformer.errors import ConfigError, UserError
from glassformer.text.tokenizer import CONTROL, Tokenizer
from glassformer.text.tokenizers import Tokenizers

pytestmark = pytest.mark.slow

ENGLISH = ["the lower house showed the lowest slowness", "a tower lowers its flowers", "Über 中文 mixed with rows"] * 3
GERMAN = ["das untere haus zeigte die niedrigste langsamkeit", "ein turm senkt seine blumen", "über 中文 gemischt"] * 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train("bpe", ENGLISH + GERMAN, 400)


def cuts(tokenizer: Tokenizer, dropout: float, texts: list[str], times: int = 1, seed: str = "seed") -> list[list[int]]:
    """Each text cut so many times."""
    tokens, lengths = tokenizer.bpe_dropout(dropout, seed).encode_batch(texts, times)
    ends = np.cumsum(lengths)
    return [tokens[end - length : end].tolist() for end, length in zip(ends, lengths, strict=True)]


def test_nothing_left_out_is_ordinary_bpe(tokenizer: Tokenizer) -> None:
    texts = [*ENGLISH, *GERMAN, "unseen wörter 123 \t  spaces  ", "", "🙂 \u0378 ’tis", "lowest" * 40]
    assert cuts(tokenizer, 0.0, texts, 2) == [tokenizer.encode(text) for text in texts for _ in range(2)]
    assert cuts(tokenizer, 0.0, ["", ""], 2) == [[]] * 4
    assert cuts(tokenizer, 0.0, []) == []


def test_ascii_is_split_as_the_library_splits_it(tokenizer: Tokenizer) -> None:
    """Broken variants: Python's \\s, to which U+001C is a blank; contractions in capitals."""
    draw = random.Random(1)
    texts = ["".join(draw.choices("aB'sStTrevlmd  \t\n\r\x0b\x1c\x001_-.", k=draw.randrange(14))) for _ in range(2000)]
    assert cuts(tokenizer, 0.0, texts) == [tokenizer.encode(text) for text in texts]


def test_lower_casing_happens_before_cutting() -> None:
    lower = Tokenizer.train("bpe", ENGLISH, 400, lowercase=True)
    assert cuts(lower, 0.0, ["The LOWER House"]) == [lower.encode("the lower house")]


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_any_cut_is_the_same_text(tokenizer: Tokenizer, dropout: float) -> None:
    texts = [*ENGLISH, "unseen wörter 123 \t  spaces  ", ""]
    found = cuts(tokenizer, dropout, texts, 200)  # more than are kept of a word
    assert [tokenizer.decode(ids) for ids in found] == [text for text in texts for _ in range(200)]
    assert min(min(ids, default=CONTROL) for ids in found) >= CONTROL


def test_more_left_out_makes_more_pieces(tokenizer: Tokenizer) -> None:
    means = [np.mean([len(ids) for ids in cuts(tokenizer, p, ENGLISH[:1], 40)]) for p in (0.0, 0.1, 0.5, 0.99)]
    assert means == sorted(means) and len(set(means)) == 4
    assert means[-1] > 0.9 * len(ENGLISH[0].encode())


def test_one_seed_one_draw(tokenizer: Tokenizer) -> None:
    first, again, other = (cuts(tokenizer, 0.3, ENGLISH, 5, seed) for seed in ("a", "a", "b"))
    assert first == again != other


def test_a_batch_is_not_drawn_as_the_one_before(tokenizer: Tokenizer) -> None:
    """Broken variant: a generator that begins anew with each batch, so that its first text is always cut in the same way."""
    sampler = tokenizer.bpe_dropout(0.3, "seed")
    first, second = (sampler.encode_batch(ENGLISH[:1], 8)[0].tolist() for _ in range(2))
    assert first != second


def as_in_the_paper(
    word: str, rank: dict[tuple[str, str], int], dropout: float, draw: random.Random
) -> tuple[str, ...]:
    """Provilkov et al., Algorithm 1: of all merges possible now, each is left out with probability `dropout`; the first of the
    rest is made; and so on until none is left."""
    pieces = list(word)
    while True:
        merges = [
            (rank[pair], i) for i, pair in enumerate(pairwise(pieces)) if pair in rank and draw.random() >= dropout
        ]
        if not merges:
            return tuple(pieces)
        i = min(merges)[1]
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


@pytest.mark.parametrize("word", ["lowest", "lowestslownessflowerlowestslowness"])
def test_cuts_are_as_frequent_as_the_paper_makes_them(
    tokenizer: Tokenizer, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken variants: one draw for all merges of a step, merges that were passed over never offered again, the last of two
    equal merges made first."""
    draw, times = random.Random(5), 4000
    monkeypatch.setattr("glassformer.text.bpe_dropout.KEPT", times)
    merges = json.loads(tokenizer.library.to_str())["model"]["merges"]
    rank = {(left, right): number for number, (left, right) in enumerate(merges)}
    ours = Counter(tuple(tokenizer.pieces(ids)) for ids in cuts(tokenizer, 0.3, [word], times))
    theirs = Counter(as_in_the_paper(word, rank, 0.3, draw) for _ in range(times))
    assert len(theirs) > 3
    for cut in ours | theirs:
        share = (ours[cut] + theirs[cut]) / (2 * times)
        off = abs(ours[cut] - theirs[cut]) / times
        assert off < 5 * (2 * share * (1 - share) / times) ** 0.5 + 1e-9, (cut, ours[cut], theirs[cut])


@pytest.mark.parametrize("word", ["lowest", "lowest" * 8])
def test_every_use_of_a_word_may_be_cut_otherwise(tokenizer: Tokenizer, word: str) -> None:
    """A frequent word, beyond those cuts that are kept of it, and a long one, which is cut each time."""
    assert len({tuple(ids) for ids in cuts(tokenizer, 0.3, [word], 1000)[800:]}) > 3


def written(tmp_path: Path, **data: object) -> dict[str, list[str]]:
    """Prepares the pairs and reads every token file back as text."""
    (tmp_path / "a").write_text("\n".join(ENGLISH), encoding="utf-8")
    (tmp_path / "b").write_text("\n".join(GERMAN), encoding="utf-8")
    files = {"train": "a", "train_target": "b", "val": "a", "val_target": "b"}
    config = DataConfig(path=str(tmp_path), vocab_size=400, **files, **data)  # type: ignore[arg-type]
    texts = prepare(Recipe(data=config), tmp_path)
    found = {}
    for name, tokenizer in (("source", texts.source), ("target", texts.target)):
        for split in ("train", "val"):
            file = TokenFile.open(tmp_path / "data" / f"{split}.{name}")
            found[f"{split}.{name}"] = [tokenizer.decode(file[i].tolist()) for i in range(len(file))]
            found[f"{split}.{name}.pieces"] = [len(file[i]) for i in range(len(file))]  # type: ignore[misc]
    return found


def test_training_pairs_come_cut_in_several_ways_and_validation_once(tmp_path: Path) -> None:
    found = written(tmp_path, bpe_dropout=0.3, segmentations=4)
    assert found["train.source"] == [text for text in ENGLISH for _ in range(4)]
    assert found["train.target"] == [text for text in GERMAN for _ in range(4)]
    assert len(set(found["train.source.pieces"][:4])) > 1
    assert found["val.source"] == ENGLISH and found["val.target"] == GERMAN
    ordinary = Tokenizer.load(tmp_path / "tokenizer.json")
    assert found["val.source.pieces"] == [len(ordinary.encode(text)) for text in ENGLISH]


@pytest.mark.parametrize("more", [{}, {"bpe_dropout": 0.2, "segmentations": 2}])
def test_both_ways_adds_every_pair_the_other_way_round_to_training_alone(
    tmp_path: Path, more: dict[str, object]
) -> None:
    found = written(tmp_path, both_ways=True, **more)
    pairs = list(zip(found["train.source"], found["train.target"], strict=True))
    half = len(pairs) // 2
    assert set(pairs[:half]) == set(zip(ENGLISH, GERMAN, strict=True))
    assert pairs[half:] == [(target, source) for source, target in pairs[:half]]
    assert found["val.source"] == ENGLISH


def test_a_split_that_is_only_measured_has_every_pair_once(tmp_path: Path) -> None:
    """`evaluate --split train`, `compare` and `heads` count pairs. Broken variant: the training pairs as they were learned."""
    written(tmp_path, bpe_dropout=0.3, segmentations=4, both_ways=True)
    data = DataConfig(
        path=str(tmp_path),
        vocab_size=400,
        train="a",
        train_target="b",
        bpe_dropout=0.3,
        segmentations=4,
        both_ways=True,
    )
    files = encode_split(data, "train", open_split(data, "train"), Tokenizers.load(tmp_path), tmp_path / "measured")
    assert len(files["source"]) == len(files["target"]) == len(ENGLISH)
    assert files["source"][1].tolist() == Tokenizer.load(tmp_path / "tokenizer.json").encode(ENGLISH[1])


def test_what_it_cannot_go_with_is_said_at_once(tmp_path: Path) -> None:
    for wrong in (
        {"bpe_dropout": 1.0},
        {"bpe_dropout": 0.1, "tokenizer": "word"},
        {"bpe_dropout": 0.1, "task": "text"},
        {"both_ways": True, "separate_vocabularies": True},
        {"both_ways": True, "task": "text"},
        {"segmentations": -1},
    ):
        with pytest.raises(ConfigError):
            DataConfig(**wrong)  # type: ignore[arg-type]
    Tokenizer.train("char", ENGLISH, 100).save(tmp_path / "char.json")
    with pytest.raises(UserError, match="kind bpe"):
        written(tmp_path, bpe_dropout=0.1, tokenizer_file=str(tmp_path / "char.json"))
