"""However a model comes into memory (built, copied, saved, built on the meta device and filled), it is the same model; and it
can be traced and exported with a length that is free."""

from __future__ import annotations

import copy
import dataclasses
import io
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.parametrizations import weight_norm

from glassformer.models import build_model
from glassformer.nn import Rows
from tests.laws.zoo import FAMILIES, POSITIONS, gap, run, small

ROWS = Rows.from_lists([[1, 2, 3, 4], [5, 6]])


def on_meta(model: Any) -> Any:
    with torch.device("meta"):
        return build_model(model.config).double().eval()


def emptied(model: Any) -> Any:
    other = on_meta(model).to_empty(device="cpu")
    other.load_state_dict(model.state_dict())
    return other


def assigned(model: Any) -> Any:
    other = on_meta(model)
    other.load_state_dict(model.state_dict(), assign=True)
    return other


def pickled(model: Any) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def to_half_and_back(model: Any) -> Any:
    """The tables are made anew, so they do not keep the rounding; the weights are those that half can hold."""
    half = copy.deepcopy(model).to(torch.bfloat16)
    model.load_state_dict({name: t.double() for name, t in half.state_dict().items()})
    return half.double()


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("how", [copy.deepcopy, emptied, assigned, pickled, to_half_and_back])
def test_the_same_model(how: Any, positions: str) -> None:
    """With layers that share their parameters. Caught: layers unshared by a move to other memory; a table of positions that
    stays on the meta device, or holds whatever was in memory; a lambda that cannot be saved."""
    for family in FAMILIES:
        model = small(family, positions=positions, share_layers=True, n_layer=3)
        other = how(model)
        assert gap([run(other, ROWS, ROWS)], [run(model, ROWS, ROWS)]) == 0
        assert [n for n, _ in other.named_parameters()] == [n for n, _ in model.named_parameters()]
        first = next(p for n, p in other.named_parameters() if ".0.mlp.up" in n)
        assert all(layer.mlp.up.weight is first for layer in other.get_submodule(stack_of(family)).layers)


def test_a_parametrization_on_one_of_shared_layers() -> None:
    """It is that layer's own; the others go on sharing, through a cast too. Caught: a later layer asked for a name it has not."""
    model = small("gpt", share_layers=True, n_layer=3)
    expected = run(model, ROWS, ROWS)
    weight_norm(model.decoder.layers[0].attention.query)
    assert gap([run(model.float().double(), ROWS, ROWS)], [expected]) <= 1e-4
    first, *others = (layer.attention.query for layer in model.decoder.layers)
    assert others[0].weight is others[1].weight
    assert first.bias is others[0].bias


def stack_of(family: str) -> str:
    return "decoder" if family == "gpt" else "encoder"


class OfTokens(torch.nn.Module):
    """A model as a function of token ids, as tracing and export want it."""

    def __init__(self, model: Any, n_sides: int) -> None:
        super().__init__()
        self.model, self.n_sides = model, n_sides

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(*[Rows.whole(tokens)] * self.n_sides)  # type: ignore[no-any-return]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.slow
@pytest.mark.usefixtures("as_in_production")  # a traced length is no int
def test_traced(family: str) -> None:
    model = OfTokens(small(family, n_kv_head=2, positions="rotary"), 2 if family == "transformer" else 1)
    tokens = torch.randint(0, 19, (2, 30))
    assert gap([torch.jit.trace(model, tokens)(tokens)], [model(tokens)]) <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("as_in_production")
def test_exported_with_a_free_length(family: str) -> None:
    """Caught: a shape or a table that is fixed at the length of the example."""
    model = OfTokens(small(family, positions="rotary"), 2 if family == "transformer" else 1).eval()
    free = ({0: torch.export.Dim("rows"), 1: torch.export.Dim("length", min=2, max=40)},)
    exported = torch.export.export(model, (torch.randint(0, 19, (2, 6)),), dynamic_shapes=free).module()
    for rows, length in ((1, 2), (3, 17), (5, 40)):
        tokens = torch.randint(0, 19, (rows, length))
        assert gap([exported(tokens)], [model(tokens)]) <= 1e-12


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal", "alibi"])
def test_packed_positions_beyond_the_width_of_a_row(positions: str) -> None:
    """A row may hold the end of a long text: its positions begin where the text left off. Rotary and ALiBi depend on distances
    alone, so nothing changes; sinusoids give what a table that long gives."""
    model = small("gpt", positions=positions)
    rows = Rows.pack([[[1, 2, 3], [4, 5]]], 8)
    moved = dataclasses.replace(rows, positions=rows.positions + 100)
    found, at_zero = model(moved), model(rows)
    if positions == "sinusoidal":
        assert gap([found], [at_zero]) > 1e-3
        expected = small("gpt", positions=positions, block_size=500)(moved)
        assert gap([found], [expected]) <= 1e-12
    else:
        assert gap([found], [at_zero]) <= 1e-10


def test_learned_positions_in_rows_wider_than_the_table() -> None:
    """88 tokens of many short sentences need no 88th position; a sentence of 41 does need a 41st."""
    model = small("gpt", positions="learned")
    sentences = [[[1, 2, 3, 4]] * 22]
    rows = Rows.pack(sentences, 88)
    alone = model(Rows.whole(torch.tensor([[1, 2, 3, 4]])))
    assert gap([model(rows)[:, :4]], [alone]) <= 1e-12
    with pytest.raises(ValueError, match="longer than the 40 positions"):
        model(Rows.pack([[[1] * 41]], 88))
