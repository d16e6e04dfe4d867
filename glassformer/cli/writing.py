"""How a model is told to write: the options that `translate` and `generate` share, and an answer as JSON.

The options in common use have a name of their own; every other setting of `[decode]` is reached by `--set name=value`.
What is not given is left to the recipe.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.config import DecodeConfig
from glassformer.errors import ConfigError, UserError
from glassformer.files.structured import read_regular

if TYPE_CHECKING:
    import torch

    from glassformer.tasks import Answer, TextConstraints

BATCHES_TOGETHER = 8  # that the driver is given at a time
Beam = Annotated[int | None, typer.Option(help="Hypotheses searched side by side; 1 is greedy.")]
NBest = Annotated[int | None, typer.Option(help="So many answers, best first.")]
Temperature = Annotated[float | None, typer.Option(help="Above 0: draw instead of search.")]
TopK = Annotated[int | None, typer.Option(help="Draw among the k likeliest tokens.")]
TopP = Annotated[float | None, typer.Option(help="Draw among the likeliest tokens that make up this share.")]
MinP = Annotated[float | None, typer.Option(help="Draw among tokens at least so likely, relative to the likeliest.")]
NumSamples = Annotated[int | None, typer.Option(help="So many draws.")]
Seed = Annotated[int | None, typer.Option(help="The same seed draws the same text.")]
MaxNewTokens = Annotated[int | None, typer.Option(help="At most so many tokens.")]
Strict = Annotated[bool | None, typer.Option("--strict", help="An answer never depends on its neighbours.")]
Engine = Annotated[
    str | None,
    typer.Option(
        help="What runs the model: auto (fast), plain (the model itself, one token at a time); on a CPU also int8 and "
        "ctranslate2 (CTranslate2 in 8 bits and in float32) and onnx (onnxruntime)."
    ),
]
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


def decode_options(options: dict[str, Any]) -> dict[str, Any]:
    """What a verb's options say of decoding: those with a name of DecodeConfig that were given, and what --set adds."""
    settings: list[str] | None = options.get("settings")
    found = {field.name: options[field.name] for field in fields(DecodeConfig) if options.get(field.name) is not None}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        name = name.strip().removeprefix("decode.").replace("-", "_")
        if not equals or not name:
            raise ConfigError(f"--set takes NAME=VALUE, such as alpha=1, not {setting!r}")
        if name in found:
            raise ConfigError(f"{name} is set twice")
        found[name] = value.strip()
    return found


def read_glossary(path: Path) -> dict[str, str]:
    """A file of `word TAB term` lines."""
    glossary: dict[str, str] = {}
    try:
        lines = read_regular(path).decode("utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(f"the glossary {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"the glossary {path} is not UTF-8 text") from None
    for number, line in enumerate(lines, 1):
        word, tab, term = line.partition("\t")
        if not line.strip():
            continue
        if not tab or not word.strip() or not term.strip():
            raise UserError(f"line {number} of the glossary {path} is not a word, a tab and a term")
        glossary[word.strip()] = term.strip()
    return glossary


def make_constraints(
    terms: list[str] | None,
    glossary: Path | None,
    prefix: str,
    banned: list[str] | None,
    stops: list[str] | None,
) -> TextConstraints:
    """What the options say of what an answer must and must not contain."""
    from glassformer.tasks import TextConstraints

    everywhere = tuple(term for term in terms or [] if "=" not in term)
    pairs = dict(term.split("=", 1) for term in terms or [] if "=" in term)
    known = read_glossary(glossary) if glossary is not None else {}
    return TextConstraints(everywhere, known | pairs, prefix, tuple(banned or ()), tuple(stops or ()))


def answers_a_text(config: DecodeConfig) -> int:
    """How many answers each text gets."""
    return config.num_samples if config.temperature > 0 else config.n_best


def lines_together(config: DecodeConfig, device: torch.device) -> int:
    """How many lines the driver is given at a time: several of its batches, so that it can sort by length and whoever is done
    makes room for another; and no more, since a job that is resumed begins with such a group."""
    from glassformer.machine import rows_at_once

    return BATCHES_TOGETHER * (config.batch_size or max(1, rows_at_once(device) // config.beams))


def answer_facts(answer: Answer, *, align: bool = False, trace: bool = False) -> dict[str, Any]:
    """Everything about one answer. A text that was too long to be read at once has several parts."""
    facts: dict[str, Any] = {
        "text": answer.text,
        "score": answer.score,
        "logprob": answer.logprob,
        "ended": answer.ended,
        "parts": [],
    }
    for part in answer.parts:
        found: dict[str, Any] = {
            "source_tokens": part.source_tokens,
            "tokens": part.tokens,
            "ids": part.hypothesis.ids,
            "token_logprobs": part.hypothesis.token_logprobs,
        }
        if align:
            found["alignment"] = part.hypothesis.alignment
            found["links"] = part.links
        if trace and part.hypothesis.trace is not None:
            found["trace"] = [[asdict(candidate) for candidate in step] for step in part.hypothesis.trace.steps]
        facts["parts"].append(found)
    return facts
