"""Every writer of the package, where each system call fails in turn, and where the disk is full at any byte: what was there is
there, or what was to be; nothing half written is left under a name; and with room again the same call succeeds.

In this process. System calls of Python's `os` fail as the kernel would have it; a full disk is the kernel's own limit on a file's
size, by which every write of any library is cut short first and refused then."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.accel import trials
from glassformer.config import DataConfig
from glassformer.data import cache, download
from glassformer.data.report import DataReport
from glassformer.data.store import StoreWriter, run_examples
from glassformer.data.tokens import TokenFile, new_token_file
from glassformer.errors import UserError
from glassformer.files import owned, structured
from glassformer.files.durable import write_atomically
from glassformer.formats.export import list_files, own_export
from glassformer.formats.untrusted import read_tensor_file, write_tensor_file
from glassformer.runs.checkpoint import problem, read_checkpoint, recover, write_checkpoint
from glassformer.runs.corrections import read_corrections
from glassformer.runs.facts import read_facts, write_facts
from glassformer.runs.metrics_log import LogFile
from glassformer.serve.corrections import Corrections
from glassformer.serve.requests import APIError
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.tokenizers import Tokenizers

CALLS = ("open", "write", "fsync", "replace", "rename", "mkdir", "link")
TOLD = (OSError, UserError, APIError)  # what a person or a client is told in a sentence


@dataclass(frozen=True)
class Writer:
    """How something is written in a folder, as a first (1) or a second time (2), and read again; None where it is not there."""

    write: Callable[[Path, int], Any]
    read: Callable[[Path], Any]
    over: bool = True  # whether there is a first time, which the second one replaces


def checkpoint_of(folder: Path, n: int) -> None:
    write_checkpoint(folder / "step-00000001", {"model": {"x": torch.full((500,), float(n))}}, {"step": 1, "tokens": n})


def read_of_checkpoint(folder: Path) -> Any:
    path = folder / "step-00000001"
    recover(folder)  # as whoever goes on does first
    if not path.exists():
        return None
    assert problem(path, again=True) is None
    tensors, state = read_checkpoint(path)
    assert set(tensors["model"]["x"].tolist()) == {float(state["tokens"])}
    return state["tokens"]


def facts_of(folder: Path, n: int) -> None:
    write_facts(folder, {"recipe": {"name": "x" * 3000}, "id": str(n)})


def log_of(folder: Path, n: int) -> None:
    log = LogFile(folder / "metrics.jsonl")
    log.append(f"{n}" * 3000 + "\n")
    log.close()


def read_of_log(folder: Path) -> Any:
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    assert all(line == line[0] * 3000 + "\n" for line in lines)
    return max((int(line[0]) for line in lines), default=None)


def corrections_of(folder: Path, n: int) -> None:
    Corrections(folder).add(f"source {n}", "target " * 300, "owner")


def read_of_corrections(folder: Path) -> Any:
    kept, strange = read_corrections(folder / "corrections/corrections.tsv")
    assert strange == []
    return len(kept) or None


KEY = "0" * 64


def entry_of(folder: Path, n: int) -> None:
    made = folder.with_name("made")
    (made / "data").mkdir(parents=True, exist_ok=True)
    (made / "data" / "train.tokens").write_bytes(bytes([n]) * 3000)
    cache.keep(KEY, cache.made_in(made), "a test")


def read_of_entry(folder: Path) -> Any:
    out = folder.with_name("fetched")
    found = cache.fetch(KEY, out, lambda: (out / "data" / "train.tokens").read_bytes())
    return None if found is None else len(found) and found[0]


def trial_of(folder: Path, n: int) -> None:
    trials.write_gains(folder / "trial.json", {str(size): float(n) for size in range(100)})


def read_of_trial(folder: Path) -> Any:
    gains = trials.read_gains(folder / "trial.json")
    return None if gains is None else int(gains["7"])


def split_of(folder: Path, n: int) -> None:
    download.write_pairs(folder / "train.tsv", [(f"{n}", "x" * 50)] * 60)


def read_of_split(folder: Path) -> Any:
    path = folder / "train.tsv"
    if not path.exists():
        return None
    lines = path.read_text().splitlines()
    assert len(lines) == 60
    return int(lines[-1].split("\t")[0])


def export_of(folder: Path, n: int) -> None:
    out = folder / "export"
    with owned.new_folder(out, "an export", own_export(out) if out.exists() else ()) as draft:
        write_tensor_file({"x": torch.full((500,), float(n))}, draft / "model.safetensors")
        (draft / "README.md").write_text("a card\n" * 100)
        list_files(draft)


def read_of_export(folder: Path) -> Any:
    path = folder / "export"
    if not path.exists():
        return None
    assert {"model.safetensors", "README.md"} <= set(own_export(path))
    return int(read_tensor_file(path / "model.safetensors")["x"][-1])


def list_of(folder: Path, n: int) -> None:
    owned.OwnedFiles(folder).claim(*(f"file {number}" for number in range(200 * n)))


def tokens_of(folder: Path, n: int) -> None:
    with new_token_file(folder / "train", 100) as out:
        out.add(np.full(3000, n), np.array([3000]))


def read_of_tokens(folder: Path) -> Any:
    path = TokenFile.path(folder / "train")
    return int(TokenFile.open(folder / "train").tokens[-1]) if path.exists() else None


def examples_of(folder: Path, n: int) -> None:
    with StoreWriter(folder) as store:
        for number in range(300):
            store.write("train", (f"{n} {number * 7919}", "target"), 1)


def read_of_examples(folder: Path) -> Any:
    examples = list(run_examples(DataConfig(task="pairs"), "train", folder)) if any(folder.glob("train*")) else []
    assert len(examples) in (0, 300)
    return int(examples[-1][0].split()[0]) if examples else None


def report_of(folder: Path, n: int) -> None:
    fields = {"examples": {"train": n}, "learned": n, "empty": {}, "skipped": 0, "first_skipped": ["x" * 3000]}
    structured.convert(fields | {"left_out": 0, "odd": {}, "in_train": {}, "splits": ""}, DataReport, "test").write(
        folder
    )


def tokenizer_of(folder: Path, n: int) -> None:
    tokenizer = Tokenizer.train("char", ["abcdefg" * n], 50, False)
    Tokenizers(tokenizer, tokenizer, [str(n)]).save(folder)


def text_in(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        path = folder / name
        return int(path.read_text()[0]) if path.exists() else None

    return read


WRITERS = {
    "checkpoint": Writer(checkpoint_of, read_of_checkpoint),
    "run.json": Writer(facts_of, lambda f: int(read_facts(f)["id"]) if (f / "run.json").exists() else None),
    "metrics log": Writer(log_of, read_of_log),
    "corrections": Writer(corrections_of, read_of_corrections),
    "prepared data": Writer(entry_of, read_of_entry, over=False),
    "trial": Writer(trial_of, read_of_trial, over=False),
    "data get": Writer(split_of, read_of_split),
    "export": Writer(export_of, read_of_export),
    "list of files": Writer(list_of, lambda f: len(owned.OwnedFiles(f).names()) // 200 or None),
    "token file": Writer(tokens_of, read_of_tokens),
    "examples": Writer(examples_of, read_of_examples),
    "labels": Writer(
        tokenizer_of, lambda f: int(Tokenizers.load(f).labels[0]) if (f / "labels.json").exists() else None
    ),
    "report of the data": Writer(report_of, lambda f: None if (r := DataReport.read(f)) is None else r.learned),
    "a small file": Writer(lambda f, n: write_atomically(f / "a", f"{n}".encode() * 3000), text_in("a")),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where is written; the cache of prepared data is there, too."""
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "folder"))
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


