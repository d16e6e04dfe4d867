"""What `look` shows is what the model does: each number of a report beside a computation of its own."""

from __future__ import annotations

import base64
import copy
import json
import re
import zlib
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glassformer
from glassformer.errors import UserError
from glassformer.files.owned import LIST
from glassformer.models.weights import model_tensors
from glassformer.nn.rows import Rows
from glassformer.runs.checkpoint import write_checkpoint
from glassformer.runs.folder import RunFolder
from glassformer.studies import page
from glassformer.studies.look import data as report_data
from glassformer.studies.look import packing
from glassformer.studies.look.activations import record_activations
from glassformer.studies.look.checkpoints import look_across
from glassformer.studies.look.flow import alignment, merge, rollout
from glassformer.studies.look.inside import Inside, look_inside
from glassformer.studies.look.pictures import save_pictures
from glassformer.studies.page.bundle import IMPORT
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.units import reading
from tests.commands import call
from tests.talking import SENTENCES, make_run

TEXT = "the cat ran to Paris"
SIZES = {"n_layer": 3, "n_head": 4, "n_embd": 16, "block_size": 48}
FAMILIES: dict[str, dict[str, Any]] = {
    "transformer": {"model": {**SIZES, "family": "transformer", "n_encoder_layer": 2}, "seed": 5},
    "post-norm": {"model": {**SIZES, "family": "transformer", "pre_norm": False, "final_norm": False}},
    "pruned": {
        "model": {
            **SIZES,
            "family": "transformer",
            "n_kv_head": 2,
            "positions": "alibi",
            "pruned_heads": [
                "decoder.0.attention:0",
                "decoder.0.attention:3",
                *(f"decoder.1.cross:{h}" for h in range(4)),
            ],
        },
    },
    "gpt": {
        "model": {**SIZES, "family": "gpt", "positions": "rotary", "n_kv_head": 2, "window": 7},
        "tokenizer": "bpe",
    },
    "gpt on pairs": {"model": {**SIZES, "family": "gpt", "positions": "alibi"}, "data": {"prompt_answer": True}},
    "mlm": {"model": {**SIZES, "family": "bert", "qk_norm": True}, "tokenizer": "bpe"},
    "classify": {
        "model": {**SIZES, "family": "bert", "head": "classify"},
        "labels": ["fr", "de", "zh"],
        "data": {"task": "classify"},
    },
    "gpt classify": {
        "model": {**SIZES, "family": "gpt", "head": "classify"},
        "labels": ["fr", "de", "zh"],
        "data": {"task": "classify"},
    },
    "classify by the mean": {
        "model": {**SIZES, "family": "bert", "head": "classify", "pool": "mean"},
        "labels": ["fr", "de", "zh"],
        "data": {"task": "classify"},
    },
    "tag": {"model": {**SIZES, "family": "bert", "head": "tag"}, "labels": ["A", "B", "C"], "data": {"task": "tag"}},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: make_run(folder / name.replace(" ", "-"), **how) for name, how in FAMILIES.items()}


@pytest.fixture(scope="module")
def models(runs: dict[str, Path]) -> dict[str, TextModel]:
    return {name: glassformer.load(path) for name, path in runs.items()}


@pytest.fixture(scope="module")
def insides(models: dict[str, TextModel]) -> dict[str, Inside]:
    """One sentence in each; those that answer are given an answer, since untrained ones may have none."""
    answers = {"transformer": "a dog ran", "post-norm": "a dog ran", "pruned": "a dog ran", "gpt on pairs": "a dog ran"}
    return {name: look_inside(model, TEXT, answers.get(name), new=5) for name, model in models.items()}


def logits_of(inside: Inside, net: Any = None) -> torch.Tensor:
    """The model on the same tokens, nobody listening."""
    net = inside.model.model if net is None else net
    row = Rows.whole(torch.tensor([inside.input.row]))
    with torch.no_grad():
        if inside.input.source:
            return net(Rows.whole(torch.tensor([inside.input.source])), row)[0]
        return net(row)[0]


