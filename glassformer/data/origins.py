"""Where the examples of a split come from: the files a configuration names, and the format each is read in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from glassformer.config import DataConfig, did_you_mean
from glassformer.config.data import DataFile
from glassformer.data.download import collections
from glassformer.data.files import files_below
from glassformer.data.records import FORMATS, dataset_part
from glassformer.data.splits import SPLITS, Split
from glassformer.errors import UserError
from glassformer.language import _

SUFFIXES = {suffix: name for name, (suffixes, _) in FORMATS.items() for suffix in suffixes}


@dataclass(frozen=True)
class Origin:
    """A file, a folder or a data set, and how it is read. `weight` and `tag` are those of `DataFile`."""

    path: Path
    format: str
    target: Path | None = None  # the second of two aligned files
    part: str | None = None  # datasets: the name of the split inside
    weight: float = 1.0
    tag: str = ""


def located(config: DataConfig, name: str) -> Path:
    """The path of a name in a configuration."""
    path = Path(name).expanduser()
    return path if path.is_absolute() or config.path is None else Path(config.path).expanduser() / path


def shown(path: Path) -> str:
    """As a person standing here would write it."""
    try:
        near = path.relative_to(Path.cwd()) if path.is_absolute() else path
    except (ValueError, OSError):
        near = path
    return str(near)


def format_of(config: DataConfig, path: Path, has_target: bool) -> str:
    """The format asked for, or else the one that the name tells."""
    if config.format != "auto":
        return config.format
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix in SUFFIXES and not has_target:
        return SUFFIXES[suffix]
    if path.is_dir() and any((path / name).exists() for name in ("dataset_dict.json", "state.json")):
        return "datasets"  # what `save_to_disk` of Hugging Face's library wrote
    if config.task == "text":
        return "text"
    return "lines" if has_target else "tsv"


def origins_of(config: DataConfig, split: Split) -> tuple[Origin, ...]:
    """What the configuration names for a split, checked to be there; nothing where it names nothing."""
    files = config.files(split)
    if not files and split != "train":
        for train in origins_of(config, "train"):
            if train.format == "datasets" and (part := dataset_part(train.path, split)) is not None:
                return (Origin(train.path, "datasets", part=part),)
    return tuple(origin_of(config, split, file) for file in files)


def origin_of(config: DataConfig, split: Split, file: DataFile) -> Origin:
    """One file of a split: that it is there, and that its format fits the task."""
    path = located(config, file.path)
    target = None if file.target is None else located(config, file.target)
    kind = format_of(config, path, target is not None)
    if kind == "datasets":
        where = path if path.exists() else Path(file.path)  # a folder, or a name others know it by
        return Origin(where, kind, part=dataset_part(where, split), weight=file.weight, tag=file.tag)
    for file_path in (path, target):
        if file_path is not None and not there(file_path):
            raise UserError(
                "there is no file {file_path}{suggestion}{where_to_get}",
                shown(file_path),
                suggestion(file_path),
                where_to_get(file_path),
            )
    if target is not None and (config.task != "pairs" or kind != "lines"):
        raise UserError(
            "data.{split}_target is for pairs in two line-aligned files; {path} is read as {task} in {kind}",
            split,
            path.name,
            config.task,
            kind,
        )
    if config.task == "pairs" and kind == "lines" and target is None:
        raise UserError(
            "{path}: pairs in line-aligned files need the second file; set data.{split}_target", shown(path), split
        )
    if config.task != "text" and kind == "text":
        what = _("pairs") if config.task == "pairs" else _("labels")
        raise UserError(
            "{path}: {what} cannot be read from plain text; leave data.format out for columns with a tab between",
            shown(path),
            what,
        )
    if path.is_dir() and kind != "text":
        raise UserError("{path} is a folder; a folder can hold text or a saved dataset, not {kind}", shown(path), kind)
    return Origin(path, kind, target, weight=file.weight, tag=file.tag)


def named_files(config: DataConfig) -> list[Path]:
    """Every file that a configuration names for any split, those below its folders among them."""
    origins = [origin for split in SPLITS for origin in origins_of(config, split)]
    paths = [path for origin in origins for path in (origin.path, origin.target) if path is not None]
    return [file for path in paths for file in (files_below(path) if path.is_dir() else [path])]


def there(path: Path) -> bool:
    """Whether something has this name; a name that no file can have is no file."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def suggestion(path: Path) -> str:
    """The name in the same folder that was probably meant."""
    try:
        return did_you_mean(path.name, sorted(p.name for p in path.parent.iterdir()))
    except (OSError, ValueError):
        return ""


def where_to_get(path: Path) -> str:
    """The command that fetches a file of a known collection."""
    for folder in path.parts[:-1]:
        if (
            name := folder.replace("-", ":", 1)
        ) in collections():  # `data get` fetches tatoeba:en-de to data/tatoeba-en-de
            return _("; get it with: glassformer data get {name}", name)
    return ""
