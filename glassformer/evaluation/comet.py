"""COMET: how good a translation is, estimated by a network that has read source, translation and reference (Rei et al. 2020,
2022), natively: an imported XLM-R of ours, the scalar mix of its layers, and the estimator's feed-forward layers.

    h_t = gamma * sum_l w_l * norm(x_{l,t})      the layers of the encoder, mixed; w = softmax (or sparsemax) of learned numbers
    e   = the mean (max, first) of h_t over a sentence's tokens
    score = ff([e_mt, e_ref, e_mt * e_ref, |e_mt - e_ref|, e_mt * e_src, |e_mt - e_src|])

`norm` takes mean and variance over all numbers of a sentence, not of a token. What the published package (unbabel-comet) calls
RegressionMetric is this; `glassformer import` (formats/comet.py) makes the folder that is read here. Scores are shown times
100, as papers have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glassformer.config import Recipe
from glassformer.errors import UserError
from glassformer.evaluation.metrics import Scores
from glassformer.files import structured
from glassformer.language import _
from glassformer.models import BERT
from glassformer.models.weights import load_model_tensors
from glassformer.nn.rows import Rows
from glassformer.nn.taps import record
from glassformer.tasks.embed import AT_ONCE, pooled
from glassformer.tasks.text_model import TextModel
from glassformer.text.tokenizers import Tokenizers

SETTINGS, WEIGHTS = "comet.json", "comet.safetensors"
ACTIVATIONS = {"Tanh": nn.Tanh, "Sigmoid": nn.Sigmoid}
POOL: dict[str, Literal["mean", "max", "first"]] = {"avg": "mean", "max": "max", "cls": "first"}
FEATURES = 6


@dataclass(frozen=True)
class Head:
    """What stands on the encoder, in the words of COMET's hparams.yaml."""

    hidden_sizes: tuple[int, ...]
    activations: Literal["Tanh", "Sigmoid"] = "Tanh"
    final_activation: Literal["Tanh", "Sigmoid"] | None = None
    pool: Literal["avg", "max", "cls"] = "avg"
    layer: Literal["mix"] | int = "mix"
    layer_transformation: Literal["softmax", "sparsemax"] = "softmax"
    layer_norm: bool = True

    def __post_init__(self) -> None:
        if not self.hidden_sizes or not all(1 <= size <= 10**5 for size in self.hidden_sizes):
            raise ValueError(f"hidden_sizes are {self.hidden_sizes}")


@dataclass(frozen=True)
class Settings:
    """comet.json: the encoder's recipe, the head, and the name it came with."""

    recipe: dict[str, Any]
    head: Head
    name: str


def sparsemax(z: Float[Tensor, "L"]) -> Float[Tensor, "L"]:
    """The nearest distribution to z, many of its numbers zero (Martins and Astudillo 2016): max(z - tau, 0) with sum 1."""
    ordered = z.sort(descending=True).values
    above = ordered.cumsum(0) - 1
    size = (ordered * torch.arange(1, len(z) + 1, device=z.device) > above).sum()
    return (z - above[size - 1] / size).clamp(min=0)


def sentence_norm(x: Float[Tensor, "B T C"], real: Bool[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
    """Each sentence less its mean, over its standard deviation, both over all numbers of all its tokens."""
    there = real[..., None].to(x.dtype)
    count = there.sum((1, 2), keepdim=True) * x.size(-1)
    centred = x - (x * there).sum((1, 2), keepdim=True) / count
    return centred / ((centred * there).square().sum((1, 2), keepdim=True) / count + 1e-12).sqrt()


class Comet(nn.Module):
    """An estimator of translation quality: encoder, scalar mix, feed-forward layers."""

    def __init__(self, encoder: BERT, head: Head) -> None:
        super().__init__()
        width = encoder.config.n_embd
        sizes = (FEATURES * width, *head.hidden_sizes)
        self.encoder, self.head = encoder, head
        layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), ACTIVATIONS[head.activations]())]
        last = [] if head.final_activation is None else [ACTIVATIONS[head.final_activation]()]
        self.estimator = nn.Sequential(*layers, nn.Linear(sizes[-1], 1), *last)
        if head.layer == "mix":
            self.mix = nn.Parameter(torch.zeros(encoder.config.n_layer + 1))
            self.gamma = nn.Parameter(torch.ones(1))

    def sentence(self, rows: Rows) -> Float[Tensor, "B C"]:
        """One vector a sentence."""
        with record(self.encoder, "embeddings", "encoder.*.residual") as seen:
            self.encoder.hidden(rows)
        layers = [seen["embeddings"], *(seen[f"encoder.{i}.residual"] for i in range(self.encoder.config.n_layer))]
        if self.head.layer != "mix":
            return pooled(layers[self.head.layer], rows.real, POOL[self.head.pool])
        weights = (sparsemax if self.head.layer_transformation == "sparsemax" else lambda z: z.softmax(0))(self.mix)
        normed = [sentence_norm(x, rows.real) for x in layers] if self.head.layer_norm else layers
        mixed = self.gamma * sum(w * x for w, x in zip(weights, normed, strict=True))
        return pooled(mixed, rows.real, POOL[self.head.pool])

    def forward(
        self, source: Float[Tensor, "B C"], translation: Float[Tensor, "B C"], reference: Float[Tensor, "B C"]
    ) -> Float[Tensor, "B"]:
        """The score of each translation, from the three sentences' vectors."""
        t, r, s = translation, reference, source
        return self.estimator(torch.cat([t, r, t * r, (t - r).abs(), t * s, (t - s).abs()], dim=1))[:, 0]


