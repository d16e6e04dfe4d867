"""`glassformer audit`: the laws of a Transformer, run against anyone's."""

from __future__ import annotations

import json

import typer

from glassformer.cli import options
from glassformer.errors import ConfigError
from glassformer.language import _, localized
from glassformer.screen import FOLD, make_table, table_console

HEADS = (_("law"), _("verdict"), _("measured"))
VERDICTS = {"holds": _("holds"), "broken": _("broken"), "look": _("look"), "not asked": _("not asked")}
CURE = _("cure:")
KINDS = ("auto", "decoder", "encoder", "encoder-decoder")


@options.documented
def audit(
    model: str,
    arg: list[str] | None = None,
    vocab: int = 0,
    kind: str = "auto",
    time_first: bool = False,
    as_json: options.JsonObject = False,
) -> None:
    """Look for the known mistakes in anyone's Transformer in torch: its file is run, small random texts go in, and what must not
    change its logits (later tokens, padding, neighbours) is changed. Exit code 1 where a law is broken.
    """
    if kind not in KINDS:
        raise ConfigError("--kind is one of {choices}, not {kind!r}", ", ".join(KINDS), kind)
    from glassformer.lab import audit as laws

    subject = laws.find_subject(
        laws.build(model, laws.parse_args(arg or []), vocab), vocab=vocab, kind=kind, time_first=time_first
    )
    found = [laws.facts_of(finding) for finding in laws.audit(subject)]
    if as_json:
        facts = {"model": model, "called": subject.called, "kind": subject.kind, "vocab_size": subject.vocab}
        print(json.dumps(facts | {"laws": found}, ensure_ascii=False))
    else:
        console = table_console()
        rows = [
            (*map(localized, (one["about"] or one["law"], VERDICTS[one["verdict"]])), one["measured"]) for one in found
        ]
        heads = [(head, FOLD) for head in HEADS]
        console.print(make_table(heads, rows, title=f"{model}: {subject.called}, {subject.kind}"))
        for one in (one for one in found if one["says"]):
            console.print(f"\n{localized(one['says'])}", markup=False, soft_wrap=True)
            places = [one["where"], one["erratum"]]
            console.print(f"  {localized(CURE)} {localized(one['cure'])}", markup=False, soft_wrap=True)
            console.print("  " + ", ".join(place for place in places if place), markup=False, soft_wrap=True)
    if any(one["verdict"] == "broken" for one in found):
        raise typer.Exit(1)
