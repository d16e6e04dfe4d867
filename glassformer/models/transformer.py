"""The encoder-decoder of "Attention Is All You Need": read a source, write a target.

Source and target are two texts of their own lengths. The encoder reads the source once, every token seeing every other;
the decoder writes the target, each token seeing the tokens before it and, through cross-attention, the whole source.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.models.causal import CausalModel
from glassformer.models.parts import initialise, make_decoder, make_encoder, make_norm, make_positions
from glassformer.nn.cache import KVCache
from glassformer.nn.embedding import Embedding
from glassformer.nn.loss import IGNORE
from glassformer.nn.masks import cross_mask
from glassformer.nn.rows import Lengths, Rows, as_rows, next_token_labels


class Transformer(CausalModel):
    """The encoder-decoder: a source is read, a target is written.

    >>> import torch
    >>> model = Transformer(n_layer=1, n_head=2, n_embd=16, vocab_size=50, block_size=16)
    >>> source, target = torch.randint(50, (2, 7)), torch.randint(50, (2, 5))
    >>> model(source, target).shape                           # a logit for each token of the vocabulary
    torch.Size([2, 5, 50])
    >>> model(source, target, [7, 4], [5, 2]).shape           # how many tokens of each row are real
    torch.Size([2, 5, 50])
    >>> model.loss(source, target).backward()                 # mean over the target tokens that follow another

    `config` is a ModelConfig; its settings can also be given by name, alone or on top of it.
    `Transformer.from_preset("transformer-base")` is the paper's.
    """

    tap_names = ("source_embeddings", "target_embeddings", "logits")
    family = "transformer"

    def __init__(self, config: ModelConfig | None = None, **settings: Any) -> None:
        config = self.resolve(config, settings)
        super().__init__(config)
        if config.source_vocab_size is None and config.share_source_target:
            self.embedding: Embedding | None = Embedding(
                config.vocab_size, config.n_embd, scale=config.scale_embeddings
            )
        else:
            self.embedding = None
            source_size = config.source_vocab_size or config.vocab_size
            self.source_embedding = Embedding(source_size, config.n_embd, scale=config.scale_embeddings)
            self.target_embedding = Embedding(config.vocab_size, config.n_embd, scale=config.scale_embeddings)
        self.source_positions = make_positions(config)
        self.target_positions = make_positions(config)
        self.source_norm = make_norm(config) if config.embedding_norm else None
        self.target_norm = make_norm(config) if config.embedding_norm else None
        self.encoder = make_encoder(config, config.encoder_layers)
        self.decoder = make_decoder(config, cross=True)
        self.output = None if config.tie_output else nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
        initialise(self)

    @property
    def source_table(self) -> Embedding:
        """The embedding of source tokens; the target's too, where they share one."""
        return self.source_embedding if self.embedding is None else self.embedding

    @property
    def target_table(self) -> Embedding:
        """The embedding of target tokens."""
        return self.target_embedding if self.embedding is None else self.embedding

    @property
    def output_weight(self) -> Tensor:
        """The weight of the output layer, from which logits come: the target's embedding where they are tied. (V, C)"""
        return self.target_table.weight if self.output is None else self.output.weight

    def encode(self, source: Rows | Int[Tensor, "B S"], lengths: Lengths = None) -> Float[Tensor, "B S C"]:
        """The encoder's output, which is the decoder's memory. (B, S) -> (B, S, C)"""
        source = as_rows(source, lengths)
        inputs = self.block_inputs(source, causal=False)
        x = self.embed(
            self.source_table, self.source_positions, source.tokens, source.broadcast_positions, source.n_positions
        )
        x = self.tap("source_embeddings", x if self.source_norm is None else self.source_norm(x, inputs.real))
        return self.encoder(self.drop(x), inputs)

    def decoder_input(
        self, tokens: Tensor, positions: Tensor, n_positions: int | None, real: Tensor | None = None
    ) -> Float[Tensor, "B T C"]:
        """Embeddings of target tokens with their positions, after norm and dropout: the decoder's input. (B, T) -> (B, T, C)"""
        x = self.embed(self.target_table, self.target_positions, tokens, positions, n_positions)
        x = self.tap("target_embeddings", x if self.target_norm is None else self.target_norm(x, real))
        return self.drop(x)

    def hidden(
        self,
        source: Rows | Int[Tensor, "B S"],
        target: Rows | Int[Tensor, "B T"],
        source_lengths: Lengths = None,
        target_lengths: Lengths = None,
    ) -> Float[Tensor, "B T C"]:
        """The decoder's output (the last hidden state), before the output layer."""
        source, target = as_rows(source, source_lengths), as_rows(target, target_lengths)
        memory = self.decoder.project_memory(self.encode(source))
        inputs = self.block_inputs(target, causal=True, cross_mask=cross_mask(target, source))
        x = self.decoder_input(target.tokens, target.broadcast_positions, target.n_positions, inputs.real)
        return self.decoder(x, inputs, memory)

    def forward(
        self,
        source: Rows | Int[Tensor, "B S"],
        target: Rows | Int[Tensor, "B T"],
        source_lengths: Lengths = None,
        target_lengths: Lengths = None,
    ) -> Float[Tensor, "B T V"]:
        """The logits of what may follow each target token. Plain ids are whole rows; lengths say how many of each row's
        tokens are real."""
        return self.logits(self.hidden(source, target, source_lengths, target_lengths))

    def logits(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T V"]:
        """The output layer: a logit for every token of the vocabulary. (B, T, C) -> (B, T, V)"""
        return self.tap("logits", self.output_kernel(x, self.output_weight, self.output_bias))

    def loss(
        self,
        source: Rows | Int[Tensor, "B S"],
        target: Rows | Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"] | None = None,
        *,
        source_lengths: Lengths = None,
        target_lengths: Lengths = None,
        smoothing: float = 0.0,
    ) -> Float[Tensor, ""]:
        """With labels: summed over the positions that have one (a trainer divides by their number). Without: the mean, in
        nats, over every target token that follows another."""
        source, target = as_rows(source, source_lengths), as_rows(target, target_lengths)
        targets = next_token_labels(target) if labels is None else labels
        hidden = self.hidden(source, target)
        total = self.cross_entropy(hidden, self.output_weight, targets, bias=self.output_bias, smoothing=smoothing)
        return total if labels is not None else total / (targets != IGNORE).sum().clamp(min=1)

    def start(self, source: Rows, capacity: int, *, beams: int = 1) -> KVCache:
        """The cache to decode from: the encoded source (one sentence a row), and memory for `beams` targets of at most
        `capacity` tokens each."""
        cache = self.make_cache(source.shape[0], capacity * beams, beams=beams, source=source.shape[1])
        self.prefill(source, cache)
        return cache

    def prefill(self, source: Rows, cache: KVCache, start: int = 0, *, copies: int = 1) -> None:
        """Encode sources (one sentence a row), each for `copies` slots of the cache from `start` on."""
        cache.begin(start, start + source.shape[0] * copies)
        cache.store_source(self.decoder.project_memory(self.encode(source)), source, start, copies=copies)
