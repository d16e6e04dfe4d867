"""`glassformer data`: fetch data that is on the network, and look at data and clean it before training on it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import typer

from glassformer.cli import options
from glassformer.cli.clean import clean
from glassformer.cli.own_data import files_and_changes, settings_of
from glassformer.language import _
from glassformer.screen import say, table_console

HELP = "Fetch data, look at it and clean it before training."


@options.documented
def get(name: str, out: Path | None = None, mirror: str | None = None) -> None:
    """Download a collection, check it, and cut it into train, val and test."""
    from glassformer.data import download

    folder = out or Path("data") / name.replace(":", "-")
    sizes = download.get(name, folder, None if mirror is None else {name: mirror.rstrip("/")})
    what = "characters" if name == "shakespeare" else "pairs"
    console = table_console()
    for split, size in sizes.items():
        console.print(f"{split:<6}{size:>9,} {what}")
    console.print(_("in {folder} (licence: {licence})", folder, download.COLLECTIONS[name].licence), soft_wrap=True)


@options.documented
def check(
    files: list[str],
    task: options.Task = None,
    source_field: str | None = None,
    target_field: str | None = None,
    text_field: str | None = None,
    label_field: str | None = None,
    picture: Path | None = None,
    as_json: bool = False,
) -> None:
    """Look at data as training would read it; exit code 1 if training on it would be a mistake."""
    from glassformer.config import read_recipe, recipe_names
    from glassformer.data import doctor

    if files[0].endswith(".toml") or (files[0] in recipe_names() and not Path(files[0]).exists()):
        report = doctor.check_config(read_recipe(files[0], files[1:]).data)
    else:
        paths, changes = files_and_changes(files)
        options = {"source_field": source_field, "target_field": target_field}
        options |= {"text_field": text_field, "label_field": label_field}
        given = settings_of(changes) | {key: value for key, value in options.items() if value is not None}
        config = doctor.arrange(paths, task or given.pop("task", None), given)
        if columns := doctor.fields_in_words(config):
            say(columns)
        report = doctor.check_config(config)
    console = table_console()
    if as_json:
        print(json.dumps(report.to_dict(), ensure_ascii=False))
    else:
        doctor.show(report, console)
    if picture is not None:
        from glassformer import plots

        picture.parent.mkdir(parents=True, exist_ok=True)
        saved = plots.save(doctor.picture(report), picture)
        if not as_json:
            console.print(_("picture: {saved}", saved[0]), soft_wrap=True)
    if report.mistake:
        raise typer.Exit(1)


@options.documented
def cache(clear: bool = False) -> None:
    """Prepared data, compiled code and short trials of this machine, kept so that another run begins at once: list them, or
    clear them."""
    from glassformer.accel.compile_cache import compiled_entries
    from glassformer.accel.trials import trial_entries
    from glassformer.data import cache as prepared
    from glassformer.files.cache import cache_folder, remove

    console, folder = table_console(), cache_folder()
    kept = [*prepared.entries(), *compiled_entries(), *trial_entries()]
    for entry in kept:
        if clear:
            remove(entry.path)
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        print(f"{used}  {entry.size / 1e6:>9,.1f} MB  {entry.about}")
    if not kept:
        nothing = (
            _("nothing is kept: GLASSFORMER_CACHE is off")
            if folder is None
            else _("there is nothing in {folder}", folder)
        )
        console.print(nothing, soft_wrap=True)
        return
    total = f"{sum(entry.size for entry in kept) / 1e6:,.1f} MB"
    said = _("{size} removed from {folder}", total, folder) if clear else f"{total} in {folder}"
    console.print(said, soft_wrap=True)


VERBS: dict[str, Callable[..., None]] = {"get": get, "check": check, "clean": clean, "cache": cache}
