"""Lines in, lines out: what `translate`, `fill`, `classify` and `tag` have in common.

Texts come as arguments, as lines of stdin or as lines of a file; for each line there is an answer of a fixed number of
lines, in order. Lines are answered some at a time and written as soon as they are, so that memory stays bounded, a pipe
flows, and a person who types gets an answer to each line. A line that cannot be answered (not UTF-8, a NUL, far too long)
costs one sentence on stderr and an empty answer; the others are answered all the same, and the exit code is 1.

A file's answers can go into a file. If the job is interrupted, `--resume` goes on after the last whole group of lines that
is there; groups begin at fixed lines, so the answers are those of a job that was never interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from glassformer.errors import ConfigError, UserError
from glassformer.tasks import check_text

GROUP = 256  # lines answered together
READ = 1 << 16
LONGEST_LINE = 400_000  # bytes; no text that is short enough has more

Texts = Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts; without any, lines of stdin.")]
InputFile = Annotated[Path | None, typer.Option("--file", help="A file with a text a line.")]
OutputFile = Annotated[Path | None, typer.Option("--out", help="With --file: where the answers go, line by line.")]
Resume = Annotated[bool, typer.Option("--resume", help="With --out: go on with an interrupted job.")]
AsJson = Annotated[bool, typer.Option("--json", help="A JSON object for each text.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Step = Annotated[int | None, typer.Option(help="Use the checkpoint of this step.")]


@dataclass(frozen=True)
class Line:
    number: int  # from 1
    text: str
    problem: str | None = None

    @property
    def blank(self) -> bool:
        return self.problem is None and not self.text.strip()


def read_line(raw: bytes, number: int) -> Line:
    """One line of a file, without its end."""
    if len(raw) > LONGEST_LINE:
        return Line(number, "", f"the line has more than {LONGEST_LINE:,} bytes; break it into lines")
    if number == 1:
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        return check_line(raw.removesuffix(b"\r").decode("utf-8"), number)
    except UnicodeDecodeError as error:
        return Line(
            number, "", f"byte {error.start + 1} (0x{raw[error.start]:02x}) is not UTF-8; convert the text to UTF-8"
        )


def check_line(text: str, number: int) -> Line:

    try:
        return Line(number, check_text(text))
    except UserError as error:
        return Line(number, "", str(error))


def raw_lines(read: Callable[[int], bytes]) -> Iterator[list[bytes]]:
    """Whole lines, as many at a time as one read brings. Of a line too long to be answered only the beginning is kept."""
    start = b""
    while block := read(READ):
        first, *others = block.split(b"\n")
        start = (start + first)[: LONGEST_LINE + 1]
        if others:
            yield [start, *others[:-1]]
            start = others[-1]
    if start:
        yield [start]


def read_groups(read: Callable[[int], bytes], *, promptly: bool) -> Iterator[list[Line]]:
    """Groups of lines. Promptly: what has come is a group, so nobody waits for lines that are not there yet; a model that
    is busy finds more lines waiting the next time. Else every group but the last is full."""
    group: list[Line] = []
    number = 0
    for lines in raw_lines(read):
        for raw in lines:
            number += 1
            group.append(read_line(raw, number))
            if len(group) == GROUP:
                yield group
                group = []
        if promptly and group:
            yield group
            group = []
    if group:
        yield group


class Screen:
    """Progress through a file, on stderr: a bar on a terminal, else a line now and then, and nothing for a short job."""

    EVERY = 10.0

    def __init__(self, size: int) -> None:
        self.size, self.began = max(1, size), time.monotonic()
        self.said = self.began
        self.lines = 0
        self.bar: object = None

    def advance(self, lines: int, place: int) -> None:
        self.lines += lines
        now = time.monotonic()
        if sys.stderr.isatty():
            if now - self.began > 1:
                self.draw(place)
        elif now - self.said > self.EVERY:
            self.said = now
            print(f"{self.lines:,} lines, {100 * place // self.size}%, {self.speed()}", file=sys.stderr, flush=True)

    def speed(self) -> str:
        return f"{self.lines / (time.monotonic() - self.began):,.1f} lines/s"

    def draw(self, place: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        if self.bar is None:
            columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self.bar.add_task("", total=self.size)
            self.bar.start()
        assert isinstance(self.bar, Progress)
        self.bar.update(self.bar.task_ids[0], completed=place, description=f"{self.lines:,} lines, {self.speed()}")

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()  # type: ignore[attr-defined]


def as_line(facts: dict[str, Any]) -> str:
    return json.dumps(facts, ensure_ascii=False)


@dataclass(frozen=True)
class Replies:
    """How lines are answered. `answer` gives for each text its lines of output, `wide` of them; in JSON, the answer to a
    blank line is its source and `nothing`, and the answer to one that cannot be answered is the reason."""

    answer: Callable[[Sequence[str]], list[list[str]]]
    as_json: bool
    nothing: dict[str, Any]
    wide: int = 1

    def blank(self, text: str) -> list[str]:
        return [as_line({"source": text, **self.nothing})] if self.as_json else [text] * self.wide

    def failed(self, problem: str) -> list[str]:
        return [as_line({"error": problem})] if self.as_json else [""] * self.wide

    def to(self, lines: Sequence[Line], called: str) -> tuple[list[list[str]], int]:
        """The output for each line, and how many failed."""
        out: list[list[str]] = [[] for _ in lines]
        problems = {i: line.problem for i, line in enumerate(lines) if line.problem is not None}
        real = [i for i, line in enumerate(lines) if line.problem is None and not line.blank]
        for i, line in enumerate(lines):
            if line.blank:
                out[i] = self.blank(line.text)
        try:
            for i, output in zip(real, self.answer([lines[i].text for i in real]) if real else [], strict=True):
                out[i] = output
        except ConfigError:
            raise
        except UserError as error:
            # One of them; which one shows when each is asked alone.
            for i in real:
                try:
                    out[i] = self.answer([lines[i].text])[0]
                except UserError as one:
                    problems[i] = str(one) if len(real) > 1 else str(error)
        for i in sorted(problems):
            print(f"glassformer: {called} {lines[i].number}: {problems[i]}", file=sys.stderr, flush=True)
            out[i] = self.failed(str(problems[i]))
        return out, len(problems)


def stdout_write(text: str) -> None:
    """Straight to stdout, whatever the locale says. Whoever was reading may have had enough (`… | head`)."""
    try:
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


def one_line(text: str) -> str:
    return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")


def reply_to_groups(
    groups: Iterable[list[Line]], replies: Replies, write: Callable[[str], None], after: Callable[[int], None]
) -> int:
    failures = 0
    for group in groups:
        outputs, failed = replies.to(group, "line")
        write("".join(one_line(text) + "\n" for output in outputs for text in output))
        failures += failed
        after(len(group))
    return failures


def done_already(out: Path, wide: int) -> int:
    """Cut an interrupted job's answers back to whole groups; the number of lines that are answered."""
    ends: list[int] = [0]
    lines = 0
    with out.open("rb+") as file:
        place = 0
        while block := file.read(1 << 20):
            at = block.find(b"\n")
            while at >= 0:
                lines += 1
                if lines % (GROUP * wide) == 0:
                    ends.append(place + at + 1)
                at = block.find(b"\n", at + 1)
            place += len(block)
        file.truncate(ends[-1])
    return (len(ends) - 1) * GROUP


