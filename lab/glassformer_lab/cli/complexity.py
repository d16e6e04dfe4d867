"""`glassformer complexity`: the paper's Table 1, measured."""

from __future__ import annotations

import json
from pathlib import Path

from glassformer.errors import writing
from glassformer.language import _
from glassformer.screen import RIGHT, Progress, make_table, table_console

# Of the columns, under shorter names: what is said beside each is in the page.
SHOWN = {0: "layer", 2: "time ~ n^p", 4: "time ~ d^q", 6: "memory ~ n^p", 8: "serial", 10: "to reach n"}


def complexity(*, quick: bool = False, out: Path | None = None, as_json: bool = False, device: str = "auto") -> None:
    """Time and memory of self-attention, recurrent, convolutional, window-restricted and linear layers over length and width,
    with fitted exponents beside O(n² d), O(n d²), O(k n d²), O(r n d); sequential operations; how far gradients reach.

    A few minutes on a CPU.

    Example: complexity --quick

    quick: Small sizes, in seconds: does it run?
    out: Where table and figure go; runs/complexity by default.
    """
    from glassformer.api.loading import pick_device
    from glassformer.files.owned import LIST, require_new_or_empty
    from glassformer_lab.complexity import complexity as study

    place = pick_device(device)
    folder = out or Path("runs") / ("complexity-quick" if quick else "complexity")
    if not (folder / LIST).is_file():
        require_new_or_empty(folder, "a table of measurements")
    command = " ".join(["glassformer complexity", *["--quick"] * quick, *([f"--device {device}"] * (device != "auto"))])
    with Progress("complexity", len(study.LAYERS) + 1) as display:
        report = study.complexity(
            place, quick=quick, command=command, tell=lambda done, what: display.update(done, what)
        )
    with writing(folder):
        study.write(report, folder)
    if as_json:
        print(json.dumps(report.to_dict(), ensure_ascii=False))
        return
    columns = [(head, {} if number == 0 else RIGHT | {"no_wrap": number < 8}) for number, head in SHOWN.items()]
    rows = [[found[number] for number in SHOWN] for found in (study.cells(report, row) for row in report.rows)]
    console = table_console()
    console.print(make_table(columns, rows, title=f"one row, forward and backward, on {report.facts['machine']}"))
    console.print(_("with what is said beside it, and the figure: {folder}", folder), soft_wrap=True)
