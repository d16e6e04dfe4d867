"""An activation carried from one text into another, and the answer written anew."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import glassformer
from glassformer.errors import UserError
from glassformer.inspection.inspection import NEW
from glassformer.inspection.patching import carried_answer
from glassformer.nn.rows import Rows
from glassformer.probe import patch, record
from glassformer.tasks.generate import prompt_ids
from glassformer.text.tokenizer import BOS, EOS
from tests.inspection.families import FAMILIES
from tests.talking import make_run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["transformer", "gpt"])
def test_the_answer_is_that_of_the_patched_model(kind: str, tmp_path: Path) -> None:
    """Token by token by whole forward passes, the activation in its place each time: the same text, for every layer and position.
    Caught: a cell carried into each step of the answer, the last token of a prompt left out."""
    how = FAMILIES[kind] | {"tokenizer": "word", "decode": {"beam": 1, "max_new_tokens": 6}}
    model = glassformer.load(make_run(tmp_path / "run", **how))
    text, other = "the cat ran to Paris", "a dog sat on mat"
    encode, special = model.tokenizers.source.encode, model.special_tokens
    ids = [[*encode(t), EOS] if kind == "transformer" else prompt_ids(model, t) for t in (text, other)]
    names = ["source_embeddings", "encoder.0.residual", "encoder.1.residual"]
    if kind == "gpt":
        names = ["embeddings", *(f"decoder.{n}.residual" for n in range(3))]
    answers = set()
    for layer, name in enumerate(names):
        begun = (Rows.from_lists([[BOS]]),) if kind == "transformer" else ()
        with record(model.model, name) as seen:
            model.model(Rows.from_lists([ids[1]]), *begun)
            there = seen[name]
        for position in range(len(ids[0])):
            written = [BOS] if kind == "transformer" else list(ids[0])
            most = 6 if kind == "transformer" else NEW
            new: list[int] = []
            while len(new) < most:
                rows = (ids[0], written) if kind == "transformer" else (written,)
                # Of a GPT the activation has as many positions as its row has by now; only the one is carried.
                padded = torch.zeros(1, len(rows[0]), there.shape[-1])
                padded[:, : there.shape[1]] = there
                with torch.no_grad(), patch(model.model, {name: padded}, [position]):
                    logits = model.model(*(Rows.from_lists([row]) for row in rows))[0, -1]
                logits[list(special.banned(False))] = -torch.inf
                token = int(logits.argmax())
                if token in special.ends:
                    break
                new.append(token)
                written.append(token)
            wanted = model.tokenizers.target.decode(new)
            answers.add(wanted)
            assert carried_answer(model, text, other, layer, position) == wanted, (name, position)
    assert len(answers) > 2
    with pytest.raises(UserError, match="same number"):
        carried_answer(model, text, "a dog", 0, 0)
    with pytest.raises(UserError, match="layers and"):
        carried_answer(model, text, other, len(names), 0)
