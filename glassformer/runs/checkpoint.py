"""Tensors and state in a folder, written so that a crash at any moment leaves either the whole of it or none of it.

A checkpoint is a folder of safetensors and JSON files, a manifest with the size and SHA-256 of each, and a seal: the
SHA-256 of the manifest. It is written under a temporary name, every file and the folder fsynced, and then renamed into
place; a folder that has its final name is complete. What is removed is renamed first, so that a kill while pruning leaves
nothing half deleted under a checkpoint's name. Reading verifies every byte before a tensor is handed out. No pickle.

The manifest is made from the bytes in memory, not from what the disk gives back, so a write that quietly lost something
is found out. The price: while a group of tensors is saved it is held twice, beside the copy that a training goes on without
(runs/stop.py).

    run/checkpoints/step-00000500/{model,training}.safetensors, state.json, manifest.json, SEAL

This file knows nothing of models or training: names of tensors in, names of tensors out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from torch import Tensor

from glassformer.errors import UserError
from glassformer.files import durable, structured
from glassformer.files.durable import ListedFile, file_problem, free_name, fsync, temporary_name, to_json, write_bytes
from glassformer.files.owned import own_folder, refuse_link
from glassformer.files.structured import read_regular
from glassformer.language import _

FORMAT = 1
MANIFEST, SEAL, STATE = "manifest.json", "SEAL", "state.json"
SMALL = 1 << 20  # bytes a manifest may have


class WeightsOf(TypedDict, total=False):
    """The origin of final weights: a checkpoint, the mean of several, another model, or one with fewer heads."""

    step: int | None
    averaged: list[int]
    imported: str
    pruned: list[str]


State = TypedDict(
    "State",
    {
        "step": int,
        "run": str | None,
        "recipe": dict[str, Any],
        "best_step": int | None,
        "waiting": int,
        "threads": int,
        "seconds": dict[str, float],
        "metrics_bytes": int,
        "samples_bytes": int,
        "tokens": int,
        "weights": WeightsOf,
        "new_tokens": int,
        "from": dict[str, Any],
    },
    total=False,
)
"""The entries of state.json that are read without restoring it; each may be missing."""


class Damaged(UserError):
    """A checkpoint whose bytes are not those that were written."""


def trash_name(path: Path) -> Path:
    """A name that nobody looks under."""
    return free_name(path.with_name(f".trash-{path.name}"))


def is_own_file(name: str) -> bool:
    """Whether a checkpoint's folder may hold a file of this name."""
    return re.fullmatch(r"[a-z]+\.safetensors|state\.json|manifest\.json|SEAL", name) is not None


def empty_out(folder: Path) -> None:
    """Removes a checkpoint that nobody looks for any more, file by file; what is not of a checkpoint stays, and what cannot
    be removed now is left for `recover`. Of one that was moved elsewhere and linked back the link goes, and no more."""
    with contextlib.suppress(OSError):
        if folder.is_symlink():
            folder.unlink()
            return
        for path in sorted(folder.iterdir()):
            durable.fault_point("during-prune")
            if is_own_file(path.name) and not path.is_dir():
                path.unlink()
        folder.rmdir()


def remove(folder: Path) -> None:
    """Renames the folder first, which is atomic, then deletes its files."""
    empty_out(folder.with_name(f".trash-{folder.name}"))
    trash = trash_name(folder)
    durable.fault_point("before-prune")
    os.replace(folder, trash)
    empty_out(trash)


def commit(temporary: Path, folder: Path) -> None:
    """A finished folder takes its name; one that had the name before goes only once the new one is there."""
    empty_out(folder.with_name(f".trash-{folder.name}"))
    trash = trash_name(folder)
    durable.fault_point("before-rename")
    if os.path.lexists(folder):
        os.replace(folder, trash)
        durable.fault_point("between-renames")
    try:
        os.replace(temporary, folder)
    except OSError:
        if os.path.lexists(trash) and not os.path.lexists(folder):
            os.replace(trash, folder)
        raise
    durable.fault_point("after-rename")
    fsync(folder.parent)
    empty_out(trash)


