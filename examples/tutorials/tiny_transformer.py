"""The main of "Tiny Transformer" (tiny-universe), section 3.3 完整的 Transformer: a config, a model, a loss, generation.

Mended: two texts in place of one (the encoder showed the decoder its answer), lengths for padding, an end at EOS.

    python3 examples/tutorials/tiny_transformer.py
"""

from __future__ import annotations

import math

import torch

from glassformer.classic.transformer import Config, Transformer, reversal_batch


def main(steps: int = 250) -> float:
    """The last loss, after a training on numbers that are to be written backwards."""
    torch.manual_seed(1)
    config = Config(vocab_size=12, block_size=12, n_layer=2, n_head=4, n_embd=64, dropout=0.0, bias=True)
    model = Transformer(config)
    print(f"{model.get_num_params(non_embedding=True):,} parameters without the embedding")
    optimizer = model.configure_optimizers(0.1, 2e-3, (0.9, 0.98), "cpu")
    for step in range(steps):
        src, tgt, targets, src_lengths, tgt_lengths = reversal_batch(torch.randint(2, 12, (32, 5)).tolist(), config)
        logits, loss = model(src, tgt, targets, src_lengths, tgt_lengths)  # there (3.3): model(idx, targets)
        if step == 0:
            print(
                f"logits {tuple(logits.shape)}; first loss {loss.item():.2f}, ln V = {math.log(config.vocab_size):.2f}"
            )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    src = torch.tensor([[2, 3, 4, 5, 6]])  # there (3.3): generate(idx, ...), whose output goes into the encoder as well
    print(f"last loss {loss.item():.3f};", src.tolist()[0], "->", model.eval().generate(src, 6, top_k=1)[0].tolist())
    return loss.item()


if __name__ == "__main__":
    main()
