"""Ways to spoil a file: by its structure (every field x wrong type, absurd size, missing, extra) and by its bytes. Where a
file has a checksum or a seal, it can be made right again afterwards, so that the reader's own checks are reached too."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.files.durable import to_json
from glassformer.runs.facts import seal_of

WRONG: list[Any] = [
    None,
    True,
    -1,
    0,
    10**9,
    10**12,
    10**25,
    1e308,
    -0.5,
    "",
    "x",
    "../../../etc/passwd",
    "\ud7ff\u0000 [/b]",
    "9" * 5000,
    [],
    [[]],
    {},
    {"a": {"b": None}},
    ["x"] * 1000,
]


def fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from fields(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(min(3, len(value))):
            yield from fields(value[index], (*path, index))


def spoil_field(value: Any, draw: random.Random) -> tuple[Any, str]:
    """The value with one place changed, and what was done."""
    place = draw.choice(list(fields(value)))
    how = draw.choice(["wrong", "wrong", "wrong", "missing", "extra", "deep"])
    new: Any = draw.choice(WRONG)
    for _ in range(200 if how == "deep" else 0):
        new = [new]
    if not place:
        return new, f"the whole is {str(new)[:40]!r}"
    inside = value
    for key in place[:-1]:
        inside = inside[key]
    if how == "missing":
        del inside[place[-1]]
    elif how == "extra" and isinstance(inside, dict):
        inside[f"{place[-1]}-extra"] = new
    else:
        inside[place[-1]] = new
    return value, f"{how} {'.'.join(map(str, place))} {str(new)[:40]!r}"


def seal_checkpoint(folder: Path) -> None:
    """A manifest and a seal that say the files are right as they are."""
    listing = {
        p.name: {"size": p.stat().st_size, "sha256": hashlib.sha256(p.read_bytes()).hexdigest()}
        for p in sorted(folder.iterdir())
        if p.is_file() and p.name not in ("manifest.json", "SEAL")
    }
    manifest = to_json({"format": 1, "files": listing})
    (folder / "manifest.json").write_bytes(manifest)
    (folder / "SEAL").write_text(hashlib.sha256(manifest).hexdigest() + "\n")


def make_right(run: Path, path: Path) -> None:
    """Checksums and seals as if the spoiled file had been written so."""
    if path.name == "manifest.json":
        (path.parent / "SEAL").write_text(hashlib.sha256(path.read_bytes()).hexdigest() + "\n")
    elif path.parent.name.startswith("step-") or path.parent.name == "final":
        seal_checkpoint(path.parent)
    elif path.name == "run.json":
        try:
            facts = json.loads(path.read_bytes())
            if isinstance(facts, dict):
                path.write_bytes(to_json(facts | {"seal": seal_of(facts)}))
        except (ValueError, RecursionError):
            pass
    else:
        facts = json.loads((run / "run.json").read_bytes())
        name = path.relative_to(run).as_posix()
        if name in facts.get("files", {}):
            content = path.read_bytes()
            facts["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            (run / "run.json").write_bytes(to_json(facts | {"seal": seal_of(facts)}))


def spoil_bytes(path: Path, draw: random.Random) -> str:
    """Flipped, cut, emptied, made up, doubled; or something that is no file at all."""
    content = bytearray(path.read_bytes())
    how = draw.choice(
        ["flip", "flip", "flip", "cut", "empty", "random", "double", "deep", "folder", "pipe", "link", "gone"]
    )
    if how == "flip" and content:
        for _ in range(draw.choice([1, 1, 8])):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif how == "cut":
        content = content[: draw.randrange(len(content) + 1)]
    elif how == "random":
        content = bytearray(draw.randbytes(draw.choice([1, 100, len(content)])))
    elif how == "double":
        content = content + content
    elif how == "deep":
        content = bytearray(b"[" * 100_000)
    elif how == "empty":
        content = bytearray()
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "link":
        path.symlink_to(draw.choice(["/dev/zero", "/nowhere", "/etc/passwd", "."]))
    elif how != "gone":
        path.write_bytes(bytes(content))
    return how


def spoil_tensor_header(path: Path, draw: random.Random) -> str:
    """A file of tensors whose header says something else; the bytes behind it are as they were."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    value, what = spoil_field(json.loads(content[8 : 8 + size]), draw)
    header = json.dumps(value).encode("utf-8", "surrogatepass")
    told = draw.choice([len(header)] * 8 + [0, 2**63 - 1, len(content) * 2])
    path.write_bytes(told.to_bytes(8, "little") + header + content[8 + size :])
    return f"header of {told} bytes, {what}"


def hostile_data(folder: Path, draw: random.Random) -> tuple[Path, str]:
    """A data file that somebody made to do harm, or by a mistake."""
    import gzip
    import zipfile

    lines = "".join(f"eins zwei {i}\tone two {i}\n" for i in range(40))
    makers: dict[str, Any] = {
        "nul.tsv": lines.encode() + b"a\0b\tc\0d\n",
        "latin.tsv": lines.encode() + "f\u00fcnf\tfive\n".encode("latin-1"),
        "utf16.tsv": lines.encode("utf-16"),
        "long.tsv": b"x" * (20 << 20) + b"\ty\n" + lines.encode(),
        "wide.tsv": b"\t".join([b"x"] * 5000) + b"\n" + lines.encode(),
        "markup.tsv": lines.encode() + b"[INST] a [/INST]\t[/b][red]\n" * 3,
        "empty.tsv": b"",
        "blank.tsv": b"\n" * 1000,
        "one.tsv": b"a\tb\n",
        "deep.jsonl": b"[" * 100_000 + b"]" * 100_000 + b"\n",
        "digits.jsonl": b'{"source": ' + b"9" * 5000 + b', "target": "x"}\n',
        "nan.jsonl": b'{"source": NaN, "target": null}\n' * 5,
        "list.jsonl": b"[1, 2, 3]\n" * 5,
        "wrong.json": b'{"source": {"target": []}}',
        "broken.parquet": b"PAR1" + draw.randbytes(200) + b"PAR1",
        "quotes.csv": b'source,target\n"a,b\n' + b'"' * 1001,
        "surrogate.jsonl": b'{"source": "\\ud800", "target": "x"}\n' * 5,
        "bomb.tsv.gz": gzip.compress(b"0" * (32 << 20)),
        "cut.tsv.gz": gzip.compress(lines.encode())[:40],
        "plain.tsv.gz": lines.encode(),
    }
    name = draw.choice([*makers, "folder.tsv", "pipe.tsv", "zero.tsv", "zip.tsv", "locked.zip"])
    path = folder / name
    if name in makers:
        path.write_bytes(makers[name])
    elif name == "folder.tsv":
        path.mkdir()
    elif name == "pipe.tsv":
        os.mkfifo(path)
    elif name == "zero.tsv":
        path.symlink_to("/dev/zero")
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("pairs.tsv", lines)
    return path, name
