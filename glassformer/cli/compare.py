"""`glassformer compare`: two runs on the same examples."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.errors import UserError


def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN_A", help="A run folder.")],
    second: Annotated[Path, typer.Argument(metavar="RUN_B", help="Another.")],
    split: Annotated[str, typer.Option(help="train, val or test, of RUN_A.")] = "test",
    examples: Annotated[int, typer.Option(help="Compare on so many examples (of a text: blocks).")] = 500,
    show: Annotated[int, typer.Option(help="Show so many of the most changed examples.")] = 8,
    out: Annotated[Path | None, typer.Option(help="Write pictures and compare.json into this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, every sentence in it.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Two runs on the same examples: scores with intervals, what they say differently, where they look differently."""
    from glassformer.api import load
    from glassformer.files.durable import to_json, write_atomically
    from glassformer.files.owned import OwnedFiles
    from glassformer.studies import compare as study

    models = load(first, device=device), load(second, device=device)
    names = (first.name, second.name) if first.name != second.name else (str(first), str(second))

    def tell(what: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{what} …", end="", file=sys.stderr, flush=True)

    found = study.compare(models, names, split, examples, (first / "data", second / "data"), tell)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            write_atomically(OwnedFiles(out).claim("compare.json")[0], to_json(found.to_dict()))
            config = models[0].model.config
            study.draw(found, config.attentions, config.n_head, out)
        except OSError as error:
            raise UserError(f"{out} cannot be written: {error.strerror}") from None
    if as_json:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        print_comparison(found, show)


def print_comparison(found: Any, show: int) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from glassformer.runs.session import shorten

    console = Console()
    table = Table(title=f"{found.examples:,} examples of {found.split}", title_justify="left")
    table.add_column("score")
    for heading in (*found.names, "difference (95%)", "p"):
        table.add_column(heading, justify="right")
    for name, paired in found.scores.items():
        cells = [f"{i.value:.4g} [{i.low:.4g}, {i.high:.4g}]" for i in (paired.first, paired.second, paired.difference)]
        clear = paired.difference.low > 0 or paired.difference.high < 0
        table.add_row(name.replace("_", " "), *map(escape, cells), f"{paired.p:.3g}", style="bold" if clear else None)
    console.print(table)
    written = any(s.first or s.second for s in found.sentences)
    if written:
        console.print(f"They say the same to {found.same:,} of {found.examples:,}.", highlight=False)
    shown = [s for s in found.most_changed(show) if s.distance > 0 or not written]
    for s in shown:
        given = shorten(s.source, 100)
        console.print(f"  {escape(given)}", highlight=False, style="dim")
        if written:
            for name, said in zip(found.names, (s.first, s.second), strict=True):
                mark = "[green]=[/]" if said.strip() == s.wanted.strip() else "[red]≠[/]"
                console.print(f"    {mark} {escape(said)}  [dim]{escape(name)}[/]", highlight=False)
            console.print(f"      {escape(s.wanted)}  [dim]wanted[/]", highlight=False)
        else:
            console.print(f"    loss {s.first_loss:.4g} → {s.second_loss:.4g}", highlight=False)
    if found.attention:
        furthest = sorted(found.attention.items(), key=lambda item: -item[1].distance)[:5]
        listed = ", ".join(f"{name} {apart.distance:.2f}" for name, apart in furthest)
        console.print(
            f"Heads of {found.names[0]} that look least like any of {found.names[1]}: {listed} (0 the same, 1 nothing in "
            "common).",
            highlight=False,
        )
    if found.no_attention:
        console.print(f"Attention is not compared: {found.no_attention}.", highlight=False)
