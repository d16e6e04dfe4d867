"""`glassformer translate`: texts in, texts out, by a model that learned from pairs; and what it shares with `generate`: how the
options say what to write, and an answer as JSON. What is not said is the recipe's."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from glassformer.cli import lines
from glassformer.cli.bulk import make_workers
from glassformer.config import DecodeConfig
from glassformer.config.fields import coerce
from glassformer.errors import ConfigError, UserError
from glassformer.files.structured import read_regular

if TYPE_CHECKING:
    from glassformer.tasks import Answer, TextConstraints, TextModel

WritingVerb = Literal["translate", "generate"]
BATCHES_TOGETHER = 8  # that the driver is given at a time
SWITCHES = ("align_words", "document", "keep_numbers")
"""What `--set` of `translate` takes beside the settings of decoding."""

# ---- how a model is to write


def decode_options(decoding: dict[str, Any], settings: list[str] | None) -> dict[str, Any]:
    """What a verb's options say of decoding: those that were given, and what --set adds."""
    options = {name: value for name, value in decoding.items() if value is not None}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        name = name.strip().removeprefix("decode.").replace("-", "_")
        if not equals or not name:
            raise ConfigError("--set takes NAME=VALUE, such as alpha=1, not {setting!r}", setting)
        if name in options:
            raise ConfigError("{name} is set twice", name)
        options[name] = value.strip()
    return options


def read_glossary(path: Path) -> dict[str, str]:
    """A file of `word TAB term` lines."""
    glossary: dict[str, str] = {}
    try:
        rows = read_regular(path).decode("utf-8-sig").splitlines()
    except OSError as error:
        raise UserError("the glossary {path} cannot be read: {reason}", path, error.strerror) from None
    except UnicodeDecodeError:
        raise UserError("the glossary {path} is not UTF-8 text", path) from None
    for number, row in enumerate(rows, 1):
        word, _tab, term = (side.strip() for side in row.partition("\t"))
        if row.strip() and not (word and term):
            raise UserError("line {number} of the glossary {path} is not a word, a tab and a term", number, path)
        if word:
            glossary[word] = term
    return glossary


def make_constraints(
    terms: list[str] | None, glossary: Path | None, prefix: str, banned: list[str] | None, stops: list[str] | None
) -> TextConstraints:
    """What the options say of what an answer must and must not contain."""
    from glassformer.tasks import TextConstraints

    everywhere = tuple(term for term in terms or [] if "=" not in term)
    pairs = dict(term.split("=", 1) for term in terms or [] if "=" in term)
    known = read_glossary(glossary) if glossary is not None else {}
    return TextConstraints(everywhere, known | pairs, prefix, tuple(banned or ()), tuple(stops or ()))


def answers_a_text(config: DecodeConfig) -> int:
    """How many answers each text gets."""
    return config.num_samples if config.temperature > 0 else config.n_best


def open_writer(
    verb: WritingVerb,
    runs: Sequence[Path],
    device: str,
    step: int | None,
    options: dict[str, Any],
    constraints: TextConstraints,
) -> tuple[TextModel, DecodeConfig]:
    """A run, or several as an ensemble, and how it decodes; an error for what it cannot do, or not with these constraints."""
    from glassformer import tasks
    from glassformer.api import load

    model = load(runs[0] if len(runs) == 1 else runs, device=device, step=step)
    model.require(verb)
    if verb == "generate" and constraints.terms and not {"temperature", "beam"} & set(options):
        options = options | {"beam": model.recipe.decode.beam or 4}  # terms are met by a search
    config = tasks.decode_settings(model, **options)
    tasks.check_constraints(model, constraints, config)
    return model, config


def answer_facts(answer: Answer, *, align: bool = False, trace: bool = False) -> dict[str, Any]:
    """Everything about one answer. A text that was too long to be read at once has several parts."""
    parts = []
    for part in answer.parts:
        hypothesis = part.hypothesis
        facts: dict[str, Any] = {"source_tokens": part.source_tokens, "tokens": part.tokens, "ids": hypothesis.ids}
        facts["token_logprobs"] = hypothesis.token_logprobs
        if align:
            facts |= {"alignment": hypothesis.alignment, "links": part.links}
        if trace and hypothesis.trace is not None:
            facts["trace"] = [[asdict(candidate) for candidate in step] for step in hypothesis.trace.steps]
        parts.append(facts)
    whole = {name: getattr(answer, name) for name in ("text", "score", "logprob", "ended")}
    return whole | {"parts": parts}


