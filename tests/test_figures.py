"""The figures of the parts show the numbers that the text gives, and the tour uses every one of them."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from glassformer import load, plots
from glassformer.errors import UserError
from glassformer.inspection import patching
from tests.talking import make_run
from tests.test_plots import check_pictures

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))

import make_figures as figures
from figure_words import CHINESE, chinese, reword

pytestmark = pytest.mark.slow


def test_tends_to_zero_and_how_slowly() -> None:
    """The paper's table of width 512 keeps 0.44 of its largest product at distance 100, by the sum of cosines itself. Broken
    variants: sines and cosines in halves of another width; products of other positions."""
    by_hand = sum(math.cos(100 / 10000 ** (2 * i / 512)) for i in range(256)) / 256
    assert figures.at_distance(512, 100) == pytest.approx(by_hand, abs=1e-6)
    assert round(figures.at_distance(512, 100), 2) == 0.44
    assert figures.sinusoidal_products(512)[0] == 1.0
    assert figures.sinusoidal_products(512)[1:].max() < 1.0
    table = figures.sinusoidal_table(40, 16)
    products = table @ table.T
    for k in range(1, 20):
        np.testing.assert_allclose(np.diagonal(products, k), products[0, k], atol=1e-9)


def test_masks_are_what_their_names_say() -> None:
    """Each written down again as a rule about two places. Broken variants: a window that does not count the query itself;
    segments that see padding; rows and columns exchanged."""
    found = figures.masks()
    rules = {
        "causal": lambda q, k: k <= q,
        "padding": lambda q, k: k < 5 or q >= 5,
        "window of 3, causal": lambda q, k: 0 <= q - k < 3,
        "segments": lambda q, k: (q < 3 and k < 3) or (3 <= q < 7 and 3 <= k < 7) or q == 7,
        "segments, causal": lambda q, k: (((q < 3 and k < 3) or (3 <= q < 7 and 3 <= k < 7)) and k <= q) or q == 7,
        "segments, cross": lambda q, k: (q < 3 and k < 4) or (3 <= q < 7 and 4 <= k < 6) or q == 7,
    }
    assert set(found) == set(rules)
    for name, rule in rules.items():
        wanted = np.array([[bool(rule(q, k)) for k in range(8)] for q in range(8)])
        np.testing.assert_array_equal(found[name], wanted, err_msg=name)


def test_the_worked_attention_by_pencil() -> None:
    found = figures.worked_attention()
    assert found["scores"][0, 0] == pytest.approx(4 / math.sqrt(2))
    np.testing.assert_allclose(found["weights"].sum(-1), 1.0, rtol=1e-6)
    assert found["weights"][0].tolist() == [1.0, 0.0, 0.0, 0.0], "the first token sees itself alone"
    np.testing.assert_allclose(found["weights"][2, :3], 1 / 3, rtol=1e-6)
    np.testing.assert_allclose(found["output"][2], [0.5, 0.5], atol=1e-6)


def test_what_the_square_root_is_for() -> None:
    """Scores of unit vectors spread as sqrt(d) without it and as 1 with it; without it the softmax is all on one key and
    lets hardly a gradient through. The gradient's formula is that of autograd. Broken variant: divided by d."""
    found = figures.softmax_scaling()
    np.testing.assert_allclose(found["with"]["spread"], 1.0, atol=0.06)
    np.testing.assert_allclose(found["without"]["spread"], np.sqrt(found["sizes"]), rtol=0.06)
    assert found["without"]["largest"][-1] > 0.9 > 0.5 > found["with"]["largest"][-1]
    assert found["without"]["gradient"][-1] < 0.25 * found["with"]["gradient"][-1]
    scores = torch.randn(5, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), scores)
    torch.testing.assert_close(figures.softmax_gradient(scores.softmax(-1)), jacobian)


def test_rotary_and_alibi() -> None:
    """A query's product with a key depends on their distance alone, and the slopes halve as published. Broken variants:
    angles of the whole width; pairs interleaved on one side and split on the other."""
    products = figures.rotary_products(20, 8)
    for k in range(20):
        np.testing.assert_allclose(np.diagonal(products, k), products[0, k], atol=1e-5)
        by_hand = sum(math.cos(k * 10000 ** (-2 * i / 8)) for i in range(4)) / 4
        assert products[0, k] == pytest.approx(by_hand, abs=1e-5)
    angles = figures.rotary_angles(10, 8)
    assert angles.shape == (4, 10)
    np.testing.assert_allclose(angles[0], np.cos(np.arange(10)), atol=1e-6)
    lines = figures.alibi_lines(8, 5)
    np.testing.assert_allclose(lines[0], -0.5 * np.arange(5))
    np.testing.assert_allclose(lines[7], -(2.0**-8) * np.arange(5))


