"""`glassformer info --machine`: what this machine has, and which fast paths were chosen on it."""

from __future__ import annotations

from glassformer.language import _, localized
from glassformer.screen import RIGHT, make_table, table_console

DESCRIBED = (_("processor"), _("cores"), _("it has"), _("none that torch can use"))
"""Of what `machine.describe` says: it stands below the language, and so its words are marked here."""


def show_machine() -> None:
    """Print the machine and every fast path; a trial that was never made here is made now, in about a second."""
    from rich.text import Text

    from glassformer import machine
    from glassformer.accel import tuning
    from glassformer.files.cache import cache_folder

    console = table_console()
    console.print(make_table((), [map(localized, row) for row in machine.describe()], show_header=False, box=None))
    columns = _("path"), _("taken"), _("why"), (_("gain here"), RIGHT), _("measured")
    table = make_table(columns, title=_("fast paths"))
    for path, choice in tuning.choices():
        measured = "\n".join(f"{m.gain:g}x on {m.machine}, {m.day}" for m in path.measured)
        gain = "" if choice.gain is None else f"{choice.gain:.2f}x"
        table.add_row(
            Text(f"{path.name}\n").append(path.what, "dim"),
            localized(_("yes") if choice.taken else _("no")),
            choice.why,
            gain,
            measured,
        )
    console.print(table)
    if (folder := cache_folder()) is not None:
        kept = _("Trials are kept in {cache_folder}.", folder / "trials")
        console.print(kept, style="dim", soft_wrap=True)