def reply_to_file(source: Path, out: Path | None, resume: bool, replies: Replies) -> int:
    if resume and out is None:
        raise ConfigError("--resume goes on with the answers in a file; say which by --out")
    if out is not None and out.exists() and source.exists() and out.samefile(source):
        raise ConfigError(f"--file and --out are both {source}; the answers need a file of their own")
    if out is not None and out.exists() and not resume:
        raise UserError(f"{out} is there already; go on with it by --resume, or delete it, or choose another --out")
    try:
        with source.open("rb") as file:
            skipped = done_already(out, replies.wide) // GROUP if out is not None and out.exists() else 0
            groups = read_groups(file.read, promptly=False)
            for number in range(skipped):
                if next(groups, None) is None:
                    raise UserError(
                        f"{out} has answers to {skipped * GROUP:,} lines, and {source} has only "
                        f"{number * GROUP:,}; it is the answer to another file"
                    )
            screen = Screen(os.fstat(file.fileno()).st_size)
            try:
                return reply_into(groups, out, replies, lambda lines: screen.advance(lines, file.tell()))
            finally:
                screen.close()
    except OSError as error:
        name = error.filename or out or source
        raise UserError(f"{name} cannot be read or written: {error.strerror}") from None


def reply_into(groups: Iterable[list[Line]], out: Path | None, replies: Replies, after: Callable[[int], None]) -> int:
    if out is None:
        return reply_to_groups(groups, replies, stdout_write, after)
    with out.open("ab") as written:

        def write(text: str) -> None:
            written.write(text.encode("utf-8"))
            written.flush()

        return reply_to_groups(groups, replies, write, after)


def reply_to_arguments(texts: Sequence[str], replies: Replies) -> int:
    outputs, failures = replies.to([check_line(text, number) for number, text in enumerate(texts, 1)], "text")
    stdout_write("".join(text + "\n" for output in outputs for text in output))
    return failures


def reply(texts: Sequence[str] | None, file: Path | None, out: Path | None, resume: bool, replies: Replies) -> None:
    """Answer what was asked, from wherever it comes."""
    if texts and file is not None:
        raise ConfigError("texts come as arguments or from --file, not both")
    if file is None and (out is not None or resume):
        raise ConfigError("--out and --resume go with --file; without it, answers go to stdout")
    if texts:
        failures = reply_to_arguments(texts, replies)
    elif file is not None:
        failures = reply_to_file(file, out, resume, replies)
    else:
        if sys.stdin.isatty():
            print("one text a line; end with Ctrl-D", file=sys.stderr)
        stdin: BinaryIO = sys.stdin.buffer
        groups = read_groups(lambda size: os.read(stdin.fileno(), size), promptly=True)
        failures = reply_to_groups(groups, replies, stdout_write, lambda lines: None)
    if failures:
        raise SystemExit(1)
