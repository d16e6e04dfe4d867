"""Texts in, lines out: what `translate`, `generate`, `fill`, `classify` and `tag` have in common.

Texts come as arguments, as lines of stdin or as lines of a file; for each there is an answer of a fixed number of lines, in
order. Lines are answered some at a time and written as soon as they are, so that memory stays bounded, a pipe flows, and a
person who types gets an answer to each line. A line that cannot be answered costs one sentence on stderr and an empty
answer; the others are answered all the same, and the exit code is 1.

A model that writes is given many lines at a time, through the driver of decode/, and gives each answer as soon as it and those
before it are there. Answers can go into a file. What was interrupted is gone on with by `--resume` (answer_file.py); groups
of lines begin at fixed places, so the answers are those of a job that was never interrupted, and of one whose groups are
answered by several processes (bulk.py).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from glassformer.cli.answer_file import AnswerFile
from glassformer.cli.line_input import Line, check_line, read_groups
from glassformer.errors import ConfigError, UserError
from glassformer.files.user_data import UserFile
from glassformer.language import _, localized
from glassformer.screen import Progress, say, warn

CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
BATCH = 32
"""Texts at a time for a model that reads, where nobody says otherwise."""
SHOWN = 5  # pieces that are named of those no vocabulary has
SOON = 0.2  # seconds that an answer waits for others, to be written with them

# ---- a job: how one verb answers


def as_line(facts: dict[str, Any]) -> str:
    """Facts as a line of JSON."""
    return json.dumps(facts, ensure_ascii=False)


def escaped(text: str) -> str:
    """The text in one line: line breaks and other control characters are written as Python writes them, \\n and so on."""
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


@dataclass(slots=True)  # not frozen: one is made for every line of a file
class Output:
    """The answer to one text: its lines, and how many tokens were written for it."""

    lines: list[str]
    tokens: int = 0


Replies = Iterable[tuple[Output, bool]]
"""What each line of a group gets, and whether it is an answer."""


@dataclass
class Unknown:
    """What of the texts is not in the model's vocabulary: `pieces` finds it in one. It is told once a command, of the first texts
    that have any, and stands in the JSON of each."""

    pieces: Callable[[str], list[str]]
    told: bool = False
    say: Callable[[str], None] = say

    def tell(self, texts: Iterable[str]) -> None:
        """Say it of the first few pieces, unless it was said already."""
        if self.told or not (pieces := list(dict.fromkeys(piece for text in texts for piece in self.pieces(text)))):
            return
        self.told = True
        shown = ", ".join(repr(piece) for piece in pieces[:SHOWN])
        sentence = _("not in this model's vocabulary, and read as unknown: {shown}", shown)
        if (more := len(pieces) - SHOWN) > 0:
            sentence = _("{told} and {more:,} more", sentence, more)
        self.say(sentence)

    def fact(self, text: str) -> dict[str, Any]:
        """The field of a text's JSON, where there is anything to tell."""
        return {"unknown": pieces} if (pieces := self.pieces(text)) else {}


