"""A folder's generation_config.json: what it says of writing is what the run does when nobody tells it how. The reference is
`generate()` of transformers, told nothing but which ids stand for no text (with us those are never written).

Broken variants these catch: a second or third end token that is written on past; an answer that does not begin as it is forced
to; a length that counts the token the decoder begins with; a beam that stops by another rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import glassformer
from glassformer.cli.verbs import run_command
from glassformer.decode.filters import warp
from glassformer.errors import ConfigError, UserError
from glassformer.formats.huggingface.generation import GenerationSettings, take_over
from glassformer.formats.huggingface.importing import Languages
from glassformer.formats.import_run import read_source, write_run
from tests.external_models import bart, gpt2, llama, m2m_100, marian, pegasus

TEXTS = [
    "the cat sat on the mat",
    "a cat and a hat",
    "three mice, or four?",
    "one day the mice ate",
    "my cat",
    "on the mat",
]
Facts = dict[str, Any]
MAKERS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "marian": marian,
    "pegasus": pegasus,
    "bart": bart,
    "m2m_100": m2m_100,
    "gpt2": gpt2,
    "llama": llama,
    "qwen2": lambda folder: llama(folder, "Qwen2"),
    "qwen3": lambda folder: llama(folder, "Qwen3", head_dim=8),
}


def said(folder: Path, changes: Facts, name: str = "generation_config.json") -> None:
    """The folder, saying something else."""
    facts = json.loads((folder / name).read_text(encoding="utf-8"))
    (folder / name).write_text(
        json.dumps({k: v for k, v in (facts | changes).items() if v != "gone"}), encoding="utf-8"
    )


def made(kind: str, folder: Path, changes: Facts) -> tuple[Any, Any]:
    """A folder that says so, and its tokenizer. Answers of beams end, where the model has a bias to make them."""
    model, words = MAKERS[kind](folder)
    if "num_beams" in changes and hasattr(model, "final_logits_bias"):
        model.final_logits_bias[0, model.config.eos_token_id] += 5.0 if kind == "marian" else 9.0
        model.save_pretrained(folder)
    said(folder, changes)
    return folder, words


def loaded(folder: Path, pairs: bool) -> Any:
    """The folder's model as transformers loads it."""
    kind = transformers.AutoModelForSeq2SeqLM if pairs else transformers.AutoModelForCausalLM
    return kind.from_pretrained(folder).eval()


@torch.no_grad()
def written(model: Any, words: Any, text: str, imported: Any, **more: Any) -> tuple[list[int], bool]:
    """What transformers writes by the folder's own settings, in our ids; and whether it ended."""
    pairs, own = model.config.is_encoder_decoder, model.generation_config
    hidden = {words.pad_token_id, words.unk_token_id, words.bos_token_id} - {None, own.forced_bos_token_id}
    ends = own.eos_token_id if isinstance(own.eos_token_id, list) else [own.eos_token_id]
    hidden |= set(own.suppress_tokens or [])
    ids = words(text, return_tensors="pt")
    more = {"suppress_tokens": sorted(hidden - set(ends)) or None, "pad_token_id": words.pad_token_id or 0} | more
    found = model.generate(**ids, **more)[0].tolist()[1 if pairs else ids.input_ids.size(1) :]
    n = next((n for n, token in enumerate(found) if token in ends), len(found))
    return [imported.theirs["target"].ours.get(i, -1) for i in found[:n]], n < len(found)


def same_answers(kind: str, changes: Facts, tmp_path: Path, **more: Any) -> list[list[int]]:
    """Every answer by default is theirs, but those that a beam of theirs cut at the limit; some are left."""
    folder, words = made(kind, tmp_path / "theirs", changes)
    languages = Languages("en", "de") if kind == "m2m_100" else None
    imported = read_source(str(folder), languages=languages)
    ours = glassformer.load(write_run(imported, tmp_path / "run").path)
    beams, compared = imported.recipe.decode.beams, []
    model = loaded(folder, ours.verb == "translate")
    for text in TEXTS:
        there, ended = written(model, words, text, imported, **more)
        answer = ours.translate(text) if ours.verb == "translate" else ours.generate(text)
        here = list(answer.best.parts[0].hypothesis.ids)
        if beams == 1 or ended:
            assert here == there, (text, imported.recipe.decode)
            compared.append(here)
    assert len(compared) >= 2
    return compared


