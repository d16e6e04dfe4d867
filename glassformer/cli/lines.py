"""Texts in, lines out: what `translate`, `generate`, `fill`, `classify` and `tag` have in common.

Texts come as arguments, as lines of stdin or as lines of a file; for each there is an answer of a fixed number of lines, in
order. Lines are answered some at a time and written as soon as they are, so that memory stays bounded, a pipe flows, and a
person who types gets an answer to each line. A line that cannot be answered costs one sentence on stderr and an empty
answer; the others are answered all the same, and the exit code is 1.

A model that writes is given many lines at a time, through the driver of decode/, and gives each answer as soon as it and those
before it are found. Answers can go into a file. What was interrupted is gone on with by `--resume` (answer_file.py); groups
of lines begin at fixed places, so the answers are those of a job that was never interrupted.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from glassformer.cli.answer_file import AnswerFile, refuse_same_file, sha256_of_input
from glassformer.cli.job import BATCH, Output, TextJob, Unknown, as_line, escaped
from glassformer.cli.line_input import Line, check_line, open_lines, read_groups
from glassformer.errors import ConfigError, UserError
from glassformer.language import _
from glassformer.screen import Progress, say

G = TypeVar("G", bound=Sized)  # a group of lines, or what stands for one
Read = tuple[dict[str, Any], str]  # what a model that reads found in a text: as JSON has it, and as a line
SOON = 0.2  # seconds that an answer waits for others, to be written with them


@dataclass(frozen=True)
class Input:
    """Where the texts come from and where the answers go, as a command line says it."""

    texts: Sequence[str] | None = None
    file: Path | None = None
    out: Path | None = None
    resume: bool = False

    def check(self) -> None:
        """Refuse at once what contradicts itself."""
        if self.texts and self.file is not None:
            raise ConfigError("texts come as arguments or from --file, not both")
        if self.resume and (self.file is None or self.out is None):
            raise ConfigError("--resume goes on with the answers to a file; say which by --file and --out")
        if self.out is not None and self.file is not None:
            refuse_same_file(self.file, self.out)


def run_fingerprint(run: Path, step: int | None) -> str:
    """Of all that a run's answers depend on: its weights (by their checksums), tokenizers and labels."""
    from glassformer.runs.folder import RunFolder

    folder = RunFolder.open(run)
    digest = hashlib.sha256()
    for path in [folder.weights_folder(step) / "manifest.json", *sorted(folder.path.glob("tokenizer*.json"))]:
        digest.update(hashlib.sha256(path.read_bytes()).digest() if path.exists() else b"-")
    labels = folder.path / "labels.json"
    digest.update(labels.read_bytes() if labels.exists() else b"")
    return digest.hexdigest()


def check_counts(**counts: int | None) -> None:
    """Options that count something count at least one."""
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ConfigError("--{name} must be at least 1, not {value}", name.replace("_", "-"), value)


def stdout_write(text: str) -> None:
    """Straight to stdout, whatever the locale says. Whoever was reading may have had enough (`… | head`)."""
    if sys.stdout is None:
        raise UserError("there is no stdout to write the answers to; use --out")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


class Speed:
    """Lines and tokens a second, on the display."""

    def __init__(self, verb: str, size: int) -> None:
        self.display = Progress(verb, size)
        self.began = time.monotonic()
        self.lines = self.tokens = 0

    def advance(self, outputs: Sequence[Output], place: int) -> None:
        """So many answers more; `place` is how far the input has been read, in bytes."""
        self.lines += len(outputs)
        self.tokens += sum(output.tokens for output in outputs)
        spent = max(1e-9, time.monotonic() - self.began)
        facts = f"{self.lines:,} lines  {self.lines / spent:,.1f} lines/s"
        facts += f"  {self.tokens / spent:,.0f} tokens/s" if self.tokens else ""
        self.display.update(place, facts)


def reply_to_groups(
    groups: Iterable[G],
    reply: Callable[[G], Iterable[tuple[Output, bool]]],
    write: Callable[[str, int], None],
    after: Callable[[list[Output]], None] = lambda outputs: None,
    skip: int = 0,
) -> int:
    """Answers lines and writes the answers as they come; how many lines could not be answered. The first `skip` lines have
    been answered already: whole groups of them are passed over, and a group that was begun is answered from its first line,
    in the company it had, without being written twice."""
    failures = 0
    for group in groups:
        if skip >= len(group):
            skip -= len(group)
            continue
        replies = reply(group)
        waiting: list[Output] = []
        written = time.monotonic()

        def flush() -> None:
            nonlocal waiting, written
            if waiting:
                write("".join(escaped(text) + "\n" for one in waiting for text in one.lines), len(waiting))
                after(waiting)
            waiting, written = [], time.monotonic()

        for output, answered in replies:
            if skip:
                skip -= 1
                continue
            waiting.append(output)
            failures += not answered
            if time.monotonic() - written > SOON:
                flush()
        flush()
    return failures


def job_facts(job: TextJob, file: Any) -> dict[str, Any]:
    """What an answer file is the answer to. A pipe cannot be read twice, so nothing is known of it."""
    facts = {"verb": job.verb, "run": job.run, "options": job.options | {"lines a text": job.wide}}
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        facts["input"] = {"sha256": sha256_of_input(file), "size": os.fstat(file.fileno()).st_size}
    return facts


