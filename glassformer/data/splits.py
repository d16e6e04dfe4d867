"""Which split an example belongs to where splits are carved out of the training data: always the same ones, by hashes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from glassformer.data.files import PIECE_BYTES, open_bytes, read_bytes
from glassformer.data.origins import Split


def fraction_of(key: str) -> float:
    """A number in [0, 1) that belongs to a text for ever, on every machine."""
    digest = hashlib.blake2b(key.encode("utf-8", errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def split_of(key: str, fraction: float) -> Split:
    """The split a key would fall into if val and test were both missing: val first, then test, then the rest."""
    place = fraction_of(key)
    return "val" if place < fraction else "test" if place < 2 * fraction else "train"


def held_out_files(files: list[Path], folder: Path, fraction: float) -> set[Path]:
    """A fraction of the files, by a hash of their names; at least one, so that there is something to validate on."""
    if len(files) < 2 or fraction == 0:
        return set()
    ranked = sorted(files, key=lambda path: (fraction_of(path.relative_to(folder).as_posix()), path))
    return set(ranked[: max(1, round(fraction * len(files)))])


def end_part(path: Path, fraction: float) -> int:
    """The byte at which the last `fraction` of a file begins: at a line's start, or at least at a character's."""
    with open_bytes(path) as handle:
        if path.suffix == ".gz":
            size = 0
            while block := read_bytes(path, handle.read, PIECE_BYTES):
                size += len(block)
        else:
            size = path.stat().st_size
        place = int(size * (1 - fraction))
        handle.seek(place)
        block = read_bytes(path, handle.read, PIECE_BYTES)
    newline = block.find(b"\n")
    if 0 <= newline < len(block) - 1:
        return place + newline + 1
    inside = next((i for i, byte in enumerate(block) if byte & 0b1100_0000 != 0b1000_0000), len(block))
    return place + inside  # past what is left of a character
