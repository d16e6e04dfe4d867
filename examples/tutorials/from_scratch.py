"""The main of "从零搭建 Transformer" (hand-craft-llm) with its section 4.1, 舍弃 Encoder: the task of the encoder-decoder, by a
decoder alone that reads source, separator and target as one text, and is taught the target alone.

Mended: it stops at EOS; the source is no target (its labels are -1).

    python3 examples/tutorials/from_scratch.py
"""

from __future__ import annotations

import torch

from glassformer.classic import GPT

SEP, EOS, VOCABULARY, LENGTH = 0, 1, 12, 4


def batch(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts `number SEP number backwards EOS`, and what follows each token, -1 where nothing is to be learned."""
    numbers = torch.randint(2, VOCABULARY, (rows, LENGTH))
    ends = [torch.full((rows, 1), token) for token in (SEP, EOS)]
    text = torch.cat([numbers, ends[0], numbers.flip(1), ends[1]], 1)
    targets = text[:, 1:].clone()
    targets[:, :LENGTH] = -1
    return text[:, :-1], targets


def main(steps: int = 400) -> float:
    """The share of numbers that it writes backwards, to the last digit."""
    torch.manual_seed(1)
    gpt = GPT(VOCABULARY, 2 * LENGTH + 2, num_layer=2, embed_dim=64, num_head=4, feedforward_dim=256)
    optimizer = torch.optim.AdamW(gpt.configure_optimizers(0.1), lr=2e-3)
    for _ in range(steps):
        _, loss = gpt(*batch(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    text, targets = batch(50)
    # there (3.3): generate writes max_new_tokens, whatever was said
    written = gpt.eval().generate(text[:, : LENGTH + 1], LENGTH + 1, temperature=0, eos=EOS)
    right = (written[:, LENGTH + 1 :] == targets[:, LENGTH:]).all(1).float().mean().item()
    print(f"last loss {loss.item():.3f}; {right:.0%} of 50 written backwards; such as {written[0].tolist()}")
    return right


if __name__ == "__main__":
    main()
