"""The compiled loss is the loss, for every family and layout, compiled as it is or accelerated."""

import torch

from glassformer.accel import accelerate
from glassformer.config import ModelConfig
from glassformer.models import build_model
from glassformer.nn.loss import IGNORE
from glassformer.nn.rows import Rows
from tests.counts import count

sentences = [[5, 6, 7, 8], [9, 10], [11, 12, 13]]
layouts = {"padded": Rows.from_lists(sentences), "packed": Rows.pack([sentences[:2], sentences[2:]], 8)}
CASES = [  # every two of family, layout and way of compiling meet; each of them in the first three
    ("transformer", "packed", "accelerated"), ("gpt", "padded", "plain"), ("bert", "padded", "accelerated"),
    ("transformer", "padded", "plain"), ("gpt", "packed", "accelerated"), ("bert", "packed", "plain"),
][: count(fast=3, soak=6)]  # fmt: skip
for family, layout, way in CASES:
    rows = layouts[layout]
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = build_model(
        ModelConfig(
            family=family,
            vocab_size=21,
            n_layer=1,
            n_head=4,
            n_kv_head=2,
            n_embd=16,
            head_size=6,
            value_size=5,
            positions="rotary",
            qk_norm=True,
            dropout=0.0,
            activation="swiglu",
        )
    ).double()
    labels = torch.randint(0, 21, rows.shape).masked_fill(~rows.real, IGNORE)
    sides = 2 if family == "transformer" else 1

    def loss_of(tokens, segments, positions, labels):
        again = Rows(tokens, segments, positions, rows.layout)
        return model.loss(*[again] * sides, labels, smoothing=0.1)

    def gradients(loss):
        return torch.autograd.grad(loss, list(model.parameters()))

    eager = model.loss(*[rows] * sides, labels, smoothing=0.1)
    if way == "accelerated":
        accelerate(model, compiled=True)
    fast = torch.compile(loss_of, backend="aot_eager", dynamic=False, fullgraph=True)
    compiled = fast(rows.tokens, rows.segments, rows.positions, labels)
    worst = max(
        [abs(float(compiled - eager))]
        + [float((a - b).abs().max()) for a, b in zip(gradients(compiled), gradients(eager), strict=True)]
    )
    print(family, layout, way, worst)
    assert worst < 1e-10, (family, layout, way, worst)

# A row of 88 tokens, made of short sentences, needs no 88th position.
model = build_model(
    ModelConfig(family="gpt", vocab_size=21, n_layer=1, n_head=2, n_embd=16, positions="learned", block_size=64)
)
rows = Rows.pack([[[1, 2, 3, 4]] * 22], 88)
fast = torch.compile(lambda *t: model.eval()(Rows(*t, "packed")), backend="aot_eager", dynamic=False)
assert torch.allclose(fast(rows.tokens, rows.segments, rows.positions), model(rows), atol=1e-5)
