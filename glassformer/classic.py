"""The whole machine in one file: the encoder-decoder Transformer and the GPT, as the tutorials tell them, but right.

Read it from top to bottom; nothing is used before it is explained. Part 1 holds what both models share, part 2 the
encoder-decoder of "Attention Is All You Need" (Vaswani et al., 2017) in its pre-norm form, part 3 the GPT, part 4 two toy
tasks that train in seconds:

    python glassformer/classic.py

Class, method and argument names are those of the circulating tutorials, so that a reader finds every part where they
left it. Those tutorials share a number of mistakes. Each is put right here, and a comment that begins with "Put right"
stands at the place and says what the mistake was.

What this file gives up for being short: it decodes without a cache (every new token recomputes the ones before it), pads
instead of packing, and knows one kind of norm and two kinds of positions. It needs torch and nothing else, and knows
nothing of tokenizers or files: ids come in, ids go out. The rest of the package does these things properly, and agrees with
this file number for number.

Letters in shapes: B batch, T target length, S source length, H heads, D head size, C = H·D model width, V vocabulary.
A mask is True where attention is allowed.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# A target that is not to be predicted. No word can have this id.
# Put right: the GPT course ignores id 0 in the loss, which drops a real word wherever 0 is one.
IGNORE = -100


# Part 1. What both models share ---------------------------------------------------------------------------------------


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(QKᵀ/√D): row t says how much of every key position s goes into position t. (..., T, D), (..., S, D) -> (..., T, S)

    Put right: "我喜欢你 and 你喜欢我 are the same to attention". Attention without positions is equivariant, not invariant: put
    the words in another order and the same outputs come in that other order. Causal attention is not even that.
    """
    # Put right: the GPT course takes torch.sqrt of an int, a TypeError; the width is a plain number.
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is None:
        return F.softmax(scores, dim=-1)
    # The second fill is for a row that may see nothing at all (an empty source): its weights are 0, not NaN.
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return F.softmax(scores, dim=-1).masked_fill(~mask, 0.0)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """softmax(QKᵀ/√D)V: every position takes a weighted mean of the values. It is what F.scaled_dot_product_attention does."""
    return F.dropout(attention_weights(q, k, mask), dropout) @ v


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Position t may see positions 0..t. (length, length)

    Put right: this mask is called "upper triangular" while `tril` makes a lower one. The upper triangle is what is forbidden.
    Put right: five mask rows are shown for `<BOS> I like you <EOS>`. Five tokens make four predictions (the input is
    `<BOS> I like you`, the answer `I like you <EOS>`), so the mask has four rows.
    Put right: "a causal attention matrix has a unit diagonal, hence full rank". After the softmax its diagonal is 1 in the
    first row only. What is true: it is triangular with a positive diagonal, hence invertible on paper; the diagonal shrinks
    like 1/t, so in floating point a long one loses more rank than full attention does.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def real_tokens(lengths: Tensor, width: int) -> Tensor:
    """Which places of a right-padded batch hold a token and which hold padding. (B,) -> (B, width)

    Padding is known from the lengths alone. Whatever ids lie beyond them, they are not looked at.
    """
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def _init_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, mean=0.0, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def sample(logits: Tensor, temperature: float = 1.0, top_k: int | None = None) -> Tensor:
    """One id a row, drawn from the `top_k` likeliest (all, if None); temperature 0 takes the likeliest. (B, V) -> (B, 1)"""
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    best, ids = (logits / temperature).topk(min(top_k or logits.size(-1), logits.size(-1)))
    return ids.gather(-1, torch.multinomial(F.softmax(best, dim=-1), 1))


