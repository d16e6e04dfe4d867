"""Options that several verbs take, each with its help once. Those that a single verb takes are told by options.toml.

Of decoding, what is in common use has a name of its own (`NAMED`); type and help are the setting's (`DecodeConfig`). Every other
setting of `[decode]` is reached by `--set name=value`.
"""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer

from glassformer.config import DecodeConfig
from glassformer.config.fields import type_hints

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def descriptions(file: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """An options.toml: what the options and arguments of a single verb are told by, by its function and the parameter."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def documented(verb: F) -> F:
    """A decorator: in the signature that the command line is made of, the parameters that the options.toml beside the verb's file
    tells of become the options and arguments it describes."""
    own, made = inspect.signature(verb, eval_str=True), []
    about = descriptions(Path(verb.__code__.co_filename).with_name("options.toml"))[verb.__name__]
    for parameter in own.parameters.values():
        if told := dict(about.get(parameter.name, {})):
            kind = typer.Argument if told.pop("argument", False) else typer.Option
            note: Any = kind(*told.pop("names", ()), **told)
            parameter = parameter.replace(annotation=Annotated[parameter.annotation, note])
        made.append(parameter)
    verb.__signature__ = own.replace(parameters=made)  # type: ignore[attr-defined]
    return verb


Run = Annotated[Path, typer.Argument(help="A run folder.")]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(help="Answer with this run as well, by the mean of their probabilities; may be repeated."),
]
RunOut = Annotated[Path | None, typer.Option(help="The run's folder; runs/NAME by default.")]
Changes = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY.SUB=VALUE]...", help="Changes, such as train.steps=200.")
]
Task = Annotated[str | None, typer.Option(help="Files: pairs, text, classify or tag; guessed if not said.")]
JsonObject = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]

# Texts in, lines out.
Texts = Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts; without any, lines of stdin.")]
InputFile = Annotated[Path | None, typer.Option("--file", help="A file with a text a line.")]
OutputFile = Annotated[Path | None, typer.Option("--out", help="A new file for the answers, line by line.")]
Resume = Annotated[bool, typer.Option("--resume", help="With --file and --out: go on with an interrupted job.")]
AsJson = Annotated[bool, typer.Option("--json", help="A JSON object for each text.")]
Device = Annotated[str, typer.Option(help="auto (CUDA where there is one), cpu, cuda or mps (Apple's, not tested).")]
Step = Annotated[int | None, typer.Option(help="Use the checkpoint of this step.")]
BatchSize = Annotated[int | None, typer.Option(help="Texts answered at a time.")]

# How a model is told to write.
NAMED = (
    *("beam", "n_best", "temperature", "top_k", "top_p", "min_p", "num_samples", "seed", "max_new_tokens"),
    *("batch_invariant", "batch_size", "engine"),
)


def decode_option(name: str) -> Any:
    """The option of a setting of `[decode]`, with the setting's own documentation as its help."""
    about = next(field.metadata["about"] for field in fields(DecodeConfig) if field.name == name).partition("; none")[0]
    # Of a bool, else there were a --no-batch-invariant, too.
    flag = (f"--{name.replace('_', '-')}",) if type_hints(DecodeConfig)[name] is bool else ()
    return typer.Option(*flag, help=f"{about[0].upper()}{about[1:]}.")


def takes_decoding(verb: F) -> F:
    """A decorator: in the signature that the command line is made of, `**decoding` becomes the options of `NAMED`. What is not
    given is None; a choice is taken as text, and a wrong one refused as in a recipe."""
    own, hints, added = inspect.signature(verb, eval_str=True), type_hints(DecodeConfig), []
    for name in NAMED:
        kind = next((one for one in (bool, int, float) if one in (hints[name], *get_args(hints[name]))), str)
        option: Any = Annotated[kind | None, decode_option(name)]  # type: ignore[valid-type]
        added.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option))
    kept = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    verb.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    return verb


Engine = Annotated[str | None, decode_option("engine")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of decode, such as alpha=1.")
]
Terms = Annotated[
    list[str] | None,
    typer.Option("--term", help="Must appear in the answer; WORD=TERM: where the text has WORD. Repeatable."),
]
Prefix = Annotated[str, typer.Option(help="The answer begins so.")]
Banned = Annotated[list[str] | None, typer.Option("--ban", help="Must not appear. Repeatable.")]
Stops = Annotated[list[str] | None, typer.Option("--stop", help="The answer ends before this. Repeatable.")]
