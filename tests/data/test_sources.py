"""Laws of the sources: what is written comes back whatever the format, splits are disjoint, and bad data is named."""

from __future__ import annotations

import dataclasses
import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.config import DataConfig
from glassformer.data import files
from glassformer.data.files import Document
from glassformer.data.sources import SplitReader, open_split
from glassformer.errors import UserError
from tests.counts import count
from tests.data_files import lines, write

pytestmark = pytest.mark.slow

# A separator of Unicode inside a line is not a line's end; tools that think so shift one of two aligned files.
PAIRS = [(f"source {i} \u2028 ä", f"目标 {i} \x85 é") for i in range(300)]
LABELLED = [(f"text {i} 好", f"label{i % 3}") for i in range(300)]
TAGGED = [([f"w{i}", "的", "end"], ["A", "B", f"T{i % 4}"]) for i in range(300)]


def everything(config: DataConfig) -> list[Any]:
    return [example for split in ("train", "val", "test") for example in open_split(config, split)]  # type: ignore[arg-type]


def pair_config(folder: Path, kind: str) -> DataConfig:
    """The same pairs, written in one of the ways."""
    if kind.startswith("tsv"):
        name = write(folder / f"all.{kind}", lines("\t".join((*pair, "a third column")) for pair in PAIRS)).name
        return DataConfig(path=str(folder), train=name)
    if kind.startswith("lines"):
        gz = ".gz" if kind.endswith("gz") else ""
        write(folder / f"all.src{gz}", lines(s for s, _ in PAIRS).replace("\n", "\r\n"))
        write(folder / f"all.tgt{gz}", lines(t for _, t in PAIRS).removesuffix("\n"))
        return DataConfig(path=str(folder), train=f"all.src{gz}", train_target=f"all.tgt{gz}")
    rows = [{"id": i, "q": s, "pair": {"a": t}} for i, (s, t) in enumerate(PAIRS)]
    fields: dict[str, Any] = {"source_field": "q", "target_field": "pair.a"}
    if kind.startswith("jsonl"):
        name = write(folder / f"all.{kind}", lines(json.dumps(row) for row in rows)).name
        return DataConfig(path=str(folder), train=name, **fields)
    if kind == "parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "all.parquet")
        return DataConfig(path=str(folder), train="all.parquet", **fields)
    import datasets

    datasets.Dataset.from_list(rows).save_to_disk(str(folder / "all"))
    return DataConfig(path=str(folder), train="all", **fields)


PAIR_KINDS = ["tsv", "tsv.gz", "lines", "lines.gz", "jsonl", "jsonl.gz", "parquet", "datasets"]


@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_pairs_come_back_from_every_format(tmp_path: Path, kind: str) -> None:
    """All three splits together are the file, in every format the same splits, and each `iter` starts again."""
    config = pair_config(tmp_path, kind)
    expected = [(s.strip(), t.strip()) for s, t in PAIRS]
    assert sorted(everything(config)) == sorted(expected)
    train = open_split(config, "train")
    first = list(train)
    kept = set(first)
    assert list(train) == first == [pair for pair in expected if pair in kept]  # in the order of the file
    reference = pair_config(write(tmp_path / "again" / "x", "").parent, "tsv")
    assert list(open_split(reference, "val")) == list(open_split(config, "val"))


def test_splits_are_disjoint_stable_and_about_as_large_as_asked(tmp_path: Path) -> None:
    pairs = [(f"s{i % 1500}", f"t{i}") for i in range(3000)]  # each source twice, with two targets
    write(tmp_path / "a.tsv", lines("\t".join(p) for p in pairs))
    config = DataConfig(train=str(tmp_path / "a.tsv"), val_fraction=0.1)
    splits = {name: list(open_split(config, name)) for name in ("train", "val", "test")}  # type: ignore[arg-type]
    sources = {name: {s for s, _ in rows} for name, rows in splits.items()}
    assert not sources["train"] & sources["val"] and not sources["train"] & sources["test"]
    assert not sources["val"] & sources["test"]
    assert 200 < len(splits["val"]) < 400 and 200 < len(splits["test"]) < 400
    # A longer file moves no line across a border.
    write(tmp_path / "b.tsv", lines("\t".join(p) for p in [("new", "line"), *pairs]))
    longer = set(open_split(dataclasses.replace(config, train=str(tmp_path / "b.tsv")), "val"))
    assert set(splits["val"]) == longer - {("new", "line")}


