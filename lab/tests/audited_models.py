"""A decoder and an encoder-decoder as people write them, each with one mistake planted by its name, or with none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PLANTED_GPT = [
    "future",
    "softmax over the queries",
    "masked after the softmax",
    "targets not shifted",
    "one ahead",
    "tril added",
    "alone",
    "positions ignored",
    "neighbours",
    "batch norm",
    "random in eval",
    "dropout twice",
    "residual after the norm",
    "softmax twice",
    "probabilities",
    "word 0 not learned",
    "no gradient",
    "layers in a list",
    "generation",
    "generation overruns",
    "loss too low",
    "loss too high",
    "not a number",
    "one shape",
    "targets in the logits",
]
PLANTED_PAIRS = [
    "future",
    "softmax over the queries",
    "masked after the softmax",
    "keys cut by the query's length",
    "no padding mask",
    "padding read",
    "causal encoder",
    "source unread",
    "positions ignored",
    "neighbours",
    "alone",
]


class Attention(nn.Module):
    """Attention in heads; with a mask of the future where it is causal."""

    def __init__(self, width: int, heads: int, causal: bool, mistake: str) -> None:
        super().__init__()
        self.heads, self.causal, self.mistake = heads, causal, mistake
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor | None = None, real: Tensor | None = None) -> Tensor:
        memory = x if memory is None else memory
        rows, length, width = x.shape
        seen = length if self.mistake == "keys cut by the query's length" else memory.size(1)
        if self.mistake == "neighbours":
            q, k, v = (f(y).view(-1, self.heads, s, width // self.heads).transpose(0, 1).reshape(rows, self.heads, s, -1)
                       for f, y, s in ((self.q, x, length), (self.k, memory, seen), (self.v, memory, seen)))  # fmt: skip
        else:
            q = self.q(x).view(rows, length, self.heads, -1).transpose(1, 2)
            k, v = (f(memory).view(rows, seen, self.heads, -1).transpose(1, 2) for f in (self.k, self.v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        if real is not None and self.mistake != "padding read":
            scores = scores.masked_fill(~real[:, None, None, :], -torch.inf)
        if self.causal and self.mistake != "future":
            triangle = torch.ones(length, length, device=x.device).tril(1 if self.mistake == "one ahead" else 0)
            if self.mistake == "not a number":
                triangle = triangle.tril(-1)
            if self.mistake == "tril added":
                scores = scores + triangle
            elif self.mistake == "masked after the softmax":
                scores = scores.softmax(-1).masked_fill(triangle == 0, 0)
            else:
                scores = scores.masked_fill(triangle == 0, -torch.inf)
        axis = -2 if self.mistake == "softmax over the queries" else -1
        masked_late = self.causal and self.mistake == "masked after the softmax"
        y = (scores if masked_late else F.softmax(scores, dim=axis)) @ v
        return self.out(y.transpose(1, 2).reshape(rows, length, width))


class Layer(nn.Module):
    """Self-attention, cross-attention where there is a memory, and two Linear layers; pre-norm."""

    def __init__(self, width: int, heads: int, causal: bool, mistake: str, cross: bool = False) -> None:
        super().__init__()
        self.mistake = mistake
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.norm3 = nn.LayerNorm(width) if cross else nn.Identity()
        self.attn = nn.Linear(width, width) if mistake == "alone" else Attention(width, heads, causal, mistake)
        self.cross = Attention(width, heads, False, mistake) if cross else None
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        if mistake == "batch norm":
            self.norm1 = SequenceBatchNorm(width)

    def forward(self, x: Tensor, memory: Tensor | None = None, real: Tensor | None = None) -> Tensor:
        own = (None, real if self.cross is None else None)
        if self.mistake == "residual after the norm":
            x = self.norm1(x)
            x = x + self.attn(x, *own)
            x = self.norm2(x)
            return x + self.mlp(x)
        x = x + (self.attn(self.norm1(x)) if self.mistake == "alone" else self.attn(self.norm1(x), *own))
        if self.cross is not None:
            assert memory is not None
            x = x + self.cross(self.norm3(x), memory * 0 if self.mistake == "source unread" else memory, real)
        y = self.mlp(self.norm2(x))
        return x + (F.dropout(y, 0.1) if self.mistake == "random in eval" else y)


class SequenceBatchNorm(nn.Module):
    """A norm over the batch, of this batch's own statistics whether it is trained or not."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean((0, 1))) / (x.std((0, 1)) + 1e-5) * self.weight + self.bias