# ---- the pass


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_add_up_to_one_and_look_only_where_allowed(insides: dict[str, Inside], name: str) -> None:
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
def test_what_is_said_is_what_the_model_says(insides: dict[str, Inside], name: str) -> None:
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
def test_the_lens_is_the_model_cut_short(insides: dict[str, Inside], name: str) -> None:
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
def test_norms_are_those_of_what_is_added(insides: dict[str, Inside], name: str) -> None:
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
def test_queries_keys_and_values_give_the_weights(insides: dict[str, Inside], name: str) -> None:
    """By the rule that the page states (scale, distance, mask, softmax), from the numbers that it gets: with grouped heads,
    a window, ALiBi, rotary. Caught: keys before the rotation, another head's keys, a slope of another head."""
    inside = insides[name]
    data = json.loads(json.dumps(report_data.page_data(inside, "a run")))
    for kind, facts in data["attentions"].items():
        for layer, packed in zip(inside.activations.attentions[kind], facts["layers"]):
            q, k = layer.q, layer.k[layer.kv_head_of]
            scores = q @ k.transpose(0, 2, 1)
            scores = scores / np.sqrt(q.shape[-1]) if facts["scaled"] else scores
            i, j = np.indices(scores.shape[1:])
            if packed["slopes"]:
                scores = scores - np.array(packed["slopes"])[:, None, None] * np.abs(i - j)
            allowed = (j <= i) | (not facts["causal"])
            allowed &= np.abs(i - j) < (facts["window"] or np.inf)
            powers = np.where(allowed, np.exp(scores - scores.max(-1, keepdims=True)), 0)
            np.testing.assert_allclose(powers / powers.sum(-1, keepdims=True), layer.weights, atol=1e-4)


# ---- what follows


def flow(inside: Inside) -> np.ndarray:
    """Rollout of an encoder-decoder as one walk over all tokens, target and source: a matrix for each attention."""
    seen = inside.activations
    s, t = len(inside.input.source), len(inside.input.row)
    whole = np.eye(s + t)
    for weights in seen.weights("encoder"):
        step = np.eye(s + t)
        step[:s, :s] = 0.5 * np.eye(s) + 0.5 * weights.mean(0)
        whole = step @ whole
    for own, cross in zip(seen.weights("decoder"), seen.weights("cross")):
        for place, weights in ((slice(s, None), own), (slice(0, s), cross)):
            step = np.eye(s + t)
            step[s:] *= 0.5
            step[s:, place] += 0.5 * weights.mean(0)
            whole = step @ whole
    return whole


def test_rollout_of_an_encoder_decoder(insides: dict[str, Inside]) -> None:
    """Caught: the encoder's part forgotten, cross before self, the halves mixed up."""
    inside = insides["transformer"]
    found, whole, s = rollout(inside.activations), flow(inside), len(inside.input.source)
    np.testing.assert_allclose(found["encoder"][-1], whole[:s, :s], atol=1e-6)
    np.testing.assert_allclose(found["decoder"][-1], whole[s:, s:], atol=1e-6)
    np.testing.assert_allclose(found["cross"][-1], whole[s:, :s], atol=1e-6)
    np.testing.assert_allclose(found["decoder"].sum(-1) + found["cross"].sum(-1), 1.0, atol=1e-6)


@pytest.mark.parametrize("name", ["gpt", "mlm"])
def test_rollout_counts_every_path(insides: dict[str, Inside], name: str) -> None:
    """For a few pairs of positions, the sum over all ways from one to the other through three layers, one by one."""
    inside = insides[name]
    kind = "decoder" if name == "gpt" else "encoder"
    layers = [0.5 * np.eye(w.shape[-1]) + 0.5 * w.mean(0) for w in inside.activations.weights(kind)]
    found = rollout(inside.activations)[kind]
    size = found.shape[-1]
    for i, j in ((size - 1, 0), (size - 1, size - 1), (2, 1)):
        ways = sum(layers[2][i, a] * layers[1][a, b] * layers[0][b, j] for a in range(size) for b in range(size))
        assert found[-1][i, j] == pytest.approx(ways, abs=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1.0, atol=1e-5)
    # Without residuals nothing stays.
    bare = rollout(inside.activations, residual=False)[kind][0]
    np.testing.assert_allclose(bare, inside.activations.weights(kind)[0].mean(0), atol=1e-6)


