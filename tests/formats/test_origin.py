"""An imported GPT goes back to where it came from: to transformers and llama.cpp with the ids, the tokenizer and, to the bit, the
tensors that it came with; and from there into a run again.

Broken variants these catch: rows that stay in our order; a control id that the foreign model lacks written as a row; a bias
dropped that was learned; a tokenizer renumbered on the way out.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import glassformer
from glassformer import runs
from glassformer.config.changes import fine_tuned
from glassformer.errors import UserError
from glassformer.formats.gguf.spec import CUTS, own_pairs
from glassformer.formats.gguf.writer import ReadBack, export_gguf
from glassformer.formats.huggingface.vocabulary import origin_of
from glassformer.formats.huggingface.writer import export_folder
from glassformer.formats.import_run import read_source, write_run
from glassformer.runs.folder import RunFolder
from glassformer.text.imported import ImportedTokenizer
from glassformer.text.tokenizer import BOS
from tests.external_models import DECODERS, TEXTS, gpt2, llama

SAME_CLASS = ["gpt2", "gpt2, untied", "llama", "llama, tied, biases", "llama 3.1", "qwen2", "qwen3"]
OTHERS = ["opt", "gpt2, a scale a layer"]


@dataclass
class Trip:
    name: str
    folder: Path  # with theirs/, run/ and out/
    theirs: Any
    words: Any
    weights: dict[str, torch.Tensor]
    run: RunFolder


def there_and_back(name: str, make: Callable[[Path], tuple[Any, Any]], folder: Path) -> Trip:
    theirs, words = make(folder / "theirs")
    found = read_source(str(folder / "theirs"))
    run = RunFolder.open(write_run(found, folder / "run").path)
    (folder / "out").mkdir()
    export_folder(run.load_model(), run.tokenizers, run.recipe, folder / "out")
    return Trip(name, folder, theirs, words, found.weights, run)


@pytest.fixture(scope="module", params=SAME_CLASS + OTHERS)
def trip(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trip:
    return there_and_back(request.param, DECODERS[request.param], tmp_path_factory.mktemp("trip"))


def test_the_tensors_and_the_tokenizer_are_those_that_came(trip: Trip) -> None:
    there, out = trip.folder / "theirs", trip.folder / "out"
    if trip.name in SAME_CLASS:
        before, after = load_file(there / "model.safetensors"), load_file(out / "model.safetensors")
        assert before.keys() == after.keys()
        assert all(torch.equal(before[n], after[n]) for n in before)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (there / name).read_bytes() == (out / name).read_bytes()


@torch.no_grad()
def test_transformers_says_what_the_original_says(trip: Trip) -> None:
    model, words = (kind.from_pretrained(trip.folder / "out") for kind in (AutoModelForCausalLM, AutoTokenizer))
    for text in (TEXTS[0], TEXTS[3]):
        ids = words(text, return_tensors="pt").input_ids
        assert torch.equal(ids, trip.words(text, return_tensors="pt").input_ids)
        torch.testing.assert_close(model(ids).logits, trip.theirs(ids).logits, atol=1e-4, rtol=1e-4)
        how = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
        here, there = (words.decode(net.generate(ids, **how)[0]) for net in (model, trip.theirs))
        assert here == there


def test_it_comes_back_to_the_bit(trip: Trip, tmp_path: Path) -> None:
    back = read_source(str(trip.folder / "out"))
    assert back.recipe == trip.run.recipe and back.weights.keys() == trip.weights.keys()
    assert all(torch.equal(back.weights[n], trip.weights[n]) for n in trip.weights)
    own, again = trip.run.tokenizers.target, back.tokenizers.target
    assert isinstance(own, ImportedTokenizer) and isinstance(again, ImportedTokenizer)
    assert {**own.envelope(), "foreign": None} == {**again.envelope(), "foreign": None}
    assert origin_of(own) is not None
    (tmp_path / "out").mkdir()
    export_folder(trip.run.load_model(), back.tokenizers, back.recipe, tmp_path / "out")
    for path in (trip.folder / "out").iterdir():
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()


GGUF = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
GGUF |= dict.fromkeys(("gpt2", "gpt2, untied", "gpt2, a scale a layer"), "gpt2")


def test_llama_cpp_has_their_rows_and_their_words(trip: Trip) -> None:
    """Read back tensor by tensor, and as a model of ours; what llama.cpp lacks is still refused."""
    model, out = trip.run.load_model(), trip.folder / "out" / "model.gguf"
    if trip.name not in GGUF:
        with pytest.raises(UserError, match="export to hf or"):
            export_gguf(model, trip.run.tokenizers.target, out, name="tiny")
        return
    assert export_gguf(model, trip.run.tokenizers.target, out, name="tiny") == []
    reader = gguf.GGUFReader(out)
    found = {t.name: np.asarray(t.data).reshape(tuple(reversed(t.shape.tolist()))) for t in reader.tensors}
    before = load_file(trip.folder / "theirs" / "model.safetensors")
    assert len(found) == len(before) and reader.fields["general.architecture"].contents() == GGUF[trip.name]
    table = before.get("model.embed_tokens.weight", before.get("transformer.wte.weight"))
    assert table is not None and np.array_equal(found["token_embd.weight"], table.numpy())
    if "lm_head.weight" in before:
        assert np.array_equal(found["output.weight"], before["lm_head.weight"].numpy())
    if trip.name == "llama":
        keys = own_pairs(torch.from_numpy(found["blk.1.attn_k.weight"].copy()), 2)
        assert torch.equal(keys, before["model.layers.1.self_attn.k_proj.weight"])
    names = reader.fields["tokenizer.ggml.tokens"].contents()
    assert names[: len(trip.words)] == trip.words.convert_ids_to_tokens(range(len(trip.words)))
    assert reader.fields["tokenizer.ggml.eos_token_id"].contents() == trip.theirs.config.eos_token_id
    origin = origin_of(trip.run.tokenizers.target)
    assert origin is not None
    loaded = glassformer.load(trip.run.path, device="cpu")
    own = dict(ReadBack(out, loaded, origin.vocabulary).model.model.named_parameters())
    assert all(torch.equal(own[n], trip.weights[n]) for n in trip.weights)


def cut_as(path: Path, name: str | None) -> None:
    """The tokenizer.json with the pattern that llama.cpp calls by this name."""
    pattern = next((pattern for pattern, known in CUTS.items() if known == name), None)
    if pattern is None:
        return
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    facts = json.loads(path.read_text(encoding="utf-8"))
    facts["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, letters]}
    path.write_text(json.dumps(facts), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "to"), [("gpt2", "hf"), ("gpt2", "gguf"), ("llama", "gguf"), ("qwen2", "gguf")])
def test_the_report_passes_and_llama_cpp_cuts_as_they_do(name: str, to: str, tmp_path: Path) -> None:
    """With real runtimes: scores, greedy answers, and, in llama.cpp, the same ids for a text."""
    llama_cpp = pytest.importorskip("llama_cpp") if to == "gguf" else None
    DECODERS[name](tmp_path / "theirs")
    cut_as(tmp_path / "theirs" / "tokenizer.json", {"llama": "llama-bpe", "qwen2": "qwen2"}.get(name))
    words = AutoTokenizer.from_pretrained(tmp_path / "theirs")
    write_run(read_source(str(tmp_path / "theirs")), tmp_path / "run")
    report = glassformer.load(tmp_path / "run", device="cpu").export(to, tmp_path / "out", sample=TEXTS[:3])
    exact = 1e-4 if name != "gpt2" or to == "hf" else 1e-2  # llama.cpp looks GELU up in a table of 16 bits
    assert report.passed and report.same_greedy == 1 and report.largest_logit_difference < exact
    assert not [note for note in report.notes if "ids go in" in note]
    if llama_cpp is not None:
        runner = llama_cpp.Llama(str(tmp_path / "out" / "model.gguf"), vocab_only=True, verbose=False)
        for text in (TEXTS[0], TEXTS[3], "mice's 1234  hats\n"):
            ids = runner.tokenize(text.encode(), add_bos=True, special=False)
            assert ids == words(text).input_ids


def tuned(start: Path, out: Path, data: Path, **train: Any) -> RunFolder:
    """A few steps on other texts."""
    data.write_text("".join(f"{n} mice ate {n} hats\n" for n in range(60)), encoding="utf-8")
    often = {"steps": 4, "save_every": 4, "validate_every": 4, "validate_examples": 2, "history": False}
    settings = {"train": str(data), "batch_tokens": 120, "format": "text", "val_fraction": 0.25}
    begin = runs.RunFolder.open(start)
    recipe = fine_tuned(
        begin.recipe, {"data": settings, "train": often | {"learning_rate": 0.01} | train}, name="tuned"
    )
    runs.train(recipe, out, start=begin)
    return RunFolder.open(out)


@pytest.mark.slow
def test_fine_tuned_it_goes_back_too(tmp_path: Path) -> None:
    """All its weights have moved but the bias that keeps down what is no word; and the run comes back to the bit."""
    gpt2(tmp_path / "theirs")
    found = read_source(str(tmp_path / "theirs"))
    write_run(found, tmp_path / "run")
    run = tuned(tmp_path / "run", tmp_path / "tuned", tmp_path / "texts.txt", weight_decay=0.1, decay_embeddings=True)
    now = {n: p.detach() for n, p in run.load_model().named_parameters()}
    assert [n for n in now if torch.equal(now[n], found.weights[n])] == ["output_bias"]
    model = glassformer.load(run.path, device="cpu")
    for to in ("hf", "gguf"):
        assert model.export(to, tmp_path / to).passed
    back = read_source(str(tmp_path / "hf"))
    assert all(torch.equal(back.weights[n], now[n]) for n in now)


def test_what_was_learned_and_has_no_place_there_is_refused(trip: Trip, tmp_path: Path) -> None:
    model, pairs = trip.run.load_model(), replace(trip.run.recipe.data, task="pairs")
    recipe = replace(trip.run.recipe, data=pairs)
    (tmp_path / "a").mkdir()
    export_folder(model, trip.run.tokenizers, recipe, tmp_path / "a")
    with torch.no_grad():
        model.embedding.weight[BOS] += 1
    if trip.name.startswith(("gpt2", "opt")):  # one id begins and ends their texts
        with pytest.raises(UserError, match="a token that begins a text"):
            export_folder(model, trip.run.tokenizers, recipe, tmp_path)
    else:
        export_folder(model, trip.run.tokenizers, recipe, tmp_path / "a")
    with torch.no_grad():
        model.output_bias[17] = 0.5
    with pytest.raises(UserError, match="an output bias"):
        export_folder(model, trip.run.tokenizers, trip.run.recipe, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


SPOILED: dict[str, dict[str, Any]] = {
    "another size": {"size": 7},
    "a number twice": {"control": [[2, 0], [1, 0]]},
    "a number beyond": {"control": [[2, 10**9]]},
    "no list": {"copies": 3},
    "no files": {"files": "AAAA"},
    "a text for a number": {"size": "many"},
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_memory_that_was_spoiled_is_one_sentence(name: str, tmp_path: Path) -> None:
    gpt2(tmp_path / "theirs")
    tokenizer = read_source(str(tmp_path / "theirs")).tokenizers.target
    assert isinstance(tokenizer, ImportedTokenizer) and tokenizer.foreign is not None
    tokenizer.foreign |= SPOILED[name]
    with pytest.raises(UserError, match=r"remembers|do not fit"):
        origin_of(tokenizer)


def test_files_of_other_names_are_not_written(tmp_path: Path) -> None:
    """A run from a stranger writes where it is told and nowhere else."""
    import base64
    import zlib

    gpt2(tmp_path / "theirs")
    tokenizer = read_source(str(tmp_path / "theirs")).tokenizers.target
    assert isinstance(tokenizer, ImportedTokenizer) and tokenizer.foreign is not None
    for files in ({"../evil": "x"}, {"tokenizer.json": 3}, ["x"]):
        tokenizer.foreign["files"] = base64.b64encode(zlib.compress(json.dumps(files).encode())).decode()
        with pytest.raises(UserError, match="remembers"):
            origin_of(tokenizer)


def test_a_folder_whose_ids_were_changed_is_refused(tmp_path: Path) -> None:
    trip = there_and_back("llama", llama, tmp_path)
    shutil.copy(trip.folder / "out" / "config.json", tmp_path / "config.json")
    facts = json.loads((tmp_path / "config.json").read_text())
    (trip.folder / "out" / "config.json").write_text(json.dumps(facts | {"bos_token_id": 2}))
    with pytest.raises(UserError, match=r"of another model|other ids"):
        read_source(str(trip.folder / "out"))
