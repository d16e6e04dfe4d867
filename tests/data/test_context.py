"""Sentences with those before them (`data.context`): pairs keep to their documents, a document to one split; and a model that
reads the sentence before knows what a pronoun stands for, while one that does not is at chance."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest

import glassformer
from glassformer import tasks
from glassformer.config import DataConfig
from glassformer.data.sources import open_split
from glassformer.data.transforms import windows
from glassformer.errors import ConfigError, UserError
from tests.commands import call
from tests.data_files import write

NOUNS = {
    "der": {"hat": "hut", "tree": "baum", "dog": "hund", "chair": "stuhl"},
    "die": {"lamp": "lampe", "door": "tür", "clock": "uhr", "cup": "tasse"},
    "das": {"house": "haus", "book": "buch", "car": "auto", "bed": "bett"},
}
PRONOUNS = {"der": "er", "die": "sie", "das": "es"}
ADJECTIVES = {"old": "alt", "new": "neu", "small": "klein", "red": "rot", "heavy": "schwer", "good": "gut"}
Document = list[tuple[str, str]]


def documents(seed: int) -> list[tuple[str, Document]]:
    """Two sentences each, in the second of which the noun of the first is a pronoun; with the gender."""
    nouns = [(article, *noun) for article, own in NOUNS.items() for noun in own.items()]
    found = []
    for (article, noun, wort), first, second in itertools.product(nouns, ADJECTIVES, ADJECTIVES):
        opening = f"the {noun} is {first}", f"{article} {wort} ist {ADJECTIVES[first]}"
        found.append((article, [opening, (f"it is {second}", f"{PRONOUNS[article]} ist {ADJECTIVES[second]}")]))
    random.Random(seed).shuffle(found)
    return found


def as_tsv(docs: list[Document]) -> str:
    return "\n".join("".join(f"{s}\t{t}\n" for s, t in own) for own in docs)


def all_pairs(config: DataConfig) -> dict[str, list[tuple[str, str]]]:
    return {split: list(open_split(config, split)) for split in ("train", "val", "test")}  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["tsv", "lines", "jsonl"])
def test_a_pair_has_those_before_it_and_a_document_is_in_one_split(tmp_path: Path, kind: str) -> None:
    """Broken variants: context over the end of a document, or in the wrong order; a window that is too long; a document of which
    some is trained on and some held out, so that a held-out target stands in the context of a training pair."""
    docs = [[(f"s{d}.{i}", f"t{d}.{i}") for i in range(d % 5 + 1)] for d in range(200)]
    if kind == "tsv":
        config = DataConfig(train=str(write(tmp_path / "a.tsv", as_tsv(docs))), context=2, val_fraction=0.2)
    elif kind == "lines":
        for side, name in enumerate(("a", "b")):
            write(tmp_path / name, "\n".join("".join(f"{pair[side]}\n" for pair in own) for own in docs))
        config = DataConfig(
            path=str(tmp_path), train="a", train_target="b", format="lines", context=2, val_fraction=0.2
        )
    else:
        rows = [{"source": s, "target": t, "doc": d} for d, own in enumerate(docs) for s, t in own]
        write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        config = DataConfig(train=str(tmp_path / "a.jsonl"), context=2, val_fraction=0.2, document_field="doc")
    expected = {
        tuple(" ‖ ".join(pair[side] for pair in own[max(0, i - 2) : i + 1]) for side in (0, 1))
        for own in docs
        for i in range(len(own))
    }
    found = all_pairs(config)
    together = [pair for own in found.values() for pair in own]
    assert len(together) == len(expected) and set(together) == expected
    numbers = {split: {s.split(".")[0] for s, _t in own} for split, own in found.items()}
    assert all(numbers.values()) and not any(numbers[a] & numbers[b] for a, b in itertools.combinations(numbers, 2))


def test_lines_are_read_in_the_same_windows() -> None:
    assert list(windows(["a", "b", "c", "", " ", "d"], 1)) == ["a", "a ‖ b", "b ‖ c", "", "", "d"]


def test_what_has_no_documents_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", '{"source": "a", "target": "b"}\n')
    with pytest.raises(UserError, match=r"data\.context needs to know where documents end"):
        list(open_split(DataConfig(train=str(tmp_path / "a.jsonl"), context=1), "train"))
    for how in ({"builtin": "dates"}, {"task": "text", "train": "a.txt"}):
        with pytest.raises(ConfigError, match=r"data\.context joins sentences of documents"):
            DataConfig(context=1, **how)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_model_with_context_knows_the_pronoun_and_one_without_does_not(tmp_path: Path) -> None:
    """Contrasts of held-out documents: er, sie or es for the noun of the sentence before. Broken variants: context that is read
    on one side alone or not at all; contrasts scored without theirs; a decoder that returns the context with the sentence."""
    docs = documents(3)
    held, train = docs[:40], docs[40:]
    write(tmp_path / "train.tsv", as_tsv([own for _gender, own in train]))
    write(tmp_path / "val.tsv", as_tsv([own for _gender, own in held]))
    lines = []
    for gender, (opening, (source, right)) in held:
        for other in PRONOUNS.keys() - {gender}:
            wrong = right.replace(PRONOUNS[gender], PRONOUNS[other], 1)
            lines.append("\t".join([source, right, wrong, *opening]) + "\n")
    write(tmp_path / "contrasts.tsv", "".join(lines))
    small = ["model.n_layer=1", "model.n_embd=32", "model.n_head=2", "model.n_hidden=64", "model.dropout=0"]
    small += ["data.tokenizer=word", "data.batch_tokens=512", "train.steps=300", "train.learning_rate=5e-3"]
    small += ["train.validate_every=300", "train.save_every=300", "train.warmup=20", "train.label_smoothing=0"]
    shares = {}
    for size in (0, 1):
        made = call(
            *("train", "--data", "train.tsv", "--data", "val.tsv", *small, f"data.context={size}"),
            *("--out", f"run{size}", "-q"),
            cwd=tmp_path,
        )
        assert made.returncode == 0, made.stderr
        done = call("evaluate", f"run{size}", "--contrastive", "contrasts.tsv", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        shares[size] = json.loads(done.stdout)["contrastive"]
        assert json.loads(done.stdout)["examples"] == 80
    assert shares[1] > 95 and 30 < shares[0] < 70, shares
    read = [line for _gender, own in held[:10] for line in (own[0][0], own[1][0], "")]
    write(tmp_path / "text.txt", "".join(f"{line}\n" for line in read))
    done = call("translate", "run1", "--file", "text.txt", "--set", "document=true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split("\n")[:-1]
    wanted = [line for _gender, own in held[:10] for line in (own[0][1], own[1][1], "")]
    assert [len(line.split()) for line in said] == [len(line.split()) for line in wanted]
    assert sum(a.split()[:1] == b.split()[:1] for a, b in zip(said, wanted)) >= len(wanted) - 2
    with pytest.raises(UserError, match="this run reads one sentence at a time"):
        tasks.translate_in_context(glassformer.load(tmp_path / "run0"), read)
    write(tmp_path / "bad.tsv", "a\tb\n")
    for words, sentence in (
        (("evaluate", "run1", "--contrastive", "bad.tsv"), "bad.tsv, line 1: a contrast is source, right, wrong"),
        (("evaluate", "run1", "--contrastive", "bad.tsv", "--split", "val"), "leave out other data"),
        (("translate", "run1", "x", "--set", "document=true"), "document=true takes a document by --file"),
    ):
        wrong = call(*words, cwd=tmp_path)
        assert wrong.returncode == 2 and sentence in wrong.stderr, wrong.stderr
