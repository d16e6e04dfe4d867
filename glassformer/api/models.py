"""A trained model to work with: one class for each task, with a verb of its own.

    model = glassformer.load("runs/dates")          a Translator
    model.translate("3 mai 1979")                   '1979-05-03'

Each verb takes a text or a list and gives a text or a list. The work is done in tasks/; here is what makes it kind to a
person: one text or many, options with completion, answers that print well, and a `repr` that says what this is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

import torch
from jaxtyping import Float
from torch import Tensor

from glassformer import tasks
from glassformer.api.activations import ActivationCache, texts_with_cache
from glassformer.api.options import spelled_out, split_options
from glassformer.api.results import Classification, Filling, Generation, Tagging, Translation
from glassformer.config import DecodeConfig, ModelConfig, Recipe, did_you_mean
from glassformer.decode.generate import full_collections_wait
from glassformer.errors import UserError
from glassformer.evaluation.metrics import measures_text
from glassformer.models import BERT, GPT, Transformer
from glassformer.tasks import TextModel, TokenScores
from glassformer.tasks.embed import Pool
from glassformer.tasks.text_model import FAMILIES, VERBS, Verb
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.tokenizers import Tokenizers

if TYPE_CHECKING:
    from glassformer.formats.parity import ParityReport

T = TypeVar("T")
Many = list[str] | tuple[str, ...]
REPORT = "glassformer.inspection.report"  # on the floor above: fetched by its name, when it is asked for


@dataclass(frozen=True)
class RunOrigin:
    """Where a model came from: the run's folder, which weights of it, and what it scored."""

    path: Path
    weights: str = "final weights"
    metrics: dict[str, float] = field(default_factory=dict)


def pick_device(device: str | torch.device) -> torch.device:
    """`auto` is CUDA where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        known = torch.device(device)
    except RuntimeError:
        raise UserError("there is no device {device!r}; use auto, cpu or cuda", device) from None
    if known.type == "cuda" and not torch.cuda.is_available():
        raise UserError("device {device} was asked for, and torch sees no CUDA device here; use cpu", device)
    try:
        # Torch knows the names of devices that this build or machine lacks.
        torch.ones(1, device=known).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):
        raise UserError("device {device} cannot be used here; use auto, cpu or cuda", device) from None
    return known


def one_or_many(texts: Any, answer: Callable[[list[Any]], list[T]]) -> T | list[T]:
    """A text is answered with one answer, a list with a list. One that is too long is refused before anything is done."""
    if not isinstance(texts, Iterable) or isinstance(texts, bytes):
        raise UserError("a text or a list of texts is needed, not {kind}", type(texts).__name__)
    given = [texts] if isinstance(texts, str) else list(texts)
    tasks.check_lengths(given)
    with full_collections_wait():
        return answer(given)[0] if isinstance(texts, str) else answer(given)


def in_words(count: int) -> str:
    """1234567 is 1.2M."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


