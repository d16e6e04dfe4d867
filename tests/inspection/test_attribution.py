"""Attributions beside computations of their own: terms that add up, a part whose term is what its absence takes away,
gradients by finite differences; and reports from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassformer
from glassformer.errors import UserError
from glassformer.inspection.attribution import attribute, forward
from glassformer.inspection.inspection import Inspection, look_inside
from glassformer.inspection.saliency import leaning_gradients, saliency
from glassformer.nn.norms import LayerNorm
from glassformer.nn.taps import record, replace
from tests.inspection.families import FAMILIES, TEXT, logits_of, page_of
from tests.talking import make_run

pytestmark = pytest.mark.slow

SMALL = {"family": "gpt", "n_layer": 2}
MORE: dict[str, dict[str, Any]] = {
    "batch": {"model": {**SMALL, "norm": "batch"}},
    "rms, post-norm, gated": {"model": {**SMALL, "norm": "rms", "pre_norm": False, "activation": "swiglu"}},
    "no residual": {"model": {**SMALL, "residual": False}},
    "no norm": {"model": {**SMALL, "norm": "none", "final_norm": False}},
    "untied": {"model": {**SMALL, "tie_output": False, "embedding_norm": True}},
}


@pytest.mark.parametrize("name", [*FAMILIES, *MORE])
def test_terms_add_up_to_the_logits_of_a_plain_pass(name: str, insides: dict[str, Inspection], tmp_path: Path) -> None:
    """Against the model's own logits, nobody listening, to 1e-4: every family, norm, kind of block and head. Caught: a bias
    left out, a head counted twice, a norm's centring forgotten, post-norm taken for pre-norm."""
    if name in MORE:
        inside = look_inside(glassformer.load(make_run(tmp_path / "run", **MORE[name])), TEXT, new=3)
    else:
        inside = insides[name]
    found = inside.attribution
    assert found is not None
    logits = logits_of(inside).double().numpy()[inside.input.positions]
    own = np.take_along_axis(logits, found.tokens, 1)
    np.testing.assert_allclose(found.terms.sum(-1), own, atol=1e-4)
    np.testing.assert_allclose(found.terms.sum(-1)[:, 0] - found.terms.sum(-1)[:, 1], own[:, 0] - own[:, 1], atol=1e-4)
    config = inside.model.model.config
    writers = [a for a in config.attentions if a.startswith("encoder" if config.family == "bert" else "decoder")]
    assert sum(":" in part for part in found.parts) == sum(len(config.kept_heads(a)) for a in writers)
    assert ("head" in found.parts) == (name in ("mlm", "classify", "classify by the mean", "gpt classify"))


