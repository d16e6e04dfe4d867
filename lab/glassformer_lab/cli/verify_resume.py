"""`glassformer verify-resume`: train, kill, resume, and compare with the run that was never stopped."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from glassformer.config import read_recipe
from glassformer.language import _
from glassformer.screen import RIGHT, make_table, say, table_console


def verify_resume(recipe: str, overrides: list[str] | None = None, *, steps: int = 20) -> None:
    """Train 2n steps; train n, kill, resume, train n; show whether the two agree, bit by bit.

    Exit codes: 0 they agree; 1 they differ; 2 something to put right.

    Example: verify-resume dates --steps 20

    recipe: A recipe's name or a .toml file.
    overrides (KEY.SUB=VALUE): Changes, such as train.ema=0.99.
    steps: n: trains 2n steps, and n, a kill, a resume and n.
    """
    from glassformer.runs import pick_device
    from glassformer_lab import verify_resume as study

    resolved = read_recipe(recipe, overrides or [])
    device = pick_device(resolved.train).type
    with study.ending_in_order(), TemporaryDirectory() as folder:
        parts = study.verify_resume(resolved, steps, Path(folder), say)
    title = f"{resolved.name}: {2 * steps} steps, and {steps} + kill + resume + {steps}, on {device}"
    columns = _("what"), (_("compared"), RIGHT), (_("differ"), RIGHT), (_("bits"), RIGHT)
    rows = [(p.name, f"{p.compared:,}", f"{len(p.differences):,}", f"{p.bits:,}") for p in parts]
    console = table_console()
    console.print(make_table(columns, rows, title=title))
    wrong = [(part.name, d) for part in parts for d in part.differences]
    for where, difference in wrong[:20]:
        console.print(f"  {where}: {difference.name}: {difference.what}")
    if len(wrong) > 20:
        console.print(f"  … and {len(wrong) - 20:,} more")
    console.print(_("{parts:,} bits differ", sum(part.bits for part in parts)), style="red" if wrong else "green")
    if wrong:
        if device == "cuda" and not resolved.train.deterministic:
            console.print(_("On CUDA runs are the same to the bit only with train.deterministic=true."))
        raise SystemExit(1)
