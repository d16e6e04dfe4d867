"""Reading files that somebody else made, without trusting a byte of them.

Only safetensors hold weights here: a header of names, types, shapes and places, then the numbers. Pickles (`.bin`, `.pt`,
`.ckpt`) can run code when they are opened and are refused. An index that spreads a model over several files may name
files beside it and nothing else. Everything is looked at before anything is allocated: a header that promises more than
the file holds, a shape whose product is not its bytes, a name that climbs out of the folder, a link that leads elsewhere.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer.errors import UserError

LARGEST_HEADER = 16 * 2**20
LARGEST_JSON = 64 * 2**20
LARGEST_CONFIG = 2**20
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
FLOATING = ("F64", "F32", "F16", "BF16")
PICKLES = ("pytorch_model.bin", "model.bin", "model.pt", "model.pth", "ckpt.pt", "model.ckpt")


def inside(folder: Path, name: str) -> Path:
    """A file of this folder by its plain name: a regular one, no link, and nothing that leads out."""
    if not name or name != os.path.basename(name) or name in (".", "..") or "\\" in name or "\0" in name:
        raise UserError(f"{folder} names the file {name!r}, which is not a plain name of a file beside it")
    path = folder / name
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    if not stat.S_ISREG(mode):
        raise UserError(f"{path} is not a plain file (a link, a folder or a device), and is not read")
    return path


def read_json(folder: Path, name: str, most: int = LARGEST_CONFIG) -> dict[str, Any]:
    """A JSON object of a bounded size."""
    path = inside(folder, name)
    if path.stat().st_size > most:
        raise UserError(f"{path} has {path.stat().st_size:,} bytes; such a file has at most {most:,}")
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} holds {type(value).__name__}, and should hold an object")
    return value


def header_of(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of each tensor of a safetensors file, its every number checked against the file's size."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(LARGEST_HEADER, size - 8):
            raise UserError(f"{path} says that its header has {length:,} bytes; that cannot be in {size:,}")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is not a safetensors file: its header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise UserError(f"{path} is not a safetensors file: its header is no object")
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    places: list[tuple[int, int]] = []
    for name, facts in header.items():
        if name == "__metadata__":
            continue
        if not well_formed(facts):
            raise UserError(f"{path}: the header's entry for {name!r:.80} makes no sense")
        found[name] = facts["dtype"], tuple(facts["shape"])
        places.append((facts["data_offsets"][0], facts["data_offsets"][1]))
    end = 0
    for start, stop in sorted(places):
        if start != end:
            raise UserError(f"{path}: its tensors overlap or leave gaps, so it is not as it was written")
        end = stop
    if end != size - 8 - length:
        raise UserError(f"{path} has {size - 8 - length:,} bytes of numbers, and its header speaks of {end:,}")
    return found


def are_sizes(numbers: Any) -> bool:
    """A short list of whole numbers, none of them absurd."""
    return (
        isinstance(numbers, list)
        and len(numbers) <= 8
        and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**48 for n in numbers)
    )


def well_formed(facts: Any) -> bool:
    """Is this what a safetensors header says of a tensor: a known type, a shape, and the bytes that shape takes?"""
    if not isinstance(facts, dict) or not isinstance(facts.get("dtype"), str) or facts["dtype"] not in BYTES:
        return False
    shape: Any = facts.get("shape")
    offsets: Any = facts.get("data_offsets")
    if not (are_sizes(shape) and are_sizes(offsets) and len(offsets) == 2):
        return False
    return math.prod(shape) * BYTES[facts["dtype"]] == offsets[1] - offsets[0]


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model: one, or those its index names."""
    if (folder / "model.safetensors.index.json").exists():
        index = read_json(folder, "model.safetensors.index.json", LARGEST_JSON)
        places = index.get("weight_map")
        if not isinstance(places, Mapping) or not all(isinstance(v, str) for v in places.values()):
            raise UserError(f"{folder / 'model.safetensors.index.json'} has no weight_map of names to files")
        return [inside(folder, name) for name in sorted(set(places.values()))]
    if (folder / "model.safetensors").exists():
        return [inside(folder, "model.safetensors")]
    for name in PICKLES:
        if (folder / name).exists():
            raise UserError(
                f"{folder / name} is a pickle, which can run code when it is opened, and is not read; save the model as "
                "safetensors where it was made, with save_pretrained(folder, safe_serialization=True)"
            )
    raise UserError(f"{folder} has no model.safetensors")


def read_tensor_file(path: Path) -> dict[str, Tensor]:
    """Every floating tensor of one safetensors file, wherever it lies."""
    from safetensors import SafetensorError, safe_open

    place = inside(path.parent, path.name)
    kinds = header_of(place)
    try:
        with safe_open(place, framework="pt") as file:
            return {name: file.get_tensor(name) for name, (kind, _) in kinds.items() if kind in FLOATING}
    except SafetensorError as error:
        raise UserError(f"{path} is not a safetensors file: {error}") from None


def write_tensor_file(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """A safetensors file; OSError where it cannot be written, as of any other file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), path, {"format": "pt", **(metadata or {})})
    except SafetensorError as error:
        raise OSError(errno.EIO, " ".join(str(error).split()), str(path)) from None


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every floating tensor of a model's safetensors files."""
    found: dict[str, Tensor] = {}
    for path in weight_files(folder):
        own = read_tensor_file(path)
        if again := sorted(own.keys() & found.keys()):
            raise UserError(f"{path} has {again[0]!r:.80} once more; another file of the model had it already")
        found |= own
    return found