def test_a_term_is_what_the_part_wrote(insides: dict[str, Inspection]) -> None:
    """Without the last MLP's output, the last norm held at its scale, the logit loses exactly its term; and the same for a
    head. Independent: the model is run again with the part's output taken away. Caught: terms given to the wrong part."""
    inside = insides["gpt on pairs"]
    net, found = inside.model.model.eval(), inside.attribution
    assert found is not None and isinstance(net.decoder.norm, LayerNorm)
    norm, last = net.decoder.norm, net.config.n_layer - 1
    positions = torch.tensor(inside.input.positions)
    with torch.no_grad(), record(net, f"decoder.{last}.residual", f"decoder.{last}.mlp.out") as seen:
        forward(net, inside.input)
    x, written = (seen[f"decoder.{last}.{tap}"][0, positions].double() for tap in ("residual", "mlp.out"))
    scale = (x.var(-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()
    change = (written - written.mean(-1, keepdim=True)) * scale * norm.weight.double()
    lost = (change @ net.output_weight.double().T).gather(1, torch.from_numpy(found.tokens))
    down = net.decoder.layers[last].mlp.down.bias.double()
    bias = ((down - down.mean()) * scale * norm.weight.double()) @ net.output_weight.double().T
    expected = lost - bias.gather(1, torch.from_numpy(found.tokens))  # the bias of a projection is told apart
    np.testing.assert_allclose(found.terms[..., found.parts.index(f"decoder.{last}.mlp")], expected.detach(), atol=1e-5)
    pushes = np.array([[push for _, _, push in row] for row in found.neurons[f"decoder.{last}.mlp"]])
    assert np.all(np.abs(pushes[:, 0]) >= np.abs(pushes[:, -1])), "the strongest first"


def test_gradients_are_slopes_and_integrated_ones_add_up(insides: dict[str, Inspection]) -> None:
    """One token's gradient x input by a finite difference of the whole model; integrated gradients add up to what was gained
    since the average tokens. Caught: gradients of another output, an embedding that is not the model's."""
    inside = insides["transformer"]
    net = inside.model.model.eval()
    found = inside.saliency
    assert found is not None and found.integrated is not None and found.gained is not None
    tokens = torch.from_numpy(attribute(net, inside.input, inside.activations).tokens)
    token, output = 3, 1

    def leaning(size: float) -> float:
        def grown(x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            y[:, token] *= 1 + size
            return y

        with torch.no_grad(), replace(net, "source_embeddings", grown):
            logits = forward(net, inside.input)[0, inside.input.positions[output]].double()
        return float(logits[tokens[output, 0]] - logits[tokens[output, 1]])

    slope = (leaning(1e-3) - leaning(-1e-3)) / 2e-3
    assert found.gradient["source"][output, token] == pytest.approx(slope, rel=0.02, abs=1e-3)
    total = sum(values.sum(-1) for values in found.integrated.values())
    assert np.abs(total - found.gained).max() < 0.05 * np.abs(found.gained).max()
    _, _, average = leaning_gradients(net, inside.input, tokens, 0.0)
    np.testing.assert_allclose(found.difference - found.gained, average.numpy(), atol=1e-5)
    long = inside.activations.outputs
    assert len(long.tokens) <= 128 and saliency(net, inside.input, inside.activations) is not None


def test_a_look_shows_itself_in_a_notebook(models: dict[str, Any], tmp_path: Path) -> None:
    """In a frame with a sandbox that has scripts and nothing more, every quote escaped. Caught: a page that ends its own
    attribute, a frame that could reach the notebook."""
    model = models["transformer"]
    second = glassformer.look(model, "a dog", beam=1)
    found = glassformer.look(model, TEXT, "a dog ran", beam=1, beside=second, title="one")
    shown = found._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" ') and shown.count('"') == 10 and "<script" not in shown
    data = page_of(found.save(tmp_path / "look.html").read_text(encoding="utf-8"))
    assert data["text"] == TEXT and data["beside"]["text"] == "a dog" and data["outputs"]["status"][0] == "forced"
    assert model.show(TEXT, "a dog ran", beam=1, beside=second, title="one") == found
    of_run = second.data | {"title": "transformer"}  # a model that was loaded has its run's name
    assert model.show("a dog", beam=1).data == of_run


def test_attention_of_any_model_can_be_looked_at() -> None:
    """As Hugging Face gives it (a tuple with a batch of one), as arrays, causal or not, with a source. Caught: a causal map that
    is not known as one, tokens that do not fit and are drawn all the same."""
    weights = torch.rand(2, 1, 3, 5, 5).tril()
    weights = tuple(weights / weights.sum(-1, keepdim=True))
    tokens = ["a", "b", "c", "d", "e"]
    found = glassformer.attention_view(weights, tokens).data
    assert list(found["attentions"]) == ["decoder"] and found["attentions"]["decoder"]["causal"]
    even = np.full((2, 3, 5, 5), 0.2)
    assert list(glassformer.attention_view(even, tokens).data["attentions"]) == ["encoder"]
    cross = np.full((1, 2, 5, 3), 1 / 3)
    both = glassformer.attention_view(weights, tokens, cross=cross, source_tokens=["x", "y", "z"]).data
    assert list(both["attentions"]) == ["decoder", "cross"] and both["attentions"]["cross"]["keys"] == "source"
    kept = np.frombuffer(found["attentions"]["decoder"]["layers"][1]["weights"]["data"], "<u2").reshape(3, 5, 5) / 65535
    np.testing.assert_allclose(kept, weights[1][0].numpy(), atol=1e-5)
    for wrong, named in {
        "4 tokens": ((even, tokens[:4]), "4 and 4 tokens"),
        "scores": ((even * 7, tokens), "add up to one"),
        "two sentences": ((np.full((1, 2, 3, 5, 5), 0.2), tokens), "2 sentences"),
        "not kept": (([None], tokens), "layer 0 is None"),
        "of three": ((even[:, 0], tokens), "2 dimensions"),
        "nothing": ((), "no weights"),
    }.values():
        with pytest.raises(UserError, match=named):
            glassformer.attention_view(*wrong)
    with pytest.raises(UserError, match="source_tokens"):
        glassformer.attention_view(weights, tokens, cross=cross)
