"""Training text changed as people paste it: by the data alone, with what belongs to it in the target, and not at all when off."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from glassformer.api import load
from glassformer.config import DataConfig, Recipe, TrainConfig
from glassformer.data.prepare import prepare
from glassformer.data.tokens import TokenFile
from glassformer.data.transforms import EMOJI, LEARNED, PERTURBATIONS, Augmented, Recased, perturbed
from glassformer.errors import ConfigError
from glassformer.tasks.translate import truecase
from glassformer.text.tokenizer import EOS, Tokenizer
from tests.commands import call
from tests.small_runs import small_run
from tests.text.test_bpe_dropout import ENGLISH, GERMAN

PAIRS = list(zip(ENGLISH, GERMAN, strict=True))


def learned(folder: Path, seed: int = 1, **data: Any) -> dict[str, list[str]]:
    """The texts that a preparation leaves to be learned from and to be validated on, read back from their tokens."""
    folder.mkdir(parents=True)
    (folder / "a").write_text("\n".join(ENGLISH), encoding="utf-8")
    (folder / "b").write_text("\n".join(GERMAN), encoding="utf-8")
    files = {"train": "a", "train_target": "b", "val": "a", "val_target": "b"}
    config = DataConfig(path=str(folder), vocab_size=500, **files, **data)  # type: ignore[arg-type]
    texts = prepare(Recipe(data=config, train=TrainConfig(seed=seed)), folder)
    found = {}
    for side, tokenizer in (("source", texts.source), ("target", texts.target)):
        for split in ("train", "val"):
            file = TokenFile.open(folder / "data" / f"{split}.{side}")
            found[f"{split}.{side}"] = [tokenizer.decode(file[i].tolist()) for i in range(len(file))]
    return found


@pytest.mark.parametrize("more", [{}, {"bpe_dropout": 0.2}], ids=["plain", "dropout"])
def test_what_is_learned_follows_from_the_data_and_validation_is_untouched(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    """Broken variants: draws of the process, or of the seed of the training; every copy changed alike; val changed as well."""
    data = {"augment": 0.5, "segmentations": 4} | more
    first = learned(tmp_path / "1", **data)
    assert learned(tmp_path / "2", **data) == first
    assert learned(tmp_path / "3", seed=2, **data) == first
    wanted = list(Augmented(PAIRS, 0.5, 1, times=4))
    assert list(zip(first["train.source"], first["train.target"], strict=True)) == wanted
    assert any(len({*wanted[n : n + 4]}) > 1 for n in range(0, len(wanted), 4)) and len(wanted) == 4 * len(PAIRS)
    assert first["val.source"] == ENGLISH and first["val.target"] == GERMAN


def test_off_it_changes_nothing(tmp_path: Path) -> None:
    off = learned(tmp_path / "off", segmentations=4)
    assert off["train.source"] == ENGLISH and off["train.target"] == GERMAN
    assert list(Augmented(PAIRS, 0.0, 1)) == PAIRS


def test_a_share_is_changed_and_targets_get_what_belongs_to_the_change() -> None:
    """Broken variants: another emoji; a typo in the target; a target in small letters."""
    pairs = [(f"{source.title()}.", target) for source, target in PAIRS] * 60
    for share in (0.3, 1.0):
        many = list(Augmented(pairs, share, 3))
        changed = sum(new != old for new, old in zip(many, pairs, strict=True)) / len(pairs)
        assert 0.6 * share < changed < share + 0.1  # a typo may find no word, a full stop may be missing already
        for (source, target), (old, wanted) in zip(many, pairs, strict=True):
            if source[len(old) :].strip() in EMOJI:
                assert (source, target) == (old + (end := source[len(old) :]), wanted + end)
            else:
                assert target == wanted


def test_each_change_is_what_its_name_says() -> None:
    pair = "the keys are under an old red table in www.example.org/a today.", "Schlüssel."
    found = {kind: next(iter(perturbed([pair], kind))) for kind in PERTURBATIONS}
    assert found["upper"] == ("THE KEYS ARE UNDER AN OLD RED TABLE IN www.example.org/a TODAY.", "SCHLÜSSEL.")
    assert found["title"] == ("The Keys Are Under An Old Red Table In www.example.org/a Today.", pair[1])
    assert found["stops"] == (pair[0][:-1], pair[1])
    assert found["lines"][0].split() == pair[0].split() and 1 <= found["lines"][0].count("\n") <= 2
    typos = [source for source, _target in perturbed([pair] * 200, "typos")]
    assert len({*typos}) > 20
    assert all("www.example.org/a" in typo and typo.split()[0] == "the" for typo in typos)
    assert {*LEARNED} == {*PERTURBATIONS} - {"upper", "title", "lines"}
    small = [source for source, _target in perturbed([("The Keys of Tom.", "x")] * 30, "lower")]
    assert {*small} == {"The keys of tom.", "the keys of tom."}


def test_capitals_and_headlines_are_known_and_nothing_else() -> None:
    """Caught: an abbreviation, a name, a German sentence or a script without capitals taken for one; placeholders changed."""
    for text in (
        "NASA",
        "USA und EU sind da.",
        "Tom Meyer",
        "A B C",
        "Der kleine Hund frisst Fleisch.",
        "我们 走",
        "42 17",
        "",
    ):
        assert Recased.of(text) == Recased(text)
    assert Recased.of("IN {NAME} YOU HAVE 3X %s!") == Recased("In {NAME} you have 3X %s!", uppercase=True)
    assert Recased.of("¡VAMOS A CASA!") == Recased("¡Vamos a casa!", uppercase=True)
    assert Recased.of("Two Dogs Run in the Tall Grass") == Recased("Two dogs run in the tall grass")
    shouted = Recased.of("GO HOME")
    assert shouted.answer("Geh auf der Straße zu %s.") == "GEH AUF DER STRASSE ZU %s."
    assert Recased.of("Two Dogs Running Home").answer("Zwei Hunde.") == "Zwei Hunde."
    assert Recased.of("We Saw Tom.") == Recased("We saw tom.")


def test_a_name_in_a_headline_keeps_its_capital() -> None:
    """The tokenizer knows it: a word that was always written with a capital is one piece so. Caught: names in small letters, all
    words left as they are, and a word that is written both ways (as the first of a sentence is) left with a capital."""
    texts = ["Dogs like Tom Meyer and the dogs.", "The dogs like Tom and dogs.", "Like the dogs, and Tom Meyer."] * 20
    bpe, chars = (Tokenizer.train(kind, texts, 300, False) for kind in ("bpe", "char"))
    for text in ("The Dogs Like Tom", "THE DOGS LIKE TOM"):
        assert Recased.of(text, partial(truecase, bpe)).text == "The dogs like Tom"
        assert Recased.of(text, partial(truecase, chars)).text == "The dogs like tom"


def test_capitals_are_answered_in_capitals_by_a_run_that_learned_small_letters(tmp_path: Path) -> None:
    """The same answer as to small letters, in capitals, whole or streamed; a run without `data.augment` reads what is there.
    Caught: the answer's case forgotten in one of the two ways; other runs changed as well."""
    run = small_run(tmp_path, "pairs", steps=30).path
    plain, model = load(run), load(run)
    model.recipe = replace(model.recipe, data=replace(model.recipe.data, augment=0.5))
    small, told = "Eins zwei drei vier", str.upper
    wanted = str(model.translate(small, beam=1))
    assert wanted and wanted.upper() != wanted
    assert str(model.translate(told(small), beam=1)) == wanted.upper()
    assert "".join(model.stream(told(small))) == wanted.upper()
    assert str(model.translate("Eins Zwei Drei Vier", beam=1)) == wanted
    both = model.translate([small, f"{told(small)}\n\n{told(small)}"], beam=1)
    assert str(both[1]) == f"{wanted.upper()}\n\n{wanted.upper()}"
    read = plain.translate(told(small)).best.parts[0].source
    assert read == [*plain.tokenizers.source.encode(told(small)), EOS]