@dataclass(frozen=True)
class OutputFormat:
    """What is shown of an answer: its text, and what the options add."""

    scores: bool = False
    align: bool = False
    words: bool = False  # links of words, where `align` alone gives links of tokens
    json: bool = False
    trace: bool = False
    prompt: bool = False  # before the answer its text, which it continues

    def output(
        self, verb: WritingVerb, text: str, answers: list[Answer], model: TextModel, wide: int, unknown: lines.Unknown
    ) -> lines.Output:
        """The answers to one text in `wide` lines, or all of them in a line of JSON."""
        tokens = sum(len(part.hypothesis.ids) for answer in answers for part in answer.parts)
        links: list[Any] = [answer.links if self.align else () for answer in answers]
        if self.words:
            from glassformer.tasks import word_links

            are_words = model.tokenizers.target.tokens_are_words
            links = [word_links(answer, tokens_are_words=are_words) for answer in answers]
        if self.json:
            facts = [answer_facts(answer, align=self.align, trace=self.trace) for answer in answers]
            for fact, pairs in zip(facts, links, strict=True):
                fact |= {"word_links": pairs} if self.words else {}
            named = {"prompt" if verb == "generate" else "source": text}
            return lines.Output([lines.as_line({**named, "answers": facts, **unknown.fact(text)})], tokens)
        shown = []
        for answer, pairs in zip(answers, links, strict=True):
            before = f"{answer.score:.4f}\t" if self.scores else text if self.shows_prompt(model) else ""
            after = "\t" + " ".join(f"{s}-{t}" for s, t in pairs) if self.align else ""
            shown.append(before + answer.text + after)
        return lines.Output(shown + [""] * (wide - len(shown)), tokens)

    def shows_prompt(self, model: TextModel) -> bool:
        """Whether a model's text stands before its answer: what answers pairs does not go on with it."""
        return self.prompt and model.kind != "gpt on pairs"


