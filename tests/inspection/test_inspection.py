"""What `look` shows is what the model does: each number of a report beside a computation of its own."""

from __future__ import annotations

import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassformer
from glassformer.inspection import data as report_data
from glassformer.inspection.activations import record_activations
from glassformer.inspection.inspection import Inspection, look_across, look_inside
from glassformer.inspection.page import page_json
from glassformer.tasks import TextModel
from tests.inspection.families import FAMILIES, TEXT, logits_of, with_checkpoints
from tests.talking import make_run

pytestmark = pytest.mark.slow

# ---- the pass


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_add_up_to_one_and_look_only_where_allowed(insides: dict[str, Inspection], name: str) -> None:
    """Caught: scores taken for weights, a causal map that is shown without its mask, a missing layer."""
    inside = insides[name]
    config = inside.model.model.config
    found = [
        number for layers in inside.activations.attentions.values() for layer in layers for number in layer.head_ids
    ]
    assert len(found) == len(config.attentions) * config.n_head - len(config.pruned_heads)
    for kind, layers in inside.activations.attentions.items():
        assert len(layers) == (config.encoder_layers if kind == "encoder" else config.n_layer)
        for layer in layers:
            assert layer.weights.shape[0] == len(layer.head_ids) <= config.n_head
            np.testing.assert_allclose(layer.weights.sum(-1), 1.0, atol=1e-5)
            if kind == "decoder":
                assert np.triu(layer.weights, k=1).max() == 0


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_said_is_what_the_model_says(insides: dict[str, Inspection], name: str) -> None:
    """Probability, rank, entropy and alternatives from plain logits. Caught: positions shifted by one, ranks from 0, bits for
    nats."""
    inside = insides[name]
    said = inside.activations.outputs
    chances = logits_of(inside).double().softmax(-1).numpy()[inside.input.positions]
    for i, (place, row) in enumerate(zip(inside.input.positions, chances)):
        label = inside.input.labels[place]
        assert said.tokens[i] == (row.argmax() if label is None else label)
        assert said.logprob[i] == pytest.approx(np.log(row[said.tokens[i]]), abs=1e-4)
        assert said.rank[i] == 1 + (row > row[said.tokens[i]]).sum()
        assert said.entropy[i] == pytest.approx(-(row * np.log(row)).sum(), abs=1e-4)
        np.testing.assert_allclose(said.chances[i], np.sort(row)[::-1][: len(said.chances[i])], atol=1e-5)
    known = [i for i, place in enumerate(inside.input.positions) if inside.input.labels[place] is not None]
    if known:
        assert inside.activations.loss == pytest.approx(-said.logprob[known].mean())


@pytest.mark.parametrize("name", FAMILIES)
def test_the_lens_is_the_model_cut_short(insides: dict[str, Inspection], name: str) -> None:
    """At each depth: a copy of the model whose stack really ends there. Caught: the last norm left out, a layer too early."""
    inside = insides[name]
    stack = "encoder" if inside.model.model.config.family == "bert" else "decoder"
    depths = inside.model.model.config.n_layer + 1
    assert len(inside.activations.lens) == depths
    for depth, lens in enumerate(inside.activations.lens):
        short = copy.deepcopy(inside.model.model)
        getattr(short, stack).depth = depth
        expected = logits_of(inside, short).double().log_softmax(-1).numpy()[inside.input.positions]
        own = expected[np.arange(len(expected)), lens.tokens]
        np.testing.assert_allclose(lens.logprob, own, atol=1e-4)
        np.testing.assert_allclose(lens.chances[:, 0], np.exp(expected.max(-1)), atol=1e-4)