@dataclass(frozen=True)
class TextJob:
    """How texts are answered. `answer` gives for each text its lines of output, `wide` of them; in JSON, the answer to a
    blank line is its source and `nothing`, and the answer to one that cannot be answered is the reason. `verb`, `run` (a
    fingerprint) and `options` are all that an answer depends on, besides its text."""

    verb: str
    run: str
    options: dict[str, Any]
    answer: Callable[[Sequence[str]], Iterable[Output]]
    as_json: bool
    nothing: dict[str, Any]
    wide: int = 1
    batch: int = BATCH
    group: int = 8 * BATCH  # lines that are answered together, at most
    begins: bool = False  # without a text, one begins
    escape: Callable[[str], str] = str  # of an argument's answer; lines of a file have no line breaks in them
    unknown: Unknown = field(default_factory=lambda: Unknown(lambda text: []))
    warn: Callable[[str], None] = warn

    def blank(self, text: str) -> Output:
        """The answer to a text in which there is nothing."""
        return Output([as_line({"source": text, **self.nothing})] if self.as_json else [text] * self.wide)

    def failed(self, problem: str) -> Output:
        """What stands in the place of an answer that could not be given."""
        return Output([as_line({"error": problem})] if self.as_json else [""] * self.wide)

    def answers(self, texts: Sequence[str]) -> Iterator[Output]:
        """The answers as they come; nothing is begun before the first is asked for."""
        yield from self.answer(texts) if texts else ()

    def reply(self, lines: Sequence[Line], called: str = "line") -> Iterator[tuple[Output, bool]]:
        """The output for each line, as it comes, and whether it is an answer."""
        begins = self.begins and len(lines) == 1
        texts = [line.text for line in lines if line.problem is None and (begins or not line.blank)]
        self.unknown.tell(texts)
        together = self.answers(texts)
        for line in lines:
            problem = line.problem
            if problem is None and line.blank and not begins:
                yield self.blank(line.text), True
                continue
            # Where one cannot be answered, `together` ends; then each is asked alone, and it shows which one it was.
            for answers in () if problem else (together, self.answers([line.text])):
                try:
                    output = next(answers, None)
                except ConfigError:
                    raise  # it is the command that is wrong, and no text
                except UserError as error:
                    problem = str(error)
                else:
                    if output is not None:
                        problem = None
                        yield output, True
                        break
            if problem is not None:
                self.warn(f"glassformer: {called} {line.number}: {localized(problem)}")
                yield self.failed(problem), False


# ---- where texts come from and answers go


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
        both_there = self.out is not None and self.file is not None and self.out.exists() and self.file.exists()
        if both_there and os.path.samefile(self.out, self.file):  # type: ignore[arg-type]
            raise ConfigError("--file and --out are both {source}; the answers need a file of their own", self.file)


class Workers(Protocol):
    """Processes that answer groups of lines (bulk.py)."""

    def replies(self, make_job: Callable[[], TextJob], job: TextJob, groups: Iterable[list[Line]]) -> Iterator[Replies]:
        """The answers to each group, in order, by jobs like this one."""


def run_fingerprint(run: Path, step: int | None) -> str:
    """A checksum of all that a run's answers depend on: its weights (by their checksums), tokenizers and labels."""
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


class Throughput(Progress):
    """The display of lines and tokens a second, over the bytes of a file."""

    def __init__(self, verb: str, file: UserFile) -> None:
        super().__init__(verb, file.status.st_size)
        self.file = file
        self.lines = self.tokens = 0

    def advance(self, outputs: Sequence[Output]) -> None:
        """Count these answers and show it."""
        self.lines += len(outputs)
        self.tokens += sum(output.tokens for output in outputs)
        seconds = max(1e-9, self.clock() - self.began)
        facts = f"{self.lines:,} lines  {self.lines / seconds:,.1f} lines/s"
        facts += f"  {self.tokens / seconds:,.0f} tokens/s" if self.tokens else ""
        self.update(self.file.reader.position, facts)


def write_answers(
    replies: Iterable[Replies],
    write: Callable[[str, int], None],
    throughput: Throughput | None = None,
    escape: Callable[[str], str] = escaped,
    skip: int = 0,
) -> int:
    """Writes the answers to groups of lines as they come, but for the first `skip`; how many lines could not be answered."""
    failures = 0
    for outputs in replies:
        waiting: list[Output] = []
        written = time.monotonic()

        def flush() -> None:
            nonlocal waiting, written
            if waiting:
                write("".join(escape(text) + "\n" for output in waiting for text in output.lines), len(waiting))
                if throughput is not None:
                    throughput.advance(waiting)
            waiting, written = [], time.monotonic()

        for output, is_answer in outputs:
            if skip:
                skip -= 1
                continue
            waiting.append(output)
            failures += not is_answer
            if time.monotonic() - written > SOON:
                flush()
        flush()
    return failures