def make_job(
    runs: Sequence[Path],
    device: str,
    step: int | None,
    options: dict[str, Any],
    constraints: TextConstraints,
    shown: OutputFormat,
    *,
    names_run: bool,
    verb: WritingVerb = "translate",
) -> lines.TextJob:
    """How a run, or several as an ensemble, answers texts; `names_run`: the answers are to be known as theirs. The driver is
    given several of its batches at a time, so that it can sort by length and whoever is done makes room for another; and no more,
    since a job that is resumed begins with such a group."""
    from glassformer import tasks
    from glassformer.machine import rows_at_once

    model, config = open_writer(verb, runs, device, step, options, constraints)
    unknown = lines.Unknown(lambda text: tasks.unknown(model, text))
    wide = answers_a_text(config)

    def answer(texts: Sequence[str]) -> Iterator[lines.Output]:
        how: dict[str, Any] = {"config": config, "constraints": constraints}
        if verb == "translate":
            answered = tasks.translate_each(model, texts, align=shown.align, trace=shown.trace, **how)
        else:
            answered = tasks.generate_each(model, texts, **how)
        for text, answers in zip(texts, answered, strict=True):
            yield shown.output(verb, text, answers, model, wide, unknown)

    batch = config.batch_size or lines.BATCH
    group = BATCHES_TOGETHER * (config.batch_size or max(1, rows_at_once(model.device) // config.beams))
    return lines.TextJob(
        verb,
        "+".join(lines.run_fingerprint(run, step) for run in runs) if names_run else "",
        asdict(config) | asdict(constraints) | asdict(shown),
        answer,
        shown.json,
        {"answers": []},
        wide=1 if shown.json else wide,
        batch=batch,
        group=max(batch, group),
        begins=verb == "generate",
        unknown=unknown,
    )


# ---- translations


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
    from glassformer.cli.scores import new_file
    from glassformer.data.files import ReadContext, numbered_lines
    from glassformer.formats.documents.reader import translate_document

    write = sys.stdout.buffer.write if out is None else new_file(out)
    model, config = open_writer("translate", runs, device, step, options, constraints)
    if in_lines:
        sentences = [line for _number, line in numbered_lines(file, ReadContext())]
        answers = tasks.translate_in_context(model, sentences, config=config, constraints=constraints)
        write("".join(" ".join(line.splitlines()) + "\n" for line in answers).encode("utf-8", "replace"))
    else:
        write(translate_document(model, file, numbers=numbers, config=config, constraints=constraints))


def check_document(document: bool, markup: bool, keep_numbers: bool, other: bool) -> None:
    """Refuse what a document cannot be asked with."""
    if document and markup:
        raise ConfigError("document=true reads plain sentences and --markup a document of a format; give one of them")
    if keep_numbers and not markup:
        raise ConfigError("keep_numbers=true goes with --markup")
    if other:
        name = "document=true" if document else "--markup"
        raise ConfigError("{option} takes a document by --file alone and writes it to --out or stdout", option=name)


def translate(
    run: Path,
    texts: list[str] | None = None,
    *,
    file: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    ray: bool = False,
    scores: bool = False,
    align: bool = False,
    as_json: bool = False,
    trace: bool = False,
    term: list[str] | None = None,
    glossary: Path | None = None,
    prefix: str = "",
    ban: list[str] | None = None,
    stop: list[str] | None = None,
    markup: bool = False,
    ensemble: list[Path] | None = None,
    settings: list[str] | None = None,
    device: str = "auto",
    step: int | None = None,
    **decoding: Any,
) -> None:
    """Translate texts, or each line of stdin or of a file.

    One line for each line, in order; with --n-best N (or --set num_samples=N) N lines for each. Blank lines stay blank. Exit
    codes: 0 all answered; 1 some lines could not be answered (stderr says which, and their answer is an empty line); 2
    something to put right.

    --set takes every setting of decoding (glassformer info --settings decode), and document=true (lines of the --file in their
    context; a blank line ends a document), keep_numbers=true (with --markup: numbers stay as they are) and align_words=true
    (--align by words, in Pharaoh's form: blanks part words).

    Example: translate runs/dates "3 mai 1979" --n-best 3

    jobs: Worker processes (needs --file and --out); the same command goes on after a kill.
    ray: As --jobs, by Ray: an actor for each GPU or core of a cluster.
    scores: The score before each answer, and a tab.
    align: After each answer a tab and links of tokens, source-answer, counted from 0.
    as_json (--json): A JSON object for each text.
    trace: With --json: every step of the beam.
    glossary: A file of WORD<tab>TERM lines, as for --term.
    markup: The --file is a document (.html .md .srt .vtt .po .xlf .docx): its markup is carried over.
    """
    options = decode_options(decoding, settings)
    align_words, document, keep_numbers = (coerce(options.pop(name, False), bool, name) for name in SWITCHES)
    given = lines.Input(texts, file, out, resume)
    given.check()
    shown = OutputFormat(scores, align or align_words, align_words, as_json, trace)
    if trace and not as_json:
        raise ConfigError("--trace tells more than a line can hold; add --json")
    constraints = make_constraints(term, glossary, prefix, ban, stop)
    workers, runs = make_workers(jobs, device, ray=ray), [run, *(ensemble or [])]
    if document or markup or keep_numbers:
        other = file is None or bool(texts) or resume or workers is not None or shown != OutputFormat()
        check_document(document, markup, keep_numbers, other)
        assert file is not None
        how: dict[str, Any] = {"numbers": keep_numbers, "in_lines": document}
        write_document(runs, file, out, device, step, options, constraints, **how)
        return
    runs = [path.absolute() for path in runs] if workers is not None else runs  # a worker may be in another folder
    made = partial(make_job, runs, device, step, options, constraints, shown, names_run=out is not None)
    lines.reply(given, made, workers)
