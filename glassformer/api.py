"""A trained model one can talk to.

    model = glassformer.load("runs/dates")
    model.translate(["3 mai 1979"])        # ["1979-05-03"]

Ids stay inside: text comes in and text goes out, laid before the model as it was in training (data/examples.py). What a
model has no method for, because it is of another family, is refused in a sentence.

How text is written is the recipe's `[decode]`, changed by keyword options of the same names (`beam=8`, `temperature=0.7`).
An option that asks for a search puts aside what the recipe says of drawing, and the other way round; two options that
contradict each other are refused. Many texts are one batch: they are cut into pieces where they are long (decode/longtext.py),
all pieces of all texts are decoded together, and each text is put together again with its own spacing.

The module knows nothing of files, lines and terminals (cli/) and nothing of search (decode/).
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from glassformer.config import DecodeConfig, Recipe
from glassformer.config.fields import coerce
from glassformer.config.recipe import refuse_unknown
from glassformer.data.builtin.dates import date_tokens
from glassformer.decode import (
    BeamTrace,
    Controls,
    Demands,
    Hypothesis,
    Piece,
    fits_within,
    generate_batch,
    join_pieces,
    predict,
    spellings,
    split_text,
    stream_generation,
    translate_batch,
)
from glassformer.decode.generate import make_task
from glassformer.decode.results import Ending
from glassformer.errors import ConfigError, UserError
from glassformer.models import BERT, GPT, Transformer
from glassformer.run_folder import RunFolder
from glassformer.text.languages import is_unspaced
from glassformer.text.tokenizer import BOS, CONTROL, EOS, MASK, UNK, Tokenizer
from glassformer.text.tokenizers import Tokenizers

LONGEST_TEXT = 100_000
"""Characters a text may have; what is longer is a file, and its lines are texts."""
MASK_MARKER = re.compile(r"\[MASK\]|_{3,}")
CAN = {
    "transformer": "translate",
    "gpt": "generate",
    "gpt on pairs": "translate",
    "mlm": "fill",
    "classify": "classify",
    "tag": "tag",
}
SEARCHING: dict[str, Any] = {"beam": None, "n_best": 1, "groups": 1, "diversity": 0.0}
DRAWING: dict[str, Any] = {"temperature": 0.0, "top_k": None, "top_p": None, "min_p": None, "num_samples": 1}
USUAL_TEMPERATURE = 0.8  # a GPT whose recipe and caller leave it open draws at this


@dataclass(frozen=True)
class Label:
    label: str
    probability: float


@dataclass(frozen=True)
class Tagged:
    """A word of a sentence and its likeliest label."""

    word: str
    label: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text with the likeliest word behind each mask, and for each mask its likeliest words."""

    text: str
    masks: list[list[Label]]


@dataclass(frozen=True)
class Wishes:
    """What answers must and must not contain, as text. The vocabulary decides how it is spelled, and a banned text is
    banned in the spelling it has at the start of a text and the one it has after a space."""

    terms: tuple[str, ...] = ()  # each appears in every answer
    glossary: Mapping[str, str] = field(default_factory=dict)  # where the source has the key, the answer has the value
    prefix: str = ""  # every answer begins so
    banned: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()  # an answer ends before the first of them


@dataclass(frozen=True)
class Part:
    """What was decoded at once: a whole text, or a sentence of one that was too long."""

    source_tokens: list[str]  # of the source (a GPT: of the prompt), to be read
    tokens: list[str]  # of the answer
    hypothesis: Hypothesis

    @property
    def links(self) -> list[tuple[int, int]]:
        """(source token, answer token): for each answer token the source token that was looked at most. One that looked
        at the end of the source, which is where a head looks that has nothing to look for, has no link."""
        links = []
        for target, weights in enumerate(self.hypothesis.alignment or []):
            source = max(range(len(weights)), key=weights.__getitem__)
            if source < len(weights) - 1:
                links.append((source, target))
        return links


