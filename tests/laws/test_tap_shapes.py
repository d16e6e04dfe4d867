"""One documented shape per activation, wherever it is recorded: in a forward pass, step by step, and under a beam."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import glassformer
from glassformer.nn.rows import Rows
from glassformer.nn.taps import SHAPES, record
from tests.talking import make_run

SIZES: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_kv_head": 2, "n_embd": 24, "n_hidden": 40, "block_size": 48}
WIDTHS = {"H": 4, "K": 2, "D": 6, "C": 24, "F": 40}


def check(name: str, value: Tensor, known: dict[str, int]) -> None:
    """Each letter of the documented shape has the size that it has everywhere."""
    letters = SHAPES[name.rpartition(".")[2]][0].split()
    assert len(letters) == value.dim(), (name, letters, tuple(value.shape))
    for letter, size in zip(letters, value.shape, strict=True):
        assert known.get(letter, size) == size, (name, letter, size, known)


@pytest.mark.parametrize("family", ["transformer", "gpt", "bert"])
def test_shapes_of_a_forward_pass(family: str) -> None:
    model = glassformer.build_model(glassformer.ModelConfig(family=family, vocab_size=30, dropout=0.0, **SIZES))
    rows, source = Rows.from_lists([[5, 6, 7, 8, 9], [5, 6]]), Rows.from_lists([[7] * 7, [8] * 3])
    inputs = (source, rows) if family == "transformer" else (rows,)
    _, seen = glassformer.run_with_cache(model, *inputs)
    assert set(seen) == set(glassformer.tap_names(model)) == set(glassformer.tap_shapes(model))
    for name, value in seen.items():
        asks = 7 if name.startswith(("encoder.", "source_")) and family == "transformer" else 5
        answers = 7 if (".cross." in name or name.startswith("source_")) else asks
        check(name, value, WIDTHS | {"B": 2, "V": 30, "T": asks, "S": answers})
    weights = seen["encoder.0.attention.weights" if family == "bert" else "decoder.1.attention.weights"]
    assert torch.allclose(weights.sum(-1), torch.ones(()))


@pytest.mark.parametrize("family", ["transformer", "gpt"])
@pytest.mark.parametrize("beam", [1, 3])
def test_shapes_while_a_text_is_written(tmp_path: Path, family: str, beam: int) -> None:
    """Caught: under a beam, cross-attention that has its beams among its queries."""
    data = {"prompt_answer": True} if family == "gpt" else {}
    model = glassformer.load(make_run(tmp_path / "run", model=SIZES | {"family": family}, data=data))
    found: list[dict[str, Tensor]] = []
    with record(model.model, "*") as seen:
        answer = model.translate("the cat", beam=beam, max_new_tokens=4)
        found.append(dict(seen))
    assert answer.best.ids or beam == 1
    source = len(model.tokenizer.encode("the cat")) + 1
    for name, value in found[0].items():
        if name.startswith(("encoder.", "source_")) or (".cross." in name and name.endswith((".k", ".v"))):
            check(name, value, WIDTHS | {"B": 1, "S": source})
        else:
            letters = WIDTHS | {"B": beam, "T": 1} | ({"S": source} if ".cross." in name else {})
            check(name, value, letters if not name.endswith((".k", ".v")) else letters | {"S": 1})


def test_a_text_with_its_cache_in_one_line(tmp_path: Path) -> None:
    model = glassformer.load(make_run(tmp_path / "run"))
    logits, cache = model.run_with_cache("the cat")
    assert logits.shape[1] == len(cache.tokens)
    assert cache["decoder.0.cross.weights"].shape[2:] == (len(cache.tokens), len(cache.source_tokens))
    only = model.run_with_cache("the cat", "a dog", names="decoder.*.cross.weights")[1]
    assert set(only) == {"decoder.0.cross.weights"} and "".join(only.tokens[1:]) == "a dog"
