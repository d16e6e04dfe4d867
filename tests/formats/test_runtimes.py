"""Tiny random models of every family in the real runtimes: tied and untied, with biases and without, vocabularies of odd sizes,
prompts padded on the left and prompts at the block's edge; token for token, by a beam, under each runtime's own rules.

The models are lively: they end now and then, so beams are really searched. Broken variants these catch: EOS not counted in the
length, a search that stops by another rule, padding that is seen, a position too far.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassformer
from glassformer import runs
from glassformer.config import DataConfig, ModelConfig, Recipe
from glassformer.config.recipe import read_recipe
from glassformer.formats.export import write
from glassformer.formats.parity import share_of_same
from glassformer.formats.runtime import Case, OurRuntime
from glassformer.formats.targets import target_of
from glassformer.models import build_model
from glassformer.tasks import TextModel
from glassformer.text.tokenizer import EOS, Tokenizer
from glassformer.text.tokenizers import Tokenizers

BLOCK = 40
LLAMA = {"family": "gpt", "positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False}
KINDS: dict[str, dict[str, Any]] = {
    "marian": {"pre_norm": False, "final_norm": False},
    "marian, untied": {"pre_norm": False, "final_norm": False, "tie_output": False, "n_encoder_layer": 1},
    "pegasus": {"output_bias": True},
    "gpt2": {"family": "gpt", "positions": "learned", "activation": "gelu_tanh"},
    "gpt2, untied": {"family": "gpt", "positions": "learned", "activation": "gelu", "tie_output": False},
    "llama": {**LLAMA, "n_kv_head": 2},
    "llama, biases, untied": {**LLAMA, "bias": True, "tie_output": False},
    "qwen3": {**LLAMA, "qk_norm": True},
}
FREE: dict[str, dict[str, Any]] = {  # what Hugging Face has no class for
    "no biases": {"bias": False, "positions": "rotary", "activation": "swiglu"},
    "gpt, alibi": {"family": "gpt", "positions": "alibi", "norm": "rms", "bias": False},
}


def lively(settings: dict[str, Any], seed: int, letters: int = 36) -> TextModel:
    """A model that likes to end, with a vocabulary of 5 + letters."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    tokenizer = Tokenizer.train("char", ["".join(chr(ord("А") + i) for i in range(letters))], 400)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size, n_layer=2, n_head=4, n_embd=32, n_hidden=48, block_size=BLOCK, dropout=0.0, **settings
    )  # fmt: skip
    model = build_model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
        if not config.tie_output:
            model.output_weight[EOS] += 0.9 * model.output_weight[draw.randrange(5, tokenizer.vocab_size)]
    task = "pairs" if config.family == "transformer" else "text"
    recipe = Recipe(model=config, data=DataConfig(task=task))  # type: ignore[arg-type]
    return TextModel(model, Tokenizers(tokenizer, tokenizer, []), recipe)


def prompts_for(model: TextModel, seed: int) -> list[list[int]]:
    """Of all lengths; a source ends with EOS."""
    draw, words = random.Random(seed), model.model.config.vocab_size
    ends = [EOS] if model.kind == "transformer" else []
    return [[*(draw.randrange(5, words) for _ in range(draw.randrange(1, 10))), *ends] for _ in range(6)]


CASES = [(kind, to) for kind in KINDS for to in ("hf", "ct2")] + [(kind, "ct2") for kind in FREE]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "to"), CASES)
def test_token_for_token_under_their_rules(kind: str, to: str, tmp_path: Path) -> None:
    """Greedy and a beam of four, prompts of all lengths in one batch (a GPT's padded on the left by transformers)."""
    model = lively((KINDS | FREE)[kind], seed=len(kind))
    assert model.model.config.vocab_size == 41
    write(model, to, tmp_path, "fp32", "x")
    runtime, prompts = target_of(to).writer.open_folder(model, tmp_path), prompts_for(model, 1)
    ours = OurRuntime(model, runtime.rules, runtime.special, cut_competes=runtime.cut_competes)
    here, there = (side.write(prompts, beam=1, limit=20) for side in (ours, runtime))
    assert here == there
    here, there = (side.write(prompts, beam=4, limit=20) for side in (ours, runtime))
    # Of a beam that ends and is cut at the limit in one step, we keep those that ended and they those that score best.
    assert [a for a, b in zip(here, there, strict=True) if len(b) < 20] == [b for b in there if len(b) < 20]
    assert share_of_same(here, there) >= 0.8


@pytest.mark.slow
@pytest.mark.parametrize("to", ["hf", "ct2", "onnx", "gguf"])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_prompt_at_the_edge_of_the_block(kind: str, to: str, tmp_path: Path) -> None:
    """A prompt that leaves room for three tokens: all its scores are ours, and so are the three tokens."""
    model = lively(KINDS[kind], seed=3)
    write(model, to, tmp_path, "fp32", "x")
    runtime = target_of(to).writer.open_folder(model, tmp_path)
    draw = random.Random(0)
    text = tuple(draw.randrange(5, 41) for _ in range(BLOCK))
    ours, case = (
        OurRuntime(model, runtime.rules, runtime.special, cut_competes=runtime.cut_competes),
        Case(text[:-3], text[-3:]),
    )
    whole = Case(text[:1], text[1:])
    for one in (case, whole):
        assert np.abs(ours.logits([one])[0] - runtime.logits([one])[0]).max() < 1e-3
    assert runtime.write([case.prompt], beam=1, limit=3) == ours.write([case.prompt], beam=1, limit=3)


# ------------------------------------------------------------------------------------------------- text in, text out


@pytest.fixture(scope="module")
def dates(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The demo's model after a few steps: it says something, if not yet dates."""
    recipe = read_recipe(
        "dates",
        [
            "data.size=1500", "model.n_embd=32", "model.n_hidden=64", "train.steps=40", "train.validate_every=40",
            "train.save_every=40", "train.validate_examples=4", "train.device=cpu", "data.batch_tokens=512",
        ],
    )  # fmt: skip
    return glassformer.load(runs.train(recipe, tmp_path_factory.mktemp("dates") / "dates").path, device="cpu")


@pytest.mark.slow
def test_the_dates_of_the_demo_are_read_and_written_by_everyone(dates: Any, tmp_path: Path) -> None:
    """A text goes through each folder's own tokenizer and program, with nothing of ours in between."""
    import ctranslate2
    import tokenizers
    import transformers

    texts = ["3 mai 1979", "4. März 1980", "May 5th, 2001"]
    for to in ("hf", "ct2", "onnx"):
        report = dates.export(to, tmp_path / to)
        assert report.passed and report.same_greedy == 1 and report.texts == 64
    wanted = dates.translate(texts, beam=1, max_new_tokens=24)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf")
    given = tokenizer(texts, return_tensors="pt", padding=True)
    found = tokenizer.batch_decode(model.generate(**given, num_beams=1, max_new_tokens=24), skip_special_tokens=True)
    assert found == wanted
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "ct2" / "tokenizer.json"))
    translator = ctranslate2.Translator(str(tmp_path / "ct2"))
    hidden = [["<pad >"], ["<bos >"], ["<unk >"], ["<mask >"]]
    assert [library.id_to_token(i) for i in (0, 1, 3, 4)] == [name for (name,) in hidden]
    answers = translator.translate_batch(
        [library.encode(t).tokens for t in texts], beam_size=1, max_decoding_length=24, suppress_sequences=hidden
    )
    assert [library.decode([library.token_to_id(w) for w in one.hypotheses[0]]) for one in answers] == wanted
