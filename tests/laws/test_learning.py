"""On fresh independent random tokens there is nothing to learn: no honest model gets below ln V. One that does has seen
the answer. A deliberately leaky control is trained the same way, to show that the test would see it."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from glassformer.config import ModelConfig
from glassformer.models import BERT, GPT, Transformer
from glassformer.nn import IGNORE, BlockInputs, Rows

VOCABULARY, ROWS, LENGTH = 5, 64, 8
MASK = VOCABULARY  # BERT's [MASK]: one id more
Loss = Callable[[], Tensor]


def config(family: str, **changes: object) -> ModelConfig:
    size = {
        "n_layer": 1,
        "n_head": 2,
        "n_embd": 32,
        "n_hidden": 32,
        "block_size": LENGTH,
        "dropout": 0.0,
        "scale_embeddings": False,
    }
    return ModelConfig(family=family, vocab_size=VOCABULARY + 1, positions="learned", **size, **changes)  # type: ignore[arg-type]


def fresh() -> Tensor:
    return torch.randint(0, VOCABULARY, (ROWS, LENGTH + 1))


class SeesAhead(GPT):
    """A GPT whose self-attention forgot the causal rule."""

    def block_inputs(self, rows: Rows, *, causal: bool, cross_mask: object = None) -> BlockInputs:
        return super().block_inputs(rows, causal=False)


def gpt(leaky: bool) -> tuple[torch.nn.Module, Loss]:
    model = (SeesAhead if leaky else GPT)(config("gpt"))

    def loss() -> Tensor:
        tokens = fresh()
        return model.loss(Rows.whole(tokens[:, :-1]), tokens[:, 1:]) / (ROWS * LENGTH)

    return model, loss


def transformer(leaky: bool) -> tuple[torch.nn.Module, Loss]:
    """Leaky: the words to be predicted are also the source, as where the same ids are fed to encoder and decoder."""
    model = Transformer(config("transformer"))

    def loss() -> Tensor:
        tokens = fresh()
        source = tokens[:, 1:] if leaky else fresh()[:, 1:]
        return model.loss(Rows.whole(source), Rows.whole(tokens[:, :-1]), tokens[:, 1:]) / (ROWS * LENGTH)

    return model, loss


def bert(leaky: bool) -> tuple[torch.nn.Module, Loss]:
    """Leaky: the words to be guessed are left in place."""
    model = BERT(config("bert"))

    def loss() -> Tensor:
        tokens = fresh()[:, 1:]
        hidden = torch.rand(tokens.shape) < 0.3
        read = tokens if leaky else tokens.masked_fill(hidden, MASK)
        return model.loss(Rows.whole(read), tokens.masked_fill(~hidden, IGNORE)) / hidden.sum()

    return model, loss


def lowest_loss(make: Callable[[bool], tuple[torch.nn.Module, Loss]], *, leaky: bool, steps: int = 150) -> float:
    """The mean loss of the last 50 steps, each on a batch the model has never seen."""
    torch.manual_seed(1)
    model, loss = make(leaky)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    return sum(losses[-50:]) / 50


@pytest.mark.slow
@pytest.mark.parametrize("make", [gpt, transformer, bert])
def test_nothing_is_learned_from_nothing(make: Callable[[bool], tuple[torch.nn.Module, Loss]]) -> None:
    """In expectation the honest loss cannot be below ln V at all; the margin is for the sample (25,600 words)."""
    assert lowest_loss(make, leaky=False) > math.log(VOCABULARY) - 0.005


@pytest.mark.slow
@pytest.mark.parametrize("make", [gpt, transformer, bert])
def test_a_leak_is_learned_at_once(make: Callable[[bool], tuple[torch.nn.Module, Loss]]) -> None:
    assert lowest_loss(make, leaky=True) < 0.8 * math.log(VOCABULARY)