def test_alignment_is_the_mean_of_all_heads(insides: dict[str, Inside]) -> None:
    seen = insides["transformer"].activations
    heads = np.concatenate(seen.weights("cross"))
    np.testing.assert_allclose(alignment(seen), heads.mean(0), atol=1e-6)
    assert alignment(insides["gpt"].activations) is None


@given(st.data())
def test_merging_keeps_row_sums(data: st.DataObject) -> None:
    """Any weights, any groups; beside the plain double loop. Caught: keys averaged, or queries summed."""
    t, s = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 7))
    weights = np.random.default_rng(data.draw(st.integers(0, 99))).dirichlet(np.ones(s), size=(2, t))
    queries = np.cumsum([0, *data.draw(st.lists(st.integers(0, 1), min_size=t - 1, max_size=t - 1))]).tolist()
    keys = np.cumsum([0, *data.draw(st.lists(st.integers(0, 1), min_size=s - 1, max_size=s - 1))]).tolist()
    merged = merge(weights, queries, keys)
    np.testing.assert_allclose(merged.sum(-1), 1.0)
    for a in range(queries[-1] + 1):
        for b in range(keys[-1] + 1):
            rows = [i for i in range(t) if queries[i] == a]
            columns = [j for j in range(s) if keys[j] == b]
            expected = sum(weights[1, i, j] for i in rows for j in columns) / len(rows)
            assert merged[1, a, b] == pytest.approx(expected)


# ---- characters and words


TOKENIZERS = {
    kind: Tokenizer.train(kind, [*SENTENCES * 3, "我喜欢你的猫。天气很好"], 330)
    for kind in ("bpe", "unigram", "char", "word")
}


@given(st.text(max_size=24), st.sampled_from(["bpe", "unigram"]))
def test_units_are_whole_characters(text: str, kind: str) -> None:
    """Any text: the units stand in order and spell it, and no unit ends inside a character, though byte pieces do. Caught:
    a piece that begins in one character and ends in the next counted to one of them."""
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text)
    found = reading(tokenizer, ids)
    for units in (found.characters, found.words):
        assert "".join(units.labels) == text
        assert units.starts == sorted(set(units.starts)) and units.starts[:1] == ([0] if ids else [])
        for number, label in enumerate(units.labels):
            end = units.starts[number + 1] if number + 1 < len(units.starts) else len(ids)
            assert tokenizer.decode(ids[units.starts[number] : end]) == label


def test_a_character_of_several_pieces_is_one_unit() -> None:
    tokenizer = TOKENIZERS["bpe"]
    ids = [1, *tokenizer.encode("雪 ok"), 2]
    found = reading(tokenizer, ids)
    assert len(tokenizer.encode("雪")) == 3
    assert found.characters.labels[:2] == ["<bos>", "雪"] and found.characters.starts[:3] == [0, 1, 4]
    assert found.words.labels == ["<bos>", "雪", " ok", "<eos>"]


def test_words_in_chinese_and_letters_with_marks() -> None:
    assert reading(TOKENIZERS["char"], TOKENIZERS["char"].encode("我喜欢你")).words.labels == ["我", "喜欢", "你"]
    tokenizer = TOKENIZERS["bpe"]
    family = "👩\u200d👧"
    found = reading(tokenizer, tokenizer.encode(f"e\u0301{family}🇩🇪👍🏽"))
    assert found.characters.labels == ["e\u0301", family, "🇩🇪", "👍🏽"]
    assert reading(TOKENIZERS["word"], TOKENIZERS["word"].encode("the cat sat.")).words.labels == [
        "the",
        "cat",
        "sat",
        ".",
    ]


