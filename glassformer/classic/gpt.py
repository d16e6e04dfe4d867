"""The GPT in one file, as the course writes it, but right: a decoder-only Transformer (Radford et al. 2018, 2019).

Read it from top to bottom; nothing is used before it is explained. Names and calls are the course's, and work, or say what
would be right. Five places say RIGHT: where the course goes wrong; docs/errata.md has every mistake with its proof.
`python glassformer/classic/gpt.py` teaches it a poem in seconds.

Given up for being short: it reads the whole text again for every new token (the package keeps a cache), and learns from rows
of one length. It needs torch alone and knows nothing of tokenizers: ids come in, ids go out.

Letters in shapes: B batch, T length, H heads, D head size, C = H·D = embed_dim, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def as_ids(ids: Any) -> Tensor:
    """Token ids (B, T) from a tensor, a NumPy array or lists; one text may come without its B."""
    if (ids := torch.as_tensor(ids)).is_floating_point() or ids.dim() > 2:
        raise TypeError(f"token ids are whole numbers of shape (B, T), not {ids.dtype} of shape {tuple(ids.shape)}")
    return ids.long().view(-1, ids.size(-1))


def named_ids(ids: Any, theirs: dict[str, Any], *needed: Any) -> Any:
    """Token ids, given first or by any of the names that texts have for them: word_idx, idx, input."""
    if ids is None and len(theirs) == 1:
        ids = next((theirs.pop(name) for name in ("word_idx", "idx", "input") if name in theirs), None)
    if ids is None or theirs or None in needed:
        raise TypeError("use gpt(word_idx, targets), and gpt.generate(idx, max_new_tokens, temperature, top_k, eos)")
    return ids


def gelu(x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))): about x for large x, about 0 for small ones, smooth between."""
    return F.gelu(x, approximate="tanh")


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """True where position t may see position s, that is s <= t: lower triangular. (length, length)"""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def as_mask(mask: Tensor) -> Tensor:
    """True where attention is allowed, from booleans or from zeros and ones of any type (a `tril` buffer); any other numbers
    as they are, to be added to the scores: 0, or -inf where attention is forbidden."""
    # RIGHT: ones and zeros that are added hide nothing; floats without a one (all 0: nothing is hidden) are added.
    added = mask.is_floating_point() and bool(((mask != 0) & (mask != 1)).any() or not mask.any())
    return mask if added else mask != 0


def sample(logits: Tensor, temperature: float | int = 1.0, top_k: int | None = None) -> Tensor:
    """One id a row, drawn from the `top_k` likeliest (all, if None); temperature 0 takes the likeliest. (B, V) -> (B, 1)"""
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    best, ids = (logits / temperature).topk(min(top_k or logits.size(-1), logits.size(-1)))
    return ids.gather(-1, torch.multinomial(best.softmax(dim=-1), 1))


class SelfAttention(nn.Module):
    """Causal self-attention, softmax(QKᵀ/√D)V in every head, that also hands out its weights."""

    def __init__(self, embed_dim: int, num_head: int, dropout: float = 0.0) -> None:
        super().__init__()
        if embed_dim % num_head:
            raise ValueError(f"embed_dim {embed_dim} is not divisible by num_head {num_head}")
        self.num_head = num_head
        self.q_layer, self.k_layer, self.v_layer, self.proj_layer = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
        self.attn_drop = nn.Dropout(dropout)
        self.proj_drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, T, C) -> (B, T, C) and the weights (B, H, T, T), before dropout, so that their rows sum to one.

        A mask of the reader's own (see as_mask) hides more; the future is always hidden."""
        q, k, v = (
            layer(x).unflatten(-1, (self.num_head, -1)).transpose(1, 2)  # (B, H, T, D)
            for layer in (self.q_layer, self.k_layer, self.v_layer)
        )
        # RIGHT: torch.sqrt takes a tensor, and raises a TypeError for the number that the width is.
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        if mask is not None:
            mask = as_mask(mask)
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        weights = scores.masked_fill(~causal_mask(x.size(1), x.device), -math.inf).softmax(dim=-1)
        y = (self.attn_drop(weights) @ v).transpose(1, 2).flatten(2)  # the heads side by side again
        return self.proj_drop(self.proj_layer(y)), weights


