"""One picture of what the decoder looks at: the cross-attention of every head while it writes its answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from glassformer import plots
from glassformer.errors import UserError
from glassformer.models import Transformer
from glassformer.nn.rows import Rows
from glassformer.nn.taps import record
from glassformer.tasks import TextModel, translations
from glassformer.text.tokenizer import BOS, EOS


@torch.no_grad()
def cross_attention(model: TextModel, text: str) -> tuple[dict[str, np.ndarray], list[str], list[str]]:
    """The weights of every decoder layer (heads x written x source), and the pieces on both sides. Each row is the step
    that wrote that piece."""
    net = model.model
    if not isinstance(net, Transformer):
        raise UserError("only an encoder-decoder has cross-attention to look at")
    source = model.tokenizers.source.encode(text)
    target = model.tokenizers.target.encode(translations(model, [text])[0])
    with record(net, "decoder.*.cross.weights") as activations:
        net(Rows.from_lists([[*source, EOS]]).to(model.device), Rows.from_lists([[BOS, *target]]).to(model.device))
    weights = {name: w[0].float().cpu().numpy() for name, w in activations.items()}
    return weights, model.tokenizers.target.pieces([*target, EOS]), model.tokenizers.source.pieces([*source, EOS])


def draw_cross_attention(model: TextModel, text: str, stem: Path) -> list[Path]:
    """Every head's cross-attention of a translation as a figure."""
    weights, written, source = cross_attention(model, text)
    maps, titles = [], []
    for name, layer in weights.items():
        for head, weight in enumerate(layer):
            maps.append(weight)
            titles.append(f"layer {name.split('.')[1]}, head {head}")
    answer = "".join(written[:-1])
    fig = plots.attention_maps(maps, titles, written, source, title=f"{text}  →  {answer}: where each character looks")
    return plots.save(fig, stem)
