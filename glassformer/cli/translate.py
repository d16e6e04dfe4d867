"""`glassformer translate`: texts in, texts out, by a model that learned from pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli import lines, writing
from glassformer.errors import ConfigError

if TYPE_CHECKING:
    from glassformer.tasks import Answer


def translate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    texts: lines.Texts = None,
    file: lines.InputFile = None,
    out: lines.OutputFile = None,
    resume: lines.Resume = False,
    beam: writing.Beam = None,
    n_best: writing.NBest = None,
    scores: Annotated[bool, typer.Option("--scores", help="The score before each answer, and a tab.")] = False,
    align: Annotated[
        bool,
        typer.Option("--align", help="After each answer a tab and links of tokens, source-answer, counted from 0."),
    ] = False,
    align_words: Annotated[
        bool, typer.Option("--align-words", help="The same by words, in Pharaoh's form: blanks part words.")
    ] = False,
    as_json: lines.AsJson = False,
    trace: Annotated[bool, typer.Option("--trace", help="With --json: every step of the beam.")] = False,
    term: writing.Terms = None,
    glossary: Annotated[Path | None, typer.Option(help="A file of WORD<tab>TERM lines, as for --term.")] = None,
    prefix: writing.Prefix = "",
    ban: writing.Banned = None,
    stop: writing.Stops = None,
    temperature: writing.Temperature = None,
    top_k: writing.TopK = None,
    top_p: writing.TopP = None,
    min_p: writing.MinP = None,
    num_samples: writing.NumSamples = None,
    seed: writing.Seed = None,
    max_new_tokens: writing.MaxNewTokens = None,
    strict: writing.Strict = None,
    batch_size: lines.BatchSize = None,
    engine: writing.Engine = None,
    settings: writing.Settings = None,
    device: lines.Device = "auto",
    step: lines.Step = None,
) -> None:
    """Translate texts, or each line of stdin or of a file.

    One line for each line, in order; with --n-best N (or --num-samples N) N lines for each. Blank lines stay blank. Exit
    codes: 0 all answered; 1 some lines could not be answered (stderr says which, and their answer is an empty line); 2
    something to put right.
    """
    given = lines.Input(texts, file, out, resume)
    given.check()
    if trace and not as_json:
        raise ConfigError("--trace tells more than a line can hold; add --json")
    options = writing.decode_options(
        settings,
        beam=beam,
        n_best=n_best,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        num_samples=num_samples,
        seed=seed,
        max_new_tokens=max_new_tokens,
        strict=strict,
        batch_size=batch_size,
        engine=engine,
    )
    constraints = writing.make_constraints(term, glossary, prefix, ban, stop)

    from glassformer import tasks
    from glassformer.api import load

    model = load(run, device=device, step=step)
    model.require("translate")
    config = tasks.decode_settings(model, **options)
    tasks.check_constraints(model, constraints, config)
    align = align or align_words
    wide = 1 if as_json else writing.answers_a_text(config)

    def words(answer: Answer) -> list[tuple[int, int]]:
        return tasks.word_links(answer, tokens_are_words=model.tokenizers.target.kind == "word")

    def show(text: str, answers: list[Answer]) -> lines.Output:
        tokens = sum(len(answer.ids) for answer in answers)
        if as_json:
            facts = [writing.answer_facts(answer, align=align, trace=trace) for answer in answers]
            for fact, answer in zip(facts, answers, strict=True):
                fact |= {"word_links": words(answer)} if align_words else {}
            return lines.Output([lines.as_line({"source": text, "answers": facts})], tokens)
        shown = []
        for answer in answers:
            before = f"{answer.score:.4f}\t" if scores else ""
            links = words(answer) if align_words else answer.links
            after = "\t" + " ".join(f"{s}-{t}" for s, t in links) if align else ""
            shown.append(before + answer.text + after)
        return lines.Output(shown + [""] * (wide - len(shown)), tokens)

    def answer(texts: Sequence[str]) -> Iterator[lines.Output]:
        found = tasks.translate_each(model, texts, config=config, constraints=constraints, align=align, trace=trace)
        return (show(text, answers) for text, answers in zip(texts, found, strict=True))

    depends_on = (
        asdict(config)
        | asdict(constraints)
        | {"scores": scores, "align": align, "words": align_words, "json": as_json, "trace": trace}
    )
    fingerprint = lines.run_fingerprint(run, step) if out is not None else ""
    job = lines.Job(
        "translate",
        fingerprint,
        depends_on,
        answer,
        as_json,
        {"answers": []},
        wide,
        batch=config.batch_size or lines.BATCH,
        group=writing.lines_together(config),
    )
    lines.reply(given, job)
