"""`glassformer classify`: the label of each text, by a BERT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from glassformer.cli import lines, options


@options.documented
def classify(
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
    """Classify texts, or each line of stdin or of a file: a label, a tab and its probability for each."""

    def answers(model: Any, texts: Sequence[str]) -> Iterator[lines.Read]:
        from glassformer import tasks

        for labels in tasks.classify(model, texts):
            best = labels[:top]
            line = "\t".join(f"{one.label}\t{one.probability:.4f}" for one in best)
            yield {"labels": [asdict(one) for one in best]}, line

    given, how = lines.Input(texts, file, out, resume), {"top": top, "json": as_json}
    lines.reply_by_reading("classify", run, given, answers, how, {"labels": []}, batch_size, device, step)