def keep_output(found: dict[str, torch.Tensor], name: str, module: Any, inputs: Any, output: torch.Tensor) -> None:
    found[name] = output[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_norms_are_those_of_what_is_added(insides: dict[str, Inspection], name: str) -> None:
    """By torch's own hooks on the parts. Caught: the length after a norm, or of the stream in place of what is added."""
    inside = insides[name]
    net = inside.model.model
    for stack, norms in inside.activations.norms.items():
        found: dict[str, torch.Tensor] = {}
        hooks = []
        for n, block in enumerate(getattr(net, stack).layers):
            for part in norms.parts:
                hooks.append(getattr(block, part).register_forward_hook(partial(keep_output, found, f"{n}.{part}")))
            hooks.append(block.register_forward_hook(partial(keep_output, found, f"{n}.leaving")))
        logits_of(inside)
        for hook in hooks:
            hook.remove()
        for n in range(len(norms.entering)):
            for part, lengths in norms.parts.items():
                np.testing.assert_allclose(lengths[n], found[f"{n}.{part}"].norm(dim=-1).numpy(), rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(norms.leaving[n], found[f"{n}.leaving"].norm(dim=-1).numpy(), rtol=1e-3)
        np.testing.assert_array_equal(norms.entering[1:], norms.leaving[:-1])


@pytest.mark.parametrize("name", FAMILIES)
def test_queries_keys_and_values_give_the_weights(insides: dict[str, Inspection], name: str) -> None:
    """By the rule that the page states (scale, distance, mask, softmax), from the numbers that it gets: with grouped heads,
    a window, ALiBi, rotary, T5's bias. Caught: keys before the rotation, another head's keys, a slope of another head."""
    inside = insides[name]
    data = json.loads(page_json(report_data.page_data(inside, "a run")))
    for kind, facts in data["attentions"].items():
        for layer, packed in zip(inside.activations.attentions[kind], facts["layers"]):
            q, k = layer.q, layer.k[layer.kv_head_of]
            scores = q @ k.transpose(0, 2, 1)
            scores = scores / np.sqrt(q.shape[-1]) if facts["scaled"] else scores
            i, j = np.indices(scores.shape[1:])
            if packed["slopes"]:
                scores = scores - np.array(packed["slopes"])[:, None, None] * np.abs(i - j)
            if packed["biases"]:
                scores = scores + np.array(packed["biases"])[:, j - i + len(packed["biases"][0]) // 2]
            allowed = (j <= i) | (not facts["causal"])
            allowed &= np.abs(i - j) < (facts["window"] or np.inf)
            powers = np.where(allowed, np.exp(scores - scores.max(-1, keepdims=True)), 0)
            np.testing.assert_allclose(powers / powers.sum(-1, keepdims=True), layer.weights, atol=1e-4)


# ---- the sentence and the search


def test_a_forced_answer_is_read_and_not_the_models_own(models: dict[str, TextModel]) -> None:
    for name in ("transformer", "gpt on pairs"):
        own = look_inside(models[name], TEXT)
        forced = look_inside(models[name], TEXT, "a dog.")
        assert forced.forced and forced.answer == "a dog." and not own.forced
        assert models[name].tokenizers.target.decode(forced.activations.outputs.tokens.tolist()) == "a dog."
        if name == "transformer":
            assert own.answer == models[name].translate([TEXT])[0]


def test_the_tree_of_the_beam(models: dict[str, TextModel]) -> None:
    """Every survivor goes on from where it says; the answers are paths of the tree; scores fall down a column. Caught: a
    parent that means the rank and not the slot."""
    model = models["transformer"]
    inside = look_inside(model, TEXT, beam=3)
    names = report_data.Names(inside)
    tree = report_data.beam_data(inside, names)
    assert tree is not None and tree["width"] == 3 and tree["has_best"]
    assert names.texts[tree["root"]] == "<bos>"
    texts = {0: ""}
    for step in tree["steps"]:
        scores = [c["total"] for c in step]
        assert scores == sorted(scores, reverse=True)
        kept = {c["slot"]: c["text"] for c in step if c["fate"] == "kept"}
        for candidate in step:
            said = names.texts[candidate["token"]]
            expected = texts[candidate["parent"]] + ("" if said.startswith("<") else said)
            assert candidate["text"] == expected
        texts = kept
    finished = {c["text"] for step in tree["steps"] for c in step}
    assert all(answer["text"] in finished for answer in tree["answers"])
    best = [c for step in tree["steps"] for c in step if c["best"]]
    assert best[-1]["text"] == inside.answer == tree["answers"][0]["text"]


def test_a_gpt_goes_on_and_its_own_text_is_scored_too(
    insides: dict[str, Inspection], models: dict[str, TextModel]
) -> None:
    inside = insides["gpt"]
    tokenizer = models["gpt"].tokenizers.target
    prompt = tokenizer.encode(TEXT)
    assert inside.input.row[: len(prompt)] == prompt and inside.input.given == len(prompt)
    assert len(inside.input.row) <= len(prompt) + 5
    assert inside.input.labels[: len(prompt) - 1] == prompt[1:]
    assert look_inside(models["gpt"], TEXT, new=0).input.row == prompt
    data = report_data.page_data(inside, "x")
    status = ["given"] * (len(prompt) - 1) + ["written"] * (len(inside.input.row) - len(prompt))
    assert data["outputs"]["status"] == [*status, "next" if inside.input.labels[-1] is None else "written"]
    assert data["names"][data["beam"]["root"]] == inside.names([prompt[-1]])[0], "the tree grows out of the text"


def test_across_training(tmp_path: Path) -> None:
    """Each view is what that checkpoint does with the same answer; the last is the run's own. Caught: all views made
    from one set of weights, the answer of each checkpoint in place of the one looked at, the final weights shown twice."""
    path = make_run(tmp_path / "run", **FAMILIES["transformer"])
    run = with_checkpoints(path, [10, 20, 40])
    inside = look_across(run, look_inside(glassformer.load(path), TEXT))
    assert [(m.step, m.name) for m in inside.across] == [(10, "10"), (20, "20"), (40, "40")]
    for view in inside.across:
        alone = record_activations(run.load_model(step=view.step), inside.input)
        np.testing.assert_array_equal(view.activations.weights("cross")[1], alone.weights("cross")[1])
        known = [i for i, place in enumerate(inside.input.positions) if inside.input.labels[place] is not None]
        np.testing.assert_array_equal(view.activations.outputs.logprob[known], alone.outputs.logprob[known])
        np.testing.assert_array_equal(view.activations.outputs.tokens, inside.activations.outputs.tokens)
    np.testing.assert_allclose(
        inside.across[-1].activations.outputs.logprob, inside.activations.outputs.logprob, atol=1e-6
    )
    assert inside.across[-1].activations.loss == pytest.approx(inside.activations.loss)  # that of the view of tokens
    assert inside.across[0].activations.loss != pytest.approx(inside.across[1].activations.loss)
    data = report_data.page_data(inside, "run")
    assert [m["step"] for m in data["across"]] == [10, 20, 40]
