"""`glassformer data clean`: pairs without what teaches wrong things, and a report of what was taken."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.cli import options
from glassformer.errors import UserError
from glassformer.language import _, localized
from glassformer.screen import RIGHT, make_table, table_console


def losses_of(run: str) -> Any:
    """A run's mean loss of a word of each target."""
    from glassformer.api import load
    from glassformer.tasks.score import score

    model = load(run)

    def losses(pairs: Sequence[tuple[str, str]]) -> list[float | None]:
        own = score(model, pairs)
        return [None if found is None else -found.log_probability / max(1, found.tokens) for found in own]

    return losses


@options.documented
def clean(
    files: list[Path],
    out: Path,
    languages: str | None = None,
    without: list[str] | None = None,
    score: tuple[str, str] | None = None,
    score_column: str | None = None,
    least: float = 0.5,
    source_field: str = "source",
    target_field: str = "target",
    as_json: bool = False,
) -> None:
    """Repair pairs and take out those that teach wrong things. What is taken is kept in OUT.removed.tsv with the rule that took
    it, what is repaired in OUT.repaired.tsv as it was, and OUT.report.md and .json show examples of every rule."""
    from glassformer.cli.evaluate import new_file
    from glassformer.data import cleaning
    from glassformer.data.doctor.roles import arrange

    write = {
        ending: new_file(Path(f"{out.with_suffix('')}{ending}"))
        for ending in (".removed.tsv", ".repaired.tsv", ".report.md", ".report.json")
    }
    write_pairs = new_file(out)
    sides = [] if languages is None else languages.split(",")
    if len(sides) not in (0, 2):
        raise UserError("--languages are two codes with a comma between, such as en,de; not {languages}", languages)
    cleaning.need_extra()
    cleaned = cleaning.clean(
        arrange(files, "pairs", {"source_field": source_field, "target_field": target_field}),
        languages=sides,
        without=without or (),
        column=score_column,
        least=least,
        models=None if score is None else (losses_of(score[0]), losses_of(score[1])),
    )
    facts = cleaned.to_dict()
    write[".removed.tsv"](cleaning.as_tsv(map(cleaned.row, cleaned.removed)))
    write[".repaired.tsv"](cleaning.as_tsv(map(cleaned.row, cleaned.repaired)))
    write[".report.md"](cleaned.markdown())
    write[".report.json"](json.dumps(facts, ensure_ascii=False, indent=1) + "\n")
    if not cleaned.kept:
        raise UserError(
            "the rules left no pair of {read:,}; see {report}", cleaned.read, f"{out.with_suffix('')}.report.md"
        )
    write_pairs(cleaning.as_tsv(cleaned.rows()))
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
    else:
        show(cleaned, out)


def show(cleaned: Any, out: Path) -> None:
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
        f"{out.with_suffix('')}.removed.tsv",
    )
    console.print(told, soft_wrap=True)
