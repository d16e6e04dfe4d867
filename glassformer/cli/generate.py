"""`glassformer generate`, text that goes on where a prompt ends, by a GPT; and `fill`, `classify` and `tag`: what a BERT reads in
texts, and writes none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from glassformer.cli import lines
from glassformer.cli.translate import OutputFormat, decode_options, make_constraints, make_job, open_writer
from glassformer.errors import ConfigError

if TYPE_CHECKING:
    from glassformer.tasks import TextConstraints

BETWEEN = "-" * 40
Reading = tuple[dict[str, Any], str]
"""What a model that reads says of a text: as JSON has it, and as a line."""


def check_stream(one_prompt: bool, as_json: bool, has_terms: bool) -> None:
    """Refuse what cannot be shown as it is written."""
    if as_json:
        raise ConfigError("--stream shows text as it comes and --json whole answers; choose one of them")
    if has_terms:
        raise ConfigError("--term is met by a search, which changes its mind, and --stream cannot; choose one of them")
    if not one_prompt:
        raise ConfigError("--stream shows one text as it is written; give one prompt, and no --file or --out")


def show_stream(
    run: Path,
    prompt: str,
    device: str,
    step: int | None,
    options: dict[str, Any],
    constraints: TextConstraints,
    shown: OutputFormat,
) -> None:
    """The text as it comes. What is wrong is said without a beginning of an answer, so the first piece is waited for."""
    from glassformer import tasks

    model, config = open_writer("generate", [run], device, step, options, constraints)
    lines.Unknown(lambda text: tasks.unknown(model, text)).tell([prompt])
    pieces = tasks.stream_generated(model, prompt, config=config, constraints=constraints)
    first = next(pieces, "")
    lines.stdout_write((prompt if shown.shows_prompt(model) else "") + first)
    for piece in pieces:
        lines.stdout_write(piece)
    lines.stdout_write("\n")


def generate(
    run: Path,
    texts: list[str] | None = None,
    *,
    prompt: str | None = None,
    file: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
    stream: bool = False,
    only_new: bool = False,
    as_json: bool = False,
    term: list[str] | None = None,
    prefix: str = "",
    ban: list[str] | None = None,
    stop: list[str] | None = None,
    settings: list[str] | None = None,
    device: str = "auto",
    step: int | None = None,
    **decoding: Any,
) -> None:
    """Continue prompts, or each line of stdin or of a file. Tokens are drawn, unless --temperature 0 or --beam asks for a
    search; the same seed draws the same text.

    Prompts of the command line are answered with their text as it is; for lines there is a line each, in order (with
    --num-samples N or --n-best N there are N), in which a line break is written as \\n.

    Example: generate runs/stdlib-gpt "def read(" --temperature 0.8

    texts (PROMPT): Prompts; without any, lines of stdin, or else a document begins.
    prompt: A prompt, as if it stood behind the run.
    stream: Show the text as it is written.
    only_new: Leave the prompt out of what is shown.
    as_json (--json): A JSON object for each text.
    """
    options = decode_options(decoding, settings)
    prompts = [*([] if prompt is None else [prompt]), *(texts or [])]
    given = lines.Input(prompts, file, out, resume)
    given.check()
    if stream:
        check_stream(file is None and out is None and len(prompts) <= 1, as_json, bool(term))
    constraints = make_constraints(term, None, prefix, ban, stop)
    if constraints.glossary:
        raise ConfigError("--term WORD=TERM is for translations; a GPT is given the terms alone")

    from glassformer.tasks import check_text

    for text in prompts:
        check_text(text)
    shown = OutputFormat(json=as_json, prompt=not only_new)
    made = partial(
        make_job, [run], device, step, options, constraints, shown, names_run=out is not None, verb="generate"
    )
    if stream:
        show_stream(run, prompts[0] if prompts else "", device, step, options, constraints, shown)
    elif file is None and out is None and (prompts or sys.stdin is None or sys.stdin.isatty()):
        job, prompts = made(), prompts or [""]
        job.unknown.tell(prompts)
        between = "\n" if as_json else f"\n{BETWEEN}\n"
        lines.stdout_write(between.join(text for output in job.answer(prompts) for text in output.lines) + "\n")
    else:
        lines.reply(given, made)


# ---- models that read


def reply_by_reading(
    verb: Literal["fill", "classify", "tag"],
    run: Path,
    given: lines.Input,
    answers: Callable[[Any, Sequence[str]], Iterable[Reading]],
    nothing: dict[str, Any],
    *,
    device: str,
    step: int | None,
    batch_size: int | None = None,
    **options: Any,
) -> None:
    """The whole of a verb whose model reads and writes no text: `answers` gives, for a model and texts, each text's `Reading`."""
    given.check()
    lines.check_counts(top=options.get("top"), batch_size=batch_size)

    from glassformer import tasks
    from glassformer.api import load

    model = load(run, device=device, step=step)
    model.require(verb)
    as_json, unknown = options["json"], lines.Unknown(lambda text: tasks.unknown(model, text))

    def answer(texts: Sequence[str]) -> Iterator[lines.Output]:
        for text, (facts, line) in zip(texts, answers(model, texts), strict=True):
            shown = lines.as_line({"source": text, **facts, **unknown.fact(text)}) if as_json else line
            yield lines.Output([shown])

    batch = batch_size or lines.BATCH
    fingerprint = lines.run_fingerprint(run, step) if given.out is not None else ""
    how: dict[str, Any] = {"batch": batch, "group": 8 * batch, "escape": lines.escaped, "unknown": unknown}
    job = lines.TextJob(verb, fingerprint, options, answer, as_json, nothing, **how)
    lines.reply(given, lambda: job)


