"""Reading files that somebody else made, without trusting a byte of them.

Only safetensors hold weights here: a header of names, types, shapes and places, then the numbers; their library checks every
number of the header against the file before anything is allocated. Pickles (`.bin`, `.pt`, `.ckpt`) can run code when they are
opened and are refused. An index that spreads a model over several files may name files beside it and nothing else: no name that
climbs out of the folder, no link that leads elsewhere.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from glassformer.errors import UserError

LARGEST_JSON = 64 * 2**20
LARGEST_CONFIG = 2**20
FLOATING = ("F64", "F32", "F16", "BF16")
PICKLES = ("pytorch_model.bin", "model.bin", "model.pt", "model.pth", "ckpt.pt", "model.ckpt")


def inside(folder: Path, name: str) -> Path:
    """A file of this folder by its plain name: a regular one, no link, and nothing that leads out."""
    if not name or name != os.path.basename(name) or name in (".", "..") or "\\" in name or "\0" in name:
        raise UserError("{folder} names the file {name!r}, which is not a plain name of a file beside it", folder, name)
    path = folder / name
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise UserError("{path} cannot be read: {reason}", path, error.strerror or error) from None
    if not stat.S_ISREG(mode):
        raise UserError("{path} is not a plain file (a link, a folder or a device), and is not read", path)
    return path


def is_file(folder: Path, name: str) -> bool:
    """Whether something of this name lies there; what it is is looked at when it is read."""
    return (folder / name).exists() or (folder / name).is_symlink()


def read_json(folder: Path, name: str, most: int = LARGEST_CONFIG, *, optional: bool = False) -> dict[str, Any]:
    """A JSON object of a bounded size. `optional`: an empty one where there is no such file."""
    if optional and not is_file(folder, name):
        return {}
    path = inside(folder, name)
    if path.stat().st_size > most:
        raise UserError(
            "{path} has {st_size:,} bytes; such a file has at most {most:,}", path, path.stat().st_size, most
        )
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError("{path} is not JSON: {error}", path, error) from None
    if not isinstance(value, dict):
        raise UserError("{path} holds {kind}, and should hold an object", path, type(value).__name__)
    return value


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model: one, or those its index names."""
    if (folder / "model.safetensors.index.json").exists():
        index = read_json(folder, "model.safetensors.index.json", LARGEST_JSON)
        places = index.get("weight_map")
        if not isinstance(places, Mapping) or not all(isinstance(v, str) for v in places.values()):
            raise UserError("{folder} has no weight_map of names to files", folder / "model.safetensors.index.json")
        return [inside(folder, name) for name in sorted(set(places.values()))]
    if (folder / "model.safetensors").exists():
        return [inside(folder, "model.safetensors")]
    for name in PICKLES:
        if (folder / name).exists():
            raise UserError(
                "{folder} is a pickle, which can run code when it is opened, and is not read; save the model as "
                "safetensors where it was made, with save_pretrained(folder, safe_serialization=True)",
                folder / name,
            )
    raise UserError("{folder} has no model.safetensors", folder)


def read_tensor_file(path: Path) -> dict[str, Tensor]:
    """Every floating tensor of one safetensors file, wherever it lies."""
    from safetensors import SafetensorError, safe_open

    place = inside(path.parent, path.name)
    try:
        with safe_open(place, framework="pt") as file:
            floating = [name for name in file.keys() if file.get_slice(name).get_dtype() in FLOATING]  # noqa: SIM118
            return {name: file.get_tensor(name) for name in floating}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise UserError("{path} is not a safetensors file: {error}", path, " ".join(str(error).split())[:200]) from None


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
            raise UserError(
                "{path} has {again!r:.80} once more; another file of the model had it already", path, again[0]
            )
        found |= own
    return found