def test_bytes_that_spell_nothing() -> None:
    """A model may write half a character. Caught: the letter behind it swallowed."""
    tokenizer = TOKENIZERS["bpe"]
    snow, a = tokenizer.encode("雪"), tokenizer.encode("q")
    found = reading(tokenizer, [snow[0], *a, snow[0], snow[1]])
    assert found.characters.labels == ["\ufffd", "q", "\ufffd"] and found.characters.starts == [0, 1, 2]


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


def test_a_gpt_goes_on_and_its_own_text_is_scored_too(insides: dict[str, Inside], models: dict[str, TextModel]) -> None:
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


# ---- across training


def with_checkpoints(path: Path, steps: list[int]) -> RunFolder:
    """Checkpoints on a straight way from small weights to the final ones, and those as the last."""
    run = RunFolder.open(path)
    final = run.load_model()
    for step in steps:
        net = copy.deepcopy(final)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(step / steps[-1])
        write_checkpoint(run.checkpoints.path(step), {"model": model_tensors(net)}, {"step": step, "run": run.id})
    return run


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


# ---- how it travels


def unpacked(packed: dict[str, Any]) -> np.ndarray:
    """An array of a report, read as its description says."""
    raw = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), packed["dtype"]).reshape(packed["shape"])
    if "scale" in packed:
        scale = np.frombuffer(zlib.decompress(base64.b64decode(packed["scale"])), "<f4")
        return raw * scale.reshape(*packed["shape"][:-1], 1)
    return raw * packed.get("unit", 1.0)


def test_arrays_keep_the_promised_precision() -> None:
    """Caught: a row of 500 even weights rounded to nothing, negative numbers wrapped round."""
    draw = np.random.default_rng(0)
    short = draw.dirichlet(np.ones(20), size=(2, 20))
    assert np.abs(unpacked(packing.packed_weights(short)) - short).max() <= 0.5001 / 65535
    long = draw.dirichlet(np.full(500, 50.0), size=(2, 300))
    found = unpacked(packing.packed_weights(long))
    assert (np.abs(found - long) <= 0.51 / 255 * long.max(-1, keepdims=True)).all()
    np.testing.assert_allclose(found.sum(-1), 1.0, atol=0.01)
    numbers = draw.normal(size=(2, 5, 16))
    assert np.abs(unpacked(packing.packed_numbers(numbers, False)) - numbers).max() < 2e-3
    coarse = unpacked(packing.packed_numbers(numbers, True))
    assert (np.abs(coarse - numbers) <= 0.51 / 127 * np.abs(numbers).max(-1, keepdims=True)).all()
    assert packing.thumbnails(long).shape == (2, 64, 64) and packing.thumbnails(long).max() == long.max()


