"""`glassformer tag`: the label of each word, by a BERT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import lines


def tag(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    texts: lines.Texts = None,
    file: lines.InputFile = None,
    out: lines.OutputFile = None,
    resume: lines.Resume = False,
    as_json: lines.AsJson = False,
    device: lines.Device = "cpu",
    step: lines.Step = None,
) -> None:
    """Tag the words of texts, or of each line of stdin or of a file: word/LABEL word/LABEL for each.

    Words are cut at spaces; for a run on the built-in date-parts, as its training lines were.
    """
    from glassformer.api import load
    from glassformer.tasks import tag as tag_texts

    model = load(run, device=device, step=step)
    model.require("tag")

    def answer(texts: Sequence[str]) -> list[list[str]]:
        out = []
        for text, words in zip(texts, tag_texts(model, list(texts)), strict=True):
            if as_json:
                out.append([lines.as_line({"source": text, "words": [asdict(w) for w in words]})])
            else:
                out.append([" ".join(f"{w.word}/{w.label}" for w in words)])
        return out

    lines.reply(texts, file, out, resume, lines.Replies(answer, as_json, {"words": []}))
