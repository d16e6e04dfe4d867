"""`glassformer museum`: well-known mistakes, trained; `glassformer diagnose`: which of them a run looks like."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from glassformer.config import did_you_mean
from glassformer.errors import UserError
from glassformer.language import _, localized, padded
from glassformer.screen import FOLD, make_table, table_console

SHOWN = (0, 2, 3, 4, 5, 7, 8)  # columns of the page's table


def museum(words: list[str] | None = None, *, show_list: bool = False, out: Path = Path("runs/museum")) -> None:
    """Train a small model with each of the well-known mistakes beside the right one: curves, samples, what [bold]audit[/] finds
    in the model and [bold]diagnose[/] in the curve. About ten minutes on two cores; trials are kept, and a visit that was broken
    off goes on. One mistake in a run of your own, in Python: [bold]runs.train(recipe, out, build=planting("softmax-twice"))[/].

    Example: museum softmax-twice

    words (NAME|KEY.SUB=VALUE): Mistakes, all by default; and changes of the recipe.
    show_list (--list): Only name the mistakes.
    out: Where runs, table and figure go.
    """
    from glassformer.runs.stop import STOPPED, Stopped
    from glassformer_lab import museum as lab
    from glassformer_lab.museum.exhibition import HEADS, cells

    console, known = table_console(), lab.museum()
    changes = [word for word in words or () if "=" in word]
    names = [word for word in words or () if "=" not in word] or list(known)
    for name in names:
        if name not in known:
            raise UserError("there is no mistake {name!r}{suggestion}", name, did_you_mean(name, list(known)))
    if show_list:
        for name in names:
            console.print(f"{padded(name, 22)}{localized(known[name]['about'])}", soft_wrap=True)
        return
    try:
        found = lab.exhibit(list(dict.fromkeys(names)), out, changes)
    except Stopped:
        raise SystemExit(STOPPED) from None
    command = shlex.join(["glassformer", "museum", *(words or ())])
    lab.write(found, out, command)
    heads = [(HEADS[number], FOLD) for number in SHOWN]
    console.print(make_table(heads, [[cells(one)[number] for number in SHOWN] for one in found]))
    console.print(_("with what is said beside it, and the figure: {folder}", out), soft_wrap=True)


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