class Scorer:
    """A COMET with its tokenizer: texts to scores."""

    def __init__(self, comet: Comet, tokenizers: Tokenizers, recipe: Recipe, name: str) -> None:
        self.comet, self.name = comet.eval(), name
        self.model = TextModel(comet.encoder, tokenizers, recipe)

    def rows_of(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens as the encoder reads them; a text is cut where COMET cuts it, two tokens before the encoder must."""
        most = self.model.max_text_tokens - 2
        return [
            self.model.with_special_tokens(ids[:most]) for ids in self.model.tokenizers.target.encode_batch(list(texts))
        ]

    @torch.no_grad()
    def scores(
        self, sources: Sequence[str], written: Sequence[str], references: Sequence[str]
    ) -> Float[np.ndarray, "N"]:
        """The score of each translation, about 0 to 1. Each text is encoded once, beside others of its length."""
        texts = list(dict.fromkeys([*sources, *written, *references]))
        rows = self.rows_of(texts)
        order = sorted(range(len(texts)), key=lambda i: len(rows[i]))
        vectors: dict[str, Tensor] = {}
        for start in range(0, len(order), AT_ONCE):
            chosen = order[start : start + AT_ONCE]
            found = self.comet.sentence(Rows.from_lists([rows[i] for i in chosen]).to(self.model.device))
            vectors |= {texts[i]: vector for i, vector in zip(chosen, found, strict=True)}
        if not texts:
            return np.zeros(0)
        sides = (torch.stack([vectors[text] for text in side]) for side in (sources, written, references))
        return self.comet(*sides).cpu().double().numpy()  # MPS has no float64


@lru_cache(maxsize=1)
def load_comet(folder: Path, device: torch.device) -> Scorer:
    """The COMET of a folder that `glassformer import` made. The last one stays loaded: every validation asks for it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not (folder / SETTINGS).is_file():
        raise UserError(
            "{folder} is no COMET: it has no {file}; make one of a published checkpoint with glassformer import",
            folder,
            SETTINGS,
        )
    settings = structured.read(folder / SETTINGS, Settings)
    recipe = Recipe.from_dict(settings.recipe)
    comet = Comet(BERT(recipe.model), settings.head)
    try:
        with torch.no_grad():
            load_model_tensors(comet, load_file(folder / WEIGHTS))
    except (OSError, SafetensorError) as error:
        raise UserError("{path} cannot be read: {reason}", folder / WEIGHTS, error) from None
    return Scorer(comet.to(device), Tokenizers.load(folder), recipe, settings.name)


def comet_scores(
    folder: str, device: torch.device, pairs: Sequence[tuple[str, str]], written: Sequence[str]
) -> Float[np.ndarray, "N"]:
    """100 times the score of each translation of these (source, reference) pairs."""
    scorer = load_comet(Path(folder).expanduser(), device)
    return 100 * scorer.scores([source for source, _ in pairs], written, [reference for _, reference in pairs])


def comet_score(folder: str, device: torch.device, pairs: Sequence[tuple[str, str]], written: Sequence[str]) -> Scores:
    """The mean of them, with the name of the model that gave them."""
    if not pairs:
        return Scores({})
    found = comet_scores(folder, device, pairs, written)
    name = load_comet(Path(folder).expanduser(), device).name
    return Scores({"comet": float(found.mean())}, {"comet": _("mean score by {name}, times 100", name)})
