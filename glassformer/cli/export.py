"""`glassformer export`: a run as a folder that other programs run, with the proof that it is the same model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli import options
from glassformer.errors import UserError
from glassformer.formats.targets import HELP as TARGETS_HELP
from glassformer.language import _, localized
from glassformer.screen import RIGHT, make_table, say, table_console, warn

if TYPE_CHECKING:
    from glassformer.formats.parity import ParityReport


@options.documented
def export(
    run: options.Run,
    to: Annotated[
        str, typer.Option(help=f"{TARGETS_HELP}, or adapter (of a LoRA training: its corrections alone, a small file).")
    ],
    out: Path | None = None,
    quantize: str | None = None,
    sample: Path | None = None,
    as_json: bool = False,
    overwrite: bool = False,
    step: options.Step = None,
) -> None:
    """Export a run, load it in the program it is for, and compare the two.

    The parity report is printed and saved in the folder (parity.json, and in the model card README.md). Exit codes: 0 the
    folder stands and says what the run says; 1 it does not, and nothing is left; 2 something to put right.
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
        its: dict[str, Any] = {"name": run.name, "run": run if step is None else None, "metrics": model.metrics}
        report = export_model(model, to, place, examples, quantize=quantize, on=on, overwrite=overwrite, **its)
    except ParityFailed as failed:
        show(failed.report, as_json)
        warn(f"glassformer: {localized(str(failed))}")
        raise SystemExit(1) from None
    show(report, as_json)
    say(_("{verdict}; it is in {place}", report.verdict(), place))


def adapter_alone(run: Path, place: Path, overwrite: bool) -> None:
    """The corrections of a LoRA training in a folder of their own."""
    from glassformer.formats.adapter import export_adapter
    from glassformer.runs.folder import RunFolder

    size, whole = export_adapter(RunFolder.open(run), place, overwrite=overwrite)
    say(
        _(
            "with the model it began with it is {run}, to the bit: {size:,} bytes, of {whole:,}; it is in {place}",
            run,
            size,
            whole,
            place,
        )
    )


def show(report: ParityReport, as_json: bool) -> None:
    """The table of what was found, and the notes."""
    if as_json:
        import json
        from dataclasses import asdict

        print(json.dumps(asdict(report)))
        return
    from rich.text import Text

    rows = [(localized(what), *map(Text, sides)) for what, *sides in report.rows()]
    title = _("parity on {texts} texts of {sample}", report.texts, report.sample)
    console = table_console()
    console.print(make_table(("", (report.ours.name, RIGHT), (report.theirs.name, RIGHT)), rows, title=title))
    for note in report.notes:
        console.print(f"  {localized(note)}")
