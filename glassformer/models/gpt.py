"""Decoder-only: each token is predicted from those before it (Radford et al. 2018, 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.models.bert import ClassificationHead
from glassformer.models.causal import CausalModel
from glassformer.models.parts import initialise, make_decoder, make_norm, make_positions
from glassformer.nn.cache import KVCache
from glassformer.nn.embedding import Embedding
from glassformer.nn.loss import IGNORE
from glassformer.nn.rows import Lengths, Rows, as_rows, next_token_labels


class GPT(CausalModel):
    """A decoder alone: a language model, which predicts the token that follows each.

    >>> import torch
    >>> gpt = GPT(n_layer=2, n_head=4, n_embd=32, vocab_size=100, block_size=16)
    >>> ids = torch.randint(100, (2, 7))
    >>> gpt(ids).shape                          # a logit for each token of the vocabulary
    torch.Size([2, 7, 100])
    >>> gpt(ids, lengths=[7, 3]).shape          # the second row is three tokens and padding
    torch.Size([2, 7, 100])
    >>> gpt.loss(ids).backward()                # mean over the tokens that follow another

    `glassformer.decode.generate_batch(gpt.eval(), prompts)` writes on, by the search that every model here shares.
    `config` is a ModelConfig; its settings can also be given by name, alone or on top of it. `GPT.from_preset("gpt2",
    dropout=0.0)` builds a model of the literature, with fresh weights.
    """

    tap_names = ("embeddings", "logits")
    family = "gpt"

    def __init__(self, config: ModelConfig | None = None, **settings: Any) -> None:
        config = self.resolve(config, settings)
        super().__init__(config)
        self.embedding = Embedding(config.vocab_size, config.n_embd, scale=config.scale_embeddings)
        self.positions = make_positions(config)
        self.embedding_norm = make_norm(config) if config.embedding_norm else None
        self.decoder = make_decoder(config, cross=False)
        if config.head == "classify" and config.n_label < 2:
            raise ConfigError(
                "model.head='classify' needs model.n_label of at least 2; it is set from the data, or by hand"
            )
        self.head = ClassificationHead(config) if config.head == "classify" else None
        untied = not config.tie_output and self.head is None
        self.output = nn.Linear(config.n_embd, config.vocab_size, bias=False) if untied else None
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
        initialise(self)

    @property
    def output_weight(self) -> Tensor:
        """The weight of the output layer, from which logits come: the embedding where they are tied. (V, C)"""
        if self.head is not None:
            return self.head.label.weight
        return self.embedding.weight if self.output is None else self.output.weight

    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of the layer from which logits come, of tokens or of labels."""
        return self.output_weight, self.output_bias if self.head is None else self.head.label.bias

    def apply_head(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """What the output layer reads: the decoder's output, or what a classification head makes of it. A class is read off the
        last token, the only one that has seen the whole text."""
        return x if self.head is None else self.head(x)

    def decoder_input(
        self, tokens: Tensor, positions: Tensor, n_positions: int | None, real: Tensor | None = None
    ) -> Float[Tensor, "B T C"]:
        """Embeddings of tokens with their positions, after norm and dropout: the decoder's input. (B, T) -> (B, T, C)"""
        x = self.embed(self.embedding, self.positions, tokens, positions, n_positions)
        x = self.tap("embeddings", x if self.embedding_norm is None else self.embedding_norm(x, real))
        return self.drop(x)

    def hidden(self, rows: Rows | Int[Tensor, "B T"], lengths: Lengths = None) -> Float[Tensor, "B T C"]:
        """The decoder's output (the last hidden state), before the output layer."""
        rows = as_rows(rows, lengths)
        inputs = self.block_inputs(rows, causal=True)
        x = self.decoder_input(rows.tokens, rows.broadcast_positions, rows.n_positions, inputs.real)
        return self.decoder(x, inputs)

    def forward(self, rows: Rows | Int[Tensor, "B T"], lengths: Lengths = None) -> Float[Tensor, "B T V"]:
        """The logits of what may follow each token. Plain ids are whole rows; `lengths` says how many of each row's
        tokens are real."""
        return self.logits(self.hidden(rows, lengths))

    def logits(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T V"]:
        """The output layer: a logit for every token of the vocabulary, or for every label. (B, T, C) -> (B, T, V)"""
        return self.tap("logits", self.output_kernel(self.apply_head(x), *self.output_layer()))

    def loss(
        self,
        rows: Rows | Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"] | None = None,
        *,
        lengths: Lengths = None,
        smoothing: float = 0.0,
    ) -> Float[Tensor, ""]:
        """With labels: summed over the positions that have one (a trainer divides by their number). Without: the mean, in
        nats, over every token that follows another."""
        rows = as_rows(rows, lengths)
        targets = next_token_labels(rows) if labels is None else labels
        weight, bias = self.output_layer()
        x = self.apply_head(self.hidden(rows))
        total = self.cross_entropy(x, weight, targets, bias=bias, smoothing=smoothing)
        return total if labels is not None else total / (targets != IGNORE).sum().clamp(min=1)

    def start(self, rows: int, capacity: int, *, beams: int = 1) -> KVCache:
        """The cache to decode from: empty, for `rows` texts of at most `capacity` tokens (each in `beams` versions)."""
        cache = self.make_cache(rows, capacity * beams, beams=beams)
        cache.begin(0, rows)
        return cache

    def prefill(
        self,
        tokens: Int[Tensor, "M T"],
        lengths: Sequence[int],
        cache: KVCache,
        slots: Sequence[int],
        *,
        copies: int = 1,
    ) -> None:
        """Read prompts, of which lengths[row] tokens are real, into empty slots of the cache: one for all beams of each slot (and
        of `copies` slots that begin alike), or one for each beam. No logits are computed."""
        cache.reserve_prompts(slots, lengths, tokens.size(1), copies=copies)
        if tokens.size(1):
            rows = Rows.padded(tokens, lengths)
            inputs = self.block_inputs(rows, causal=True)
            x = self.decoder_input(tokens, rows.broadcast_positions, rows.n_positions, inputs.real)
            self.decoder(x, inputs, cache=cache)