def typed_groups(job: TextJob) -> Iterator[list[Line]]:
    """The lines of stdin, each as soon as it is typed; for a job that begins without a text, one that is empty where there is
    none."""
    if sys.stdin is None:
        raise UserError("there is no stdin to read texts from; give texts, or --file")
    if sys.stdin.isatty():
        say(_("one text a line; end with Ctrl-D"))
    descriptor = sys.stdin.fileno()
    groups = read_groups(lambda size: os.read(descriptor, size), job.batch, job.group, promptly=True)
    if job.begins:
        yield next(groups, [Line(1, "")])
    yield from groups


def reply_to_texts(given: Input, job: TextJob) -> int:
    """Answers to texts of the command line, or of stdin; how many could not be answered."""
    called, escape = ("text", job.escape) if given.texts else ("line", escaped)
    texts = [[check_line(text, number) for number, text in enumerate(given.texts or (), 1)]]
    replies = (job.reply(group, called) for group in (texts if given.texts else typed_groups(job)))
    if given.out is None:
        return write_answers(replies, lambda text, count: stdout_write(text), escape=escape)
    with AnswerFile(given.out, {"verb": job.verb}, resume=False) as answers:
        return write_answers(replies, answers.write)


def reply_to_file(
    given: Input, file: UserFile, job: TextJob, replies_to: Callable[[Iterable[list[Line]]], Iterable[Replies]]
) -> int:
    """Answers to the lines of a file, from where the file of answers ends; how many lines could not be answered."""
    facts: dict[str, Any] = {"verb": job.verb, "run": job.run, "options": job.options | {"lines a text": job.wide}}
    if given.resume and not file.seekable:
        raise ConfigError("--resume reads its input again from the start, and {file} is a pipe; use a file", given.file)
    if given.out is not None and file.seekable:  # a pipe cannot be read twice, so nothing is known of it
        found = file.facts()
        facts["input"] = {"sha256": found.sha256, "size": found.size}
        file.rewind()
    throughput = Throughput(job.verb, file)
    groups = read_groups(file.read, job.batch, job.group, promptly=False)
    if given.out is None:
        with throughput:
            return write_answers(replies_to(groups), lambda text, count: stdout_write(text), throughput)
    with throughput, AnswerFile(given.out, facts, resume=given.resume) as answers:
        if answers.done:
            say(_("{answers} is complete: all {lines:,} lines were answered already", answers.path, answers.lines))
            return 0
        if answers.lines:
            say(_("going on after line {lines:,}", answers.lines))
        whole, begun = divmod(answers.lines, job.group)  # a group that was begun is answered in the company it had
        try:
            replies = replies_to(itertools.islice(groups, whole, None))
            return write_answers(replies, answers.write, throughput, skip=begun)
        except OSError as error:
            raise UserError(
                "{filename} cannot be written: {reason}; {lines:,} answers are there, and --resume goes on with them",
                *(error.filename or answers.path, error.strerror, answers.lines),
            ) from None


def reply(given: Input, make_job: Callable[[], TextJob], workers: Workers | None = None) -> None:
    """Answer what was asked, from wherever it comes to wherever it goes; by `workers`, whose command goes on by itself."""
    if workers is not None:
        if given.file is None or given.out is None:
            raise ConfigError(
                "--jobs and --ray share out the lines of a file; name it by --file, and the answers' by --out"
            )
        given = replace(given, resume=True)
    given.check()
    if given.file is None:
        failures = reply_to_texts(given, make_job())
    else:
        from glassformer.decode.generate import full_collections_wait

        with UserFile(given.file) as file:
            job = make_job()
            if workers is None:
                with full_collections_wait():
                    failures = reply_to_file(given, file, job, lambda groups: map(job.reply, groups))
            else:  # its model is let go: the workers have their own
                job = replace(job, answer=lambda texts: (), unknown=Unknown(lambda text: []))
                failures = reply_to_file(given, file, job, lambda groups: workers.replies(make_job, job, groups))
    if failures:
        raise SystemExit(1)