def test_a_tag_before_a_source_stays() -> None:
    tagged = [(f"<bt> {source}", target) for source, target in PAIRS] * 10
    assert all(source.startswith("<bt> ") for source, _target in Augmented(tagged, 1.0, 1, tags=("<bt>",)))


def test_other_tasks_refuse_it() -> None:
    with pytest.raises(ConfigError, match=r"data\.augment is for"):
        DataConfig(task="text", augment=0.1)


@pytest.mark.slow
def test_evaluate_on_a_changed_test_set_is_evaluate_on_a_file_so_changed(tmp_path: Path) -> None:
    """Broken variants: the source alone changed; the tokens of the unchanged split taken from the run."""
    run = small_run(tmp_path, "pairs").path
    pairs = [("eins zwei drei", "one two three"), ("vier fünf", "four five"), ("sechs", "six")]
    plain, shouted = tmp_path / "plain.tsv", tmp_path / "shouted.tsv"
    plain.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    shouted.write_text("".join(f"{a}\t{b}\n" for a, b in perturbed(pairs, "upper")), encoding="utf-8")
    said = [
        json.loads(call("evaluate", run, "--file", file, "--json", *more, cwd=tmp_path).stdout)
        for file, more in ((plain, ["--perturb", "upper"]), (shouted, []), (plain, []))
    ]
    scores = [{k: v for k, v in one.items() if isinstance(v, float)} for one in said]
    assert scores[0] == scores[1] != scores[2] and said[0]["on"] == f"{plain}, upper"
    refused = call("evaluate", run, "--perturb", "small", cwd=tmp_path)
    assert refused.returncode == 2 and "upper, title, lower, typos, stops, emoji, lines, not 'small'" in refused.stderr
