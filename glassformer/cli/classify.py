"""`glassformer classify`: the label of each text, by a BERT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import lines
from glassformer.errors import ConfigError


def classify(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    texts: lines.Texts = None,
    file: lines.InputFile = None,
    out: lines.OutputFile = None,
    resume: lines.Resume = False,
    top: Annotated[int, typer.Option(help="So many labels, the likeliest first.")] = 1,
    as_json: lines.AsJson = False,
    device: lines.Device = "cpu",
    step: lines.Step = None,
) -> None:
    """Classify texts, or each line of stdin or of a file: a label, a tab and its probability for each."""
    from glassformer.api import load
    from glassformer.tasks import classify as classify_texts

    if top < 1:
        raise ConfigError(f"--top must be at least 1, not {top}")
    model = load(run, device=device, step=step)
    model.require("classify")

    def answer(texts: Sequence[str]) -> list[list[str]]:
        out = []
        for text, labels in zip(texts, classify_texts(model, texts), strict=True):
            best = labels[:top]
            if as_json:
                out.append([lines.as_line({"source": text, "labels": [asdict(b) for b in best]})])
            else:
                out.append(["\t".join(f"{b.label}\t{b.probability:.4f}" for b in best)])
        return out

    lines.reply(texts, file, out, resume, lines.Replies(answer, as_json, {"labels": []}))