class Failing(contextlib.AbstractContextManager[None]):
    """Inside, the nth such call on something in the folder fails; `seen`: how many there were. Opening to read, as who clears up
    does, is none."""

    def __init__(self, folder: Path, call: str, nth: int) -> None:
        self.folder, self.call, self.nth, self.seen, self.real = folder, call, nth, 0, getattr(os, call)
        self.error = errno.EIO if call == "fsync" else errno.ENOSPC

    def fails(self, first: Any, *rest: Any, **more: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else os.path.abspath(first)
        reads = self.call == "open" and not rest[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if path.startswith(str(self.folder)) and not reads:
            self.seen += 1
            if self.seen == self.nth:
                raise OSError(self.error, os.strerror(self.error))
        return self.real(first, *rest, **more)

    def __enter__(self) -> None:
        setattr(os, self.call, self.fails)

    def __exit__(self, *ended: object) -> None:
        setattr(os, self.call, self.real)


@contextlib.contextmanager
def full_from(size: int) -> Iterator[None]:
    """Inside, no file grows beyond this size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def half_done(folder: Path) -> list[str]:
    """What a writer would have left that did not clear up after itself."""
    marks = (".tmp-", ".making-", ".old-", ".trash-", ".part")
    return [path.name for path in folder.rglob("*") if any(mark in path.name for mark in marks)]


def begun(writer: Writer, folder: Path) -> Any:
    """What is there before the fault, in a folder that was emptied."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    if not writer.over:
        return None
    writer.write(folder, 1)
    return 1


def check_under(fault: contextlib.AbstractContextManager[Any], writer: Writer, folder: Path) -> None:
    """Written under a fault: whatever that ends with is a sentence; the old or the new is there, and nothing half; and then the
    same call goes through."""
    before, written = begun(writer, folder), False
    with contextlib.suppress(*TOLD), fault:
        writer.write(folder, 2)
        written = True
    found = writer.read(folder)
    # A log loses lines and a cache keeps nothing, without a word.
    assert found in (before, 2) or (found is None and written), found
    assert half_done(folder) == []
    writer.write(folder, 2)
    assert writer.read(folder) == 2 and half_done(folder) == []


@pytest.mark.parametrize("name", WRITERS)
def test_each_call_fails_in_turn(name: str, folder: Path) -> None:
    """Broken variants: a file written under its own name, a temporary one that stays."""
    faults = 0
    for call in CALLS:
        for nth in range(1, 200):
            fault = Failing(folder, call, nth)
            check_under(fault, WRITERS[name], folder)
            if fault.seen < nth:
                break
            faults += 1
    assert faults > 1


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("size", [0, 1, 100, 700, 1500, 2500])
def test_the_disk_is_full_at_any_byte(name: str, size: int, folder: Path) -> None:
    """Broken variant: a write that takes a part, taken for a whole one."""
    check_under(full_from(size), WRITERS[name], folder)


@pytest.mark.parametrize("name", WRITERS)
def test_a_write_may_take_a_byte_at_a_time(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is its right. Broken variant: whatever was not taken is lost."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, memoryview(data).cast("B")[:1]))
    WRITERS[name].write(folder, 1)
    assert WRITERS[name].read(folder) == 1
