"""Where the examples of a split come from: the files a configuration names, and the format each is read in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from glassformer.config import DataConfig, did_you_mean
from glassformer.data.records import dataset_part
from glassformer.errors import UserError

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


@dataclass(frozen=True)
class Origin:
    path: Path
    format: str
    target: Path | None = None  # the second of two aligned files
    part: str | None = None  # datasets: the name of the split inside


def located(config: DataConfig, name: str) -> Path:
    path = Path(name).expanduser()
    return path if path.is_absolute() or config.path is None else Path(config.path).expanduser() / path


def is_saved_dataset(path: Path) -> bool:
    return any((path / name).exists() for name in ("dataset_dict.json", "state.json"))


def format_of(config: DataConfig, path: Path, has_target: bool) -> str:
    if config.format != "auto":
        return config.format
    name = path.name.removesuffix(".gz")
    suffix = Path(name).suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        return "jsonl"
    if suffix == ".parquet":
        return "parquet"
    if path.is_dir() and is_saved_dataset(path):
        return "datasets"
    if config.task == "text":
        return "text"
    return "lines" if has_target else "tsv"


def given_origin(config: DataConfig, split: Split) -> Origin | None:
    """What the config names for a split; None where it names nothing."""
    name = getattr(config, split)
    second = getattr(config, f"{split}_target")
    if name is None:
        if second is not None:
            raise UserError(f"data.{split}_target is set but data.{split} is not; two aligned files need both")
        if split != "train" and config.train is not None:
            train = cast(Origin, given_origin(config, "train"))
            if train.format == "datasets" and (part := dataset_part(train.path, split)) is not None:
                return Origin(train.path, "datasets", part=part)
        return None
    path = located(config, name)
    target = None if second is None else located(config, second)
    kind = format_of(config, path, target is not None)
    if kind == "datasets":
        where = path if path.exists() else Path(name)  # a folder, or a name others know it by
        return Origin(where, kind, part=dataset_part(where, split))
    for file in (path, target):
        if file is not None and not file.exists():
            raise UserError(f"there is no file {file}{suggestion(file)}")
    if target is not None and (config.task != "pairs" or kind != "lines"):
        raise UserError(
            f"data.{split}_target is for pairs in two line-aligned files; {path.name} is read as {config.task} in {kind}"
        )
    if config.task == "pairs" and kind == "lines" and target is None:
        raise UserError(f"{path}: pairs in line-aligned files need the second file; set data.{split}_target")
    if config.task == "pairs" and kind == "text":
        raise UserError(
            f'{path}: pairs cannot be read from plain text; set data.format="tsv" or give data.{split}_target'
        )
    if config.task in ("classify", "tag") and kind == "text":
        raise UserError(f'{path}: labels cannot be read from plain text; set data.format="lines" for label TAB text')
    if path.is_dir() and kind != "text":
        raise UserError(f"{path} is a folder; a folder can hold text or a saved dataset, not {kind}")
    return Origin(path, kind, target)


def suggestion(path: Path) -> str:
    try:
        return did_you_mean(path.name, sorted(p.name for p in path.parent.iterdir()))
    except OSError:
        return ""
