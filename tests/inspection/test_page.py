"""How a report travels: arrays that keep their precision, one page that needs nobody, in two languages, and its size."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassformer
from glassformer.inspection import data as report_data
from glassformer.inspection import page
from glassformer.inspection.inspection import Inspection, look_inside
from glassformer.inspection.page import IMPORT, english_words
from tests.inspection.families import page_of
from tests.talking import make_run

pytestmark = pytest.mark.slow


def unpacked(packed: dict[str, Any]) -> np.ndarray:
    """An array of a report, read as its description says."""

    def raw_bytes(data: bytes | str) -> bytes:
        return data if isinstance(data, bytes) else zlib.decompress(base64.b64decode(data))  # in a page: text

    raw = np.frombuffer(raw_bytes(packed["data"]), packed["dtype"]).reshape(packed["shape"])
    if "scale" in packed:
        scale = np.frombuffer(raw_bytes(packed["scale"]), "<f4")
        return raw * scale.reshape(*packed["shape"][:-1], 1)
    return raw * packed.get("unit", 1.0)


def test_arrays_keep_the_promised_precision() -> None:
    """Caught: a row of 500 even weights rounded to nothing, negative numbers wrapped round."""
    draw = np.random.default_rng(0)
    short = draw.dirichlet(np.ones(20), size=(2, 20))
    assert np.abs(unpacked(page.packed_weights(short)) - short).max() <= 0.5001 / 65535
    long = draw.dirichlet(np.full(500, 50.0), size=(2, 300))
    found = unpacked(page.packed_weights(long))
    assert (np.abs(found - long) <= 0.51 / 255 * long.max(-1, keepdims=True)).all()
    np.testing.assert_allclose(found.sum(-1), 1.0, atol=0.01)
    numbers = draw.normal(size=(2, 5, 16))
    assert np.abs(unpacked(page.packed_numbers(numbers, False)) - numbers).max() < 2e-3
    coarse = unpacked(page.packed_numbers(numbers, True))
    assert (np.abs(coarse - numbers) <= 0.51 / 127 * np.abs(numbers).max(-1, keepdims=True)).all()
    assert page.thumbnails(long).shape == (2, 64, 64) and page.thumbnails(long).max() == long.max()


def test_the_page_holds_the_weights_and_needs_nobody(insides: dict[str, Inspection]) -> None:
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
    english = english_words(parts["words_en.js"])
    chinese = json.loads(parts["words_zh.js"].removeprefix("export const ZH = ").removesuffix(";\n"))
    assert english.keys() == chinese.keys() and chinese["maps"] == "注意力图"
    keys = set(english)
    assert len(keys) == len(re.findall(r"^  \w+: ", parts["words_en.js"], re.MULTILINE)), "a word that is not read"
    everything = "\n".join(text for name, text in parts.items() if not name.startswith("words"))
    asked = set(re.findall(r"\bwords\.(\w+)", everything))
    assert asked <= keys | {"js"}, asked - keys
    views = set(re.findall(r'static title = "(\w+)"', everything))
    assert len(views) == 12
    composed = views | {f"{view}About" for view in views} | {"encoder", "decoder", "cross", "tokensAboutLabels"}
    composed |= {"encoderLong", "decoderLong", "crossLong", "kept", "ended", "dropped", "pieces", "words", "characters"}
    unsaid = {
        key for key in keys - asked - composed if not key.startswith(("status_", "side_", "part_", "explain_", "group"))
    }
    assert not unsaid, "a word that nobody says"


def test_what_a_page_notes_is_in_both_languages_too(insides: dict[str, Inspection]) -> None:
    """The text for the masked model has no mask, which is noted. Caught: a note that stays English on a Chinese page."""
    data = report_data.page_data(insides["mlm"], "run")
    assert data["notes"]
    for said in [*data["notes"], report_data.page_data(insides["transformer"], "run")["about"]]:
        chinese = [any("\u4e00" <= c <= "\u9fff" for c in said[language]) for language in ("en", "zh")]
        assert chinese == [False, True]


SIXTY = " ".join(["Anna lives in Paris, and Tom lives in Rome; the river was cold."] * 4)


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


def test_what_does_not_fit_is_left_out_from_the_first_layer_on(insides: dict[str, Inspection]) -> None:
    layers = insides["transformer"].activations.attentions["decoder"]
    size = layers[0].q.size + layers[0].k.size + layers[0].v.size
    with pytest.MonkeyPatch.context() as patch:
        for budget, expected in ((6 * size, (False, {0, 1, 2})), (2 * size, (True, {1, 2})), (size, (True, {2}))):
            patch.setattr(page, "NUMBERS_BUDGET", budget)
            assert report_data.numbers_plan(layers) == expected
