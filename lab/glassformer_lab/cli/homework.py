"""`glassformer homework`: exercises that grade themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassformer.config import did_you_mean
from glassformer.errors import UserError
from glassformer.language import _, localized
from glassformer.screen import FOLD, make_table, table_console

HEADS = (_("exercise"), _("case"), _("result"))


def homework(
    names: list[str] | None = None,
    *,
    out: Path | None = None,
    check: Path | None = None,
    seconds: Annotated[float, typer.Option(min=1)] = 300,
) -> None:
    """Ten exercises from softmax to a trained translator: parts of glassformer.classic with a hole and hints in two languages.
    With --check, what is in the file is held to the laws, and what is wrong is said by its name and in numbers; the exit code is
    then 1. The file is run, with all your rights.

    Example: homework attention

    names (NAME): Exercises; without any, they are listed.
    out: The file to write; NAME.py by default. A new file.
    check (FILE.py): Grade this file: it is run, with all your rights.
    seconds: With --check: how long the file may take; longer, and it is not graded.
    """
    console = table_console()
    if check is not None:
        if not check.is_file():
            raise UserError("there is no file {path}", check)
        from glassformer_lab.child import run_in_child

        results = run_in_child("homework", str(check), seconds, path=str(check))
        if not results:
            raise UserError("{path} has none of the exercises; glassformer homework NAME writes one", check)
        rows = [(name, shown, problem or localized(_("right"))) for name, shown, problem in results]
        console.print(make_table([(head, FOLD) for head in HEADS], rows))
        if any(problem for _name, _shown, problem in results):
            raise typer.Exit(1)
        return
    from glassformer_lab import homework as lab

    if not names:
        for name, one in lab.EXERCISES.items():
            console.print(f"{name:<12}{localized(one['about'])}")
        return
    for name in names:
        if name not in lab.EXERCISES:
            suggestion = did_you_mean(name, list(lab.EXERCISES))
            raise UserError("there is no exercise {name!r}{suggestion}", name, suggestion)
    path = out or Path(f"{names[0]}.py")
    listing = lab.listing(names, str(path)).encode("utf-8", "replace")  # a name of a file need not be UTF-8
    try:
        with path.open("xb") as file:
            file.write(listing)
    except FileExistsError:
        raise UserError("{path} is there already; give another by --out", path) from None
    except OSError as error:
        raise UserError("{filename} cannot be written: {reason}", path, error.strerror) from None
    console.print(_("written: {path}", path), soft_wrap=True)
