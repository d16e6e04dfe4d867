"""Encoder-only: every token sees every other (Devlin et al. 2019). Three heads on the same body:

mlm        masked language modelling: what stood at the masked positions
classify   one label a sentence, read off its first token (as BERT does) or off the mean of its tokens
tag        one label a token
none       no head: what comes out is the last hidden state, for texts as vectors

The first three are one label a position, so a row may hold one sentence or several: a class stands at its sentence's first
position and every other position has no label.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.models.parts import BaseModel, initialise, make_encoder, make_norm, make_positions
from glassformer.nn.embedding import Embedding
from glassformer.nn.feedforward import ACTIVATIONS
from glassformer.nn.rows import Lengths, Rows, as_rows


def mean_pool(x: Float[Tensor, "B T C"], rows: Rows) -> Float[Tensor, "B T C"]:
    """Mean pooling: at every position the mean over its sentence."""
    same = (rows.segments[:, :, None] == rows.segments[:, None, :]).to(x.dtype)
    return same @ x / same.sum(dim=-1, keepdim=True)


class MLMHead(nn.Module):
    """BERT's masked-language-model head: dense, activation, norm; then the embedding table as output layer, with a bias for each
    token of the vocabulary."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.activate = ACTIVATIONS.get(config.activation, nn.functional.gelu)
        self.norm = make_norm(config)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x: Float[Tensor, "B T C"], real: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T C"]:
        """What the output layer reads: norm(activation(dense(x))). (B, T, C) -> (B, T, C)"""
        return self.norm(self.activate(self.dense(x)), real)


class ClassificationHead(nn.Module):
    """Sequence classification: dense, tanh, dropout, labels. Token classification (tags): dropout, labels."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.n_embd, config.n_embd, bias=config.bias) if config.head == "classify" else None
        self.drop = nn.Dropout(config.dropout)
        self.label = nn.Linear(config.n_embd, config.n_label)

    def forward(self, x: Float[Tensor, "B T C"], real: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T C"]:
        """What the label layer reads. (B, T, C) -> (B, T, C)"""
        return self.drop(x if self.dense is None else self.dense(x).tanh())


class BERT(BaseModel):
    """An encoder alone: every token sees every other.

    >>> import torch
    >>> bert = BERT(n_layer=1, n_head=2, n_embd=16, vocab_size=50, block_size=16)
    >>> bert(torch.randint(50, (2, 7))).shape                 # at each position, a logit for each token of the vocabulary
    torch.Size([2, 7, 50])
    >>> bert = BERT(n_layer=1, n_head=2, n_embd=16, vocab_size=50, head="classify", n_label=3)
    >>> bert(torch.randint(50, (2, 7)), lengths=[7, 2])[:, 0].shape   # the class is read off the first token
    torch.Size([2, 3])

    `config` is a ModelConfig; its settings can also be given by name, alone or on top of it.
    `BERT.from_preset("bert-base")` is the paper's.
    """

    tap_names = ("embeddings", "logits")
    family = "bert"

    def __init__(self, config: ModelConfig | None = None, **settings: Any) -> None:
        config = self.resolve(config, settings)
        super().__init__(config)
        if config.head in ("classify", "tag") and config.n_label < 2:
            raise ConfigError(
                "model.head={head!r} needs model.n_label of at least 2; it is set from the data, or by hand",
                config.head,
            )
        self.embedding = Embedding(config.vocab_size, config.n_embd, scale=config.scale_embeddings)
        self.positions = make_positions(config)
        self.type_embedding = Embedding(config.n_token_type, config.n_embd) if config.n_token_type else None
        self.embedding_norm = make_norm(config) if config.embedding_norm else None
        self.encoder = make_encoder(config, config.n_layer)
        self.mean_pooling = config.head == "classify" and config.pool == "mean"
        self.head: MLMHead | ClassificationHead | None = None
        if config.head != "none":
            self.head = MLMHead(config) if config.head == "mlm" else ClassificationHead(config)
        self.output = (
            nn.Linear(config.n_embd, config.vocab_size, bias=False)
            if config.head == "mlm" and not config.tie_output
            else None
        )
        initialise(self)

    def output_layer(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of the layer from which logits come, of tokens (mlm) or of labels."""
        if self.head is None:
            raise ConfigError(
                "this BERT has no head (model.head is none), so it has no scores and no loss; it embeds texts"
            )
        if isinstance(self.head, ClassificationHead):
            return self.head.label.weight, self.head.label.bias
        return (self.embedding.weight if self.output is None else self.output.weight), self.head.bias

    def hidden(
        self, rows: Rows | Int[Tensor, "B T"], types: Int[Tensor, "B T"] | None = None, *, lengths: Lengths = None
    ) -> Float[Tensor, "B T C"]:
        """The encoder's output, or its mean over each sentence. `types` tells sentence A from sentence B; without it all is A."""
        rows = as_rows(rows, lengths)
        inputs = self.block_inputs(rows, causal=False)
        x = self.embed(self.embedding, self.positions, rows.tokens, rows.broadcast_positions, rows.n_positions)
        if self.type_embedding is not None:
            x = x + self.type_embedding(torch.zeros_like(rows.tokens) if types is None else types)
        x = self.tap("embeddings", x if self.embedding_norm is None else self.embedding_norm(x, inputs.real))
        x = self.encoder(self.drop(x), inputs)
        return mean_pool(x, rows) if self.mean_pooling else x

    def forward(
        self, rows: Rows | Int[Tensor, "B T"], types: Int[Tensor, "B T"] | None = None, *, lengths: Lengths = None
    ) -> Float[Tensor, "B T V"]:
        """At each position the logits of its labels. Plain ids are whole rows; `lengths` says how many of each row's tokens
        are real."""
        rows = as_rows(rows, lengths)
        return self.logits(self.hidden(rows, types), rows.real)

    def logits(self, x: Float[Tensor, "B T C"], real: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T V"]:
        """The head and the output layer: logits of the V tokens of the vocabulary, or of the labels. (B, T, C) -> (B, T, V).
        Without a head: x as it is."""
        if self.head is None:
            return self.tap("logits", x)
        weight, bias = self.output_layer()
        return self.tap("logits", nn.functional.linear(self.head(x, real), weight, bias))

    def loss(
        self,
        rows: Rows | Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        *,
        lengths: Lengths = None,
        types: Int[Tensor, "B T"] | None = None,
        smoothing: float = 0.0,
    ) -> Float[Tensor, ""]:
        """Summed over the positions that have a label (any other label is -100)."""
        rows = as_rows(rows, lengths)
        weight, bias = self.output_layer()
        assert self.head is not None
        x = self.head(self.hidden(rows, types), rows.real)
        return self.cross_entropy(x, weight, labels, bias=bias, smoothing=smoothing)
