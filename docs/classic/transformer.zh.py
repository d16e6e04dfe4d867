"""一个文件里的编码器-解码器 Transformer，写法和教程一样，但是正确的：“Attention Is All You Need”
（Vaswani 等 2017）的机器，先归一化，用的是教程的名字。它们的调用能用，或者会告诉你怎样才对；
七个地方写着 RIGHT：教程在那里出了错，证明在 docs/errata.zh.md。
`python glassformer/classic/transformer.py` 几秒钟就能训练好。

形状里的字母：B 批，T 目标长度，S 源长度，H 头，D 头的宽度，C = H·D 模型宽度，V 词表。
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
    """模型的各个数字。有的文章把它叫作 `args`，把有些字段叫作 n_heads、dim 和 max_seq_len。"""

    vocab_size: int
    block_size: int = 64  # 事先备好的位置数；更长的句子也行
    n_layer: int = 2  # 编码器这么多层，解码器也这么多层
    n_head: int = 4
    n_embd: int = 64
    dropout: float = 0.0
    bias: bool = True  # Linear 和 LayerNorm 里的
    scale_embeddings: bool = True  # 嵌入乘以 √n_embd，和论文一样
    bos: int = 0  # 每个目标开头的编号
    eos: int = 1  # 每个目标结尾的编号


def as_config(config: Any) -> Config:
    """从任何带有这些字段的对象得到 Config，哪篇文章的名字都行；缺的字段用默认值。"""
    other = {"block_size": "max_seq_len", "n_layer": "n_layers", "n_head": "n_heads", "n_embd": "dim"}
    names = [(name, spelt) for name in Config.__dataclass_fields__ for spelt in (other.get(name, name), name)]
    found = {name: getattr(config, spelt) for name, spelt in names if hasattr(config, spelt)}
    return Config(**{"vocab_size": 0, **found})  # 单独一层不需要词表


def as_ids(ids: Any) -> Tensor:
    """词元编号 (B, T)：可以来自张量、NumPy 数组或列表；只有一个句子时可以不带 B。"""
    if (ids := torch.as_tensor(ids)).is_floating_point() or ids.dim() > 2:
        raise TypeError(f"token ids are whole numbers of shape (B, T), not {ids.dtype} of shape {tuple(ids.shape)}")
    return ids.long().view(-1, ids.size(-1))


def as_mask(mask: Tensor) -> Tensor:
    """允许注意的地方为 True：可以来自布尔值，也可以来自任何类型的 0 和 1（`tril` 缓冲）；
    别的数字原样保留，加到分数上：0，或者在禁止注意处是 -inf。"""
    # RIGHT: 把 1 和 0 加上去什么也遮不住；不含 1 的浮点数（全是 0：什么也不遮）才是相加的。
    added = mask.is_floating_point() and bool(((mask != 0) & (mask != 1)).any() or not mask.any())
    return mask if added else mask != 0


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(QKᵀ/√D)，(..., T, D), (..., S, D) -> (..., T, S)：每个键的位置有多少进入位置 t。
    掩码在允许注意处为 True (1)，或者是加到每个分数上的数（0，不允许处为 -inf）。"""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is None:
        return F.softmax(scores, dim=-1)
    mask = as_mask(mask)
    hidden = mask == (-math.inf if mask.is_floating_point() else 0)
    scores = (scores + mask if mask.is_floating_point() else scores).masked_fill(hidden, torch.finfo(scores.dtype).min)
    return F.softmax(scores, dim=-1).masked_fill(hidden, 0.0)  # 什么也看不见的一行得到 0，而不是 NaN


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(QKᵀ/√D)V：每个位置上各个值的加权平均，与 F.scaled_dot_product_attention 相同。"""
    return attention_weights(q, k, mask) @ v


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """位置 t 能看见位置 0..t：下三角，一行对应一次预测。(length, length)"""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def real_tokens(lengths: Any, ids: Tensor) -> Tensor:
    """右边填充的编号 (B, T) 里哪些位置真有词元：由长度 (B,) 得知，绝不靠某个编号。-> (B, T)"""
    return torch.arange(ids.size(1), device=ids.device) < torch.as_tensor(lengths, device=ids.device)[:, None]


class MultiHeadAttention(nn.Module):
    """H 个注意力并排，各占 D = C/H 维，再由一个矩阵合起来。

    自注意力是 `attn(x, x, x)`；交叉注意力是 `attn(x, enc_out, enc_out)`。"""

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
        self.flash = True  # torch 的内核；False：用公式，会留下 `weights` 供人查看

    @property
    def bias(self) -> Tensor:
        """教程里的缓冲：允许注意处为 1，其他为 0，(1, 1, block_size, block_size)。"""
        ones = torch.ones(1, 1, self.block_size, self.block_size, device=self.c_proj.weight.device)
        return ones.tril() if self.is_causal else ones

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        state_dict.pop(f"{prefix}bias", None)  # 他们的缓冲区，不是权重
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, C), (B, S, C), (B, S, C) -> (B, T, C)。`mask` 是 (T, S) 或 (B, T, S)：见 as_mask。"""
        # RIGHT: 键和值按自己的长度（那个 -1）分成头；若按查询的长度，S 就必须等于 T。
        given = zip(self.c_attns, (query, key, value), strict=True)
        q, k, v = (f(x).unflatten(-1, (self.n_head, -1)).transpose(1, 2) for f, x in given)  # (B, H, T 或 S, D)
        mask = None if mask is None else as_mask(mask)
        if self.is_causal:
            allowed = causal_mask(query.size(1), query.device)
            mask = allowed if mask is None else mask.masked_fill(~allowed, -math.inf if mask.is_floating_point() else 0)
        mask = mask[:, None] if mask is not None and mask.dim() == 3 else mask  # (B, T, S)：每个头都一样
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, mask, self.attn_dropout.p if self.training else 0.0)
        else:
            self.weights = attention_weights(q, k, mask)  # (B, H, T, S)
            y = self.attn_dropout(self.weights) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).flatten(2)))  # 各个头重新并排放好


