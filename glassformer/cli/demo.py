"""`glassformer demo`: a model that reads dates in two dozen languages, trained before one's eyes."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

from glassformer.cli import options
from glassformer.config import read_recipe
from glassformer.language import _, localized
from glassformer.screen import make_table, table_console


@options.documented
def demo(out: Path = Path("runs/dates")) -> None:
    """Train `dates` on this machine (two to three minutes on two cores) and show what it learned."""
    from glassformer import runs
    from glassformer.api import load
    from glassformer.api.evaluation import score_split
    from glassformer.inspection.cross_attention import draw_cross_attention
    from glassformer.runs.checkpoint import problem
    from glassformer.runs.curves import draw_curves
    from glassformer.runs.folder import RunFolder

    console = table_console()
    if RunFolder.is_run(out) and problem(RunFolder(out).final) is None:
        console.print(
            _("The run {out} is there already; this is what it can do. (Delete the folder to train again.)", out)
        )
    else:
        console.print(
            _("Dates in two dozen languages to ISO 8601: training a 2+2-layer Transformer from nothing."), style="bold"
        )
        try:
            if RunFolder.is_run(out):
                console.print(_("Going on with the unfinished run in {out}.", out))
                runs.resume(out)
            else:
                runs.train(read_recipe("dates"), out)
        except runs.Stopped:
            console.print(
                _(
                    "Stopped and saved; `make demo` goes on with it, and so does: glassformer train {run} --resume",
                    quote(str(out)),
                )
            )
            raise SystemExit(runs.STOPPED) from None
    scores, count = score_split(out, "test")
    model = load(out, device="cpu")
    console.print(unseen_days(model))
    console.print(
        _(
            "{exact_match:.1f}% of {count:,} unseen days read exactly right (BLEU {bleu:.1f}, chrF {chrf:.1f})",
            count=count,
            **scores.values,
        )
    )
    console.print()
    curves = draw_curves(RunFolder(out))
    attention = draw_cross_attention(model, "3 mai 1979", out / "cross-attention")
    console.print(_("loss curve       {curves}", curves[0]))
    console.print(_("cross-attention  {attention}", attention[0]))
    console.print(_("the run          {out}", out))
    console.print()
    console.print(_("Try next:"))
    for command in (
        f'glassformer translate {quote(str(out))} "3 mai 1979"',
        f'glassformer look {quote(str(out))} "3 mai 1979"',
        f"glassformer heads {out}",
        f"glassformer evaluate {quote(str(out))}",
    ):
        console.print(f"  {program()} {command.removeprefix('glassformer ')}")


def unseen_days(model: Any) -> Any:
    """A table of days that were held out, as the model reads them."""
    from rich.text import Text

    from glassformer.data.builtin import examples_in_ten_languages
    from glassformer.tasks import translations

    columns = _("language"), _("written"), _("read as"), ""
    table = make_table(columns, title=_("Days it has never seen"))
    examples = examples_in_ten_languages("test")
    answers = translations(model, [source for _language, source, _wanted in examples])
    for (language, source, wanted), answer in zip(examples, answers, strict=True):
        verdict = (_("right"), "green") if answer == wanted else (_("should be {wanted}", wanted), "red")
        table.add_row(language, source, answer, Text(localized(verdict[0]), verdict[1]))
    return table


def program() -> str:
    """How this very program is called here: by its name where that is on the path."""
    import shutil

    return "glassformer" if shutil.which("glassformer") else ".venv/bin/glassformer"
