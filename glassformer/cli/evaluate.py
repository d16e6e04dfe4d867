"""`glassformer evaluate`: scores of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassformer.cli import options
from glassformer.errors import UserError, writing
from glassformer.language import _, localized
from glassformer.screen import FOLD, RIGHT, make_table, table_console, warn


def new_file(path: Path) -> Callable[[str | bytes], None]:
    """What writes a text, or bytes, into a file that must not be there yet: whole, when all of it is known."""
    if path.exists() or path.is_symlink():
        raise UserError("{path} is there already; choose another name for --out, or remove it first", path)
    if not path.parent.is_dir():
        raise UserError("there is no folder {parent} to write {path} into", path.parent, path.name)

    def write(text: str | bytes) -> None:
        from glassformer.files.durable import write_atomically

        with writing(path):
            write_atomically(path, text if isinstance(text, bytes) else text.encode("utf-8", errors="replace"))

    return write


@options.documented
def evaluate(
    run: options.Run,
    overrides: list[str] | None = None,
    split: str | None = None,
    file: Path | None = None,
    source: Path | None = None,
    target: Path | None = None,
    perturb: str | None = None,
    contrastive: Path | None = None,
    ensemble: options.Ensemble = None,
    out: Path | None = None,
    limit: int | None = None,
    as_json: options.JsonObject = False,
    device: str = "auto",
    engine: options.Engine = None,
) -> None:
    """Score a run on one of its splits, or on files of your own, whatever its task. Shares are percentages."""
    from glassformer.api import load
    from glassformer.api.evaluation import evaluate_run

    if limit is not None and limit < 1:
        raise UserError("--limit must be at least 1, not {limit}", limit)
    if (source is None) != (target is None):
        raise UserError("--source and --target go together: a file of sources and a file of references")
    if file is not None and source is not None:
        raise UserError("--file holds both sides, --source and --target one each: give one or the other")
    files = [path for path in (file, source, target) if path is not None]
    if contrastive is not None:
        if files or split or perturb or ensemble or out or overrides or engine:
            raise UserError("--contrastive scores the pairs of its own file; leave out other data, settings and --out")
        score_contrasts(run, contrastive, limit, device, as_json=as_json)
        return
    write = new_file(out) if out is not None else None
    settings = [*(overrides or []), *([f"decode.engine={engine}"] if engine is not None else [])]
    found = evaluate_run(
        run,
        split=split,
        files=files,
        overrides=settings,
        limit=limit,
        device=device,
        perturb=perturb,
        model=load([run, *ensemble], device=device) if ensemble else None,
    )
    for note in found.notes:
        warn(note)
    if write is not None:
        if not found.scores.written:
            raise UserError("this run writes no answers to keep; leave out --out")
        write("".join(" ".join(line.splitlines()) + "\n" for line in found.scores.written))
    if as_json:
        facts = {"run": str(run), "weights": found.weights, "on": found.on, "examples": found.examples}
        facts |= found.scores.values
        print(json.dumps(facts | {"signatures": found.scores.signatures, "notes": list(found.notes)}))
    else:
        show(run, found)


def score_contrasts(run: Path, file: Path, limit: int | None, device: str, *, as_json: bool) -> None:
    """How often the right one of two translations is the likelier."""
    from glassformer.api import load
    from glassformer.evaluation.contrastive import contrastive, read_contrasts

    right, total = contrastive(load(run, device=device), read_contrasts(file)[:limit])
    if not total:
        raise UserError("{path}: not one pair fits the length that this run reads", path=file)
    share = 100 * right / total
    if as_json:
        print(json.dumps({"run": str(run), "on": str(file), "examples": total, "right": right, "contrastive": share}))
    else:
        told = _(
            "{run} finds the right one likelier in {share:.2f}% of {total:,} pairs", run=run, share=share, total=total
        )
        table_console().print(localized(told), soft_wrap=True)


def show(run: Path, found: Any) -> None:
    """A table of scores, each with what it is, and a few examples."""
    from rich.text import Text

    from glassformer.evaluation.metrics import measure_name, measure_value

    title = _("{run} on {on} ({examples:,} examples)", run, found.on, found.examples)
    columns = _("measure"), (_("value"), RIGHT), (_("signature"), FOLD | {"style": "dim"})
    table = make_table(columns, title=title)
    for name, value in found.scores.values.items():
        signature = Text(localized(found.scores.signatures.get(name, "")))
        table.add_row(localized(measure_name(name)), measure_value(name, value), signature)
    console = table_console()
    console.print(table)
    for given, wanted, written in found.scores.samples:
        same = wanted.strip() == written.strip()
        line = Text(f"  {given} → {written}  ").append("=" if same else "≠", "green" if same else "red")
        console.print(line.append(f"  {wanted}"))
