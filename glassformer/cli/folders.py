"""`glassformer export`, `import` and `doctor`: a run for other programs, another model as a run, and whether a run is whole."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.errors import ConfigError, UserError
from glassformer.formats.targets import HELP as TARGETS_HELP
from glassformer.language import _, localized
from glassformer.screen import FOLD, RIGHT, make_table, say, table_console, warn

if TYPE_CHECKING:
    from glassformer.formats.huggingface.importing import Imported
    from glassformer.formats.parity import ParityReport
    from glassformer.runs.folder import RunFolder


def export(
    run: Path,
    *,
    to: Annotated[
        str, typer.Option(help=f"{TARGETS_HELP}, or adapter (of a LoRA training: its corrections alone, a small file).")
    ],
    out: Path | None = None,
    quantize: str | None = None,
    sample: Path | None = None,
    as_json: bool = False,
    overwrite: bool = False,
    step: int | None = None,
) -> None:
    """Export a run, load it in the program it is for, and compare the two.

    The parity report is printed and saved in the folder (parity.json, and in the model card README.md). Exit codes: 0 the
    folder stands and says what the run says; 1 it does not, and nothing is left; 2 something to put right.

    Example: export runs/dates --to ct2 --quantize int8

    out: A new or empty folder; without it, beside the run: RUN-hf, RUN-ct2-int8, …
    quantize: Weights of fewer bits: fp16 or int8. None: float32.
    sample: Compare on this file, in a format of training data; without it, on the run's test split.
    as_json (--json): The parity report as one JSON object on stdout.
    overwrite: Replace an earlier export in that folder, once the new one is proven.
    """
    if to == "adapter":
        if quantize or sample or as_json or step is not None:
            raise UserError("an adapter is exported as it is: leave out --quantize, --sample, --json and --step")
        adapter_alone(run, out or run.parent / f"{run.name}-adapter", overwrite)
        return
    from glassformer.api import load
    from glassformer.api.evaluation import pairs_of_files
    from glassformer.formats.export import check, export_model
    from glassformer.formats.parity import ParityFailed
    from glassformer.formats.runtime import own_sample

    model = load(run, device="cpu", step=step)
    check(model, to, quantize)
    place = out or run.parent / "-".join([run.name, to, *([quantize] if quantize else [])])
    if sample is None:
        on, examples = own_sample(model.recipe.data, run)
    elif sample.exists():  # read as training data of the run's task is
        on, examples = str(sample), pairs_of_files(model, [sample], [])
    else:
        raise UserError("there is no file {path} to compare on", sample)
    try:
        its: dict[str, Any] = {"name": run.name, "metrics": model.metrics}
        report = export_model(model, to, place, examples, quantize=quantize, on=on, overwrite=overwrite, **its)
    except ParityFailed as failed:
        show_parity(failed.report, as_json)
        warn(f"glassformer: {localized(str(failed))}")
        raise SystemExit(1) from None
    show_parity(report, as_json)
    say(_("{verdict}; it is in {place}", report.verdict(), place))


def adapter_alone(run: Path, place: Path, overwrite: bool) -> None:
    """The corrections of a LoRA training in a folder of their own."""
    from glassformer.formats.adapter import export_adapter
    from glassformer.runs.folder import RunFolder

    size, whole = export_adapter(RunFolder.open(run), place, overwrite=overwrite)
    sentence = _(
        "with the model it began with it is {run}, to the bit: {size:,} bytes, of {whole:,}; it is in {place}",
        *(run, size, whole, place),
    )
    say(sentence)


def show_parity(report: ParityReport, as_json: bool = False) -> None:
    """The table of a comparison, and its notes."""
    if as_json:
        print(json.dumps(asdict(report)))
        return
    from rich.text import Text

    rows = [(localized(what), Text(value)) for what, value in report.rows()]
    title = _("parity on {texts} texts of {sample}", report.texts, report.sample)
    console = table_console()
    console.print(make_table(("", (report.theirs, RIGHT)), rows, title=title))
    for note in report.notes:
        console.print(f"  {localized(note)}")


def import_(
    source: str,
    *,
    out: Path | None = None,
    file: Path | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    adapter: Path | None = None,
    sample: Path | None = None,
) -> None:
    """Take in a model that was made elsewhere: [bold]glassformer import opus-mt-de-en[/].

    GPT-2, Llama, Mistral, Qwen2, Qwen3, OPT, Marian (OPUS-MT), Pegasus, BART, mBART-50, M2M100 (NLLB), T5, BERT and RoBERTa with
    their heads or without one. What comes out is a run, which the other commands take like any other.
    Only safetensors are read; of a name at the hub no pickle and no code is fetched.

    Example: import Helsinki-NLP/opus-mt-de-en

    source: A Hugging Face folder, or a model's name at its hub.
    out: The run's folder; runs/NAME by default.
    file: Examples of yours, as training data: for evaluate, heads, compare and export.
    source_language: Of a model of many languages: what is read, by its name there (__en__, eng_Latn).
    target_language: And what is written.
    adapter: SOURCE is a run of yours: add the corrections of this adapter.safetensors to a copy of it.
    sample: Compare run and source on this file, a text a line; else on some sentences.
    """
    from glassformer.formats.huggingface.importing import Languages
    from glassformer.formats.import_run import read_source, write_run

    languages = Languages(source_language, target_language)
    if adapter is not None:
        from glassformer.formats.adapter import with_adapter
        from glassformer.runs.folder import RunFolder

        if sample or languages != Languages():
            raise ConfigError(
                "with --adapter the source is a run of yours; of the other options it takes --out and --file"
            )
        found = with_adapter(RunFolder.open(Path(source)), adapter)
        run = write_run(found, out or Path("runs") / found.recipe.name, file)
    else:
        found = read_source(source, languages=languages)
        place = out or Path("runs") / found.recipe.name
        run = write_run(found, place, file, lambda draft: prove(Path(source), found, draft, sample, place))
    for note in found.notes:
        warn(note)
    tell_what_is_next(run, found)


def tell_what_is_next(run: RunFolder, found: Imported) -> None:
    """What the run is, and what can be done with it."""
    from glassformer.tasks import TextModel

    model = run.load_model()
    verb = TextModel(model, run.tokenizers, run.recipe).verb
    what = found.model_type, model.num_params(), run.path
    print(localized(_("a {model_type} of {num_params:,} parameters is now the run {path}", *what)))
    path = quote(str(run.path))
    if verb == "embed":
        print(f'next: python -c \'import glassformer; print(glassformer.load("{run.path}").embed("…"))\'')
    else:
        text = '"… ___ …"' if verb == "fill" else '"…"'
        print(f"next: glassformer {verb} {path} {text}")
    print(f"      glassformer train RECIPE --from {path}")


def prove(source: Path, found: Imported, draft: RunFolder, sample: Path | None, place: Path) -> None:
    """Compare the run with its source before it takes its place, and print the report; one that is another model is given up."""
    from glassformer.formats.huggingface.import_parity import cannot_compare, import_parity
    from glassformer.formats.parity import ParityFailed

    if (why := cannot_compare(source)) is not None:
        warn(f"{place}: {localized(why)}")
        return
    try:
        texts = None if sample is None else [t for t in sample.read_text(encoding="utf-8").splitlines() if t.strip()]
        report = import_parity(source, found, draft, texts)
    except (ParityFailed, OSError, UnicodeDecodeError) as error:
        if not isinstance(error, ParityFailed):
            raise ConfigError("the sample {sample} cannot be read: {error}", sample, error) from None
        show_parity(error.report)
        warn(_("glassformer: {verdict}; nothing was left in {out}", error, place))
        raise SystemExit(1) from None
    show_parity(report)


def doctor(run: Path, *, prune: bool = False, as_json: bool = False) -> None:
    """Read every byte of a run and say what is there, damaged or left behind, and what --resume would do. Changes nothing.

    With --prune, what killed commands have left in it, or beside it in its name, is cleared away.

    Exit codes: 0 all is whole; 1 something is damaged; 2 this is no run.

    Example: doctor runs/dates

    prune: Remove what killed commands have left behind, and say what and how much.
    """
    from glassformer.runs import doctor as run_doctor

    pruned = run_doctor.prune(run) if prune else []
    found = run_doctor.examine(run)
    if as_json:
        facts = {"pruned": [asdict(leftover) for leftover in pruned]} if prune else {}
        print(json.dumps({"run": str(run), **found.to_dict(), **facts}))
    else:
        from rich.text import Text

        colours = {_("good"): "green", _("note"): "yellow", _("damaged"): "red"}
        table = make_table((_("what"), ("kB", RIGHT), _("condition"), (_("about"), FOLD)), title=str(run))
        for finding in found.findings:
            condition = Text(localized(finding.condition), style=colours[finding.condition])
            size = f"{finding.size / 1000:,.0f}" if finding.size else ""
            table.add_row(finding.name, size, condition, Text(localized(finding.about)))
        console = table_console()
        for leftover in pruned:
            removed = leftover.name, leftover.size / 1000, leftover.about
            console.print(_("cleared away: {name}, {size:,.0f} kB ({about})", *removed), soft_wrap=True)
        if prune and not pruned:
            console.print(_("nothing to clear away"))
        console.print(table)
        console.print(found.outlook, soft_wrap=True)
    if found.damaged:
        raise SystemExit(1)
