"""Tensors and state in a folder, written so that a crash at any moment leaves either the whole of it or none of it.

A checkpoint is a folder of safetensors and JSON files, a manifest with the size and SHA-256 of each, and a seal: the
SHA-256 of the manifest. It is written under a temporary name, every file and the folder fsynced, and then renamed into
place; a folder that has its final name is complete. What is removed is renamed first, so that a kill while pruning leaves
nothing half deleted under a checkpoint's name. Reading verifies every byte before a tensor is handed out. No pickle.

The manifest is made from the bytes in memory, not from what the disk gives back, so a write that quietly lost something
is found out. The price: while a group of tensors is saved it is held twice.

    run/checkpoints/step-00000500/{model,training}.safetensors, state.json, manifest.json, SEAL

This file knows nothing of models or training: names of tensors in, names of tensors out.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from glassformer.errors import UserError
from glassformer.files import durable
from glassformer.files.durable import fsync, sha256, temporary_name, to_json, write_bytes

FORMAT = 1
MANIFEST, SEAL, STATE = "manifest.json", "SEAL", "state.json"


class Damaged(UserError):
    """A checkpoint whose bytes are not those that were written."""


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters (each once, however many modules use it) and persistent buffers."""
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    saved = model.state_dict()
    tensors |= {name: b for name, b in model.named_buffers() if name in saved}
    return tensors


def load_model_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    own = model_tensors(model)
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or extra:
        raise UserError(
            f"these weights are of another model: {len(missing)} tensors are missing (such as {missing[:1]}) and "
            f"{len(extra)} are unknown (such as {extra[:1]})"
        )
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            raise UserError(
                f"{name} has shape {tuple(tensors[name].shape)} in the file and {tuple(tensor.shape)} in the model"
            )
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def trash_name(path: Path) -> Path:
    return path.with_name(f".trash-{path.name}")


def empty_out(folder: Path) -> None:
    """Removes a folder of files that nobody looks for any more; what cannot be removed now is left for `recover`."""
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            durable.fault_point("during-prune")
            path.unlink()
        folder.rmdir()


def remove(folder: Path) -> None:
    """In one instant it is gone under its name; then its files are removed."""
    if trash_name(folder).exists():
        shutil.rmtree(trash_name(folder), ignore_errors=True)
    durable.fault_point("before-prune")
    os.replace(folder, trash_name(folder))
    empty_out(trash_name(folder))


def put_in_place(temporary: Path, folder: Path) -> None:
    """A finished folder takes its name; one that had the name before goes only once the new one is there."""
    trash = trash_name(folder)
    durable.fault_point("before-rename")
    if folder.exists():
        if trash.exists():
            shutil.rmtree(trash)
        os.replace(folder, trash)
        durable.fault_point("between-renames")
    try:
        os.replace(temporary, folder)
    except OSError:
        if trash.exists() and not folder.exists():
            os.replace(trash, folder)
        raise
    durable.fault_point("after-rename")
    fsync(folder.parent)
    if trash.exists():
        empty_out(trash)