def page_of(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_holds_the_weights_and_needs_nobody(insides: dict[str, Inside]) -> None:
    """Also a text that tries to end the element it stands in. Caught: an address in a style, data cut off by `</script>`."""
    inside = look_inside(insides["mlm"].model, 'a "cat" </script><script>alert(1)</script> <!--')
    html = page.page_html(report_data.page_data(inside, "run </script>"))
    data = page_of(html)
    assert data["text"] == inside.text and data["title"] == "run </script>"
    found = unpacked(data["attentions"]["encoder"]["layers"][1]["weights"])
    np.testing.assert_allclose(found, inside.activations.weights("encoder")[1], atol=1e-5)
    assert html.count("</script>") == 2 and "alert(1)</script>" not in html
    assert set(re.findall(r"https?://[^\s\"'`]+", html)) == {"http://www.w3.org/2000/svg"}
    assert (
        not re.search(r"\b(src|href)=(?!\"data:)", html)
        and "@import" not in html
        and not re.search(r"url\((?!#)", html)
    )
    assert "default-src 'none'" in html


def test_modules_are_put_together_in_order() -> None:
    """Each once, the imported before the importer; a circle and a form of import that is not understood are refused."""
    parts = page.page_files()
    whole = page.bundled(parts, "page.js")
    modules = [name for name in parts if name.endswith(".js")]
    positions = {name: whole.index(f"const module_{name[:-3]} = ") for name in modules}
    for name in modules:
        assert whole.count(f"const module_{name[:-3]} = ") == 1
        for _, other in IMPORT.findall(parts[name]):
            assert positions[other] < positions[name]
    assert not re.search(r"^\s*(import|export)\b", whole, re.MULTILINE)
    with pytest.raises(ValueError, match="circle"):
        page.bundled({"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}, "a.js")
    with pytest.raises(ValueError, match="form"):
        page.bundled({"a.js": 'import * as b from "./b.js";\n', "b.js": ""}, "a.js")


def test_the_page_has_every_word_twice() -> None:
    """In English and in Chinese; and every word that a view asks for is there. Caught: a label that is only translated."""
    parts = page.page_files()
    keys = [set(re.findall(r"^  (\w+): ", parts[f"words_{language}.js"], re.MULTILINE)) for language in ("en", "zh")]
    assert keys[0] == keys[1]
    everything = "\n".join(text for name, text in parts.items() if not name.startswith("words"))
    asked = set(re.findall(r"\bwords\.(\w+)", everything))
    assert asked <= keys[0] | {"js"}, asked - keys[0]
    views = set(re.findall(r'static title = "(\w+)"', everything))
    assert len(views) == 12
    composed = views | {f"{view}About" for view in views} | {"encoder", "decoder", "cross", "tokensAboutLabels"}
    composed |= {"encoderLong", "decoderLong", "crossLong", "kept", "ended", "dropped", "pieces", "words", "characters"}
    unsaid = {
        key for key in keys[0] - asked - composed if not key.startswith(("status_", "side_", "part_", "explain_"))
    }
    assert not unsaid, "a word that nobody says"


def test_what_a_page_notes_is_in_both_languages_too(insides: dict[str, Inside]) -> None:
    """The text for the masked model has no mask, which is noted. Caught: a note that stays English on a Chinese page."""
    data = report_data.page_data(insides["mlm"], "run")
    assert data["notes"]
    for said in [*data["notes"], report_data.page_data(insides["transformer"], "run")["about"]]:
        chinese = [any("\u4e00" <= c <= "\u9fff" for c in said[language]) for language in ("en", "zh")]
        assert chinese == [False, True]


SIXTY = " ".join(["Anna lives in Paris, and Tom lives in Rome; the river was cold."] * 4)


@pytest.mark.slow
def test_sixty_tokens_of_a_large_model_stay_under_five_megabytes(tmp_path: Path) -> None:
    """The size of the paper's base model: six layers of eight heads on each side, 512 wide. Weights that say nothing are the
    worst case, since they compress least. Caught: arrays in float32, or q, k and v of every layer as they are."""
    sizes = {"n_layer": 6, "n_head": 8, "n_embd": 512, "n_hidden": 64, "block_size": 128}
    path = make_run(tmp_path / "base", tokenizer="bpe", model={"family": "transformer", **sizes})
    model = glassformer.load(path)
    with torch.no_grad():
        for name, parameter in model.model.named_parameters():
            if name.endswith(("query.weight", "key.weight")):
                parameter.mul_(0.1)
    ids = model.tokenizers.target.encode(SIXTY)[:60]
    text = model.tokenizers.target.decode(ids)
    inside = look_inside(model, text, text, beam=4)
    assert len(inside.input.source) == 61 and len(inside.input.row) == 61
    html = page.page_html(report_data.page_data(inside, "base"))
    assert len(html.encode()) < 5_000_000
    assert page_of(html)["attentions"]["cross"]["layers"][5]["q"]["dtype"] == "int8"


def test_what_does_not_fit_is_left_out_from_the_first_layer_on(insides: dict[str, Inside]) -> None:
    layers = insides["transformer"].activations.attentions["decoder"]
    size = layers[0].q.size + layers[0].k.size + layers[0].v.size
    with pytest.MonkeyPatch.context() as patch:
        for budget, expected in ((6 * size, (False, {0, 1, 2})), (2 * size, (True, {1, 2})), (size, (True, {2}))):
            patch.setattr(report_data, "NUMBERS_BUDGET", budget)
            assert report_data.numbers_plan(layers) == expected


# ---- the command


def check_pictures(folder: Path, names: set[str]) -> None:
    from matplotlib.image import imread

    assert {p.stem for p in folder.glob("*.png")} == {p.stem for p in folder.glob("*.svg")} == names
    for name in names:
        assert imread(folder / f"{name}.png").std() > 0.01, name
        assert ElementTree.parse(folder / f"{name}.svg").getroot().tag.endswith("svg")


EVERYWHERE = {"maps", "map", "tokens", "lens", "norms", "rollout", "head"}
PICTURES = {
    "transformer": EVERYWHERE | {"alignment", "beam"},
    "gpt": EVERYWHERE | {"beam"},
    "classify": EVERYWHERE,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "classify"])
def test_pictures_of_every_view(insides: dict[str, Inside], tmp_path: Path, name: str) -> None:
    """An untrained model says anything, control characters too. Caught: an SVG that is not XML."""
    save_pictures(insides[name], tmp_path)
    check_pictures(tmp_path, PICTURES[name])


@pytest.mark.slow
def test_the_command_writes_a_page_and_pictures(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", **FAMILIES["transformer"])
    with_checkpoints(path, [5, 10])
    done = call("look", path, TEXT, "--across", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "look.html" in done.stdout
    data = page_of((path / "look" / "look.html").read_text(encoding="utf-8"))
    assert data["text"] == TEXT and len(data["across"]) == 2
    check_pictures(path / "look", PICTURES["transformer"] | {"across"})


def test_the_command_without_pictures(runs: dict[str, Path], tmp_path: Path) -> None:
    done = call("look", runs["gpt"], TEXT, "--out", tmp_path / "out", "--no-pictures", "--new", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in (tmp_path / "out").iterdir() if p.name != LIST] == ["look.html"]


LONG = "the cat sat on the mat. " * 20
BAD: list[tuple[str, list[str], str]] = [
    ("transformer", [""], "is empty"),
    ("transformer", ["   "], "is empty"),
    ("transformer", ["the \u2603"], "U+2603"),
    ("transformer", [LONG], "reads 47 at once"),
    ("transformer", [TEXT, "--target", ""], "the target is empty"),
    ("transformer", [TEXT, "--target", LONG], "the target has"),
    ("transformer", [TEXT, "--beam", "0"], "--beam must be at least 1"),
    ("transformer", [TEXT, "--across"], "keeps 1 checkpoint"),
    ("transformer", ["a\0b"], "NUL"),
    ("gpt", [TEXT, "--target", "x"], "goes on with a text"),
    ("gpt", [LONG * 3], "at once; shorten it"),
    ("gpt on pairs", [TEXT, "--target", LONG], "together"),
    ("mlm", [TEXT, "--target", "x"], "fills in masks"),
    ("mlm", [" "], "is empty"),
    ("mlm", [TEXT, "--beam", "3"], "searches nothing"),
    ("classify", [TEXT, "--target", "fr"], "classifies texts"),
    ("tag", [LONG], "at once; shorten it"),
    ("tag", ["the \u2603"], "U+2603"),
]


@pytest.mark.parametrize(("name", "arguments", "sentence"), BAD)
def test_bad_input_gets_one_sentence(
    runs: dict[str, Path], tmp_path: Path, name: str, arguments: list[str], sentence: str
) -> None:
    if any("\0" in argument for argument in arguments):  # no command line can hold it
        with pytest.raises(UserError, match=sentence):
            look_inside(glassformer.load(runs[name]), arguments[0])
        return
    done = call("look", runs[name], *arguments, "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert sentence in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_no_run_and_a_place_that_cannot_be_written(runs: dict[str, Path], tmp_path: Path) -> None:
    done = call("look", tmp_path, TEXT, cwd=tmp_path)
    assert done.returncode == 2 and "is not a run" in done.stderr
    (tmp_path / "file").write_text("")
    done = call("look", runs["classify"], TEXT, "--out", tmp_path / "file" / "out", cwd=tmp_path)
    assert done.returncode == 2 and "cannot be written" in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