@dataclass(frozen=True)
class Answer:
    """One answer to one text. Score and log-probability are sums over its parts."""

    text: str
    parts: list[Part]

    @property
    def ids(self) -> list[int]:
        return [token for part in self.parts for token in part.hypothesis.ids]

    @property
    def score(self) -> float:
        return sum(part.hypothesis.score for part in self.parts)

    @property
    def logprob(self) -> float:
        return sum(part.hypothesis.logprob for part in self.parts)

    @property
    def token_logprobs(self) -> list[float]:
        """One for each id, and after each part that of its EOS."""
        return [value for part in self.parts for value in part.hypothesis.token_logprobs]

    @property
    def ended(self) -> Ending:
        endings = [part.hypothesis.ended for part in self.parts]
        return next((ending for ending in ("length", "stop") if ending in endings), "eos")

    @property
    def links(self) -> list[tuple[int, int]]:
        """(source token, answer token), both counted through all parts."""
        links, source, target = [], 0, 0
        for part in self.parts:
            links += [(source + s, target + t) for s, t in part.links]
            source, target = source + len(part.source_tokens), target + len(part.tokens)
        return links

    @property
    def traces(self) -> list[BeamTrace]:
        return [part.hypothesis.trace for part in self.parts if part.hypothesis.trace is not None]


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the names, and of the types, that DecodeConfig has."""
    hints = typing.get_type_hints(DecodeConfig)
    refuse_unknown(options, list(hints), "decode")
    return {name: coerce(value, hints[name], f"decode.{name}") for name, value in options.items()}


def changed(config: DecodeConfig, options: Mapping[str, Any]) -> DecodeConfig:
    """The config with options on top. Searching and drawing exclude each other: what is asked for now wins."""
    values, options = asdict(config), checked(options)
    draws = (options.get("temperature") or 0) > 0
    searches = not draws and any(options.get(name) is not None for name in ("beam", "n_best", "groups", "temperature"))
    if draws:
        values |= SEARCHING
    if searches:
        values |= DRAWING
    if options.get("beam") is not None:
        values |= {name: default for name, default in SEARCHING.items() if name != "beam"}
    values |= options
    if values["beam"] is None and not draws and values["n_best"] > DecodeConfig().beams:
        groups = max(1, values["groups"])
        values["beam"] = -(-values["n_best"] // groups) * groups
    return DecodeConfig(**values)


def check_text(text: str) -> str:
    """The text as a stranger gave it, if it is one. (A text of one's own may hold a NUL: training data does.)"""
    if len(text) > LONGEST_TEXT:
        raise UserError(
            f"the text has {len(text):,} characters, and at most {LONGEST_TEXT:,} are taken at once; break it into lines"
        )
    if "\0" in text:
        raise UserError(
            f"the text has a NUL at character {text.index(chr(0)) + 1}, which belongs to no text; remove it"
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"the text has a lone surrogate (U+{ord(text[error.start]):04X}) at character {error.start + 1}, "
            "which is half a character or a byte that is not UTF-8; remove it"
        ) from None
    return text


def as_list(texts: Sequence[Any]) -> list[Any]:
    """A string is a sequence of strings, too; taken as one, its letters would be answered one by one."""
    if isinstance(texts, str):
        raise UserError("texts come as a list, even a single one: write [text]")
    return list(texts)


def occurs(word: str, text: str) -> bool:
    """As a word of its own, in any case; in a script without spaces, anywhere."""
    if not word.strip():
        return False
    before = "" if is_unspaced(word[0]) or not word[0].isalnum() else r"(?<!\w)"
    after = "" if is_unspaced(word[-1]) or not word[-1].isalnum() else r"(?!\w)"
    return re.search(before + re.escape(word) + after, text, re.IGNORECASE) is not None


def wanted_terms(wishes: Wishes, text: str, *, first: bool) -> tuple[str, ...]:
    """The terms that must appear in the answer to one part of a text; those for every answer go into its first."""
    everywhere = wishes.terms if first else ()
    here = (term for word, term in wishes.glossary.items() if occurs(word, text))
    return tuple(dict.fromkeys((*everywhere, *here)))


def combinations(parts: Sequence[Sequence[Hypothesis]], config: DecodeConfig) -> list[list[Hypothesis]]:
    """The answers to a text from those to its parts. Drawn: the first of each part, the second of each part, and so on.
    Searched: the `n_best` choices of one from each part, by the sum of their scores, the unfinished behind the finished."""
    if config.temperature > 0:
        return [[part[min(k, len(part) - 1)] for part in parts] for k in range(max(map(len, parts)))]
    best: list[list[Hypothesis]] = [[]]
    for part in parts:
        longer = [[*chosen, one] for chosen in best for one in part]
        longer.sort(key=lambda chosen: (sum(not h.complete for h in chosen), -sum(h.score for h in chosen)))
        best = longer[: config.n_best]
    return best


class Model:
    """A model, its tokenizers and its recipe."""

    def __init__(self, model: Transformer | GPT | BERT, tokenizers: Tokenizers, recipe: Recipe) -> None:
        self.model, self.tokenizers, self.recipe = model, tokenizers, recipe
        self.controls = Controls()

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def kind(self) -> str:
        """What it can do; see `CAN`."""
        config = self.model.config
        if config.family == "gpt" and self.recipe.data.prompt_answer:
            return "gpt on pairs"
        return config.head if config.family == "bert" else config.family

    def need(self, verb: str, *kinds: str) -> None:
        if self.kind not in kinds:
            family = {"transformer": "an encoder-decoder", "gpt": "a GPT", "bert": "a BERT"}[self.model.config.family]
            raise UserError(f"this run is {family} made to {CAN[self.kind]}; it cannot {verb}")

    # ---- writing: the encoder-decoder, and a GPT

    def settings(self, config: DecodeConfig | None = None, **options: Any) -> DecodeConfig:
        """How this model writes: `config`, or the recipe's, with options on top. A GPT of plain text that is told
        nothing draws; one that is told to search is greedy until a beam is asked for."""
        base = self.recipe.decode if config is None else config
        options = checked(options)
        if self.kind == "gpt" and config is None and base.beam is None:
            asked = [name for name in ("beam", "n_best", "groups", "temperature") if options.get(name) is not None]
            if not asked and base.temperature == 0:
                options = {"temperature": USUAL_TEMPERATURE, **options}
            elif asked == ["temperature"] and options["temperature"] == 0:
                options = {"beam": 1, **options}
        return changed(base, options)

    def demands(self, wishes: Wishes, terms: Sequence[str], *, first: bool = True) -> Demands:
        """What the answer to one part of a text must be like. A prefix belongs to the first part."""
        tokenizer = self.tokenizers.target
        prefix = tuple(tokenizer.encode(wishes.prefix)) if first else ()
        if UNK in prefix:
            raise UserError(f"the prefix {wishes.prefix!r} cannot be written with this model's vocabulary")
        banned = dict.fromkeys(
            ids
            for banned in wishes.banned
            for ids in (tuple(tokenizer.encode(banned)), tuple(tokenizer.encode(" " + banned)))
            if ids and UNK not in ids
        )
        return Demands(
            prefix=prefix,
            banned=tuple(banned),
            terms=tuple(spellings(tokenizer.encode, term, unknown=UNK) for term in terms),
            stops=wishes.stops,
        )

    def check(self, wishes: Wishes, config: DecodeConfig) -> None:
        """Refuse at once what no text could be answered with."""
        for word in wishes.banned:
            if not word.strip():
                raise UserError("an empty text cannot be banned; leave it out")
        if wishes.glossary and (config.temperature > 0 or config.groups > 1 or wishes.stops):
            raise ConfigError(
                "a glossary is met by a plain beam search; it goes with no temperature, no groups and no stop strings"
            )
        demands = self.demands(wishes, wishes.terms)
        decode = self.tokenizers.target.decode
        make_task(demands, (0, 1), None, self.model.config, config, self.controls, decode, answers=[])

    def pieces(self, text: str, ids: Sequence[int]) -> list[Piece]:
        """The text as the model can read it: whole where it fits, else cut."""
        if self.kind == "gpt on pairs":
            most = max(1, (self.model.config.block_size - 2) // 2)  # the other half is for the answer
        else:
            longest = self.model.config.block_size
            most = max(1, min(longest, self.recipe.data.max_length or longest) - 1)
        if ids and len(ids) <= most and "\n" not in text and text.strip() == text:
            return [Piece(text, "")]
        return split_text(text, fits_within(self.tokenizers.source.encode, most))

    def laid(self, ids: Sequence[int]) -> list[int]:
        """A source as in training."""
        if not ids:
            return []
        return [BOS, *ids, EOS] if self.kind == "gpt on pairs" else [*ids, EOS]

    def translate_full(
        self,
        texts: Sequence[str],
        *,
        config: DecodeConfig | None = None,
        wishes: Wishes | None = None,
        terms: Sequence[str] = (),
        glossary: Mapping[str, str] | None = None,
        prefix: str = "",
        banned: Sequence[str] = (),
        stops: Sequence[str] = (),
        align: bool = False,
        trace: bool = False,
        **options: Any,
    ) -> list[list[Answer]]:
        """For each text its answers: `n_best` of a search, best first, or `num_samples` in the order they were drawn.

        `terms` appear in every answer, those of `glossary` where their key is in the text; `prefix`, `banned` and
        `stops` as in Wishes. `align` adds the attention to the source, `trace` the whole story of the beam. Other
        options are those of DecodeConfig; limits on length hold for each part of a long text."""
        self.need("translate", "transformer", "gpt on pairs")
        texts = as_list(texts)
        settings = self.settings(config, **options)
        wishes = wishes or Wishes(tuple(terms), glossary or {}, prefix, tuple(banned), tuple(stops))
        self.check(wishes, settings)
        source = self.tokenizers.source
        pieces = [self.pieces(text, ids) for text, ids in zip(texts, source.encode_batch(texts), strict=True)]
        flat = [(piece, number == 0) for own in pieces for number, piece in enumerate(own)]
        sources = [self.laid(ids) for ids in source.encode_batch([piece.text for piece, _ in flat])]
        known: dict[tuple[tuple[str, ...], bool], Demands] = {}
        demands = [Demands(stops=wishes.stops)] * len(flat)
        for number, (piece, first) in enumerate(flat):
            if piece.text:
                key = wanted_terms(wishes, piece.text, first=first), first
                if key not in known:
                    known[key] = self.demands(wishes, key[0], first=first)
                demands[number] = known[key]
        model, how = self.model, {"demands": demands, "controls": self.controls, "text": self.tokenizers.target.decode}
        if isinstance(model, Transformer):
            found = translate_batch(model, sources, settings, align=align, trace=trace, **how)  # type: ignore[arg-type]
        else:
            assert isinstance(model, GPT)
            if align:
                raise UserError(
                    "a GPT has no attention from answer to source apart; alignment needs an encoder-decoder"
                )
            found = self.generate_answered(model, sources, settings, trace, how)
        answers, start = [], 0
        for own in pieces:
            here = slice(start, start + len(own))
            answers.append(self.put_together(own, sources[here], found[here], settings))
            start += len(own)
        return answers

    def generate_answered(
        self, model: GPT, prompts: list[list[int]], settings: DecodeConfig, trace: bool, how: dict[str, Any]
    ) -> list[list[Hypothesis]]:
        """A GPT has something to say to an empty prompt; here that is the answer to an empty text, which is empty."""
        real = [i for i, prompt in enumerate(prompts) if prompt]
        how = {**how, "demands": [how["demands"][i] for i in real]}
        found = [[Hypothesis([], 0.0, 0.0, [], "eos", "", trace=BeamTrace() if trace else None)] for _ in prompts]
        for i, hypotheses in zip(
            real, generate_batch(model, [prompts[i] for i in real], settings, trace=trace, **how), strict=True
        ):
            found[i] = hypotheses
        return found

    def put_together(
        self,
        pieces: Sequence[Piece],
        sources: Sequence[Sequence[int]],
        found: Sequence[Sequence[Hypothesis]],
        config: DecodeConfig,
    ) -> list[Answer]:
        answers = []
        for chosen in combinations(found, config):
            # After a stop string nothing follows.
            count = next((n for n, h in enumerate(chosen, 1) if h.ended == "stop"), len(chosen))
            text = join_pieces(pieces[:count], [h.text or "" for h in chosen[:count]])
            parts = [
                Part(self.tokenizers.source.pieces(source), self.tokenizers.target.pieces(h.ids), h)
                for source, h in zip(sources, chosen[:count])
            ]
            answers.append(Answer(text, parts))
        return answers

    def translate(self, texts: Sequence[str], **options: Any) -> list[str]:
        """One text for each text, in order: the best answer, or the first that was drawn. An empty text stays empty.
        Options as for `translate_full`."""
        return [answers[0].text for answers in self.translate_full(texts, **options)]

    def prompt_ids(self, prompt: str) -> list[int]:
        """A prompt as in training. Plain text goes on where the prompt ends; without one it begins where a document
        does, which is after the end of another."""
        ids = self.tokenizers.source.encode(prompt)
        if self.kind == "gpt on pairs":
            return [BOS, *ids, EOS]
        return ids or [EOS]

    def generate_full(
        self,
        prompts: Sequence[str],
        *,
        config: DecodeConfig | None = None,
        wishes: Wishes | None = None,
        terms: Sequence[str] = (),
        prefix: str = "",
        banned: Sequence[str] = (),
        stops: Sequence[str] = (),
        trace: bool = False,
        **options: Any,
    ) -> list[list[Answer]]:
        """For each prompt what may follow it, without the prompt: `num_samples` draws, or `n_best` of a search."""
        self.need("generate", "gpt", "gpt on pairs")
        model = self.model
        assert isinstance(model, GPT)
        settings = self.settings(config, **options)
        wishes = wishes or Wishes(tuple(terms), {}, prefix, tuple(banned), tuple(stops))
        self.check(wishes, settings)
        ids = [self.prompt_ids(prompt) for prompt in as_list(prompts)]
        demands = self.demands(wishes, wishes.terms)
        decode = self.tokenizers.target.decode
        found = generate_batch(model, ids, settings, demands=demands, controls=self.controls, text=decode, trace=trace)
        return [
            [
                Answer(
                    h.text or "", [Part(self.tokenizers.source.pieces(own), self.tokenizers.target.pieces(h.ids), h)]
                )
                for h in hs
            ]
            for own, hs in zip(ids, found, strict=True)
        ]

    def generate(self, prompt: str = "", **options: Any) -> list[str]:
        """What may follow the prompt: as many texts as `num_samples` or `n_best` say (one, where neither is given)."""
        return [answer.text for answer in self.generate_full([prompt], **options)[0]]

    def stream(
        self,
        prompt: str = "",
        *,
        config: DecodeConfig | None = None,
        prefix: str = "",
        banned: Sequence[str] = (),
        stops: Sequence[str] = (),
        **options: Any,
    ) -> Iterator[str]:
        """The text of `generate` as it comes, whole characters only."""
        self.need("generate", "gpt", "gpt on pairs")
        model = self.model
        assert isinstance(model, GPT)
        settings = self.settings(config, **options)
        wishes = Wishes(prefix=prefix, banned=tuple(banned), stops=tuple(stops))
        self.check(wishes, settings)
        demands, ids = self.demands(wishes, ()), self.prompt_ids(prompt)
        decode = self.tokenizers.target.decode
        for piece in stream_generation(model, ids, settings, text=decode, demands=demands, controls=self.controls):
            if piece.text:
                yield piece.text

    # ---- reading: BERT

    @property
    def reads(self) -> int:
        """So many tokens of a text it can see; BOS takes one place."""
        return max(1, self.model.config.block_size - 1)

    def masked_ids(self, text: str) -> list[int]:
        """The ids of a text in which `[MASK]` or `___` stands for what is to be found. A space before a mask is part of
        the word behind it where the tokens of a vocabulary begin with their space."""
        tokenizer: Tokenizer = self.tokenizers.target
        parts = MASK_MARKER.split(text)
        if len(parts) == 1:
            raise UserError("the text has no mask to fill; write [MASK] or ___ where a word is to be found")
        ids: list[int] = []
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            if not last and tokenizer.kind in ("bpe", "unigram"):
                part = part.removesuffix(" ")
            ids += tokenizer.encode(part) + ([] if last else [MASK])
        if len(ids) > self.reads:
            raise UserError(f"the text has {len(ids)} tokens, and this model reads {self.reads} at once; shorten it")
        return ids

    def fill(self, texts: Sequence[str], *, top: int = 5) -> list[Filled]:
        """For each text, the `top` likeliest words for each of its masks (`[MASK]` or `___`)."""
        self.need("fill", "mlm")
        if top < 1:
            raise ConfigError(f"top must be at least 1, not {top}")
        rows = [[BOS, *self.masked_ids(text)] for text in as_list(texts)]
        never = range(CONTROL)
        out = []
        for ids, fillings in zip(rows, predict.fill(self.model, rows, mask=MASK, top=top, never=never), strict=True):
            whole = list(ids)
            for filling in fillings:
                whole[filling.place] = filling.ids[0]
            masks = [
                [Label(w, p) for w, p in zip(self.tokenizers.target.pieces(f.ids), f.probabilities, strict=True)]
                for f in fillings
            ]
            out.append(Filled(self.tokenizers.target.decode(whole), masks))
        return out

    def classify(self, texts: Sequence[str]) -> list[list[Label]]:
        """For each text all labels, the likeliest first. Of a text longer than the model reads, its beginning counts."""
        self.need("classify", "classify")
        rows = [[BOS, *ids[: self.reads]] for ids in self.tokenizers.target.encode_batch(as_list(texts))]
        out = []
        for chances in predict.classify(self.model, rows):
            labels = [Label(label, p) for label, p in zip(self.tokenizers.labels, chances, strict=True)]
            out.append(sorted(labels, key=lambda label: -label.probability))
        return out

    def words_of(self, line: str) -> list[str]:
        """A line typed by a person, cut as the training lines were."""
        return date_tokens(line) if self.recipe.data.builtin == "date-parts" else line.split()

    def tag(self, sentences: Sequence[str | Sequence[str]]) -> list[list[Tagged]]:
        """For each sentence (its words, or a line that is cut into words) the likeliest label of each word. A sentence
        longer than the model reads is read in stretches."""
        self.need("tag", "tag")
        words = [self.words_of(s) if isinstance(s, str) else list(s) for s in as_list(sentences)]
        encode = self.tokenizers.target.encode_batch
        stand_in = encode(["?"])[0]
        rows: list[list[int]] = []
        places: list[list[tuple[int, int]]] = []  # for each sentence the row and place of each word's first token
        for own in words:
            places.append([])
            for number, pieces in enumerate(encode(own)):
                pieces = (pieces or stand_in)[: self.reads]
                if number == 0 or len(rows[-1]) + len(pieces) > self.reads + 1:
                    rows.append([BOS])
                places[-1].append((len(rows) - 1, len(rows[-1])))
                rows[-1] += pieces
        found: dict[int, tuple[list[float], list[int]]] = {}
        for row, logprobs in predict.predict(self.model, rows):
            best = logprobs.exp().max(-1)
            found[row] = best.values.tolist(), best.indices.tolist()
        labels = self.tokenizers.labels
        return [
            [
                Tagged(word, labels[found[row][1][at]], found[row][0][at])
                for word, (row, at) in zip(own, here, strict=True)
            ]
            for own, here in zip(words, places, strict=True)
        ]


def load(run: str | Path, *, device: str = "cpu", step: int | None = None) -> Model:
    """The model of a run: its final weights, or those of the checkpoint of `step`."""
    try:
        known = torch.device(device)
    except RuntimeError:
        raise UserError(f"there is no device {device!r}; use cpu or cuda") from None
    if known.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device {device} was asked for, and torch sees no CUDA device here; use cpu")
    folder = RunFolder.open(run)
    if step is not None and step not in folder.checkpoints.steps():
        there = ", ".join(map(str, folder.checkpoints.steps())) or "none"
        raise UserError(f"{run} has no checkpoint of step {step}; there are: {there}")
    return Model(folder.load_model(step=step, device=device), folder.tokenizers, folder.recipe)


__all__ = ["Answer", "Filled", "Label", "Model", "Part", "Tagged", "Wishes", "load"]
