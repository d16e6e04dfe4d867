"""`glassformer generate`: text that goes on where a prompt ends, by a GPT."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli import lines, writing
from glassformer.errors import ConfigError

if TYPE_CHECKING:
    from glassformer.tasks import Answer

BETWEEN = "-" * 40


def generate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROMPT", help="Prompts; without any, lines of stdin, or else a document begins."),
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="A prompt, as if it stood behind the run.")] = None,
    file: lines.InputFile = None,
    out: lines.OutputFile = None,
    resume: lines.Resume = False,
    stream: Annotated[bool, typer.Option("--stream", help="Show the text as it is written.")] = False,
    only_new: Annotated[bool, typer.Option("--only-new", help="Leave the prompt out of what is shown.")] = False,
    as_json: lines.AsJson = False,
    num_samples: writing.NumSamples = None,
    seed: writing.Seed = None,
    temperature: writing.Temperature = None,
    top_k: writing.TopK = None,
    top_p: writing.TopP = None,
    min_p: writing.MinP = None,
    max_new_tokens: writing.MaxNewTokens = None,
    beam: writing.Beam = None,
    n_best: writing.NBest = None,
    term: writing.Terms = None,
    prefix: writing.Prefix = "",
    ban: writing.Banned = None,
    stop: writing.Stops = None,
    strict: writing.Strict = None,
    batch_size: lines.BatchSize = None,
    engine: writing.Engine = None,
    settings: writing.Settings = None,
    device: lines.Device = "auto",
    step: lines.Step = None,
) -> None:
    """Continue prompts, or each line of stdin or of a file. Tokens are drawn, unless --temperature 0 or --beam asks for a
    search; the same seed draws the same text.

    Prompts of the command line are answered with their text as it is; for lines there is a line each, in order (with
    --num-samples N or --n-best N there are N), in which a line break is written as \\n.
    """
    prompts = [*([] if prompt is None else [prompt]), *(texts or [])]
    given = lines.Input(prompts, file, out, resume)
    given.check()
    if stream and as_json:
        raise ConfigError("--stream shows text as it comes and --json whole answers; choose one of them")
    if stream and term:
        raise ConfigError("--term is met by a search, which changes its mind, and --stream cannot; choose one of them")
    if stream and (file is not None or out is not None or len(prompts) > 1):
        raise ConfigError("--stream shows one text as it is written; give one prompt, and no --file or --out")
    options = writing.decode_options(
        settings,
        num_samples=num_samples,
        seed=seed,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        max_new_tokens=max_new_tokens,
        beam=beam,
        n_best=n_best,
        strict=strict,
        batch_size=batch_size,
        engine=engine,
    )
    constraints = writing.make_constraints(term, None, prefix, ban, stop)
    if constraints.glossary:
        raise ConfigError("--term WORD=TERM is for translations; a GPT is given the terms alone")

    from glassformer import tasks
    from glassformer.api import load

    for text in prompts:
        tasks.check_text(text)
    model = load(run, device=device, step=step)
    model.require("generate")
    if constraints.terms and temperature is None and beam is None:
        options["beam"] = model.recipe.decode.beam or 4  # terms are met by a search
    config = tasks.decode_settings(model, **options)
    tasks.check_constraints(model, constraints, config)
    shows_prompt = not only_new and model.kind != "gpt on pairs"
    wide = 1 if as_json else writing.answers_a_text(config)

    def show(prompt: str, answers: list[Answer]) -> lines.Output:
        tokens = sum(len(answer.ids) for answer in answers)
        if as_json:
            facts = [writing.answer_facts(answer) for answer in answers]
            return lines.Output([lines.as_line({"prompt": prompt, "answers": facts})], tokens)
        shown = [(prompt if shows_prompt else "") + answer.text for answer in answers]
        return lines.Output(shown + [""] * (wide - len(shown)), tokens)

    def answer(prompts: Sequence[str]) -> list[lines.Output]:
        found = tasks.generate(model, prompts, config=config, constraints=constraints)
        return [show(prompt, answers) for prompt, answers in zip(prompts, found, strict=True)]

    if stream:
        begins = prompts[0] if prompts else ""
        shown = begins if shows_prompt else ""
        write_stream(shown, tasks.stream_generated(model, begins, config=config, constraints=constraints))
    elif given.file is None and given.out is None and (prompts or sys.stdin is None or sys.stdin.isatty()):
        between = "\n" if as_json else f"\n{BETWEEN}\n"
        outputs = answer(prompts or [""])
        lines.stdout_write(between.join(text for output in outputs for text in output.lines) + "\n")
    else:
        lines.reply(
            given,
            lines.Job(
                "generate",
                lines.run_fingerprint(run, step) if out is not None else "",
                asdict(config) | asdict(constraints) | {"prompt is shown": shows_prompt, "json": as_json},
                answer,
                as_json,
                {"answers": []},
                wide,
                batch=config.batch_size or lines.BATCH,
                group=writing.lines_together(config),
                begins=True,
            ),
        )


def write_stream(shown: str, pieces: Iterator[str]) -> None:
    """A text as it comes. What is wrong is said without a beginning of an answer, so the first piece is waited for."""
    first = next(pieces, "")
    lines.stdout_write(shown + first)
    for piece in pieces:
        lines.stdout_write(piece)
    lines.stdout_write("\n")
