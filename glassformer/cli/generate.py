"""`glassformer generate`: text that goes on where a prompt ends, by a GPT."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli import lines, writing
from glassformer.errors import ConfigError

BETWEEN = "\n" + "-" * 40 + "\n"


def generate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    prompt: Annotated[str, typer.Option(help="What the text begins with; without it, a document begins.")] = "",
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
    engine: writing.Engine = None,
    settings: writing.Settings = None,
    device: lines.Device = "cpu",
    step: lines.Step = None,
) -> None:
    """Continue a prompt. Tokens are drawn, unless --temperature 0 or --beam asks for a search; the same seed draws the
    same text."""
    from glassformer.api import load
    from glassformer.tasks import check_text, decode_settings, stream_generated
    from glassformer.tasks import generate as generate_texts

    check_text(prompt)
    if stream and as_json:
        raise ConfigError("--stream shows text as it comes and --json whole answers; choose one of them")
    if stream and term:
        raise ConfigError("--term is met by a search, which changes its mind, and --stream cannot; choose one of them")
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
        engine=engine,
    )
    constraints = writing.make_constraints(term, None, prefix, ban, stop)
    if constraints.glossary:
        raise ConfigError("--term WORD=TERM is for translations; a GPT is given the terms alone")
    model = load(run, device=device, step=step)
    model.require("generate")
    if constraints.terms and temperature is None and beam is None:
        options["beam"] = model.recipe.decode.beam or 4  # terms are met by a search
    shown = "" if only_new or model.kind == "gpt on pairs" else prompt
    config = decode_settings(model, **options)
    if stream:
        pieces = stream_generated(model, prompt, config=config, constraints=constraints)
        first = next(pieces, "")  # before the first word, since what is wrong is said without a beginning of an answer
        lines.stdout_write(shown + first)
        for piece in pieces:
            lines.stdout_write(piece)
        lines.stdout_write("\n")
        return
    answers = generate_texts(model, [prompt], config=config, constraints=constraints)[0]
    if as_json:
        for answer in answers:
            facts = {"prompt": prompt, **writing.answer_facts(answer)}
            lines.stdout_write(lines.as_line(facts) + "\n")
        return
    lines.stdout_write(BETWEEN.join(shown + answer.text for answer in answers) + "\n")
