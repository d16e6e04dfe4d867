"""`glassformer fill`: the words behind the masks, by a BERT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import lines


def fill(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    texts: lines.Texts = None,
    file: lines.InputFile = None,
    out: lines.OutputFile = None,
    resume: lines.Resume = False,
    top: Annotated[int, typer.Option(help="So many words for each mask.")] = 1,
    as_json: lines.AsJson = False,
    device: lines.Device = "cpu",
    step: lines.Step = None,
) -> None:
    """Fill in texts, or each line of stdin or of a file: \\[MASK] or ___ stands for a word.

    A line for each line: the text with the likeliest words; with --top above 1, then a tab and the likeliest words and
    their probabilities for each mask.
    """
    from glassformer.api import load
    from glassformer.tasks import fill as fill_texts

    model = load(run, device=device, step=step)
    model.require("fill")

    def answer(texts: Sequence[str]) -> list[list[str]]:
        out = []
        for text, filled in zip(texts, fill_texts(model, texts, top=top), strict=True):
            if as_json:
                out.append([lines.as_line({"source": text, **asdict(filled)})])
                continue
            columns = [
                ", ".join(f"{word.label.strip()} {word.probability:.3f}" for word in mask) for mask in filled.masks
            ]
            out.append(["\t".join([filled.text, *(columns if top > 1 else [])])])
        return out

    lines.reply(texts, file, out, resume, lines.Replies(answer, as_json, {"masks": []}))
