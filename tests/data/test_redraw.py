"""Pairs that are drawn anew each epoch: the same words in other pieces, whoever draws them, and never more than fits."""

from __future__ import annotations

import itertools
import random
import signal
import tempfile
from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glassformer.config import Recipe
from glassformer.data.batches import SentenceBatches, recipe_batches
from glassformer.data.encoding import open_files
from glassformer.data.packing import Shape
from glassformer.data.prepare import prepare
from glassformer.data.redraw import DrawRequest, EpochDraws
from glassformer.data.stream import Position
from glassformer.errors import UserError
from glassformer.text.tokenizers import Tokenizers
from tests.faults.processes import Runner, differences, everything
from tests.read_batches import same, unpack

WORDS = [
    "lower",
    "tower",
    "flower",
    "slower",
    "house",
    "mouse",
    "showed",
    "rowed",
    "winter",
    "summer",
    "lowest",
    "towers",
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


def batches_of(recipe: Recipe, folder: Path, layout: Any = "padded") -> SentenceBatches:
    files = open_files(recipe.data, "train", folder / "data")
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
    """Broken variants: draws that follow from those before; an epoch that is drawn again on the way."""
    recipe = prepared(tmp_path / "run")
    whole = list(itertools.islice(batches_of(recipe, tmp_path / "run").starting_at(), 60))
    assert whole[-1][1].epoch > 2
    for number in (0, 7, 23, 41):
        position = whole[number][1]
        again = batches_of(recipe, tmp_path / "run").starting_at(Position(position.epoch, position.index))
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


def test_drawing_is_given_up_where_nobody_waits_and_a_text_of_something_else_is_refused(tmp_path: Path) -> None:
    recipe = prepared(tmp_path / "run")
    with pytest.raises(CancelledError):
        EpochDraws(recipe, tmp_path / "run")(1, Shape(200, 200), [], lambda: True)
    prepared(tmp_path / "other", both_ways=True)
    for name in ("train.source.tokens", "train.target.tokens"):
        (tmp_path / "other" / "data" / name).replace(tmp_path / "run" / "data" / name)
    with pytest.raises(UserError, match="not of the same examples"):
        EpochDraws(recipe, tmp_path / "run")(1, Shape(200, 200), [], lambda: False)


def test_the_process_that_draws_may_be_killed_and_is_gone_with_the_stream(tmp_path: Path) -> None:
    """Killed between two epochs it is started again; killed while it is waited for, that is said. Broken variants: a training
    that waits for ever, or ends for nothing; processes that are left behind."""
    recipe = prepared(tmp_path / "run")
    whole = list(itertools.islice(batches_of(recipe, tmp_path / "run").starting_at(), 50))
    batches = batches_of(recipe, tmp_path / "run")
    draws, stream, killed = batches.redraw, batches.starting_at(), set()
    assert isinstance(draws, EpochDraws)
    for (expected, after), (batch, then) in zip(whole, stream, strict=False):
        assert same(expected, batch) and after == then
        if after.index == 1 and draws.process is not None:
            killed.add(draws.process.pid)
            draws.process.kill()
    batches.planned(then.epoch + 1)  # whoever draws it; now nothing is being drawn
    assert len(killed) > 2 and draws.process is not None
    draws.process.kill()
    draws.process.wait()
    batches.plan(then.epoch + 2)
    process = draws.process
    stream.close()
    assert draws.process is None and process.poll() is not None

    def kill() -> bool:
        assert draws.process is not None
        draws.process.kill()
        return False

    request = DrawRequest(recipe.to_dict(), str(tmp_path / "run"), 1, Shape(200, 200), ())
    draws.begin()
    assert draws.process is not None
    draws.process.send_signal(signal.SIGSTOP)
    with ExitStack() as held, pytest.raises(UserError, match="has ended"):
        draws.ask(request, [held.enter_context(tempfile.TemporaryFile()) for _ in range(3)], kill)
    draws.close()


@pytest.mark.slow
def test_a_killed_run_goes_on_in_the_draws_of_its_epoch(tmp_path: Path) -> None:
    """To the bit, and draws leave no file behind. Broken variant: an epoch counted from the resumption."""
    settings = ["data.tokenizer=bpe", "data.bpe_dropout=0.3", "data.segmentations=0", "train.steps=60"]
    straight, killed = (Runner(tmp_path / name, settings) for name in ("straight", "killed"))
    assert straight.train().code == 0
    for step in (32, 25):
        (killed.resume if killed.folder.exists() else killed.train)({"at": "step", "nth": step, "do": "kill"})
    assert killed.resume().code == 0
    found = everything(killed.run)
    assert differences(everything(straight.run), found) == [] and int(found["state/epoch"]) >= 2
    named = {path.name for path in (killed.folder / "data").iterdir()}
    assert named == {path.name for path in (straight.folder / "data").iterdir()}
