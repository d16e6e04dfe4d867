"""Prepared data, kept in the user's cache folder: another seed or another model on the same data begins at once.

An entry is a folder `prepared/KEY` with copies of what a preparation left in a run. The key is a hash of the content of all files
that are read, wherever they lie, of the settings that the preparation follows, and of the code that prepares, so whatever changes
makes another entry. A run gets copies: it needs nothing outside its folder, and an entry may go at any time. An entry takes its
name when it is whole; of two processes that make the same one, the first wins. Only names that a preparation makes are taken, and
regular files; an entry that cannot be loaded is made again. The folder must be the user's alone. The least recently used go first
when all together are larger than `MOST_BYTES`. Nothing that is wrong with the cache is a reason to stop.

Data in memory, pipes, and data sets that are no files are not kept.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from glassformer.config import VERSION, DataConfig
from glassformer.data.origins import named_files, origins_of
from glassformer.data.splits import SPLITS
from glassformer.errors import UserError
from glassformer.files import owned
from glassformer.files.cache import CacheEntry, cache_folder, is_private, remove
from glassformer.files.user_data import FileFacts, UserFile
from glassformer.language import _
from glassformer.screen import say

MOST_BYTES = 5 << 30
ABOUT = "about.txt"  # what an entry was made from, in words; its time is when it was last used
KEPT = ("tokenizer*.json", "labels.json", "data/*.tokens", "data/*.examples.gz", "data/report.json")
# Settings that come into play only when the prepared data is read: any other makes another entry.
ONLY_READING = {
    *("batch_tokens", "layout", "row_width", "max_length", "mask_fraction", "span_length", "workers"),
    *("respect_documents", "prompt_answer", "close_texts", "source_languages", "target_language"),
}
NAMES = {"path", "train", "val", "test", "train_target", "val_target", "test_target", "tokenizer_file"}
LIBRARIES = ("tokenizers", "numpy", "Babel", "jieba", "pyarrow")
T = TypeVar("T")


def code_version() -> str:
    """A hash of the code that prepares, and of the libraries it leans on."""
    digest = hashlib.sha256(f"{VERSION} {sys.version}".encode())
    for library in LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            digest.update(f"{library} {importlib.metadata.version(library)}\n".encode())
    package = Path(__file__).parents[1]
    for room in ("data", "text", "files", "config"):
        for path in sorted((package / room).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def read_files(config: DataConfig) -> list[FileFacts] | None:
    """All files that a preparation reads, by which they are known again; None where it reads something else as well."""
    if any(origin.format == "datasets" for split in SPLITS for origin in origins_of(config, split)):
        return None
    paths = named_files(config) + ([Path(config.tokenizer_file)] if config.tokenizer_file is not None else [])
    if not all(path.is_file() for path in paths):
        return None
    facts = []
    for path in dict.fromkeys(paths):
        with UserFile(path) as file:
            facts.append(file.facts())
    return facts


def key_of(config: DataConfig, files: Iterable[FileFacts]) -> str:
    """The name of the entry that holds this preparation: by what the files hold, wherever they lie."""
    settings = {name: value for name, value in asdict(config).items() if name not in ONLY_READING | NAMES}
    contents = {os.path.abspath(file.path): f"{file.size} {file.sha256}" for file in files}

    def content(path: Path | str | None) -> str | None:
        return None if path is None else contents.get(os.path.abspath(path), str(path))

    origins = [] if config.builtin else [(split, origin) for split in SPLITS for origin in origins_of(config, split)]
    read = [
        (split, content(own.path), content(own.target), replace(own, path=Path(), target=None))
        for split, own in origins
    ]
    folders = contents if any(origin.path.is_dir() for _split, origin in origins) else None
    named = [code_version(), settings, read, folders, content(config.tokenizer_file)]
    text = json.dumps(named, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def entries_folder() -> Path | None:
    """Where the entries lie; None where nothing is kept."""
    folder = cache_folder()
    return None if folder is None else folder / "prepared"


def entries() -> Iterator[CacheEntry]:
    """What is in the cache, the least recently used first."""
    folder, found = entries_folder(), []
    with suppress(OSError):
        for path in sorted(folder.iterdir()) if folder is not None else ():
            with suppress(OSError, UnicodeDecodeError):
                if re.fullmatch("[0-9a-f]{64}", path.name) and not path.is_symlink():
                    size = sum(file.lstat().st_size for file in made_in(path).values())
                    about = (path / ABOUT).read_text(encoding="utf-8")
                    found.append(CacheEntry(path, about, size, (path / ABOUT).stat().st_mtime))
    yield from sorted(found, key=lambda entry: (entry.used, entry.path.name))


@cache
def say_once(why: object) -> None:
    """Says that nothing is kept, once a process."""
    say(_("prepared data is not kept for the next run: {why}", why))


def private_folder() -> Path | None:
    """Where the entries lie, made if need be; None where nothing is kept, or where it would not be safe there, which is said
    once."""
    home = entries_folder()
    if home is None:
        return None
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_private(home):
            return home
        say_once(_("{folder} is not yours alone", home))
    except OSError as error:
        say_once(error.strerror)
    return None


def made_in(folder: Path) -> dict[str, Path]:
    """What a preparation has made in a run's folder, by name."""
    return {p.relative_to(folder).as_posix(): p for pattern in KEPT for p in sorted(folder.glob(pattern))}


def fetch(key: str, folder: Path, load: Callable[[], T]) -> T | None:
    """Copies an entry into a run's folder, and loads it there; None where there is none that is whole and of use."""
    home = private_folder()
    if home is None or not (home / key).is_dir():
        return None
    paths = made_in(home / key)
    try:
        if not all(path.is_file() and not path.is_symlink() for path in paths.values()):
            raise UserError("{folder} is not an entry of the cache", home / key)
        for name, path in paths.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)
        loaded = load()
    except (OSError, ValueError, KeyError):  # a UserError is a ValueError
        for name in paths:
            (folder / name).unlink(missing_ok=True)
        say(_("the prepared data in {folder} is damaged; it is prepared again", home / key))
        remove(home / key)
        return None
    with suppress(OSError):
        os.utime(home / key / ABOUT)
    return loaded


def keep(key: str, paths: Mapping[str, Path], about: str) -> None:
    """Leaves copies of what a preparation has made, by name, for others; where that cannot be done it is said once, and that is
    all."""
    home = private_folder()
    if home is None or sum(path.stat().st_size for path in paths.values()) > MOST_BYTES:
        return
    try:
        with owned.new_folder(home / key, "prepared data") as entry:
            for name, path in paths.items():
                (entry / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(path, entry / name)
            (entry / ABOUT).write_text(about, encoding="utf-8")
    except (OSError, UserError) as error:
        if not (home / key / ABOUT).exists():  # else another process was faster
            say_once(str(error))
    kept = list(entries())
    total = sum(entry.size for entry in kept)
    for old in kept:
        if total > MOST_BYTES and old.path.name != key:
            remove(old.path)
            total -= old.size
