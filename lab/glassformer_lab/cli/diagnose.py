"""`glassformer diagnose`: which of the well-known mistakes a run looks like."""

from __future__ import annotations

import json
from pathlib import Path

from glassformer.language import _, localized
from glassformer.screen import table_console


def diagnose(run: Path, *, as_json: bool = False) -> None:
    """Which of the well-known mistakes a run's own curve looks like, with the evidence: its first loss, its validation loss
    beside that of a table, what it writes by itself beside what teacher forcing promises. The model itself is looked through
    by [bold]glassformer audit[/].

    Example: diagnose runs/dates
    """
    from glassformer.runs.folder import RunFolder
    from glassformer_lab import museum as lab

    folder, known = RunFolder.open(run), lab.museum()
    found, planted = lab.diagnose(folder), folder.facts.get("build", "none")
    hidden = [name for name, one in known.items() if "sign" not in one]
    if as_json:
        print(json.dumps({"run": str(run), "planted": planted, "looks_like": found, "not_shown_by_a_curve": hidden}))
        return
    console = table_console()
    if planted != "none":
        console.print(_("planted in this run: {mistake}", planted), soft_wrap=True)
    for name, said in found.items():
        about = localized(known[name]["about"])
        console.print(_("it looks like {name}: {about}", name, about), soft_wrap=True)
        console.print(f"  {localized(said)}", soft_wrap=True)
    if not found:
        console.print(_("its curve looks like none of the museum's mistakes"), soft_wrap=True)
    console.print(_("no curve can show {names}; glassformer audit can", ", ".join(hidden)), soft_wrap=True)
