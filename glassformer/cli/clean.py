"""`glassformer data clean`: pairs without what teaches wrong things, and a report of what was taken."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.cli import options
from glassformer.cli.own_data import files_and_changes, settings_of
from glassformer.errors import UserError
from glassformer.language import _, localized
from glassformer.screen import RIGHT, make_table, say, table_console, warn

ENDINGS = (".tsv", ".txt", ".jsonl", ".ndjson")
LEAST = 0.5  # of another program's scores, which mostly lie between 0 and 1
MANY = 1 / 3  # of the pairs: what scores take of a usable file is less


def losses_of(run: str) -> Any:
    """A run's mean loss of a word of each target."""
    from glassformer.api import load
    from glassformer.tasks.score import score

    model = load(run)
    if model.kind not in ("transformer", "gpt on pairs"):
        raise UserError("--score: {run}: {problem}", run, model.cannot("translate"))

    def losses(pairs: Sequence[tuple[str, str]]) -> list[float | None]:
        own = score(model, pairs)
        return [None if found is None else -found.log_probability / max(1, found.tokens) for found in own]

    return losses


def models_of(runs: tuple[str, str]) -> tuple[Any, Any]:
    """The losses of two different runs."""
    if Path(runs[0]).resolve() == Path(runs[1]).resolve():
        raise UserError("--score takes two runs, one each way; {run} is given twice", runs[0])
    return losses_of(runs[0]), losses_of(runs[1])


def stem_of(out: Path) -> Path:
    """What the names of the other files begin with; an error for a name whose ending promises another format."""
    bare = Path(str(out).removesuffix(".gz"))
    if bare.suffix.lower() not in ("", *ENDINGS):
        raise UserError(
            "--out {out}: clean pairs are written as a TSV (.tsv, .txt) or as JSON lines (.jsonl), packed or not (.gz)",
            out,
        )
    return bare.with_suffix("")


def lowest(least: float | None, score_column: str | None) -> float:
    """The lowest score that is good."""
    if least is not None and score_column is None:
        raise UserError("--least is the lowest good score of --score-column, which is not given")
    if least is not None and not math.isfinite(least):
        raise UserError("--least must be a number, not {least}", least)
    return LEAST if least is None else least


@options.documented
def clean(
    files: list[str],
    out: Path,
    languages: str | None = None,
    without: list[str] | None = None,
    score: tuple[str, str] | None = None,
    score_column: str | None = None,
    least: float | None = None,
    source_field: str | None = None,
    target_field: str | None = None,
    as_json: bool = False,
) -> None:
    """Repair pairs and take out those that teach wrong things. What is taken is kept in OUT.removed.tsv with the rule that took
    it, what is repaired in OUT.repaired.tsv as it was, and OUT.report.md and .json show examples of every rule."""
    from glassformer.cli.evaluate import new_file
    from glassformer.data import cleaning
    from glassformer.data.doctor.roles import fields_in_words, pairs_to_clean

    stem, good = stem_of(out), lowest(least, score_column)
    write_pairs = new_file(out)
    write = {
        ending: new_file(Path(f"{stem}{ending}"))
        for ending in (".removed.tsv", ".repaired.tsv", ".report.md", ".report.json")
    }
    sides = [] if languages is None else languages.split(",")
    if len(sides) not in (0, 2):
        raise UserError("--languages are two codes with a comma between, such as en,de; not {languages}", languages)
    cleaning.need_extra()
    paths, changes = files_and_changes(files)
    options = {"source_field": source_field, "target_field": target_field}
    given = settings_of(changes) | {key: value for key, value in options.items() if value is not None}
    given.pop("task", None)
    config = pairs_to_clean(paths, given)
    if columns := fields_in_words(config):
        say(columns)
    cleaned = cleaning.clean(
        config,
        languages=sides,
        without=without or (),
        column=score_column,
        least=good,
        models=None if score is None else models_of(score),
    )
    facts = cleaned.to_dict()
    write[".removed.tsv"](cleaning.as_tsv(map(cleaned.row, cleaned.removed)))
    write[".repaired.tsv"](cleaning.as_tsv(map(cleaned.row, cleaned.repaired)))
    write[".report.md"](cleaned.markdown())
    write[".report.json"](json.dumps(facts, ensure_ascii=False, indent=1) + "\n")
    if not cleaned.kept:
        raise UserError("the rules left no pair of {read:,}; see {report}", cleaned.read, f"{stem}.report.md")
    is_jsonl = f"{out}".removesuffix(".gz").lower().endswith(ENDINGS[2:])
    text = cleaned.as_jsonl(config.source_field, config.target_field) if is_jsonl else cleaning.as_tsv(cleaned.rows())
    write_pairs(gzip.compress(text.encode("utf-8", "replace"), mtime=0) if out.suffix == ".gz" else text)
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
    else:
        show(cleaned, out, f"{stem}.removed.tsv")
    if cleaned.names and not is_jsonl and not cleaned.names[0].isdecimal():
        warn(_("behind source and target {out} has the fields {names}", out, ", ".join(cleaned.names)))
    taken = sum(cleaned.rules[name].count for name in ("score", "models") if name in cleaned.rules)
    if taken > MANY * (taken + len(cleaned.kept)):
        share, place = taken / (taken + len(cleaned.kept)), f"{stem}.removed.tsv"
        warn(
            _("{share:.0%} of the pairs went by their scores; look at them in {place} first", share=share, place=place)
        )


def show(cleaned: Any, out: Path, removed: str) -> None:
    """What every rule did, and where it can be read."""
    rows = [
        (name, f"{tally.count:,}", "; ".join(localized(part) for part in (tally.why, tally.note) if part))
        for name, tally in (*cleaned.repairs.items(), *cleaned.rules.items())
        if tally.count or tally.note
    ]
    console = table_console()
    console.print(make_table((_("rule"), (_("pairs"), RIGHT), _("why")), rows))
    told = _(
        "{kept:,} of {read:,} pairs are in {out}; what was taken is in {removed}",
        len(cleaned.kept),
        cleaned.read,
        out,
        removed,
    )
    console.print(told, soft_wrap=True)
