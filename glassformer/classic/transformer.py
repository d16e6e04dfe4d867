"""The encoder-decoder Transformer in one file, as the tutorials tell it, but right: the machine of "Attention Is All You Need"
(Vaswani et al. 2017), pre-norm, under their names. Their calls work, or say what would be right; where they go wrong, seven
places say RIGHT:, and docs/errata.md has the proofs. `python glassformer/classic/transformer.py` trains it in seconds.

Letters in shapes: B batch, T target length, S source length, H heads, D head size, C = H·D model width, V vocabulary.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """The numbers of a model. Some texts call the object `args`, and some fields n_heads, dim and max_seq_len."""

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


def as_config(config: Any) -> Config:
    """A Config from any object that has the fields, under either text's names; fields it lacks have their defaults."""
    other = {"block_size": "max_seq_len", "n_layer": "n_layers", "n_head": "n_heads", "n_embd": "dim"}
    names = [(name, spelt) for name in Config.__dataclass_fields__ for spelt in (other.get(name, name), name)]
    found = {name: getattr(config, spelt) for name, spelt in names if hasattr(config, spelt)}
    return Config(**{"vocab_size": 0, **found})  # a single layer needs no vocabulary


def as_ids(ids: Any) -> Tensor:
    """Token ids (B, T) from a tensor, a NumPy array or lists; one sentence may come without its B."""
    if (ids := torch.as_tensor(ids)).is_floating_point() or ids.dim() > 2:
        raise TypeError(f"token ids are whole numbers of shape (B, T), not {ids.dtype} of shape {tuple(ids.shape)}")
    return ids.long().view(-1, ids.size(-1))


def as_mask(mask: Tensor) -> Tensor:
    """True where attention is allowed, from booleans or from zeros and ones of any type (a `tril` buffer); any other numbers
    as they are, to be added to the scores: 0, or -inf where attention is forbidden."""
    # RIGHT: ones and zeros that are added hide nothing; floats without a one (all 0: nothing is hidden) are added.
    added = mask.is_floating_point() and bool(((mask != 0) & (mask != 1)).any() or not mask.any())
    return mask if added else mask != 0


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(QKᵀ/√D), (..., T, D), (..., S, D) -> (..., T, S): how much of every key position goes into position t.
    The mask is True (1) where attention is allowed, or a number added to each score (0, or -inf where it is not)."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is None:
        return F.softmax(scores, dim=-1)
    mask = as_mask(mask)
    hidden = mask == (-math.inf if mask.is_floating_point() else 0)
    scores = (scores + mask if mask.is_floating_point() else scores).masked_fill(hidden, torch.finfo(scores.dtype).min)
    return F.softmax(scores, dim=-1).masked_fill(hidden, 0.0)  # a row that may see nothing gets 0, not NaN


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(QKᵀ/√D)V: a weighted mean of the values for every position, as F.scaled_dot_product_attention."""
    return attention_weights(q, k, mask) @ v


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Position t may see positions 0..t: lower triangular, a row a prediction. (length, length)"""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def real_tokens(lengths: Any, ids: Tensor) -> Tensor:
    """Which places of right-padded ids (B, T) hold a token: known from the lengths (B,), never from an id. -> (B, T)"""
    return torch.arange(ids.size(1), device=ids.device) < torch.as_tensor(lengths, device=ids.device)[:, None]


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each in D = C/H of the dimensions, joined by one more matrix.
    Self-attention is `attn(x, x, x)`; cross-attention is `attn(x, enc_out, enc_out)`."""

    def __init__(self, config: Any, is_causal: bool = False) -> None:
        super().__init__()
        config = as_config(config)
        if config.n_embd % config.n_head:
            raise ValueError(f"n_embd {config.n_embd} is not divisible by n_head {config.n_head}")
        self.n_head, self.n_embd, self.dropout = config.n_head, config.n_embd, config.dropout
        self.is_causal, self.block_size = is_causal, config.block_size
        self.c_attns = nn.ModuleList(nn.Linear(config.n_embd, config.n_embd, bias=config.bias) for _ in range(3))
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout, self.resid_dropout = nn.Dropout(config.dropout), nn.Dropout(config.dropout)
        self.flash = True  # torch's kernel; False: the equation, which leaves its `weights` to look at

    @property
    def bias(self) -> Tensor:
        """Their buffer: 1 where attention is allowed, 0 elsewhere, (1, 1, block_size, block_size)."""
        ones = torch.ones(1, 1, self.block_size, self.block_size, device=self.c_proj.weight.device)
        return ones.tril() if self.is_causal else ones

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        state_dict.pop(f"{prefix}bias", None)  # a buffer of theirs, no weight
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, C), (B, S, C), (B, S, C) -> (B, T, C). `mask` (T, S) or (B, T, S): see as_mask."""
        # RIGHT: keys and values are cut into heads by their own length (the -1); by the query's, S must equal T.
        given = zip(self.c_attns, (query, key, value), strict=True)
        q, k, v = (f(x).unflatten(-1, (self.n_head, -1)).transpose(1, 2) for f, x in given)  # (B, H, T or S, D)
        mask = None if mask is None else as_mask(mask)
        if self.is_causal:
            allowed = causal_mask(query.size(1), query.device)
            mask = allowed if mask is None else mask.masked_fill(~allowed, -math.inf if mask.is_floating_point() else 0)
        mask = mask[:, None] if mask is not None and mask.dim() == 3 else mask  # (B, T, S): the same for every head
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, mask, self.attn_dropout.p if self.training else 0.0)
        else:
            self.weights = attention_weights(q, k, mask)  # (B, H, T, S)
            y = self.attn_dropout(self.weights) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).flatten(2)))  # the heads side by side again


