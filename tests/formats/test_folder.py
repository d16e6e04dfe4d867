"""An exported folder in the hands of plain `transformers`: loaded by the Auto classes, it says what we say."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from glassformer.config import Recipe
from glassformer.formats.huggingface.writer import write_tokenizers
from glassformer.text.tokenizer import BOS, EOS, Tokenizer
from glassformer.text.tokenizers import Tokenizers

TEXTS = ["the cat sat on the mat", "a cat and a hat", "three mice, or four?", "naïve café 你好"] * 4


@pytest.fixture(scope="module", params=["bpe", "unigram", "char"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(request.param, TEXTS, 300)


@pytest.mark.parametrize(
    ("family", "task", "before", "after"),
    [
        ("gpt", "text", [], []),
        ("gpt", "pairs", [BOS], [EOS]),
        ("bert", "text", [BOS], []),
        ("transformer", "pairs", [], [EOS]),
    ],
)
def test_a_text_is_laid_out_as_in_training(
    family: str, task: str, before: list[int], after: list[int], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    recipe = Recipe.from_dict({"model": {"family": family}, "data": {"task": task}})
    write_tokenizers(Tokenizers(tokenizer, tokenizer, []), recipe, tmp_path)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert words("the mat").input_ids == [*before, *tokenizer.encode("the mat"), *after]
