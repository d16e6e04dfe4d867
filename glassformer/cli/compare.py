"""`glassformer compare`: two runs on the same examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassformer.cli import options
from glassformer.errors import writing
from glassformer.language import _, localized
from glassformer.screen import FIXED, RIGHT, Progress, make_table, table_console

STAGES = 5  # that the study tells of, and its end


@options.documented
def compare(
    first: Path,
    second: Path,
    split: str = "test",
    examples: int = 500,
    show: int = 8,
    out: Path | None = None,
    as_json: bool = False,
    device: options.Device = "auto",
) -> None:
    """Two runs on the same examples: scores with intervals, what they say differently, where they look differently."""
    from glassformer.api import load
    from glassformer.files.durable import to_json, write_atomically
    from glassformer.files.owned import OwnedFiles
    from glassformer.inspection import compare as study

    models = load(first, device=device), load(second, device=device)
    names = (first.name, second.name) if first.name != second.name else (str(first), str(second))

    with Progress("compare", STAGES) as display:

        def tell(what: str) -> None:
            display.update(display.done + 1, what)

        found = study.compare(models, names, split, examples, (first / "data", second / "data"), tell)
    if out is not None:
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
            write_atomically(OwnedFiles(out).claim("compare.json")[0], to_json(found.to_dict()))
            config = models[0].model.config
            study.draw(found, config.attentions, max(map(config.heads_of, config.attentions)), out)
    if as_json:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        print_comparison(found, show)


def scores_table(found: Any) -> Any:
    """Three lines a score (each run's, and the difference), so that an interval never has to be broken."""
    from glassformer.evaluation.metrics import measure_name

    number = FIXED | RIGHT
    columns = (
        (_("score"), FIXED),
        _("of"),
        (_("value"), number),
        (_("95% from"), number),
        (_("to"), number),
        ("p", number),
    )
    title = _("{examples:,} examples of {split}", found.examples, found.split)
    table = make_table(columns, title=title)
    for name, paired in found.scores.items():
        clear = paired.difference.low > 0 or paired.difference.high < 0
        rows = zip(
            (*found.names, localized(_("difference"))), (paired.first, paired.second, paired.difference), strict=True
        )
        for place, (of, one) in enumerate(rows):
            last = place == 2
            table.add_row(
                "" if place else localized(measure_name(name)),
                of,
                *(f"{value:+.4g}" if last else f"{value:.4g}" for value in (one.value, one.low, one.high)),
                f"{paired.p:.3g}" if last else "",
                style="bold" if last and clear else None,
                end_section=last,
            )
    return table


def print_comparison(found: Any, show: int) -> None:
    """What `compare` found, as tables and sentences on stdout."""
    from rich.text import Text

    from glassformer.runs.session import shorten

    console = table_console()
    console.print(scores_table(found))
    written = any(s.first or s.second for s in found.sentences)
    if written:
        console.print(_("They say the same to {same:,} of {examples:,}.", found.same, found.examples))
    for s in [s for s in found.most_changed(show) if s.distance > 0 or not written]:
        console.print(Text(f"  {shorten(s.source, 100)}", "dim"))
        if not written:
            console.print(_("    loss {first_loss:.4g} → {second_loss:.4g}", s.first_loss, s.second_loss))
            continue
        for name, said in zip(found.names, (s.first, s.second), strict=True):
            same = said.strip() == s.wanted.strip()
            mark = Text("    ").append("=" if same else "≠", "green" if same else "red")
            console.print(mark.append(f" {said}  ").append(name, "dim"))
        console.print(Text(f"      {s.wanted}  ").append(localized(_("wanted")), "dim"))
    if found.attention:
        furthest = sorted(found.attention.items(), key=lambda item: -item[1].distance)[:5]
        listed = ", ".join(f"{name} {apart.distance:.2f}" for name, apart in furthest)
        console.print(
            _(
                "Heads of {first} that look least like any of {second}: {listed} (0 the same, 1 nothing in common).",
                found.names[0],
                found.names[1],
                listed,
            )
        )
    if found.no_attention:
        console.print(_("Attention is not compared: {no_attention}.", found.no_attention))
