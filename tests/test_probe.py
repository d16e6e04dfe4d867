"""Cutting, patching and pruning, each against a second way to get the same numbers."""

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
from glassformer.config import DecodeConfig, ModelConfig
from glassformer.config.costs import costs
from glassformer.data.batches import Batch
from glassformer.decode.decoder import Decoder
from glassformer.decode.engines import uses_plain_model
from glassformer.decode.ops.packed import PackedOps
from glassformer.errors import ConfigError, UserError
from glassformer.models import build_model
from glassformer.nn import Rows
from glassformer.nn.attention import MultiHeadAttention
from glassformer.probe import Part
from tests.laws.zoo import CAUSAL, FAMILIES, VOCABULARY, cases, lay_out, run, small, some_pairs
from tests.talking import make_run

# What could matter to a head that goes: its positions, its key head, its sizes, its biases, what reads it.
TELLING = (
    "sinusoidal positions",
    "alibi positions",
    "rotary, window, grouped",
    "alibi, window, grouped",
    "post-norm",
    "grouped heads",
    "multi-query",
    "free head sizes",
    "query-key norm",
    "no bias",
    "shared layers",
    "no residual",
    "modern",
)
CASES = [c for c in cases(*FAMILIES) if str(c.id).partition(": ")[2] in TELLING]
PAIRS = some_pairs([(5, 4), (7, 6), (3, 6), (1, 2)], seed=3)


def rows() -> tuple[Rows, Rows]:
    return lay_out([s for s, _ in PAIRS], "right")[0], lay_out([t for _, t in PAIRS], "right")[0]


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return run(model, *rows())


def without_slice(model: Any, cut: list[Part]) -> Any:
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
    assert probe.find_parts(model, [("decoder.1.cross", 5), "decoder.1.cross:5"]) == [Part("decoder.1.cross", 5)]
    assert probe.find_parts(model, ["decoder.1.cross"]) == [Part("decoder.1.cross", i) for i in range(6)]


@pytest.mark.parametrize("name", ["decoder.1.cross:6", "decoder.1.mlp:0", "decoder.one.cross:0", "", "decoder.1"])
def test_a_name_that_stands_for_nothing_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="no head or MLP"), probe.ablate(small("transformer"), [name]):
        pass


def test_what_load_returns_is_a_model_too(tmp_path: Path) -> None:
    """Broken variant: record works on the module alone."""
    talk = glassformer.load(make_run(tmp_path / "run"))
    whole = talk.translate(["the cat"])
    with glassformer.record(talk, "decoder.*.cross.weights") as seen:
        talk.translate(["the cat"])
    assert set(seen) == {"decoder.0.cross.weights"} and seen["decoder.0.cross.weights"].sum(-1).allclose(torch.ones(()))
    with glassformer.ablate(talk, ["decoder.0.cross", "decoder.0.mlp"]):
        assert talk.translate(["the cat"]) != whole
    assert talk.translate(["the cat"]) == whole
    assert glassformer.tap_names(talk) == glassformer.tap_names(talk.model)
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
        [Part("encoder.0.mlp" if family == "bert" else "decoder.0.mlp")],
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
    cut = [Part(f"{side}.0.attention", 2), Part(f"{side}.1.attention", 5), Part(f"{side}.1.mlp")]
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


# Pruning ---------------------------------------------------------------------------------------------------------------


def chosen(model: Any, seed: int = 1) -> list[Part]:
    """Some heads here and there, and all heads of one attention."""
    draw = random.Random(seed)
    everything = probe.heads(model)
    last = everything[-1].module
    return [*draw.sample([p for p in everything if p.module != last], 3), *(p for p in everything if p.module == last)]


@pytest.mark.parametrize(("family", "changes"), [c for c in CASES if "share_layers" not in c.values[1]])
def test_a_pruned_model_answers_as_the_ablated_one_and_is_smaller(family: str, changes: dict[str, Any]) -> None:
    """For every kind of position, norm and grouping. Broken variants: the wrong rows of a projection; the slopes (ALiBi) or
    key heads (grouped) of the heads that are gone; a bias lost; costs counted for the whole model."""
    model = small(family, **changes)
    cut = chosen(model)
    with probe.ablate(model, cut):
        wanted = logits(model)
    smaller = probe.pruned(model, cut)
    torch.testing.assert_close(logits(smaller), wanted, rtol=1e-9, atol=1e-9)
    assert smaller.num_params() < model.num_params()
    assert smaller.num_params() == costs(smaller.config).parameters == sum(p.numel() for p in smaller.parameters())
    assert costs(smaller.config).forward_flops < costs(model.config).forward_flops
    with probe.record(smaller, "*.weights") as seen:
        assert torch.allclose(logits(smaller), wanted), "looked at, too"
    for name, weights in seen.items():
        module = smaller.get_submodule(name.removesuffix(".weights"))
        assert isinstance(module, MultiHeadAttention)
        assert weights.size(1) == len(module.head_ids) == len(smaller.config.kept_heads(name.removesuffix(".weights")))
    with pytest.raises(UserError, match="was pruned"):
        probe.find_parts(smaller, [str(cut[0])])


