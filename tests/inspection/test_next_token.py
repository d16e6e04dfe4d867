"""The next token and forced prefixes: held to the model's own forward pass, one token after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassformer
from glassformer.errors import UserError
from glassformer.inspection.cuts import cut_data
from glassformer.inspection.search import TOP, next_token_data
from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import BOS, EOS
from tests.inspection.families import FAMILIES
from tests.talking import make_run

pytestmark = pytest.mark.slow

TEXTS = {"transformer": "the cat", "gpt": "the cat", "gpt on pairs": "the cat"}
GREEDY = {"decode": {"beam": 1, "max_new_tokens": 8}}


@pytest.fixture(scope="module", params=list(TEXTS))
def model(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return glassformer.load(make_run(tmp_path_factory.mktemp("runs") / "run", **FAMILIES[request.param] | GREEDY))


def rows_of(model: Any, written: list[int]) -> list[Rows]:
    """What the model reads when it has written so much, put together by hand."""
    source = model.tokenizers.source.encode("the cat")
    begins_document = model.kind == "gpt" and model.recipe.data.begin_documents
    lists = {
        "transformer": [[*source, EOS], [BOS, *written]],
        "gpt on pairs": [[BOS, *source, EOS, *written]],
        "gpt": [[*([BOS] if begins_document else []), *source, *written]],
    }[model.kind]
    return [Rows.whole(torch.tensor([ids])) for ids in lists]


def step(model: Any, written: list[int]) -> torch.Tensor:
    """The log-probabilities of the next token; what is never written is out."""
    with torch.no_grad():
        found = model.model(*rows_of(model, written))[0, -1].double().log_softmax(-1)
    found[list(model.special_tokens.banned(False))] = -torch.inf
    return found


def numbers(packed: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(packed["data"], "<f4")


def test_the_distribution_is_the_models(model: Any) -> None:
    """Every token that may come, in order. Broken variants: the place before; what is never written among them."""
    for written in ([], [7], [7, 9]):
        found, law = next_token_data(model, "the cat", written), step(model, written)
        allowed = law[law > -torch.inf].sort(descending=True).values
        assert numbers(found["logprobs"]) == pytest.approx(allowed.numpy(), abs=1e-5)
        assert law[found["ids"]].numpy() == pytest.approx(allowed[:TOP].numpy(), abs=1e-5)
        assert found["pieces"] == model.tokenizers.target.pieces(found["ids"])


def test_it_goes_on_from_what_was_forced(model: Any) -> None:
    """The answer begins with the forced tokens, whatever their probability, and goes on with the likeliest each time. What it
    would have said by itself is told beside. Broken variants: the prefix searched away; the rest of the old answer kept."""
    free = cut_data(model, "the cat", None, "run", explained=False)
    worst = next(i for i in reversed(step(model, []).sort(descending=True).indices.tolist()) if i > EOS + 2)
    for prefix in ([worst], [worst, 9]):
        found = cut_data(model, "the cat", None, "run", prefix=prefix, explained=False)
        first = found["outputs"]["status"].index("forced")
        said = [i for i, status in zip(found["outputs"]["ids"], found["outputs"]["status"]) if status != "next"][first:]
        assert said[: len(prefix)] == prefix
        assert found["outputs"]["status"][first : first + len(prefix)] == ["forced"] * len(prefix)
        for place in range(len(prefix), len(said)):
            assert said[place] == int(step(model, said[:place]).argmax())
        assert found["greedy"] == free["greedy"] and found["greedy"]["text"] == free["answer"]


def test_the_answer_forced_is_the_answer(model: Any) -> None:
    """Also with its end, which alone says that nothing follows."""
    free = cut_data(model, "the cat", None, "run", explained=False)
    outputs = free["outputs"]
    own = [i for i, status in zip(outputs["ids"], outputs["status"]) if status == "written"]
    begun = [i for i in own if i != EOS]
    again = cut_data(model, "the cat", None, "run", prefix=begun[:3], explained=False)
    if model.kind != "gpt":  # it goes on for as long again
        assert again["answer"] == free["answer"] and again["outputs"]["logprob"] == outputs["logprob"]
    ended = cut_data(model, "the cat", None, "run", prefix=[*begun[:2], EOS], explained=False)
    assert ended["answer"] == model.tokenizers.target.decode(begun[:2])
    assert ended["outputs"]["ids"][-2 if model.kind == "gpt" else -1] == EOS


@pytest.mark.parametrize("prefix", [[BOS], [10**6], [-1]])
def test_what_no_answer_begins_with_is_told(model: Any, prefix: list[int]) -> None:
    for ask in (next_token_data, lambda *given: cut_data(given[0], given[1], None, "run", prefix=given[2])):
        with pytest.raises(UserError):
            ask(model, "the cat", prefix)


def test_a_bert_writes_nothing(tmp_path: Path) -> None:
    bert = glassformer.load(make_run(tmp_path / "run", **FAMILIES["mlm"]))
    with pytest.raises(UserError, match="next token"):
        next_token_data(bert, "the [MASK]")
