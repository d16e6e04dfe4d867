"""Cutting and patching, each against a second way to get the same numbers."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import glassformer
from glassformer import probe
from glassformer.data.batches import Batch
from glassformer.errors import UserError
from glassformer.nn import Rows
from glassformer.probe import Component
from tests.laws.zoo import FAMILIES, VOCABULARY, run, small
from tests.probing import CASES, PAIRS, logits, rows
from tests.talking import make_run


def without_slice(model: Any, cut: list[Component]) -> Any:
    """A copy in which each head's columns of the output projection are zero; an MLP's last layer is all zero."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for part in cut:
            module = other.get_submodule(part.module)
            if part.head is None:
                module.down.weight.zero_()
                if module.down.bias is not None:
                    module.down.bias.zero_()
            else:
                size = module.value_size
                module.out.weight[:, part.head * size : (part.head + 1) * size] = 0
    return other


# Names -----------------------------------------------------------------------------------------------------------------


def test_every_head_and_every_mlp_has_a_name() -> None:
    model = small("transformer", n_encoder_layer=1)
    names = [str(part) for part in probe.heads(model)]
    assert names[:7] == [*(f"encoder.0.attention:{i}" for i in range(6)), "decoder.0.attention:0"]
    assert len(names) == len(set(names)) == 6 * (1 + 2 * 2)
    assert [str(p) for p in probe.mlps(model)] == ["encoder.0.mlp", "decoder.0.mlp", "decoder.1.mlp"]
    assert probe.find_parts(model, [("decoder.1.cross", 5), "decoder.1.cross:5"]) == [Component("decoder.1.cross", 5)]
    assert probe.find_parts(model, ["decoder.1.cross"]) == [Component("decoder.1.cross", i) for i in range(6)]


@pytest.mark.parametrize("name", ["decoder.1.cross:6", "decoder.1.mlp:0", "decoder.one.cross:0", "", "decoder.1"])
def test_a_name_that_stands_for_nothing_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="no head or MLP"), probe.ablate(small("transformer"), [name]):
        pass


def test_what_load_returns_is_a_model_too(tmp_path: Path) -> None:
    """Broken variant: record works on the module alone."""
    model = glassformer.load(make_run(tmp_path / "run"))
    whole = model.translate(["the cat"])
    with glassformer.record(model, "decoder.*.cross.weights") as seen:
        model.translate(["the cat"])
    assert set(seen) == {"decoder.0.cross.weights"} and seen["decoder.0.cross.weights"].sum(-1).allclose(torch.ones(()))
    with glassformer.ablate(model, ["decoder.0.cross", "decoder.0.mlp"]):
        assert model.translate(["the cat"]) != whole
    assert model.translate(["the cat"]) == whole
    assert glassformer.tap_names(model) == glassformer.tap_names(model.model)
    with pytest.raises(TypeError, match="not list"):
        glassformer.tap_names([])


# Cutting ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "changes"), CASES)
def test_cutting_a_head_is_zeroing_its_slice_of_the_output_projection(family: str, changes: dict[str, Any]) -> None:
    """Exactly, for one head, for several of one attention, and for an MLP. Broken variants: the neighbour's head; the
    weights set to zero before the softmax; the output's bias cut too."""
    model = small(family, **changes)
    shared = model.config.share_layers
    parts = [*probe.heads(model), *probe.mlps(model)]
    whole = logits(model)
    draw = random.Random(0)
    for cut in (
        [draw.choice(parts)],
        draw.sample(parts, 4),
        [Component("encoder.0.mlp" if family == "bert" else "decoder.0.mlp")],
    ):
        if shared:  # one layer's slice is every layer's: cut them all
            cut = [
                p
                for p in parts
                if any(
                    p.module.split(".")[2:] == c.module.split(".")[2:]
                    and p.head == c.head
                    and p.module.split(".")[0] == c.module.split(".")[0]
                    for c in cut
                )
            ]
        with probe.ablate(model, cut):
            found = logits(model)
        assert torch.equal(found, logits(without_slice(model, cut)))
        assert not torch.equal(found, whole)
    assert torch.equal(logits(model), whole), "and afterwards all is as before"


def labelled(model: Any) -> list[Batch]:
    source, target = rows()
    batch = Batch(
        source if model.config.family == "transformer" else None, target, target.tokens, 1, tuple(range(len(PAIRS)))
    )
    return [batch, batch]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_mean_is_over_real_tokens_and_no_others(family: str) -> None:
    """Sentence by sentence without padding, the outputs computed from the weights by hand, the sums are the same. Broken
    variants: padding counts; encoder heads averaged over target lengths; a mean of means."""
    model = small(family)
    means = probe.mean_outputs(model, labelled(model))
    side = "encoder" if family != "gpt" else "decoder"
    name = f"{side}.1.attention"
    attention = model.get_submodule(name)
    outputs: list[Tensor] = []
    mlp_outputs: list[Tensor] = []
    for s, t in PAIRS:
        alone = Rows.whole(torch.tensor([s])), Rows.whole(torch.tensor([t]))
        with torch.no_grad(), probe.record(model, f"{name}.weights", f"{name}.v", f"{side}.1.mlp.activation") as seen:
            run(model, *alone)
        outputs.append((seen[f"{name}.weights"] @ seen[f"{name}.v"])[0].transpose(0, 1))
        down = model.get_submodule(f"{side}.1.mlp").down
        mlp_outputs.append(seen[f"{side}.1.mlp.activation"][0] @ down.weight.T + down.bias)
    torch.testing.assert_close(means[f"{name}.heads"], torch.cat(outputs).mean(0).detach())
    torch.testing.assert_close(means[f"{side}.1.mlp.out"], torch.cat(mlp_outputs).mean(0).detach())
    assert means[f"{name}.heads"].shape == (6, attention.value_size)


