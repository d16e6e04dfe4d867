"""From a function to a verb of the command line: its signature and its docstring are its options and their help.

What stands before the `*` of a signature are arguments, what stands behind it are options; a switch that is off by default has no
`--no-` beside it. The last paragraph of the docstring has a line for each of them,

    parameter (--name or METAVAR): its help

and one that several verbs have stands in `SHARED` once. `Example:` is the foot of the help. Of decoding, what is in common use
has an option of its own (`NAMED`), whose type and help are the setting's; every other one is reached by `--set name=value`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import typer

from glassformer.config import DecodeConfig
from glassformer.config.fields import explanations, type_hints
from glassformer.errors import UserError
from glassformer.language import _
from glassformer.screen import be_quiet

SHARED = """
run: A run folder.
texts (TEXT): Texts; without any, lines of stdin.
overrides (KEY.SUB=VALUE): Changes, such as train.steps=200.
file: A file with a text a line.
out: A new file for the answers, line by line.
resume: With --file and --out: go on with an interrupted job.
as_json (--json): One JSON object on stdout.
batch_size: Texts answered at a time.
settings (NAME=VALUE --set): Any other setting of decode, such as alpha=1.
term: Must appear in the answer; WORD=TERM: where the text has WORD. Repeatable.
prefix: The answer begins so.
ban: Must not appear. Repeatable.
stop: The answer ends before this. Repeatable.
ensemble: Answer with this run as well, by the mean of their probabilities; may be repeated.
task: Files: pairs, text, classify or tag; guessed if not said.
source_field: CSV, JSON, Parquet: the field of the source.
target_field: The field of the target.
device: auto (CUDA where there is one), cpu, cuda or mps (Apple's, not tested).
step: Use the checkpoint of this step.
quiet (--quiet -q): Print only results and errors.
"""
NAMED = {
    "translate": ("beam", "n_best", "max_new_tokens", "batch_size", "engine"),
    "generate": (
        *("temperature", "top_k", "top_p", "num_samples", "seed", "beam", "n_best"),
        *("max_new_tokens", "batch_size", "engine"),
    ),
}
"""Of the verbs that write, the settings of decoding that are options."""
PANELS = {
    _("Lines of a file"): ("file", "out", "resume", "jobs", "ray"),
    _("What an answer holds"): ("term", "glossary", "prefix", "ban", "stop"),
    _("Decoding"): (*NAMED["translate"], *NAMED["generate"], "settings", "ensemble", "device", "step"),
}
"""Headings for the options of a verb that has many."""
MANY = 15
PARAMETER = re.compile(r"^(\w+)(?: \(([^)]+)\))?: ", re.MULTILINE)

# ---- the help of a verb


class Description(NamedTuple):
    """What a docstring says of a verb: its paragraphs, an example, and of each parameter how it is written and its help."""

    prose: str
    example: str
    parameters: dict[str, tuple[str, str]]


def described_parameters(text: str) -> dict[str, tuple[str, str]]:
    """The lines about parameters, by their names."""
    pieces = PARAMETER.split(text.strip())[1:]
    return {
        name: (written or "", " ".join(about.split()))
        for name, written, about in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    }


def describe(verb: Callable[..., Any]) -> Description:
    """What the docstring of a verb says."""
    if verb.__doc__ is None:
        raise UserError("python -OO drops the docstrings that options and help are made of; run it without, or with -O")
    prose, example, parameters = [], "", {}
    for paragraph in inspect.cleandoc(verb.__doc__).split("\n\n"):
        if paragraph.startswith("Example: "):
            example = paragraph.removeprefix("Example: ")
        elif (match := PARAMETER.match(paragraph)) and match[1] in inspect.signature(verb).parameters:
            parameters = described_parameters(paragraph)
        else:
            prose.append(paragraph)
    return Description("\n\n".join(prose), example, parameters)


def decoding_parameters(verb: str) -> Iterator[inspect.Parameter]:
    """The options of decoding: what is not given is None; a choice is taken as text, and a wrong one refused as in a recipe."""
    hints = type_hints(DecodeConfig)
    for name in NAMED[verb]:
        option_type = next((each for each in (bool, int, float) if each in (hints[name], *get_args(hints[name]))), str)
        annotation: Any = option_type | None
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def decoding_help() -> dict[str, tuple[str, str]]:
    """The documentation of the settings of `[decode]` as help."""
    texts = {name: about.partition("; none")[0] for name, about in explanations(DecodeConfig).items()}
    return {name: ("", f"{text[0].upper()}{text[1:]}.") for name, text in texts.items()}


def annotated(parameter: inspect.Parameter, written: str, about: str, panel: str | None) -> inspect.Parameter:
    """The parameter with Typer's note of how it is written and what its help is. A note that is there already (bounds of a
    number) is kept and completed."""
    plain, note = parameter.annotation, None
    if get_origin(plain) is Annotated:
        plain, note = get_args(plain)
    is_option = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    note = note or (typer.Option() if is_option else typer.Argument())
    names = [word for word in written.split() if word.startswith("-")]
    if is_option and not names and parameter.default is False:
        names = [f"--{parameter.name.replace('_', '-')}"]  # without it there were a --no- beside it
    if is_option:
        note.param_decls = names or None
    note.metavar = " ".join(word for word in written.split() if word not in names) or None
    note.help, note.rich_help_panel = about or note.help, panel
    return parameter.replace(annotation=Annotated[plain, note])


def as_command(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb as Typer takes it: with every option and its help in its signature, and `--quiet` beside them."""

    @functools.wraps(verb)
    def called(*args: Any, quiet: bool = False, **options: Any) -> Any:
        if quiet:
            be_quiet(True)
        return verb(*args, **options)

    signature, description = inspect.signature(verb, eval_str=True), describe(verb)
    parameters = list(signature.parameters.values())
    if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
        place = list(signature.parameters).index("settings")
        parameters[place:] = [*decoding_parameters(verb.__name__), *parameters[place:-1]]
    quiet_option = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=bool)
    parameters.append(quiet_option)
    about = decoding_help() | described_parameters(SHARED) | description.parameters
    panels = {name: panel for panel, names in PANELS.items() for name in names} if len(parameters) > MANY else {}
    made = [annotated(one, *about.get(one.name, ("", "")), panels.get(one.name)) for one in parameters]
    called.__signature__ = signature.replace(parameters=made)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in made}
    called.__doc__ = description.prose
    return called
