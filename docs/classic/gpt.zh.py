"""一个文件里的 GPT，写法和课程一样，但是正确的：只有解码器的 Transformer（Radford 等 2018、2019）。

从上往下读，用到的东西前面都解释过。名字和调用都是课程的：能用，或者会告诉你怎样才对。
五个地方写着 RIGHT：课程在那里出了错；每个错误和它的证明都在 docs/errata.zh.md。
`python glassformer/classic/gpt.py` 几秒钟教会它一首诗。

为了简短放弃了两样：每写一个新词元都把全文重读一遍（整个工具包用的是缓存），并且只学长度相同的行。
它只需要 torch，不懂分词：进来的是编号，出去的也是编号。

形状里的字母：B 批，T 长度，H 头，D 头的宽度，C = H·D = embed_dim，V 词表。
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def as_ids(ids: Any) -> Tensor:
    """词元编号 (B, T)：可以来自张量、NumPy 数组或列表；只有一段文本时可以不带 B。"""
    if (ids := torch.as_tensor(ids)).is_floating_point() or ids.dim() > 2:
        raise TypeError(f"token ids are whole numbers of shape (B, T), not {ids.dtype} of shape {tuple(ids.shape)}")
    return ids.long().view(-1, ids.size(-1))


def named_ids(ids: Any, theirs: dict[str, Any], *needed: Any) -> Any:
    """词元编号：放在第一个，或用各教程给它的任一个名字：word_idx、idx、input。"""
    if ids is None and len(theirs) == 1:
        ids = next((theirs.pop(name) for name in ("word_idx", "idx", "input") if name in theirs), None)
    if ids is None or theirs or None in needed:
        raise TypeError("use gpt(word_idx, targets), and gpt.generate(idx, max_new_tokens, temperature, top_k, eos)")
    return ids


def gelu(x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))：x 大时约等于 x，小时约等于 0，中间平滑过渡。"""
    return F.gelu(x, approximate="tanh")


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """位置 t 能看见位置 s（即 s <= t）的地方为 True：下三角。(length, length)"""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def as_mask(mask: Tensor) -> Tensor:
    """允许注意的地方为 True：可以来自布尔值，也可以来自任何类型的 0 和 1（`tril` 缓冲）；
    别的数字原样保留，加到分数上：0，或者在禁止注意处是 -inf。"""
    # RIGHT: 把 1 和 0 加上去什么也遮不住；不含 1 的浮点数（全是 0：什么也不遮）才是相加的。
    added = mask.is_floating_point() and bool(((mask != 0) & (mask != 1)).any() or not mask.any())
    return mask if added else mask != 0


def sample(logits: Tensor, temperature: float | int = 1.0, top_k: int | None = None) -> Tensor:
    """每行抽一个编号，只在最可能的 `top_k` 个里抽（None：全部）；温度为 0 取最可能的。(B, V) -> (B, 1)"""
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    best, ids = (logits / temperature).topk(min(top_k or logits.size(-1), logits.size(-1)))
    return ids.gather(-1, torch.multinomial(best.softmax(dim=-1), 1))


class SelfAttention(nn.Module):
    """因果自注意力，每个头里都是 softmax(QKᵀ/√D)V，并把权重一起交出来。"""

    def __init__(self, embed_dim: int, num_head: int, dropout: float = 0.0) -> None:
        super().__init__()
        if embed_dim % num_head:
            raise ValueError(f"embed_dim {embed_dim} is not divisible by num_head {num_head}")
        self.num_head = num_head
        self.q_layer, self.k_layer, self.v_layer, self.proj_layer = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
        self.attn_drop = nn.Dropout(dropout)
        self.proj_drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, T, C) -> (B, T, C) 和权重 (B, H, T, T)；权重取在 dropout 之前，所以每行之和为一。

        读者自己的掩码（见 as_mask）可以多遮一些；未来总是遮住的。"""
        q, k, v = (
            layer(x).unflatten(-1, (self.num_head, -1)).transpose(1, 2)  # (B, H, T, D)
            for layer in (self.q_layer, self.k_layer, self.v_layer)
        )
        # RIGHT: torch.sqrt 要的是张量；宽度是个普通的数，会得到 TypeError。
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        if mask is not None:
            mask = as_mask(mask)
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        weights = scores.masked_fill(~causal_mask(x.size(1), x.device), -math.inf).softmax(dim=-1)
        y = (self.attn_drop(weights) @ v).transpose(1, 2).flatten(2)  # 各个头重新并排放好
        return self.proj_drop(self.proj_layer(y)), weights


class FFN(nn.Module):
    """每个位置上都是同一个两层网络。"""

    def __init__(self, embed_dim: int, feedforward_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, feedforward_dim)
        self.fc2 = nn.Linear(feedforward_dim, embed_dim)
        self.drop = self.dropout = nn.Dropout(dropout)  # 两个名字都有人用

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)"""
        return self.drop(self.fc2(gelu(self.fc1(x))))


