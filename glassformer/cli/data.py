"""`glassformer data`: fetch data that is on the network, and look at data and clean it before training on it."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import typer

from glassformer.cli.recipes import files_and_changes, reading_settings
from glassformer.cli.scores import new_file
from glassformer.errors import UserError
from glassformer.language import _, localized
from glassformer.screen import RIGHT, make_table, say, table_console, warn

HELP = "Fetch data, look at it and clean it before training."
ENDINGS = (".tsv", ".txt", ".jsonl", ".ndjson")


def get(name: str, *, out: Path | None = None, mirror: str | None = None) -> None:
    """Download a collection, check it, and cut it into train, val and test.

    Example: data get shakespeare

    name: tatoeba:en-de, en-fr or en-zh, multi30k:en-de or en-fr, or shakespeare.
    out: Where to put it; data/NAME if not said.
    mirror: Fetch the same files from this address instead.
    """
    from glassformer.data import download

    folder = out or Path("data") / name.replace(":", "-")
    sizes = download.get(name, folder, None if mirror is None else {name: mirror.rstrip("/")})
    what = "characters" if name == "shakespeare" else "pairs"
    console = table_console()
    for split, size in sizes.items():
        console.print(f"{split:<6}{size:>9,} {what}")
    console.print(_("in {folder} (licence: {licence})", folder, download.collections()[name].licence), soft_wrap=True)


def check(
    files: list[str],
    *,
    task: str | None = None,
    source_field: str | None = None,
    target_field: str | None = None,
    text_field: str | None = None,
    label_field: str | None = None,
    as_json: bool = False,
) -> None:
    """Look at data as training would read it; exit code 1 if training on it would be a mistake.

    Example: data check pairs.tsv

    files (RECIPE|FILES): A recipe; or train, val and test: a file each, or two aligned ones; and how to read them, such as
        data.source_field=en.
    text_field: The field of the text or the words.
    label_field: The field of the label or the tags.
    as_json (--json): One JSON object on stdout instead of a table.
    """
    from glassformer.config import read_recipe, recipe_names
    from glassformer.data import doctor

    if files[0].endswith(".toml") or (files[0] in recipe_names() and not Path(files[0]).exists()):
        report = doctor.check_config(read_recipe(files[0], files[1:]).data)
    else:
        paths, changes = files_and_changes(files)
        fields = {"source_field": source_field, "target_field": target_field}
        fields |= {"text_field": text_field, "label_field": label_field}
        settings = reading_settings(changes, task=task, **fields)
        config = doctor.arrange(paths, settings.pop("task", None), settings)
        if columns := doctor.fields_in_words(config):
            say(columns)
        report = doctor.check_config(config)
    console = table_console()
    if as_json:
        print(json.dumps(report.to_dict(), ensure_ascii=False))
    else:
        doctor.show(report, console)
    if report.mistake:
        raise typer.Exit(1)


def stem_of(out: Path) -> Path:
    """What the names of the other files begin with; an error for a name whose ending promises another format."""
    bare = Path(str(out).removesuffix(".gz"))
    if bare.suffix.lower() not in ("", *ENDINGS):
        raise UserError(
            "--out {out}: clean pairs are written as a TSV (.tsv, .txt) or as JSON lines (.jsonl), packed or not (.gz)",
            out,
        )
    return bare.with_suffix("")


def clean(
    files: list[str],
    *,
    out: Path,
    languages: str | None = None,
    without: list[str] | None = None,
    source_field: str | None = None,
    target_field: str | None = None,
    as_json: bool = False,
) -> None:
    """Repair pairs and take out those that teach wrong things. What is taken is kept in OUT.removed.tsv with the rule that took
    it, what is repaired in OUT.repaired.tsv as it was, and OUT.report.json shows examples of every rule.

    Example: data clean pairs.tsv --out clean.tsv

    files (FILES): A file of pairs, or two aligned ones; and how to read it, such as data.source_field=en.
    out: The clean pairs, .tsv or .jsonl (.gz); its other files are named after it. New files.
    languages: Of source and target, such as en,de; found out if not said.
    without: Leave out this rule; may be given again.
    as_json (--json): One JSON object on stdout instead of a table.
    """
    from glassformer.data import cleaning
    from glassformer.data.doctor.roles import fields_in_words, pairs_to_clean

    stem, write_pairs = stem_of(out), new_file(out)
    endings = (".removed.tsv", ".repaired.tsv", ".report.json")
    write = {ending: new_file(Path(f"{stem}{ending}")) for ending in endings}
    sides = [] if languages is None else languages.split(",")
    if len(sides) not in (0, 2):
        raise UserError("--languages are two codes with a comma between, such as en,de; not {languages}", languages)
    cleaning.need_extra()
    paths, changes = files_and_changes(files)
    settings = reading_settings(changes, source_field=source_field, target_field=target_field)
    settings.pop("task", None)
    config = pairs_to_clean(paths, settings)
    if columns := fields_in_words(config):
        say(columns)
    cleaned = cleaning.clean(config, languages=sides, without=without or ())
    facts = cleaned.to_dict()
    write[".removed.tsv"](cleaning.as_tsv(map(cleaned.row, cleaned.removed)))
    write[".repaired.tsv"](cleaning.as_tsv(map(cleaned.row, cleaned.repaired)))
    write[".report.json"](json.dumps(facts, ensure_ascii=False, indent=1) + "\n")
    if not cleaned.kept:
        raise UserError("the rules left no pair of {read:,}; see {report}", cleaned.read, f"{stem}.report.json")
    is_jsonl = f"{out}".removesuffix(".gz").lower().endswith(ENDINGS[2:])
    text = cleaned.as_jsonl(config.source_field, config.target_field) if is_jsonl else cleaning.as_tsv(cleaned.rows())
    write_pairs(gzip.compress(text.encode("utf-8", "replace"), mtime=0) if out.suffix == ".gz" else text)
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
    else:
        show_cleaned(cleaned, out, f"{stem}.removed.tsv")
    if cleaned.names and not is_jsonl and not cleaned.names[0].isdecimal():
        warn(_("behind source and target {out} has the fields {names}", out, ", ".join(cleaned.names)))


def show_cleaned(cleaned: Any, out: Path, removed: str) -> None:
    """What every rule did, and where it can be read."""
    rows = [
        (name, f"{tally.count:,}", "; ".join(localized(part) for part in (tally.why, tally.note) if part))
        for name, tally in (*cleaned.repairs.items(), *cleaned.rules.items())
        if tally.count or tally.note
    ]
    console = table_console()
    console.print(make_table((_("rule"), (_("pairs"), RIGHT), _("why")), rows))
    counts = len(cleaned.kept), cleaned.read, out, removed
    summary = _("{kept:,} of {read:,} pairs are in {out}; what was taken is in {removed}", *counts)
    console.print(summary, soft_wrap=True)


def cache(*, clear: bool = False) -> None:
    """Prepared data, compiled code and short trials of this machine, kept so that another run begins at once: list them, or
    clear them.

    Example: data cache --clear

    clear: Remove all of it; runs need nothing of it.
    """
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
    total = f"{sum(entry.size for entry in kept) / 1e6:,.1f} MB"
    if not kept and folder is None:
        summary = _("nothing is kept: GLASSFORMER_CACHE is off")
    elif not kept:
        summary = _("there is nothing in {folder}", folder)
    else:
        summary = _("{size} removed from {folder}", total, folder) if clear else f"{total} in {folder}"
    console.print(summary, soft_wrap=True)


VERBS = (get, check, clean, cache)
"""The verbs that stand behind `glassformer data`."""
