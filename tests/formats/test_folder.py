"""An exported folder in the hands of plain `transformers`: loaded by the Auto classes, it says what we say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from glassformer.config import DataConfig, DecodeConfig, ModelConfig, Recipe
from glassformer.formats.huggingface.writer import export_folder
from glassformer.models import build_model
from glassformer.nn.rows import Rows
from glassformer.text.tokenizer import BOS, EOS, Tokenizer
from glassformer.text.tokenizers import Tokenizers

TEXTS = ["the cat sat on the mat", "a cat and a hat", "three mice, or four?", "naïve café 你好"] * 4
SMALL: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 40}
AUTO = {
    "transformer": transformers.AutoModelForSeq2SeqLM,
    "gpt": transformers.AutoModelForCausalLM,
    "bert": transformers.AutoModelForMaskedLM,
}


@pytest.fixture(scope="module", params=["bpe", "unigram", "char"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(request.param, TEXTS, 300)


def recipe_of(tokenizer: Tokenizer, task: str = "pairs", **model: Any) -> Recipe:
    settings = SMALL | {"vocab_size": tokenizer.vocab_size} | model
    return Recipe(model=ModelConfig(**settings), data=DataConfig(task=task), decode=DecodeConfig(beam=1))  # type: ignore[arg-type]


def exported(tokenizer: Tokenizer, recipe: Recipe, folder: Path) -> Any:
    torch.manual_seed(1)
    model = build_model(recipe.model).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    export_folder(model, Tokenizers(tokenizer, tokenizer, []), recipe, folder)
    return model


@pytest.mark.parametrize("pre_norm", [False, True], ids=["marian", "pegasus"])
def test_an_encoder_decoder(pre_norm: bool, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The tokenizer lays a source out as in training, and `generate` writes greedily what our loop writes."""
    recipe = recipe_of(tokenizer, pre_norm=pre_norm, final_norm=pre_norm)
    ours = exported(tokenizer, recipe, tmp_path)
    theirs = AUTO["transformer"].from_pretrained(tmp_path).eval()
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


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_decoder(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    learned = {"positions": "learned", "activation": "gelu_tanh"}
    rotary = {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False}
    recipe = recipe_of(tokenizer, "text", family="gpt", **(learned if kind == "gpt2" else rotary))
    ours = exported(tokenizer, recipe, tmp_path)
    theirs = AUTO["gpt"].from_pretrained(tmp_path).eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    prompts = words(["a cat", "three mice, or"], return_tensors="pt", padding=True, padding_side="left")
    assert words("a cat").input_ids == tokenizer.encode("a cat")
    with torch.no_grad():
        # Left-padded, as a batch of prompts is: padding changes nothing there either.
        # (Positions as their own `generate` counts them.)
        places = (prompts.attention_mask.cumsum(-1) - 1).clamp(min=0)
        found = theirs(**prompts, position_ids=places).logits[:, -1]
        for row, text in zip(found, ["a cat", "three mice, or"], strict=True):
            alone = ours(Rows.whole(torch.tensor([tokenizer.encode(text)])))[0, -1]
            torch.testing.assert_close(row, alone, atol=2e-4, rtol=0)


def test_a_bert(tokenizer: Tokenizer, tmp_path: Path) -> None:
    bert = {"pre_norm": False, "final_norm": False, "positions": "learned", "embedding_norm": True, "n_token_type": 2}
    recipe = recipe_of(tokenizer, "text", family="bert", activation="gelu", scale_embeddings=False, **bert)
    ours = exported(tokenizer, recipe, tmp_path)
    theirs = AUTO["bert"].from_pretrained(tmp_path).eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ids = words("the mat", return_tensors="pt").input_ids
    assert ids[0].tolist() == [BOS, *tokenizer.encode("the mat")]
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, ours(Rows.whole(ids)), atol=2e-4, rtol=0)