def test_activations() -> None:
    found = figures.activations()
    x = found["x"]
    np.testing.assert_array_equal(found["relu"]["value"], np.maximum(x, 0))
    np.testing.assert_allclose(
        found["gelu"]["value"], [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x], atol=1e-6
    )
    assert abs(found["gelu"]["value"] - found["gelu_tanh"]["value"]).max() < 5e-4
    slope = np.gradient(found["gelu"]["value"], x)
    np.testing.assert_allclose(found["gelu"]["slope"][5:-5], slope[5:-5], atol=1e-3)


def test_smoothing_is_least_where_the_target_is() -> None:
    """(1 - s) + s/V, and not one. Broken variant: s shared among the other words alone."""
    found = figures.smoothed_loss()
    for amount in ("0.1", "0.2"):
        s = float(amount)
        least = found["chance"][np.argmin(found[amount])]
        assert least == pytest.approx(1 - s + s / 10, abs=0.003)
        wanted = -(1 - s) * np.log(found["chance"]) - s / 10 * (
            np.log(found["chance"]) + 9 * np.log((1 - found["chance"]) / 9)
        )
        np.testing.assert_allclose(found[amount], wanted, rtol=1e-6)
    assert np.argmin(found["0"]) == len(found["chance"]) - 1


def test_schedules() -> None:
    """All reach the same height when warm-up ends; then each its own way down."""
    found = figures.schedules()
    for name in ("noam", "cosine", "wsd"):
        assert int(np.argmax(found[name])) == 999
        assert found[name][999] == pytest.approx(figures.highest_rate(512, 1000))
        assert found[name][499] == pytest.approx(found[name][999] / 2)
    assert found["noam"][3999] == pytest.approx(found["noam"][999] / 2), "the inverse square root"
    assert found["wsd"][7999] == found["wsd"][999] and found["wsd"][9999] == 0.0
    assert found["cosine"][5499] == pytest.approx(found["cosine"][999] / 2, rel=1e-6)


def test_the_dictionary_the_words_and_the_turns() -> None:
    """0.6·10 + 0.4·5 = 8; the sums that texts print; every pair of the table on the unit circle, turned by one angle a step.
    Broken variants: sines and cosines exchanged; a frequency of its own for the sine and the cosine of a pair."""
    found = figures.fruit()
    np.testing.assert_allclose(found["weights"], [0.6, 0.4, 0.0], atol=1e-12)
    assert found["answer"] == pytest.approx(8.0, abs=1e-12)
    np.testing.assert_allclose(figures.i_like_to_code()["sum"][3], [0.5411, -0.49, 0.63, 1.6996], atol=5e-5)
    points = figures.turns(9, 8)
    np.testing.assert_allclose(np.hypot(points[..., 0], points[..., 1]), 1.0)
    angles = np.unwrap(np.arctan2(points[..., 1], points[..., 0]), axis=1)
    steps = np.diff(angles, axis=1)
    np.testing.assert_allclose(steps, np.repeat([[10000 ** (-2 * i / 8)] for i in range(4)], 8, axis=1), atol=1e-9)


def test_what_norms_average_over_and_what_residual_lines_carry() -> None:
    """One token's features, one feature's real tokens, those of one sentence, or half the features of one sentence. Broken
    variants: batch norm that counts padding; layer norm over the sentence; tokens taken for features."""
    found = figures.norm_reach()
    real = np.ones((2, 4, 6), bool)
    real[1, 3] = False
    sentence, token, feature = np.ogrid[:2, :4, :6]
    expected = {
        "batch norm": feature == 2,
        "layer norm": (sentence == 0) & (token == 1),
        "instance norm": (sentence == 0) & (feature == 2),
        "group norm, 2 groups": (sentence == 0) & (feature < 3),
    }
    assert list(found) == list(expected)
    for name, reached in expected.items():
        np.testing.assert_array_equal(found[name], real & reached, err_msg=name)
    slopes = figures.gradient_by_depth(12, 16)
    assert slopes["with"][0] > slopes["with"][-1] / 2
    assert slopes["without"][0] < slopes["without"][-1] / 10