@pytest.mark.parametrize("family", FAMILIES)
def test_mean_ablation_is_a_constant_in_the_bias(family: str) -> None:
    """A head that always writes m adds W m to every token: zero its slice and put W m into the bias instead. For an MLP
    the bias alone is left, and it is the mean. Broken variant: the mean of the head in front of it."""
    model = small(family)
    means = probe.mean_outputs(model, labelled(model))
    side = "encoder" if family == "bert" else "decoder"
    cut = [Component(f"{side}.0.attention", 2), Component(f"{side}.1.attention", 5), Component(f"{side}.1.mlp")]
    other = without_slice(model, cut)
    with torch.no_grad():
        for part in cut:
            module, mean = other.get_submodule(part.module), means[part.tap]
            if part.head is None:
                module.down.bias.copy_(mean)
            else:
                size = module.value_size
                columns = model.get_submodule(part.module).out.weight[:, part.head * size : (part.head + 1) * size]
                module.out.bias.add_(columns @ mean[part.head])
    with probe.ablate(model, cut, mode="mean", means=means):
        torch.testing.assert_close(logits(model), logits(other))
    with pytest.raises(UserError, match="zero"), probe.ablate(model, cut, mode="median"):
        pass


def test_without_means_the_mean_is_that_of_the_run() -> None:
    model = small("gpt", n_layer=1)
    one = Rows.whole(torch.tensor([[1, 2, 3, 4, 5]]))
    means = probe.mean_outputs(model, [Batch(None, one, one.tokens, 5, (0,))])
    with torch.no_grad(), probe.ablate(model, ["decoder.0.attention"], mode="mean", means=means):
        wanted = model(one)
    with torch.no_grad(), probe.ablate(model, ["decoder.0.attention"], mode="mean"):
        torch.testing.assert_close(model(one), wanted)
    with torch.no_grad(), probe.ablate(model, ["decoder.0.mlp"], mode="mean"):
        with_mlp = model(one)
    with torch.no_grad(), probe.ablate(model, ["decoder.0.mlp"], mode="mean", means=means):
        torch.testing.assert_close(model(one), with_mlp)


# Patching --------------------------------------------------------------------------------------------------------------

A = Rows.whole(torch.tensor([[1, 2, 3, 4, 5]])), Rows.whole(torch.tensor([[6, 7, 8, 9]]))
B = Rows.whole(torch.tensor([[1, 2, 13, 4, 5]])), Rows.whole(torch.tensor([[6, 17, 8, 9]]))


def inputs(model: Any, which: tuple[Rows, Rows]) -> tuple[Rows, ...]:
    return which if model.config.family == "transformer" else which[1:]


@pytest.mark.parametrize("family", FAMILIES)
def test_patching_all_of_a_layer_is_the_other_run_from_there_on(family: str) -> None:
    """And patching nothing is the run itself. For an encoder-decoder all of the encoder's last layer with B's target is B.
    Broken variants: the wrong layer; a patch that is undone by the next listener; positions counted from the end."""
    model = small(family)
    side = "encoder" if family == "bert" else "decoder"
    with torch.no_grad():
        plain_a, plain_b = model(*inputs(model, A)), model(*inputs(model, B))
        with probe.record(model, "*.residual") as seen:
            model(*inputs(model, B))
        last = {f"{side}.1.residual": seen[f"{side}.1.residual"]}
        with probe.patch(model, last):
            assert torch.equal(model(*inputs(model, A)), plain_b)
        with probe.patch(model, last, positions=range(4)):
            assert torch.equal(model(*inputs(model, A)), plain_b)
        with probe.patch(model, {}), probe.patch(model, last, positions=[]):
            assert torch.equal(model(*inputs(model, A)), plain_a)
        if family == "transformer":
            with probe.patch(model, {"encoder.1.residual": seen["encoder.1.residual"]}):
                assert torch.equal(model(A[0], B[1]), plain_b)
        with pytest.raises(UserError, match="same number of tokens"), probe.patch(model, last):
            run(model, Rows.whole(torch.tensor([[1]])), Rows.whole(torch.tensor([[1, 2]])))


