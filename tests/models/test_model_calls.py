"""A model called the way torch's users call one: settings by name, plain ids, lengths beside them, and torch's own tools
(copies, state dicts, torch.func, second derivatives, compile, export) on the whole of it."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, vmap

from glassformer import BERT, GPT, ModelConfig, MultiHeadAttention, Rows, Transformer, build_model, preset
from glassformer.errors import ConfigError
from glassformer.nn.masks import AttentionMask
from tests.programs import run_program

SIZES: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_embd": 32, "n_hidden": 48, "vocab_size": 40, "block_size": 24}
FAMILIES = [GPT, Transformer, BERT]


def make(kind: type, **settings: Any) -> Any:
    torch.manual_seed(0)
    return kind(**(SIZES | {"dropout": 0.0} | settings)).eval()


def inputs(kind: type, rows: int = 3, width: int = 9) -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    ids = torch.randint(40, (rows, width))
    return (ids, torch.randint(40, (rows, width - 2))) if kind is Transformer else (ids,)


@pytest.mark.parametrize("kind", FAMILIES)
def test_settings_by_name_are_those_of_the_config(kind: type) -> None:
    by_name = make(kind)
    torch.manual_seed(0)
    by_config = kind(ModelConfig(family=by_name.config.family, **SIZES, dropout=0.0)).eval()
    ids = inputs(kind)
    assert by_name.config == by_config.config and torch.equal(by_name(*ids), by_config(*ids))
    assert kind(by_config.config, n_layer=1).config.n_layer == 1
    assert {"n_layer", "vocab_size", "dropout"} <= set(inspect.signature(kind).parameters)
    with pytest.raises(ConfigError, match="n_layer"):
        kind(n_layers=2, vocab_size=9)


def test_a_preset_is_a_start() -> None:
    model = GPT.from_preset("gpt2", dropout=0.0, n_layer=1, vocab_size=11)
    assert model.config.n_embd == 768 and model.config.dropout == 0 and len(model.decoder.layers) == 1
    with pytest.raises(ConfigError, match="gpt2"):
        GPT.from_preset("gpt-2")


@pytest.mark.parametrize("kind", FAMILIES)
def test_another_family_is_refused_in_a_sentence(kind: type) -> None:
    for name in ("gpt2", "transformer-base", "bert-base"):
        config = preset(name)
        if config.family == kind.family:  # type: ignore[attr-defined]
            continue
        with pytest.raises(ConfigError, match="build_model") as error:
            kind(config)
        assert "\n" not in str(error.value)


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("kind", FAMILIES)
def test_what_is_no_setting_and_no_id_is_refused_in_a_sentence(kind: Any) -> None:
    """Caught: an AttributeError of a string without `.dim`, a TypeError of `dataclasses.replace`."""
    model, other = make(kind), "bert" if kind is GPT else "gpt"
    assert kind(**SIZES, family=kind.family).config.family == kind.family
    for wrong, words in (({"config": 5}, "such as n_layer=2"), ({"family": other}, f"family={other} is another")):
        with pytest.raises(ConfigError, match=words):
            kind(**(SIZES | wrong))
    for ids in ("the cat", [[1, 2]], torch.ones(1, 2).numpy()):
        with pytest.raises(TypeError, match=r"a LongTensor \(B, T\) or Rows, not \w+; what `glassformer.load"):
            model(*([ids] * len(inputs(kind))))
    with pytest.raises(ValueError, match="whole numbers in rows"):
        model(*([torch.ones(3, dtype=torch.long)] * len(inputs(kind))))


@pytest.mark.usefixtures("as_in_production")
def test_masks_that_do_not_fit_are_refused_in_a_sentence() -> None:
    """And those that do fit, added or of whole numbers, give the attention that they mean. Caught: a mask that is added and
    taken by its truth, by which 0 (allowed) would be forbidden."""
    mha, x = MultiHeadAttention(16, 2), torch.randn(3, 5, 16)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    added = torch.zeros(5, 5).masked_fill(~causal, -torch.inf)
    for mask in (added, causal.long(), causal.float()):
        torch.testing.assert_close(mha(x, mask=mask), mha(x, mask=causal))
    for shape in ((3, 3), (3, 5), (2, 5, 5), (3, 2, 4, 5), (5,), (1, 1, 1, 5, 5)):
        with pytest.raises(ValueError, match=r"with B=3, T=5, S=5 here, not \("):
            mha(x, mask=torch.ones(shape, dtype=torch.bool))
    with pytest.raises(ValueError, match="S=7"):
        mha(x, torch.ones(5, 5, dtype=torch.bool), torch.randn(3, 7, 16))
    assert mha(x, mask=torch.ones(3, 1, 5, dtype=torch.bool)).shape == x.shape


@pytest.mark.parametrize("kind", FAMILIES)
def test_plain_ids_are_whole_rows_and_lengths_say_what_is_real(kind: type) -> None:
    """Caught: padding that is read, lengths of one side used for the other."""
    model, ids = make(kind), inputs(kind)
    with torch.no_grad():
        assert torch.equal(model(*ids), model(*map(Rows.whole, ids)))
        lengths = [[9, 4, 6], [7, 5, 1]][: len(ids)]
        for given in (lengths, [torch.tensor(own) for own in lengths]):
            if kind is Transformer:
                found = model(*ids, *given)
            else:
                found = model(*ids, lengths=given[0])
            for row in range(3):
                alone = model(*(one[row : row + 1, : own[row]] for one, own in zip(ids, lengths, strict=True)))[0]
                torch.testing.assert_close(found[row, : alone.size(0)], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [GPT, Transformer])
def test_the_loss_of_plain_ids_is_torchs(kind: type) -> None:
    model, ids = make(kind), inputs(kind)
    scores, target = model(*ids), ids[-1]
    expected = F.cross_entropy(scores[:, :-1].flatten(0, 1), target[:, 1:].flatten())
    torch.testing.assert_close(model.loss(*ids), expected)
    name = "target_lengths" if kind is Transformer else "lengths"
    kept = torch.cat([scores[0, :4], scores[1, :2]]), torch.cat([target[0, 1:5], target[1, 1:3]])
    torch.testing.assert_close(model.loss(*ids, **{name: [5, 3, 1]}), F.cross_entropy(*kept))


def test_attention_on_plain_tensors() -> None:
    mha, x, other = MultiHeadAttention(16, 2), torch.randn(3, 5, 16), torch.randn(3, 7, 16)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    torch.testing.assert_close(mha(x), mha(x, AttentionMask()))
    for mask in (causal, causal.expand(3, 5, 5), causal.expand(3, 1, 5, 5)):
        torch.testing.assert_close(mha(x, mask=mask), mha(x, AttentionMask(causal=True)))
    torch.testing.assert_close(mha(x, memory=other), mha(x, AttentionMask(), mha.keys_values(other)))
    keys = torch.tensor([7, 3, 1])
    seen = (torch.arange(7) < keys[:, None])[:, None].expand(3, 5, 7)
    torch.testing.assert_close(mha(x, seen, other)[1:2], mha(x[1:2], memory=other[1:2, :3]))
    assert MultiHeadAttention()(torch.randn(1, 2, 512)).shape == (1, 2, 512)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "learned", "alibi"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_copies_and_state_dicts(kind: type, positions: str) -> None:
    """Caught: a table or a listener that a copy shares with its original."""
    model, ids = make(kind, positions=positions), inputs(kind)
    twin = copy.deepcopy(model)
    again = build_model(model.config).eval()
    again.load_state_dict(model.state_dict())
    with torch.no_grad():
        whole = model(*ids)
        assert torch.equal(twin(*ids), whole) and torch.equal(again(*ids), whole)
        next(twin.parameters()).add_(1.0)
        assert not torch.equal(twin(*ids), whole) and torch.equal(model(*ids), whole)


@pytest.mark.parametrize("kind", [GPT, Transformer])
def test_gradients_of_each_row_by_torch_func(kind: type) -> None:
    model, ids = make(kind), inputs(kind)
    weights = dict(model.named_parameters())

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *rows: Tensor) -> Tensor:
            return self.model.loss(*rows)

    def loss(weights: dict[str, Tensor], *rows: Tensor) -> Tensor:
        named = {f"model.{name}": value for name, value in weights.items()}
        return functional_call(Loss(), named, tuple(row[None] for row in rows))

    found = vmap(grad(loss), in_dims=(None, *[0] * len(ids)))(weights, *ids)
    for row in range(3):
        expected = torch.autograd.grad(model.loss(*(one[row : row + 1] for one in ids)), list(weights.values()))
        for (_, each), own in zip(found.items(), expected, strict=True):
            torch.testing.assert_close(each[row], own, atol=1e-5, rtol=1e-4)


# A process of its own: the checks of shapes that tests install cannot be traced, and speak before the package does.


@pytest.mark.slow
def test_compiled_exported_and_refused() -> None:
    """torch.compile without a break, torch.export, and a sentence for what is not ids or not a mask."""
    run_program("compiled_and_exported")
