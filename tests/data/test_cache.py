"""Prepared data that is kept: the same bytes as prepared anew, another entry for whatever changes, and never in the way."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from glassformer.accel import trials
from glassformer.cli.verbs import make_app
from glassformer.config import DataConfig, Recipe
from glassformer.data import cache
from glassformer.data import prepare as preparation
from glassformer.data.prepare import prepare
from tests.number_pairs import pairs, recipe, write_tsv


@pytest.fixture
def tsv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with pairs, and a cache of its own."""
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    write_tsv(tmp_path / "data" / "train.tsv", pairs(120))
    return tmp_path / "data"


def prepared(settings: Recipe, folder: Path) -> dict[str, bytes]:
    """What a preparation leaves."""
    folder.mkdir()
    prepare(settings, folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def only_entry() -> Path:
    (entry,) = cache.entries()
    return entry.path


SETTINGS: dict[str, dict[str, Any]] = {
    "pairs": {},
    "separate": {"separate_vocabularies": True},
    "both ways": {"both_ways": True},
    "dropout": {"tokenizer": "bpe", "vocab_size": 300, "bpe_dropout": 0.2, "segmentations": 3},
    "augment": {"augment": 0.5, "segmentations": 3},
    "dropout both ways": {"tokenizer": "bpe", "vocab_size": 300, "bpe_dropout": 0.2, "both_ways": True},
}


@pytest.mark.parametrize("data", SETTINGS.values(), ids=SETTINGS.keys())
def test_the_second_run_has_the_bytes_of_the_first(
    tsv: Path, tmp_path: Path, data: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so has a run with another seed, text that is drawn included. Broken variants: text cut by BPE-dropout drawn anew for
    each seed of the training; what both directions may not learn from forgotten."""
    first = prepared(recipe(tsv, data=data), tmp_path / "first")
    assert "prepared before" not in capsys.readouterr().err
    other = recipe(tsv, data=data)
    other = replace(other, train=replace(other.train, seed=7))
    with monkeypatch.context() as patch:
        patch.delattr(preparation, "encode_split")  # nothing is left to encode
        assert prepared(recipe(tsv, data=data), tmp_path / "second") == first
        assert prepared(other, tmp_path / "third") == first
    assert "prepared before" in capsys.readouterr().err
    assert len(list(cache.entries())) == 1
    monkeypatch.setenv("GLASSFORMER_CACHE", "off")
    assert prepared(other, tmp_path / "fourth") == first


def test_a_file_that_was_only_touched_is_known_again(tsv: Path, tmp_path: Path) -> None:
    """Broken variant: the report of the entry, which says when the file was changed, taken as it is."""
    prepared(recipe(tsv), tmp_path / "first")
    os.utime(tsv / "train.tsv", (1_000_000_000, 1_000_000_000))
    second = prepared(recipe(tsv), tmp_path / "second")
    assert b"1000000000000000000" in second["data/report.json"]
    only_entry()


def test_whatever_is_prepared_otherwise_is_another_entry(tsv: Path, tmp_path: Path) -> None:
    for number, data in enumerate([{}, {"lowercase": True}, {"vocab_size": 20}, {"swap": True}, {"val_fraction": 0.3}]):
        prepared(recipe(tsv, data=data), tmp_path / f"run{number}")
        assert len(list(cache.entries())) == number + 1
    write_tsv(tsv / "train.tsv", pairs(121))
    prepared(recipe(tsv), tmp_path / "changed")
    assert len(list(cache.entries())) == 6


def test_settings_of_reading_share_an_entry(tsv: Path, tmp_path: Path) -> None:
    """A setting that is listed as one of reading alone must not change what is prepared: with it, nothing changes."""
    values = {
        "batch_tokens": 77,
        "layout": "packed",
        "row_width": 33,
        "max_length": 9,
        "workers": 1,
        "target_language": "en",
    }
    assert values.keys() <= cache.ONLY_READING
    first = prepared(recipe(tsv), tmp_path / "first")
    assert prepared(recipe(tsv, data=values), tmp_path / "second") == first
    only_entry()


@pytest.mark.parametrize("damage", ["cut", "missing", "device", "pipe", "another report"])
def test_a_damaged_entry_is_made_again(
    tsv: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Broken variants: a device copied until the disk is full, a pipe waited for."""
    first = prepared(recipe(tsv), tmp_path / "first")
    tokens = only_entry() / "data" / "train.source.tokens"
    content = tokens.read_bytes()
    if damage != "another report":
        tokens.unlink()
    match damage:
        case "cut":
            tokens.write_bytes(content[:100])
        case "device":
            tokens.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(tokens)
        case "another report":
            report = json.loads((only_entry() / "data/report.json").read_text())
            report["files"][0]["sha256"] = "0" * 64
            (only_entry() / "data/report.json").write_text(json.dumps(report))
    assert prepared(recipe(tsv), tmp_path / "second") == first
    assert "is damaged; it is prepared again" in capsys.readouterr().err
    assert not tokens.is_symlink() and tokens.read_bytes() == content


def test_an_entry_gives_what_a_preparation_makes_alone(tsv: Path, tmp_path: Path) -> None:
    """Broken variant: a whole folder copied, with whatever lies in it."""
    first = prepared(recipe(tsv), tmp_path / "first")
    for name in ("run.json", "data/evil.sh"):
        (only_entry() / name).write_text("evil")
    assert prepared(recipe(tsv), tmp_path / "second") == first
    assert not list((tmp_path / "second").rglob("evil*")) and not (tmp_path / "second" / "run.json").exists()


@pytest.mark.parametrize("above", [0, 1], ids=["the folder", "the folder above"])
def test_a_folder_that_others_may_write_into_is_not_used(
    tsv: Path, tmp_path: Path, above: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """They could put an entry of their own there, or another folder in its place."""
    first = prepared(recipe(tsv), tmp_path / "first")
    [only_entry().parent, tmp_path / "cache"][above].chmod(0o777)
    assert prepared(recipe(tsv), tmp_path / "second") == first
    said = capsys.readouterr().err
    assert "is not yours alone" in said and "prepared before" not in said


def test_no_cache_is_a_reason_to_stop(tsv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: a name that is too long for the system, asked for by `exists`, which raises."""
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / ("x" * 5000)))
    assert prepared(recipe(tsv), tmp_path / "first")["tokenizer.json"]
    assert trials.gains("nowhere", lambda: {"8": 2.0})
    assert CliRunner().invoke(make_app(), ["data", "cache"]).exit_code == 0


def test_what_a_kill_left_before_its_mark_is_cleared(tsv: Path, tmp_path: Path) -> None:
    """A staging folder between its making and its mark; one that is being made just now, and a person's own, stay."""
    home = tmp_path / "cache" / "prepared"
    names = (".making-KEY-abcd1234", ".making-KEY-abcd5678", ".making-KEY-abcd9999", ".making-mine")
    for name in names:
        (home / name).mkdir(parents=True)
    (home / names[2] / "kept.txt").write_text("a person's")
    for name in (names[0], names[2], names[3]):
        os.utime(home / name, (1e9, 1e9))
    prepared(recipe(tsv), tmp_path / "first")
    assert [name for name in names if (home / name).exists()] == list(names[1:])


def test_a_run_needs_nothing_of_the_cache(tsv: Path, tmp_path: Path) -> None:
    """Broken variant: links into the cache, which a clearing or a damaged run would break for others."""
    first = prepared(recipe(tsv), tmp_path / "first")
    second = prepared(recipe(tsv), tmp_path / "second")
    for name in first:
        (tmp_path / "first" / name).write_bytes(b"damaged")
    shutil.rmtree(tmp_path / "cache")
    assert {name: (tmp_path / "second" / name).read_bytes() for name in first} == second


def test_the_least_recently_used_go_first(tsv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(recipe(tsv), tmp_path / "a")
    size = next(cache.entries()).size
    monkeypatch.setattr(cache, "MOST_BYTES", int(2.5 * size))
    oldest = only_entry()
    os.utime(oldest / cache.ABOUT, (1, 1))
    prepared(recipe(tsv, data={"swap": True}), tmp_path / "b")
    assert oldest.exists()
    prepared(recipe(tsv), tmp_path / "c")  # uses the first, so the second is the oldest now
    middle = next(entry.path for entry in cache.entries() if entry.path != oldest)
    os.utime(middle / cache.ABOUT, (2, 2))
    prepared(recipe(tsv, data={"val_fraction": 0.3}), tmp_path / "d")
    assert oldest.exists() and not middle.exists()
    monkeypatch.setattr(cache, "MOST_BYTES", size // 2)
    prepared(recipe(tsv, data={"val_fraction": 0.4}), tmp_path / "e")  # larger than all that may be kept
    assert len(list(cache.entries())) == 2


def test_two_at_once(tsv: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda number: prepared(recipe(tsv), tmp_path / f"run{number}"), range(4)))
    assert all(one == made[0] for one in made)
    left = [path.name for path in only_entry().parent.iterdir()]
    assert left == [only_entry().name]


def test_where_nothing_can_be_written_it_is_said_once(
    tsv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "file"))
    first = prepared(recipe(tsv), tmp_path / "first")
    assert "prepared data is not kept for the next run" in capsys.readouterr().err
    assert prepared(recipe(tsv), tmp_path / "second") == first
    assert "not kept" not in capsys.readouterr().err


def test_a_file_that_changes_while_it_is_prepared_is_not_kept(
    tsv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken variant: what was read later kept under the name of what was there before."""
    read_files = cache.read_files

    def then_changed(config: DataConfig) -> Any:
        files = read_files(config)
        write_tsv(tsv / "train.tsv", pairs(90, seed=5))
        return files

    monkeypatch.setattr(cache, "read_files", then_changed)
    prepared(recipe(tsv), tmp_path / "first")
    assert not list(cache.entries())


def test_what_is_no_file_is_not_kept(tsv: Path, tmp_path: Path) -> None:
    prepare(recipe(tsv), tmp_path / "given", given=pairs(60))
    prepare(recipe(tsv), tmp_path / "a look", 300)
    assert not list(cache.entries())


def test_the_command_lists_and_clears(tsv: Path, tmp_path: Path) -> None:
    call, app = CliRunner().invoke, make_app()
    assert "nothing" in call(app, ["data", "cache"]).stdout
    prepared(recipe(tsv), tmp_path / "first")
    trials.gains("of a test", lambda: {"8": 2.0})
    listed = call(app, ["data", "cache"])
    assert listed.exit_code == 0 and "train.tsv" in listed.stdout and "of-a-test" in listed.stdout
    for room in ("prepared", "trials"):
        (tmp_path / "cache" / room / "mine.json").write_text("a person's")
    assert call(app, ["data", "cache", "--clear"]).exit_code == 0
    assert not list(cache.entries())
    assert [p.name for p in (tmp_path / "cache" / "trials").iterdir()] == ["mine.json"]
    assert (tmp_path / "cache" / "prepared" / "mine.json").exists()


def test_the_same_files_elsewhere_are_the_same_data(
    tsv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the report names those that were read. Broken variant: a key made of paths."""
    prepared(recipe(tsv), tmp_path / "first")
    shutil.copytree(tsv, tmp_path / "moved")
    (tsv / "train.tsv").unlink()
    found = prepared(recipe(tmp_path / "moved"), tmp_path / "second")
    assert "prepared before" in capsys.readouterr().err and len(list(cache.entries())) == 1
    assert str(tmp_path / "moved" / "train.tsv") in found["data/report.json"].decode()
    assert str(tsv / "train.tsv") not in found["data/report.json"].decode()