def test_lengths_are_divided_by_the_published_rule() -> None:
    found = figures.length_divisors(20)
    np.testing.assert_allclose(found["gnmt, 1"], (5 + found["length"] + 1) / 6)
    np.testing.assert_array_equal(found["alpha 0: none"], 1.0)


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("name", ["masks", "norms", "dictionary", "i-like-to-code"])
def test_a_figure_in_chinese_says_the_same(name: str) -> None:
    """Words at the ticks too, which are written when it is drawn. Broken variant: only titles."""
    from matplotlib.text import Text

    figure = figures.FIGURES[name]()
    reword(figure, chinese)
    figure.canvas.draw()
    shown = {text.get_text() for text in figure.findobj(Text)}
    known = {*CHINESE, "token 0", "sentence 0, token 1", "dim 0"}
    assert not shown & known and any(re.search(r"[\u4e00-\u9fff]", text) for text in shown)


def test_the_tour_uses_every_figure() -> None:
    """A figure that is drawn and not shown, or shown and not drawn."""
    tour = "\n".join(p.read_text(encoding="utf-8") for p in (DOCS / "tour").glob("*.md"))
    shown = set(re.findall(r"\(\.\./figures/([\w.-]+)\.svg\)", tour))
    assert shown >= {f"{name}{ending}" for name in figures.FIGURES for ending in ("", ".zh")}
    for name in shown:
        assert (DOCS / "figures" / f"{name}.svg").exists(), name
    said = float(re.search(r"([\d.]+) of the largest at distance 100", tour)[1])  # type: ignore[index]
    assert said == round(figures.at_distance(512, 100), 2)


# Patching, as text -------------------------------------------------------------------------------------------------------


def test_what_carries_the_answer(tmp_path: Path) -> None:
    """Where the two texts agree the embeddings carry nothing; all that is left is carried by the last layer at the last
    place; a single differing letter carries all. Broken variants: texts exchanged; effects of another layer's row."""
    model = load(make_run(tmp_path / "run", model={"n_layer": 2}))
    texts = [f"cat {letter}at" for letter in "srcmtdpl"]
    wrote = dict(zip(texts, model.translate(texts), strict=True))
    first, second = next((a, b) for a in texts for b in texts if wrote[a] != wrote[b])
    found = patching.patch(model, first, second)
    reading, writing = found.panels
    assert reading.tokens[:3] == ["c", "a", "t"] and reading.layers == ["embeddings", "after layer 0", "after layer 1"]
    np.testing.assert_allclose(reading.effects[0], [0, 0, 0, 0, 1, 0, 0, 0], atol=1e-4)
    assert writing.effects[-1, -1] == pytest.approx(1.0, abs=1e-4)
    np.testing.assert_allclose(writing.effects[-1, :-1], 0, atol=1e-5)
    np.testing.assert_allclose(writing.effects[0], 0, atol=1e-5)
    assert found.answers == (wrote[first], wrote[second])
    check_pictures(patching.draw(found, tmp_path / "effects"))


def test_what_carries_what_comes_next_and_what_it_is(tmp_path: Path) -> None:
    gpt = load(make_run(tmp_path / "gpt", model={"family": "gpt"}, data={"task": "text"}))
    (panel,) = patching.patch(gpt, "the cat", "the dog").panels
    assert panel.effects[-1, -1] == pytest.approx(1.0, abs=1e-4) and abs(panel.effects[0, :4]).max() < 1e-5
    labels = load(
        make_run(
            tmp_path / "bert",
            model={"family": "bert", "head": "classify"},
            data={"task": "classify"},
            labels=[f"label {i}" for i in range(20)],
        )
    )
    texts = [f"{a}{b} {a}{c}" for a in "catdog" for b in "rivewm" for c in "nmlp"]
    said = dict(zip(texts, labels.classify(texts), strict=True))
    first, second = next((a, b) for a in texts for b in texts if said[a] != said[b])
    (panel,) = patching.patch(labels, first, second).panels
    assert panel.effects[-1, 0] == pytest.approx(1.0, abs=1e-4), "a class is read off the first place"


def test_texts_that_cannot_be_patched(tmp_path: Path) -> None:
    model = load(make_run(tmp_path / "run"))
    with pytest.raises(UserError, match="have 4 and 5 tokens"):
        patching.patch(model, "cat", "cats")
    with pytest.raises(UserError, match="answered differently"):
        patching.patch(model, "cat", "cat")
    assert plots.visible("") == "·"
