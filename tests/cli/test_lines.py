"""Lines in, answers into a file: how lines arrive, and answer files that are gone on with, by this very job or not at all."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from glassformer.api import load
from glassformer.cli import answer_file, generate, line_input, lines, translate
from glassformer.cli.answer_file import record_of
from glassformer.errors import ConfigError, UserError
from tests.commands import begin, call
from tests.counts import count
from tests.talking import SENTENCES, make_run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


# ---- how lines arrive


def blocks(data: bytes, sizes: Iterator[int]) -> Any:
    stream = io.BytesIO(data)
    return lambda size: stream.read(min(size, next(sizes)))


@pytest.mark.parametrize("promptly", [True, False])
def test_lines_do_not_depend_on_how_they_arrive(promptly: bool) -> None:
    """Caught: a line lost or doubled where a read ends, a last line without an end, a character cut in two."""
    draw = random.Random(2)
    for _ in range(count(fast=10, soak=200)):
        texts = ["".join(draw.choices("ab é猫\r", k=draw.randint(1, 6))).rstrip("\r") for _ in range(700)]
        texts[draw.randrange(699)] = ""
        texts[-1] = "last"
        data = "\n".join(texts).encode() + draw.choice([b"", b"\n"])
        arriving = blocks(data, iter(lambda: draw.choice([1, 3, 50, 5000]), 0))
        groups = list(line_input.read_groups(arriving, 16, 128, promptly=promptly))
        found = [line.text for group in groups for line in group]
        assert found == data.decode().removesuffix("\n").split("\n")
        assert [line.number for group in groups for line in group] == list(range(1, len(found) + 1))
        sizes = [len(group) for group in groups]
        assert promptly or set(sizes[:-1]) == {128}
        assert max(sizes) <= 128


def test_line_ends_and_a_byte_order_mark_are_no_text() -> None:
    (group,) = line_input.read_groups(io.BytesIO(b"\xef\xbb\xbfone\r\ntwo\n\nlast").read, 8, 64, promptly=False)
    assert [line.text for line in group] == ["one", "two", "", "last"]


def test_a_line_without_end_is_never_held_whole() -> None:
    """10 MB of one line, in which only its beginning is kept; the next line is read as ever."""
    data = b"a\n" + b"x" * 10_000_000 + b"\nb\n"
    held = []
    for group in line_input.raw_lines(io.BytesIO(data).read):
        held += group
    assert [len(line) for line in held] == [1, line_input.LONGEST_LINE + 1, 1]
    problems = [line.problem for line in map(line_input.read_line, held, range(1, 4))]
    assert problems[0] is None and problems[2] is None and "bytes" in str(problems[1])


def test_what_breaks_a_line_is_written_out() -> None:
    assert lines.escaped("a\nb\r\x1b[0m\tc d　e") == "a\\nb\\r\\x1b[0m\tc d　e"


# ---- answer files


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("random") / "run")


@pytest.fixture(scope="module")
def answered(run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A few lines and the file of their answers, to be read alone."""
    source, whole = (tmp_path_factory.mktemp("answered") / name for name in ("source.txt", "whole.txt"))
    source.write_text("\n".join(SENTENCES * 2) + "\n", encoding="utf-8")
    translate.translate(run, file=source, out=whole, **SMALL)
    return source, whole


@pytest.fixture
def source(tmp_path: Path) -> Path:
    draw = random.Random(3)
    words = " ".join(SENTENCES).split()
    texts = [" ".join(draw.choices(words, k=draw.randint(0, 4))) for _ in range(60)]
    path = tmp_path / "source.txt"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


class Interrupted(BaseException):
    """Stands for a Ctrl-C or a kill in the middle of a job."""


def interrupt_after(monkeypatch: pytest.MonkeyPatch, groups: int, error: BaseException) -> None:
    """The job ends so, after so many groups are written."""
    write = answer_file.AnswerFile.write
    done = []

    def failing(self: answer_file.AnswerFile, text: str, count: int) -> None:
        if len(done) == groups:
            raise error
        done.append(count)
        write(self, text, count)

    monkeypatch.setattr(answer_file.AnswerFile, "write", failing)


