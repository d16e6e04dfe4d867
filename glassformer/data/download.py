"""Real data over the network: fetched, checked, and cut into train, val and test.

    tatoeba:en-de, en-fr, en-zh    sentence pairs of tatoeba.org, in the edition of manythings.org/anki   CC-BY 2.0 FR
    multi30k:en-de, en-fr          captions of photographs, from github.com/multi30k/dataset              non-commercial
    shakespeare                    tiny Shakespeare, from github.com/karpathy/char-rnn                    public domain

Every file goes to a temporary name and takes its own only when it is whole and its SHA-256 is right, so what stands under
its name can be trusted; a download that breaks leaves nothing. Only the checksum of tiny Shakespeare is known beforehand.
The Tatoeba archives are published anew every few weeks, and the others publish no checksums, so theirs are noted in
`checksums.json` beside the files at the first download and held against them ever after: that finds what is damaged later,
not what was wrong at first. (Multi30k is also held to the number of lines its publisher states.)

Splits are the publisher's where there are any. Tatoeba has none: its pairs are put in an order by a hash of the English
side, and no sentence of val or test, in either language, occurs in train, case and punctuation aside. Shakespeare is cut
as nanoGPT cuts it, the last tenth for validation; it has no test.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urljoin

from glassformer.config import not_among
from glassformer.data.files import numbered_lines
from glassformer.data.splits import fraction_of
from glassformer.errors import UserError
from glassformer.files import durable, structured
from glassformer.files.owned import OwnedFiles
from glassformer.language import _
from glassformer.screen import say

if TYPE_CHECKING:
    import requests

LONGEST_SHOWN = 200  # characters of an address
TIMEOUT = 30.0  # seconds without a byte
LOCK = "checksums.json"
LARGEST_TEXT = 512 << 20  # bytes of an unpacked archive; the largest edition has 60 MB
HELD_OUT = 0.02  # of Tatoeba, for each of val and test
MOST_HELD_OUT = 1000


@dataclass(frozen=True)
class Collection:
    """A corpus that can be fetched."""

    base: str  # files are at base/name
    files: Mapping[str, str]  # names, with their SHA-256 where it is known
    licence: str


@cache
def collections() -> dict[str, Collection]:
    """The corpora that can be fetched, by name: those of collections.toml."""
    tables = tomllib.loads(Path(__file__).with_name("collections.toml").read_text(encoding="utf-8"))
    return {name: Collection(**table) for name, table in tables.items()}


# Fetching a file


def shown(address: Any) -> str:
    """An address, or what an error says of one, without the name and the password in it, and no longer than a line."""
    text = re.sub(r"(?<=//)[^/?#\s]*@", "***@", str(address))
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def fetch(url: str, folder: Path, sha256: str) -> Path:
    """The file under its own name, whole and right; or a sentence, and nothing at all."""
    path = folder / url.rsplit("/", 1)[-1]
    known = sha256 or read_lock(folder).get(path.name)
    if known is not None and path.exists() and durable.sha256(path) == known:
        return path
    OwnedFiles(folder).claim(path.name)
    with TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
        arrived = download(url, Path(temporary))
        digest = durable.sha256(arrived)
        if known is not None and digest != known:
            hint = _(" (if the publisher has a new edition, remove {name} from {lock})", path.name, folder / LOCK)
            raise UserError(
                "{url} is not the file that was expected: its SHA-256 is {digest}, not {known}; nothing was kept{advice}",
                shown(url),
                digest,
                known,
                "" if sha256 else hint,
            )
        os.replace(arrived, path)
    if known is None:
        with written(folder / LOCK) as handle:
            handle.write((json.dumps(read_lock(folder) | {path.name: digest}, indent=2) + "\n").encode())
    return path


def read_lock(folder: Path) -> dict[str, str]:
    """The checksums that were seen when the files were first fetched."""
    try:
        checksums: dict[str, str] = structured.read(folder / LOCK, dict[str, str], 1 << 20)
    except FileNotFoundError:
        return {}
    except structured.Unreadable as error:
        raise UserError("{error}; remove it to begin anew", error) from None
    return checksums


@contextlib.contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A file that exists whole or not at all: written beside its place, flushed to the disk, then renamed."""
    OwnedFiles(path.parent).claim(path.name)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def refuse_downgrade(answer: requests.Response, *_given: Any, **_options: Any) -> None:
    """A redirect from https to anything else: whoever listens on the way could then put another file in its place."""
    onwards = urljoin(answer.url, answer.headers.get("location", ""))
    if answer.is_redirect and answer.url.startswith("https:") and not onwards.startswith("https:"):
        raise UserError(
            "{url} leads on to {onwards}, which is not encrypted; nothing was kept", shown(answer.url), shown(onwards)
        )


def download(url: str, folder: Path) -> Path:
    """What an address holds, by pooch, which looks after redirects, proxies and half files."""
    import pooch
    import requests

    pooch.get_logger().setLevel("ERROR")  # it would print checksums that are noted here anyway
    fetcher = pooch.HTTPDownloader(
        headers={"User-Agent": "glassformer"},  # some publishers refuse that of a library
        timeout=TIMEOUT,
        hooks={"response": refuse_downgrade},
    )
    say(_("downloading {url}", shown(url)))
    try:
        return Path(pooch.retrieve(url, known_hash=None, fname="file", path=folder, downloader=fetcher))
    except UserError:
        raise
    except requests.exceptions.HTTPError as error:
        answer = error.response
        reason = f"{answer.status_code} {answer.reason}" if answer is not None else shown(error)
        raise UserError("{url} answered {reason}; nothing was kept", shown(url), reason) from None
    except (requests.exceptions.RequestException, ValueError) as error:  # ValueError: of an address that cannot be one
        cause = getattr(error.args[0] if error.args else error, "reason", error)
        why = shown(str(cause).rpartition(": ")[2]) or type(error).__name__
        began = (requests.exceptions.ChunkedEncodingError, requests.exceptions.ReadTimeout)
        if isinstance(error, began) or "timed out" in str(error):  # in the middle of a body
            raise UserError(
                "the download of {url} broke off ({why}); nothing was kept, try again", shown(url), why
            ) from None
        raise UserError("{url} cannot be reached: {reason}", shown(url), why) from None


