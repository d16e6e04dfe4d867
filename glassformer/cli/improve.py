"""`glassformer improve`: from pairs, and text, to a better translator, with what each step brought."""

from __future__ import annotations

import json
from pathlib import Path

from glassformer.cli import options
from glassformer.cli.backtranslate import pair_writer
from glassformer.language import _, localized
from glassformer.screen import RIGHT, make_table, say, table_console


@options.documented
def improve(
    pairs: Path,
    overrides: options.Changes = None,
    text: Path | None = None,
    test: Path | None = None,
    minutes: float = 30,
    out: Path | None = None,
    as_json: options.JsonObject = False,
    device: options.Device = "auto",
) -> None:
    """Clean the pairs, choose a recipe, train, translate text back, fine-tune and average: each step is kept only if held-out
    pairs say that it helps (paired bootstrap), and told with its gain either way.

    OUT/improve.md and .json say what each step brought, and which run is the best one. Changes are of the recipe that all
    trainings have: model.n_layer=2, train.steps=500. The same command goes on with what was broken off. Exit codes: 0 done; 2
    something to put right; 75 stopped on request.
    """
    from glassformer import runs
    from glassformer.improve import improve as study

    place = out or Path("runs") / f"{pairs.name.partition('.')[0]}-improved"
    write = pair_writer("improve", None, device, answer_first=True)
    files = [word for word in overrides or () if "=" not in word and Path(word).exists()]
    settings = [word for word in overrides or () if word not in files]
    try:
        found = study.improve(
            [pairs, *map(Path, files)],
            place,
            write,
            text=text,
            test=test,
            minutes=minutes,
            overrides=settings,
            device=device,
        )
    except runs.Stopped:
        say(_("stopped; the same command goes on"))
        raise SystemExit(runs.STOPPED) from None
    if as_json:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
        return
    console, gain = table_console(), found.test["difference"]
    words = {"kept": _("kept"), "refused": _("refused")}
    rows = [(*numbers, localized(words.get(verdict, ""))) for *numbers, verdict in found.rows()]
    others = [(name, RIGHT) for name in (f"{found.metric} (val)", _("gain"), "95%", "p", "")]
    console.print(make_table((_("step"), *others), rows))
    told = _(
        "on {pairs:,} test pairs: {gain:+.2f} [{low:+.2f}, {high:+.2f}] over the plain recipe; the best run is {best}",
        found.pairs["test"],
        gain["value"],
        gain["low"],
        gain["high"],
        found.best,
    )
    console.print(told, soft_wrap=True)
