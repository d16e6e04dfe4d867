"""`glassformer tag`: the label of each word, by a BERT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from glassformer.cli import lines, options


def tag(
    run: options.Run,
    texts: options.Texts = None,
    file: options.InputFile = None,
    out: options.OutputFile = None,
    resume: options.Resume = False,
    as_json: options.AsJson = False,
    batch_size: options.BatchSize = None,
    device: options.Device = "auto",
    step: options.Step = None,
) -> None:
    """Tag the words of texts, or of each line of stdin or of a file: word/LABEL word/LABEL for each.

    Words are cut at spaces; for a run on the built-in date-parts, as its training lines were.
    """

    def answers(model: Any, texts: Sequence[str]) -> Iterator[lines.Read]:
        from glassformer import tasks

        for words in tasks.tag(model, list(texts)):
            yield {"words": [asdict(one) for one in words]}, " ".join(f"{one.word}/{one.label}" for one in words)

    given, how = lines.Input(texts, file, out, resume), {"json": as_json}
    lines.reply_by_reading("tag", run, given, answers, how, {"words": []}, batch_size, device, step)
