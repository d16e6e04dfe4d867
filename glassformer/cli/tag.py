"""`glassformer tag`: the label of each word, by a BERT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

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
    given = lines.Input(texts, file, out, resume)
    given.check()
    lines.check_counts(batch_size=batch_size)

    from glassformer import tasks
    from glassformer.api import load

    model = load(run, device=device, step=step)
    model.require("tag")
    unknown = lines.Unknown(lambda text: tasks.unknown(model, text))

    def answer(texts: Sequence[str]) -> list[lines.Output]:
        found = []
        for text, words in zip(texts, tasks.tag(model, list(texts)), strict=True):
            if as_json:
                found.append(
                    lines.Output(
                        [lines.as_line({"source": text, "words": [asdict(w) for w in words], **unknown.fact(text)})]
                    )
                )
            else:
                found.append(lines.Output([" ".join(f"{w.word}/{w.label}" for w in words)]))
        return found

    job = lines.TextJob(
        "tag",
        lines.run_fingerprint(run, step) if out is not None else "",
        {"json": as_json},
        answer,
        as_json,
        {"words": []},
        batch=batch_size or lines.BATCH,
        group=8 * (batch_size or lines.BATCH),
        escape=lines.escaped,
        unknown=unknown,
    )
    lines.reply(given, job)