def reply_to_file(given: Input, job: TextJob) -> int:
    """A file's lines, to stdout or into a file."""
    assert given.file is not None
    with open_lines(given.file) as file:
        regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        if given.resume and not regular:
            raise ConfigError(
                "--resume reads its input again from the start, and {file} is a pipe; use a file", given.file
            )
        speed = Speed(job.verb, os.fstat(file.fileno()).st_size)
        place = 0

        def read(size: int) -> bytes:
            nonlocal place
            block = file.read(size)
            place += len(block)
            return block

        groups = read_groups(read, job.batch, job.group, promptly=False)
        with speed.display:
            if given.out is None:
                return reply_to_groups(
                    groups, job.reply, lambda text, _: stdout_write(text), lambda o: speed.advance(o, place)
                )
            answers = AnswerFile(given.out, job_facts(job, file), resume=given.resume)
            return reply_into(answers, groups, job.reply, speed, lambda: place)


def reply_into(
    answers: AnswerFile,
    groups: Iterable[G],
    reply: Callable[[G], Iterable[tuple[Output, bool]]],
    speed: Speed | None = None,
    place: Callable[[], int] = lambda: 0,
) -> int:
    """Answers into a file, after those that are there already."""
    with answers:
        if answers.done:
            say(_("{answers} is complete: all {lines:,} lines were answered already", answers.path, answers.lines))
            return 0
        if answers.lines:
            say(_("going on after line {lines:,}", answers.lines))
        try:
            return reply_to_groups(
                groups,
                reply,
                answers.write,
                lambda outputs: None if speed is None else speed.advance(outputs, place()),
                skip=answers.lines,
            )
        except OSError as error:
            raise UserError(
                "{filename} cannot be written: {reason}; {lines:,} answers are there, and --resume goes on with them",
                error.filename or answers.path,
                error.strerror,
                answers.lines,
            ) from None


def reply_by_reading(
    verb: Literal["classify", "fill", "tag"],
    run: Path,
    given: Input,
    answers: Callable[[Any, Sequence[str]], Iterable[Read]],
    options: dict[str, Any],
    nothing: dict[str, Any],
    batch_size: int | None,
    device: str,
    step: int | None,
) -> None:
    """The whole of a verb whose model reads and writes no text: `answers` gives, for a model and texts, each text's `Read`."""
    given.check()
    check_counts(top=options.get("top"), batch_size=batch_size)

    from glassformer import tasks
    from glassformer.api import load

    model = load(run, device=device, step=step)
    model.require(verb)
    unknown = Unknown(lambda text: tasks.unknown(model, text))

    def answer(texts: Sequence[str]) -> Iterator[Output]:
        for text, (facts, line) in zip(texts, answers(model, texts), strict=True):
            yield Output([as_line({"source": text, **facts, **unknown.fact(text)}) if options["json"] else line])

    batch, is_of = batch_size or BATCH, run_fingerprint(run, step) if given.out is not None else ""
    how: dict[str, Any] = {"batch": batch, "group": 8 * batch, "escape": escaped, "unknown": unknown}
    reply(given, TextJob(verb, is_of, options, answer, options["json"], nothing, **how))


def or_a_beginning(groups: Iterator[list[Line]]) -> Iterator[list[Line]]:
    """The groups, or a single empty text where there is not one line."""
    first = next(groups, None)
    if first is None:
        yield [Line(1, "")]
    else:
        yield first
        yield from groups


def reply(given: Input, job: TextJob) -> None:
    """Answer what was asked, from wherever it comes."""
    given.check()
    if given.file is not None:
        from glassformer.decode.generate import full_collections_wait

        with full_collections_wait():
            failures = reply_to_file(given, job)
    elif given.texts:
        group = [check_line(text, number) for number, text in enumerate(given.texts, 1)]
        if given.out is None:
            found = list(job.reply(group, "text"))
            stdout_write("".join(job.escape(text) + "\n" for output, _answered in found for text in output.lines))
            failures = sum(not answered for _output, answered in found)
        else:
            failures = reply_into(AnswerFile(given.out, {"verb": job.verb}, resume=False), [group], job.reply)
    else:
        if sys.stdin is None:
            raise UserError("there is no stdin to read texts from; give texts, or --file")
        if sys.stdin.isatty():
            say(_("one text a line; end with Ctrl-D"))
        descriptor = sys.stdin.fileno()
        groups = read_groups(lambda size: os.read(descriptor, size), job.batch, job.group, promptly=True)
        if job.begins:
            groups = or_a_beginning(groups)
        if given.out is None:
            failures = reply_to_groups(groups, job.reply, lambda text, _: stdout_write(text))
        else:
            failures = reply_into(AnswerFile(given.out, {"verb": job.verb}, resume=False), groups, job.reply)
    if failures:
        raise SystemExit(1)


__all__ = ["BATCH", "Input", "Output", "TextJob", "Unknown", "as_line", "escaped", "reply", "stdout_write"]
