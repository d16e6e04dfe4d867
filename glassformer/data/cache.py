"""Prepared data, kept in the user's cache folder: another seed or another model on the same data begins at once.

An entry is a folder `prepared/KEY` with copies of what a preparation left in a run, and a manifest with their SHA-256. The
key is a hash of the content of all files that are read, wherever they lie, of the settings that the preparation follows, and
of the code that prepares, so whatever changes makes another entry. A run gets copies: it needs nothing outside its folder,
and an entry may go at any time. An entry takes its name when it is whole; of two processes that make the same one, the first
wins. What is taken is checked on the way: names that a preparation makes, regular files, sizes, checksums; an entry that is
damaged is made again. The folder must be the user's alone. The least recently used go first when all together are larger than
`MOST_BYTES`. Nothing that is wrong with the cache is a reason to stop.

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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from glassformer.config import VERSION, DataConfig
from glassformer.data.origins import named_files, origins_of
from glassformer.data.splits import SPLITS
from glassformer.errors import UserError
from glassformer.files import owned, structured
from glassformer.files.cache import CacheEntry, cache_folder, is_private, remove
from glassformer.files.durable import ListedFile, blocks, sha256, to_json, write_atomically
from glassformer.files.user_data import FileFacts, UserFile
from glassformer.language import _
from glassformer.screen import say

MOST_BYTES = 5 << 30
MANIFEST = "manifest.json"
KEPT = ("tokenizer*.json", "labels.json", "data/*.tokens", "data/*.examples.gz", "data/report.json")
KEPT_NAME = re.compile(
    r"tokenizer(\.source|\.target)?\.json|labels\.json|data/\w[\w.-]*\.(tokens|examples\.gz)|data/report\.json"
)
# Settings that come into play only when the prepared data is read: any other makes another entry.
ONLY_READING = {
    *("batch_tokens", "layout", "row_width", "max_length", "mask_fraction", "span_length", "workers"),
    *("respect_documents", "prompt_answer", "close_texts", "source_languages", "target_language"),
}
NAMES = {"path", "train", "val", "test", "train_target", "val_target", "test_target", "tokenizer_file"}
LIBRARIES = ("tokenizers", "numpy", "Babel", "jieba", "pyarrow")
T = TypeVar("T")
TOLD: set[str] = set()
"""What was said already: once a process is enough."""


@dataclass(frozen=True)
class EntryManifest:
    """What an entry says of itself: what it was made from, in words, and its files."""

    about: str
    files: dict[str, ListedFile]


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
    """The name of the entry that holds this preparation."""
    settings = {name: value for name, value in asdict(config).items() if name not in ONLY_READING | NAMES}
    contents = {os.path.abspath(file.path): f"{file.size} {file.sha256}" for file in files}

    def content(path: Path) -> str:
        """A file by what it holds, wherever it lies and however it is called; a folder by its name."""
        return contents.get(os.path.abspath(path), str(path))

    origins = [] if config.builtin else [(split, origin) for split in SPLITS for origin in origins_of(config, split)]
    read = [
        (
            split,
            content(origin.path),
            origin.target and content(origin.target),
            replace(origin, path=Path(), target=None),
        )
        for split, origin in origins
    ]
    folders = contents if any(origin.path.is_dir() for _split, origin in origins) else None
    tokenizer = config.tokenizer_file and content(Path(config.tokenizer_file))
    named = json.dumps([code_version(), settings, read, folders, tokenizer], sort_keys=True, default=str)
    return hashlib.sha256(named.encode("utf-8", errors="surrogatepass")).hexdigest()


def entries_folder() -> Path | None:
    """Where the entries lie; None where nothing is kept."""
    folder = cache_folder()
    return None if folder is None else folder / "prepared"


def entries() -> Iterator[CacheEntry]:
    """What is in the cache, the least recently used first."""
    folder = entries_folder()
    found = []
    with suppress(OSError):
        for path in sorted(folder.iterdir()) if folder is not None else ():
            with suppress(OSError, UserError):
                if re.fullmatch("[0-9a-f]{64}", path.name) and not path.is_symlink():
                    manifest: EntryManifest = structured.read(path / MANIFEST, EntryManifest)
                    size = sum(file.size for file in manifest.files.values())
                    found.append(CacheEntry(path, manifest.about, size, (path / MANIFEST).stat().st_mtime))
    yield from sorted(found, key=lambda entry: (entry.used, entry.path.name))


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
        why: str | None = _("{folder} is not yours alone", home)
    except OSError as error:
        why = error.strerror
    say_once(home, why)
    return None


def say_once(home: Path, why: object) -> None:
    """Says that nothing is kept, once a process."""
    if str(home) not in TOLD:
        TOLD.add(str(home))
        say(_("prepared data is not kept for the next run: {why}", why))


def copy_checked(source: Path, target: Path, expected: ListedFile) -> None:
    """A listed file copied, on the disk when the call comes back; OSError where it is not what it was."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        for block in blocks(source, expected):
            out.write(block)
        out.flush()
        os.fsync(out.fileno())


def fetch(key: str, folder: Path, load: Callable[[], T]) -> T | None:
    """Copies an entry into a run's folder, and loads it there; None where there is none that is whole and of use."""
    home = private_folder()
    if home is None or not (home / key).is_dir():
        return None
    copied: list[Path] = []
    try:
        manifest: EntryManifest = structured.read(home / key / MANIFEST, EntryManifest)
        strange = [name for name in manifest.files if not KEPT_NAME.fullmatch(name)]
        if strange or sum(file.size for file in manifest.files.values()) > MOST_BYTES:
            raise UserError("{folder} is not an entry of the cache", home / key)
        for name, file in manifest.files.items():
            copied.append(folder / name)
            copy_checked(home / key / name, folder / name, file)
        loaded = load()
    except (OSError, ValueError, KeyError):  # a UserError is a ValueError
        for path in copied:
            path.unlink(missing_ok=True)
        say(_("the prepared data in {folder} is damaged; it is prepared again", home / key))
        remove(home / key)
        return None
    with suppress(OSError):
        os.utime(home / key / MANIFEST)
    return loaded


def made_in(folder: Path) -> dict[str, Path]:
    """What a preparation has made in a run's folder, by name."""
    return {p.relative_to(folder).as_posix(): p for pattern in KEPT for p in sorted(folder.glob(pattern))}


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
            listed = {name: {"size": p.stat().st_size, "sha256": sha256(p)} for name, p in paths.items()}
            write_atomically(entry / MANIFEST, to_json({"about": about, "files": listed}))
    except (OSError, UserError) as error:
        if not (home / key / MANIFEST).exists():  # else another process was faster
            say_once(home, error)
    drop_oldest(key)


def drop_oldest(newest: str) -> None:
    """Removes the least recently used entries until the rest is small enough."""
    kept = list(entries())
    total = sum(entry.size for entry in kept)
    for entry in kept:
        if total > MOST_BYTES and entry.path.name != newest:
            remove(entry.path)
            total -= entry.size
