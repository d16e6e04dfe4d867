"""`glassformer improve`: from pairs, and text, to a better translator, with what each step brought; and two steps by themselves.

Distillation makes a small student of a run (improve/distill.py). Back-translation makes synthetic pairs (Sennrich, Haddow and
Birch 2016): a translator learns from text that nobody has translated, if a model of the other direction translates it back.
Sampled sources teach more than the best ones where there is much text (Edunov et al. 2018), and a tag before them lets the model
tell them from real ones (Caswell, Chelba and Grangier 2019).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli import lines
from glassformer.cli.bulk import make_workers
from glassformer.cli.recipes import reading_settings
from glassformer.cli.translate import OutputFormat, decode_options, make_job
from glassformer.errors import ConfigError
from glassformer.language import _, localized
from glassformer.screen import RIGHT, make_table, say, table_console

STEPS = {
    "": ("overrides", "test", "minutes"),
    "distill": ("overrides", "test", "jobs"),
    "backtranslate": ("tag", "jobs", "settings", "step"),
}
"""What can be asked for by `--only`, or all of it, with the options that each takes beside --text, --out, --device and --json."""
TAG, MINUTES = "<bt>", 30.0

# ---- pairs of texts and what a run makes of them


def make_pair_job(
    run: Path,
    device: str,
    step: int | None,
    decoding: dict[str, Any],
    *,
    verb: str,
    tag: str = "",
    answer_first: bool = False,
) -> lines.TextJob:
    """A job whose answers are pairs: the text and what the run makes of it, or (`answer_first`) the other way round, with `tag`
    before the first. A text that is blank or has no answer gives no pair."""
    from glassformer.tasks import TextConstraints

    job = make_job([run], device, step, decoding, TextConstraints(), OutputFormat(), names_run=True)

    def answer(texts: Sequence[str]) -> Iterator[lines.Output]:
        for text, output in zip(texts, job.answer(texts), strict=True):
            # A draw may break off inside a character, which reads as U+FFFD; nothing is to be learned from that.
            answers = [line.replace("\t", " ").replace("\ufffd", "").strip() for line in output.lines]
            source = text.replace("\t", " ").strip()
            pairs = [(answer, source) if answer_first else (source, answer) for answer in answers if answer]
            yield lines.Output([f"{tag} {first}".strip() + f"\t{second}" for first, second in pairs], output.tokens)

    return replace(job, verb=verb, answer=answer, wide=0, options=job.options | {"tag": tag})


def pair_writer(
    verb: str, jobs: int | None, device: str, *, answer_first: bool = False
) -> Callable[[Path, Path, Path], None]:
    """For a study that has pairs made on its way: from a run, a file of texts and a file for the pairs. A text that has no answer
    costs a sentence, and the study goes on without it; so does the same call after it was broken off."""

    def write(run: Path, texts: Path, pairs: Path) -> None:
        say(_("{run} translates {texts}", run, texts))
        made = partial(make_pair_job, run.absolute(), device, None, {}, verb=verb, answer_first=answer_first)
        try:
            lines.reply(lines.Input(None, texts, pairs, resume=True), made, make_workers(jobs, device))
        except SystemExit as ended:
            if ended.code != 1:
                raise

    return write


def backtranslate(
    run: Path,
    text: Path | None,
    out: Path | None,
    *,
    tag: str,
    jobs: int | None,
    settings: list[str] | None,
    device: str,
    step: int | None,
) -> None:
    """Write synthetic pairs of text in the target language: a line for each line of the text, in order."""
    if text is None or out is None:
        raise ConfigError(
            "back-translation takes text of the target language by --text, and a new file for the pairs by --out"
        )
    if tag != " ".join(tag.split()):
        raise ConfigError("--tag must not begin, end or double its blanks: {tag!r}", tag)
    how: dict[str, Any] = {"verb": "backtranslate", "tag": tag, "answer_first": True}
    made = partial(make_pair_job, run.absolute(), device, step, decode_options({}, settings), **how)
    lines.reply(lines.Input(None, text, out, resume=True), made, make_workers(jobs, device))


# ---- what is shown


def span(difference: dict[str, float]) -> tuple[str, str]:
    """A gain and its interval."""
    return f"{difference['value']:+.2f}", f"[{difference['low']:+.2f}, {difference['high']:+.2f}]"


def show_distillation(report: dict[str, Any]) -> None:
    """Teacher and student beside each other."""
    console, numbers = table_console(), (report["metric"], _("in int8"), _("parameters"), _("sentences/s"))
    table = make_table(("", *((name, RIGHT) for name in numbers)))
    for name, own in report["facts"].items():
        size = f"{own['int8_mb']:.1f} MB", f"{own['parameters']:,.0f}"
        table.add_row(name, f"{own['score']:.2f}", *size, f"{own['sentences_per_second']:,.1f}")
    console.print(table)
    gain, interval = span(report["paired"]["difference"])
    summary = _(
        "student less teacher: {gain} {interval} on {examples:,} pairs of {split}; it is in {student}",
        *(gain, interval, report["examples"], report["split"], report["student"]),
    )
    console.print(summary, soft_wrap=True)


def show_improvement(report: dict[str, Any]) -> None:
    """Every step with its gain, and all of them on the test pairs."""
    console, numbers = table_console(), (f"{report['metric']} (val)", _("gain"), "95%", "p", "")
    table = make_table((_("step"), *((name, RIGHT) for name in numbers)))
    for step in report["steps"]:
        verdict = localized(_("kept") if step["kept"] else _("refused"))
        table.add_row(
            step["step"], f"{step['second']['value']:.2f}", *span(step["difference"]), f"{step['p']:.3g}", verdict
        )
    console.print(table)
    gain, interval = span(report["test"]["difference"])
    summary = _(
        "on {pairs:,} test pairs: {gain} {interval} over the plain recipe; the best run is {best}",
        *(report["pairs"]["test"], gain, interval, report["best"]),
    )
    console.print(summary, soft_wrap=True)


def check_step(only: str, given: dict[str, Any]) -> None:
    """Refuse a step that there is not, and options that it does not take."""
    if only not in STEPS:
        raise ConfigError("--only is distill or backtranslate, not {step!r}", only)
    named = {"settings": "--set", "overrides": "KEY=VALUE"}
    options = [name for name, value in given.items() if value not in (None, []) and name not in STEPS[only]]
    if options:
        asked = f"improve --only {only}" if only else "improve"
        wrong = ", ".join(named.get(name, f"--{name}") for name in options)
        raise ConfigError("`glassformer {command}` does not take {options}; leave that out", asked, wrong)


def improve(
    source: Path,
    overrides: list[str] | None = None,
    *,
    only: str = "",
    text: Path | None = None,
    test: Path | None = None,
    minutes: Annotated[float | None, typer.Option(min=0.1)] = None,
    out: Path | None = None,
    tag: str | None = None,
    jobs: int | None = None,
    settings: list[str] | None = None,
    as_json: bool = False,
    device: str = "auto",
    step: int | None = None,
) -> None:
    """Train, translate text back, fine-tune: each step is kept only if held-out pairs say that it helps (paired bootstrap), and
    told with its gain either way. OUT/improve.json says what each brought, and which run is the best one. Changes are of the
    recipe that all trainings have: model.n_layer=2, train.steps=500.

    RUN --only distill makes a small student of a run, OUT/student: it learns what the run writes for its own training sources
    (sequence-level distillation), with a deep encoder and a shallow decoder, and is scored beside its teacher. Changes are of the
    student's recipe.

    RUN --only backtranslate --text FILE --out PAIRS.tsv makes synthetic pairs of text in the target language, by a run of the
    other direction: synthetic source, tab, text. A blank line gives none, nor does one that cannot be translated (the exit code
    is then 1). --set n_best=2 gives several of each, --set temperature=1 draws them.

    The same command goes on with what was broken off. Exit codes: 0 done; 2 something to put right; 75 stopped on request.

    Example: improve pairs.tsv --text german.txt --minutes 30

    source (PAIRS|RUN): A file of pairs, such as a TSV: source, tab, target; or two aligned ones. With --only, a run.
    overrides (KEY.SUB=VALUE): Changes of the recipe, such as train.steps=200.
    only (STEP): This step alone: distill or backtranslate.
    text: Text of the target language to be translated back; distill: more texts for the teacher to translate. A sentence a line.
    test: Pairs to score on in the end; held out of the others, or the run's own, if not said.
    minutes: About how long all trainings may take together; 30 if not said.
    out: Where everything goes; runs/NAME-improved or RUN-student by default.
    tag: backtranslate: put before each source, so that it is known as synthetic; <bt> by default, '' for nothing.
    jobs: distill, backtranslate: worker processes that translate.
    settings (--set NAME=VALUE): backtranslate: a setting of decode, such as beam=2.
    """
    given = {"overrides": overrides, "test": test, "minutes": minutes, "tag": tag, "jobs": jobs}
    check_step(only, given | {"settings": settings, "step": step})
    if only == "backtranslate":
        how: dict[str, Any] = {"settings": settings, "device": device, "step": step}
        backtranslate(source, text, out, tag=TAG if tag is None else tag, jobs=jobs, **how)
        return

    from glassformer import runs
    from glassformer.improve.distill import distill
    from glassformer.improve.improve import improve as improve_pairs

    files = [word for word in overrides or () if "=" not in word and Path(word).exists() and not only]
    changes = [word for word in overrides or () if word not in files]
    how = {"test": test, "device": device, "overrides": changes}
    try:
        if only == "distill":
            place = out or source.parent / f"{source.name}-student"
            report = distill(source, place, pair_writer("distill", jobs, device), texts=text, **how)
        else:
            place = out or Path("runs") / f"{source.name.partition('.')[0]}-improved"
            write = pair_writer("improve", None, device, answer_first=True)
            how |= {"text": text, "minutes": MINUTES if minutes is None else minutes}
            report = improve_pairs([source, *map(Path, files)], place, write, fields=reading_settings(changes), **how)
    except runs.Stopped:
        say(_("stopped; the same command goes on"))
        raise SystemExit(runs.STOPPED) from None
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
    elif only == "distill":
        show_distillation(report)
    else:
        show_improvement(report)