# Cutting into splits


def write_pairs(path: Path, pairs: Sequence[tuple[str, str]]) -> int:
    """Writes pairs as lines with a tab; how many there were."""
    with written(path) as handle:
        for pair in pairs:
            handle.write("\t".join(" ".join(side.split()) for side in pair).encode() + b"\n")
    return len(pairs)


BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)  # what an archive may be


def cut_tatoeba(folder: Path, files: Sequence[Path]) -> dict[str, int]:
    """From an archive that holds one text: English TAB the other language TAB whose sentences they are."""
    try:
        with zipfile.ZipFile(files[0]) as archive:
            inside = next(name for name in archive.namelist() if name.endswith(".txt") and not name.startswith("_"))
            if archive.getinfo(inside).file_size > LARGEST_TEXT:
                raise UserError(
                    "{files} unpacks to more than {largest_text} MiB, which no edition does; remove it",
                    files[0],
                    LARGEST_TEXT >> 20,
                )
            with archive.open(inside) as packed:
                text = packed.read(LARGEST_TEXT).decode("utf-8")
    except (*BROKEN, StopIteration, UnicodeDecodeError) as error:
        raise UserError(
            "{files} is not an archive of sentence pairs ({error}); remove it and try again", files[0], error
        ) from None
    columns = (line.split("\t") for line in text.split("\n"))
    pairs = {(row[0], row[1]) for row in columns if len(row) >= 2}
    left = sorted(pairs, key=lambda pair: (fraction_of(bare(pair[0])), pair))
    held_out = min(MOST_HELD_OUT, int(len(left) * HELD_OUT))
    sizes = {}
    for split in ("val", "test"):
        sizes[split] = write_pairs(folder / f"{split}.tsv", left[:held_out])
        seen = {bare(side) for pair in left[:held_out] for side in pair}
        left = [pair for pair in left[held_out:] if seen.isdisjoint(map(bare, pair))]
    return {"train": write_pairs(folder / "train.tsv", left)} | sizes


def bare(sentence: str) -> str:
    """Without case, punctuation and spaces: what two spellings of one sentence share."""
    return "".join(c for c in unicodedata.normalize("NFKC", sentence).casefold() if c.isalnum())


MULTI30K_LINES = {"train": 29000, "val": 1014, "test": 1000}  # as its README states


def cut_multi30k(folder: Path, files: Sequence[Path]) -> dict[str, int]:
    """The publisher's own splits; each is two files, line for line: raw (which become the TSVs) and, as they are, those
    lower-cased and tokenised by the publisher, on which published scores stand."""
    splits = {}
    both = list(zip([*MULTI30K_LINES, *MULTI30K_LINES], files[0::2], files[1::2], strict=True))
    for number, (split, english, other) in enumerate(both):
        sides = [[line for _, line in numbered_lines(file)] for file in (english, other)]
        for file, side in zip((english, other), sides, strict=True):
            if len(side) != MULTI30K_LINES[split]:
                raise UserError(
                    "{file} has {n_side} lines, not the {multi30k_lines} its publisher states; remove it",
                    file,
                    len(side),
                    MULTI30K_LINES[split],
                )
        if number < len(MULTI30K_LINES):
            splits[split] = list(zip(*sides, strict=True))
    return {split: write_pairs(folder / f"{split}.tsv", pairs) for split, pairs in splits.items()}


def cut_shakespeare(folder: Path, files: Sequence[Path]) -> dict[str, int]:
    """The first nine tenths are train, the rest is val, as nanoGPT cuts it."""
    text = files[0].read_text(encoding="utf-8")
    border = int(len(text) * 0.9)
    parts = {"train": text[:border], "val": text[border:]}
    for name, text in parts.items():
        with written(folder / f"{name}.txt") as handle:
            handle.write(text.encode())
    return {name: len(text) for name, text in parts.items()}


CUTS: dict[str, Callable[[Path, Sequence[Path]], dict[str, int]]] = {
    "tatoeba": cut_tatoeba,
    "multi30k": cut_multi30k,
    "shakespeare": cut_shakespeare,
}
"""By the name of a collection up to its colon: writes the splits from the files, and returns their sizes."""


# Fetching


def get(name: str, folder: str | Path, base_urls: Mapping[str, str] | None = None) -> dict[str, int]:
    """Fetch a collection into `folder`; what is there and whole is not fetched again. Returns the size of each split.

    `base_urls` replaces the address of a collection: a mirror, or a server in a test.
    """
    known = collections()
    if name not in known:
        raise UserError("there is no collection {name!r}{suggestion}; there are {collections}", *not_among(name, known))
    base = (base_urls or {}).get(name, known[name].base)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [fetch(f"{base}/{file}", folder, sha256) for file, sha256 in known[name].files.items()]
        return CUTS[name.partition(":")[0]](folder, files)
    except OSError as error:
        raise UserError("{filename} cannot be written: {reason}", folder, error.strerror or error) from None
