"""The test run of "Transform 架构" (happy-llm, chapter 2), 完整的 Transformer: an `Args` class, a text, logits; and its table of
位置编码 for n = 100.

Mended: a target of its own beside the source, begun with BOS; every class is defined before it is used.

    python3 examples/tutorials/happy_llm.py
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from glassformer.classic import PositionEncoding, Transformer


@dataclass
class Args:
    """Their names for the numbers of a model."""

    dim: int = 32
    n_heads: int = 4
    n_layers: int = 2
    max_seq_len: int = 16
    vocab_size: int = 0
    dropout: float = 0.1


def main() -> tuple[int, ...]:
    """The shape of the logits of one sentence."""
    print(PositionEncoding(seq_len=4, d_model=4, n=100).round(3))
    source, target = "我喜欢快乐地学习大模型", "i like to learn"
    words = ["<bos>", "<eos>", *dict.fromkeys(source), *dict.fromkeys(target)]
    model = Transformer(Args(vocab_size=len(words))).eval()
    src = torch.tensor([[words.index(c) for c in source]])
    answer = [words.index(c) for c in target]
    # there (完整的 Transformer): model(idx), one text for encoder and decoder
    logits, loss = model(src, torch.tensor([[0, *answer]]), torch.tensor([[*answer, 1]]))
    following, nothing = model(src, torch.tensor([[0, *answer]]), targets=None)
    print(f"{len(source)} characters in, logits {tuple(logits.shape)}, loss {loss.item():.2f}")
    print("next, untrained:", words[int(following[0, -1].argmax())], "| loss without targets:", nothing)
    return tuple(logits.shape)


if __name__ == "__main__":
    main()
