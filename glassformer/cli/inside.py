"""`glassformer look`, `heads`, `open` and `serve`: what goes on inside a model, on a page, as numbers or behind HTTP."""

from __future__ import annotations

import json
import os
import sys
import threading
import webbrowser
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from glassformer.errors import UserError, install_hint, writing
from glassformer.language import _, localized
from glassformer.screen import BARE, FIXED, RIGHT, Progress, make_table, say, table_console, warn


def look(
    run: Path,
    text: str,
    *,
    target: str | None = None,
    against: str | None = None,
    beside: str | None = None,
    beside_run: Path | None = None,
    beside_step: int | None = None,
    out: Path | None = None,
    across: bool = False,
    beam: int | None = None,
    new: int = 12,
    pictures: bool = True,
    device: str = "cpu",
    step: int | None = None,
) -> None:
    """Write a report on one text: look.html, which opens in any browser and needs no network, and pictures of maps and tables.

    The machine itself, attention of every head as maps and lines, probabilities and alternatives, logit lens, attribution,
    residual stream, rollout, one head step by step, and the beam. With --across, the same at every checkpoint that the
    run has kept.

    Example: look runs/dates "3 mai 1979"

    text (TEXT): What the model reads.
    target: An answer that is forced on the model, in place of its own.
    against: A second text, of as many tokens: the patching map between the two.
    beside: Another text, shown to the right of this one.
    beside_run: Another run, shown to the right of this one.
    beside_step: Another checkpoint (of --beside-run, where given), shown to the right of this one.
    out: The folder of the report; without it, RUN/look.
    across: The same text at every kept checkpoint, side by side.
    beam: The width of the search that is shown.
    new: A GPT: so many tokens are written after the text.
    pictures: PNG and SVG of the maps and tables beside the page.
    """
    from glassformer.api import load
    from glassformer.inspection import look_across, look_inside, write_report
    from glassformer.inspection.data import importance_of
    from glassformer.inspection.inspection import Inspection
    from glassformer.inspection.patching import patch
    from glassformer.runs.folder import RunFolder

    def seen(folder: Path, words: str, at: int | None) -> Inspection:
        model = load(folder, device=device, step=at)
        found = look_inside(model, words, target, beam=beam, new=new)
        if at is None:  # `heads` cuts the final weights; what it found is not true of others
            found = replace(found, importance=importance_of(folder))
        return look_across(RunFolder.open(folder), found) if across else found

    def named(folder: Path, at: int | None) -> str:
        return folder.resolve().name + (f", step {at}" if at is not None else "")

    inside, title = seen(run, text, step), named(run, step)
    if against is not None:
        inside = replace(inside, patching=patch(inside.model, text, against))
    other, other_title = None, ""
    if beside is not None or beside_run is not None or beside_step is not None:
        folder = run if beside_run is None else beside_run
        # Another text is read by the same weights, unless others are asked for.
        at = step if beside_step is None and beside_run is None else beside_step
        other, other_title = seen(folder, text if beside is None else beside, at), named(folder, at)
    for note in [*inside.input.notes, *(other.input.notes if other is not None else [])]:
        warn(_("note: {warning}", note))
    report = write_report(inside, title, out or run / "look", pictures=pictures, beside=other, beside_title=other_title)
    for warning in report.notes:
        warn(_("note: {warning}", warning))
    page = report.paths[0]
    print(f"{page} ({page.stat().st_size / 1e6:.1f} MB)")
    if len(report.paths) > 1:
        print(localized(_("{count} pictures beside it, PNG and SVG", len(report.paths) - 1)))


def serve(
    runs: list[Path],
    *,
    host: str = "127.0.0.1",
    port: int = 5000,
    languages: list[str] | None = None,
    key_file: Path | None = None,
    allow_host: list[str] | None = None,
    allow_origin: list[str] | None = None,
    suggestions: bool = False,
    limit: list[str] | None = None,
    device: str = "auto",
) -> None:
    """Answer over HTTP: LibreTranslate's /translate, OpenAI's /v1/completions, and a page at /.

    Requests are decoded side by side. SIGTERM ends in good order: nothing new is taken, what is under way is answered. Limits
    (`--limit`) are queue, body, file, text, batch, total, rows, alternatives, choices, logprobs, new_tokens, seconds,
    read_seconds, connections, drain_seconds, memory and a few more; see docs/how-to/serve.md.

    Example: serve runs/dates --port 5000

    runs (RUN): Run folders; each is loaded and has to answer once.
    host: The address to listen on; any but a loopback one needs a key.
    port: The port; 0 takes a free one.
    languages: What a run translates, where its recipe does not say: de:en, or NAME=de,fr:en for one of several.
    key_file: A file whose first line is the API key (more lines: more keys); or set GLASSFORMER_API_KEY.
    allow_host: A host name this server is known by.
    allow_origin: A site whose pages may ask, such as https://example.org.
    suggestions: Take corrections of translations, and answer these texts so; see docs/how-to/corrections.md.
    limit (NAME=VALUE): Change a limit, such as queue=64 or seconds=30.
    """
    how: dict[str, Any] = {"languages": languages or [], "key_file": key_file, "limits": limit or [], "device": device}
    how |= {"names": (allow_host or [], allow_origin or []), "corrections": suggestions}
    server_or_hint()(runs, (host, port), **how)


