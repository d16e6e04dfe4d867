"""The main of the course's GPT ("Attention Is All You Need", annotated; the GPT in code): train, look at the weights, generate.

Mended: the square root of a number, positions that generation does not overrun, an initialisation of both output matrices.

    python3 examples/tutorials/course_gpt.py
"""

from __future__ import annotations

import torch

from glassformer.classic import GPT

TEXT = "the cat sat on the mat. the dog sat on the log. " * 4


def main(steps: int = 200) -> str:
    """What it writes after "the cat"."""
    torch.manual_seed(1)
    letters = sorted(set(TEXT))
    ids = torch.tensor([letters.index(c) for c in TEXT])
    # there (SelfAttention): torch.sqrt(embed_dim // num_head), a TypeError
    gpt = GPT(len(letters), 24, num_layer=2, embed_dim=48, num_head=4, feedforward_dim=192, no_res=False, no_pos=False)
    optimizer = torch.optim.AdamW(gpt.configure_optimizers(weight_decay=0.1), lr=3e-3)
    for _ in range(steps):
        places = torch.randint(len(ids) - 24, (16, 1)) + torch.arange(25)
        _, loss = gpt(ids[places[:, :-1]], ids[places[:, 1:]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    _, attention_weights = gpt.eval()(ids[None, :8])
    print(
        f"last loss {loss.item():.3f}; {len(attention_weights)} layers of weights {tuple(attention_weights[0].shape)}"
    )
    written = "".join(letters[int(i)] for i in gpt.generate(ids[:7], 40, temperature=0))  # longer than max_seq_len
    print(written)
    return written


if __name__ == "__main__":
    main()
