"""`glassformer audit`: the laws of a Transformer, run against anyone's."""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated

import typer

from glassformer.errors import ConfigError
from glassformer.language import _, localized
from glassformer.screen import FOLD, make_table, table_console

HEADS = (_("law"), _("verdict"), _("measured"))
VERDICTS = {"holds": _("holds"), "broken": _("broken"), "look": _("look"), "not asked": _("not asked")}
OUTSIDE = _("not looked at: your training loop, the targets that it gives among it")
OUTSIDE_AND_LOSS = _("not looked at: your loss and your training loop")
KINDS = ("auto", "decoder", "encoder", "encoder-decoder")


def audit(
    model: str,
    *,
    arg: list[str] | None = None,
    vocab: Annotated[int, typer.Option(min=0, max=1000000)] = 0,
    kind: str = "auto",
    time_first: bool = False,
    seconds: Annotated[float, typer.Option(min=1)] = 300,
    as_json: bool = False,
) -> None:
    """Look for the known mistakes in anyone's Transformer in torch: small random texts go in, and what must not change its logits
    (later tokens, padding, neighbours) is changed. Its file is run, with all your rights. Exit code 1 where a law is broken, or
    could not be asked.

    Example: audit my_model.py:Model --arg vocab_size=100

    model (FILE.py:NAME): A file, or module, and a class, function or model in it.
    arg (NAME=VALUE): For its constructor. Repeatable.
    vocab: How many ids it knows; found out if not said.
    kind: decoder, encoder or encoder-decoder; guessed if not said.
    time_first: Its forward takes (T, B) and not (B, T).
    seconds: How long it may take; longer, and nothing is known of it.
    """
    if kind not in KINDS:
        raise ConfigError("--kind is one of {choices}, not {kind!r}", ", ".join(KINDS), kind)
    from glassformer_lab.child import run_in_child

    words = {"target": model, "args": arg or [], "vocab": vocab, "kind": kind, "time_first": time_first}
    report = run_in_child("audit", model, seconds, **words)
    found = report["laws"]
    verdicts = Counter(one["verdict"] for one in found)
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        console = table_console()
        rows = [
            (*map(localized, (one["about"] or one["law"], VERDICTS[one["verdict"]])), one["measured"]) for one in found
        ]
        heads = [(head, FOLD) for head in HEADS]
        console.print(make_table(heads, rows, title=f"{model}: {report['called']}, {report['kind']}"))
        for one in {one["mistake"]: one for one in found if one["says"]}.values():
            console.print(f"\n{localized(one['says'])}", markup=False, soft_wrap=True)
            places = [one["where"], one["erratum"]]
            console.print(f"  {localized(_('cure: {cure}', localized(one['cure'])))}", markup=False, soft_wrap=True)
            console.print("  " + ", ".join(place for place in places if place), markup=False, soft_wrap=True)
        console.print()
        if verdicts["not asked"]:
            console.print(_("{count} laws could not be asked: of these nothing is known", verdicts["not asked"]))
        loss = any(one["law"] == "next token" for one in found)
        console.print(OUTSIDE if loss else OUTSIDE_AND_LOSS, soft_wrap=True)
    if verdicts["broken"] or verdicts["not asked"]:
        raise typer.Exit(1)
