"""A run under the name that clients call it by; the languages it reads and writes, and which one a text is in (by lingua)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path

from glassformer.config import Recipe
from glassformer.errors import ConfigError, UserError
from glassformer.runs.folder import RunFolder
from glassformer.serve.corrections import Corrections
from glassformer.serve.worker import Worker

COPIES = 2  # a model on a CPU is held as it was read, and packed for decoding
UNKNOWN = "und"  # ISO 639: a language that nobody has named
COMMON = ("en", "zh", "de", "fr", "es")  # told apart even where no run reads them
CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})?")
MOST_READ = 1000  # characters of a text that are looked at


def codes_of(recipe: Recipe) -> tuple[tuple[str, ...], str]:
    """The languages a run reads, and the one it writes: as its recipe says, or as the built-in data has them."""
    data = recipe.data
    if data.source_languages or data.target_language:
        return data.source_languages or (UNKNOWN,), data.target_language or UNKNOWN
    if data.direction and (match := re.fullmatch(r"([a-z]{2})-([a-z]{2})", data.direction)):
        return (match[1],), match[2]
    return (UNKNOWN,), UNKNOWN


def codes_from(text: str) -> tuple[tuple[str, ...], str]:
    """The same from `de,fr:en`, as it is written on a command line."""
    sources, colon, target = text.partition(":")
    codes = tuple(code.strip() for code in sources.split(","))
    if not colon or not all(CODE.fullmatch(code) for code in (*codes, target.strip())):
        raise ConfigError("languages are written as de:en, or de,fr:en for a run that reads two, not {text!r}", text)
    return codes, target.strip()


@cache
def names() -> dict[str, str]:
    """The English name of every language that lingua knows, by its code."""
    from lingua import Language

    known = {language.iso_code_639_1.name.lower(): language.name.title() for language in Language.all()}
    return known | {UNKNOWN: "Undetermined"}


def name_of(code: str) -> str:
    """A code's name, or the code itself."""
    return names().get(code.split("-")[0], code)


class Detector:
    """Which language a text is in, among those that are served and a few that are common."""

    def __init__(self, served: Collection[str]) -> None:
        from lingua import IsoCode639_1, LanguageDetectorBuilder

        codes = sorted({code.split("-")[0] for code in (*served, *COMMON)} & set(names()) - {UNKNOWN})
        isos = [getattr(IsoCode639_1, code.upper()) for code in codes]
        self.lingua = LanguageDetectorBuilder.from_iso_codes_639_1(*isos).build()  # reads nothing before it is asked

    def confidences(self, text: str) -> list[tuple[str, float]]:
        """(code, 0 to 100), the likeliest first."""
        values = self.lingua.compute_language_confidence_values(text[:MOST_READ])
        return [(value.language.iso_code_639_1.name.lower(), round(value.value * 100, 1)) for value in values]

    def best(self, text: str, among: Collection[str]) -> tuple[str, float]:
        """The likeliest of these; the first of them where nothing speaks for any."""
        plain = {code.split("-")[0]: code for code in reversed(list(among))}
        for code, confidence in self.confidences(text):
            if code in plain:
                return plain[code], confidence
        return next(iter(among)), 0.0


def kind_of(recipe: Recipe) -> str:
    """What was trained: `transformer`, `gpt on pairs` or `gpt`; anything else is a `reader`, which can be looked into and is
    not served."""
    model = recipe.model
    if model.family == "bert" or model.head != "mlm":
        return "reader"
    return "gpt on pairs" if model.family == "gpt" and recipe.data.prompt_answer else model.family


class ServedRun:
    """A run under the name that clients call it by, loaded or not."""

    def __init__(
        self, path: Path, languages: tuple[tuple[str, ...], str] | None = None, *, to_look_at: bool = False
    ) -> None:
        self.path, self.folder = path.resolve(), RunFolder.open(path.resolve())
        self.name = self.path.name
        self.kind = kind_of(self.folder.recipe)
        if self.kind == "reader" and not to_look_at:
            raise UserError("{path} neither translates nor writes text, so there is nothing to serve it for", path)
        self.sources, self.target = languages or codes_of(self.folder.recipe)
        self.made = int((path / "run.json").stat().st_mtime)
        weights = self.folder.weights_folder(report=lambda _: None)
        self.bytes = COPIES * sum(p.stat().st_size for p in weights.glob("model*.safetensors"))
        self.worker: Worker | None = None  # none while it is not loaded
        self.corrections: Corrections | None = None  # where they are taken
        self.stamp: object = None  # of the weights that are loaded
        self.used_at = 0.0
        self.loading: asyncio.Task[Worker] | None = None
        self.waiting = 0  # requests that wait for it to be loaded: it does not leave before it has them
        self.healthy = False  # has it answered, and has nothing been heard since that it cannot?
        self.failures_seen = 0  # of its worker, before it last answered
        self.try_at = 0.0  # when one that does not work is tried again

    @property
    def translates(self) -> bool:
        """Whether it answers a text with another; a GPT goes on with it."""
        return self.kind in ("transformer", "gpt on pairs")

    @property
    def held(self) -> int:
        """Jobs that its worker has and that are not done."""
        return self.worker.held if self.worker else 0

    def corrected(self) -> dict[str, str]:
        """The answers that somebody has corrected, by their texts."""
        return self.corrections.by_source() if self.corrections else {}

    def stamp_on_disk(self) -> object:
        """What tells the weights on disk from others, cheaply."""
        paths = [self.path / "final/SEAL", *self.path.glob("checkpoints/*/SEAL")]
        return sorted((str(p), p.stat().st_mtime_ns, p.stat().st_ino) for p in paths if p.exists())
