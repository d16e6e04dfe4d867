"""`glassformer museum`: well-known mistakes, trained."""

from __future__ import annotations

import shlex
from pathlib import Path

from glassformer.config import did_you_mean
from glassformer.errors import UserError
from glassformer.language import _, localized, padded
from glassformer.screen import FOLD, make_table, table_console

SHOWN = (0, 2, 3, 4, 5, 7)  # columns of the page's table


def museum(words: list[str] | None = None, *, show_list: bool = False, out: Path = Path("runs/museum")) -> None:
    """Train a small model with each of the well-known mistakes beside the right one: curves, samples, what [bold]audit[/] finds
    in the model. About ten minutes on two cores; trials are kept, and a visit that was broken off goes on.
    One mistake in a run of your own, in Python: [bold]runs.train(recipe, out, build=planting("softmax-twice"))[/].

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