def write_checkpoint(folder: Path, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
    """Writes `folder` whole or not at all: a safetensors file for each group of tensors, and the state as JSON.

    The folder it lies in is made where it is missing, but not those above it: if they are gone, someone took them away.
    """
    from safetensors.torch import save

    temporary = temporary_name(folder)
    try:
        if not folder.parent.is_dir():
            os.mkdir(folder.parent)
            fsync(folder.parent.parent)
        if temporary.exists():
            shutil.rmtree(temporary)
        os.mkdir(temporary)
        listing: dict[str, dict[str, Any]] = {}

        def write(name: str, content: bytes) -> None:
            write_bytes(temporary / name, content)
            listing[name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            durable.fault_point("after-write")

        for group, members in tensors.items():
            write(f"{group}.safetensors", save({name: t.detach().contiguous().cpu() for name, t in members.items()}))
        write(STATE, to_json(state))
        manifest = to_json({"format": FORMAT, "files": listing})
        write_bytes(temporary / MANIFEST, manifest)
        write_bytes(temporary / SEAL, (hashlib.sha256(manifest).hexdigest() + "\n").encode())
        fsync(temporary)
        put_in_place(temporary, folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(
            f"{folder} could not be written: {error.strerror or error}; what was saved before is untouched. "
            "Put that right (room on the disk, permissions, the folder itself), then go on with --resume"
        ) from error


def problem(folder: Path, names: Collection[str] | None = None) -> str | None:
    """What is wrong with a checkpoint, in words; None if every byte is as it was written.

    `names`: look at these files alone (the manifest and its seal are always looked at)."""
    try:
        manifest = (folder / MANIFEST).read_bytes()
        seal = (folder / SEAL).read_bytes()
        if seal != (hashlib.sha256(manifest).hexdigest() + "\n").encode():
            return f"{MANIFEST} or its seal has been changed"
        listing = json.loads(manifest)
        if listing["format"] != FORMAT:
            age = "newer" if listing["format"] > FORMAT else "older"
            return f"it was written in format {listing['format']}, {age} than the format {FORMAT} this version reads"
        for name, expected in listing["files"].items():
            if names is not None and name not in names:
                continue
            path = folder / name
            if not path.exists():
                return f"{name} is missing"
            if path.stat().st_size != expected["size"]:
                return f"{name} has {path.stat().st_size:,} bytes and should have {expected['size']:,}"
            if sha256(path) != expected["sha256"]:
                return f"the content of {name} has changed since it was written"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return None


def read_checkpoint(
    folder: Path, groups: list[str] | None = None
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Verifies every byte of the asked groups of tensors (all by default) and of the state, then reads them."""
    from safetensors.torch import load_file

    names = None if groups is None else [STATE, *(f"{group}.safetensors" for group in groups)]
    wrong = problem(folder, names)
    if wrong is not None:
        raise Damaged(f"{folder} cannot be used: {wrong}")
    groups = [p.stem for p in sorted(folder.glob("*.safetensors"))] if groups is None else groups
    tensors = {group: load_file(folder / f"{group}.safetensors") for group in groups}
    return tensors, json.loads((folder / STATE).read_bytes())


def recover(folder: Path) -> None:
    """After a crash, in a folder of checkpoints: finish what was being removed, drop what was half written, and put back
    what a crash between two renames left without a name. May itself be killed anywhere and run again."""
    if not folder.is_dir():
        return
    for path in sorted(folder.glob(".trash-*")):
        original = path.with_name(path.name.removeprefix(".trash-"))
        if not original.exists() and temporary_name(original).exists():
            os.replace(path, original)
        else:
            shutil.rmtree(path)
    for path in sorted(folder.glob(".tmp-*")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run, by step."""

    folder: Path

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def steps(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        found = (re.fullmatch(r"step-(\d{8,})", p.name) for p in self.folder.iterdir())
        return sorted(int(m[1]) for m in found if m)

    def problems(self) -> dict[int, str | None]:
        return {step: problem(self.path(step)) for step in self.steps()}

    def state(self, step: int) -> dict[str, Any]:
        """As it lies there, not verified: good enough to decide what to keep, not to go on from."""
        try:
            state = json.loads((self.path(step) / STATE).read_bytes())
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def latest_good(self, report: Callable[[str], None] = lambda _: None) -> int | None:
        """The newest checkpoint that is whole; each one on the way that is not is named to `report`."""
        for step in reversed(self.steps()):
            wrong = problem(self.path(step))
            if wrong is None:
                return step
            report(f"{self.path(step)} cannot be used: {wrong}; trying the one before it")
        return None

    def set_aside_after(self, step: int) -> list[Path]:
        """Whatever is newer than `step` is given a name that nobody goes on from, but is not thrown away."""
        aside = []
        for later in self.steps():
            if later > step:
                name = self.folder / f"damaged-{self.path(later).name}"
                if name.exists():
                    shutil.rmtree(name)
                os.replace(self.path(later), name)
                aside.append(name)
        return aside

    def set_aside(self) -> list[Path]:
        return sorted(self.folder.glob("damaged-step-*"))

    def prune(self, keep_last: int, keep: Collection[int] = ()) -> None:
        """Removes all but the latest `keep_last` and those in `keep`."""
        for step in self.steps()[:-keep_last]:
            if step not in keep:
                with contextlib.suppress(OSError):  # a checkpoint too many is no reason to stop
                    remove(self.path(step))
