"""Models of Hugging Face's, imported: their tokenizer gives the same pieces, and the model the same scores and answers, as their
library does. The reference is `transformers`; the models are small, of random weights. An import comes with its proof, and a run
that is another model than its source is not left standing.

Broken variants these catch: a table of positions not cut at row 2; M2M100's wavelengths taken for the paper's; a final logits
bias forgotten; ids that stand for nothing written after all; a special token that a text can spell; a layer that is another.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer
from glassformer.cli.verbs import run_command
from glassformer.formats import import_run
from glassformer.formats.huggingface.import_parity import import_parity
from glassformer.formats.huggingface.importing import Languages
from glassformer.formats.huggingface.writer import export_folder
from glassformer.formats.import_run import read_source, write_run
from glassformer.formats.parity import ParityFailed
from glassformer.text.tokenizer import CONTROL, UNK
from tests.external_models import DECODERS, READERS, SEQ2SEQ, TEXTS, in_our_ids
from tests.small_runs import small_run

MANY = {"mbart": Languages("en_XX", "de_DE"), "m2m_100": Languages("en_XX", "de_DE")}
MANY["m2m_100, its own files"] = Languages("en", "de")
FOUND_OUT = ["marian", "m2m_100, its own files", "gpt2", "opt", "llama", "qwen2", "roberta"]
MODELS: dict[str, Any] = SEQ2SEQ | DECODERS | READERS


@torch.no_grad()
def same_words_and_labels(ours: Any, theirs: Any, words: Any, imported: Any) -> None:
    """Ids of theirs say in our tokenizer what they say in theirs, and the likeliest label has its name."""
    vocabulary = imported.theirs["target"]
    for text in TEXTS[:4]:
        ids = words(text_target=text).input_ids if ours.verb == "translate" else words(text).input_ids
        said = words.decode(ids, skip_special_tokens=True).removeprefix("__de__ ")  # no text, here
        if ours.verb in ("translate", "generate"):
            assert ours.tokenizers.target.decode(in_our_ids(vocabulary, torch.tensor(ids)).tolist()) == said
    if ours.verb == "classify":
        best = int(theirs(words(TEXTS[0], return_tensors="pt").input_ids).logits.argmax())
        assert ours.classify(TEXTS[0]) == theirs.config.id2label[best]
    if ours.verb == "tag":
        assert len(ours.tag(TEXTS[0])) == len(TEXTS[0].split())
    if ours.verb == "fill":
        assert ours.fill("the ___ sat on the mat").masks
    for text in ("<s>", "</s>", "<unk>", "<|endoftext|>", "<|im_start|>", "<eos >", "<pad >", "a </s> b"):
        assert not [i for i in ours.tokenizers.source.encode(text) if i < CONTROL and i != UNK]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_run_says_what_its_source_says(name: str, tmp_path: Path) -> None:
    """Ids of texts, scores over the whole block, greedy answers and a beam of four; and of some a run whose second layer is
    another is found out."""
    theirs, words = MODELS[name](tmp_path / "theirs")
    imported = read_source(str(tmp_path / "theirs"), languages=MANY.get(name))
    run = write_run(imported, tmp_path / "run")
    report = import_parity(tmp_path / "theirs", imported, run)
    assert report.passed and report.largest_logit_difference < 2e-5 and report.same_greedy == 1
    assert report.same_beam in (1, None) and report.same_ids == 1
    assert json.loads((run.path / "parity.json").read_text())["texts"] == report.texts > 3
    same_words_and_labels(glassformer.load(run.path, device="cpu"), theirs, words, imported)
    if name not in FOUND_OUT:
        return
    stack = "encoder" if name in READERS else "decoder"
    part = next(n for n in imported.weights if n.startswith(f"{stack}.1.mlp.") and n.endswith("weight"))
    imported.weights[part].mul_(5)
    with pytest.raises(ParityFailed, match="scores differ by"):
        import_parity(tmp_path / "theirs", imported, write_run(imported, tmp_path / "other"))


def said(folder: Path, name: str, changes: dict[str, Any]) -> None:
    """A file of the folder, saying something else."""
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


@pytest.mark.slow
def test_it_begins_with_text(tmp_path: Path) -> None:
    """A source that cuts texts otherwise, and one that differs at the last token it can read alone: each is
    found out, and named. Nothing of this shows on short rows of the same ids."""
    MODELS["gpt2"](tmp_path / "theirs")
    found = read_source(str(tmp_path / "theirs"))
    run, short = write_run(found, tmp_path / "run"), ["the cat sat", "a hat", "my mice"]
    report = import_parity(tmp_path / "theirs", found, run, short)
    assert report.passed and report.same_ids == 1 and "texts cut alike" in dict(report.rows())
    before = (tmp_path / "theirs" / "tokenizer_config.json").read_bytes()
    said(tmp_path / "theirs", "tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True})
    with pytest.raises(ParityFailed, match=r"the text 'the cat sat' is \[.*\] there and \[.*\] here"):
        import_parity(tmp_path / "theirs", found, run, short)
    (tmp_path / "theirs" / "tokenizer_config.json").write_bytes(before)
    found.weights["positions.weight"][-1] *= 5
    with pytest.raises(ParityFailed, match="over 40 random tokens scores differ by"):
        import_parity(tmp_path / "theirs", found, write_run(found, tmp_path / "other"), short)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["pairs", "text"])
def test_an_export_of_ours_comes_back_by_its_own_recipe(task: str, tmp_path: Path) -> None:
    """It writes, and begins texts, as its recipe says; no generation_config.json could say as much."""
    model = {} if task == "pairs" else {"positions": "learned", "activation": "gelu_tanh"}
    run = small_run(tmp_path / "own", task, model=model, steps=1, save_every=1, validate_every=1, validate_examples=2)
    (tmp_path / "hf").mkdir()
    export_folder(run.load_model(), run.tokenizers, run.recipe, tmp_path / "hf")
    found, own = read_source(str(tmp_path / "hf")), dict(run.load_model().named_parameters())
    assert found.weights.keys() == own.keys() and all(torch.equal(found.weights[n], own[n]) for n in own)
    back = write_run(found, tmp_path / "back")
    assert back.tokenizers.source.encode("eins zwei") == run.tokenizers.source.encode("eins zwei")
    report = import_parity(tmp_path / "hf", found, back, ["eins zwei drei", "vier fünf sechs sieben"])
    assert report.passed and report.same_ids is None and back.recipe.decode == run.recipe.decode
    assert found.recipe.model == run.recipe.model


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_a_source_of_16_bits_is_compared_in_32(kind: torch.dtype, tmp_path: Path) -> None:
    model, _ = MODELS["llama"](tmp_path / "theirs")
    model.to(kind).save_pretrained(tmp_path / "theirs")
    found = read_source(str(tmp_path / "theirs"))
    report = import_parity(tmp_path / "theirs", found, write_run(found, tmp_path / "run"))
    assert report.passed and report.largest_logit_difference < 2e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "to"), [("marian", "hf"), ("roberta", "hf"), ("m2m_100, its own files", "ct2"), ("gpt2", "onnx")]
)
def test_what_came_in_goes_out_again(name: str, to: str, tmp_path: Path) -> None:
    """The runtime says what the run says; and of transformers' the weights come back to the bit, with the same words."""
    MODELS[name](tmp_path / "theirs")
    found = read_source(str(tmp_path / "theirs"), languages=MANY.get(name))
    model = glassformer.load(write_run(found, tmp_path / "run").path, device="cpu")
    sample = [(text, TEXTS[1]) for text in TEXTS[:3]] if name in SEQ2SEQ else TEXTS[:3]
    report = model.export(to, tmp_path / "out", sample=sample)
    assert report.passed and report.largest_logit_difference < 2e-5 and report.same_greedy == 1
    if to == "hf":
        back = read_source(str(tmp_path / "out"))
        assert back.weights.keys() == found.weights.keys() and back.recipe.model == found.recipe.model
        assert all(torch.equal(back.weights[n], found.weights[n]) for n in found.weights)
        for text in TEXTS[:5]:
            assert back.tokenizers.source.encode(text) == model.tokenizers.source.encode(text)


@pytest.mark.slow
def test_the_command_tells_and_leaves_nothing_that_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    MODELS["gpt2"](tmp_path / "theirs")
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat on the mat\na naïve hat\n", encoding="utf-8")
    given = ["import", str(tmp_path / "theirs"), "--sample", str(texts), "--out"]
    assert run_command([*given, str(tmp_path / "run")]) == 0
    assert "same greedy answers" in capsys.readouterr().out and (tmp_path / "run" / "parity.json").exists()
    whole = import_run.write_run

    def broken(model: Any, *rest: Any) -> Any:
        model.weights["decoder.0.attention.out.weight"].mul_(9)
        return whole(model, *rest)

    monkeypatch.setattr(import_run, "write_run", broken)
    with pytest.raises(SystemExit) as ended:
        run_command([*given, str(tmp_path / "wrong")])
    assert ended.value.code == 1 and "scores differ by" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["run", "texts.txt", "theirs"]