class MLP(nn.Module):
    """The same two-layer network at every position: out to 4C, ReLU, and back."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = as_config(config)
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.relu, self.dropout = nn.ReLU(), nn.Dropout(config.dropout)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """max(0, x W₁ + b₁) W₂ + b₂, (B, T, C) -> (B, T, C)."""
        return self.dropout(self.c_proj(self.relu(self.c_fc(x))))


class LayerNorm(nn.LayerNorm):
    """(x - mean) / standard deviation · weight + bias, over the features of each token by itself."""

    def __init__(self, ndim: int, bias: bool = True) -> None:
        super().__init__(ndim, bias=bias)


class Layer(nn.Module):
    """What the two kinds of layer share: `ln1` is `ln_1`, as some spell it."""

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(f"ln_{name[2]}" if name in ("ln1", "ln2", "ln3") else name)


class EncoderLayer(Layer):
    """Every source token looks at every source token, then thinks by itself."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = as_config(config)
        self.ln_1, self.ln_2 = (LayerNorm(config.n_embd, config.bias) for _ in range(2))
        self.attn, self.mlp = MultiHeadAttention(config), MLP(config)

    def forward(self, x: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """(B, S, C) -> (B, S, C)."""
        # RIGHT: x + attn(ln(x)). With `x = ln(x); x = x + attn(x)` the stream is normalised away at every layer.
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, src_mask)
        return x + self.mlp(self.ln_2(x))


class DecoderLayer(Layer):
    """Every target token looks at itself and the ones before it, then at the whole source, then thinks by itself."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = as_config(config)
        self.ln_1, self.ln_2, self.ln_3 = (LayerNorm(config.n_embd, config.bias) for _ in range(3))
        self.m_attn = MultiHeadAttention(config, is_causal=True)
        self.attn, self.mlp = MultiHeadAttention(config), MLP(config)

    def forward(self, x: Tensor, enc_out: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """(B, T, C) and what the encoder made of the source (B, S, C) -> (B, T, C)."""
        h = self.ln_1(x)
        x = x + self.m_attn(h, h, h)
        x = x + self.attn(self.ln_2(x), enc_out, enc_out, src_mask)
        return x + self.mlp(self.ln_3(x))


class Encoder(nn.Module):
    """A stack of layers and a final norm, since in pre-norm nothing else normalises what the last layer adds."""

    layer: type[nn.Module] = EncoderLayer

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = as_config(config)
        self.layers = nn.ModuleList(self.layer(config) for _ in range(config.n_layer))
        self.norm = LayerNorm(config.n_embd, config.bias)

    def forward(self, x: Tensor, *given: Tensor | None) -> Tensor:
        """(B, T, C) -> (B, T, C); `given` is handed to every layer."""
        for layer in self.layers:
            x = layer(x, *given)
        return self.norm(x)


class Decoder(Encoder):
    """The same idea as Encoder."""

    layer = DecoderLayer


def sinusoids(length: int, width: int, n: float = 10000.0) -> Tensor:
    """PE[pos, 2i] = sin(pos / n^(2i/width)), PE[pos, 2i+1] = cos(the same); 2i and 2i+1 are dimensions. (length, width)"""
    if width % 2:
        raise ValueError(f"sine and cosine come in pairs, so the width must be even, not {width}")
    pos = torch.arange(length, dtype=torch.float64)[:, None]
    angles = pos / n ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class PositionalEncoding(nn.Module):
    """Adds a sinusoid to every embedding, then drops some of the sum."""

    pe: Tensor

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = as_config(config)
        self.dropout = nn.Dropout(config.dropout)
        table = sinusoids(config.block_size, config.n_embd).to(torch.get_default_dtype())
        self.register_buffer("pe", table, persistent=False)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        self.pe = state_dict.pop(f"{prefix}pe", self.pe).flatten(0, -2).to(self.pe)  # theirs may be (1, T, C)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C). A sinusoid exists at every position, so a longer table is made when one is needed."""
        if x.size(1) > self.pe.size(0):
            self.pe = sinusoids(x.size(1), x.size(2)).to(self.pe)
        return self.dropout(x + self.pe[: x.size(1)])