def test_given_splits_are_read_whole_and_train_loses_only_what_is_missing(tmp_path: Path) -> None:
    for name in ("train", "val", "test"):
        write(tmp_path / f"{name}.tsv", lines(f"{name} {i}\tt" for i in range(200)))
    config = DataConfig(path=str(tmp_path), train="train.tsv", val="val.tsv", test="test.tsv")
    for name in ("train", "val", "test"):
        assert [s for s, _ in open_split(config, name)] == [f"{name} {i}" for i in range(200)]  # type: ignore[arg-type]
    no_test = dataclasses.replace(config, test=None)
    rest = [s for s, _ in open_split(no_test, "train")]
    assert len(list(open_split(no_test, "val"))) == 200
    assert sorted(rest + [s for s, _ in open_split(no_test, "test")]) == sorted(f"train {i}" for i in range(200))
    assert rest and len(rest) < 200
    alone = DataConfig(path=str(tmp_path), test="test.tsv")
    assert len(list(open_split(alone, "test"))) == 200


def test_swap_and_lowercase(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "ÄB\tΟΔΟΣ\n")
    config = DataConfig(train=str(tmp_path / "a.tsv"), val_fraction=0.0, swap=True, lowercase=True)
    assert list(open_split(config, "train")) == [("οδοσ", "äb")]
    write(tmp_path / "b.tsv", "Label\tTEXT\n")
    config = DataConfig(task="classify", train=str(tmp_path / "b.tsv"), val_fraction=0.0, lowercase=True)
    assert list(open_split(config, "train")) == [("text", "Label")]
    write(tmp_path / "c.tsv", "Word\tTAG\n")
    config = DataConfig(task="tag", train=str(tmp_path / "c.tsv"), val_fraction=0.0, lowercase=True)
    assert list(open_split(config, "train")) == [(["word"], ["TAG"])]


def test_empty_sides_and_blank_lines_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "\ufeffa\tb\n\n \tc\nd\t \n\t\ne\tf")
    config = DataConfig(train=str(tmp_path / "a.tsv"), val_fraction=0.0)
    assert list(open_split(config, "train")) == [("a", "b"), ("e", "f")]


@pytest.mark.parametrize("kind", ["tsv", "tsv.gz", "jsonl", "datasets"])
def test_labelled_lines(tmp_path: Path, kind: str) -> None:
    if kind == "datasets":
        import datasets

        features = datasets.Features(
            {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["label0", "label1", "label2"])}
        )
        data = datasets.Dataset.from_list([{"text": t, "label": int(x[-1])} for t, x in LABELLED], features=features)
        datasets.DatasetDict({"train": data, "validation": data.select(range(5))}).save_to_disk(str(tmp_path / "all"))
        config = DataConfig(task="classify", path=str(tmp_path), train="all")
        assert list(open_split(config, "val")) == LABELLED[:5]  # the split the data set itself has
        assert {*open_split(config, "train"), *open_split(config, "test")} == set(LABELLED)
        return
    if kind == "jsonl":
        write(tmp_path / "all.jsonl", lines(json.dumps({"text": t, "label": x}) for t, x in LABELLED))
    else:
        write(tmp_path / f"all.{kind}", lines(f"{x}\t{t}" for t, x in LABELLED))
    config = DataConfig(task="classify", path=str(tmp_path), train=f"all.{kind}")
    assert sorted(everything(config)) == sorted(LABELLED)


@pytest.mark.parametrize("kind", ["tsv", "txt.gz", "jsonl", "parquet"])
def test_tagged_tokens(tmp_path: Path, kind: str) -> None:
    if kind in ("tsv", "txt.gz"):
        sentences = (
            "".join(f"{w}\tcolumn between\t{t}\n" for w, t in zip(*example, strict=True)) for example in TAGGED
        )
        write(tmp_path / f"all.{kind}", "\n\n".join(sentences))
    elif kind == "jsonl":
        write(tmp_path / "all.jsonl", lines(json.dumps({"text": w, "label": t}) for w, t in TAGGED))
    else:
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.Table.from_pylist([{"text": w, "label": t} for w, t in TAGGED])
        pyarrow.parquet.write_table(table, tmp_path / "all.parquet")
    config = DataConfig(task="tag", path=str(tmp_path), train=f"all.{kind}")
    assert sorted(everything(config)) == sorted(TAGGED)


# Text


def text_config(train: Path, **settings: Any) -> DataConfig:
    return DataConfig(task="text", train=str(train), **settings)


def joined(documents: Any) -> list[str]:
    """Documents put together from their pieces."""
    out, held = [], ""
    for piece in documents:
        held += piece.text
        if piece.ends:
            out.append(held)
            held = ""
    assert not held  # every document ends
    return out


