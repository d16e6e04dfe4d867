"""How an external model writes: what its generation_config.json (or, where there is none, its config.json) says to `generate`, as
our `[decode]`.

Taken over is what means the same on both sides. What does not, or has no setting here, is named in a note and left alone:

    repetition_penalty   greedy and drawing, it scales raw scores there, and log-probabilities here (beams scale those there, too)
    max_length, min_length of a GPT   count the prompt there, and new tokens here
    forced_eos_token_id   a text cut at its limit is given its end there, and stays as it was written here
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeGuard

from glassformer.config import DecodeConfig
from glassformer.config.fields import bounds_of
from glassformer.formats.untrusted import read_json
from glassformer.language import _

MOST: dict[str, Any] = {own.name: bounds_of(own).le for own in fields(DecodeConfig)}
NEUTRAL: dict[str, Any] = json.loads(Path(__file__).with_name("neutral.json").read_text(encoding="utf-8"))
"""What may be left aside (neutral.json), and the value under which it changes nothing."""


def is_number(value: Any, low: float, high: float) -> TypeGuard[int | float]:
    """A number, and no truth value, between two others."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def ids_of(value: Any) -> list[int]:
    """One id or a list of them."""
    found = value if isinstance(value, list) else [value]
    return [i for i in found if type(i) is int and i >= 0]


@dataclass(frozen=True)
class GenerationSettings:
    """What the files of a folder say about writing. `said` has the settings of `generate`, `config` is config.json."""

    said: Mapping[str, Any]
    config: Mapping[str, Any]

    @staticmethod
    def read(folder: Path, config: Mapping[str, Any]) -> GenerationSettings:
        """As transformers reads it: generation_config.json, or config.json where that is not there."""
        own = (folder / "generation_config.json").exists()
        return GenerationSettings(read_json(folder, "generation_config.json") if own else config, config)

    def ids(self, name: str) -> list[int]:
        """The ids that a setting names, in either file."""
        return ids_of(self.said.get(name)) or ids_of(self.config.get(name))

    @property
    def ends(self) -> list[int]:
        """Every id that ends a text; first that of config.json, where it is one of them."""
        found, usual = self.ids("eos_token_id"), ids_of(self.config.get("eos_token_id"))[:1]
        return list(dict.fromkeys([*(i for i in usual if i in found), *found]))

    @property
    def start(self) -> int | None:
        """The id that a decoder of an encoder-decoder begins with."""
        found = self.ids("decoder_start_token_id") or self.ids("bos_token_id")
        return found[0] if found else None

    @property
    def forced(self) -> int | None:
        """The id that every answer begins with, if any."""
        found = ids_of(self.said.get("forced_bos_token_id"))
        return found[0] if found else None

    @property
    def never(self) -> list[int]:
        """Single ids that are never written."""
        words = self.said.get("bad_words_ids")
        words = words if isinstance(words, list) else []
        alone = [word[0] for word in words if isinstance(word, list) and len(word) == 1]
        return list(dict.fromkeys([*ids_of(self.said.get("suppress_tokens") or []), *ids_of(alone)]))


@dataclass
class Taken:
    """`decode`: the settings of ours; `left`: by their names, the settings of theirs that were left aside."""

    decode: dict[str, Any] = field(default_factory=dict)
    left: dict[str, Any] = field(default_factory=dict)

    @property
    def note(self) -> list[str]:
        """One line on what was left aside."""
        if not self.left:
            return []
        named = ", ".join(f"{name}={str(value)[:40]}" for name, value in self.left.items())
        return [
            _(
                "its generation_config.json also says {named}; no setting of [decode] means the same, so it is left aside",
                named,
            )
        ]


def lengths(said: Mapping[str, Any], encoder: bool, block: int, left: dict[str, Any]) -> dict[str, Any]:
    """Fewest and most new tokens. Theirs count what the decoder begins with: one token, or a GPT's whole prompt."""
    found: dict[str, Any] = {}
    for ours, total in (("max_new_tokens", "max_length"), ("min_new_tokens", "min_length")):
        if is_number(said.get(ours), 1, MOST["max_new_tokens"]):
            found[ours] = int(said[ours])
        elif is_number(value := said.get(total), 2, MOST["max_new_tokens"]):
            if encoder:
                found[ours] = int(value) - 1
            elif total == "min_length" or value < block:
                left[total] = value
    if found.get("min_new_tokens", 0) > found.get("max_new_tokens", MOST["max_new_tokens"]):
        left["min_length"] = said.get("min_length", said.get("min_new_tokens"))
        found.pop("min_new_tokens")
    return found


def drawing(said: Mapping[str, Any]) -> dict[str, Any]:
    """How tokens are drawn; transformers draws among the likeliest 50 where nothing else is said."""
    heat, k, p, least = (said.get(name) for name in ("temperature", "top_k", "top_p", "min_p"))
    found: dict[str, Any] = {"temperature": float(heat) if is_number(heat, 1e-6, MOST["temperature"]) else 1.0}
    k = 50 if k is None else k
    found |= {"top_k": int(k)} if is_number(k, 1, 1e9) else {}
    found |= {"top_p": float(p)} if is_number(p, 1e-9, 1) and p < 1 else {}
    return found | ({"min_p": float(least)} if is_number(least, 0, 1) else {})


def searching(said: Mapping[str, Any], beams: int) -> dict[str, Any]:
    """Beams, how their lengths compare and when they stop."""
    alpha, stops = said.get("length_penalty"), said.get("early_stopping")
    alpha = float(alpha) if is_number(alpha, -10, 10) else 1.0
    found: dict[str, Any] = {"beam": beams, "length_rule": "power", "alpha": alpha}
    if beams > 1:
        found["stop_rule"] = "first-k" if stops is True else "exact" if stops == "never" or alpha <= 0 else "best-now"
    return found


def take_over(generation: GenerationSettings, family: str, block: int) -> Taken:
    """What `[decode]` can say of it, for a model that writes at most `block` tokens."""
    said, taken, encoder = generation.said, Taken(), family == "transformer"
    beams = said.get("num_beams")
    beams = int(beams) if is_number(beams, 1, 64) else 1
    if said.get("do_sample") is True:
        taken.decode = drawing(said) | ({"length_rule": "power", "alpha": 1.0} if encoder else {})
        if beams > 1:
            taken.left["num_beams"], beams = beams, 1
    else:
        taken.decode = searching(said, beams) if encoder or beams > 1 else {"beam": 1}
    taken.decode |= lengths(said, encoder, block, taken.left)
    if is_number(n := said.get("no_repeat_ngram_size"), 1, MOST["no_repeat_ngram"]):
        taken.decode["no_repeat_ngram"] = int(n)
    # A start that is the end counts as written.
    same = beams > 1 and not (encoder and generation.start in generation.ends)
    if same and is_number(said.get("repetition_penalty"), 1e-6, MOST["repetition_penalty"]):
        taken.decode["repetition_penalty"] = float(said["repetition_penalty"])
    if generation.ends[:1] and generation.ends[0] in ids_of(said.get("suppress_tokens")):
        taken.left["suppress_tokens"] = generation.ends[0]
    words = said.get("bad_words_ids")
    single = isinstance(words, list) and all(isinstance(word, list) and len(word) == 1 for word in words)
    done = {"do_sample", "suppress_tokens", "max_length", "min_length", *(["bad_words_ids"] if single else [])}
    done |= {"repetition_penalty"} if "repetition_penalty" in taken.decode else set()
    for name, usual in NEUTRAL.items():
        if name not in done and said.get(name) not in (None, usual, []):
            taken.left[name] = said[name]
    return taken