def open_(runs: list[Path], *, port: int = 0, no_browser: bool = False, device: str = "auto") -> None:
    """Type, and see inside with every key; cut parts, force a token, and see what the answer becomes; watch runs learn.

    A page in the browser, served on this machine until Ctrl-C, to whoever has the token of the printed address. The address
    holds the text, the cuts, the forced tokens and the view. A guided walk leads through the machine. A run may still be in
    training, by any process: its curves, samples and newest weights are followed.

    Example: open runs/dates

    runs (RUN): Run folders, or a folder in which there are some.
    port: The port on this machine; 0 takes a free one.
    no_browser: Only say the address; open it yourself.
    """
    run_server = server_or_hint()
    from glassformer.runs.folder import RunFolder

    found = [run for path in runs for run in ([path] if RunFolder.is_run(path) else runs_in(path))]
    # Those without weights are watched until they have some; what is no run is told so.
    found = [path for path in found if RunFolder.open(path).has_weights]
    has_screen = sys.platform in ("darwin", "win32") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())

    def show(address: str) -> None:
        say(_("open {address} in a browser; Ctrl-C ends it", address))
        if has_screen and not no_browser:
            # Everyone on the machine sees what a program is called with; the token stands in a file that is the owner's alone.
            page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">', encoding="utf-8")
            threading.Thread(target=webbrowser.open, args=[page.as_uri()], daemon=True).start()

    with TemporaryDirectory(prefix="glassformer-open-") as folder:
        page = Path(folder) / "open.html"
        run_server(found, ("127.0.0.1", port), device=device, opened=show, watched=runs)


def runs_in(folder: Path) -> list[Path]:
    """The runs in a folder, by name, also those that are being trained; where there are none the folder itself, so that the
    reason is told."""
    from glassformer.runs.folder import RunFolder

    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in inside if RunFolder.is_run(path)] or [folder]


def server_or_hint() -> Any:
    """The function that serves; where its packages are missing, a sentence that names the one to install."""
    try:
        from glassformer.serve.server import run_server

        return run_server
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("glassformer"):
            raise
        raise UserError(
            "serving needs the package {name}; install it with: {command}", error.name, install_hint("serve")
        ) from None


def heads(
    run: Path,
    *,
    examples: int = 200,
    split: str = "val",
    out: Path | None = None,
    loss_only: bool = False,
    prune: int | None = None,
    to: Path | None = None,
    as_json: bool = False,
    device: str = "auto",
) -> None:
    """What every head and MLP is worth (cut, and measured again), what each head looks at, and how many can go.

    Example: heads runs/dates --prune 6

    examples: Measure on so many examples (of a text: blocks).
    split: train, val or test.
    out: Where pictures and numbers go; by default RUN/heads.
    loss_only: Write no texts: much quicker, no BLEU.
    prune: Write a run without the N least important heads.
    to: Where that run goes; by default RUN-without-N-heads.
    """
    from glassformer import probe
    from glassformer.api import load
    from glassformer.evaluation.examples import held_out
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
    show_importances(found, _("{run}: {count:,} examples of {split}", run, held.count, split))
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


def importances(found: Any, title: str) -> Any:
    """Each part, what it looks at, and the change of the score that parts are ranked by (and of the loss) without it."""
    from glassformer.evaluation.metrics import measure_name

    names = list(dict.fromkeys(["loss", found.score])) if "loss" in found.whole else [found.score]
    modes = {"zero": _("zero"), "mean": _("mean")}
    columns: list[Any] = [(_("part"), FIXED), (_("looks at"), FIXED)]
    for name in names:
        label = localized(measure_name(name))
        columns += [(f"{label}\n{localized(mode)}", FIXED | RIGHT) for mode in modes.values()]
    table = make_table(columns, title=title, **BARE)
    for one in found.parts:
        kind = "" if one.kind == "mlp" else f"{one.kind} {one.strength:.2f}"
        table.add_row(
            str(one.part), kind, *(f"{found.change(one, mode, name):+.3g}" for name in names for mode in modes)
        )
    return table


def show_importances(found: Any, title: str) -> None:
    """The importance of every head and layer, on stdout."""
    from glassformer.evaluation.metrics import measure_name, measures_text

    console = table_console()
    console.print(importances(found, title))
    whole = _(
        "The whole model: {whole}. Above: the change when one part is cut, its output set to zero or to its mean.",
        measures_text(found.whole, ", ", localized),
    )
    console.print(whole)
    pointed = [(one.part, *one.points) for one in found.parts if one.kind in ("broad", "mixed") and one.points[0] > 0]
    if hidden := ", ".join(f"{part} {share:.0%}{where and f' ({where})'}" for part, share, where in pointed):
        sentence = _(
            "Broad or mixed on average, but with more than half of the weight on one token in this share of the rows: "
            "{heads}.",
            hidden,
        )
        console.print(sentence)
    can_go = _(
        "{can_go} of {heads_count} heads can go, the least important first, before 1% of the {measure_name} is lost.",
        *(found.can_go, len(found.curve), measure_name(found.score)),
    )
    console.print(can_go)


def show_pruned(facts: dict[str, Any]) -> None:
    """What a model scores before and after its heads were taken out, on stdout."""
    from glassformer.evaluation.metrics import measure_name

    before, after = facts["before"], facts["after"]
    columns = _("measure"), (_("before"), RIGHT), (_("after"), RIGHT), (_("ratio"), RIGHT)
    table = make_table(columns, title=_("{run}: without {n_heads} heads", facts["run"], len(facts["heads"])))
    labels = {"parameters": _("parameters"), "bytes": _("bytes")}
    labels |= {"reading": _("processor seconds, reading"), "writing": _("processor seconds, writing")}
    for name in before:
        form = "{:,}" if name in ("parameters", "bytes") else "{:.4g}"
        ratio = f"{after[name] / before[name]:.3f}" if before[name] else ""
        label = localized(labels.get(name) or measure_name(name))
        table.add_row(label, form.format(before[name]), form.format(after[name]), ratio)
    table_console().print(table)