class LoadedModel(TextModel):
    """What all loaded models have: the plain `model`, its `tokenizer`, `config`, `metrics`, and how they came here."""

    made_for: ClassVar[Verb]

    def __init__(
        self, model: Transformer | GPT | BERT, tokenizers: Tokenizers, recipe: Recipe, origin: RunOrigin | None = None
    ) -> None:
        super().__init__(model, tokenizers, recipe)
        self.origin = origin

    def __getattr__(self, name: str) -> Any:
        if name in ("stream", "score") or any(name in verbs for verbs in VERBS.values()):
            raise self.cannot(name)
        if name == "evaluate":
            raise AttributeError(f"a {type(self).__name__} has no 'evaluate'; glassformer.evaluate(model) scores it")
        close = did_you_mean(name, [known for known in dir(type(self)) if not known.startswith("_")])
        raise AttributeError(f"a {type(self).__name__} has no {name!r}{close}")

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of what is read; `tokenizers.target` is that of what is written, where they differ."""
        return self.tokenizers.source

    @property
    def config(self) -> ModelConfig:
        """The settings of the model; those of data, training and decoding are in `recipe`."""
        return self._model.config

    @property
    def metrics(self) -> dict[str, float]:
        """What the weights scored when they were last validated, by name."""
        return dict(self.origin.metrics) if self.origin is not None else {}

    @overload
    def embed(self, texts: str, *, pool: Pool = ...) -> Float[Tensor, "C"]: ...
    @overload
    def embed(self, texts: Many, *, pool: Pool = ...) -> Float[Tensor, "N C"]: ...
    def embed(self, texts: str | Sequence[str], *, pool: Pool = "mean") -> Tensor:
        """A text as one vector, or a list as rows: the last layer's output at its tokens, pooled by their mean, their max,
        or at the first or last of them."""
        given = [texts] if isinstance(texts, str) else list(texts)
        tasks.check_lengths(given)
        rows = tasks.embed(self, given, pool=pool)
        return rows[0] if isinstance(texts, str) else rows

    @overload
    def run_with_cache(
        self, texts: str, target: str | None = ..., *, names: str | Sequence[str] = ...
    ) -> tuple[Tensor, ActivationCache[list[str]]]: ...
    @overload
    def run_with_cache(
        self, texts: Many, target: Many | None = ..., *, names: str | Sequence[str] = ...
    ) -> tuple[Tensor, ActivationCache[list[list[str]]]]: ...
    def run_with_cache(self, texts: Any, target: Any = None, *, names: str | Sequence[str] = "*") -> Any:
        """A text through the model with every activation kept: the logits, and a dictionary by name (`tap_shapes(model)`
        lists the names); of a list, a row each, padded at its end. A Translator reads a text with its `target`, or with its
        own answer."""
        if isinstance(texts, str):
            logits, cache = texts_with_cache(self, [texts], None if target is None else [target], names)
            return logits, ActivationCache(cache, cache.tokens[0], cache.source_tokens[0])
        if isinstance(target, str) or not isinstance(texts, Iterable):
            raise UserError("run_with_cache takes a text and a target, or a list and a list")
        return texts_with_cache(self, list(texts), target, names)

    def show(self, text: str, target: str | None = None, **options: Any) -> Any:
        """What goes on inside while a text is read and answered: the report of `glassformer.look`, which takes the same options.
        It shows itself in a notebook; `.save("look.html")` writes it."""
        title = None if self.origin is None else self.origin.path.name
        return importlib.import_module(REPORT).look(self, text, target, **{"title": title} | options)

    def export(
        self,
        to: str,
        out: str | Path,
        *,
        quantize: str | None = None,
        sample: Sequence[Any] | None = None,
        overwrite: bool = False,
    ) -> ParityReport:
        """Writes the model as a folder that other programs run (`to`: hf, ct2, onnx or gguf; `quantize`: fp16 or int8), loads
        it there, and gives the report of how equal the two are on `sample`: pairs (source, reference) or texts; without
        one, the run's own test split. An export that is another model is an error, and leaves nothing. `overwrite`: an
        earlier export in that folder is replaced."""
        from glassformer.formats.export import export_model
        from glassformer.formats.runtime import NO_SPLIT, own_sample

        run = None if self.origin is None else self.origin.path
        if sample is not None:
            on, examples = "the sample", iter(sample)
        elif run is None:
            raise UserError("a model without a run {no_split}", NO_SPLIT)
        else:
            on, examples = own_sample(self.recipe.data, run)
        about: dict[str, Any] = {"metrics": self.metrics, "name": None if run is None else run.name}
        return export_model(self, to, Path(out), examples, quantize=quantize, on=on, overwrite=overwrite, **about)

    def to(self, device: str | torch.device) -> LoadedModel:
        """Moves the weights to another device."""
        self._model.to(pick_device(device))
        return self

    def settings(self, config: DecodeConfig | None = None, **options: Any) -> DecodeConfig:
        """How this model writes when it is given these options."""
        return tasks.decode_settings(self, config, **options)

    def __repr__(self) -> str:
        config, source, target = self.config, self.tokenizers.source, self.tokenizers.target
        layers = f"{config.encoder_layers}+{config.n_layer}" if config.family == "transformer" else str(config.n_layer)
        lines = [
            f"{type(self).__name__}: {FAMILIES[config.family]} of {in_words(self._model.num_params())} parameters, "
            f"{layers} {'layer' if layers == '1' else 'layers'} of {config.n_embd}, on {self.device}"
        ]
        sizes = f"{source.vocab_size:,}" + (f" and {target.vocab_size:,}" if target is not source else "")
        lines.append(f"  tokenizer: {source.kind}, {sizes} tokens")
        if self.metrics:
            lines.append("  validation: " + measures_text(self.metrics, ", "))
        if self.origin is not None:
            lines.append(f"  from {self.origin.path}, {self.origin.weights}")
        return "\n".join(lines)


class Scoring(LoadedModel):
    """Models that write, and so can say how likely they find a text."""

    @overload
    def score(self, source: str, target: str | None = ...) -> TokenScores: ...
    @overload
    def score(self, source: Many, target: Many | None = ...) -> list[TokenScores]: ...
    def score(
        self, source: str | Sequence[str], target: str | Sequence[str] | None = None
    ) -> TokenScores | list[TokenScores]:
        """How likely `target` is after `source`, in nats and token by token. A Generator takes a text alone too, or a prompt
        and what follows it."""
        if target is None:
            if self.made_for != "generate":
                raise UserError("a translation is scored beside its source: score(source, target)")
            source, target = "" if isinstance(source, str) else [""] * len(source), source
        if isinstance(source, str) != isinstance(target, str):
            raise UserError("a list is scored with a list, and a text with a text")
        sources, targets = ([side] if isinstance(side, str) else list(side) for side in (source, target))
        tasks.check_lengths([*sources, *targets])
        scores = tasks.token_scores(self, sources, targets)
        return scores[0] if isinstance(source, str) else scores

    def _write(
        self, texts: Any, each: Callable[..., Any], answer_type: Callable[[Any], T], options: Any
    ) -> T | list[T]:
        """What the model writes to a text or to each of a list, by the function of the task and its options."""
        constraints, others = split_options(options)

        def answer(texts: list[str]) -> list[T]:
            return [answer_type(answers) for answers in each(self, texts, constraints=constraints, **others)]

        return one_or_many(texts, answer)


class Translator(Scoring):
    """A model that answers a text with a text: an encoder-decoder, or a GPT that learned from pairs.

    >>> import glassformer
    >>> model = glassformer.load("runs/dates")
    >>> answer = model.translate("3 mai 1979", n_best=3)     # a text that knows its alternatives
    >>> len(answer.texts), len(model.translate(["3 mai 1979", "4 mai 1979"]))
    (3, 2)
    >>> text = "".join(model.stream("3 mai 1979"))            # as it is written
    >>> float(model.score("3 mai 1979", "1979-05-03")) < 0    # its log-probability
    True
    """

    made_for = "translate"

    @overload
    def translate(self, texts: str, *, align: bool = ..., **options: Any) -> Translation: ...
    @overload
    def translate(self, texts: Many, *, align: bool = ..., **options: Any) -> list[Translation]: ...
    @spelled_out
    def translate(
        self, texts: str | Sequence[str], *, align: bool = False, trace: bool = False, **options: Any
    ) -> Translation | list[Translation]:
        """The answer to a text, or to each of a list. With `n_best=5` it has four alternatives; with `align=True` it knows
        which source token each of its tokens looked at; `trace=True` keeps the story of the beam."""
        return self._write(texts, tasks.translate_each, Translation, options | {"align": align, "trace": trace})

    def align(self, source: str, target: str) -> list[tuple[int, int]]:
        """Which words of a translation come from which of its source, in the form of Pharaoh: (source word, target word), counted
        from 0, by where the model looks while the target is forced on it."""
        tasks.check_lengths([source, target])
        return tasks.forced_links(self, source, target)

    @spelled_out
    def stream(self, text: str, **options: Any) -> Iterator[str]:
        """The translation as it is written, piece by piece: greedy, or drawn where a temperature is given."""
        tasks.check_lengths([text])
        constraints, decode = split_options(options)
        return tasks.stream_translated(self, text, constraints=constraints, **decode)


class Generator(Scoring):
    """A GPT: text that goes on where a prompt ends.

    >>> import glassformer
    >>> model = glassformer.load("runs/stdlib-gpt")
    >>> len(model.generate("def ", num_samples=2, max_new_tokens=8, seed=1).texts)
    2
    """

    made_for = "generate"

    @overload
    def generate(self, prompts: str = ..., **options: Any) -> Generation: ...
    @overload
    def generate(self, prompts: Many, **options: Any) -> list[Generation]: ...
    @spelled_out
    def generate(
        self, prompts: str | Sequence[str] = "", *, trace: bool = False, **options: Any
    ) -> Generation | list[Generation]:
        """What may follow a prompt, without the prompt; with `num_samples=3` it has two alternatives."""
        return self._write(prompts, tasks.generate_each, Generation, options | {"trace": trace})

    @spelled_out
    def stream(self, prompt: str = "", **options: Any) -> Iterator[str]:
        """The text of `generate` as it comes, whole characters only."""
        tasks.check_lengths([prompt])
        constraints, decode = split_options(options)
        return tasks.stream_generated(self, prompt, constraints=constraints, **decode)


class Filler(LoadedModel):
    """A BERT that finds the words behind masks.

    >>> import glassformer
    >>> model = glassformer.load("runs/stdlib-bert")
    >>> [len(words) for words in model.fill("for ___ in ___:", top=3).masks]
    [3, 3]
    """

    made_for = "fill"

    @overload
    def fill(self, texts: str, *, top: int = ...) -> Filling: ...
    @overload
    def fill(self, texts: Many, *, top: int = ...) -> list[Filling]: ...
    def fill(self, texts: str | Sequence[str], *, top: int = 5) -> Filling | list[Filling]:
        """The text with the likeliest word for each `[MASK]` or `___`; its `masks` have the `top` likeliest words."""
        return one_or_many(texts, lambda own: [Filling(one) for one in tasks.fill(self, own, top=top)])


class Classifier(LoadedModel):
    """A model that gives a text a label.

    >>> import glassformer
    >>> label = glassformer.load("runs/languages").classify("3 mai 1979")
    >>> label in ("de", "fr"), len(label.labels)
    (True, 2)
    """

    made_for = "classify"

    @overload
    def classify(self, texts: str) -> Classification: ...
    @overload
    def classify(self, texts: Many) -> list[Classification]: ...
    def classify(self, texts: str | Sequence[str]) -> Classification | list[Classification]:
        """The likeliest label of a text, or of each of a list; its `labels` are all of them with their probabilities."""
        return one_or_many(texts, lambda own: [Classification(labels) for labels in tasks.classify(self, own)])


class Tagger(LoadedModel):
    """A BERT that gives each word of a sentence a label.

    >>> import glassformer
    >>> [one.word for one in glassformer.load("runs/date-parts").tag("3 mai 1979")]
    ['3', 'mai', '1979']
    """

    made_for = "tag"

    @overload
    def tag(self, sentences: str) -> Tagging: ...
    @overload
    def tag(self, sentences: list[str] | list[list[str]]) -> list[Tagging]: ...
    def tag(self, sentences: str | Sequence[str | Sequence[str]]) -> Tagging | list[Tagging]:
        """The words of a sentence with their labels. A list is a list of sentences, each a line or a list of words."""
        return one_or_many(sentences, lambda own: [Tagging(words) for words in tasks.tag(self, own)])


class Embedder(LoadedModel):
    """An encoder without a head, such as an imported sentence encoder: it makes vectors of texts, as every model here can.

    >>> import glassformer
    >>> model = glassformer.load("runs/languages")      # a classifier embeds, too; an Embedder does nothing else
    >>> model.embed(["1 June 1980", "1. Juni 1980"]).shape[0]       # a row a text: the mean of its tokens' last hidden states
    2
    """

    made_for = "embed"


AnyModel = Translator | Generator | Filler | Classifier | Tagger | Embedder
CLASSES: list[type[LoadedModel]] = [Translator, Generator, Filler, Classifier, Tagger, Embedder]
MODELS = {model.made_for: model for model in CLASSES}