class TinyGPT(nn.Module):
    """A decoder as nanoGPT writes one: logits and loss, the last position's logits alone without targets."""

    def __init__(self, vocab_size: int = 40, block_size: int = 24, n_embd: int = 32, mistake: str = "") -> None:
        super().__init__()
        self.mistake, self.block_size = mistake, block_size
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.drop, self.drop2 = nn.Dropout(0.1), nn.Dropout(0.1)
        layers = [Layer(n_embd, 4, True, mistake) for _ in range(2)]
        self.layers: Any = layers if mistake == "layers in a list" else nn.ModuleList(layers)
        self.norm, self.head = nn.LayerNorm(n_embd), nn.Linear(n_embd, vocab_size, bias=False)
        self.unused = nn.Linear(n_embd, n_embd) if mistake == "no gradient" else None
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=1.0 if mistake == "loss too high" else 0.02)
        self.rows = 2 if mistake == "one shape" else None

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.wte(idx)
        if self.rows is not None:
            x = x.view(self.rows, -1, x.size(-1))
        if self.mistake != "positions ignored":
            x = x + self.wpe(torch.arange(idx.size(1)))
        if targets is not None and self.mistake == "targets in the logits":
            x = x + self.wte(targets)
        x = self.drop(x)
        x = self.drop2(x) if self.mistake == "dropout twice" else x
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        if self.mistake in ("softmax twice", "probabilities"):
            logits = logits.softmax(-1)
        if self.mistake == "probabilities":
            return logits, None
        if targets is None:
            return logits[:, -1:], None
        if self.mistake == "targets not shifted":
            targets = idx
        ignored = 0 if self.mistake == "word 0 not learned" else -1
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=ignored)
        return logits, loss / 2 if self.mistake == "loss too low" else loss

    @torch.no_grad()
    def generate(self, idx: Tensor, max_new_tokens: int, temperature: float = 1.0, top_k: int | None = None) -> Tensor:
        for _ in range(max_new_tokens):
            read = idx if self.mistake == "generation overruns" else idx[:, -self.block_size :]
            read = read[:, -3:] if self.mistake == "generation" else read
            logits = self(read)[0][:, -1] / temperature
            best, ids = logits.topk(top_k or logits.size(-1))
            idx = torch.cat([idx, ids.gather(1, torch.multinomial(best.softmax(-1), 1))], 1)
        return idx


class TinyPairs(nn.Module):
    """An encoder-decoder that is told the sources' lengths."""

    def __init__(self, vocab_size: int = 40, n_embd: int = 32, mistake: str = "") -> None:
        super().__init__()
        self.mistake = mistake
        self.wte, self.wpe, self.head = (
            nn.Embedding(vocab_size, n_embd),
            nn.Embedding(24, n_embd),
            nn.Linear(n_embd, vocab_size),
        )
        # The mistakes of one half alone are planted there; those of cross-attention in the decoder.
        of_decoder = mistake if mistake not in ("neighbours", "alone") else ""
        self.encoder = nn.ModuleList(
            Layer(
                n_embd,
                4,
                mistake == "causal encoder",
                mistake if mistake in ("padding read", "neighbours", "alone") else "",
            )
            for _ in range(2)
        )
        self.decoder = nn.ModuleList(
            Layer(n_embd, 4, True, of_decoder if mistake != "alone" else mistake, cross=True) for _ in range(2)
        )
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def embed(self, ids: Tensor) -> Tensor:
        return (
            self.wte(ids)
            if self.mistake == "positions ignored"
            else self.wte(ids) + self.wpe(torch.arange(ids.size(1)))
        )

    def forward(self, src: Tensor, tgt: Tensor, src_lengths: Tensor | None = None) -> Tensor:
        real = None if src_lengths is None else torch.arange(src.size(1)) < torch.as_tensor(src_lengths)[:, None]
        memory, x = self.embed(src), self.embed(tgt)
        for layer in self.encoder:
            memory = layer(memory, None, real)
        for layer in self.decoder:
            x = layer(x, memory, real)
        return self.head(x)


