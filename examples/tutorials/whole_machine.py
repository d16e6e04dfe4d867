"""The whole of "3. 搭建一个 Transformer", section 3.1 整体模型架构: embedding, encoder, decoder and output, called one by one.

Mended: encoder and decoder are stacks of attention, and not plain Linear layers by which no token sees another.

    python3 examples/tutorials/whole_machine.py
"""

from __future__ import annotations

import torch

from glassformer.classic import Config, Transformer


def main() -> int:
    """How many source positions move when one source token is changed."""
    torch.manual_seed(1)
    model = Transformer(Config(vocab_size=20, n_layer=2, n_head=4, n_embd=32)).eval()
    src, tgt = torch.randint(2, 20, (1, 7)), torch.cat([torch.zeros(1, 1), torch.randint(2, 20, (1, 4))], 1).long()
    x = model.wpe(model.wte(src) * 32**0.5)
    enc_out = model.encoder(x)  # there (3.1): nn.Linear, and so for the decoder
    out = model.lm_head(model.decoder(model.wpe(model.wte(tgt) * 32**0.5), enc_out))
    print("source", tuple(x.shape), "encoded", tuple(enc_out.shape), "logits", tuple(out.shape))
    torch.testing.assert_close(out, model(src, tgt, tgt)[0])  # the parts are the whole
    changed = src.clone()
    changed[0, 3] = (src[0, 3] + 1) % 20
    moved = (model.encoder(model.wpe(model.wte(changed) * 32**0.5)) - enc_out).abs().amax(-1) > 1e-6
    print(f"one source token changed: {int(moved.sum())} of {src.size(1)} positions of the encoder's output move")
    return int(moved.sum())


if __name__ == "__main__":
    main()