SMALL: dict[str, Any] = {"n_best": 2, "beam": 2, "scores": True, "max_new_tokens": 4, "batch_size": 2}


def test_an_interrupted_job_ends_as_if_it_had_not_been(
    run: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted after some groups; what is there is kept, to the byte, and what a kill left torn is not. Caught: lines
    done twice or left out, a torn line kept, groups that begin elsewhere, a job that begins again from nothing."""
    whole, out = tmp_path / "whole.txt", tmp_path / "out.txt"
    translate.translate(run, file=source, out=whole, **SMALL)
    assert whole.read_bytes().count(b"\n") == 2 * 60
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3, Interrupted())
        with pytest.raises(Interrupted):
            translate.translate(run, file=source, out=out, **SMALL)
    kept = out.read_bytes()
    assert 0 < kept.count(b"\n") < 2 * 60 and whole.read_bytes().startswith(kept)
    with out.open("ab") as file:
        file.write(b"half a li")
    asked: list[int] = []
    with monkeypatch.context() as patch:
        answer = lines.TextJob.reply
        patch.setattr(lines.TextJob, "reply", lambda self, own: asked.append(len(own)) or answer(self, own))
        translate.translate(run, file=source, out=out, resume=True, **SMALL)
        assert out.read_bytes() == whole.read_bytes() and 0 < sum(asked) < 60, asked
        before = list(asked)
        translate.translate(run, file=source, out=out, resume=True, **SMALL)
        assert out.read_bytes() == whole.read_bytes() and asked == before, "a complete file is complete"


def test_lines_behind_the_answers_of_a_job_that_ended(run: Path, source: Path, tmp_path: Path) -> None:
    """Caught: a file called complete, or cut, whose end is somebody else's."""
    out = tmp_path / "out.txt"
    translate.translate(run, file=source, out=out, **SMALL)
    with out.open("ab") as file:
        file.write(b"a line of my own\n")
    before = everything(tmp_path)
    with pytest.raises(UserError, match="has been changed since its answers were written, so it is left as it is"):
        translate.translate(run, file=source, out=out, resume=True, **SMALL)
    assert everything(tmp_path) == before


def other_input(given: dict[str, Any], folder: Path) -> None:
    text = given["file"].read_text(encoding="utf-8")
    given["file"].write_text(text.replace("the", "a", 1), encoding="utf-8")


def other_run(given: dict[str, Any], folder: Path) -> None:
    given["run"] = make_run(folder / "elsewhere" / "other", seed=1)


def other_setting(given: dict[str, Any], folder: Path) -> None:
    given["n_best"] = 1


def foreign_file(given: dict[str, Any], folder: Path) -> None:
    given["out"].write_text("my thesis\n", encoding="utf-8")
    record_of(given["out"]).unlink()


def changed_answers(given: dict[str, Any], folder: Path) -> None:
    given["out"].write_bytes(given["out"].read_bytes().replace(b"-", b"+", 1))


def shortened_answers(given: dict[str, Any], folder: Path) -> None:
    given["out"].write_bytes(given["out"].read_bytes()[:-5])


def damaged_record(given: dict[str, Any], folder: Path) -> None:
    record_of(given["out"]).write_text('{"format": 1, "lines": "many"}', encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_input, "another input file"),
        (other_run, "other weights"),
        (other_setting, "another setting of lines a text, n_best"),
        (foreign_file, "not begun by this command"),
        (changed_answers, "changed since"),
        (shortened_answers, "changed since"),
        (damaged_record, "not begun by this command"),
    ],
)
def test_another_jobs_answers_are_refused_untouched(
    change: Callable[[dict[str, Any], Path], None],
    said: str,
    run: Path,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compared before a byte is touched. Caught: a file cut and then refused, n-best lists that slip against their texts."""
    out = tmp_path / "out.txt"
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2, Interrupted())
        with pytest.raises(Interrupted):
            translate.translate(run, file=source, out=out, **SMALL)
    given: dict[str, Any] = {"run": run, "file": source, "out": out, **SMALL}
    change(given, tmp_path)
    before = everything(tmp_path)
    with pytest.raises(UserError, match=said) as error:
        translate.translate(**given, resume=True)
    assert "\n" not in str(error.value) and "left as it is" in str(error.value)
    assert everything(tmp_path) == before


def test_answers_are_never_written_over_something(run: Path, tmp_path: Path) -> None:
    source, out, link = tmp_path / "source.txt", tmp_path / "out.txt", tmp_path / "link.txt"
    source.write_text("the cat\n", encoding="utf-8")
    out.write_text("mine\n", encoding="utf-8")
    link.symlink_to(tmp_path / "nowhere.txt")
    (tmp_path / "new.txt.job").write_text("notes\n", encoding="utf-8")
    before = everything(tmp_path)
    for other in (out, source, link, tmp_path, tmp_path / "new.txt", tmp_path / "no" / "out.txt"):
        for resume in (False, True):
            if resume and other.name == "new.txt":
                continue
            with pytest.raises(UserError):
                translate.translate(run, file=source, out=other, resume=resume)
    assert everything(tmp_path) == before and not (tmp_path / "nowhere.txt").exists()


def test_two_jobs_do_not_share_a_file(run: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.txt"
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2, Interrupted())
        with pytest.raises(Interrupted):
            translate.translate(run, file=source, out=out, **SMALL)
    facts = json.loads(record_of(out).read_bytes())["job"]
    with answer_file.AnswerFile(out, facts, resume=True), pytest.raises(UserError, match="another process is writing"):
        translate.translate(run, file=source, out=out, resume=True, **SMALL)


@pytest.mark.parametrize("out", [".", "..", "/"])
@pytest.mark.parametrize("resume", [False, True])
def test_answers_do_not_go_into_a_folder(out: str, resume: bool) -> None:
    """Broken variant: a record named after what has no name."""
    with pytest.raises(UserError, match=r"is there already|was not begun by this command"):
        answer_file.AnswerFile(Path(out), {}, resume=resume)


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("resume", [False, True])
def test_killed_at_its_very_start_the_same_command_begins_again(
    nth: int, resume: bool, run: Path, answered: tuple[Path, Path], tmp_path: Path
) -> None:
    """Before the record, between it and the file, and after both. Broken: a file that nobody has begun, and so is never gone on
    with. An empty file without a record is somebody's all the same."""
    (source, whole), out = answered, tmp_path / "out.txt"
    facts = json.loads(record_of(whole).read_bytes())["job"]
    child = os.fork()
    if child == 0:
        calls = iter(range(nth))
        sys.addaudithook(lambda event, _: kill_self() if event == "open" and next(calls, None) is None else None)
        with answer_file.AnswerFile(out, facts, resume=resume):
            kill_self()
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    translate.translate(run, file=source, out=out, resume=resume, **SMALL)
    assert out.read_bytes() == whole.read_bytes()
    (tmp_path / "empty.txt").touch()
    with pytest.raises(UserError, match=r"there already|was not begun by this command"):
        translate.translate(run, file=source, out=tmp_path / "empty.txt", resume=resume, **SMALL)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_and_a_full_disk(run: Path, tmp_path: Path) -> None:
    """SIGKILL after the first answers; a limit on the size of a file stands for a disk that fills up: one sentence, a code
    that is not 0, and what was answered is gone on with."""
    source, whole, out = tmp_path / "source.txt", tmp_path / "whole.txt", tmp_path / "out.txt"
    source.write_text("the cat sat on\nAnna lives\n" * 200, encoding="utf-8")
    options = ["--file", str(source), "--max-new-tokens", "6", "--batch-size", "4"]
    job = begin("translate", run, *options, "--out", out, said=tmp_path)
    while not (out.exists() and out.stat().st_size):
        time.sleep(0.01)
    job.send_signal(signal.SIGKILL)
    assert job.ended().returncode == -signal.SIGKILL
    assert 0 < out.read_bytes().count(b"\n") < 400

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))

    full = subprocess.run(
        [sys.executable, "-m", "glassformer", "translate", str(run), *options, "--out", str(out), "--resume"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        preexec_fn=small_disk,
        check=False,
    )
    said = full.stderr.decode().splitlines()
    assert full.returncode == 2 and "cannot be written" in said[-1] and "--resume" in said[-1], said
    for given in (["--out", out, "--resume"], ["--out", whole]):
        assert call("translate", run, *options, *given).returncode == 0
    assert out.read_bytes() == whole.read_bytes()


def test_every_verb_answers_lines_alike(tmp_path: Path) -> None:
    """Arguments and a file, into a file, resumed where there is nothing left to do; bad lines keep their place."""
    labels = ["NAME", "OTHER"]
    kinds: dict[Any, dict[str, Any]] = {
        translate.translate: {},
        generate.generate: {"model": {"family": "gpt"}, "data": {"task": "text"}},
        generate.fill: {"model": {"family": "bert"}, "data": {"task": "text"}},
        generate.classify: {
            "labels": labels,
            "model": {"family": "bert", "head": "classify"},
            "data": {"task": "classify"},
        },
        generate.tag: {"labels": labels, "model": {"family": "bert", "head": "tag"}, "data": {"task": "tag"}},
    }
    for verb, settings in kinds.items():
        folder = tmp_path / verb.__name__
        model = make_run(folder / "run", **settings)
        text = "the ___ sat" if verb is generate.fill else "the cat"
        source = folder / "source.txt"
        source.write_bytes(f"{text}\n\n".encode() + b"\xff\n" + f"{text}\n".encode())
        for resume in (False, True):
            if not resume:
                with pytest.raises(SystemExit) as ended:
                    verb(model, file=source, out=folder / "out.txt")
                assert ended.value.code == 1
            else:
                verb(model, file=source, out=folder / "out.txt", resume=True)
        first, blank, bad, last, end = (folder / "out.txt").read_text(encoding="utf-8").split("\n")
        assert first == last != "" and blank == bad == end == ""
        verb(model, [text], out=folder / "arguments.txt")
        assert (folder / "arguments.txt").read_text(encoding="utf-8") == first + "\n"
        with pytest.raises(ConfigError, match="not both"):
            verb(model, [text], file=source)
        with pytest.raises(ConfigError, match="--resume goes on"):
            verb(model, [text], resume=True)


def test_a_pipe_is_read_once_and_a_device_not_at_all(run: Path, tmp_path: Path) -> None:
    """A pipe that somebody may never write to would be waited for without end. Caught: a command that hangs."""
    end, begin = os.pipe()
    os.write(begin, b"the cat\nAnna\n")
    os.close(begin)
    expected = load(run).translate(["the cat", "Anna"])
    translate.translate(run, file=Path(f"/dev/fd/{end}"), out=tmp_path / "out.txt")
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(b"the cat\nAnna\n"))
    translate.translate(run, file=tmp_path / "packed.txt.gz", out=tmp_path / "packed.out")
    for name in ("out.txt", "packed.out"):
        assert (tmp_path / name).read_text(encoding="utf-8").split("\n")[:-1] == [str(text) for text in expected]
    os.mkfifo(tmp_path / "pipe")
    for file, said in (
        (Path("/dev/zero"), "is a device"),
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "a named pipe"),
    ):
        with pytest.raises(UserError, match=said):
            translate.translate(run, file=file)
    with pytest.raises(UserError, match="not a regular file"):
        translate.translate(run, ["the cat"], glossary=tmp_path / "pipe")