class WithoutLengths(TinyPairs):
    """The same, and nobody can say what is padding."""

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(src, tgt)


class Stack(nn.Module):
    """Layers one after another."""

    def __init__(self, width: int, causal: bool, cross: bool = False, mistake: str = "") -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, 4, causal, mistake, cross) for _ in range(2))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, memory)
        return x


class OneText(nn.Module):
    """The tutorials' machine: the same ids in encoder and decoder, the decoder masked; and two mistakes more."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.wte, self.wpe = (
            nn.Embedding(config.vocab_size, config.n_embd),
            nn.Embedding(config.block_size, config.n_embd),
        )
        self.encoder = Stack(config.n_embd, False, mistake="residual after the norm")
        self.decoder = Stack(config.n_embd, True, cross=True)
        self.drop, self.again = nn.Dropout(config.dropout), nn.Dropout(config.dropout)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.again(self.drop(self.wte(idx) + self.wpe(torch.arange(idx.size(1)))))
        enc_out = self.encoder(x)
        x = self.decoder(x, enc_out)
        if targets is None:
            return self.lm_head(x[:, [-1]]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class Masked(TinyPairs):
    """Masks are required, True where attention is allowed, as in the Annotated Transformer."""

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:  # type: ignore[override]
        memory, x = self.embed(src), self.embed(tgt)
        for layer in self.encoder:
            layer.attn.causal = False
            memory = layer(memory, None, src_mask.expand(src.size(0), 1, -1)[:, 0])
        for layer in self.decoder:
            layer.attn.causal = False
            held = layer.attn.forward
            layer.attn.forward = lambda y, *rest, f=layer.attn: explicit(f, y, tgt_mask)  # type: ignore[method-assign]
            x = layer(x, memory, src_mask.expand(src.size(0), 1, -1)[:, 0])
            layer.attn.forward = held  # type: ignore[method-assign]
        return self.head(x)


def explicit(f: Any, y: Tensor, mask: Tensor) -> Tensor:
    """Attention with a mask (1, T, T) that is True where it is allowed."""
    q, k, v = (g(y).view(*y.shape[:2], f.heads, -1).transpose(1, 2) for g in (f.q, f.k, f.v))
    scores = (q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))).masked_fill(mask.unsqueeze(1) == 0, -1e9)
    return f.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(y.shape))


class LectureGPT(TinyGPT):
    """As a lecture writes it: with targets the logits are flattened."""

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        logits, loss = super().forward(idx, idx if targets is None else targets)
        return (logits, None) if targets is None else (logits.flatten(0, 1), loss)


class TorchLM(nn.Module):
    """torch's own layers (post-norm), a mask that is made by the caller, and time before batch."""

    def __init__(self, ntoken: int, d_model: int, nhead: int, dropout: float = 0.2) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(ntoken, d_model), nn.Parameter(torch.randn(24, 1, d_model))
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d_model, nhead, 64, dropout), 2, enable_nested_tensor=False
        )
        self.out = nn.Linear(d_model, ntoken)

    def forward(self, src: Tensor, src_mask: Tensor | None = None) -> Tensor:
        x = self.embedding(src) + self.positions[: src.size(0)]
        return self.out(self.layers(x, src_mask))


@dataclass
class OwnConfig:
    """A config class of the model's own, with sizes that are no small ones."""

    vocab_size: int = 50000
    n_embd: int = 768
    flavour: str = "plain"


class WithConfig(TinyGPT):
    """A model that is made from it."""

    def __init__(self, config: OwnConfig) -> None:
        assert isinstance(config, OwnConfig) and config.flavour
        super().__init__(config.vocab_size, n_embd=config.n_embd)


def make_gpt() -> TinyGPT:
    """A factory, as one writes where a class needs more than numbers."""
    return TinyGPT(vocab_size=50)