# Part 2. The encoder-decoder ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Config:
    """Some texts call this object `args`. Source and target share one vocabulary."""

    vocab_size: int
    block_size: int = 64  # the positions prepared in advance; longer sentences work too
    n_layer: int = 2  # in the encoder, and again in the decoder
    n_head: int = 4
    n_embd: int = 64
    dropout: float = 0.0
    bias: bool = True  # in Linear and LayerNorm
    scale_embeddings: bool = True  # multiply embeddings by √n_embd, as the paper does
    bos: int = 0  # the id every target begins with
    eos: int = 1  # the id every target ends with


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each in D = C/H of the dimensions, joined by one more matrix.

    Self-attention is `attn(x, x, x)`; cross-attention is `attn(x, enc_out, enc_out)`.
    """

    fused = True  # False: the equation above instead of PyTorch's kernel. A test pins one to the other.

    def __init__(self, config: Config, is_causal: bool = False) -> None:
        super().__init__()
        if config.n_embd % config.n_head:
            raise ValueError(f"n_embd {config.n_embd} is not divisible by n_head {config.n_head}")
        self.n_head = config.n_head
        self.is_causal = is_causal
        self.dropout = config.dropout
        self.c_attns = nn.ModuleList(nn.Linear(config.n_embd, config.n_embd, bias=config.bias) for _ in range(3))
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.resid_dropout = nn.Dropout(config.dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_real: Tensor | None = None) -> Tensor:
        """(B, T, C), (B, S, C), (B, S, C) -> (B, T, C). `key_real` (B, S) is False at keys that are padding."""
        # Put right: keys and values are cut into heads by the query's length, a RuntimeError as soon as S differs from T.
        # Each is cut by its own length here, which is what the -1 stands for.
        q, k, v = (
            project(x).view(x.size(0), -1, self.n_head, x.size(2) // self.n_head).transpose(1, 2)  # (B, H, T or S, D)
            for project, x in zip(self.c_attns, (query, key, value), strict=True)
        )
        # Put right: no padding mask anywhere, so that a sentence's result depends on what it is batched with.
        mask = None if key_real is None else key_real[:, None, None, :]
        if self.is_causal:
            triangle = causal_mask(query.size(1), query.device)
            mask = triangle if mask is None else triangle & mask
        attend = F.scaled_dot_product_attention if self.fused else attention
        y = attend(q, k, v, mask, self.dropout if self.training else 0.0)
        y = y.transpose(1, 2).flatten(2)  # the heads side by side again
        return self.resid_dropout(self.c_proj(y))


class MLP(nn.Module):
    """The same two-layer network at every position: out to 4C, and back."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(F.relu(self.c_fc(x))))