@pytest.mark.parametrize("suffix", ["txt", "txt.gz"])
@given(
    text=st.text(st.sampled_from("ab\n\r 喜😀é"), min_size=1, max_size=200),
    size=st.integers(4, 40),
    fraction=st.sampled_from([0.0, 0.1, 0.5]),
)
@settings(deadline=None, max_examples=count(fast=60, soak=1000))
def test_a_text_comes_back_exactly_in_bounded_pieces(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, text: str, size: int, fraction: float
) -> None:
    """Whatever the size of a piece: no byte lost, no character cut, train and val together are the file."""
    path = write(tmp_path_factory.mktemp("text") / f"a.{suffix}", text)
    config = text_config(path, val_fraction=fraction)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "PIECE_BYTES", size)
        both = []
        for split in ("train", "val") if fraction else ("train",):
            try:
                pieces = list(open_split(config, split))  # type: ignore[arg-type]
            except UserError:
                continue  # nothing was left for this split
            both += joined(pieces)
            assert all(len(piece.text.encode()) <= 3 * size for piece in pieces)
            inner = pieces[
                split == "val" :
            ]  # what is left of the piece in which val begins is as long as it happens to be
            assert all(
                piece.text.endswith("\n") or len(piece.text.encode()) >= size - 4 for piece in inner if not piece.ends
            )
    assert "".join(both) == text and len(both) <= 2


def test_val_is_the_end_of_a_single_text(tmp_path: Path) -> None:
    text = lines(range(1000))
    config = text_config(write(tmp_path / "a.txt", text), val_fraction=0.1)
    train, val = ("".join(joined(open_split(config, split))) for split in ("train", "val"))  # type: ignore[arg-type]
    assert train + val == text and val.startswith("9") and train.endswith("\n")
    assert len(val) == pytest.approx(0.1 * len(text), abs=10)
    with pytest.raises(UserError, match="no test text"):
        open_split(config, "test")


def test_a_folder_is_one_document_a_file_in_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a/y.txt.gz", ".hidden/x.txt", "c.md"):
        write(tmp_path / name, f"I am {name}\nwith two lines\n")
    config = text_config(tmp_path, val_fraction=0.25)
    all_of_it = joined(open_split(dataclasses.replace(config, val=str(tmp_path)), "train"))
    assert [text.split()[2] for text in all_of_it] == ["a/y.txt.gz", "a/z.txt", "b.txt", "c.md"]
    train, val = (joined(open_split(config, split)) for split in ("train", "val"))  # type: ignore[arg-type]
    assert sorted(train + val) == sorted(all_of_it) and len(val) == 1


def test_lines_and_records_as_documents(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one\n\ntwo\n")
    assert list(open_split(text_config(path, format="lines", val_fraction=0.0), "train")) == [
        Document("one", ends=True),
        Document("two", ends=True),
    ]
    path = write(tmp_path / "a.jsonl", lines(json.dumps({"body": f"text\n{i}"}) for i in range(100)))
    config = text_config(path, text_field="body")
    found = [*open_split(config, "train"), *open_split(config, "val")]
    assert sorted(d.text for d in found) == sorted(f"text\n{i}" for i in range(100))


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """25 MB of text, and as much in one line: a reader that holds a file, or all lines, takes 25 MB and more."""
    path = write(tmp_path / "a.txt", ("0123456789abcde " * 32 + "\n") * 50_000)
    endless = write(tmp_path / "b.txt", "喜" * (8 << 20))
    pairs = write(tmp_path / "c.tsv", lines(f"source {i}\t" + "target " * 1200 for i in range(3_000)))
    configs = [
        text_config(path, val_fraction=0.0),
        text_config(endless, val_fraction=0.0),
        DataConfig(train=str(pairs)),
    ]
    tracemalloc.start()
    try:
        for config in configs:
            tracemalloc.reset_peak()
            assert sum(1 for _ in open_split(config, "train")) > 20
            assert tracemalloc.get_traced_memory()[1] < 16e6
    finally:
        tracemalloc.stop()


def test_examples_travel_to_another_process(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "a\tb\n")
    examples = open_split(DataConfig(train=str(tmp_path / "a.tsv"), val_fraction=0.0), "train")
    assert list(pickle.loads(pickle.dumps(examples))) == [("a", "b")]


def test_built_in_data_is_passed_on() -> None:
    plain = list(open_split(DataConfig(builtin="reverse", size=20), "train"))
    assert len(plain) == 20
    swapped = open_split(DataConfig(builtin="reverse", size=20, swap=True), "train")
    assert isinstance(swapped, SplitReader) and list(swapped) == [(t, s) for s, t in plain]
