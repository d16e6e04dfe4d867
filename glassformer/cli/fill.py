"""`glassformer fill`: the words behind the masks, by a BERT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from glassformer.cli import lines, options


@options.documented
def fill(
    run: options.Run,
    texts: options.Texts = None,
    file: options.InputFile = None,
    out: options.OutputFile = None,
    resume: options.Resume = False,
    top: int = 1,
    as_json: options.AsJson = False,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    step: options.Step = None,
) -> None:
    """Fill in texts, or each line of stdin or of a file: \\[MASK] or ___ stands for a word.

    A line for each line: the text with the likeliest words; with --top above 1, then a tab and the likeliest words and
    their probabilities for each mask. A line break that was found behind a mask is written as \\n.
    """

    def answers(model: Any, texts: Sequence[str]) -> Iterator[lines.Read]:
        from glassformer import tasks

        for filled in tasks.fill(model, texts, top=top):
            masks = [", ".join(f"{w.label.strip(' ')} {w.probability:.3f}" for w in mask) for mask in filled.masks]
            yield asdict(filled), "\t".join([filled.text, *(masks if top > 1 else [])])

    given, how = lines.Input(texts, file, out, resume), {"top": top, "json": as_json}
    lines.reply_by_reading("fill", run, given, answers, how, {"masks": []}, batch_size, device, step)
