"""torch.compile without a break, torch.export, and a sentence for what is not ids or not a mask."""

import pytest
import torch

from glassformer import BERT, GPT, MultiHeadAttention, Transformer

for kind in (GPT, Transformer, BERT):
    torch.manual_seed(0)
    model = kind(n_layer=1, n_head=2, n_embd=16, vocab_size=30, block_size=16, dropout=0.0).eval()
    ids = (torch.randint(30, (2, 6)), torch.randint(30, (2, 5)))[: 2 if kind is Transformer else 1]
    with torch.no_grad():
        expected = model(*ids)
        torch.testing.assert_close(torch.compile(model, backend="aot_eager", fullgraph=True)(*ids), expected)
        torch.testing.assert_close(torch.export.export(model, ids).module()(*ids), expected)
    torch._dynamo.reset()

for wrong in (torch.randn(2, 3), torch.tensor([1, 2])):
    with pytest.raises(ValueError, match="rows"):
        model(wrong)
with pytest.raises(ValueError, match="a mask is"):
    MultiHeadAttention(16, 2)(torch.randn(1, 3, 16), mask=torch.ones(3, 4))
