"""Tensors and state in a folder, written so that a crash at any moment leaves either the whole of it or none of it.

A checkpoint is a folder of safetensors and JSON files, a manifest with the size and SHA-256 of each, and a seal: the
SHA-256 of the manifest. It is written under a temporary name, every file and the folder fsynced, and then renamed into
place; a folder that has its final name is complete. What is removed is renamed first, so that a kill while pruning leaves
nothing half deleted under a checkpoint's name. Reading verifies every byte before a tensor is handed out. No pickle.

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from glassformer.config import UserError

FORMAT = 1
MANIFEST, SEAL, STATE = "manifest.json", "SEAL", "state.json"


class Damaged(UserError):
    """A checkpoint whose bytes are not those that were written."""


def at_moment(name: str) -> None:
    """Called at each point of a save where a crash would be most interesting; fault tests put something else here."""


moment: Callable[[str], None] = at_moment


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


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        moment("before-fsync")
        os.fsync(file.fileno())


def write_atomically(path: Path, content: bytes) -> None:
    """A small file replaced whole: the old content or the new one, never a part."""
    temporary = path.with_name(f".tmp-{path.name}")
    write_bytes(temporary, content)
    os.replace(temporary, path)
    fsync(path.parent)


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def write_checkpoint(folder: Path, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
    """Writes `folder` whole or not at all: a safetensors file for each group of tensors, and the state as JSON."""
    from safetensors.torch import save_file

    temporary = folder.with_name(f".tmp-{folder.name}")
    try:
        if temporary.exists():
            shutil.rmtree(temporary)
        temporary.mkdir(parents=True)
        for group, members in tensors.items():
            path = temporary / f"{group}.safetensors"
            save_file({name: t.detach().contiguous().cpu() for name, t in members.items()}, path)
            moment("after-write")
            fsync(path)
        write_bytes(temporary / STATE, to_json(state))
        files = sorted(p.name for p in temporary.iterdir())
        listing = {
            name: {"size": (temporary / name).stat().st_size, "sha256": sha256(temporary / name)} for name in files
        }
        manifest = to_json({"format": FORMAT, "files": listing})
        write_bytes(temporary / MANIFEST, manifest)
        write_bytes(temporary / SEAL, (hashlib.sha256(manifest).hexdigest() + "\n").encode())
        fsync(temporary)
        moment("before-rename")
        if folder.exists():
            os.replace(folder, trash_name(folder))
        os.replace(temporary, folder)
        moment("after-rename")
        fsync(folder.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(
            f"{folder} could not be written: {error.strerror or error}; what was there before is untouched. "
            "Make room or set the permission, then go on with --resume"
        ) from error
    shutil.rmtree(trash_name(folder), ignore_errors=True)


def trash_name(folder: Path) -> Path:
    return folder.with_name(f".trash-{folder.name}")


def problem(folder: Path) -> str | None:
    """What is wrong with a checkpoint, in words; None if every byte is as it was written."""
    try:
        manifest = (folder / MANIFEST).read_bytes()
        seal = (folder / SEAL).read_bytes()
        if seal != (hashlib.sha256(manifest).hexdigest() + "\n").encode():
            return f"{MANIFEST} or its seal has been changed"
        listing = json.loads(manifest)
        if listing["format"] > FORMAT:
            return (
                f"it was written in format {listing['format']}, which is newer than this version of glassformer reads"
            )
        for name, expected in listing["files"].items():
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
    """Verifies everything, then reads the asked groups of tensors (all by default) and the state."""
    from safetensors.torch import load_file

    wrong = problem(folder)
    if wrong is not None:
        raise Damaged(f"{folder} is damaged: {wrong}")
    names = [p.stem for p in sorted(folder.glob("*.safetensors"))] if groups is None else groups
    tensors = {name: load_file(folder / f"{name}.safetensors") for name in names}
    return tensors, json.loads((folder / STATE).read_bytes())


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

    def latest_good(self, report: Callable[[str], None] = lambda _: None) -> int | None:
        """The newest checkpoint that is whole; each damaged one on the way is named to `report`."""
        for step in reversed(self.steps()):
            wrong = problem(self.path(step))
            if wrong is None:
                return step
            report(f"{self.path(step)} is damaged ({wrong}); trying the one before it")
        return None

    def recover(self) -> None:
        """After a crash: finish what was being removed, drop what was half written, and put back what a crash between
        two renames left without a name."""
        if not self.folder.is_dir():
            return
        for path in list(self.folder.iterdir()):
            if path.name.startswith(".trash-"):
                original = path.with_name(path.name.removeprefix(".trash-"))
                if not original.exists() and original.with_name(f".tmp-{original.name}").exists():
                    os.replace(path, original)
                else:
                    shutil.rmtree(path, ignore_errors=True)
        for path in list(self.folder.iterdir()):
            if path.name.startswith(".tmp-"):
                shutil.rmtree(path, ignore_errors=True)

    def prune(self, keep_last: int, keep: set[int]) -> None:
        """Removes all but the latest `keep_last` and those in `keep`."""
        steps = self.steps()
        for step in steps[:-keep_last]:
            if step not in keep:
                path = self.path(step)
                moment("before-prune")
                with contextlib.suppress(OSError):
                    os.replace(path, trash_name(path))
                    moment("during-prune")
                    shutil.rmtree(trash_name(path), ignore_errors=True)