def PositionEncoding(seq_len: Any, d_model: int | None = None, n: float = 10000.0) -> Any:
    """The table of one text, a NumPy array (seq_len, d_model); given a config alone, the layer, as another spells it."""
    return PositionalEncoding(seq_len) if d_model is None else sinusoids(seq_len, d_model, n).numpy()


class Transformer(nn.Module):
    """Source ids and the target so far in, logits for the next target id out."""

    def __init__(self, config: Any = None, *, args: Any = None) -> None:
        super().__init__()
        self.config = self.args = config = as_config(args if config is None else config)
        if config.vocab_size < 1:
            raise TypeError("use Transformer(config): an object with vocab_size and the other fields of Config")
        parts = {"wte": nn.Embedding(config.vocab_size, config.n_embd), "wpe": PositionalEncoding(config)}
        parts["drop"] = nn.Identity()  # RIGHT: wpe drops already; a second time, 0.1 becomes 0.19
        self.transformer = nn.ModuleDict({**parts, "encoder": Encoder(config), "decoder": Decoder(config)})
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.apply(self._init_weights)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def __getattr__(self, name: str) -> Any:
        """model.wte is model.transformer.wte, and so for the others."""
        parts = self.__dict__.get("_modules", {}).get("transformer")
        return parts[name] if parts is not None and name in parts else super().__getattr__(name)

    def get_num_params(self, non_embedding: bool = False) -> int:
        """The number of parameters; with `non_embedding`, without the table that turns ids into vectors."""
        return sum(p.numel() for p in self.parameters()) - non_embedding * self.wte.weight.numel()

    def embed(self, idx: Tensor) -> Tensor:
        """(B, T) -> (B, T, C). Unscaled, embeddings of size 0.02 drown in sinusoids of size 1."""
        return self.drop(self.wpe(self.wte(idx) * self.config.n_embd ** (0.5 * self.config.scale_embeddings)))

    def forward(
        self, src: Any = None, tgt: Any = None, targets: Any = ..., src_lengths: Any = None, tgt_lengths: Any = None,
        **theirs: Any,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """src (B, S), tgt (B, T): BOS w1 w2 ..., targets (B, T): w1 w2 ... EOS -> logits (B, T, V), mean loss.
        With targets=None: those after the last token of each row, (B, 1, V), and None. Rows are padded on the right, and the
        lengths (B,) say how far each goes; a target below 0 (-1, -100) is not learned."""
        # RIGHT: two texts. With one in both, the encoder shows the decoder its answer: even random ids are "learned".
        unsaid = targets is ... and src_lengths is None and tgt_lengths is None  # model(idx, targets) looks like this
        targets, tgt = None if targets is ... else targets, None if tgt is None else as_ids(tgt)
        if theirs or src is None or tgt is None or unsaid or (targets is None and (tgt[:, 0] != self.config.bos).any()):
            raise TypeError(
                "use model(src, tgt, targets): two texts, tgt from BOS on; targets=None: what comes next; for one text, GPT"
            )
        src = as_ids(src)
        # RIGHT: padding is hidden from everyone and left out of the loss.
        src_mask = None if src_lengths is None else real_tokens(src_lengths, src)[:, None, None, :]
        x = self.decoder(self.embed(tgt), self.encoder(self.embed(src), src_mask), src_mask)
        if targets is None:
            lengths = torch.full_like(tgt[:, 0], tgt.size(1)) if tgt_lengths is None else torch.as_tensor(tgt_lengths)
            return self.lm_head(x[torch.arange(x.size(0)), lengths - 1])[:, None], None
        targets = as_ids(targets)
        logits = self.lm_head(x)
        if tgt_lengths is not None:
            targets = targets.masked_fill(~real_tokens(tgt_lengths, tgt), -1)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.clamp(min=-1).flatten(), ignore_index=-1)

    def configure_optimizers(
        self, weight_decay: float, learning_rate: float, betas: tuple[float, float], device_type: str
    ) -> torch.optim.AdamW:
        """AdamW; tensors of two or more dimensions decay (the embedding is one of them), biases and norms do not."""
        matrices, rest = ([p for p in self.parameters() if (p.dim() >= 2) == large] for large in (True, False))
        groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=device_type == "cuda")

    @torch.no_grad()
    def generate(
        self, src: Any = None, max_new_tokens: Any = None, temperature: float | int = 1, top_k: Any = None,
        src_lengths: Any = None, **theirs: Any,
    ) -> Any:  # fmt: skip
        """The target of each source, (B, at most max_new_tokens), ended by EOS; a NumPy array comes back as one."""
        # RIGHT: the source is encoded once, only the target grows, and it ends at EOS.
        if theirs or src is None or max_new_tokens is None:
            raise TypeError("use generate(src, max_new_tokens): a source in, its target out; to go on with a text, GPT")
        ids = as_ids(src)
        src_mask = None if src_lengths is None else real_tokens(src_lengths, ids)[:, None, None, :]
        enc_out = self.encoder(self.embed(ids), src_mask)
        tgt = torch.full_like(ids[:, :1], self.config.bos)
        ended = torch.zeros_like(tgt, dtype=torch.bool)
        while tgt.size(1) <= max_new_tokens and not ended.all():
            logits = self.lm_head(self.decoder(self.embed(tgt), enc_out, src_mask)[:, -1])
            k = 1 if temperature == 0 else min(top_k or 10**9, logits.size(-1))
            best, which = (logits / (temperature or 1)).topk(k)
            new = which.gather(1, torch.multinomial(F.softmax(best, dim=-1), 1)).masked_fill(ended, self.config.eos)
            tgt = torch.cat((tgt, new), dim=1)
            ended = ended | (new == self.config.eos)
        return tgt[:, 1:] if isinstance(src, Tensor | list) else tgt[:, 1:].numpy()