class MLP(nn.Module):
    """每个位置上都是同一个两层网络：扩到 4C，ReLU，再回来。"""

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = as_config(config)
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.relu, self.dropout = nn.ReLU(), nn.Dropout(config.dropout)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """max(0, x W₁ + b₁) W₂ + b₂，逐个位置，(B, T, C) -> (B, T, C)。"""
        return self.dropout(self.c_proj(self.relu(self.c_fc(x))))


class LayerNorm(nn.LayerNorm):
    """(x - 均值) / 标准差 · weight + bias，对每个词元自己的特征来算。"""

    def __init__(self, ndim: int, bias: bool = True) -> None:
        super().__init__(ndim, bias=bias)


class Layer(nn.Module):
    """两种层共有的东西：`ln1` 就是 `ln_1`，有人那样写。"""

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(f"ln_{name[2]}" if name in ("ln1", "ln2", "ln3") else name)


class EncoderLayer(Layer):
    """每个源词元看遍所有源词元，然后独自思考。"""

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = as_config(config)
        self.ln_1, self.ln_2 = (LayerNorm(config.n_embd, config.bias) for _ in range(2))
        self.attn, self.mlp = MultiHeadAttention(config), MLP(config)

    def forward(self, x: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """(B, S, C) -> (B, S, C)。"""
        # RIGHT: x + attn(ln(x))。写成 `x = ln(x); x = x + attn(x)`，每一层都会把残差流归一化掉。
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, src_mask)
        return x + self.mlp(self.ln_2(x))


class DecoderLayer(Layer):
    """每个目标词元先看自己和前面的，再看整个源，然后独自思考。"""

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = as_config(config)
        self.ln_1, self.ln_2, self.ln_3 = (LayerNorm(config.n_embd, config.bias) for _ in range(3))
        self.m_attn = MultiHeadAttention(config, is_causal=True)
        self.attn, self.mlp = MultiHeadAttention(config), MLP(config)

    def forward(self, x: Tensor, enc_out: Tensor, src_mask: Tensor | None = None) -> Tensor:
        """(B, T, C) 和编码器从源得到的 (B, S, C) -> (B, T, C)。"""
        h = self.ln_1(x)
        x = x + self.m_attn(h, h, h)
        x = x + self.attn(self.ln_2(x), enc_out, enc_out, src_mask)
        return x + self.mlp(self.ln_3(x))


class Encoder(nn.Module):
    """一摞层，最后再归一化一次：先归一化的写法里，没有别的东西来归一化最后一层加上的内容。"""

    layer: type[nn.Module] = EncoderLayer

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = as_config(config)
        self.layers = nn.ModuleList(self.layer(config) for _ in range(config.n_layer))
        self.norm = LayerNorm(config.n_embd, config.bias)

    def forward(self, x: Tensor, *given: Tensor | None) -> Tensor:
        """(B, T, C) -> (B, T, C)；`given` 会交给每一层。"""
        for layer in self.layers:
            x = layer(x, *given)
        return self.norm(x)


class Decoder(Encoder):
    """与 Encoder 同样的想法。"""

    layer = DecoderLayer


def sinusoids(length: int, width: int, n: float = 10000.0) -> Tensor:
    """PE[pos, 2i] = sin(pos / n^(2i/width))，PE[pos, 2i+1] = cos(同样的数)；2i 和 2i+1 是维度。(length, width)"""
    if width % 2:
        raise ValueError(f"sine and cosine come in pairs, so the width must be even, not {width}")
    pos = torch.arange(length, dtype=torch.float64)[:, None]
    angles = pos / n ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class PositionalEncoding(nn.Module):
    """给每个嵌入加上一组正弦，再把和丢掉一部分。"""

    pe: Tensor

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = as_config(config)
        self.dropout = nn.Dropout(config.dropout)
        table = sinusoids(config.block_size, config.n_embd).to(torch.get_default_dtype())
        self.register_buffer("pe", table, persistent=False)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        self.pe = state_dict.pop(f"{prefix}pe", self.pe).flatten(0, -2).to(self.pe)  # 他们的可能是 (1, T, C)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)。每个位置都有正弦值，所以需要更长的表时就做一张。"""
        if x.size(1) > self.pe.size(0):
            self.pe = sinusoids(x.size(1), x.size(2)).to(self.pe)
        return self.dropout(x + self.pe[: x.size(1)])


