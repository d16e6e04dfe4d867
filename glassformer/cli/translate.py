"""`glassformer translate`: texts in, texts out, by a model that learned from pairs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli import lines, options, writing
from glassformer.cli.bulk import LocalWorkers, reply_in_bulk
from glassformer.config.fields import coerce
from glassformer.errors import ConfigError

if TYPE_CHECKING:
    from glassformer.tasks import Answer, TextConstraints


@dataclass(frozen=True)
class Shown:
    """What is shown of an answer: its text, and what the options add."""

    scores: bool
    align: bool
    words: bool  # links of words, where `align` alone gives links of tokens
    json: bool
    trace: bool

    def check(self) -> None:
        """Refuse what a line cannot hold."""
        if self.trace and not self.json:
            raise ConfigError("--trace tells more than a line can hold; add --json")

    def output(
        self, text: str, answers: list[Answer], tokens_are_words: bool, wide: int, unknown: lines.Unknown
    ) -> lines.Output:
        """The answers to one text in `wide` lines, or all of them in a line of JSON."""
        tokens = sum(len(part.hypothesis.ids) for answer in answers for part in answer.parts)
        links: list[Any] = [()] * len(answers)
        if self.words:
            from glassformer.tasks import word_links

            links = [word_links(one, tokens_are_words=tokens_are_words) for one in answers]
        elif self.align:
            links = [one.links for one in answers]
        if self.json:
            facts = [writing.answer_facts(answer, align=self.align, trace=self.trace) for answer in answers]
            for fact, found in zip(facts, links, strict=True):
                fact |= {"word_links": found} if self.words else {}
            return lines.Output([lines.as_line({"source": text, "answers": facts, **unknown.fact(text)})], tokens)
        shown = []
        for answer, found in zip(answers, links, strict=True):
            before = f"{answer.score:.4f}\t" if self.scores else ""
            after = "\t" + " ".join(f"{s}-{t}" for s, t in found) if self.align else ""
            shown.append(before + answer.text + after)
        return lines.Output(shown + [""] * (wide - len(shown)), tokens)


def make_job(
    runs: Sequence[Path],
    device: str,
    step: int | None,
    options: dict[str, Any],
    constraints: TextConstraints,
    shown: Shown,
    *,
    names_run: bool,
) -> lines.TextJob:
    """Load the run, or several as an ensemble, and say how it answers; `names_run`: the answers are to be known as theirs."""
    from glassformer import tasks
    from glassformer.api import load

    model = load(runs[0] if len(runs) == 1 else runs, device=device, step=step)
    model.require("translate")
    config = tasks.decode_settings(model, **options)
    tasks.check_constraints(model, constraints, config)
    wide = 1 if shown.json else writing.answers_a_text(config)
    unknown = lines.Unknown(lambda text: tasks.unknown(model, text))
    tokens_are_words = model.tokenizers.target.tokens_are_words

    def answer(texts: Sequence[str]) -> Iterator[lines.Output]:
        found = tasks.translate_each(
            model, texts, config=config, constraints=constraints, align=shown.align, trace=shown.trace
        )
        return (
            shown.output(text, one, tokens_are_words, wide, unknown) for text, one in zip(texts, found, strict=True)
        )

    return lines.TextJob(
        "translate",
        "+".join(lines.run_fingerprint(run, step) for run in runs) if names_run else "",
        asdict(config) | asdict(constraints) | asdict(shown),
        answer,
        shown.json,
        {"answers": []},
        wide,
        batch=config.batch_size or lines.BATCH,
        group=writing.lines_together(config, model.device),
        unknown=unknown,
    )


SWITCHES = ("align_words", "document", "keep_numbers")
"""What `--set` takes beside the settings of decoding."""
PLAIN = Shown(scores=False, align=False, words=False, json=False, trace=False)


def write_document(
    runs: Sequence[Path],
    file: Path,
    out: Path | None,
    device: str,
    step: int | None,
    options: dict[str, Any],
    constraints: TextConstraints,
    *,
    numbers: bool,
    in_lines: bool,
) -> None:
    """A document, whole, into a new file or to stdout; `in_lines`: its sentences, each in the context of those before it."""
    from glassformer import tasks
    from glassformer.api import load
    from glassformer.cli.evaluate import new_file
    from glassformer.data.files import ReadContext, numbered_lines
    from glassformer.formats.documents import translate_document

    write = None if out is None else new_file(out)
    model = load(runs[0] if len(runs) == 1 else runs, device=device, step=step)
    model.require("translate")
    config = tasks.decode_settings(model, **options)
    tasks.check_constraints(model, constraints, config)
    if in_lines:
        read = [line for _number, line in numbered_lines(file, ReadContext())]
        said = tasks.translate_in_context(model, read, config=config, constraints=constraints)
        done = "".join(" ".join(line.splitlines()) + "\n" for line in said).encode("utf-8", "replace")
    else:
        done = translate_document(model, file, numbers=numbers, config=config, constraints=constraints)
    if write is not None:
        write(done)
    else:
        sys.stdout.buffer.write(done)


@options.documented
@options.takes_decoding
def translate(
    run: options.Run,
    texts: options.Texts = None,
    file: options.InputFile = None,
    out: options.OutputFile = None,
    resume: options.Resume = False,
    jobs: int | None = None,
    ray: bool = False,
    scores: bool = False,
    align: bool = False,
    as_json: options.AsJson = False,
    trace: bool = False,
    term: options.Terms = None,
    glossary: Path | None = None,
    prefix: options.Prefix = "",
    ban: options.Banned = None,
    stop: options.Stops = None,
    markup: bool = False,
    ensemble: options.Ensemble = None,
    settings: options.Settings = None,
    device: options.Device = "auto",
    step: options.Step = None,
    **decoding: Any,
) -> None:
    """Translate texts, or each line of stdin or of a file.

    One line for each line, in order; with --n-best N (or --num-samples N) N lines for each. Blank lines stay blank. Exit
    codes: 0 all answered; 1 some lines could not be answered (stderr says which, and their answer is an empty line); 2
    something to put right.

    --set also takes document=true (lines of the --file in their context; a blank line ends a document), keep_numbers=true (with
    --markup: numbers stay as they are) and align_words=true (--align by words, in Pharaoh's form: blanks part words).
    """
    options = writing.decode_options(decoding, settings)
    align_words, document, keep_numbers = (coerce(options.pop(name, False), bool, name) for name in SWITCHES)
    given = lines.Input(texts, file, out, resume)
    given.check()
    shown = Shown(scores, align or align_words, align_words, as_json, trace)
    shown.check()
    constraints = writing.make_constraints(term, glossary, prefix, ban, stop)
    lines.check_counts(jobs=jobs)
    runs = [run, *(ensemble or [])]
    if document or markup or keep_numbers:
        if document and markup:
            raise ConfigError(
                "document=true reads plain sentences and --markup a document of a format; give one of them"
            )
        if keep_numbers and not markup:
            raise ConfigError("keep_numbers=true goes with --markup")
        if file is None or texts or resume or jobs is not None or ray or shown != PLAIN:
            name = "document=true" if document else "--markup"
            raise ConfigError("{option} takes a document by --file alone and writes it to --out or stdout", option=name)
        write_document(runs, file, out, device, step, options, constraints, numbers=keep_numbers, in_lines=document)
        return
    made = partial(
        make_job,
        runs if jobs is None and not ray else [own.absolute() for own in runs],  # a worker may be in another folder
        *(device, step, options, constraints, shown),
        names_run=out is not None,
    )
    if ray:
        from glassformer.cli.ray_workers import RayWorkers

        reply_in_bulk(given, made, RayWorkers(jobs, device))
    elif jobs is not None:
        reply_in_bulk(given, made, LocalWorkers(jobs, device))
    else:
        lines.reply(given, made())
