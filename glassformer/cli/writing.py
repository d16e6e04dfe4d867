"""What the options of `translate` and `generate` say of decoding, and an answer as JSON. What is not said is the recipe's."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.config import DecodeConfig
from glassformer.errors import ConfigError, UserError
from glassformer.files.structured import read_regular

if TYPE_CHECKING:
    import torch

    from glassformer.tasks import Answer, TextConstraints

BATCHES_TOGETHER = 8  # that the driver is given at a time


def decode_options(decoding: dict[str, Any], settings: list[str] | None) -> dict[str, Any]:
    """What a verb's options say of decoding: those that were given, and what --set adds."""
    found = {name: value for name, value in decoding.items() if value is not None}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        name = name.strip().removeprefix("decode.").replace("-", "_")
        if not equals or not name:
            raise ConfigError("--set takes NAME=VALUE, such as alpha=1, not {setting!r}", setting)
        if name in found:
            raise ConfigError("{name} is set twice", name)
        found[name] = value.strip()
    return found


def read_glossary(path: Path) -> dict[str, str]:
    """A file of `word TAB term` lines."""
    glossary: dict[str, str] = {}
    try:
        lines = read_regular(path).decode("utf-8-sig").splitlines()
    except OSError as error:
        raise UserError("the glossary {path} cannot be read: {reason}", path, error.strerror) from None
    except UnicodeDecodeError:
        raise UserError("the glossary {path} is not UTF-8 text", path) from None
    for number, line in enumerate(lines, 1):
        word, tab, term = line.partition("\t")
        if not line.strip():
            continue
        if not tab or not word.strip() or not term.strip():
            raise UserError("line {number} of the glossary {path} is not a word, a tab and a term", number, path)
        glossary[word.strip()] = term.strip()
    return glossary


def make_constraints(
    terms: list[str] | None, glossary: Path | None, prefix: str, banned: list[str] | None, stops: list[str] | None
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
