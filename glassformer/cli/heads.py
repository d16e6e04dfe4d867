"""`glassformer heads`: what each head and MLP is worth, what each head looks at, and how many can go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassformer.cli import options
from glassformer.errors import UserError, writing
from glassformer.language import _, localized
from glassformer.screen import FIXED, RIGHT, Progress, make_table, table_console


@options.documented
def heads(
    run: options.Run,
    examples: int = 200,
    split: str = "val",
    out: Path | None = None,
    loss_only: bool = False,
    prune: int | None = None,
    to: Path | None = None,
    as_json: options.JsonObject = False,
    device: options.Device = "auto",
) -> None:
    """What every head and MLP is worth (cut, and measured again), what each head looks at, and how many can go."""
    from glassformer import probe
    from glassformer.api import load
    from glassformer.evaluation.held_out import held_out
    from glassformer.inspection import heads as study
    from glassformer.runs.folder import RunFolder

    if to is not None and prune is None:
        raise UserError("--to says where a pruned run goes; say with --prune how many heads it shall lose")
    folder = RunFolder.open(run)
    model = load(run, device=device)
    folder.check_data(split)
    held = held_out(model, split, examples, folder.path / "data")
    everything = probe.heads(model)
    if not everything:
        raise UserError("{run} has no heads left to look at", run)
    if prune is not None:
        to = place_of_pruned(run, to, prune, len(everything))
    with Progress("heads", 1) as display:

        def tell(done: int, total: int, what: str) -> None:
            display.total = total
            display.update(done + 1, f"{done + 1}/{total}  {what}")

        found = study.study(model, held, split, decoding=not loss_only, tell=tell)
    out = out or run / "heads"
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        pictures = study.draw(found, model.model.config, out)
    extra: dict[str, Any] = {"run": str(run)}
    if prune is not None and to is not None:
        smaller = study.write_pruned(folder, model, study.least_important(found, prune), to)
        models = [model, load(to, device=device)]
        footprints = study.measure_footprints([folder, smaller], models, held)
        after = study.measure(models[1], held, decoding=not loss_only)
        extra["pruned"] = {
            "run": str(to),
            "heads": [str(part) for part in study.least_important(found, prune)],
            "before": found.whole | footprints[0].to_dict(),
            "after": after | footprints[1].to_dict(),
        }
    numbers = study.save(found, out, extra)
    if as_json:
        print(json.dumps(found.to_dict() | extra))
        return
    show(found, _("{run}: {count:,} examples of {split}", run, held.count, split))
    if prune is not None:
        show_pruned(extra["pruned"])
    names = ", ".join(p.name for p in pictures if p.suffix == ".png")
    print(localized(_("{numbers} and {pictures} (each also as SVG)", numbers, names)))


def place_of_pruned(run: Path, to: Path | None, prune: int, n: int) -> Path:
    """Where the run without so many of `n` heads goes; neither too few nor too many, and no run that is there."""
    from glassformer.runs.folder import RunFolder

    if not 1 <= prune < n:
        raise UserError("--prune takes out between 1 and {most} of this model's {of} heads, not {n}", n - 1, n, prune)
    place = to or run.with_name(f"{run.resolve().name}-without-{prune}-heads")
    if RunFolder.is_run(place):
        raise UserError("{to} holds a run already; choose another folder with --to", place)
    return place


def short(change: float) -> str:
    """A change in at most six letters; what is too small to be seen in them is a zero."""
    size = abs(change)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    text = f"{change:+.{digits}f}"
    return "0" if float(text) == 0 else text


def scores_that_fit(found: Any, width: int) -> list[str]:
    """The scores there is room for: the one that parts are ranked by, the loss, then the others."""
    names = [name for name in found.whole if name != "perplexity" or found.score == "perplexity"]
    first = max(len(str(one.part)) for one in found.parts)
    second = max(len(f"{one.kind} {one.strength:.2f}") for one in found.parts)
    room = max(1, (width - first - second - 3) // (2 * 7))  # six letters and a space each
    ranked = sorted(names, key=lambda name: (name != found.score, name != "loss"))
    return [name for name in names if name in ranked[:room]]


def importances(found: Any, title: str, width: int = 80) -> Any:
    """The table, with as many scores as there is room for."""
    from rich import box

    columns = [(_("part"), FIXED), (_("looks at"), FIXED)]
    names = scores_that_fit(found, width)
    labels = {
        "loss": _("loss"),
        "exact_match": _("exact"),
        "perplexity": _("perpl."),
        "accuracy": _("accur."),
        "bleu": "BLEU",
        "chrf": "chrF",
    }
    modes = {"zero": _("zero"), "mean": _("mean")}
    for name in names:
        label = localized(labels.get(name, name))
        columns += [(f"{label}\n{localized(mode)}", FIXED | RIGHT) for mode in modes.values()]
    table = make_table(columns, title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for one in found.parts:
        kind = "" if one.kind == "mlp" else f"{one.kind} {one.strength:.2f}"
        cells = [short(found.change(one, mode, name)) for name in names for mode in modes]
        table.add_row(str(one.part), kind, *cells)
    return table


def show(found: Any, title: str) -> None:
    """The importance of every head and layer, on stdout."""
    from glassformer.evaluation.metrics import measure_name, measures_text

    console = table_console()
    console.print(importances(found, title, console.width))
    whole = measures_text(found.whole, ", ", localized)
    console.print(
        _(
            "The whole model: {whole}. Above: the change when one part is cut, its output set to zero or to its mean.",
            whole,
        )
    )
    pointed = [(one.part, *one.points) for one in found.parts if one.kind in ("broad", "mixed") and one.points[0] > 0]
    if hidden := ", ".join(f"{part} {share:.0%}{where and f' ({where})'}" for part, share, where in pointed):
        console.print(
            _(
                "Broad or mixed on average, but with more than half of the weight on one token in this share of the rows: "
                "{heads}.",
                hidden,
            )
        )
    heads_count = len(found.curve)
    console.print(
        _(
            "{can_go} of {heads_count} heads can go, the least important first, before 1% of the "
            "{measure_name} is lost.",
            found.can_go,
            heads_count,
            measure_name(found.score),
        )
    )


def show_pruned(facts: dict[str, Any]) -> None:
    """What a model scores before and after its heads were taken out, on stdout."""
    from glassformer.evaluation.metrics import measure_name

    before, after = facts["before"], facts["after"]
    columns = _("measure"), (_("before"), RIGHT), (_("after"), RIGHT), (_("ratio"), RIGHT)
    title = _("{run}: without {n_heads} heads", facts["run"], len(facts["heads"]))
    table = make_table(columns, title=title)
    labels = {
        "parameters": _("parameters"),
        "bytes": _("bytes"),
        "reading": _("processor seconds, reading"),
        "writing": _("processor seconds, writing"),
    }
    for name in before:
        form = "{:,}" if name in ("parameters", "bytes") else "{:.4g}"
        table.add_row(
            localized(labels.get(name) or measure_name(name)),
            form.format(before[name]),
            form.format(after[name]),
            f"{after[name] / before[name]:.3f}" if before[name] else "",
        )
    table_console().print(table)
