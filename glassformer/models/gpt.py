"""Decoder-only: each token is predicted from those before it (Radford et al. 2018, 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.errors import ConfigError
from glassformer.models.bert import LabelHead
from glassformer.models.parts import Family, initialise, make_decoder, make_norm, make_positions
from glassformer.models.state import State
from glassformer.nn.embedding import Embedding
from glassformer.nn.loss import IGNORE
from glassformer.nn.rows import Lengths, Rows, as_rows, next_tokens


class GPT(Family):
    """A decoder alone, which says what may follow each token.

    >>> import torch
    >>> gpt = GPT(n_layer=2, n_head=4, n_embd=32, vocab_size=100, block_size=16)
    >>> ids = torch.randint(100, (2, 7))
    >>> gpt(ids).shape                          # a score for each word, after each token
    torch.Size([2, 7, 100])
    >>> gpt(ids, lengths=[7, 3]).shape          # the second row is three tokens and padding
    torch.Size([2, 7, 100])
    >>> gpt.loss(ids).backward()                # mean over the tokens that follow another

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
        self.head = LabelHead(config) if config.head == "classify" else None
        writes = not config.tie_output and self.head is None
        self.output = nn.Linear(config.n_embd, config.vocab_size, bias=False) if writes else None
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
        initialise(self)

    @property
    def output_weight(self) -> Tensor:
        """The matrix that scores words: the embedding table where they are tied. (V, C)"""
        if self.head is not None:
            return self.head.label.weight
        return self.embedding.weight if self.output is None else self.output.weight

    @property
    def score_bias(self) -> Tensor | None:
        """A bias a word or a label, where there is one."""
        return self.output_bias if self.head is None else self.head.label.bias

    def before_scores(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """What the output layer reads: the last layer's output, or what a classifier's head makes of it. A class is read off
        the last token, the only one that has seen the whole text."""
        return x if self.head is None else self.head(x)

    def read(
        self, tokens: Tensor, places: Tensor, length: int | None, real: Tensor | None = None
    ) -> Float[Tensor, "B T C"]:
        """Tokens at their places as vectors, ready for the first block. (B, T) -> (B, T, C)"""
        x = self.embed(self.embedding, self.positions, tokens, places, length)
        x = self.tap("embeddings", x if self.embedding_norm is None else self.embedding_norm(x, real))
        return self.drop(x)

    def hidden(self, rows: Rows | Int[Tensor, "B T"], lengths: Lengths = None) -> Float[Tensor, "B T C"]:
        """The last layer's output, before the scores."""
        rows = as_rows(rows, lengths)
        view = self.view(rows, causal=True)
        return self.decoder(self.read(rows.tokens, rows.places, rows.longest, view.real), view)

    def forward(self, rows: Rows | Int[Tensor, "B T"], lengths: Lengths = None) -> Float[Tensor, "B T V"]:
        """The scores of what may follow each token. Plain ids are whole rows; `lengths` says how many of each row's
        tokens are real."""
        return self.logits(self.hidden(rows, lengths))

    def logits(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T V"]:
        """A score for every word from the decoder's output. (B, T, C) -> (B, T, V)"""
        return self.tap("logits", nn.functional.linear(self.before_scores(x), self.output_weight, self.score_bias))

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
        wanted = next_tokens(rows) if labels is None else labels
        total = self.cross_entropy(
            self.before_scores(self.hidden(rows)), self.output_weight, wanted, bias=self.score_bias, smoothing=smoothing
        )
        return total if labels is not None else total / (wanted != IGNORE).sum().clamp(min=1)

    def start(self, rows: int, capacity: int) -> State:
        """Room for `rows` texts of at most `capacity` tokens, nothing read yet."""
        return State(self.make_cache(rows, capacity))

    def step(
        self, tokens: Int[Tensor, "B new"], state: State, lengths: Sequence[int] | None = None
    ) -> Float[Tensor, "B new V"]:
        """Read further tokens and score what may follow each. `lengths` says how many of each row's tokens are real,
        where prompts of different lengths are read together (padded on the right)."""
        new = tokens.size(1)
        view = self.cached_view(state.cache, new)
        x = self.read(tokens, state.cache.positions(new), state.cache.filled + new)
        x = self.decoder(x, view, cache=state.cache)
        state.cache.advance(new, lengths)
        return self.logits(x)

    @torch.no_grad()
    def generate(
        self, tokens: Int[Tensor, "B T"], new: int, *, temperature: float = 1.0, top_k: int | None = None
    ) -> Int[Tensor, "B all"]:
        """The plainest loop that uses the cache; real decoding, with everything one can ask of it, is in `decode`."""
        state = self.start(tokens.size(0), tokens.size(1) + new)
        scores = self.step(tokens, state)[:, -1]
        for _ in range(new):
            if temperature == 0:
                chosen = scores.argmax(-1, keepdim=True)
            else:
                scores = scores / temperature
                if top_k is not None:
                    floor = scores.topk(min(top_k, scores.size(-1))).values[:, -1:]
                    scores = scores.masked_fill(scores < floor, -torch.inf)
                chosen = torch.multinomial(scores.softmax(-1), 1)
            tokens = torch.cat([tokens, chosen], dim=1)
            scores = self.step(chosen, state)[:, -1] if tokens.size(1) < state.cache.capacity + 1 else scores
        return tokens