@pytest.mark.parametrize("family", FAMILIES)
def test_pruning_twice_is_pruning_once(family: str) -> None:
    """Heads keep their numbers, so the second cut names the same heads. Broken variant: numbers count what is left."""
    for changes in ({}, {"n_kv_head": 3}, {"positions": "alibi"}):
        model = small(family, **changes)
        cut = chosen(model, seed=4)
        once = probe.pruned(model, cut)
        twice = probe.pruned(probe.pruned(model, cut[:2]), cut[2:])
        assert set(once.config.pruned_heads) == set(twice.config.pruned_heads)
        torch.testing.assert_close(logits(twice), logits(once), rtol=1e-9, atol=1e-9)
        assert twice.num_params() == once.num_params()


@pytest.mark.parametrize("changes", [{}, {"positions": "alibi"}, {"positions": "rotary", "n_kv_head": 3}])
@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("engine", ["plain", "fast"])
def test_a_pruned_model_writes_token_by_token_what_it_writes_at_once(
    family: str, changes: dict[str, Any], engine: str
) -> None:
    """With a cache, and on the fast engine. Broken variant: a cache with room for the heads there once were."""
    model = probe.pruned(small(family, **changes), chosen(small(family, **changes)))
    sentences = torch.tensor([[3, 1, 4, 1, 5], [2, 7, 1, 8, 2]])
    source = Rows.whole(torch.tensor([[1, 2, 3], [4, 5, 6]]))
    with torch.no_grad():
        if engine == "plain" or uses_plain_model(model, DecodeConfig()):
            state = model.start(source, 8) if family == "transformer" else model.start(2, 8)
            steps = [model.step(sentences[:, i : i + 1], state) for i in range(5)]
        else:
            decoder = Decoder(model, PackedOps())
            cache, steps = decoder.make_cache(2, 1, 8, 3 if family == "transformer" else 0), []
            cache.begin(0, 2, sentences[:, :1])
            if family == "transformer":
                decoder.read_sources(cache, 0, source)
            for i in range(5):
                cache.tokens[:] = sentences[:, i : i + 1]
                steps.append(decoder.step(cache, 2, i + 1, cache.source_capacity)[:, None])
        wanted = run(model, source, Rows.whole(sentences))
    torch.testing.assert_close(torch.cat(steps, dim=1), wanted, rtol=1e-8, atol=1e-8)


def test_what_cannot_be_pruned() -> None:
    with pytest.raises(UserError, match="only heads"):
        probe.pruned(small("gpt"), ["decoder.0.mlp"])
    with pytest.raises(UserError, match="share_layers"):
        probe.pruned(small("gpt", share_layers=True), ["decoder.0.attention:0"])
    sizes: dict[str, Any] = {"family": "gpt", "vocab_size": 5, "n_layer": 1, "n_head": 2, "n_embd": 4}
    with pytest.raises(ConfigError, match=r"no head 'decoder\.0\.attentoin:1'"):
        ModelConfig(**sizes, pruned_heads=("decoder.0.attentoin:1",))
    with pytest.raises(ConfigError, match="twice"):
        ModelConfig(**sizes, pruned_heads=("decoder.0.attention:1", "decoder.0.attention:1"))
    with pytest.raises(ConfigError, match="share_layers"):
        ModelConfig(**sizes, share_layers=True, pruned_heads=("decoder.0.attention:1",))
    assert build_model(ModelConfig(**sizes, pruned_heads=("decoder.0.attention:1",))).num_params() > 0


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

    view = BlockInputs(AttentionMask(causal=True))
    for block in model.decoder.layers[layer + 1 :]:
        x = block(x, view)
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


@pytest.mark.parametrize("family", FAMILIES)
def test_a_config_knows_the_heads_of_its_model_and_no_others(family: str) -> None:
    """Every head of the model may be pruned by name, and nothing else. Broken variants: cross-attention in a GPT; a number
    that is written in another way."""
    model = small(family)
    config = model.config
    assert all(config.could_have_head(str(head)) for head in probe.heads(model))
    assert [f"{name}:{h}" for name in config.attentions for h in range(6)] == [str(h) for h in probe.heads(model)]
    side = "encoder" if family == "bert" else "decoder"
    other = {"bert": "decoder.0.attention:0", "gpt": "encoder.0.attention:0", "transformer": "encoder.0.cross:0"}
    for name in (
        *(f"{side}.2.attention:0", f"{side}.0.attention:6", f"{side}.00.attention:0", f"{side}.0.attention:٠"),
        *(f"{side}.0.attention:-1", f"{side}.0.mlp", f"{side}.0.attention", "", other[family]),
    ):
        assert not config.could_have_head(name), name