def write_checkpoint(folder: Path, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
    """Writes `folder` whole or not at all: a safetensors file for each group of tensors, and the state as JSON.

    The folder it lies in is made where it is missing, but not those above it: if they are gone, someone took them away.
    """
    from safetensors.torch import save

    temporary = temporary_name(folder)
    try:
        if not folder.parent.is_dir():
            own_folder(folder.parent)
            fsync(folder.parent.parent)
        refuse_link(folder.parent)
        empty_out(temporary)
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
        commit(temporary, folder)
    except OSError as error:
        empty_out(temporary)
        raise UserError(
            "{folder} could not be written: {reason}; what was saved before is untouched. "
            "Put that right (room on the disk, permissions, the folder itself), then go on with --resume",
            folder,
            error.strerror or error,
        ) from error


@dataclass(frozen=True)
class Manifest:
    """The list of a checkpoint's files, and the version of its format."""

    format: int
    files: dict[str, ListedFile]


def read_manifest(folder: Path) -> Manifest:
    """The list of a checkpoint's files, if it is the one that was sealed; Damaged in a sentence, if not."""
    try:
        manifest = read_regular(folder / MANIFEST, SMALL)
        seal = read_regular(folder / SEAL, SMALL)
        if seal != (hashlib.sha256(manifest).hexdigest() + "\n").encode():
            raise Damaged("{name} or its seal has been changed", MANIFEST)
        version = structured.decode(manifest, dict[str, Any], MANIFEST).get("format")
        if isinstance(version, int) and version != FORMAT:
            age = _("newer") if version > FORMAT else _("older")
            raise Damaged(
                "it was written in format {version}, {age} than the format {format} this version reads",
                version,
                age,
                FORMAT,
            )
        listing: Manifest = structured.decode(manifest, Manifest, MANIFEST)
    except FileNotFoundError as error:
        raise Damaged("{name} is missing", Path(error.filename).name) from None
    except OSError as error:
        raise Damaged("it cannot be read: {reason}", error.strerror) from None
    except structured.Unreadable as error:
        raise Damaged(str(error)) from None
    if strange := [name for name in listing.files if not is_own_file(name)]:
        raise Damaged("{name} lists {strange!r}, which is no file of a checkpoint", MANIFEST, strange[0][:80])
    return listing


def problem(folder: Path, names: Collection[str] | None = None, *, again: bool = False) -> str | None:
    """The problem of a checkpoint, in words; None if every byte is as it was written.

    `names`: look at these files alone (the manifest and its seal are always looked at)."""
    try:
        listing = read_manifest(folder)
    except Damaged as error:
        return str(error)
    for name, expected in listing.files.items():
        if (names is None or name in names) and (wrong := file_problem(folder / name, expected, again=again)):
            return _("{name} {wrong}", name, wrong)
    return None


def read_state(folder: Path) -> dict[str, Any]:
    """The state as it lies there; Damaged in a sentence where it cannot be read."""
    try:
        state: dict[str, Any] = structured.read(folder / STATE, dict[str, Any])
        structured.convert(state, State, str(folder / STATE))
    except OSError as error:
        raise Damaged("{path} cannot be read: {reason}", folder / STATE, error.strerror) from None
    except structured.Unreadable as error:
        raise Damaged(str(error)) from None
    return state


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, mapped; read, where its name is not UTF-8, which safetensors asks of names."""
    from safetensors.torch import load, load_file

    try:
        str(path).encode()
    except UnicodeEncodeError:
        return load(path.read_bytes())
    return load_file(path)


def read_checkpoint(
    folder: Path, groups: list[str] | None = None
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Verifies every byte of the asked groups of tensors (all by default) and of the state, then reads them. What the
    manifest does not list is not read."""
    from safetensors import SafetensorError

    names = None if groups is None else [STATE, *(f"{group}.safetensors" for group in groups)]
    wrong = problem(folder, names)
    if wrong is not None:
        raise Damaged("{path} cannot be used: {reason}", folder, wrong)
    listed = [Path(name).stem for name in sorted(read_manifest(folder).files) if name.endswith(".safetensors")]
    missing = [group for group in groups or () if group not in listed]
    if missing or not listed:
        raise Damaged(
            "{folder} cannot be used: {name} lists no {group}.safetensors", folder, MANIFEST, (missing or ["model"])[0]
        )
    try:
        tensors = {group: load_tensors(folder / f"{group}.safetensors") for group in groups or listed}
    except (SafetensorError, ValueError, KeyError, OSError, OverflowError, RuntimeError) as error:
        # Some builds map a file by torch, whose errors are all of one kind.
        if isinstance(error, RuntimeError) and "unable to open file" not in str(error):
            raise
        raise Damaged("{folder} cannot be used: its tensors cannot be read: {error}", folder, error) from None
    return tensors, read_state(folder)


HALF_DONE = re.compile(r"\.(tmp|trash)-(step-\d{8,}|final|start)(-\d+)?")


def half_done(folder: Path) -> list[Path]:
    """Checkpoints that a crash left half written or half removed."""
    if not folder.is_dir() or folder.is_symlink():
        return []
    return sorted(p for p in folder.iterdir() if HALF_DONE.fullmatch(p.name) and (p.is_dir() or p.is_symlink()))


def recover(folder: Path) -> None:
    """After a crash, in a folder of checkpoints: finish what was being removed, drop what was half written, and put back
    what a crash between two renames left without a name. May itself be killed anywhere and run again."""
    leftovers = half_done(folder)
    for path in (p for p in leftovers if p.name.startswith(".trash-")):
        original = path.with_name(HALF_DONE.fullmatch(path.name)[2])  # type: ignore[index]
        if not os.path.lexists(original) and temporary_name(original).exists():
            os.replace(path, original)
        else:
            empty_out(path)
    for path in (p for p in leftovers if p.name.startswith(".tmp-")):
        empty_out(path)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run, by step. `run`: the id of the run they must be of, where the run has one."""

    folder: Path
    run: str | None = None

    def path(self, step: int) -> Path:
        """The folder of the checkpoint of a step."""
        return self.folder / f"step-{step:08d}"

    def steps(self) -> list[int]:
        """The steps of which there are checkpoints, in order."""
        if not self.folder.is_dir() or self.folder.is_symlink():
            return []
        matches = (re.fullmatch(r"step-(\d{8,})", p.name) for p in self.folder.iterdir())
        return sorted(int(m[1]) for m in matches if m)

    def problem(self, step: int, *, again: bool = False) -> str | None:
        """The problem of the checkpoint of a step, or None: damaged, another run's, or another step's under this name."""
        folder = self.path(step)
        if (wrong := problem(folder, again=again)) is not None:
            return wrong
        try:
            state = read_state(folder)
        except Damaged as error:
            return str(error)
        if state.get("step", step) != step:
            return _("it is the checkpoint of step {step} under another name", state["step"])
        if self.run is not None and state.get("run") != self.run:
            return _("it is a checkpoint of another run")
        return None

    def problems(self) -> dict[int, str | None]:
        """Every byte is looked at again, whatever this process has found before."""
        return {step: self.problem(step, again=True) for step in self.steps()}

    def state(self, step: int) -> dict[str, Any]:
        """The state of a step, not verified: good enough to decide what to keep, not to go on from."""
        try:
            return read_state(self.path(step))
        except Damaged:
            return {}

    def latest_good(self, report: Callable[[str], None] = lambda _: None) -> int | None:
        """The newest checkpoint that is whole; each one on the way that is not is named to `report`."""
        for step in reversed(self.steps()):
            wrong = self.problem(step)
            if wrong is None:
                return step
            report(_("{path} cannot be used: {wrong}; trying the one before it", self.path(step), wrong))
        return None

    def move_aside_after(self, step: int) -> list[Path]:
        """Whatever is newer than `step` is given a name that nobody goes on from, but is not thrown away."""
        aside = []
        for later in self.steps():
            if later > step:
                name = self.folder / f"damaged-{self.path(later).name}"
                empty_out(name)  # of an earlier time
                aside.append(free_name(name))
                os.replace(self.path(later), aside[-1])
        return aside

    def moved_aside(self) -> list[Path]:
        """Those that were found damaged and kept for a look."""
        return sorted(self.folder.glob("damaged-step-*"))

    def prune(self, keep_last: int, keep: Collection[int] = ()) -> None:
        """Removes all but the latest `keep_last` and those in `keep`."""
        for step in self.steps()[:-keep_last]:
            if step not in keep:
                with contextlib.suppress(OSError):  # a checkpoint too many is no reason to stop
                    remove(self.path(step))


SMALL_MODEL = 16_000_000  # bytes of weights; of a larger model the beginnings are kept only where the recipe asks


def is_historic(step: int) -> bool:
    """0, and from 10 on the ones and threes of each power of ten: 10, 30, 100, 300 …"""
    return step == 0 or (step >= 10 and step in (10 ** (len(str(step)) - 1), 3 * 10 ** (len(str(step)) - 1)))