WAYS: dict[str, tuple[str, Facts]] = {
    "a beam that stops as it does by default": ("marian", {"num_beams": 4, "max_length": 20}),
    "a beam that never stops early": ("marian", {"num_beams": 3, "early_stopping": "never", "max_length": 16}),
    "a length penalty": ("pegasus", {"num_beams": 4, "length_penalty": 0.5, "max_length": 16}),
    "a first token, with a beam": ("pegasus", {"forced_bos_token_id": 7, "num_beams": 3, "max_length": 16}),
    "a first token that begins the decoder, too": ("pegasus", {"forced_bos_token_id": 0, "max_length": 9}),
    "at least so long": ("marian", {"min_length": 9, "num_beams": 2, "max_length": 20}),
    "so many new tokens": ("bart", {"min_new_tokens": 4, "max_new_tokens": 7}),
    "repetition, with a beam": ("marian", {"repetition_penalty": 1.7, "num_beams": 3, "max_length": 16}),
    "words that are bad": ("marian", {"bad_words_ids": [[5], [6], [7], [8]], "num_beams": 2, "max_length": 16}),
    "three ends": ("marian", {"eos_token_id": [0, 5, 6], "num_beams": 2, "max_length": 20}),
    "a beam of a GPT": ("llama", {"num_beams": 3, "max_new_tokens": 9, "eos_token_id": [2, *range(60, 200)]}),
    "no pair of tokens twice, the prompt included": ("gpt2", {"no_repeat_ngram_size": 2, "max_new_tokens": 12}),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_run_writes_as_generate_does(way: str, tmp_path: Path) -> None:
    kind, changes = WAYS[way]
    german = m2m_100(tmp_path / "many")[1].get_lang_id("de") if kind == "m2m_100" else None
    same_answers(kind, changes, tmp_path, **({} if german is None else {"forced_bos_token_id": german}))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "file"), [("llama", "generation_config.json"), ("qwen3", "config.json")])
def test_every_end_token_ends_a_text(kind: str, file: str, tmp_path: Path) -> None:
    """The third of three ends, too: greedily, drawn and with a beam; in the run, and back at Hugging Face. One of them begins
    texts, as Qwen's does."""
    folder, words = made(kind, tmp_path / "theirs", {"max_new_tokens": 12})
    first = read_source(str(folder))
    free = [first.theirs["target"].order[i] for i in written(loaded(folder, False), words, TEXTS[0], first)[0]]
    third = next(token for n, token in enumerate(free) if n > 1 and token not in free[:n])
    wanted = free[: free.index(third)]
    if file == "config.json":
        (folder / "generation_config.json").unlink()
    said(folder, {"eos_token_id": [2, 1, third], "bos_token_id": 1, "max_new_tokens": 12}, file)
    imported = read_source(str(folder))
    run = write_run(imported, tmp_path / "run")
    ours = glassformer.load(run.path)
    vocabulary = imported.theirs["target"]
    answer = ours.generate(TEXTS[0]).best.parts[0].hypothesis
    assert answer.ended == "eos" and [vocabulary.order[i] for i in answer.ids] == wanted
    for how in ({"temperature": 1.5, "num_samples": 20}, {"beam": 4, "n_best": 4}):
        for one in ours.generate(TEXTS[0], max_new_tokens=12, **how).answers:
            assert vocabulary.ours[third] not in one.parts[0].hypothesis.ids
    with pytest.raises(ConfigError, match="one token"):
        ours.generate(TEXTS[0], engine="ctranslate2", beam=1)
    ours.export("hf", tmp_path / "out", sample=TEXTS[:3])
    back = glassformer.load(write_run(read_source(str(tmp_path / "out")), tmp_path / "again").path)
    assert back.special_tokens == ours.special_tokens and len(back.special_tokens.ends) == 3
    there = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    ids = words(TEXTS[0], return_tensors="pt")
    how = {"max_new_tokens": 12, "pad_token_id": 0, "suppress_tokens": [0]}
    assert there.generate(**ids, **how)[0, ids.input_ids.size(1) :].tolist() == [*wanted, third]