def fill(
    run: Path,
    texts: list[str] | None = None,
    *,
    file: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
    top: int = 1,
    as_json: bool = False,
    batch_size: int | None = None,
    device: str = "auto",
    step: int | None = None,
) -> None:
    """Fill in texts, or each line of stdin or of a file: \\[MASK] or ___ stands for a word.

    A line for each line: the text with the likeliest words; with --top above 1, then a tab and the likeliest words and
    their probabilities for each mask. A line break that was found behind a mask is written as \\n.

    Example: fill runs/stdlib-bert "import ___" --top 3

    top: The number of words for each mask, the likeliest first.
    as_json (--json): A JSON object for each text.
    """

    def answers(model: Any, texts: Sequence[str]) -> Iterator[Reading]:
        from glassformer import tasks

        for filled in tasks.fill(model, texts, top=top):
            masks = [", ".join(f"{w.label.strip(' ')} {w.probability:.3f}" for w in mask) for mask in filled.masks]
            yield asdict(filled), "\t".join([filled.text, *(masks if top > 1 else [])])

    given, how = lines.Input(texts, file, out, resume), {"device": device, "step": step, "batch_size": batch_size}
    reply_by_reading("fill", run, given, answers, {"masks": []}, top=top, json=as_json, **how)  # type: ignore[arg-type]


def classify(
    run: Path,
    texts: list[str] | None = None,
    *,
    file: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
    top: int = 1,
    as_json: bool = False,
    batch_size: int | None = None,
    device: str = "auto",
    step: int | None = None,
) -> None:
    """Classify texts, or each line of stdin or of a file: a label, a tab and its probability for each.

    Example: classify runs/languages "Spanien und Dänemark"

    top: The number of labels, the likeliest first.
    as_json (--json): A JSON object for each text.
    """

    def answers(model: Any, texts: Sequence[str]) -> Iterator[Reading]:
        from glassformer import tasks

        for labels in tasks.classify(model, texts):
            best = labels[:top]
            line = "\t".join(f"{label.label}\t{label.probability:.4f}" for label in best)
            yield {"labels": [asdict(label) for label in best]}, line

    given, how = lines.Input(texts, file, out, resume), {"device": device, "step": step, "batch_size": batch_size}
    reply_by_reading("classify", run, given, answers, {"labels": []}, top=top, json=as_json, **how)  # type: ignore[arg-type]


def tag(
    run: Path,
    texts: list[str] | None = None,
    *,
    file: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
    as_json: bool = False,
    batch_size: int | None = None,
    device: str = "auto",
    step: int | None = None,
) -> None:
    """Tag the words of texts, or of each line of stdin or of a file: word/LABEL word/LABEL for each.

    Words are cut at spaces; for a run on the built-in date-parts, as its training lines were.

    Example: tag runs/date-parts "3 mai 1979"

    as_json (--json): A JSON object for each text.
    """

    def answers(model: Any, texts: Sequence[str]) -> Iterator[Reading]:
        from glassformer import tasks

        for words in tasks.tag(model, list(texts)):
            yield {"words": [asdict(word) for word in words]}, " ".join(f"{w.word}/{w.label}" for w in words)

    given, how = lines.Input(texts, file, out, resume), {"device": device, "step": step, "batch_size": batch_size}
    reply_by_reading("tag", run, given, answers, {"words": []}, json=as_json, **how)  # type: ignore[arg-type]