def reversal_batch(words: list[list[int]], config: Config) -> tuple[Tensor, Tensor, Tensor, list[int], list[int]]:
    """src, tgt, targets, src_lengths and tgt_lengths of the task "write the source backwards"."""
    rows = [(w, [config.bos, *w[::-1]], [*w[::-1], config.eos]) for w in words]
    width = max(map(len, words)) + 1  # padded with any id
    src, tgt, targets = (torch.tensor([r + [0] * (width - len(r)) for r in side]) for side in zip(*rows))
    return src, tgt, targets, [len(w) for w in words], [len(w) + 1 for w in words]


def main(steps: int = 200) -> float:
    """Teaches it to write numbers of three to six digits backwards; the share of unseen ones that it gets right."""
    began, rng, names = time.perf_counter(), random.Random(1), ["<BOS>", "<EOS>", *"0123456789"]
    torch.manual_seed(1)
    torch.set_num_threads(1)  # matrices as small as these lose time to a second thread
    model = Transformer(config := Config(vocab_size=len(names), block_size=16))
    words = [list(w) for w in {tuple(rng.randrange(2, 12) for _ in range(rng.randint(3, 6))) for _ in range(8000)}]
    test, train = sorted(words)[::25], [w for i, w in enumerate(sorted(words)) if i % 25]
    src, tgt, targets, src_lengths, _ = reversal_batch(test, config)
    sizes = [src, model.embed(src), model.encoder(model.embed(src)), model(src, tgt, targets)[0]]
    print(f"{model.get_num_params():,} parameters; ids, embedded, encoded, logits:", *(tuple(x.shape) for x in sizes))
    optimizer = model.configure_optimizers(0.0, 2e-3, (0.9, 0.98), "cpu")
    for step in range(1, steps + 1):
        _, loss = model(*reversal_batch(rng.sample(train, 32), config))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (1, steps // 4, steps // 2, steps):
            print(f"  step {step:4d}  loss {loss.item():.3f}")
    written = model.eval().generate(src, 10, temperature=0, src_lengths=src_lengths).tolist()
    written = [row[: row.index(config.eos)] if config.eos in row else row for row in written]
    cross = model.decoder.layers[-1].attn
    cross.flash = False  # by the equation, which holds its weights
    model(src[1:2], tgt[1:2], None, src_lengths=src_lengths[1:2])
    print([names[i] for i in test[1]], "->", [names[i] for i in written[1]], "and where each token looks:")
    for i, row in zip(tgt[1].tolist(), cross.weights[0].mean(0).tolist()):
        print(f"  {names[i]:>5} | " + " ".join(f"{10 * w:2.0f}" for w in row))
    right = sum(row == w[::-1] for w, row in zip(test, written, strict=True)) / len(test)
    print(f"{right:.1%} of {len(test)} unseen numbers reversed, {time.perf_counter() - began:.0f} seconds")
    print("try next: scale_embeddings=False; one layer; ten digits; then glassformer/nn, the same machine in parts")
    return right


if __name__ == "__main__":
    main()