@pytest.mark.slow
def test_the_ends_of_a_translator_survive_an_export(tmp_path: Path) -> None:
    folder, _ = made("marian", tmp_path / "theirs", {"eos_token_id": [0, 5, 6]})
    ours = glassformer.load(write_run(read_source(str(folder)), tmp_path / "run").path)
    ours.export("hf", tmp_path / "out", sample=[(text, TEXTS[1]) for text in TEXTS[:3]])
    facts = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert facts["eos_token_id"] == list(ours.special_tokens.ends) and len(facts["eos_token_id"]) == 3
    back = glassformer.load(write_run(read_source(str(tmp_path / "out")), tmp_path / "again").path)
    assert back.special_tokens == ours.special_tokens


def test_what_is_drawn_from_is_what_theirs_draw_from(tmp_path: Path) -> None:
    """Temperature, top-k (50 where nothing is said) and top-p leave the same tokens with the same chances."""
    for changes in ({"temperature": 0.7, "top_p": 0.8, "top_k": 20}, {"temperature": 1.3}, {"min_p": 0.1, "top_k": 0}):
        folder = tmp_path / str(len(changes)) / next(iter(changes))
        folder.mkdir(parents=True)
        folder, words = made("llama", folder / "theirs", {"do_sample": True, **changes})
        imported = read_source(str(folder))
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        ids = words(TEXTS[0], return_tensors="pt")
        how = {"output_scores": True, "output_logits": True, "return_dict_in_generate": True, "pad_token_id": 0}
        found = model.generate(**ids, max_new_tokens=1, **how)
        ours = warp(found.logits[0].log_softmax(-1), imported.recipe.decode).softmax(-1)
        torch.testing.assert_close(ours, found.scores[0].softmax(-1), atol=1e-5, rtol=1e-4)


def test_what_decode_cannot_say_is_noted(tmp_path: Path) -> None:
    aside = {
        "repetition_penalty": 1.1,
        "begin_suppress_tokens": [7],
        "forced_eos_token_id": 0,
        "renormalize_logits": True,
    }
    folder, _ = made("marian", tmp_path / "theirs", aside | {"bad_words_ids": [[5, 6]], "temperature": 0.3})
    (note,) = read_source(str(folder)).notes
    assert all(name in note for name in (*aside, "bad_words_ids")) and "temperature" not in note
    gpt = take_over(GenerationSettings({"max_length": 20, "min_length": 5, "num_beams": 1}, {}), "gpt", 40)
    assert gpt.left == {"max_length": 20, "min_length": 5} and gpt.decode == {"beam": 1}


@pytest.mark.slow
def test_a_folder_that_does_not_say_how_answers_begin(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of generation_config.json alone: config.json says it (and how they end), and both are compared. Of both: one sentence."""
    gone = {"decoder_start_token_id": "gone", "bos_token_id": "gone", "eos_token_id": "gone"}
    folder, _ = made("marian", tmp_path / "theirs", gone)
    assert run_command(["import", str(folder), "--out", str(tmp_path / "run")]) == 0
    said(folder, {"decoder_start_token_id": "gone", "bos_token_id": "gone"}, "config.json")
    with pytest.raises(UserError, match="nothing says which token begins an answer"):
        read_source(str(folder))