class LayerNorm(nn.Module):
    """(x - mean) / standard deviation · weight + bias, for each token by itself.

    Put right: "the statistics run over all layers". They run over the features of one token: the last dimension, alone.
    Put right: "LayerNorm in PyTorch must have a bias". nn.LayerNorm(ndim, bias=False) works; this class is that one.
    """

    def __init__(self, ndim: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class EncoderLayer(nn.Module):
    """Every source token looks at every source token, then thinks by itself."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, config.bias)
        self.attn = MultiHeadAttention(config, is_causal=False)
        self.ln_2 = LayerNorm(config.n_embd, config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, src_real: Tensor | None = None) -> Tensor:
        # Put right: `x = ln(x); x = x + attn(x)` takes the residual after the norm, so that the stream is normalised away
        # at every layer. Pre-norm means x + attn(ln(x)): x itself passes by untouched.
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, src_real)
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """A stack of layers and a final norm, since in pre-norm nothing else normalises what the last layer adds.

    Put right: one text's "complete" model has plain Linear layers for encoder and decoder; no token ever sees another.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layer))
        self.norm = LayerNorm(config.n_embd, config.bias)

    def forward(self, x: Tensor, src_real: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, src_real)
        return self.norm(x)


class DecoderLayer(nn.Module):
    """Every target token looks at itself and the ones before it, then at the whole source, then thinks by itself."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, config.bias)
        self.m_attn = MultiHeadAttention(config, is_causal=True)
        self.ln_2 = LayerNorm(config.n_embd, config.bias)
        self.attn = MultiHeadAttention(config, is_causal=False)
        self.ln_3 = LayerNorm(config.n_embd, config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, enc_out: Tensor, src_real: Tensor | None = None) -> Tensor:
        # The target needs no padding mask: what lies to the right of its last token is the future, and hidden already.
        h = self.ln_1(x)
        x = x + self.m_attn(h, h, h)
        x = x + self.attn(self.ln_2(x), enc_out, enc_out, src_real)
        return x + self.mlp(self.ln_3(x))


class Decoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.n_layer))
        self.norm = LayerNorm(config.n_embd, config.bias)

    def forward(self, x: Tensor, enc_out: Tensor, src_real: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, enc_out, src_real)
        return self.norm(x)


def sinusoids(length: int, width: int, n: float = 10000.0) -> Tensor:
    """PE[pos, 2i] = sin(pos / n^(2i/width)), PE[pos, 2i+1] = cos(the same). (length, width)

    Put right: "2i and 2i+1 mark even and odd tokens". They are dimensions; the token's place is pos.
    Put right: a worked example is computed for n=10000, the code under it for n=100, and its last row mixes the two. The
    paper's n is 10000.
    Put right: "the inner product of two positions tends to zero with their distance". It depends on the distance alone, but
    falls slowly and not steadily: at width 512 it is still 0.44 of the maximum at distance 100.
    """
    if width % 2:
        raise ValueError(
            f"sinusoidal positions come in pairs of sine and cosine, so the width must be even, not {width}"
        )
    pos = torch.arange(length, dtype=torch.float64)[:, None]
    angles = pos / n ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class PositionalEncoding(nn.Module):
    """Adds a sinusoid to every embedding, then drops some of the sum."""

    table: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        table = sinusoids(config.block_size, config.n_embd).to(torch.get_default_dtype())
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        # Put right: the text says that a sentence longer than any in training is no problem, and the code asserts
        # t <= block_size. A sinusoid exists at every position, so a longer table is made when one is needed. (That it
        # runs does not say that it translates well: a model is only as good as the lengths it has seen.)
        if x.size(1) > self.table.size(0):
            self.table = sinusoids(x.size(1), x.size(2)).to(self.table)
        return self.dropout(x + self.table[: x.size(1)])


class Transformer(nn.Module):
    """Source ids and the target so far in, logits for the next target id out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        # Put right: a second dropout, `drop`, follows the one inside PositionalEncoding: at 0.1 it drops 0.19.
        self.wpe = PositionalEncoding(config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.apply(_init_weights)

    def get_num_params(self, non_embedding: bool = False) -> int:
        """The number of parameters; with `non_embedding`, without the table that turns ids into vectors."""
        n_params = sum(p.numel() for p in self.parameters())
        # Put right: `wpe.weight` was subtracted here, an AttributeError, since a table of sinusoids is no parameter.
        return n_params - self.wte.weight.numel() if non_embedding else n_params

    def embed(self, idx: Tensor) -> Tensor:
        # Put right: the paper multiplies by √n_embd (section 3.4), the tutorials do not. Without it, embeddings of size
        # 0.02 drown in sinusoids of size 1: which word it is can hardly be heard, and the toy task below is not learned.
        scale = math.sqrt(self.config.n_embd) if self.config.scale_embeddings else 1.0
        return self.wpe(self.wte(idx) * scale)

    def encode(self, src: Tensor, src_real: Tensor | None = None) -> Tensor:
        return self.encoder(self.embed(src), src_real)

    def decode(self, tgt: Tensor, enc_out: Tensor, src_real: Tensor | None = None) -> Tensor:
        return self.decoder(self.embed(tgt), enc_out, src_real)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        targets: Tensor | None = None,
        src_lengths: Tensor | None = None,
        tgt_lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """src (B, S), tgt (B, T): BOS w1 w2 ..., targets (B, T): w1 w2 ... EOS -> logits (B, T, V), mean loss.

        Without targets: the logits after the last token of each row, (B, 1, V), and None. Rows are padded on the right;
        the lengths (B,) say how far each goes, and may be left out where all rows are full.
        """
        # Put right: forward(idx) fed the same ids to an encoder that sees everything and to the decoder. Then the answer
        # lies open: changing the last id moves every earlier logit, and even random ids are "learned" below ln V.
        # Put right: shapes were printed on every call. Whoever wants to see a shape asks the tensor.
        src_real = None if src_lengths is None else real_tokens(src_lengths, src.size(1))
        x = self.decode(tgt, self.encode(src, src_real), src_real)
        if targets is None:
            last = torch.full_like(tgt[:, 0], tgt.size(1) - 1) if tgt_lengths is None else tgt_lengths - 1
            return self.lm_head(x[torch.arange(x.size(0), device=x.device), last])[:, None], None
        logits = self.lm_head(x)
        # Put right: padding was counted in the loss. The mean is over real tokens, and these are known from the lengths.
        if tgt_lengths is not None:
            targets = targets.masked_fill(~real_tokens(tgt_lengths, tgt.size(1)), IGNORE)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)

    def configure_optimizers(
        self, weight_decay: float, learning_rate: float, betas: tuple[float, float], device_type: str
    ) -> torch.optim.AdamW:
        """AdamW; tensors of two or more dimensions decay (the embedding is one of them), biases and norms do not."""
        params = [p for p in self.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [
            {"params": [p for p in params if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=device_type == "cuda")

    @torch.no_grad()
    def generate(
        self,
        src: Tensor,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        src_lengths: Tensor | None = None,
    ) -> Tensor:
        """The target of each source, (B, at most max_new_tokens); after its EOS a row holds EOS. Call .eval() before."""
        # Put right: the growing output was fed to the encoder as well. The source is encoded once; only the target grows.
        src_real = None if src_lengths is None else real_tokens(src_lengths, src.size(1))
        enc_out = self.encode(src, src_real)
        tgt = torch.full_like(src[:, :1], self.config.bos)
        ended = torch.zeros_like(tgt, dtype=torch.bool)
        for _ in range(max_new_tokens):
            logits = self.lm_head(self.decode(tgt, enc_out, src_real)[:, -1])
            new = sample(logits, temperature, top_k).masked_fill(ended, self.config.eos)
            tgt = torch.cat((tgt, new), dim=1)
            # Put right: generation never stopped at EOS, and ran on until max_new_tokens were spent.
            ended = ended | (new == self.config.eos)
            if ended.all():
                break
        return tgt[:, 1:]


# Part 3. The GPT ------------------------------------------------------------------------------------------------------
#
# Only the decoder's causal self-attention is left: no source, no cross-attention. Layers take numbers, as in the course.


class SelfAttention(nn.Module):
    """Causal self-attention that also hands out its weights."""

    def __init__(self, embed_dim: int, num_head: int, dropout: float) -> None:
        super().__init__()
        if embed_dim % num_head:
            raise ValueError(f"embed_dim {embed_dim} is not divisible by num_head {num_head}")
        self.num_head = num_head
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key = nn.Linear(embed_dim, embed_dim)
        self.value = nn.Linear(embed_dim, embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)
        self.attn_dropout = nn.Dropout(dropout)
        self.out_dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, C) -> (B, T, C) and the weights (B, H, T, T), before dropout, so that their rows sum to one."""
        q, k, v = (
            project(x).unflatten(-1, (self.num_head, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        weights = attention_weights(q, k, causal_mask(x.size(1), x.device))
        y = (self.attn_dropout(weights) @ v).transpose(1, 2).flatten(2)
        return self.out_dropout(self.out(y)), weights


class FFN(nn.Module):
    def __init__(self, embed_dim: int, feedforward_dim: int, dropout: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, feedforward_dim)
        self.fc2 = nn.Linear(feedforward_dim, embed_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.fc2(F.gelu(self.fc1(x), approximate="tanh")))


class TransformerLayer(nn.Module):
    """Put right: the text describes post-norm with ReLU while the code beside it is pre-norm with GELU. GPT-2 is the latter."""

    def __init__(
        self, embed_dim: int, num_head: int, feedforward_dim: int, dropout: float, no_res: bool = False
    ) -> None:
        super().__init__()
        self.no_res = no_res  # no residual connections: try it, and see what they are good for
        self.ln_1 = nn.LayerNorm(embed_dim)
        self.attn = SelfAttention(embed_dim, num_head, dropout)
        self.ln_2 = nn.LayerNorm(embed_dim)
        self.ffn = FFN(embed_dim, feedforward_dim, dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, attn = self.attn(self.ln_1(x))
        x = y if self.no_res else x + y
        y = self.ffn(self.ln_2(x))
        return (y if self.no_res else x + y), attn


class GPT(nn.Module):
    """Ids in, logits for the id after each out. Learned positions; the output matrix is the embedding table."""

    def __init__(
        self,
        vocab_size: int,
        max_seq_len: int,
        num_layer: int,
        embed_dim: int,
        num_head: int,
        feedforward_dim: int,
        dropout: float,
        no_res: bool = False,
        no_pos: bool = False,
    ) -> None:
        super().__init__()
        self.max_seq_len = max_seq_len
        self.wte = nn.Embedding(vocab_size, embed_dim)
        self.wpe = None if no_pos else nn.Embedding(max_seq_len, embed_dim)  # without: order is told by the mask alone
        self.drop = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            TransformerLayer(embed_dim, num_head, feedforward_dim, dropout, no_res) for _ in range(num_layer)
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.lm_head = nn.Linear(embed_dim, vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        self.apply(_init_weights)
        # Each layer adds twice to the residual stream; dividing by √(2·num_layer) keeps the variance of the sum.
        # Put right: only the attention's output was scaled. The MLP's second matrix adds to the stream as well.
        for name, parameter in self.named_parameters():
            if name.endswith(("attn.out.weight", "ffn.fc2.weight")):
                nn.init.normal_(parameter, mean=0.0, std=0.02 / math.sqrt(2 * num_layer))

    def forward(self, word_idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | list[Tensor]]:
        """(B, T) -> logits (B, T, V) and the mean loss; without targets, and the attention weights: (B, H, T, T) a layer.

        `targets` is `word_idx` one place on. Rows of unequal length are padded on the right with any id: that is the
        future of every real token, so none sees it. The targets there are IGNORE.
        """
        if word_idx.size(1) > self.max_seq_len:
            raise ValueError(f"{word_idx.size(1)} tokens are more than the {self.max_seq_len} positions of this model")
        x = self.wte(word_idx)
        if self.wpe is not None:
            x = x + self.wpe(torch.arange(word_idx.size(1), device=word_idx.device))
        x = self.drop(x)
        weights = []
        for layer in self.layers:
            x, attn = layer(x)
            weights.append(attn)
        logits = self.lm_head(self.norm(x))
        if targets is None:
            return logits, weights
        # Put right: `ignore_index=0` stood here. See IGNORE at the top.
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)

    def configure_optimizers(self, weight_decay: float) -> list[dict[str, Any]]:
        """Groups for an optimizer: Linear weights decay; biases, norms and embeddings, so the tied output too, do not."""
        linear = {m.weight for m in self.modules() if isinstance(m, nn.Linear) and m is not self.lm_head}
        decay = [p for p in self.parameters() if p in linear]
        rest = [p for p in self.parameters() if p not in linear]
        return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]

    @torch.no_grad()
    def generate(
        self,
        idx: Tensor,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        eos: int | None = None,
    ) -> Tensor:
        """idx (B, T) and what follows it; with `eos`, a row ends there and holds eos from then on. Call .eval() before."""
        ended = torch.zeros_like(idx[:, :1], dtype=torch.bool)
        for _ in range(max_new_tokens):
            # Put right: the growing text ran past the position table. Only its last max_seq_len tokens are read.
            logits, _ = self(idx[:, -self.max_seq_len :])
            new = sample(logits[:, -1], temperature, top_k)
            if eos is not None:
                new = new.masked_fill(ended, eos)
                ended = ended | (new == eos)
            idx = torch.cat((idx, new), dim=1)
            if ended.all():
                break
        return idx


# Part 4. Two toy tasks ------------------------------------------------------------------------------------------------


def fit(optimizer: torch.optim.Optimizer, loss_of_a_batch: Callable[[], Tensor], steps: int, top_rate: float) -> None:
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=top_rate, total_steps=steps, pct_start=0.1)
    for step in range(1, steps + 1):
        loss = loss_of_a_batch()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step in (1, steps // 4, steps // 2, steps):
            print(f"  step {step:4d}  loss {loss.item():.3f}")


def reversal_batch(words: list[list[int]], config: Config) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """src, tgt, targets, src_lengths and tgt_lengths of the task "write the source backwards"."""

    def pad(rows: list[list[int]]) -> Tensor:
        width = max(map(len, rows))
        return torch.tensor([row + [0] * (width - len(row)) for row in rows])  # any id would do

    lengths = torch.tensor([len(word) for word in words])
    tgt = [[config.bos, *reversed(word)] for word in words]
    targets = [[*reversed(word), config.eos] for word in words]
    return pad(words), pad(tgt), pad(targets), lengths, lengths + 1


def reverse_digits(steps: int = 200) -> float:
    """Teaches the encoder-decoder to write numbers of three to six digits backwards; the share of unseen ones it gets right."""
    rng = random.Random(1)
    torch.manual_seed(1)
    names = ["<BOS>", "<EOS>", *"0123456789"]
    config = Config(vocab_size=len(names), block_size=16, n_layer=2, n_head=4, n_embd=64, bos=0, eos=1)
    model = Transformer(config)
    print(
        f"encoder-decoder: {model.get_num_params():,} parameters, {model.get_num_params(True):,} without the embedding"
    )

    numbers = {tuple(rng.randrange(2, 12) for _ in range(rng.randint(3, 6))): None for _ in range(8000)}
    words = [list(number) for number in numbers]  # all different
    test, train = words[:300], words[300:]

    def loss_of_a_batch() -> Tensor:
        src, tgt, targets, src_lengths, tgt_lengths = reversal_batch(rng.sample(train, 32), config)
        return model(src, tgt, targets, src_lengths, tgt_lengths)[1]

    optimizer = model.configure_optimizers(weight_decay=0.0, learning_rate=3e-3, betas=(0.9, 0.98), device_type="cpu")
    fit(optimizer, loss_of_a_batch, steps, top_rate=3e-3)

    # Put right: scores taken from teacher-forced output, where the model is shown the right beginning at every step, and
    # from texts that it, or its tokenizer, was trained on. What counts is free generation from unseen sources. And where
    # the score is BLEU: the hypothesis is what the model wrote, the reference what was wanted; swapped, the number differs.
    model.eval()
    src, _, _, src_lengths, _ = reversal_batch(test, config)
    written = model.generate(src, max_new_tokens=10, temperature=0.0, src_lengths=src_lengths).tolist()
    hypotheses = [row[: row.index(config.eos)] if config.eos in row else row for row in written]
    for word, hypothesis in list(zip(test, hypotheses, strict=True))[:3]:
        print(f"  {''.join(names[i] for i in word):>6} -> {''.join(names[i] for i in hypothesis)}")
    right = sum(hypothesis == word[::-1] for word, hypothesis in zip(test, hypotheses, strict=True)) / len(test)
    print(f"  {right:.1%} of {len(test)} unseen numbers reversed without an error")
    return right


POEM = """A word looks back at every word before,
and asks of each how much it has to say;
the answers, weighed together, are one more,
and so the line goes on its own dark way.
"""


def learn_a_poem(steps: int = 200) -> str:
    """Teaches the GPT four lines by heart, character by character, and lets it go on from their first words."""
    torch.manual_seed(1)
    letters = sorted(set(POEM))
    ids = torch.tensor([letters.index(c) for c in POEM])
    model = GPT(len(letters), 32, num_layer=2, embed_dim=64, num_head=4, feedforward_dim=256, dropout=0.0)
    print(f"GPT: {sum(p.numel() for p in model.parameters()):,} parameters, a text of {len(POEM)} characters")

    def loss_of_a_batch() -> Tensor:
        places = torch.randint(len(ids), (16, 1)) + torch.arange(model.max_seq_len + 1)
        windows = ids[places % len(ids)]  # after the last line comes the first
        return model(windows[:, :-1], windows[:, 1:])[1]

    fit(torch.optim.AdamW(model.configure_optimizers(weight_decay=0.1)), loss_of_a_batch, steps, top_rate=4e-3)

    model.eval()
    prompt = ids[None, :12]
    written = model.generate(prompt, len(ids) - prompt.size(1), temperature=0.0)
    text = "".join(letters[i] for i in written[0])
    print("".join(f"  | {line}\n" for line in text.splitlines()), end="")
    return text


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)  # matrices as small as these lose time to a second thread
    reverse_digits()
    learn_a_poem()
    print(f"{time.perf_counter() - start:.1f} seconds")


if __name__ == "__main__":
    main()