def PositionEncoding(seq_len: Any, d_model: int | None = None, n: float = 10000.0) -> Any:
    """某篇文章的表，NumPy 数组 (seq_len, d_model)；只给一个 config 时，就是那一层，另一篇文章这样写。"""
    return PositionalEncoding(seq_len) if d_model is None else sinusoids(seq_len, d_model, n).numpy()


class Transformer(nn.Module):
    """进来的是源的编号和目前写好的目标，出去的是目标下一个编号的 logits。"""

    def __init__(self, config: Any = None, *, args: Any = None) -> None:
        super().__init__()
        self.config = self.args = config = as_config(args if config is None else config)
        if config.vocab_size < 1:
            raise TypeError("use Transformer(config): an object with vocab_size and the other fields of Config")
        parts = {"wte": nn.Embedding(config.vocab_size, config.n_embd), "wpe": PositionalEncoding(config)}
        parts["drop"] = nn.Identity()  # RIGHT: wpe 已经丢弃过；再来一次，0.1 就成了 0.19
        self.transformer = nn.ModuleDict({**parts, "encoder": Encoder(config), "decoder": Decoder(config)})
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.apply(self._init_weights)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def __getattr__(self, name: str) -> Any:
        """model.wte 就是 model.transformer.wte，其他也一样。"""
        parts = self.__dict__.get("_modules", {}).get("transformer")
        return parts[name] if parts is not None and name in parts else super().__getattr__(name)

    def get_num_params(self, non_embedding: bool = False) -> int:
        """参数的个数；`non_embedding` 时不算把编号变成向量的那张表。"""
        return sum(p.numel() for p in self.parameters()) - non_embedding * self.wte.weight.numel()

    def embed(self, idx: Tensor) -> Tensor:
        """(B, T) -> (B, T, C)。不放大的话，大小 0.02 的嵌入会淹没在大小为 1 的正弦里。"""
        return self.drop(self.wpe(self.wte(idx) * self.config.n_embd ** (0.5 * self.config.scale_embeddings)))

    def forward(
        self, src: Any = None, tgt: Any = None, targets: Any = ..., src_lengths: Any = None, tgt_lengths: Any = None,
        **theirs: Any,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """src (B, S)，tgt (B, T)：BOS w1 w2 ...，targets (B, T)：w1 w2 ... EOS -> logits (B, T, V)，平均损失。

        targets=None 时：每行最后一个词元之后的 logits (B, 1, V)，以及 None。行在右边填充，长度 (B,) 说明各到哪里；
        小于 0 的目标（-1、-100）不学。"""
        # RIGHT: 两段文本。两边给同一段，编码器就把答案给解码器看了：连随机的编号都能“学会”。
        unsaid = targets is ... and src_lengths is None and tgt_lengths is None  # model(idx, targets) 看起来就是这样
        targets, tgt = None if targets is ... else targets, None if tgt is None else as_ids(tgt)
        if theirs or src is None or tgt is None or unsaid or (targets is None and (tgt[:, 0] != self.config.bos).any()):
            raise TypeError(
                "use model(src, tgt, targets): two texts, tgt from BOS on; targets=None: what comes next; for one text, GPT"
            )
        src = as_ids(src)
        # RIGHT: 填充对谁都不可见，也不算进损失。
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
        """AdamW；两维以上的张量衰减（嵌入是其中之一），偏置和归一化不衰减。"""
        matrices, rest = ([p for p in self.parameters() if (p.dim() >= 2) == large] for large in (True, False))
        groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=device_type == "cuda")

    @torch.no_grad()
    def generate(
        self, src: Any = None, max_new_tokens: Any = None, temperature: float | int = 1, top_k: Any = None,
        src_lengths: Any = None, **theirs: Any,
    ) -> Any:  # fmt: skip
        """每个源的目标，(B, 至多 max_new_tokens)，以 EOS 结尾；进来是 NumPy 数组，出去也是。"""
        # RIGHT: 源只编码一次，只有目标在变长，到 EOS 为止。
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
    """任务“把源倒着写”的 src、tgt、targets、src_lengths 和 tgt_lengths。"""
    rows = [(w, [config.bos, *w[::-1]], [*w[::-1], config.eos]) for w in words]
    width = max(map(len, words)) + 1  # 用任意编号填充
    src, tgt, targets = (torch.tensor([r + [0] * (width - len(r)) for r in side]) for side in zip(*rows))
    return src, tgt, targets, [len(w) for w in words], [len(w) + 1 for w in words]


def main(steps: int = 200) -> float:
    """教它把三到六位的数字倒着写；没见过的数字里写对的比例。"""
    began, rng, names = time.perf_counter(), random.Random(1), ["<BOS>", "<EOS>", *"0123456789"]
    torch.manual_seed(1)
    torch.set_num_threads(1)  # 这么小的矩阵，多一个线程反而更慢
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
    cross.flash = False  # 用公式，它留着权重
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
