"""`glassformer demo`: a model that reads dates in two dozen languages, trained before one's eyes."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from glassformer.config import read_recipe
from glassformer.language import localized
from glassformer.screen import table_console


def demo(
    out: Annotated[Path, typer.Option(help="Where the run goes.")] = Path("runs/dates"),
) -> None:
    """Train `dates` on this machine (about three minutes on two cores) and show what it learned."""
    from rich.table import Table
    from rich.text import Text

    from glassformer import runs
    from glassformer.api import load
    from glassformer.api.evaluation import score_split
    from glassformer.data.builtin import examples_in_ten_languages
    from glassformer.inspection.cross_attention import draw_cross_attention
    from glassformer.runs.checkpoint import problem
    from glassformer.runs.curves import draw_curves
    from glassformer.runs.folder import RunFolder
    from glassformer.tasks import translations

    console = table_console()
    if RunFolder.is_run(out) and problem(RunFolder(out).final) is None:
        console.print(f"The run {out} is there already; this is what it can do. (Delete the folder to train again.)")
    else:
        console.print(
            "Dates in two dozen languages to ISO 8601: training a 2+2-layer Transformer from nothing.", style="bold"
        )
        try:
            if RunFolder.is_run(out):
                console.print(f"Going on with the unfinished run in {out}.")
                runs.resume(out)
            else:
                runs.train(read_recipe("dates"), out)
        except runs.Stopped:
            console.print(
                f"Stopped and saved; `make demo` goes on with it, and so does: glassformer train {quote(str(out))} --resume"
            )
            raise SystemExit(runs.STOPPED) from None
    scores, count = score_split(out, "test")
    model = load(out, device="cpu")
    table = Table(title="Days it has never seen", title_justify="left")
    for column in ("language", "written", "read as", ""):
        table.add_column(column)
    examples = examples_in_ten_languages("test")
    for (language, source, wanted), answer in zip(
        examples, translations(model, [s for _, s, _ in examples]), strict=True
    ):
        right = answer == wanted
        verdict = Text(localized("right"), "green") if right else Text(localized(f"should be {wanted}"), "red")
        table.add_row(language, source, answer, verdict)
    console.print(table)
    console.print(
        f"{scores.values['exact_match']:.1f}% of {count:,} unseen days read exactly right "
        f"(BLEU {scores.values['bleu']:.1f}, chrF {scores.values['chrf']:.1f})\n"
    )
    curves = draw_curves(RunFolder(out))
    attention = draw_cross_attention(model, "3 mai 1979", out / "cross-attention")
    console.print(f"loss curve       {curves[0]}")
    console.print(f"cross-attention  {attention[0]}")
    console.print(f"the run          {out}")
    console.print("\nTry next:")
    for command in (
        f'glassformer translate {quote(str(out))} "3 mai 1979"',
        f'glassformer look {quote(str(out))} "3 mai 1979"',
        f"glassformer heads {out}",
        f"glassformer evaluate {quote(str(out))}",
    ):
        console.print(f"  {program()} {command.removeprefix('glassformer ')}")


def program() -> str:
    """How this very program is called here: by its name where that is on the path."""
    import shutil

    return "glassformer" if shutil.which("glassformer") else ".venv/bin/glassformer"
