"""Pairs that are drawn anew each epoch: the same words in other pieces, whoever draws them, and never more than fits."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from glassformer.config import Recipe
from glassformer.data import redraw
from glassformer.data.batches import SentenceBatches, recipe_batches
from glassformer.data.encoding import open_files
from glassformer.data.prepare import prepare
from glassformer.data.redraw import EpochDraws
from glassformer.data.stream import Position
from glassformer.errors import UserError
from glassformer.runs.overview import steps_an_epoch
from glassformer.text.tokenizers import Tokenizers
from tests.faults.processes import Runner, differences, everything
from tests.read_batches import same, unpack

pytestmark = pytest.mark.slow

WORDS = [
    *("lower", "tower", "flower", "slower", "house", "mouse"),
    *("showed", "rowed", "winter", "summer", "lowest", "towers"),
]
DRAWN = {"bpe_dropout": 0.3, "segmentations": 0}


def prepared(folder: Path, **data: Any) -> Recipe:
    """Forty pairs, a side each the other's words turned round, prepared as a run's."""
    folder.mkdir()
    draw = random.Random(1)
    sides = [[draw.choice(WORDS) for _ in range(draw.randint(1, 9))] for _ in range(40)]
    lines = "".join(f"{' '.join(words)}\t{' '.join(words[::-1])}\n" for words in sides)
    for split in ("train", "val"):
        (folder / f"{split}.tsv").write_text(lines)
    files = {"path": str(folder), "train": "train.tsv", "val": "val.tsv", "vocab_size": 300, "batch_tokens": 120}
    recipe = Recipe.from_dict({"model": {"block_size": 200}, "data": files | DRAWN | data, "train": {"seed": 3}})
    prepare(recipe, folder)
    return recipe


def batches_of(recipe: Recipe, folder: Path, layout: Any = "padded", workers: int = 0) -> SentenceBatches:
    files = open_files(recipe.data, "train", folder / "data")
    recipe = replace(recipe, data=replace(recipe.data, workers=workers))
    made = recipe_batches(recipe, files, layout=layout, redraw=EpochDraws(recipe, folder))
    assert isinstance(made, SentenceBatches)
    return made


def epoch_of(batches: SentenceBatches, epoch: int) -> dict[int, tuple[list[int], list[int]]]:
    """Source and target of each example, EOS left out; each comes once."""
    plan = batches.plan(epoch)
    found: dict[int, tuple[list[int], list[int]]] = {}
    for number in range(len(plan)):
        for example, (source, row, _labels) in unpack(plan.build(number)).items():
            assert example not in found and source is not None
            found[example] = source[:-1], row[1:]
    return found


def texts(found: dict[int, tuple[list[int], list[int]]], folder: Path) -> dict[int, tuple[str, str]]:
    tokenizers = Tokenizers.load(folder)
    return {n: (tokenizers.source.decode(a), tokenizers.target.decode(b)) for n, (a, b) in found.items()}


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize(
    "more", [{}, {"both_ways": True}, {"separate_vocabularies": True}], ids=["", "both", "separate"]
)
def test_each_epoch_has_the_same_pairs_in_other_pieces(layout: str, more: dict[str, Any], tmp_path: Path) -> None:
    """And the first is what the run's files hold. Broken variants: the first epoch's cuts again; one later epoch's in all; sides
    that no longer belong together; rows of another shape."""
    recipe = prepared(tmp_path / "run", **more)
    batches = batches_of(recipe, tmp_path / "run", layout)
    epochs = [epoch_of(batches, epoch) for epoch in range(4)]
    files = open_files(recipe.data, "train", tmp_path / "run" / "data")
    assert epochs[0] == {
        n: (files["source"][n].tolist(), files["target"][n].tolist()) for n in range(len(files["source"]))
    }
    words = texts(epochs[0], tmp_path / "run")
    assert len(words) >= 30 * (1 + recipe.data.both_ways)
    assert all(source.split() == target.split()[::-1] for source, target in words.values())
    for one, other in itertools.combinations(epochs, 2):
        assert sum(one[n] != other[n] for n in one) > len(one) / 2
    assert all(texts(epoch, tmp_path / "run") == words for epoch in epochs)
    shapes = {
        tuple(batches.plan(epoch).build(k).rows.shape) for epoch in range(3) for k in range(len(batches.plan(epoch)))
    }
    assert layout == "padded" or len(shapes) == 1


def test_a_stream_is_the_same_wherever_it_begins_and_whoever_draws(tmp_path: Path) -> None:
    """Broken variant: draws that follow from those before."""
    recipe = prepared(tmp_path / "run")
    whole = list(itertools.islice(batches_of(recipe, tmp_path / "run").starting_at(), 60))
    assert whole[-1][1].epoch > 2
    for number, workers in ((0, 2), (7, 0), (23, 2), (41, 3)):
        position = whole[number][1]
        again = batches_of(recipe, tmp_path / "run", workers=workers).starting_at(
            Position(position.epoch, position.index)
        )
        for (batch, after), (other, then) in zip(whole[number + 1 :], again, strict=False):
            assert same(batch, other) and after == then
        again.close()


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_what_does_not_fit_this_time_is_what_it_was(layout: str, tmp_path: Path) -> None:
    """A limit that many cuts pass: the same examples are learned from in every epoch. Broken variants: left out of one epoch and
    not of another; a row that is too narrow."""
    recipe = prepared(tmp_path / "run")
    longest = max(
        len(sequence) for pair in epoch_of(batches_of(recipe, tmp_path / "run"), 0).values() for sequence in pair
    )
    recipe = replace(recipe, data=replace(recipe.data, max_length=longest - 6, row_width=8))
    batches = batches_of(recipe, tmp_path / "run", layout)
    first, second = epoch_of(batches, 0), epoch_of(batches, 1)
    assert 0 < batches.dropped < 20 and first.keys() == second.keys()
    assert texts(first, tmp_path / "run") == texts(second, tmp_path / "run")
    most = longest - 6
    assert max(len(sequence) + 1 for pair in second.values() for sequence in pair) <= most
    free = epoch_of(batches_of(replace(recipe, data=replace(recipe.data, max_length=200)), tmp_path / "run"), 1)
    too_long = [n for n in first if max(map(len, free[n])) + 1 > most]
    assert too_long and all(second[n] == first[n] for n in too_long)


def test_augmented_pairs_are_changed_otherwise_each_epoch(tmp_path: Path) -> None:
    recipe = prepared(tmp_path / "run", bpe_dropout=0.0, augment=1.0)
    batches = batches_of(recipe, tmp_path / "run")
    found = [texts(epoch_of(batches, epoch), tmp_path / "run") for epoch in range(3)]
    plain = texts(
        epoch_of(batches_of(prepared(tmp_path / "plain", bpe_dropout=0.0), tmp_path / "plain"), 0), tmp_path / "plain"
    )
    assert all(0.15 < sum(epoch[n] != plain[n] for n in plain) / len(plain) < 0.7 for epoch in found)
    assert found[0] != found[1] != found[2] != found[0]


def test_each_epoch_is_drawn_once_and_while_the_one_before_it_is_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a run goes on in a later one. Broken variants: the overview, which asks for the first epoch's length, and a
    checkpoint, which asks for that of an epoch that was left batches ago, throw away what is drawn; drawn when it is needed."""
    recipe = prepared(tmp_path / "run")
    drawn: list[int] = []
    real = EpochDraws.__call__

    def noted(self: EpochDraws, epoch: int, *rest: Any) -> Any:
        drawn.append(epoch)
        return real(self, epoch, *rest)

    monkeypatch.setattr(EpochDraws, "__call__", noted)
    for workers in (0, 2):
        batches = batches_of(recipe, tmp_path / "run", workers=workers)
        length = batches.epoch_length(2)
        trainer = SimpleNamespace(batches=batches, progress=SimpleNamespace(epoch=2))
        assert steps_an_epoch(SimpleNamespace(trainer=trainer, recipe=recipe)) == length  # type: ignore[arg-type]
        stream = batches.starting_at(Position(2, 3))
        epochs = []
        for _batch, after in itertools.islice(stream, 3 * length):
            epochs.append(after.epoch)
            batches.epoch_length(max(2, after.epoch - 1))
        assert epochs[-1] >= 4 and drawn == sorted(set(drawn)) and drawn[0] == 2 and drawn[-1] >= epochs[-1]
        stream.close()
        drawn.clear()