class FFN(nn.Module):
    """The same two-layer network at every position."""

    def __init__(self, embed_dim: int, feedforward_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, feedforward_dim)
        self.fc2 = nn.Linear(feedforward_dim, embed_dim)
        self.drop = self.dropout = nn.Dropout(dropout)  # both names are used

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)"""
        return self.drop(self.fc2(gelu(self.fc1(x))))


SPELT = {"attn": "attention", "ln1": "norm1", "ln2": "norm2"}
OF_ATTENTION = ("q_layer", "k_layer", "v_layer", "proj_layer", "attn_drop", "proj_drop", "num_head")


class TransformerLayer(nn.Module):
    """x + attention(norm(x)), then x + FFN(norm(x)): pre-norm. `no_res` leaves the residual connections out, to see what
    they are good for."""

    def __init__(
        self, embed_dim: int, num_head: int, feedforward_dim: int, dropout: float = 0.0, no_res: bool = False
    ) -> None:
        super().__init__()
        self.no_res = no_res
        self.norm1 = nn.LayerNorm(embed_dim)
        self.attention = SelfAttention(embed_dim, num_head, dropout)
        self.norm2 = nn.LayerNorm(embed_dim)
        self.ffn = FFN(embed_dim, feedforward_dim, dropout)

    def __getattr__(self, name: str) -> Any:
        """layer.q_layer is layer.attention.q_layer, and so for its other parts; `attn`, `ln1`, `ln2` as some spell them."""
        name = SPELT.get(name, name)
        if name in OF_ATTENTION:
            return getattr(self.attention, name)
        return super().__getattr__(name)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Weights under any of these names; a triangle that is kept among them is made anew here."""
        for key in [key for key in state_dict if key.startswith(prefix)]:
            first, dot, others = key.removeprefix(prefix).partition(".")
            name = f"attention.{first}" if first in OF_ATTENTION else SPELT.get(first, first)
            weight = state_dict.pop(key)
            if others not in ("mask", "bias", "tril") or name != "attention":
                state_dict[prefix + name + dot + others] = weight
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, T, C) -> (B, T, C) and the attention weights (B, H, T, T)."""
        y, attn = self.attention(self.norm1(x), mask)
        x = y if self.no_res else x + y
        y = self.ffn(self.norm2(x))
        return (y if self.no_res else x + y), attn


class GPT(nn.Module):
    """Ids in, logits for the id after each out. Learned positions; the output matrix is the embedding table.

    `no_pos` leaves the positions out: the order of words is then told by the causal mask alone."""

    def __init__(
        self, vocab_size: int, max_seq_len: int, num_layer: int, embed_dim: int, num_head: int, feedforward_dim: int,
        dropout: float = 0.0, no_res: bool = False, no_pos: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.max_seq_len, self.num_layer, self.no_pos = max_seq_len, num_layer, no_pos
        self.word_token_embedding = nn.Embedding(vocab_size, embed_dim)
        self.word_pos_embedding = None if no_pos else nn.Embedding(max_seq_len, embed_dim)
        self.drop = nn.Dropout(dropout)
        self.transformer = nn.ModuleList(
            TransformerLayer(embed_dim, num_head, feedforward_dim, dropout, no_res) for _ in range(num_layer)
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.language_model_head = nn.Linear(embed_dim, vocab_size, bias=False)
        self.language_model_head.weight = self.word_token_embedding.weight
        self.init_weights()

    def init_weights(self, module: nn.Module | None = None) -> None:
        """Matrices and tables from N(0, 0.02), biases zero; without a module the whole model, begun anew."""
        if module is None:
            self.apply(self.init_weights)
            # Each layer adds twice to the residual stream; dividing by √(2·num_layer) keeps the variance of the sum.
            # RIGHT: the FFN's second matrix is one of the two, and is scaled as well.
            for name, parameter in self.named_parameters():
                if name.endswith(("proj_layer.weight", "fc2.weight")):
                    nn.init.normal_(parameter, mean=0.0, std=0.02 / math.sqrt(2 * self.num_layer))
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def get_num_params(self) -> int:
        """The number of parameters, the tied table once."""
        return sum(p.numel() for p in self.parameters())

    def forward(self, word_idx: Any = None, targets: Any = None, **theirs: Any) -> tuple[Tensor, Tensor | list[Tensor]]:
        """(B, T) -> logits (B, T, V) and the mean loss; without targets, and the attention weights: (B, H, T, T) a layer.

        `targets` is `word_idx` one place on. Rows of unequal length are padded on the right with any id: that is the
        future of every real token, so none sees it. A target below 0 (such as -1 or -100) is not learned."""
        word_idx = as_ids(named_ids(word_idx, theirs))
        if word_idx.size(1) > self.max_seq_len:
            raise ValueError(f"{word_idx.size(1)} tokens are more than the {self.max_seq_len} positions of this model")
        x = self.word_token_embedding(word_idx)
        if self.word_pos_embedding is not None:
            x = x + self.word_pos_embedding(torch.arange(word_idx.size(1), device=word_idx.device))
        x = self.drop(x)
        attention_weights = []
        for layer in self.transformer:
            x, attn = layer(x)
            attention_weights.append(attn)
        logits = self.language_model_head(self.norm(x))
        if targets is None:
            return logits, attention_weights
        # RIGHT: what is not learned is marked by a number that no word has; with ignore_index=0 word 0 is never learned.
        return logits, F.cross_entropy(logits.flatten(0, 1), as_ids(targets).clamp(min=-1).flatten(), ignore_index=-1)

    def configure_optimizers(self, weight_decay: float) -> list[dict[str, Any]]:
        """Groups for an optimizer: Linear weights decay; biases, norms and embeddings, so the tied output too, do not."""
        linear = {m.weight for m in self.modules() if isinstance(m, nn.Linear) and m is not self.language_model_head}
        decay = [p for p in self.parameters() if p in linear]
        rest = [p for p in self.parameters() if p not in linear]
        return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]

    @torch.no_grad()
    def generate(
        self, idx: Any = None, max_new_tokens: Any = None, temperature: float | int = 1.0, top_k: int | None = None,
        eos: int | None = None, **theirs: Any,
    ) -> Any:  # fmt: skip
        """idx (B, T) and what follows it; with `eos`, a row ends there and holds eos from then on. Call .eval() before.

        Temperature 0 takes the likeliest id. What comes as a NumPy array goes back as one, and a text without its B goes back
        without it: `[int(i) for i in gpt.generate(idx, n)]`; where it came as (1, T), take [0]."""
        text = as_ids(idx := named_ids(idx, theirs, max_new_tokens))
        ended = torch.zeros_like(text[:, :1], dtype=torch.bool)
        for _ in range(max_new_tokens):
            # RIGHT: only the last max_seq_len tokens are read; a longer text has no positions left.
            logits = self(text[:, -self.max_seq_len :])[0][:, -1]
            new = sample(logits, temperature, top_k)
            if eos is not None:
                new = new.masked_fill(ended, eos)
                ended = ended | (new == eos)
            text = torch.cat((text, new), dim=1)
            if ended.all():
                break
        text = text if torch.as_tensor(idx).dim() > 1 else text[0]
        return text if isinstance(idx, Tensor | list) else text.numpy()


POEM = """A word looks back at every word before,
and asks of each how much it has to say;
the answers, weighed together, are one more,
and so the line goes on its own dark way.
"""


def main(steps: int = 200) -> str:
    """Teaches it four lines by heart, character by character, and lets it go on from their first words."""
    torch.manual_seed(1)
    torch.set_num_threads(1)  # matrices as small as these lose time to a second thread
    letters = sorted(set(POEM))
    ids = torch.tensor([letters.index(c) for c in POEM])
    model = GPT(len(letters), 32, num_layer=2, embed_dim=64, num_head=4, feedforward_dim=256, dropout=0.0)
    logits, weights = model(start := ids[None, :16])
    sizes = [start, model.word_token_embedding(start), weights[0], logits]
    print(
        f"{model.get_num_params():,} parameters; ids, embedded, a layer's weights, logits:",
        *(tuple(x.shape) for x in sizes),
    )

    optimizer = torch.optim.AdamW(model.configure_optimizers(weight_decay=0.1))
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps, pct_start=0.1)
    for step in range(1, steps + 1):
        places = torch.randint(len(ids), (16, 1)) + torch.arange(model.max_seq_len + 1)
        windows = ids[places % len(ids)]  # after the last line comes the first
        _, loss = model(windows[:, :-1], windows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rates.step()
        if step in (1, steps // 4, steps // 2, steps):
            print(f"  step {step:4d}  loss {loss.item():.3f}")

    model.eval()
    _, weights = model(ids[None, :12])
    print("where each letter looks, head 1 of the last layer, in tenths:")
    for i, row in enumerate(weights[-1][0, 0].tolist()):
        print(f"  {POEM[i]!r} | " + " ".join(f"{10 * w:2.0f}" for w in row[: i + 1]))
    written = model.generate(ids[None, :12], len(ids) - 12, temperature=0)
    text = "".join(letters[i] for i in written[0])
    print("".join(f"  | {line}\n" for line in text.splitlines()), end="")
    print("try next: no_pos=True, no_res=True, a temperature of 1; then `glassformer train stdlib-gpt`")
    return text


if __name__ == "__main__":
    main()