def run_from(model: Any, layer: int, x: Tensor) -> Tensor:
    """A GPT from the output of `layer` on, block by block, with no tap."""
    from glassformer.nn.block import BlockInputs
    from glassformer.nn.masks import AttentionMask

    block_inputs = BlockInputs(AttentionMask(causal=True))
    for block in model.decoder.layers[layer + 1 :]:
        x = block(x, block_inputs)
    return torch.nn.functional.linear(model.decoder.norm(x), model.embedding.weight)


def test_the_effect_map_against_running_the_rest_by_hand() -> None:
    """Each layer and position put in by hand, and the rest of the model run from there. Broken variants: the rows of the
    batch mixed up; A and B exchanged; not divided by the difference of the two scores."""
    model = small("gpt", n_layer=3, positions="sinusoidal")
    a, b = inputs(model, A), inputs(model, B)

    def score(found: Tensor) -> Tensor:
        return found[:, -1, 3] - found[:, -1, 11]

    effects = probe.effect_map(model, a, b, score)
    assert list(effects.maps) == ["embeddings", "decoder.0.residual", "decoder.1.residual", "decoder.2.residual"]
    with torch.no_grad():
        with probe.record(model, "*.residual") as of_a:
            here = float(score(model(*a)))
        of_a = dict(of_a)
        with probe.record(model, "*.residual") as of_b:
            there = float(score(model(*b)))
        assert (effects.own, effects.other) == (here, there)
        for layer in range(3):
            name = f"decoder.{layer}.residual"
            for place in range(4):
                x = of_a[name].clone()
                x[0, place] = of_b[name][0, place]
                wanted = (float(score(run_from(model, layer, x))) - here) / (there - here)
                assert float(effects.maps[name][place]) == pytest.approx(wanted, abs=1e-5)
    assert float(effects.maps["embeddings"][0]) == pytest.approx(0.0, abs=1e-6), "the inputs agree here"
    assert float(effects.maps["embeddings"][1]) == pytest.approx(1.0, abs=1e-6), "the only place where they differ"
    assert float(effects.maps["decoder.2.residual"][3]) == pytest.approx(1.0, abs=1e-6), "nothing else is read any more"


def test_effects_of_heads_too_and_of_both_sides() -> None:
    model = small("transformer")
    effects = probe.effect_map(model, A, B, lambda x: x[:, -1, 0], ["decoder.*.cross.heads", "encoder.*.residual"])
    assert {name: len(values) for name, values in effects.maps.items()} == {
        "encoder.0.residual": 5,
        "encoder.1.residual": 5,
        "decoder.0.cross.heads": 4,
        "decoder.1.cross.heads": 4,
    }
    with pytest.raises(UserError, match="same number of tokens"):
        probe.effect_map(model, A, (A[0], Rows.whole(torch.tensor([[1]]))), lambda x: x[:, -1, 0])
    with pytest.raises(UserError, match="nothing to carry"):
        probe.effect_map(model, A, A, lambda x: x[:, -1, 0])
    assert VOCABULARY > 17


@pytest.mark.parametrize("pre_norm", [True, False])
def test_a_residual_connection_that_is_cut_carries_nothing(pre_norm: bool) -> None:
    """With all of a block's cut the model is the one whose block was built without; each alone is something else. Broken variant:
    the stream of another sublayer taken away."""
    torch.manual_seed(0)
    model = glassformer.Transformer(n_layer=2, n_head=2, n_embd=8, vocab_size=11, pre_norm=pre_norm, dropout=0.0).eval()
    given = torch.tensor([[5, 6, 7]]), torch.tensor([[1, 8, 9]])
    names = [f"decoder.1.{sublayer}.residual" for sublayer in ("attention", "cross", "mlp")]
    with torch.no_grad():
        whole = model(*given)
        with probe.ablate(model, names):
            cut = model(*given)
        for name in names:
            with probe.ablate(model, [name]):
                assert not torch.allclose(model(*given), cut, atol=1e-3)
        assert torch.equal(model(*given), whole)
        model.decoder.layers[1].residual = False
        assert torch.allclose(model(*given), cut, atol=1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_positions_that_are_cut_are_those_of_no_model(positions: str) -> None:
    """Without positions the encoder does not know the order: what it says of a text is a permutation of what it says of the text
    permuted. Rotated or biased scores have none that could be left out."""
    torch.manual_seed(0)
    model = glassformer.BERT(n_layer=2, n_head=2, n_embd=8, vocab_size=11, positions=positions).eval()
    order = torch.tensor([3, 0, 2, 1])
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        with probe.ablate(model, ["positions"]):
            assert torch.allclose(model(ids)[:, order], model(ids[:, order]), atol=1e-5)
        assert not torch.allclose(model(ids)[:, order], model(ids[:, order]), atol=1e-3)
    rotary = glassformer.BERT(n_layer=1, n_head=2, n_embd=8, vocab_size=11, positions="rotary")
    with pytest.raises(UserError, match="rotary"), probe.ablate(rotary, ["positions"]):
        pass