SPELT = {"attn": "attention", "ln1": "norm1", "ln2": "norm2"}
OF_ATTENTION = ("q_layer", "k_layer", "v_layer", "proj_layer", "attn_drop", "proj_drop", "num_head")


class TransformerLayer(nn.Module):
    """x + attention(norm(x))，然后 x + FFN(norm(x))：先归一化。`no_res` 去掉残差连接，
    看看它们有什么用。"""

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
        """layer.q_layer 就是 layer.attention.q_layer，其他部件也一样；有人写作 `attn`、`ln1`、`ln2`。"""
        name = SPELT.get(name, name)
        if name in OF_ATTENTION:
            return getattr(self.attention, name)
        return super().__getattr__(name)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """权重叫其中哪个名字都行；混在权重里的三角掩码在这里重新造。"""
        for key in [key for key in state_dict if key.startswith(prefix)]:
            first, dot, others = key.removeprefix(prefix).partition(".")
            name = f"attention.{first}" if first in OF_ATTENTION else SPELT.get(first, first)
            weight = state_dict.pop(key)
            if others not in ("mask", "bias", "tril") or name != "attention":
                state_dict[prefix + name + dot + others] = weight
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, T, C) -> (B, T, C) 和注意力权重 (B, H, T, T)。"""
        y, attn = self.attention(self.norm1(x), mask)
        x = y if self.no_res else x + y
        y = self.ffn(self.norm2(x))
        return (y if self.no_res else x + y), attn


class GPT(nn.Module):
    """编号进来，出去的是每个位置之后那个编号的 logits。位置是学来的；输出矩阵就是嵌入表。

    `no_pos` 去掉位置：这时词序只靠因果掩码来体现。"""

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
        """矩阵和表取自 N(0, 0.02)，偏置为零；不给模块时，整个模型重新开始。"""
        if module is None:
            self.apply(self.init_weights)
            # 每层往残差流里加两次；除以 √(2·num_layer)，和的方差就不变。
            # RIGHT: 前馈网络的第二个矩阵是其中之一，也要缩小。
            for name, parameter in self.named_parameters():
                if name.endswith(("proj_layer.weight", "fc2.weight")):
                    nn.init.normal_(parameter, mean=0.0, std=0.02 / math.sqrt(2 * self.num_layer))
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def get_num_params(self) -> int:
        """参数的个数，共享的表只算一次。"""
        return sum(p.numel() for p in self.parameters())

    def forward(self, word_idx: Any = None, targets: Any = None, **theirs: Any) -> tuple[Tensor, Tensor | list[Tensor]]:
        """(B, T) -> logits (B, T, V) 和平均损失；没有 targets 时，则是各层的注意力权重 (B, H, T, T)。

        `targets` 是 `word_idx` 往后错一位。长短不一的行在右边用任意编号填充：那是每个真实词元的未来，
        谁也看不见。小于 0 的目标（如 -1 或 -100）不学。"""
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
        # RIGHT: 不学的位置用一个没有词会用的数来标；用 ignore_index=0，0 号词就永远学不到。
        return logits, F.cross_entropy(logits.flatten(0, 1), as_ids(targets).clamp(min=-1).flatten(), ignore_index=-1)

    def configure_optimizers(self, weight_decay: float) -> list[dict[str, Any]]:
        """给优化器的分组：Linear 的权重衰减；偏置、归一化和嵌入（共享的输出也在内）不衰减。"""
        linear = {m.weight for m in self.modules() if isinstance(m, nn.Linear) and m is not self.language_model_head}
        decay = [p for p in self.parameters() if p in linear]
        rest = [p for p in self.parameters() if p not in linear]
        return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]

    @torch.no_grad()
    def generate(
        self, idx: Any = None, max_new_tokens: Any = None, temperature: float | int = 1.0, top_k: int | None = None,
        eos: int | None = None, **theirs: Any,
    ) -> Any:  # fmt: skip
        """idx (B, T) 以及它后面的内容；给了 `eos`，一行到那里结束，之后都是 eos。调用前先 .eval()。

        温度为 0 取最可能的编号。进来是 NumPy 数组，出去也是；一段文本不带 B 进来，出去也不带：
        `[int(i) for i in gpt.generate(idx, n)]`；进来是 (1, T) 的，取 [0]。"""
        text = as_ids(idx := named_ids(idx, theirs, max_new_tokens))
        ended = torch.zeros_like(text[:, :1], dtype=torch.bool)
        for _ in range(max_new_tokens):
            # RIGHT: 只读最后 max_seq_len 个词元；再长的文本就没有位置可用了。
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
    """一个字符一个字符地教它背下四行诗，再让它从开头几个词接着写。"""
    torch.manual_seed(1)
    torch.set_num_threads(1)  # 这么小的矩阵，多一个线程反而更慢
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
        windows = ids[places % len(ids)]  # 最后一行之后又是第一行
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