def test_a_drawing_that_nobody_waits_for_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the stream, which then begins anew. Broken variant: a training that ends when the draw does."""
    recipe = prepared(tmp_path / "run")
    batches, groups = batches_of(recipe, tmp_path / "run"), itertools.count()
    real = redraw.encode_pairs

    def endless(*how: Any) -> Any:
        for group in real(*how):
            while next(groups) >= 0:
                time.sleep(0.01)
                yield {name: (tokens[:0], sizes[:0]) for name, (tokens, sizes) in group.items()}

    with monkeypatch.context() as patch:
        patch.setattr(redraw, "encode_pairs", endless)
        stream = batches.starting_at()
        next(stream)
        stream.close()
    whole = itertools.islice(batches_of(recipe, tmp_path / "run").starting_at(), 30)
    assert all(same(one, other) for (one, _), (other, _) in zip(whole, batches.starting_at(), strict=False))


def test_a_run_that_is_moved_is_followed(tmp_path: Path) -> None:
    """And another one in its place is not read. Broken variant: a folder that is known by its name."""
    recipe = prepared(tmp_path / "run")
    whole = list(itertools.islice(batches_of(recipe, tmp_path / "run").starting_at(), 60))
    stream = batches_of(recipe, tmp_path / "run").starting_at()
    for (expected, after), (batch, then) in zip(whole, stream, strict=False):
        assert same(expected, batch) and after == then
        if after == Position(1, 1):
            (tmp_path / "run").rename(tmp_path / "moved")
            prepared(tmp_path / "run", both_ways=True)
        if after == Position(2, 1):
            (tmp_path / "moved").rename(tmp_path / "again")
    stream.close()


def check_other_examples_are_refused(recipe: Recipe, folder: Path) -> None:
    """Where the token files of another run lie beside the text."""
    prepared(folder / "other", both_ways=True)
    for name in ("train.source.tokens", "train.target.tokens"):
        (folder / "other" / "data" / name).replace(folder / "run" / "data" / name)
    with pytest.raises(UserError, match="not of the same examples"):
        for _batch in batches_of(recipe, folder / "run").starting_at():
            pass


def test_what_goes_wrong_is_said_here(tmp_path: Path) -> None:
    """By the thread that wants the epoch, whichever drew it. Broken variant: a training that waits for ever."""
    recipe = prepared(tmp_path / "run")
    check_other_examples_are_refused(recipe, tmp_path)


def test_another_process_draws_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says what goes wrong, and ends when nobody waits. Broken variants: draws that follow from the process; a stream that is
    closed and waits for the draw; an error told as an empty epoch."""
    recipe = prepared(tmp_path / "run")
    whole = list(itertools.islice(batches_of(recipe, tmp_path / "run").starting_at(), 20))
    monkeypatch.setattr(redraw, "MANY", 0)
    batches = batches_of(recipe, tmp_path / "run")
    again = batches.starting_at()
    assert all(same(one, other) for (one, _), (other, _) in zip(whole, again, strict=False))
    again.close()
    check_other_examples_are_refused(recipe, tmp_path)
    assert [path.name for path in (tmp_path / "run" / "data").iterdir() if path.name.startswith("tmp")] == []


RUN = ["data.tokenizer=bpe", "data.bpe_dropout=0.3", "data.segmentations=0"]


def test_a_killed_run_goes_on_in_the_draws_of_its_epoch(tmp_path: Path) -> None:
    """To the bit, and draws leave no file behind. Broken variant: an epoch counted from the resumption."""
    straight, killed = (Runner(tmp_path / name, [*RUN, "train.steps=70"]) for name in ("straight", "killed"))
    assert straight.train().code == 0
    for step in (32, 25):
        (killed.resume if killed.folder.exists() else killed.train)({"at": "step", "nth": step, "do": "kill"})
    assert killed.resume().code == 0
    found = everything(killed.run)
    assert differences(everything(straight.run), found) == [] and int(found["state/epoch"]) >= 2
    named = {path.name for path in (killed.folder / "data").iterdir()}
    assert named == {path.name for path in (straight.folder / "data").iterdir()}
