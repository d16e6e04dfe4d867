"""`stdlib`: the source of the Python that is running, one document a file."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from glassformer.data.builtin.dates import shuffled, splits_of
from glassformer.data.files import Document
from glassformer.data.splits import Split
from glassformer.errors import ConfigError

# Not programs (tables, generated pages), or not the library itself (its tests, other people's packages).
NOT_LIBRARY = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "encodings", "pydoc_data"}


@dataclass(frozen=True)
class SourceFiles:
    """Python files as documents, read anew each time round."""

    files: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Document]:
        for file in self.files:
            yield Document(text=file.read_text(encoding="utf-8"), ends=True)


def is_library_file(relative: Path) -> bool:
    made_for_one_machine = relative.name.startswith("_sysconfigdata") or relative.parts[0].startswith("config-")
    return not made_for_one_machine and NOT_LIBRARY.isdisjoint(relative.parts)


def holds_text(file: Path) -> bool:
    try:
        return bool(file.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return False


def stdlib_files(split: Split, size: int | None) -> SourceFiles:
    """With a size, so many files, chosen by their hash rather than by the alphabet."""
    folder = Path(sysconfig.get_path("stdlib"))
    paths = (path.relative_to(folder) for path in folder.rglob("*.py"))
    names = sorted(path.as_posix() for path in paths if is_library_file(path))
    names = [name for name, its_split in zip(names, splits_of(names), strict=True) if its_split == split]
    files = [folder / name for name in names if holds_text(folder / name)]
    if size is not None and size > len(files):
        raise ConfigError("data.size={size} is more than the {n_files} files of the built-in stdlib", size, len(files))
    return SourceFiles(tuple(shuffled(Random(f"stdlib/{split}"), files)[:size]))
