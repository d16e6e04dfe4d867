"""An exported folder in the hands of plain `transformers`: loaded by the Auto classes, it says what we say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from glassformer.config import DataConfig, DecodeConfig, ModelConfig, Recipe
from glassformer.formats.huggingface.writer import export_folder, write_tokenizers
from glassformer.models import build_model
from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import BOS, EOS, Tokenizer
from glassformer.text.tokenizers import Tokenizers

TEXTS = ["the cat sat on the mat", "a cat and a hat", "three mice, or four?", "naïve café 你好"] * 4


@pytest.fixture(scope="module", params=["bpe", "unigram", "char"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(request.param, TEXTS, 300)


@pytest.mark.parametrize("pre_norm", [False, True], ids=["marian", "pegasus"])
def test_an_encoder_decoder(pre_norm: bool, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The tokenizer lays a source out as in training, and `generate` writes greedily what our loop writes."""
    norms = {"pre_norm": pre_norm, "final_norm": pre_norm}
    config = ModelConfig(n_layer=2, n_head=2, n_embd=16, block_size=40, vocab_size=tokenizer.vocab_size, **norms)
    torch.manual_seed(1)
    ours = build_model(config).eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    recipe = Recipe(model=config, data=DataConfig(task="pairs"), decode=DecodeConfig(beam=1))
    export_folder(ours, Tokenizers(tokenizer, tokenizer, []), recipe, tmp_path)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    source = words("the cat and the hat", return_tensors="pt").input_ids
    assert source[0].tolist() == [*tokenizer.encode("the cat and the hat"), EOS]
    answer = theirs.generate(source, max_new_tokens=12, num_beams=1, do_sample=False)[0].tolist()
    state = ours.start(Rows.whole(source), 14)
    written, token = [], BOS
    with torch.no_grad():
        for _ in range(12):
            logits = ours.step(torch.tensor([[token]]), state)[0, -1]
            logits[[0, 1, 3, 4]] = -torch.inf
            token = int(logits.argmax())
            written.append(token)
            if token == EOS:
                break
    assert answer[1:] == written
    assert words.decode(written, skip_special_tokens=True) == tokenizer.decode(written)


@pytest.mark.parametrize(
    ("family", "task", "before", "after"),
    [("gpt", "text", [], []), ("gpt", "pairs", [BOS], [EOS]), ("bert", "text", [BOS], [])],
)
def test_a_text_is_laid_out_as_in_training(
    family: str, task: str, before: list[int], after: list[int], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    recipe = Recipe.from_dict({"model": {"family": family}, "data": {"task": task}})
    write_tokenizers(Tokenizers(tokenizer, tokenizer, []), recipe, tmp_path)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert words("the mat").input_ids == [*before, *tokenizer.encode("the mat"), *after]
